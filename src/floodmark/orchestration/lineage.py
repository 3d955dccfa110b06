"""The lineage of a window as datasets of OpenLineage, with their facets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from airflow.providers.openlineage.extractors import OperatorLineage
from attrs import define
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import DatasetFacet, RunFacet, column_lineage_dataset, schema_dataset
from openlineage.client.facet_v2 import output_statistics_output_dataset as output_statistics
from openlineage.client.generated.base import OutputDatasetFacet

from floodmark.core.columns import casts_of, masks_of
from floodmark.core.plan import TableCounts, TablePlan, WindowPlan, WindowState, is_replay_lane, value_columns
from floodmark.sync.rules import EXPRESSION, bind_rule, columns_of

if TYPE_CHECKING:
    from floodmark.app.pipeline import App, Pipeline
    from floodmark.core.schema import Dataset, TableName


# --------------------------------------------------------------------------------------------------------------------
# Floodmark's own facets of OpenLineage events: the window of a load, and what it did to each table.


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
    return WindowFacet(plan.pipeline, plan.window_id, str(plan.to), state.value, is_replay_lane(plan.lane))


def table_facet(plan: WindowPlan, table: TablePlan, counts: TableCounts | None) -> TableFacet:
    """Return the facet of an output. counts: None before the merge."""
    interval = table.interval
    facet = TableFacet(
        kind="reload" if table.is_reload else table.kind.value,
        afterPosition=str(interval.after) if interval else None,
        toPosition=str(interval.to if interval else plan.to),
    )
    if counts:
        facet.readRows = counts.read_rows
        facet.insertedRows = counts.inserted_rows
        facet.updatedRows = counts.updated_rows
        facet.deletedRows = counts.deleted_rows
        facet.quarantinedRows = counts.quarantined_rows
        facet.sweptRows = counts.swept_rows
    return facet


# --------------------------------------------------------------------------------------------------------------------
# The lineage of a window as OpenLineage's datasets: tables read and written, their columns, positions and row counts.
#
# It imports ``openlineage``, which comes with the extra ``floodmark[openlineage]``: only Airflow's provider of that
# name leads here. Neither conditions nor values of rows are part of it.


FACET = "floodmark_window"
"""The name of Floodmark's facets, of the run and of each output."""
_AS_IT_IS = column_lineage_dataset.Transformation(type="DIRECT", subtype="IDENTITY")
_COMPUTED = column_lineage_dataset.Transformation(type="DIRECT", subtype="TRANSFORMATION", masking=False)
_MASKED = column_lineage_dataset.Transformation(type="DIRECT", subtype="TRANSFORMATION", masking=True)


def read_lineage(pipeline: Pipeline, window_id: int) -> OperatorLineage:
    """Return what a window reads and writes, with its row counts once it is merged.

    Raises from ``core.errors`` where the ledger cannot be read, or a connection is not complete.
    """
    with pipeline.kept_sessions():
        opened = pipeline.ledger.read_window(window_id)
        is_merged = opened.state is not WindowState.PLANNED
        counts: Mapping[TableName, TableCounts] = pipeline.ledger.read_counts(window_id) if is_merged else {}
    name_sources = pipeline.source.name_datasets()
    inputs: dict[Dataset, InputDataset] = {}
    outputs = []
    for table in opened.plan.tables:
        sources = name_sources(table)
        inputs |= {each: _input(table, each) for each in sources}
        output = _output(pipeline.app, table, sources)
        found = counts.get(table.source)
        output.outputFacets = {FACET: table_facet(opened.plan, table, found), **_statistics(found)}
        outputs.append(output)
        if table.is_history:
            # The counts are those of the newest versions.
            ended = _output(pipeline.app, table.ended_versions, sources)
            ended.outputFacets = {FACET: table_facet(opened.plan, table, None)}
            outputs.append(ended)
    return OperatorLineage(list(inputs.values()), outputs, {FACET: window_facet(opened.plan, opened.state)})


def _input(table: TablePlan, named: Dataset) -> InputDataset:
    columns = ((column.name, column.declared_type) for column in table.feed.table.columns)
    return InputDataset(named.namespace, named.name, facets=_schema(columns) if named.is_table else {})


def _output(app: App, table: TablePlan, sources: Iterable[Dataset]) -> OutputDataset:
    named = app.name_target(table.target)
    columns = value_columns(table.in_target, table.settings.temporal)
    types = [(column.name, app.name_type(column.type)) for column in columns]
    # The warehouse finds the type of a derived column.
    types += [(each.name, "") for each in table.settings.derived]
    lineage = column_lineage_dataset.ColumnLineageDatasetFacet(
        {
            name: column_lineage_dataset.Fields(
                [
                    column_lineage_dataset.InputField(each.namespace, each.name, source, [made])
                    for each in sources
                    for source, made in read.items()
                ]
            )
            for name, read in _columns_read(table).items()
        }
    )
    return OutputDataset(named.namespace, named.name, facets=_schema(types) | {"columnLineage": lineage})


def _columns_read(table: TablePlan) -> dict[str, dict[str, column_lineage_dataset.Transformation]]:
    """Return the columns of the source that each column of the target is made of, and how."""
    masked = masks_of(table.settings)
    made = dict.fromkeys(casts_of(table.settings), _COMPUTED) | dict.fromkeys(masked, _MASKED)
    before = [column.name for column in table.feed.table.stored_columns]
    of_target = dict(zip((column.name for column in table.in_target.stored_columns), before, strict=True))
    columns = {name: {source: made.get(source, _AS_IT_IS)} for name, source in of_target.items()}
    for derived in table.settings.derived:
        try:
            read = columns_of(bind_rule(derived.sql, of_target, EXPRESSION))
        except ValueError:
            continue  # The load refuses the table, and says why.
        of_source = [source for name, source in of_target.items() if name in read]
        columns[derived.name] = {source: _MASKED if source in masked else _COMPUTED for source in of_source}
    return columns


def _schema(columns: Iterable[tuple[str, str]]) -> dict[str, DatasetFacet]:
    fields = [schema_dataset.SchemaDatasetFacetFields(name, kind or None) for name, kind in columns]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields)}


def _statistics(counts: TableCounts | None) -> dict[str, output_statistics.OutputStatisticsOutputDatasetFacet]:
    """Return OpenLineage's own count, which every reader of events shows: the rows that the merge changed."""
    if counts is None:
        return {}
    changed = counts.inserted_rows + counts.updated_rows + counts.deleted_rows + counts.swept_rows
    return {"outputStatistics": output_statistics.OutputStatisticsOutputDatasetFacet(changed)}
