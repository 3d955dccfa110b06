"""Write a first configuration, and continue from the state of another tool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from floodmark.config.loading import first_config, load_config
from floodmark.core.capture import enable_table
from floodmark.core.errors import ConfigError
from floodmark.core.snapshot import Survey, SurveyedTable
from floodmark.sync.repair import Adopter

if TYPE_CHECKING:
    from floodmark.app.pipeline import Pipeline
    from floodmark.core.imported import TableImport, ToolState


# --------------------------------------------------------------------------------------------------------------------
# The first configuration: written from a survey of the source, checked, and never over another file.


def chosen_tables(survey: Survey, wanted: Sequence[str]) -> list[SurveyedTable]:
    """Return the tables of these names, or all. Raises ConfigError for a name that the login cannot see."""
    exact = {str(table.name): table for table in survey.tables}
    folded = {str(table.name).casefold(): table for table in survey.tables}
    known = {name: exact.get(name) or folded.get(name.casefold()) for name in wanted}
    missing = [name for name, table in known.items() if table is None]
    if missing:
        raise ConfigError(
            f"database {survey.database}",
            f"there is no table {', '.join(missing)}, or the login may not see it.",
            "Spell it schema.table, and grant SELECT on it.",
        )
    # A table that is named twice is written once.
    return list(dict.fromkeys(table for table in known.values() if table)) if wanted else list(survey.tables)


def write_config(path: Path, name: str, source: str, warehouse: str, tables: Sequence[SurveyedTable]) -> None:
    """Write a configuration with one pipeline. Raises ConfigError where it would not be valid, or the file exists."""
    if not any(table.key for table in tables):
        raise ConfigError(
            str(path), "none of the tables has a primary key.", "Write it by hand, and declare the `key` of each table."
        )
    text = first_config(name, source, warehouse, tables)
    _check(text, path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = path.open("x", encoding="utf-8")
    except FileExistsError:
        raise ConfigError(str(path), "the file exists already.", "Choose another with --output.") from None
    except OSError as error:
        raise ConfigError(str(path), f"the file could not be written: {error.strerror}.") from None
    try:
        with opened:
            opened.write(text)
    except OSError as error:
        path.unlink()
        raise ConfigError(str(path), f"the file could not be written: {error.strerror}.") from None


def _check(text: str, path: Path) -> None:
    """Raise ConfigError where the text would not be a valid configuration."""
    with TemporaryDirectory() as folder:
        tried = Path(folder, path.name)
        tried.write_text(text, encoding="utf-8")
        try:
            load_config(tried)
        except ConfigError as error:
            raise ConfigError(str(path), error.message, error.hint) from None


def enabling_script(survey: Survey, tables: Sequence[SurveyedTable]) -> str:
    """Return the T-SQL that enables change data capture where it is not; empty where it is on all of them."""
    lines = [] if survey.has_cdc else ["EXEC sys.sp_cdc_enable_db;"]
    lines += [enable_table(table.name) for table in tables if table.key and not table.has_cdc]
    return "\n".join(lines)


# --------------------------------------------------------------------------------------------------------------------
# The import of another tool's state: its position becomes the watermark of tables that it has loaded.


def import_state(
    pipeline: Pipeline, state: ToolState, tables: Sequence[str] = (), *, dry_run: bool = False
) -> Sequence[TableImport]:
    """Import a state into a pipeline. tables: only these, by their names at the source; none for all.

    Raises ConfigError for an unknown table and for a pipeline whose source is not of kind cdc, and the errors of
    ``Adopter.adopt``.
    """
    _require_log(pipeline)
    chosen = [pipeline.find_table(table) for table in tables] or pipeline.settings.tables
    adopter = Adopter(pipeline.settings, pipeline.source.snapshots(), pipeline.ledger, pipeline.app.adoption)
    with pipeline.kept_sessions():
        return adopter.adopt(state, chosen, dry_run=dry_run)


def read_state_table(pipeline: Pipeline, table: str, name: str | None) -> str:
    """Return the state in a table of the source's database that SSIS keeps its states in.

    name: of the state, where the table has several. Raises ConfigError, and the errors of the source.
    """
    _require_log(pipeline)
    return pipeline.source.read_state(pipeline.parse_table(table), name)


def _require_log(pipeline: Pipeline) -> None:
    if not pipeline.source.has_log:
        raise ConfigError(
            pipeline.name,
            f"its source is of kind {pipeline.source.name}, and positions of other tools are those of change data "
            "capture.",
            "Run the pipeline, which loads its tables.",
        )
