"""Target tables: their types, their shape, and their locks."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING
from zlib import crc32

import psycopg
from psycopg import sql

from floodmark.core.errors import (
    ConfigError,
    FloodmarkBugError,
    FloodmarkError,
    TargetLostError,
    TargetRefusedError,
    WarehouseUnavailableError,
    command_line,
)
from floodmark.core.naming import why_not_named
from floodmark.core.plan import MAIN_LANE, LoadKind, TablePlan
from floodmark.core.schema import (
    CHANGED_COLUMN,
    COMMAND_COLUMN,
    COMMITTED_COLUMN,
    DELETED_COLUMN,
    ENDED_COLUMNS,
    HISTORY_COLUMNS,
    KEPT_COLUMN,
    LOAD_COLUMN,
    LOADED_AT_COLUMN,
    LOG_COLUMNS,
    NEXT_LOAD_COLUMN,
    NEXT_POSITION_COLUMN,
    OPERATION_COLUMN,
    POSITION_COLUMN,
    SEQUENCE_COLUMN,
    SNAPSHOT_COLUMNS,
    TARGET_COLUMNS,
    VALID_FROM_COLUMN,
    VALID_TO_COLUMN,
    WINDOW_COLUMN,
    TableName,
    quote,
    quote_table,
)
from floodmark.core.settings import Style
from floodmark.core.types import Kind, WarehouseType, warehouse_type
from floodmark.postgres.session import (
    CANCELED_HINT,
    open_session,
    translated,
)
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.derived import DerivedColumns

if TYPE_CHECKING:
    from floodmark.postgres.session import WarehouseConnection

# --------------------------------------------------------------------------------------------------------------------
# PostgreSQL's names for the warehouse types, and which type can be widened to which without losing a value.


_NAMES = {
    Kind.BOOLEAN: "boolean",
    Kind.INT16: "smallint",
    Kind.INT32: "integer",
    Kind.INT64: "bigint",
    Kind.FLOAT32: "real",
    Kind.FLOAT64: "double precision",
    Kind.TEXT: "text",
    Kind.DATE: "date",
    Kind.TIME: "time(6) without time zone",
    Kind.TIMESTAMP: "timestamp(6) without time zone",
    Kind.TIMESTAMP_TZ: "timestamp(6) with time zone",
    Kind.UUID: "uuid",
    Kind.BYTES: "bytea",
}
_INTEGER_DIGITS = {"smallint": 5, "integer": 10, "bigint": 19}
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_VARCHAR = re.compile(r"character varying\((\d+)\)")
_MOMENT = re.compile(r"(time|timestamp)(?:\(6\))? (with|without) time zone")


def postgres_type(kind: WarehouseType) -> str:
    """Return the type as ``format_type`` prints it, so that it can be compared with the type of a column."""
    if kind.kind is Kind.DECIMAL:
        return f"numeric({kind.precision},{kind.scale})"
    if kind.kind is Kind.TEXT and kind.length:
        return f"character varying({kind.length})"
    return _NAMES[kind.kind]


def is_moment(name: str) -> bool:
    """Return whether a type, as ``format_type`` prints it, is a time of day or a timestamp."""
    return _MOMENT.fullmatch(name) is not None


def type_holds(wide: str, narrow: str) -> bool:
    """Return whether ``wide`` can hold every value of type ``narrow`` (both as ``format_type`` prints them)."""
    if _plain(wide) == _plain(narrow) or (wide == "text" and _VARCHAR.fullmatch(narrow)):
        return True
    if (into := _VARCHAR.fullmatch(wide)) and (out := _VARCHAR.fullmatch(narrow)):
        return int(into[1]) >= int(out[1])
    if wide == "character varying":
        return _VARCHAR.fullmatch(narrow) is not None
    if wide == "double precision":
        return narrow == "real"
    if narrow in _INTEGER_DIGITS and wide in _INTEGER_DIGITS:
        return _INTEGER_DIGITS[wide] >= _INTEGER_DIGITS[narrow]
    return _numeric_holds(wide, narrow)


def _numeric_holds(wide: str, narrow: str) -> bool:
    out = _NUMERIC.fullmatch(narrow)
    if not out and narrow not in _INTEGER_DIGITS:
        return False
    if wide == "numeric":
        return True
    into = _NUMERIC.fullmatch(wide)
    if not into:
        return False
    digits, scale = (int(out[1]) - int(out[2]), int(out[2])) if out else (_INTEGER_DIGITS[narrow], 0)
    return int(into[1]) - int(into[2]) >= digits and int(into[2]) >= scale


def _plain(name: str) -> str:
    # PostgreSQL keeps six digits by default.
    match = _MOMENT.fullmatch(name)
    return f"{match[1]} {match[2]} time zone" if match else name


# --------------------------------------------------------------------------------------------------------------------
# Target tables: read, created, widened, or refused by column, never changed in a way that could lose a value.


OWN_TYPES = {
    POSITION_COLUMN: "bytea",
    OPERATION_COLUMN: "smallint",
    WINDOW_COLUMN: "bigint",
    LOADED_AT_COLUMN: "timestamp with time zone",
    DELETED_COLUMN: "boolean",
    LOAD_COLUMN: "bigint",
    COMMAND_COLUMN: "integer",
    SEQUENCE_COLUMN: "bytea",
    CHANGED_COLUMN: "text[]",
    COMMITTED_COLUMN: "timestamp with time zone",
    KEPT_COLUMN: "text[]",
    VALID_FROM_COLUMN: "timestamp with time zone",
    NEXT_LOAD_COLUMN: "bigint",
    NEXT_POSITION_COLUMN: "bytea",
    VALID_TO_COLUMN: "timestamp with time zone",
}
NULLABLE_COLUMNS = frozenset({CHANGED_COLUMN, COMMITTED_COLUMN, VALID_FROM_COLUMN, VALID_TO_COLUMN})
FILLED = 80
"""The share of a page of a new target that inserts fill, in percent.

PostgreSQL writes a new version of each updated row. Where it finds room on the same page, no index gets an entry, and
the next update takes the place of the old version (a HOT update).
"""
LOCK_SECONDS = 10.0
"""The lock timeout of ALTER TABLE. A waiting ALTER blocks every later reader of the target, so it gives up."""


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of an existing target."""

    type_name: str
    """The type as ``format_type`` prints it."""
    filled_by_itself: bool
    """The column may be left out of an INSERT."""
    in_key: bool
    """The column is part of the primary key."""
    is_generated: bool = False
    """The warehouse computes the column, and no statement writes it."""


def ensure_target(
    session: psycopg.Connection,
    table: TablePlan,
    found: Mapping[str, TargetColumn],
    before_change: Callable[[bool], None],
) -> list[str]:
    """Create or widen the target. Return the changes, for the log. Raises ConfigError naming the column.

    found: the columns that the target has; none where it does not exist. before_change: called before each change of
    the columns, with whether one gets another type. Raises TargetLostError where a load of the whole table has to make
    it again.
    """
    wanted, derived = column_types(table), DerivedColumns.of(session, table, found)
    if not found:
        if table.where or (table.kind is LoadKind.CHANGES and table.watermark is not None):
            raise TargetLostError(
                str(table.source),
                f"the target {table.target} does not exist, and was loaded before.",
                f"Nothing was merged. Reload the table: {command_line('reload', 'PIPELINE', table.source)}",
            )
        _ensure_schema(session, table.target.schema)
        session.execute(create_target(table))
        if table.has_ended:
            # A window finds the versions that its changes follow, or come before, by their ends.
            ends = f"({quote(NEXT_LOAD_COLUMN)}, {quote(NEXT_POSITION_COLUMN)})"
            session.execute(f"CREATE INDEX ON {quote_table(table.target)} {ends}")
        _comment(session, table, wanted)
        return [f"{table.target} created with {len(wanted)} columns", *derived.ensure(before_change)]
    refuse_old_values(session, table)
    if table.renames_columns:
        before_change(False)
    found, done = _rename(session, table, found)
    check_shape(table, wanted, found)
    added = {COMMITTED_COLUMN: OWN_TYPES[COMMITTED_COLUMN]} if COMMITTED_COLUMN in floodmark_columns(table) else {}
    for name, type_name in (wanted | added).items():
        if name not in found:
            before_change(False)
            session.execute(f"ALTER TABLE {quote_table(table.target)} ADD COLUMN {quote(name)} {type_name}")
            _comment(session, table, [name])
            done.append(f"{table.target}: column {name} {type_name} added")
        elif not type_holds(found[name].type_name, type_name):
            _refuse_padded_key(table, name, found[name].type_name)
            before_change(True)
            derived.drop()
            _widen(session, table, name, type_name)
            done.append(f"{table.target}: column {name} widened from {found[name].type_name} to {type_name}")
    return [*done, *derived.ensure(before_change)]


def _rename(
    session: psycopg.Connection, table: TablePlan, found: Mapping[str, TargetColumn]
) -> tuple[Mapping[str, TargetColumn], list[str]]:
    """Give the columns of a target the names of the plan, where it has others. Return them, and what was done.

    Raises ConfigError for a column that cannot get its name, or that no plan has renamed.
    """
    columns, done = dict(found), []
    targets = {each.target for each in table.columns}
    # A column may have to give up its name before another one gets it.
    while free := [each for each in table.columns if each.was in columns and each.target not in columns]:
        was, name = free[0].was, free[0].target
        session.execute(f"ALTER TABLE {quote_table(table.target)} RENAME COLUMN {quote(was)} TO {quote(name)}")
        columns[name] = columns.pop(was)
        done.append(f"{table.target}: column {was} renamed to {name}")
        _comment(session, table, [name])
    if table.kind is LoadKind.FIRST_LOAD and not table.where:
        for each in table.columns:
            was = each.was or each.source
            if was in columns and was not in targets and (each.was or each.target not in columns):
                raise _other_shape(table, was, f"is there, and {each.target} is the name for its values")
    return columns, done


def _comment(session: psycopg.Connection, table: TablePlan, names: Iterable[str]) -> None:
    """Note the source's name of each column that has another one in the target."""
    sources = {each.target: each.source for each in table.columns if each.source != each.target}
    for name in names:
        if name in sources:
            text = sql.Literal(f"Source column: {sources[name]}").as_string(session)
            session.execute(f"COMMENT ON COLUMN {quote_table(table.target)}.{quote(name)} IS {text}")


def _refuse_padded_key(table: TablePlan, name: str, before: str) -> None:
    """Raise TargetRefusedError for a longer char(n) in the key, unless all rows are loaded.

    The source has padded its rows, and the next change of one would have another key. No index allows the change.
    """
    is_padded = name in table.in_target.key and table.in_target.column(name).type_name in ("char", "nchar")
    if is_padded and (table.kind is LoadKind.CHANGES or table.where):
        raise TargetRefusedError(
            str(table.source),
            f"column {name} of the key is {table.in_target.column(name).declared_type} now, and was {before}: the "
            "source pads its values with more blanks, so that all rows have other keys.",
            f"Nothing was merged. Reload the table: {command_line('reload', 'PIPELINE', table.source)}",
        )


def _widen(session: psycopg.Connection, table: TablePlan, column: str, type_name: str) -> None:
    try:
        with session.transaction():  # a savepoint: the catalogue is queried after an error
            session.execute(f"ALTER TABLE {quote_table(table.target)} ALTER COLUMN {quote(column)} TYPE {type_name}")
    except psycopg.errors.FeatureNotSupported as error:
        named = {"schema": table.target.schema, "name": table.target.name, "column": column}
        views = [view for (view,) in session.execute(read_sql("list_views_of_column"), named).fetchall()]
        obstacle = f"views use it: {', '.join(views)}" if views else str(error.diag.message_primary)
        raise TargetRefusedError(
            str(table.source),
            f"column {column} of {table.target} cannot become {type_name}: {obstacle}.",
            "Drop the objects that use the column, run the pipeline, and create them again; no row is lost meanwhile.",
        ) from error


def column_types(table: TablePlan) -> dict[str, str]:
    """Return the columns with their PostgreSQL types. Raises ConfigError for one that PostgreSQL cannot have."""
    source = table.in_target
    types = {}
    for column in source.stored_columns:
        if why := why_not_named(column.name):
            raise _refused(table, column.name, why)
        if table.settings.style is Style.CURRENT:
            if column.name in floodmark_columns(table):
                raise _refused(table, column.name, "has the name of the column that commit_times: true adds")
        elif column.name in {*floodmark_columns(table), *ENDED_COLUMNS}:
            raise _refused(table, column.name, f"has a name that is reserved in a {table.settings.style.value}")
        types[column.name] = postgres_type(warehouse_type(source, column, table.settings.temporal))
    return types


def create_target(table: TablePlan) -> str:
    """Return the CREATE TABLE statement of a target."""
    columns = [f"{quote(name)} {type_name}" for name, type_name in column_types(table).items()]
    columns += [
        f"{quote(name)} {OWN_TYPES[name]}{'' if name in NULLABLE_COLUMNS else ' NOT NULL'}"
        for name in floodmark_columns(table)
    ]
    columns.append(f"PRIMARY KEY ({', '.join(quote(name) for name in table.target_key)})")
    is_updated = not (table.is_log or table.is_snapshot or table.has_ended)
    filled = f" WITH (fillfactor = {FILLED})" if is_updated else ""
    return f"CREATE TABLE {quote_table(table.target)} (\n  " + ",\n  ".join(columns) + f"\n){filled}"


def floodmark_columns(table: TablePlan) -> tuple[str, ...]:
    """Return Floodmark's columns of the target."""
    if table.is_history:
        return (*HISTORY_COLUMNS, *(ENDED_COLUMNS if table.has_ended else ()))
    if table.is_snapshot:
        return SNAPSHOT_COLUMNS
    if table.is_log:
        return LOG_COLUMNS
    return (*TARGET_COLUMNS, COMMITTED_COLUMN) if table.has_commit_times else TARGET_COLUMNS


def list_relations(tables: Iterable[TablePlan]) -> list[TableName]:
    """Return the tables that plans write: their targets, and for a history that of the ended versions."""
    plans = (plan for table in tables for plan in (table, *([table.ended_versions] if table.is_history else [])))
    return [plan.target for plan in plans]


def _ensure_schema(session: psycopg.Connection, schema: str) -> None:
    """Create the schema where it is missing.

    The catalogue is checked first: CREATE SCHEMA IF NOT EXISTS needs its privilege even where the schema exists.
    """
    found = session.execute("SELECT to_regnamespace(%s) IS NOT NULL", [quote(schema)]).fetchone()
    if not found or not found[0]:
        # Another pipeline may create it at the same time.
        session.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}")


def read_columns(
    session: psycopg.Connection, targets: Sequence[TableName]
) -> Mapping[TableName, Mapping[str, TargetColumn]]:
    """Return the columns of those targets that exist."""
    wanted = {"schemas": [target.schema for target in targets], "names": [target.name for target in targets]}
    found: dict[TableName, dict[str, TargetColumn]] = {}
    for schema, table, name, *column in session.execute(read_sql("read_columns"), wanted).fetchall():
        found.setdefault(TableName(schema, table), {})[name] = TargetColumn(*column)
    return found


_OWNERS_OF_KEYS = {Style.LOG: "a log", Style.SNAPSHOT: "a snapshot"}
_MARKS = (
    (KEPT_COLUMN, Style.HISTORY),
    (LOAD_COLUMN, Style.LOG),
    (DELETED_COLUMN, Style.CURRENT),
    (SEQUENCE_COLUMN, Style.SNAPSHOT),
)
"""The first of these columns that a target has shows its style."""


def check_shape(table: TablePlan, wanted: dict[str, str], found: Mapping[str, TargetColumn]) -> None:
    """Raise ConfigError, naming the column, for a target that can never get the columns of the plan.

    wanted: PostgreSQL's types by name, as ``column_types`` returns them. found: the columns that the target has.
    """
    _check_style(table, found)
    own = floodmark_columns(table)
    _check_commit_times(table, wanted, found)
    for name in own:
        if name == COMMITTED_COLUMN and name not in found and not table.keeps_changes:
            continue  # it is added
        if name not in found or found[name].type_name != OWN_TYPES[name]:
            raise _other_shape(
                table, name, f"is missing or not {OWN_TYPES[name]}, so Floodmark did not create the table"
            )
    key, expected = {name for name, column in found.items() if column.in_key}, set(table.target_key)
    if key != expected:
        raise _other_shape(
            table,
            ", ".join(sorted(key ^ expected)),
            f"is not in both keys: the table's is ({', '.join(sorted(key))}), "
            f"{_OWNERS_OF_KEYS.get(table.settings.style, 'the source')}'s ({', '.join(sorted(expected))})",
        )
    if cut := [name for name in sorted(key) if wanted.get(name) == "text" and is_moment(found[name].type_name)]:
        raise _cut_key(table, cut)
    for name, column in found.items():
        if name not in wanted and name not in own and not column.filled_by_itself:
            raise _other_shape(table, name, "is NOT NULL, has no default, and does not come from the source")
        if name in wanted and not (
            type_holds(column.type_name, wanted[name]) or type_holds(wanted[name], column.type_name)
        ):
            raise _other_shape(table, name, f"has type {column.type_name}, which cannot become {wanted[name]}")


def refuse_old_values(session: psycopg.Connection, table: TablePlan) -> None:
    """Raise ConfigError for a target with rows whose columns were masked otherwise, or not at all."""
    has_rows = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(sql.Identifier(table.target.schema, table.target.name))
    if table.renewed and session.execute(has_rows).fetchone() == (True,):
        what = "masked, cast or left out now, or have another mask or cast"
        what = f"with other values of {', '.join(table.renewed)}: those columns are {what}"
        what = "of another filter, and a load of devices deletes no row" if table.renewed == ("where",) else what
        raise ConfigError(
            str(table.source),
            f"the target {table.target} has rows {what}.",
            "Rename or drop the target, and reload the table, which creates it again: "
            f"{command_line('reload', 'PIPELINE', table.source)}.",
        )


def _check_style(table: TablePlan, found: Mapping[str, TargetColumn]) -> None:
    """Raise ConfigError for a target of another style: one target has one style for good."""
    made_for = next((style for column, style in _MARKS if column in found), table.settings.style)
    if made_for is not table.settings.style:
        style = table.settings.style.value
        raise ConfigError(
            str(table.source),
            f"the target {table.target} was made with style: {made_for.value}, and pipelines.yaml has style: {style}.",
            f"Restore style: {made_for.value}. Or rename or drop the target, and reload the table, which creates it "
            f"with style: {style}: {command_line('reload', 'PIPELINE', table.source)}.",
        )


def _check_commit_times(table: TablePlan, wanted: Collection[str], found: Collection[str]) -> None:
    """Raise ConfigError for times of commits that a window would leave as they are in the rows that it writes."""
    if COMMITTED_COLUMN in found and COMMITTED_COLUMN not in {*wanted, *floodmark_columns(table)}:
        column = f"{quote_table(table.target)} DROP COLUMN {quote(COMMITTED_COLUMN)}"
        raise ConfigError(
            str(table.source),
            f"the target {table.target} has {COMMITTED_COLUMN}, and pipelines.yaml has commit_times: false: rows would "
            "keep the time of a change before.",
            f"Restore commit_times: true, or drop the column: ALTER TABLE {column}.",
        )


def _cut_key(table: TablePlan, columns: list[str]) -> ConfigError:
    """Return the error about a target whose key was cut to microseconds, so that different rows may have become one."""
    return ConfigError(
        str(table.source),
        f"the target {table.target} has the key {', '.join(columns)} cut to microseconds, and the source's is finer: "
        "rows that differ in it alone have become one.",
        "Rename or drop the target, and reload the table, which creates it with the exact key as text: "
        f"{command_line('reload', 'PIPELINE', table.source)}",
    )


def _other_shape(table: TablePlan, column: str, problem: str) -> ConfigError:
    return ConfigError(
        str(table.source),
        f"the target {table.target} exists with another shape: column {column} {problem}.",
        "Choose another target, or rename the table.",
    )


def _refused(table: TablePlan, column: str, problem: str) -> ConfigError:
    return ConfigError(
        str(table.source),
        f"column {column} {problem}.",
        "Leave it out of the capture instance (@captured_column_list).",
    )


# --------------------------------------------------------------------------------------------------------------------
# The locks of targets: those of Floodmark's merges, and those of other sessions that a merge waits for.


# Separates Floodmark's advisory locks from those of other programs. Arbitrary, and fixed.
_MERGE_LOCK = 0x46_4C_4F_45
MERGE_LOCK_SECONDS = 60.0
"""The time that each statement of a merge waits for the lock of another session."""
_SNAPSHOTS = 6
"""The number of times that the blocking sessions are read while a statement waits."""


def lock_targets(session: psycopg.Connection, targets: Iterable[TableName]) -> None:
    """Lock targets until the transaction ends, so that each merge counts correctly. Readers are not blocked."""
    # In the order of the numbers, without duplicates: two targets may share a number.
    numbers = sorted(set(map(_lock_number, targets)))
    session.execute("SELECT pg_advisory_xact_lock(%s, number) FROM unnest(%s::int[]) AS number", [_MERGE_LOCK, numbers])


def try_lock_target(session: psycopg.Connection, target: TableName) -> bool:
    """Lock a target likewise, where no other session has locked it. Return whether it is locked."""
    asked = "SELECT pg_try_advisory_xact_lock(%s, %s)"
    return session.execute(asked, [_MERGE_LOCK, _lock_number(target)]).fetchone() == (True,)


def _lock_number(target: TableName) -> int:
    return crc32(str(target).encode()) - 2**31


@dataclass(frozen=True, slots=True)
class BlockingSession:
    """A session of another program that holds a lock."""

    pid: int
    """The process, 0 for a prepared transaction."""
    user: str | None
    application: str | None
    since: datetime | None
    """The start of its transaction; None without the right to read it."""

    def __str__(self) -> str:
        if not self.pid:
            return "a prepared transaction"
        known = (
            f"user {self.user}" if self.user else "",
            f"application {self.application}" if self.application else "",
            f"in a transaction since {self.since:%Y-%m-%d %H:%M:%S %Z}" if self.since else "",
        )
        return f"session {self.pid} ({', '.join(filter(None, known))})".removesuffix(" ()")


class LockLimit:
    """A limit on the waits of a transaction for locks of other sessions, and the frame around the work on each table.

    PostgreSQL names them only while the statement waits, and to another session. So a thread asks, from a session that
    it opens when the block lasts longer than the time between two snapshots.
    """

    def __init__(
        self, session: psycopg.Connection, at: WarehouseConnection, lane: str, seconds: float | None = None
    ) -> None:
        """Prepare the limit. seconds: MERGE_LOCK_SECONDS if None."""
        self._session = session
        self._at = at
        self._lane = lane
        self._seconds = MERGE_LOCK_SECONDS if seconds is None else seconds
        self._pid = session.info.backend_pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="floodmark-locks", daemon=True)
        self._blocking: tuple[BlockingSession, ...] = ()

    def __enter__(self) -> LockLimit:
        self._session.execute(f"SET LOCAL lock_timeout = {int(self._seconds * 1000)}")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    @contextmanager
    def table(self, planned: TablePlan) -> Iterator[None]:
        """Raise every error as one about this table.

        A wait that was too long refuses the table, and only a load or a replay of this table alone is retried.
        """
        with translated(str(planned.source)):
            try:
                yield
            except psycopg.errors.LockNotAvailable as error:
                blocking = ", ".join(map(str, self._blocking)) or "another session"
                then = "; the next run merges the table." if self._lane == MAIN_LANE else ", and run again."
                raise self._refused(
                    planned,
                    f"{planned.target} or rows of it were locked for more than {self._seconds:g} s by {blocking}.",
                    f"End that transaction, or wait until it ends{then}",
                ) from error
            except psycopg.errors.QueryCanceled as error:
                raise self._refused(
                    planned, f"the warehouse canceled a statement about {planned.target}.", CANCELED_HINT
                ) from error
            except (psycopg.Error, FloodmarkError):
                raise
            except Exception as error:  # a bug that one table shows must not stop the others
                raise FloodmarkBugError(
                    str(planned.source), f"the merge failed ({type(error).__name__}).", "", str(error)
                ) from error

    def _refused(self, planned: TablePlan, message: str, hint: str) -> FloodmarkError:
        kind = TargetRefusedError if self._lane == MAIN_LANE else WarehouseUnavailableError
        return kind(str(planned.source), message, hint)

    def _watch(self) -> None:
        interval = self._seconds / _SNAPSHOTS
        if self._ended.wait(interval):
            return
        try:
            with open_session(self._at) as session:
                while not self._ended.wait(interval):
                    found = session.execute(read_sql("list_blocking_sessions"), {"pid": self._pid}).fetchall()
                    if found:
                        self._blocking = tuple(BlockingSession(*row) for row in found)
        except FloodmarkError:
            return  # the message then names no session
