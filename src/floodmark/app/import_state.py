"""The import of another tool's state: its position becomes the watermark of tables that it has loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.app.tables import find_table_settings, parse_table
from floodmark.core.errors import ConfigError
from floodmark.sync.recovery.adopt import Adopter
from floodmark.wiring.pipelines import wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.app.context import AppContext
    from floodmark.core.imported.outcome import TableImport
    from floodmark.core.imported.position import ToolState
    from floodmark.wiring.pipelines import PipelineWiring


def import_state(
    app: AppContext, pipeline: str, state: ToolState, tables: Sequence[str] = (), *, dry_run: bool = False
) -> Sequence[TableImport]:
    """Import a state into a pipeline. tables: only these, by their names at the source; none for all.

    Raises ConfigError for an unknown pipeline or table and for a pipeline whose source is not of kind cdc, and the
    errors of ``Adopter.adopt``.
    """
    wiring = _wire_cdc(app, pipeline)
    chosen = [find_table_settings(app, pipeline, table) for table in tables] or wiring.settings.tables
    adopter = Adopter(wiring.settings, wiring.source.snapshots(), wiring.ledger.windows(), wiring.warehouse.adoption())
    with wiring.ledger.kept_sessions():
        return adopter.adopt(state, chosen, dry_run=dry_run)


def read_state_table(app: AppContext, pipeline: str, table: str, name: str | None) -> str:
    """Return the state in a table of the source's database that SSIS keeps its states in.

    name: of the state, where the table has several. Raises ConfigError, and the errors of the source.
    """
    return _wire_cdc(app, pipeline).source.read_state(parse_table(pipeline, table), name)


def _wire_cdc(app: AppContext, pipeline: str) -> PipelineWiring:
    wiring = wire(app.config, pipeline)
    if not wiring.source.has_log:
        raise ConfigError(
            pipeline,
            f"its source is of kind {wiring.source.kind}, and positions of other tools are those of change data "
            "capture.",
            "Run the pipeline, which loads its tables.",
        )
    return wiring
