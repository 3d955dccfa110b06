"""The port for the heartbeat of an event stream. Adapter: ``sources.event_stream.beats``.

Every method raises from ``core.errors``.
"""

from __future__ import annotations

from typing import Protocol

from floodmark.core.schema import TableName
from floodmark.core.source.beats import Beat


class Beats(Protocol):
    """The heartbeat table of a source."""

    def read_beat(self, table: TableName) -> Beat:
        """Return the last beat. Raises ConfigError where the table does not exist, or lacks its row."""

    def write_beat(self, table: TableName) -> None:
        """Write the next beat."""
