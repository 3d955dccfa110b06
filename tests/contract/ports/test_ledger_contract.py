"""The contract of a ledger, on every ledger there is (``conftest.LEDGERS``)."""

from __future__ import annotations

from ledger_contract import LedgerContract


class TestLedger(LedgerContract):
    """With the fixture ``any_ledger`` of every adapter."""
