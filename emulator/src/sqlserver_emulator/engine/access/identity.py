"""Identity values: SCOPE_IDENTITY(), @@IDENTITY, @@DBTS, and SET IDENTITY_INSERT."""

# ruff: noqa: S608  (names are quoted by ``names``)

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from sqlserver_emulator.engine.names import qualified, quote, quote_literal
from sqlserver_emulator.engine.translation import CatalogObject, Translated
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError

_LARGEST = 2**63 - 1
_BIGINT_DIGITS = 18
_OVERRIDING = "OVERRIDING SYSTEM VALUE"
_LAST_ROWVERSION = """
SELECT int8send(pg_sequence_last_value(d.rowversion_sequence::regclass)) FROM emulator.databases d
WHERE d.name = current_setting('emulator.database')
"""


class Fetches(Protocol):
    """The part of SessionAccess that is used."""

    def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]: ...


class IdentityValues:
    """The identity values of one session. The value of the last insert is fetched only when it is used."""

    def __init__(self, access: Fetches) -> None:
        self._access = access
        self._last: CatalogObject | None = None
        self._last_in_scope: CatalogObject | None = None
        self._explicit_for: CatalogObject | None = None

    def variable(self, name: str) -> object:
        """The value of @@IDENTITY and the like as a parameter; KeyError for any other name."""
        if name == "@@identity":
            # Not kept as a value: currval is asked, as most inserts are followed by no such question.
            return self._current_value(self._last)
        if name == "@@scope_identity":
            return self._current_value(self._last_in_scope)
        if name == "@@dbts":
            return self._access.fetch(_LAST_ROWVERSION)[0][0]
        raise KeyError(name)

    def explicit_values(self, table: CatalogObject, *, allowed: bool) -> None:
        """SET IDENTITY_INSERT. Raises 8107 when another table of the session has it ON."""
        other = self._explicit_for
        if not allowed:
            if other is not None and other.object_id == table.object_id:
                self._explicit_for = None
            return
        if other is not None and other.object_id != table.object_id:
            raise SqlServerError(
                8107,
                f"IDENTITY_INSERT is already ON for table '{other.database}.{other.schema}.{other.name}'. "
                f"Cannot perform SET operation for table '{table.name}'.",
            )
        self._explicit_for = table

    def check(self, translated: Translated) -> None:
        """An INSERT that gives the identity column needs IDENTITY_INSERT ON (544), and the other way round (545)."""
        table = translated.identity_of
        if table is None:
            return
        # The translator writes this clause exactly when the INSERT gives the identity column.
        explicit = _OVERRIDING in translated.sql
        allowed = self._explicit_for is not None and self._explicit_for.object_id == table.object_id
        if explicit and not allowed:
            raise SqlServerError(
                544,
                f"Cannot insert explicit value for identity column in table '{table.name}' when IDENTITY_INSERT is set "
                "to OFF.",
            )
        if allowed and not explicit:
            raise SqlServerError(
                545,
                f"Explicit value must be specified for identity column in table '{table.name}' either when "
                "IDENTITY_INSERT is set to ON or when a replication user is inserting into a NOT FOR REPLICATION "
                "identity column.",
            )

    def note(self, translated: Translated, row_count: int) -> None:
        """After an INSERT: remember the table, and bring the counter up to explicit values."""
        table = translated.identity_of
        if table is None or row_count == 0:
            # A statement that inserted nothing leaves @@IDENTITY as it was.
            return
        self._last = self._last_in_scope = table
        if _OVERRIDING in translated.sql:
            # Explicit values do not move PostgreSQL's sequence; SQL Server's counter follows them.
            self._access.fetch(_advance_sql(table))

    def forget(self) -> None:
        self._last = self._last_in_scope = self._explicit_for = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Rows that no statement of the client inserts: @@IDENTITY and SCOPE_IDENTITY() stay as they are."""
        outside = self._last, self._last_in_scope
        try:
            yield
        finally:
            self._last, self._last_in_scope = outside

    @contextmanager
    def inner_scope(self) -> Iterator[None]:
        """A procedure, trigger or dynamic batch: what it inserts does not change the SCOPE_IDENTITY() of its caller."""
        outside, self._last_in_scope = self._last_in_scope, None
        try:
            yield
        finally:
            self._last_in_scope = outside

    def _current_value(self, table: CatalogObject | None) -> object:
        if table is None:
            return None
        value = self._access.fetch(f"SELECT currval({_sequence(table)})")[0][0]
        if is_beyond_bigint(table, value):
            raise NotSupportedByEmulatorError("identity values beyond bigint")
        return value


def is_beyond_bigint(table: CatalogObject, value: object) -> bool:
    """Whether the counter of a decimal identity is at its end: PostgreSQL's sequences are bigint."""
    type_ = next(column.type for column in table.columns if column.identity)
    return type_.precision > _BIGINT_DIGITS and abs(int(str(value))) >= _LARGEST


def _identity_column(table: CatalogObject) -> str:
    return next(column.postgres_name for column in table.columns if column.identity)


def _sequence(table: CatalogObject) -> str:
    name = quote_literal(qualified(table.postgres_schema, table.postgres_name))
    return f"pg_get_serial_sequence({name}, {quote_literal(_identity_column(table))})"


def _advance_sql(table: CatalogObject) -> str:
    """setval to the newest explicit value; a descending identity (negative increment) counts down."""
    column = quote(_identity_column(table))
    name = qualified(table.postgres_schema, table.postgres_name)
    return (
        # The sequence may be ahead of the table already (rows were deleted), so the higher of the two counts. A decimal
        # beyond bigint leaves the sequence at its end.
        f"SELECT setval(s.name, least(greatest(CASE WHEN q.seqincrement > 0"
        f" THEN greatest(t.high, coalesce(l.last, t.high)) ELSE least(t.low, coalesce(l.last, t.low)) END,"
        f" q.seqmin), q.seqmax)::bigint)"
        f" FROM (SELECT max({column}) AS high, min({column}) AS low FROM {name}) t,"
        f" LATERAL (SELECT {_sequence(table)}::regclass AS name) s"
        f" JOIN pg_sequence q ON q.seqrelid = s.name, LATERAL (SELECT pg_sequence_last_value(s.name) AS last) l"
    )
