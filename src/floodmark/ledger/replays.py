"""``ReplayQueries``: what replays ask of the ledger beside what every run does. Part of ``PostgresLedger``."""

from __future__ import annotations

from collections.abc import Mapping

from psycopg.rows import dict_row

from floodmark.core.lsn import Lsn
from floodmark.core.replay import WholeLoad
from floodmark.core.schema import TableName
from floodmark.postgres import Reachable, open_transaction
from floodmark.sqlfiles import read_sql


class ReplayQueries:
    """Holds no session: each method is one transaction of its own."""

    _at: Reachable

    def list_whole_loads(self, pipeline: str) -> Mapping[TableName, WholeLoad]:
        with open_transaction(self._at, pipeline) as session:
            cursor = session.cursor(row_factory=dict_row)
            rows = cursor.execute(read_sql("warehouse", "list_whole_loads"), {"pipeline": pipeline}).fetchall()
        return {
            TableName(row["source_schema"], row["source_name"]): WholeLoad(
                row["window_id"], Lsn(row["to_lsn"]), row["to_lsn_at"]
            )
            for row in rows
        }
