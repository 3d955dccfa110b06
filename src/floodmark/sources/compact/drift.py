"""``CompactDriftSource``: the details of tables, for schema drift. There are none beyond a snapshot."""

from __future__ import annotations

from collections.abc import Mapping

from floodmark.core.drift.risk import RowsAtRisk
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.sync.ports.drift import DriftFacts, TableDetails


class CompactDriftSource:
    """``sync.ports.drift.DriftSource`` for edge databases."""

    def read_drift(self, asked: Mapping[str, TableName]) -> DriftFacts:
        return DriftFacts({name: TableDetails() for name in asked}, ())

    def read_risk(self, table: TableName, instance: str, since: Position | None) -> RowsAtRisk:
        """Return no rows: every column of every device is read."""
        return RowsAtRisk(0, 0)
