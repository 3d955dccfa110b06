"""The variables of the load job's environment: connections as JSON, with their passwords, a URL, and what to report."""

from __future__ import annotations

SOURCE_VARIABLE = "FLOODMARK_SOURCE"
KIND_VARIABLE = "FLOODMARK_SOURCE_KIND"
"""Holds the kind of the source; no secret."""
LEDGER_VARIABLE = "FLOODMARK_LEDGER"
WAREHOUSE_VARIABLE = "FLOODMARK_WAREHOUSE"
REMOTE_VARIABLE = "FLOODMARK_SPARK_REMOTE"
"""Holds the URL of a Spark Connect server, with its token, where the load uses one."""
PROGRESS_VARIABLE = "FLOODMARK_PROGRESS_LINES"
"""Set where the starter of the job reads its progress as lines for programs; no secret. Otherwise it is in the log."""
