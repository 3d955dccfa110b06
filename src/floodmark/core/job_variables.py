"""The variables of the load job's environment that hold connections as JSON, with their passwords."""

from __future__ import annotations

SOURCE_VARIABLE = "FLOODMARK_SOURCE"
LEDGER_VARIABLE = "FLOODMARK_LEDGER"
WAREHOUSE_VARIABLE = "FLOODMARK_WAREHOUSE"
