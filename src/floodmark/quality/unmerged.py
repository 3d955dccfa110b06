"""The queries for staged rows that are not in the target as the merge has to leave them.

Like all checks, they start from the staged rows: ``staged`` is a query of them.
"""

from __future__ import annotations

from floodmark.core.naming import history_view_name
from floodmark.core.plan import LoadKind, TablePlan
from floodmark.core.schema import (
    LEDGER_SCHEMA,
    LOAD_COLUMN,
    NEXT_LOAD_COLUMN,
    NEXT_POSITION_COLUMN,
    OPERATION_COLUMN,
    POSITION_COLUMN,
    Operation,
    quote,
    quote_table,
)
from floodmark.core.settings import Deletes

# ruff: noqa: S608  (names are quoted by core.schema, and Great Expectations takes no bound values)


def select_unmerged(table: TablePlan, staged: str, *, has_tombstones: bool = True) -> str:
    """Return the query of staged rows that are not in the target. A staged delete needs no row there, but in a log.

    has_tombstones: whether hard deletes leave tombstones in the database of the target.
    """
    if table.is_history:
        return _select_without_version(table, staged)
    key = table.target_key
    missing = f"target.{quote(key[0])} IS NULL"
    older = f"target.{quote(POSITION_COLUMN)} < staged.{quote(POSITION_COLUMN)}"
    is_delete = f"staged.{quote(OPERATION_COLUMN)} = {Operation.DELETE.value}"
    later = _unless_deleted_later(table) if has_tombstones and table.settings.deletes is Deletes.HARD else ""
    needed = "" if table.is_log else f" AND NOT {is_delete}{later}"
    return (
        f"SELECT {_list('staged', key)} FROM ({staged}) AS staged "
        f"LEFT JOIN {quote_table(table.target)} AS target ON {_same(key, 'target', 'staged')} "
        f"WHERE {older} OR ({missing}{needed})"
    )


def _unless_deleted_later(table: TablePlan) -> str:
    """Return the condition for hard deletes that no later delete has removed the row and written a tombstone."""
    key = _list("staged", table.in_target.key)
    return (
        f" AND NOT EXISTS (SELECT 1 FROM {LEDGER_SCHEMA}.tombstones AS tombstone "
        f"WHERE tombstone.target_schema = '{_literal(table.target.schema)}' "
        f"AND tombstone.target_name = '{_literal(table.target.name)}' "
        f"AND tombstone.key = jsonb_build_array({key}) "
        f"AND tombstone.lsn >= staged.{quote(POSITION_COLUMN)})"
    )


def _select_without_version(table: TablePlan, staged: str) -> str:
    """Return the query of staged rows that are in no version.

    An event has one, unless the newest load of the whole table has read it, which takes its load number. A row of a
    load may equal the newest version, whatever that one's commit is.
    """
    is_load = table.kind is LoadKind.FIRST_LOAD
    key = table.target_key if is_load else table.row_key
    versions = table.target if is_load else history_view_name(table.target)
    return (
        f"SELECT {_list('staged', key)} FROM ({staged}) AS staged WHERE staged.{quote(LOAD_COLUMN)} IS NOT NULL "
        f"AND NOT EXISTS (SELECT 1 FROM {quote_table(versions)} AS version WHERE {_same(key, 'staged', 'version')})"
    )


def select_gaps(table: TablePlan, staged: str) -> str:
    """Return the query of the ended versions of staged keys, from the first staged commit on, that lack the next one.

    They are found by their index, whatever number of versions the keys have.
    """
    versions = quote_table(history_view_name(table.target))
    pairs = zip(_PLACE, _NEXT_PLACE, strict=True)
    follows = " AND ".join(f"later.{quote(name)} = ended.{quote(next_name)}" for name, next_name in pairs)
    return (
        f"{_select_ended(table, staged)} AND NOT EXISTS (SELECT 1 FROM {versions} AS later "
        f"WHERE {_same(table.target_key, 'later', 'ended')} AND {follows})"
    )


def select_doubled(table: TablePlan, staged: str) -> str:
    """Return the query of the ended versions of staged keys that are there twice, from the first staged commit on."""
    return f"{_select_ended(table, staged)} GROUP BY {_list('ended', table.row_key)} HAVING count(*) > 1"


_PLACE, _NEXT_PLACE = (LOAD_COLUMN, POSITION_COLUMN), (NEXT_LOAD_COLUMN, NEXT_POSITION_COLUMN)


def _select_ended(table: TablePlan, staged: str) -> str:
    """Return the query of the ended versions of staged keys that reach beyond the first staged commit."""
    first = ", ".join(f"(SELECT min({quote(name)}) FROM ({staged}) AS staged)" for name in _PLACE)
    return (
        f"SELECT {_list('ended', table.row_key)} FROM {quote_table(table.ended_versions.target)} AS ended "
        f"WHERE ({_list('ended', _NEXT_PLACE)}) >= ({first}) "
        f"AND EXISTS (SELECT 1 FROM ({staged}) AS staged WHERE {_same(table.target_key, 'staged', 'ended')})"
    )


def _list(alias: str, columns: tuple[str, ...]) -> str:
    return ", ".join(f"{alias}.{quote(name)}" for name in columns)


def _same(columns: tuple[str, ...], one: str, other: str) -> str:
    return " AND ".join(f"{one}.{quote(name)} = {other}.{quote(name)}" for name in columns)


def _literal(text: str) -> str:
    return text.replace("'", "''")
