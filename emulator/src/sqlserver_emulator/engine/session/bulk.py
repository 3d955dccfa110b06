"""Bulk load: rows that a driver announced with INSERT BULK, into their table by COPY.

As in SQL Server an identity column that is among the announced keeps the values that come. Constraints are checked
always: PostgreSQL cannot leave them out for one statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlserver_emulator.code_units import first_characters
from sqlserver_emulator.contract import EngineSession, StatementResult
from sqlserver_emulator.engine.access.identity import IdentityValues
from sqlserver_emulator.engine.access.session_access import SessionAccess
from sqlserver_emulator.engine.connection.errors_map import VALUE_TOO_LONG
from sqlserver_emulator.engine.connection.pipeline import StatementFailedError
from sqlserver_emulator.engine.names import qualified, quote
from sqlserver_emulator.engine.session.deferred import DeferredUpdates
from sqlserver_emulator.engine.session.triggers import INSTEAD_OF
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject, Translated
from sqlserver_emulator.engine.values.copy_text import DEFAULT, NULL, TextTooLongError, copy_options, copy_pieces
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import ArrowBatch, Command
from sqlserver_emulator.system_types import SYSTEM_TYPES, names_where
from sqlserver_emulator.system_types.binaries import ROWVERSION
from sqlserver_emulator.system_types.record import BINARY, DECIMAL, FLOAT, INTEGER, TEXT, Declared, SystemType
from sqlserver_emulator.system_types.wire import Packing
from sqlserver_emulator.types import TsqlType


@dataclass(frozen=True, slots=True)
class PostgresBulkTarget:
    """``table_columns``: those that were announced, in that order."""

    table: CatalogObject
    table_columns: tuple[CatalogColumn, ...]
    keep_nulls: bool
    fires_triggers: bool

    @property
    def columns(self) -> Sequence[str]:
        return [column.name for column in self.table_columns]


def find_target(
    access: SessionAccess, path: tuple[str, str, str], columns: Sequence[str], options: frozenset[str] = frozenset()
) -> PostgresBulkTarget:
    """``path``: database, schema ('' for the default one) and name. Raises 208, 207, 264, 271 and 273."""
    database, schema, name = path
    table = access.catalog.table(database, schema or None, name)
    if table is None:
        raise SqlServerError(208, f"Invalid object name '{f'{schema}.' if schema else ''}{name}'.")
    if table.kind != "U":
        raise NotSupportedByEmulatorError("bulk load into a view")
    found = tuple(_column(table, column) for column in columns)
    if len({column.column_id for column in found}) < len(found):
        raise SqlServerError(264, "A column name is specified more than once in the column list of an INSERT.")
    return PostgresBulkTarget(table, found or _all_columns(table), "KEEP_NULLS" in options, "FIRE_TRIGGERS" in options)


def _all_columns(table: CatalogObject) -> tuple[CatalogColumn, ...]:
    return tuple(c for c in table.columns if not c.computed and not c.identity and c.type.name != "rowversion")


def _column(table: CatalogObject, name: str) -> CatalogColumn:
    by_name = {column.name: column for column in table.columns}
    column = by_name.get(name) or next((c for c in table.columns if c.name.lower() == name.lower()), None)
    if column is None:
        raise SqlServerError(207, f"Invalid column name '{name}'.")
    if column.computed:
        message = f'The column "{column.name}" cannot be modified because it is either a computed column or is the '
        raise SqlServerError(271, message + "result of a UNION operator.")
    if column.type.name == "rowversion":
        message = "Cannot insert an explicit value into a timestamp column. Use INSERT with a column list to exclude "
        raise SqlServerError(273, message + "the timestamp column, or insert a DEFAULT into the timestamp column.")
    return column


class BulkLoader:
    """The bulk loads of one session, whose T-SQL it runs where values have to be converted."""

    def __init__(
        self, session: EngineSession, access: SessionAccess, identity: IdentityValues, deferred: DeferredUpdates
    ) -> None:
        self._session = session
        self._access = access
        self._identity = identity
        self._deferred = deferred

    def load(self, target: PostgresBulkTarget, types: Sequence[TsqlType], batches: Iterator[ArrowBatch]) -> int:
        with self._past_triggers(target):
            if all(stores_as_it_comes(type_, c.type) for type_, c in zip(types, target.table_columns, strict=True)):
                return self._copy(target, batches)
            return self._convert(target, types, batches)

    @contextmanager
    def _past_triggers(self, target: PostgresBulkTarget) -> Iterator[None]:
        """Without FIRE_TRIGGERS the rows go into the table, also where an INSTEAD OF trigger would take them."""
        connection = self._access.connection
        before = connection.context.get(INSTEAD_OF, "")
        if not target.fires_triggers and self._access.catalog.has_triggers:
            connection.set_context(INSTEAD_OF, str(target.table.object_id))
        # An INSTEAD OF trigger is skipped for the table that this setting names.
        try:
            yield
        finally:
            if connection.context.get(INSTEAD_OF, "") != before:
                connection.set_context(INSTEAD_OF, before)

    def _copy(self, target: PostgresBulkTarget, batches: Iterator[ArrowBatch]) -> int:
        table, columns = target.table, target.table_columns
        names = ", ".join(quote(column.postgres_name) for column in columns)
        sql = f"COPY {qualified(table.postgres_schema, table.postgres_name)} ({names}) FROM STDIN {copy_options()}"
        # COPY knows defaults by a marker; with KEEP_NULLS a NULL stays one where the column has a default.
        nulls = [DEFAULT if column.has_default and not target.keep_nulls else NULL for column in columns]
        statement = self._statement(target)
        # An INSERT too may have to mark the end of a deferred update in the log.
        before = self._deferred.messages(statement)
        pieces = (piece for batch in batches for piece in copy_pieces(batch, columns, nulls))
        try:
            count = self._access.connection.copy_in(sql, pieces, before=before).command_tuples or 0
        except StatementFailedError as failure:
            raise _truncation(failure, target) or failure from failure
        except TextTooLongError as error:
            raise _too_long(target, error.column, error.text) from error
        if self._access.connection.in_transaction:
            self._deferred.done(statement)
        self._identity.note(statement, count)
        return count

    def _convert(self, target: PostgresBulkTarget, types: Sequence[TsqlType], batches: Iterator[ArrowBatch]) -> int:
        """Through a table of the types that came, for T-SQL's own conversions."""
        # The staging table and its rows must not survive a failure, so they need a transaction.
        own = not self._session.in_transaction
        if own:
            self._session.begin()
        try:
            count = self._insert(target, self._stage(target, types, batches))
        except BaseException:
            # Without a transaction of its own the guard has undone the failed INSERT only, and the table is dropped by
            # hand.
            self._session.rollback() if own else self._execute(f"DROP TABLE IF EXISTS {_STAGE}")
            raise
        self._execute(f"DROP TABLE {_STAGE}")
        if own:
            self._session.commit()
        return count

    def _stage(self, target: PostgresBulkTarget, types: Sequence[TsqlType], batches: Iterator[ArrowBatch]) -> str:
        """Load what came as it came; returns the INSERT that converts it."""
        names = [f"c{number}" for number in range(len(types))]
        columns = ", ".join(f"{name} {type_} NULL" for name, type_ in zip(names, types, strict=True))
        self._execute(f"CREATE TABLE {_STAGE} ({columns})")
        self._copy(find_target(self._access, (target.table.database, "", _STAGE), names), batches)
        defaults = {} if target.keep_nulls else self._defaults(target)
        values = ", ".join(
            # A NULL that the client sent becomes the default, but a value that converts is kept.
            f"COALESCE(CAST({name} AS {column.type}), {defaults[column.column_id]})"
            if column.column_id in defaults
            else name
            for name, column in zip(names, target.table_columns, strict=True)
        )
        table = ".".join(map(_bracketed, (target.table.database, target.table.schema, target.table.name)))
        listed = ", ".join(map(_bracketed, target.columns))
        return f"INSERT INTO {table} ({listed}) SELECT {values} FROM {_STAGE}"  # noqa: S608

    def _insert(self, target: PostgresBulkTarget, statement: str) -> int:
        explicit = any(column.identity for column in target.table_columns)
        if explicit:
            # The announced identity column keeps the values that come, as IDENTITY_INSERT allows it.
            self._identity.explicit_values(target.table, allowed=True)
        try:
            return self._execute(statement).row_count or 0
        finally:
            if explicit:
                self._identity.explicit_values(target.table, allowed=False)

    def _execute(self, statement: str) -> StatementResult:
        return self._session.execute(statement, {})

    def _defaults(self, target: PostgresBulkTarget) -> dict[int, str]:
        rows = self._access.fetch(_DEFAULTS, [target.table.object_id])
        return {int(str(column_id)): str(definition) for column_id, definition in rows}

    def _statement(self, target: PostgresBulkTarget) -> Translated:
        """The INSERT that this load represents, for what follows one: the identity counter, the log."""
        explicit = any(column.identity for column in target.table_columns)
        table = target.table if explicit else None
        return Translated(Command.INSERT, "OVERRIDING SYSTEM VALUE" if explicit else "", identity_of=table)


def stores_as_it_comes(came: TsqlType, to: TsqlType) -> bool:
    """Whether PostgreSQL stores the text of a value of ``came`` as T-SQL would convert it to ``to``."""
    if to.name in _WITH_FRACTION and (came.has_ticks != to.has_ticks or came.scale > to.scale):
        return False
    return came.name == to.name or came.name in _STORED_AS_THEY_COME[to.name]


def _truncation(failure: StatementFailedError, target: PostgresBulkTarget) -> SqlServerError | None:
    found = _COLUMN_OF_COPY.search(failure.context) if failure.sqlstate == VALUE_TOO_LONG else None
    column = next((c for c in target.table_columns if found and c.postgres_name == found[1]), None)
    return None if found is None or column is None else _too_long(target, column, found[2])


def _too_long(target: PostgresBulkTarget, column: CatalogColumn, text: str) -> SqlServerError:
    table = f"{target.table.database}.{target.table.schema}.{target.table.name}"
    return SqlServerError(
        2628,
        f"String or binary data would be truncated in table '{table}', column '{column.name}'. Truncated value: "
        f"'{first_characters(text, column.type.length)}'.",
    )


def _bracketed(name: str) -> str:
    return "[" + name.replace("]", "]]") + "]"


_STAGE = "#bulk_load"
_WITH_FRACTION = names_where(lambda type: type.declared is Declared.SCALE)
_DEFAULTS = "SELECT parent_column_id, definition FROM emulator.default_constraints WHERE parent_object_id = $1::int"
_COLUMN_OF_COPY = re.compile(r'column (.+?): "(.*)"', re.DOTALL)


def _stored_as_they_come(to: SystemType) -> frozenset[str]:
    """Return the types whose values PostgreSQL stores as a value of ``to`` just as T-SQL converts them."""
    family, packing = to.family, to.wire.packing
    if packing is Packing.MONEY:
        return names_where(lambda came: came.wire.packing is packing and came.wire.size < to.wire.size)
    if packing is Packing.DATE_TIME:
        return names_where(lambda came: came.counts_from_1900)
    if packing is Packing.DECIMAL:
        return names_where(lambda came: came.family in (INTEGER, DECIMAL))
    # Any number but zero is the bit 1, and a rowversion is never given.
    if family not in (INTEGER, FLOAT, TEXT, BINARY) or packing is Packing.BIT or to is ROWVERSION:
        return frozenset()
    return names_where(lambda came: came.family == family and came is not ROWVERSION)


_STORED_AS_THEY_COME = {type.name: _stored_as_they_come(type) for type in SYSTEM_TYPES}
