"""The page of a pipeline's DAG in Airflow: its steps, its tables and their settings."""

from __future__ import annotations

from floodmark.config.models import PipelineConfig
from floodmark.core.settings import TableSettings
from floodmark.wiring.pipelines import PipelineWiring

_DELETES = {"soft": "kept, marked `__deleted`", "hard": "removed, with a tombstone"}
_STEPS = """
| task | what it does |
|---|---|
| `open_window` | Continues an unfinished window, or asks the source for its newest position and plans the next \
window, with one end for all tables. Ends the run as skipped when there is nothing to read. |
| `load` | One Spark job for all tables: reads the window, nets the changes, stages them, and merges all tables in one \
transaction. Killed at any point and run again, it produces the same tables. |
| `check` | Checks the rows of the window, and that the targets have them, with Great Expectations. |
| `advance` | Moves the watermarks by compare-and-set and emits one asset event per table. |
| `report_gaps` | Fails while a table is left out of the windows: it can no longer be read (`on_gap: fail`), it cannot \
be planned as configured, or its rows were refused. |
"""

_NO_HISTORY = (
    "`airflow backfill` is refused: the source keeps only the newest change of each key, so that no past interval can "
    "be read again. Reload a table instead (DAG `cdc_load_<pipeline>`).\n\n"
)


def describe_pipeline(name: str, pipeline: PipelineConfig, wiring: PipelineWiring) -> str:
    """Return the page in Markdown."""
    settings, source = wiring.settings, wiring.source
    rows = "\n".join(_table_row(table) for table in settings.tables)
    schedule = f"`{pipeline.schedule}` (UTC)" if pipeline.schedule else "on demand"
    return (
        f"# Pipeline {name}\n\n"
        f"Moves the changes of {len(settings.tables)} tables of source `{pipeline.source}` into the warehouse, "
        f"{schedule}, by {source.method}.\n{_STEPS}\n"
        "A run covers one window `(watermark, newest position]`. The ledger in the warehouse, schema `floodmark`, is "
        "the source of truth for progress; Airflow shows a copy of it. A failed run loses nothing: the next one "
        "finishes the same window.\n\n"
        f"{'' if source.has_history else _NO_HISTORY}"
        f"## Tables\n\n| source | target | deleted rows | net changes | rules |\n|---|---|---|---|---|\n{rows}\n\n"
        f"Fractions below a microsecond: `{pipeline.temporal.value}`. Rows are expected in the warehouse within "
        f"{pipeline.freshness}. Rows that arrive later are reported, never rejected.\n"
    )


def _table_row(table: TableSettings) -> str:
    rules = "<br>".join(f"{rule.name}: `{_cell(rule.sql)}`, else {rule.on_failure.value}" for rule in table.rules)
    cells = (str(table.source), str(table.target), _DELETES[table.deletes.value], f"by {table.net.value}", rules)
    return f"| {' | '.join(map(_cell, cells[:2]))} | {' | '.join(cells[2:])} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
