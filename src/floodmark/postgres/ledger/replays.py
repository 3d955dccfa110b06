"""``ReplayQueries``: the queries of the ledger that only replays need. Part of ``PostgresLedger``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg.rows import DictRow, dict_row

from floodmark.core.position import Position
from floodmark.core.positions import read_position
from floodmark.core.recovery.replay import WholeLoad
from floodmark.core.schema import TableName
from floodmark.postgres.session import Reachable, open_transaction
from floodmark.postgres.sql import read_sql


class ReplayQueries:
    """The part of ``PostgresLedger`` for replays. It holds no session: each method is one transaction of its own."""

    _at: Reachable

    def list_whole_loads(self, pipeline: str) -> Mapping[TableName, WholeLoad]:
        rows = self._replay_rows(pipeline, "list_whole_loads")
        return {
            _source(row): WholeLoad(row["window_id"], read_position(row["to_lsn"]), row["to_lsn_at"]) for row in rows
        }

    def list_server_net_ends(self, pipeline: str, lsn: Position) -> Mapping[TableName, Position]:
        rows = self._replay_rows(pipeline, "list_server_net_ends", lsn=lsn.value)
        return {_source(row): read_position(row["to_lsn"]) for row in rows}

    def list_next_begins(self, pipeline: str, lsn: Position) -> Mapping[TableName, Position]:
        rows = self._replay_rows(pipeline, "list_next_begins", lsn=lsn.value)
        return {_source(row): read_position(row["after_lsn"]) for row in rows}

    def _replay_rows(self, pipeline: str, statement: str, **parameters: Any) -> list[DictRow]:
        with open_transaction(self._at, pipeline) as session:
            cursor = session.cursor(row_factory=dict_row)
            return cursor.execute(read_sql(statement), {"pipeline": pipeline, **parameters}).fetchall()


def _source(row: DictRow) -> TableName:
    return TableName(row["source_schema"], row["source_name"])
