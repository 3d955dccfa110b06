"""Floodmark's own facets of OpenLineage events: the window of a load, and what it did to each table."""

from __future__ import annotations

from attrs import define
from openlineage.client.facet_v2 import RunFacet
from openlineage.client.generated.base import OutputDatasetFacet

from floodmark.core.window.lane import is_replay_lane
from floodmark.core.window.plan import TableCounts, TablePlan, WindowPlan, WindowState

# Fields have the spelling of OpenLineage's own facets.


@define
class WindowFacet(RunFacet):
    """The window that a load works on."""

    pipeline: str
    windowId: int  # noqa: N815
    toPosition: str  # noqa: N815
    """The position up to which the tables are complete after the window."""
    state: str
    """planned, merged, checked or advanced."""
    isReplay: bool  # noqa: N815
    """Whether changes are merged again: no watermark moves."""


@define
class TableFacet(OutputDatasetFacet):
    """The part of one table in a window. The counts are there once the window is merged."""

    kind: str
    """changes, first_load or reload."""
    afterPosition: str | None  # noqa: N815
    """Where the changes begin, excluded; none for a whole table."""
    toPosition: str  # noqa: N815
    """Where the changes end, included; for a whole table, the position that its rows are stamped with."""
    readRows: int | None = None  # noqa: N815
    insertedRows: int | None = None  # noqa: N815
    updatedRows: int | None = None  # noqa: N815
    deletedRows: int | None = None  # noqa: N815
    quarantinedRows: int | None = None  # noqa: N815
    sweptRows: int | None = None  # noqa: N815
    """Rows that a reload did not find at the source any more."""


def window_facet(plan: WindowPlan, state: WindowState) -> WindowFacet:
    """Return the facet of a run."""
    return WindowFacet(plan.pipeline, plan.window_id, str(plan.to_lsn), state.value, is_replay_lane(plan.lane))


def table_facet(plan: WindowPlan, table: TablePlan, counts: TableCounts | None) -> TableFacet:
    """Return the facet of an output. counts: None before the merge."""
    interval = table.interval
    facet = TableFacet(
        kind="reload" if table.is_reload else table.kind.value,
        afterPosition=str(interval.after_lsn) if interval else None,
        toPosition=str(interval.to_lsn if interval else plan.to_lsn),
    )
    if counts:
        facet.readRows = counts.read_rows
        facet.insertedRows = counts.inserted_rows
        facet.updatedRows = counts.updated_rows
        facet.deletedRows = counts.deleted_rows
        facet.quarantinedRows = counts.quarantined_rows
        facet.sweptRows = counts.swept_rows
    return facet
