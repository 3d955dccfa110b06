"""``DriftCheck``: the check for schema drift at the opening of a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings
from floodmark.core.source.snapshot import SourceSnapshot
from floodmark.core.source.state import TableState
from floodmark.sync.ports.drift import Hold


@dataclass(frozen=True, slots=True)
class Examined:
    """A snapshot that was compared with the recorded shapes of the tables."""

    snapshot: SourceSnapshot
    """The snapshot without the columns that the tables have lost."""
    holds: Mapping[TableName, Hold]
    """The holds of the pipeline."""


class DriftCheck(Protocol):
    """A comparison of a pipeline's tables with their recorded shapes."""

    def examine(
        self, settings: PipelineSettings, snapshot: SourceSnapshot, states: Mapping[TableName, TableState]
    ) -> Examined:
        """Record what is new in a snapshot, and return it with the pipeline's holds."""

    def drop_staging(self, window_id: int) -> None:
        """Drop the staging tables of a window that is given up or planned again."""


class NoDriftCheck:
    """``DriftCheck`` that finds no drift, and leaves staging tables alone."""

    def examine(
        self, settings: PipelineSettings, snapshot: SourceSnapshot, states: Mapping[TableName, TableState]
    ) -> Examined:
        return Examined(snapshot, {})

    def drop_staging(self, window_id: int) -> None:
        """Do nothing."""
