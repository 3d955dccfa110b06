"""``PostgresUpkeepLedger``: what the upkeep of a source remembers, in the ledger beside the watermarks."""

from __future__ import annotations

from datetime import datetime

from floodmark.postgres.ledger.schema import ensure_schema
from floodmark.postgres.session import Reachable, open_transaction
from floodmark.postgres.sql import read_sql


class PostgresUpkeepLedger:
    """``sync.capture_ports.StopLedger``. Makes the ledger's tables where it is the first to need them."""

    def __init__(self, connection: Reachable) -> None:
        self._at = connection

    def read_ended_stop(self, source: str, since: datetime) -> str:
        """An empty text also where no ledger has been made yet: who only looks makes none."""
        with open_transaction(self._at, source) as session:
            made = session.execute("SELECT to_regclass('floodmark.ended_stops') IS NOT NULL").fetchone()
            if made is None or not made[0]:
                return ""
            row = session.execute(
                read_sql("read_ended_stop"), {"source": source, "since": since}
            ).fetchone()  # fmt: skip
        return str(row[0]) if row else ""

    def record_ended_stop(self, source: str, since: datetime, reason: str) -> None:
        ensure_schema(self._at)
        with open_transaction(self._at, source) as session:
            session.execute(read_sql("record_ended_stop"), {"source": source, "since": since, "reason": reason})
