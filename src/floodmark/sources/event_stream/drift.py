"""``StreamDriftSource``: the details of tables, for schema drift. There are none beyond a snapshot of the database."""

from __future__ import annotations

from collections.abc import Mapping

from floodmark.core.drift.risk import RowsAtRisk
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.sync.ports.drift import DriftFacts, TableDetails


class StreamDriftSource:
    """``sync.ports.drift.DriftSource`` for event streams."""

    def read_drift(self, asked: Mapping[str, TableName]) -> DriftFacts:
        return DriftFacts({name: TableDetails() for name in asked}, ())

    def read_risk(self, table: TableName, instance: str, since: Position | None) -> RowsAtRisk:
        """Return unknown numbers: a value by a default does not differ from another."""
        return RowsAtRisk(None)
