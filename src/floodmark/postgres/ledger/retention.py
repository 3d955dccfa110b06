"""``PostgresMarkLedger``: the watermarks that a source's cleanup must not pass, with their paces."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from psycopg.rows import DictRow, dict_row

from floodmark.core.positions import read_position
from floodmark.core.schema import TableName
from floodmark.core.upkeep.retention import PACE_SECONDS, Mark, pace_of
from floodmark.postgres.ledger.measures import record_sizes
from floodmark.postgres.ledger.schema import ensure_schema
from floodmark.postgres.session import Reachable, open_transaction
from floodmark.postgres.sql import read_sql


class PostgresMarkLedger:
    """``sync.upkeep.retention.MarkLedger``. It creates the ledger's tables when it is the first to need them."""

    def __init__(self, connection: Reachable) -> None:
        self._at = connection

    def read_marks(self, pipelines: Collection[str]) -> Sequence[Mark]:
        ensure_schema(self._at)
        with open_transaction(self._at) as session:
            cursor = session.cursor(row_factory=dict_row)
            named = {"pipelines": list(pipelines), "over_seconds": PACE_SECONDS}
            rows = cursor.execute(read_sql("read_marks"), named).fetchall()
        return [_mark(row) for row in rows]

    def record_sizes(self, pipeline: str, sizes: Mapping[TableName, tuple[int | None, int | None]]) -> None:
        record_sizes(self._at, pipeline, sizes)


def _mark(row: DictRow) -> Mark:
    return Mark(
        pipeline=row["pipeline"],
        table=TableName(row["source_schema"], row["source_name"]),
        instance=row["instance_name"],
        lsn=read_position(row["lsn"]),
        at=row["at"],
        pace=pace_of(row["at"], row["reference_at"], row["elapsed_seconds"]) if row["at"] else 0.0,
    )
