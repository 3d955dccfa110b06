"""The settings that a lake does not support: each is refused by name, in ``config check`` and before a load writes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from floodmark.core.errors import ConfigError, TargetRefusedError, command_line
from floodmark.core.plan import TablePlan, WindowPlan
from floodmark.core.schema import COMMITTED_COLUMN, ENDED_COLUMNS, HISTORY_COLUMNS, LOG_COLUMNS, SNAPSHOT_COLUMNS
from floodmark.core.settings import Deletes, TableOptions, UnstorablePolicy

LAKE_SOURCES = ("cdc", "change_tracking")
"""The kinds of sources that a lake takes so far."""
HARD = "floodmark.hard-deletes"
"""The property of a table from which rows were deleted."""
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_]+")
_PAGE = 'See docs/lakehouse.md, "What is refused".'


def find_refused(table: TableOptions) -> Iterator[str]:
    """Yield the settings of a table that a lake refuses, as they are written in the configuration."""
    settings = (
        (table.open_end is not None, "open_end"),
        (bool(table.track), "track"),
        (bool(table.derived), "derived"),
        (table.live_view, "live_view"),
        (table.unstorable is UnstorablePolicy.REPLACE, f"unstorable: {table.unstorable.value}"),
    )
    yield from (words for is_refused, words in settings if is_refused)
    for part in (table.target.schema, table.target.name):
        if not _PLAIN_NAME.fullmatch(part.replace("*", "x")):
            yield f"target {table.target}: its names may have letters, digits and _"


def refuse_unsupported(plan: WindowPlan) -> None:
    """Raise ConfigError or TargetRefusedError for the first table of a plan that a lake cannot take."""
    for table in plan.tables:
        refuse_table(table)


def refuse_table(table: TablePlan) -> None:
    """Raise ConfigError or TargetRefusedError for a table that a lake cannot take."""
    if refused := list(find_refused(table.settings)):
        raise ConfigError(str(table.source), f"a lake does not support {'; '.join(refused)}.", _PAGE)
    _refuse_plan(table)


def refuse_replay(plan: WindowPlan, table: TablePlan, metadata: Mapping[str, Any]) -> None:
    """Raise ConfigError for the replay of a table whose deletes may have left no trace.

    metadata: of the table that readers see.
    """
    if table.settings.deletes is Deletes.HARD or HARD in metadata.get("properties", {}):
        raise ConfigError(
            str(table.source),
            "a lake has no tombstones: the replay of a table that has, or had, deletes: hard would bring rows back.",
            f"Reload the table: {command_line('reload', plan.pipeline, table.source)}.",
        )


def _own_columns(table: TablePlan) -> tuple[tuple[str, ...], str]:
    """Return the columns of the table's style, and why no column of the source may have their names."""
    if table.is_log:
        return LOG_COLUMNS, "that is reserved in a log"
    if table.is_history:
        return (*HISTORY_COLUMNS, *ENDED_COLUMNS), "that is reserved in a history"
    if table.is_snapshot:
        return SNAPSHOT_COLUMNS, "that is reserved in a snapshot"
    return (COMMITTED_COLUMN,) if table.has_commit_times else (), "of the column that commit_times: true adds"


def _refuse_plan(table: TablePlan) -> None:
    if table.feed.has_members or table.feed.table.is_partial:
        raise ConfigError(
            str(table.source), "a lake takes the changes of CDC and of change tracking alone so far.", _PAGE
        )
    own, why = _own_columns(table)
    for column in table.in_target.stored_columns:
        if column.name in own:
            raise TargetRefusedError(
                str(table.source), f"column {column.name} has the name {why}.", "Give it another name (columns, as)."
            )
    folded = Counter(column.name.casefold() for column in table.in_target.stored_columns)
    if twice := [column.name for column in table.in_target.stored_columns if folded[column.name.casefold()] > 1]:
        raise TargetRefusedError(
            str(table.source),
            f"the columns {', '.join(twice)} differ in case alone, which readers of a lake do not distinguish.",
            "Leave one of them out of the capture instance (@captured_column_list).",
        )
