"""The page of a pipeline's DAG in Airflow: what it moves where, and what was decided about it."""

from __future__ import annotations

from floodmark.config.models import PipelineConfig
from floodmark.core.settings import PipelineSettings, TableSettings

_DELETES = {"soft": "kept, marked `__deleted`", "hard": "removed, with a tombstone"}
_STEPS = """
| task | what it does |
|---|---|
| `open_window` | Goes on with an unfinished window, or asks the source how far its log has come and plans the next \
one, with one end for all tables. Ends the run as skipped when there is nothing to read. |
| `load` | One Spark job for all tables: reads the window, nets the changes, stages them, and merges all tables in one \
transaction. Killed anywhere and run again, it ends in the same tables. |
| `check` | Great Expectations on the rows of the window and their place in the targets. |
| `advance` | Moves the watermarks by compare-and-set and emits one asset event per table. |
| `tell_gaps` | Fails while a table that is not to be repaired (`on_gap: fail`) cannot be read any more; it is \
left out of the windows until somebody has it loaded anew. |
"""


def describe_pipeline(name: str, pipeline: PipelineConfig, settings: PipelineSettings) -> str:
    """Markdown."""
    rows = "\n".join(_table_row(table) for table in settings.tables)
    schedule = f"`{pipeline.schedule}` (UTC)" if pipeline.schedule else "on demand"
    return (
        f"# Pipeline {name}\n\n"
        f"Moves the changes of {len(settings.tables)} tables of source `{pipeline.source}` into the warehouse, "
        f"{schedule}, by SQL Server's own change data capture.\n{_STEPS}\n"
        "A run covers one window `(watermark, newest LSN]`. The truth about progress is the ledger in the warehouse, "
        "schema `floodmark`; what Airflow shows is a copy of it. A failed run loses nothing: the next one finishes the "
        "same window.\n\n"
        f"## Tables\n\n| source | target | deleted rows | net changes | rules |\n|---|---|---|---|---|\n{rows}\n\n"
        f"Fractions below a microsecond: `{pipeline.temporal.value}`. Rows are expected in the warehouse within "
        f"{pipeline.freshness}; a later arrival is reported, never refused.\n"
    )


def _table_row(table: TableSettings) -> str:
    rules = "<br>".join(f"{rule.name}: `{_cell(rule.sql)}`, else {rule.on_failure.value}" for rule in table.rules)
    cells = (str(table.source), str(table.target), _DELETES[table.deletes.value], f"by {table.net.value}", rules)
    return f"| {' | '.join(map(_cell, cells[:2]))} | {' | '.join(cells[2:])} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
