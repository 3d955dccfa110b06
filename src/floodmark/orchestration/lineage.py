"""The lineage of a window as OpenLineage's datasets: tables read and written, their columns, positions and row counts.

It imports ``openlineage``, which comes with the extra ``floodmark[openlineage]``: only Airflow's provider of that name
leads here. Neither conditions nor values of rows are part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from airflow.providers.openlineage.extractors import OperatorLineage
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import DatasetFacet, column_lineage_dataset, schema_dataset
from openlineage.client.facet_v2 import output_statistics_output_dataset as output_statistics

from floodmark.core.window.columns import value_columns
from floodmark.core.window.plan import TableCounts, TablePlan, WindowState
from floodmark.orchestration.lineage_facets import table_facet, window_facet

if TYPE_CHECKING:
    from floodmark.core.dataset import Dataset
    from floodmark.core.schema import TableName
    from floodmark.wiring.pipelines import PipelineWiring

FACET = "floodmark_window"
"""The name of Floodmark's facets, of the run and of each output."""
_AS_IT_IS = column_lineage_dataset.Transformation(type="DIRECT", subtype="IDENTITY")


def read_lineage(wiring: PipelineWiring, window_id: int) -> OperatorLineage:
    """Return what a window reads and writes, with its row counts once it is merged.

    Raises from ``core.errors`` where the ledger cannot be read, or a connection is not complete.
    """
    with wiring.ledger.kept_sessions():
        ledger = wiring.ledger.windows()
        opened = ledger.read_window(window_id)
        is_merged = opened.state is not WindowState.PLANNED
        counts: Mapping[TableName, TableCounts] = ledger.read_counts(window_id) if is_merged else {}
    name_sources, name_target = wiring.source.name_datasets(), wiring.warehouse.name_datasets()
    inputs: dict[Dataset, InputDataset] = {}
    outputs = []
    for table in opened.plan.tables:
        sources = name_sources(table)
        inputs |= {each: _input(table, each) for each in sources}
        output = _output(wiring, table, sources, name_target(table.target))
        found = counts.get(table.source)
        output.outputFacets = {FACET: table_facet(opened.plan, table, found), **_statistics(found)}
        outputs.append(output)
    return OperatorLineage(list(inputs.values()), outputs, {FACET: window_facet(opened.plan, opened.state)})


def _input(table: TablePlan, named: Dataset) -> InputDataset:
    columns = ((column.name, column.declared_type) for column in table.feed.table.columns)
    return InputDataset(named.namespace, named.name, facets=_schema(columns) if named.is_table else {})


def _output(wiring: PipelineWiring, table: TablePlan, sources: Iterable[Dataset], named: Dataset) -> OutputDataset:
    columns = value_columns(table.feed.table, table.temporal)
    types = ((column.name, wiring.warehouse.type_name(column.type)) for column in columns)
    lineage = column_lineage_dataset.ColumnLineageDatasetFacet(
        {
            column.name: column_lineage_dataset.Fields(
                [
                    column_lineage_dataset.InputField(each.namespace, each.name, column.name, [_AS_IT_IS])
                    for each in sources
                ]
            )
            for column in columns
        }
    )
    return OutputDataset(named.namespace, named.name, facets=_schema(types) | {"columnLineage": lineage})


def _schema(columns: Iterable[tuple[str, str]]) -> dict[str, DatasetFacet]:
    fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in columns]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields)}


def _statistics(counts: TableCounts | None) -> dict[str, output_statistics.OutputStatisticsOutputDatasetFacet]:
    """Return OpenLineage's own count, which every reader of events shows: the rows that the merge changed."""
    if counts is None:
        return {}
    changed = counts.inserted_rows + counts.updated_rows + counts.deleted_rows + counts.swept_rows
    return {"outputStatistics": output_statistics.OutputStatisticsOutputDatasetFacet(changed)}
