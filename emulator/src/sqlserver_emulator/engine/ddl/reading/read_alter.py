"""ALTER TABLE: what it asks for, as a list of changes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlserver_emulator.engine.ddl.reading.declarations import (
    ColumnDeclaration,
    Constraint,
    DataSpace,
    DefaultDeclaration,
    IndexDeclaration,
    KeyDeclaration,
)
from sqlserver_emulator.engine.ddl.reading.read_table import TableElementReader, TypeReader
from sqlserver_emulator.engine.ddl.reading.taking import (
    expect_end,
    refuse_what_is_not_storage,
    skip_storage_options,
    take_mask,
)
from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.types import TsqlType


@dataclass(frozen=True, slots=True)
class Additions:
    """ADD: columns, constraints and defaults, in the order of their kinds."""

    columns: tuple[ColumnDeclaration, ...]
    constraints: tuple[Constraint, ...]
    defaults: tuple[DefaultDeclaration, ...]
    indexes: tuple[IndexDeclaration, ...]
    data_spaces: tuple[DataSpace, ...]


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """ALTER COLUMN. ``nullable`` None: not said, which means NULL allowed."""

    column: str
    type: TsqlType
    alias_type_id: int | None
    nullable: bool | None
    mask: str | None = None
    """The masking function, where one is said."""
    collation: str = ""
    """As COLLATE names it; '' for the default."""


@dataclass(frozen=True, slots=True)
class MaskChange:
    """ALTER COLUMN … ADD MASKED and DROP MASKED. ``mask`` '': none."""

    column: str
    mask: str


@dataclass(frozen=True, slots=True)
class Removals:
    """DROP."""

    columns: tuple[str, ...]
    constraints: tuple[str, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class ConstraintSwitch:
    """CHECK / NOCHECK CONSTRAINT. ``names`` empty: ALL."""

    names: tuple[str, ...]
    enabled: bool
    validate: bool


@dataclass(frozen=True, slots=True)
class TriggerSwitch:
    """ENABLE / DISABLE TRIGGER. ``names`` empty: ALL."""

    names: tuple[str, ...]
    enabled: bool


@dataclass(frozen=True, slots=True)
class TrackingSwitch:
    """ENABLE / DISABLE CHANGE_TRACKING."""

    enabled: bool
    tracks_columns: bool


@dataclass(frozen=True, slots=True)
class NoChange:
    """REBUILD, SET (LOCK_ESCALATION = …): how a table is stored and locked is PostgreSQL's."""


Change = Additions | ColumnChange | MaskChange | Removals | ConstraintSwitch | TriggerSwitch | TrackingSwitch | NoChange


def read_alter_table(cursor: Cursor, read_type: TypeReader) -> Change:
    """From the word after the table's name on."""
    validate = True
    says_check = False
    # WITH NOCHECK leaves existing rows unchecked; without it a new constraint checks them.
    if cursor.accept("WITH", "NOCHECK"):
        validate = False
    else:
        says_check = cursor.accept("WITH", "CHECK")
    if cursor.accept("ADD"):
        change: Change = _read_additions(cursor, read_type, validate)
    elif cursor.accept("ALTER", "COLUMN"):
        change = _read_column_change(cursor, read_type)
    elif cursor.accept("DROP"):
        change = _read_removals(cursor)
    elif cursor.word == "REBUILD" or (cursor.word == "SET" and "LOCK_ESCALATION" in _words(cursor)):
        refuse_what_is_not_storage(cursor.between(cursor.at, len(cursor.tokens) - 1))
        cursor.at = len(cursor.tokens) - 1
        change = NoChange()
    elif cursor.word in ("CHECK", "NOCHECK"):
        change = _read_switch(cursor, says_check)
    elif cursor.word in ("ENABLE", "DISABLE") and cursor.word_after() == "TRIGGER":
        change = _read_trigger_switch(cursor)
    elif cursor.word in ("ENABLE", "DISABLE") and cursor.word_after() == "CHANGE_TRACKING":
        change = _read_tracking_switch(cursor)
    elif cursor.word == "SET" and "SYSTEM_VERSIONING" in _words(cursor):
        raise NotSupportedByEmulatorError("SYSTEM_VERSIONING (temporal tables)")
    else:
        raise NotSupportedByEmulatorError(f"ALTER TABLE … {cursor.word} {cursor.word_after()}".rstrip())
    expect_end(cursor)
    return change


def _words(cursor: Cursor) -> set[str]:
    return {token.word for token in cursor.tokens[cursor.at :]}


def _read_additions(cursor: Cursor, read_type: TypeReader, validate: bool) -> Additions:
    reader = TableElementReader(cursor, read_type)
    reader.take_element()
    while cursor.accept(","):
        reader.take_element()
    reader.take_storage()
    constraints = tuple(
        # A key has no unchecked state: its index needs every row.
        c if isinstance(c, KeyDeclaration) else replace(c, validate=validate)
        for c in reader.constraints
    )
    return Additions(
        tuple(reader.columns), constraints, tuple(reader.defaults), tuple(reader.indexes), tuple(reader.data_spaces)
    )


def _read_column_change(cursor: Cursor, read_type: TypeReader) -> ColumnChange | MaskChange:
    name = cursor.take_identifier()
    if cursor.accept("DROP", "MASKED"):
        return MaskChange(name, "")
    if cursor.word == "ADD" and cursor.word_after() == "MASKED":
        cursor.take()
        return MaskChange(name, take_mask(cursor))
    if cursor.word in ("ADD", "DROP"):
        raise NotSupportedByEmulatorError(f"ALTER COLUMN … {cursor.word} {cursor.word_after()}")
    type_, alias, _ = read_type(cursor)
    collation = cursor.take_identifier() if cursor.accept("COLLATE") else ""
    mask = take_mask(cursor) if cursor.word == "MASKED" else None
    nullable: bool | None = None
    if cursor.accept("NOT", "NULL"):
        nullable = False
    elif cursor.accept("NULL"):
        nullable = True
    skip_storage_options(cursor)
    return ColumnChange(name, type_, alias, nullable, mask, collation)


def _read_removals(cursor: Cursor) -> Removals:
    columns: list[str] = []
    constraints: list[str] = []
    if_exists = False
    # Without COLUMN, DROP removes constraints; the word holds for the names that follow.
    into = constraints
    if cursor.word == "PERIOD" and cursor.word_after() == "FOR":
        raise NotSupportedByEmulatorError("PERIOD FOR SYSTEM_TIME (temporal tables)")
    while True:
        if cursor.accept("COLUMN"):
            into = columns
        elif cursor.accept("CONSTRAINT"):
            into = constraints
        if_exists = cursor.accept("IF", "EXISTS") or if_exists
        into.append(cursor.take_identifier())
        skip_storage_options(cursor)
        if not cursor.accept(","):
            return Removals(tuple(columns), tuple(constraints), if_exists)


def _read_trigger_switch(cursor: Cursor) -> TriggerSwitch:
    enabled = cursor.take().word == "ENABLE"
    cursor.expect("TRIGGER")
    if cursor.accept("ALL"):
        return TriggerSwitch((), enabled)
    names = [cursor.take_identifier()]
    while cursor.accept(","):
        names.append(cursor.take_identifier())
    return TriggerSwitch(tuple(names), enabled)


def _read_tracking_switch(cursor: Cursor) -> TrackingSwitch:
    enabled = cursor.take().word == "ENABLE"
    cursor.expect("CHANGE_TRACKING")
    tracks_columns = False
    if enabled and cursor.accept("WITH"):
        cursor.expect("(", "TRACK_COLUMNS_UPDATED", "=")
        tracks_columns = cursor.expect_one_of(("ON", "OFF")) == "ON"
        cursor.expect(")")
    return TrackingSwitch(enabled, tracks_columns)


def _read_switch(cursor: Cursor, validate: bool) -> ConstraintSwitch:
    enabled = cursor.take().word == "CHECK"
    cursor.expect("CONSTRAINT")
    if cursor.accept("ALL"):
        return ConstraintSwitch((), enabled, validate)
    names = [cursor.take_identifier()]
    while cursor.accept(","):
        names.append(cursor.take_identifier())
    return ConstraintSwitch(tuple(names), enabled, validate)
