"""Schema drift: how a tracked table differs from its last known shape, and which policy applies.

The module owns the comparison of two shapes. Which type can hold which is in ``types``, the DDL behind a difference in
``ddl``, the sentences for people in ``messages``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from floodmark.core.drift.supported import unsupported_reason
from floodmark.core.drift.types import TypeChange, classify_type
from floodmark.core.policies import DriftClass, DriftPolicies, DriftPolicy, TemporalPolicy
from floodmark.core.position import Position
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.source.feed import InstanceIdentity
from floodmark.core.source.snapshot import TableSnapshot
from floodmark.core.source.words import CDC_WORDS, SourceWords


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table and its capture instance at one moment."""

    name: TableName
    """Of the source table."""
    identity: InstanceIdentity
    captured: tuple[SourceColumn, ...]
    """The columns that reach the target."""
    lost: tuple[str, ...]
    """Captured columns that the source has dropped, also when a column of the same name has been added since."""
    uncaptured: tuple[SourceColumn, ...]
    """Columns of the source that the instance does not capture; their ordinal is the source's column_id."""
    key: tuple[str, ...]
    """The server's."""
    max_column_id: int
    ddl_lsn: Position | None = None
    """Up to where the DDL history has been read; None for not at all."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that changed."""

    kind: DriftClass
    column: str | None = None
    """None: the table as a whole."""
    before: str = ""
    """In words, "" where there is none."""
    after: str = ""
    """In words, "" where there is none."""
    is_captured: bool = True
    """False: the column has never reached the target, so that nothing has to be held."""
    obstacle: str = ""
    """Why an added column can never reach the target, "" where it can."""


@dataclass(frozen=True, slots=True)
class Absence:
    """The reason why a known table could not be found."""

    cdc_enabled: bool
    exists: bool
    renamed_to: TableName | None = None
    """The table that its capture instance belongs to now."""


def stored(table: SourceTable, lost: tuple[str, ...]) -> SourceTable:
    """Return the table without the columns it has lost: their NULLs must not overwrite values of the target."""
    if not lost:
        return table
    columns = tuple(column for column in table.columns if column.name not in lost)
    return SourceTable(table.name, columns, table.key)


def is_as_known(table_snapshot: TableSnapshot, shape: TableShape) -> bool:
    """Return whether a snapshot shows the table as it is known, so that no closer check is needed.

    The highest column_id distinguishes a column that was dropped and added again from one that stayed: ids are never
    reused.
    """
    instance = table_snapshot.instance
    if instance is None or instance.identity != shape.identity:
        return False
    table = stored(instance.table, shape.lost)
    return (table.columns, table.key, table.name, table_snapshot.max_column_id) == (
        shape.captured,
        shape.key,
        shape.name,
        shape.max_column_id,
    )


def compare_shapes(
    known: TableShape, seen: TableShape, temporal: TemporalPolicy, words: SourceWords = CDC_WORDS
) -> tuple[Difference, ...]:
    """Return all differences, in the order in which the operator should read them."""
    if known.identity != seen.identity:
        before, after = words.describe_feed(known.identity), words.describe_feed(seen.identity)
        return (Difference(DriftClass.INSTANCE_REPLACED, None, before, after),)
    return (*_table_differences(known, seen), *_captured(known, seen, temporal), *_uncaptured(known, seen, temporal))


def added_column(column: SourceColumn, *, is_captured: bool = False) -> Difference:
    """Return the difference for a column that was added.

    is_captured: whether its values are read; a capture instance does not capture it.
    """
    return Difference(
        DriftClass.COLUMN_ADDED,
        column.name,
        "",
        column.declared_type,
        is_captured=is_captured,
        obstacle=unsupported_reason(column),
    )


def as_captured_by(seen: TableShape, elsewhere: TableShape) -> TableShape:
    """Return a shape whose columns are those of the other instance, as far as both capture them.

    The rest is as it is now.
    """
    before = {column.name: column for column in elsewhere.captured}
    captured = tuple(
        replace(before[column.name], ordinal=column.ordinal) if column.name in before else column
        for column in seen.captured
    )
    return replace(seen, captured=captured, key=elsewhere.key)


def classify_absence(known: TableShape, absence: Absence, words: SourceWords = CDC_WORDS) -> Difference:
    """Return why a table can no longer be found.

    A right that was revoked is no drift; the caller handles it.
    """
    if not absence.cdc_enabled or (absence.exists and absence.renamed_to is None):
        return Difference(DriftClass.CDC_DISABLED, None, words.describe_feed(known.identity), "none")
    if absence.renamed_to is not None:
        return Difference(DriftClass.TABLE_RENAMED, None, str(known.name), str(absence.renamed_to))
    return Difference(DriftClass.TABLE_DROPPED, None, str(known.name), "no such table that the login may see")


def select_policy(policies: DriftPolicies, difference: Difference, *, declares_key: bool = False) -> DriftPolicy:
    """Return the policy for a difference.

    declares_key: the configuration names the key, so the server's does not matter.
    """
    policy = policies.of(difference.kind)
    harmless = not difference.is_captured or (difference.kind is DriftClass.KEY_CHANGED and declares_key)
    if harmless and policy in (DriftPolicy.HOLD, DriftPolicy.EVOLVE):
        return DriftPolicy.ALERT
    if difference.obstacle and policy is DriftPolicy.PROPOSE:
        return DriftPolicy.ALERT
    return policy


def _table_differences(known: TableShape, seen: TableShape) -> Iterator[Difference]:
    if known.name != seen.name:
        yield Difference(DriftClass.TABLE_RENAMED, None, str(known.name), str(seen.name))
    if known.key != seen.key:
        yield Difference(DriftClass.KEY_CHANGED, None, _key(known.key), _key(seen.key))


def _captured(known: TableShape, seen: TableShape, temporal: TemporalPolicy) -> Iterator[Difference]:
    now = {(column.name, column.ordinal): column for column in seen.captured}
    for before in known.captured:
        after = now.pop((before.name, before.ordinal), None)
        if after is None:
            yield Difference(DriftClass.COLUMN_DROPPED, before.name, before.declared_type)
        else:
            yield from _column(before, after, temporal, seen.key, is_captured=not before.is_computed)
    # A capture instance keeps its columns; where the table itself is read, another column has another ordinal.
    for added in now.values():
        yield added_column(added, is_captured=not added.is_computed)


def _uncaptured(known: TableShape, seen: TableShape, temporal: TemporalPolicy) -> Iterator[Difference]:
    then = {(column.name, column.ordinal): column for column in known.uncaptured}
    now = {(column.name, column.ordinal): column for column in seen.uncaptured}
    for place, before in then.items():
        if place in now:
            yield from _column(before, now[place], temporal, seen.key, is_captured=False)
        else:
            yield Difference(DriftClass.COLUMN_DROPPED, before.name, before.declared_type, is_captured=False)
    for place, after in now.items():
        if place not in then:
            yield added_column(after)


_OF_TYPE = {
    TypeChange.WIDENED: DriftClass.TYPE_WIDENED,
    TypeChange.NARROWED: DriftClass.TYPE_NARROWED,
    TypeChange.CHANGED: DriftClass.TYPE_CHANGED,
}


def _column(
    before: SourceColumn, after: SourceColumn, temporal: TemporalPolicy, key: tuple[str, ...], *, is_captured: bool
) -> Iterator[Difference]:
    change = classify_type(before, after, temporal, key)
    if change is not None:
        types = (before.declared_type, after.declared_type)
        yield Difference(_OF_TYPE[change], before.name, *types, is_captured=is_captured)
    if before.nullable != after.nullable:
        words = (_nullability(before), _nullability(after))
        yield Difference(DriftClass.NULLABILITY_CHANGED, before.name, *words, is_captured=is_captured)


def _nullability(column: SourceColumn) -> str:
    return "NULL" if column.nullable else "NOT NULL"


def _key(names: tuple[str, ...]) -> str:
    return f"({', '.join(names)})" if names else "no key"
