"""``PostgresUpkeepLedger``: the records of a source's upkeep, in the ledger."""

from __future__ import annotations

from datetime import datetime

from floodmark.postgres.ledger.schema import ensure_schema
from floodmark.postgres.session import Reachable, open_transaction
from floodmark.postgres.sql import read_sql


class PostgresUpkeepLedger:
    """``sync.ports.capture.StopLedger``. It creates the ledger's tables when it first writes to them."""

    def __init__(self, connection: Reachable) -> None:
        self._at = connection

    def read_ended_stop(self, source: str, since: datetime) -> str:
        """Return the reason of an ended stop; an empty text also where there is no ledger: a read creates none."""
        with open_transaction(self._at, source) as session:
            exists = session.execute("SELECT to_regclass('floodmark.ended_stops') IS NOT NULL").fetchone()
            if exists is None or not exists[0]:
                return ""
            row = session.execute(read_sql("read_ended_stop"), {"source": source, "since": since}).fetchone()
        return str(row[0]) if row else ""

    def record_ended_stop(self, source: str, since: datetime, reason: str) -> None:
        ensure_schema(self._at)
        with open_transaction(self._at, source) as session:
            session.execute(read_sql("record_ended_stop"), {"source": source, "since": since, "reason": reason})
