"""Sessions with the warehouse's PostgreSQL, and the one place that translates its errors to those of ``core.errors``.

Sessions are short: a load may take hours, and some firewalls cut a connection that is idle for that long. Within one
step they are kept (``sync.sessions``). The ledger and the warehouse both use this module; their statements are not its
concern.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import DictRow, dict_row

from floodmark.carried_file import path_of, read_file
from floodmark.core.doctor import MissingRight, WarehouseAccess
from floodmark.core.errors import (
    FloodmarkBugError,
    FloodmarkError,
    TargetRefusedError,
    WarehouseAdminError,
    WarehouseUnavailableError,
)
from floodmark.core.schema import TableName, is_loopback
from floodmark.postgres.sql import read_sql
from floodmark.sync.sessions import keep_or_close, take_kept

SUBJECT = "warehouse"
_SETTINGS = {
    # PostgreSQL writes moments to JSON in the session's time zone; keys in tombstones must not depend on it.
    "TimeZone": "UTC",
    "bytea_output": "hex",
    # A float in a tombstone must have all its digits, or two keys would be one. psycopg reads moments in ISO's form.
    "extra_float_digits": "1",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    # What is read under a lock must be newer than the wait for it.
    "default_transaction_isolation": "read committed",
    # How statements and arrays are read, and how the names of types are written.
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "quote_all_identifiers": "off",
    # A merge takes longer than the limits that a role may have for its people, and the session of a load is idle.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "transaction_timeout": "0",
}
SESSION_SETTINGS = "SELECT " + ", ".join(
    # PostgreSQL 17 and later have the last one.
    f"CASE WHEN current_setting('{name}', true) IS NOT NULL THEN set_config('{name}', '{value}', false) END"
    for name, value in _SETTINGS.items()
)
"""The statement that gives a session what Floodmark relies on, whatever its role and its database set."""

_NO_RIGHT = "42501"
_HINTS = {
    "25006": "The server of the warehouse connection is read-only; connect to the primary.",
    "28": "Check user and password of the warehouse connection.",
    "3D": "Check the database name of the warehouse connection.",
    _NO_RIGHT: "Grant the right to the user of the warehouse connection.",
    "53100": "Free or add disk space in the warehouse; the next run continues with the same window.",
}
_LIMITS_HINT = (
    "PostgreSQL limits a row to a page of 8 kB without its long values, a key to 2,704 bytes, and a table to 1,600 "
    "columns. Leave columns out of the capture instance (@captured_column_list), or shorten the values at the source."
)
_UNAVAILABLE = ("08", "40001", "40P01", "53200", "53300", "55P03", "57P", "58")
_CANCELED = "57014"
_RAISED = "P0"
_HIDDEN_HINT = "Its message may quote a row and is not shown here: the log of the warehouse has it."
CANCELED_HINT = (
    "Floodmark's sessions have no statement_timeout: if it happens again, ask the DBA of "
    "the warehouse who ends long statements."
)
# libpq reports no SQLSTATE while it connects. A server that writes its messages in another language matches none of
# these, and the failure counts as "unavailable": it is retried and then reported with the server's message.
_REFUSED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|FATAL: .*(does not exist|denied)"
)


_NOT_TRUSTED = re.compile(
    r"root certificate file|certificate verify failed|server certificate for|server does not support SSL|weak sslmode"
)
"""What libpq says where TLS was asked for and cannot be had, or the certificate cannot be checked."""
_TRUST_HINT = (
    "Set sslrootcert in the extra of the warehouse connection to the file with the certificate of the server's "
    "authority, or to system for the authorities of this machine. To use a weaker connection, set sslmode: require "
    "(encrypted, not verified), prefer or disable."
)


@contextmanager
def open_transaction(at: WarehouseConnection, subject: str = SUBJECT) -> Iterator[psycopg.Connection]:
    """Open a session with one transaction: committed at the end of the block, rolled back when it raises.

    Sessions and errors are those of ``open_statements``.
    """
    with open_statements(at, subject) as session, session.transaction():
        yield session


@contextmanager
def open_statements(at: WarehouseConnection, subject: str = SUBJECT) -> Iterator[psycopg.Connection]:
    """Open a session in autocommit mode, for statements that leave no lock: limits that they set end with the block.

    Within ``kept_sessions`` it is that of an earlier block, where there is one. Errors of psycopg are raised as errors
    of ``core.errors`` about ``subject``.
    """
    conninfo = at.conninfo()
    connection = _take_alive(conninfo) or _connect(conninfo, subject)
    try:
        yield connection
    except psycopg.Error as error:
        raise translate(error, subject) from error
    finally:
        is_idle = connection.info.transaction_status is TransactionStatus.IDLE
        keep_or_close(psycopg.Connection, conninfo, connection, is_idle=is_idle)


@contextmanager
def open_session(at: WarehouseConnection, subject: str = SUBJECT) -> Iterator[psycopg.Connection]:
    """Open a session of its own in autocommit mode, for locks that outlive a transaction.

    Errors as in ``open_transaction``.
    """
    # psycopg's own context manager would run a COMMIT on a connection that may be closed already.
    with closing(_connect(at.conninfo(), subject)) as connection:
        try:
            yield connection
        except psycopg.Error as error:
            raise translate(error, subject) from error


def refuse_shared_servers(at: WarehouseConnection, session: psycopg.Connection, subject: str = SUBJECT) -> None:
    """Raise WarehouseAdminError where a pooler gives each transaction another of its server processes.

    A lock, or a setting, of a session would then be on a process that other sessions use. ``session``: an open one.
    """
    if _server_process(session) == session.info.backend_pid:
        return  # No pooler: it would answer for the server when a session begins.
    with open_session(at, subject) as first:
        own = _server_process(first)
        with open_session(at, subject) as second, second.transaction():
            # Two living sessions with one process, or one session with two.
            if _server_process(second) == own or _server_process(first) != own:
                raise WarehouseAdminError(
                    subject,
                    "the connection leads through a pooler in transaction mode, where a session cannot hold a lock.",
                    "Connect to PostgreSQL itself, or through a pooler in session mode.",
                )


def _server_process(session: psycopg.Connection) -> int:
    row = session.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None  # noqa: S101  (a SELECT without a table has one row)
    return int(row[0])


@contextmanager
def translated(subject: str) -> Iterator[None]:
    """Raise errors of psycopg as errors about ``subject``, within the transaction of several subjects."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, subject) from error


def _take_alive(conninfo: str) -> psycopg.Connection | None:
    """Return the kept session, where its server has not ended it meanwhile."""
    session = take_kept(psycopg.Connection, conninfo)
    if session is not None:
        try:
            session.execute(SESSION_SETTINGS)
        except psycopg.Error:
            session.close()
            return None
    return session


def _connect(conninfo: str, subject: str) -> psycopg.Connection:
    try:
        # A statement that is prepared by itself would fail after a table has changed its columns.
        session = psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        raise _connect_error(error, subject) from error
    try:
        session.execute(SESSION_SETTINGS)
    except psycopg.Error as error:
        session.close()
        raise translate(error, subject) from error
    return session


def read_access(
    at: WarehouseConnection, relations: Iterable[TableName], deleted: Collection[TableName] = ()
) -> WarehouseAccess:
    """Return what the user of a connection finds, and may not do with relations. Raises the error of a connection.

    A relation that is not there will be created. deleted: those of which rows will be deleted.
    """
    found = list(relations)
    parameters = {
        "schemas": [each.schema for each in found],
        "names": [each.name for each in found],
        "deletes": [each in deleted for each in found],
    }
    with open_transaction(at) as session:
        missing = session.execute(read_sql("missing_rights"), parameters).fetchall()
        return WarehouseAccess(
            encoding_of(session),
            tuple(MissingRight(user, name, TableName(*names), right) for user, name, *names, right in missing),
        )


def encoding_of(session: psycopg.Connection) -> str:
    """Return the encoding of the database of a session."""
    known = session.info.parameter_status("server_encoding")
    if known is None:  # a pooler may keep it to itself
        (known,) = session.execute("SHOW server_encoding").fetchone() or ("",)
    return known


def translate(error: psycopg.Error, subject: str) -> FloodmarkError:
    """Return the error of ``core.errors`` for an error of an open session, by its SQLSTATE."""
    return by_sqlstate(error.sqlstate, str(error), subject)


def by_sqlstate(state: str | None, message: str, subject: str) -> FloodmarkError:
    """Return the error of ``core.errors`` for a SQLSTATE of any driver; None means that the connection is lost.

    ``message`` is shown and never parsed. Its lines after the first, such as the position of a COPY, may hold a row and
    are not shown.
    """
    words = _one_line(message.strip().partition("\n")[0])
    if state is None or state.startswith(_UNAVAILABLE):
        detail = _one_line(message) if state is None else ""
        return WarehouseUnavailableError(subject, f"the warehouse is not available: {words}.", "", detail)
    if state == _CANCELED:
        return WarehouseUnavailableError(subject, f"the warehouse canceled a statement: {words}.", CANCELED_HINT)
    for prefix, hint in _HINTS.items():
        if state.startswith(prefix):
            kind = TargetRefusedError if state == _NO_RIGHT else WarehouseAdminError
            return kind(subject, f"the warehouse refused ({state}): {words}.", hint)
    if state.startswith("53"):
        return WarehouseAdminError(subject, f"the warehouse is out of resources ({state}): {words}.")
    if state.startswith("54"):
        return TargetRefusedError(subject, f"a row or a table is larger than PostgreSQL allows: {words}.", _LIMITS_HINT)
    # The message of a data exception has the value that it is about, and a trigger of a user may raise any words.
    is_hidden = state.startswith(("22", _RAISED))
    raised = TargetRefusedError if state.startswith(_RAISED) else FloodmarkBugError
    hint = _HIDDEN_HINT if is_hidden else "The log has its message."
    return raised(subject, f"the warehouse reported error {state}.", hint, "" if is_hidden else words)


def _connect_error(error: psycopg.Error, subject: str) -> FloodmarkError:
    words = _one_line(str(error))
    if _NOT_TRUSTED.search(words):
        return WarehouseAdminError(subject, f"the warehouse cannot be trusted: {words}.", _TRUST_HINT)
    if _REFUSED.search(words):
        hint = "Check user, password and database of the warehouse connection."
        return WarehouseAdminError(subject, f"the warehouse refused the login: {words}.", hint)
    return WarehouseUnavailableError(subject, f"the warehouse cannot be reached: {words}.")


def _one_line(message: str) -> str:
    return " ".join(message.split()).rstrip(".?")


# --------------------------------------------------------------------------------------------------------------------
# The connection to the warehouse: a value that travels as JSON in an environment variable and hides its password.


_CONNECT_TIMEOUT_SECONDS = 15


def default_sslmode(host: str) -> str:
    """Return the ``sslmode`` of a connection that names none: only what stays on this machine is not verified."""
    return "prefer" if host.startswith(("/", "@")) or is_loopback(host) else "verify-full"


@dataclass(frozen=True, slots=True)
class WarehouseConnection:
    """A PostgreSQL database and the user that opens it."""

    host: str
    """A name, an address, or the folder of a Unix socket."""
    port: int
    database: str
    user: str
    password: str = field(default="", repr=False)
    sslmode: str = "prefer"
    """The ``sslmode`` of libpq. A connection of a user gets ``default_sslmode``."""
    sslrootcert: str = ""
    """The file with the certificates of the authorities; empty for libpq's default."""
    root_pem: str = field(default="", repr=False)
    """The contents of ``sslrootcert``, where the connection has travelled to another machine."""

    @classmethod
    def from_json(cls, text: str) -> WarehouseConnection:
        """Return the connection that ``to_json`` wrote. Raises ValueError or TypeError for any other text."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Return the connection as JSON, with the password: for an environment variable, never an argument or a log."""
        return json.dumps(asdict(self))

    def portable(self) -> WarehouseConnection:
        """Return the connection with the contents of its file, for other machines. Raises ValueError."""
        # libpq takes "system" for the authorities of the machine that connects.
        if self.sslrootcert in ("", "system"):
            return self
        return replace(self, root_pem=read_file(self.sslrootcert, str(self), "sslrootcert"))

    @property
    def hosts(self) -> Mapping[str, str]:
        """Return the host, by what it is."""
        return {"warehouse": self.host}

    def conninfo(self) -> str:
        """Return the connection string for libpq and psycopg. It holds the password."""
        return make_conninfo(
            "",
            **self._named(),
            host=self.host,
            port=self.port,
            dbname=self.database,
            user=self.user,
            password=self.password or None,
        )

    def uri(self) -> str:
        """Return the URI for ADBC. It holds the password."""
        login = quote(self.user, safe="") + (f":{quote(self.password, safe='')}" if self.password else "")
        # The folder of a socket is not valid in the host part of a URI.
        query = urlencode({"host": self.host, "port": self.port, **self._named()}, quote_via=quote)
        return f"postgresql://{login}@/{quote(self.database, safe='')}?{query}"

    def _named(self) -> dict[str, str]:
        named = {
            "application_name": "floodmark",
            # ADBC sends texts in UTF-8, whatever the role or the database sets.
            "client_encoding": "UTF8",
            "connect_timeout": str(_CONNECT_TIMEOUT_SECONDS),
            # The session that holds a load is idle for as long as the load takes.
            "keepalives_idle": "60",
            "sslmode": self.sslmode,
        }
        root = path_of(self.root_pem) if self.root_pem else self.sslrootcert
        return named | ({"sslrootcert": root} if root else {})

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}/{self.database}"


# --------------------------------------------------------------------------------------------------------------------
# Statements of ``postgres/sql``, run by their names.


def query(session: psycopg.Connection, statement: str, **parameters: Any) -> list[DictRow]:
    """Return the rows of a statement of ``postgres/sql``; [] for one that returns none."""
    cursor = session.cursor(row_factory=dict_row).execute(read_sql(statement), parameters)
    return cursor.fetchall() if cursor.description else []


def source_parameters(name: TableName) -> dict[str, str]:
    """Return the parameters of a statement that name a table of the source."""
    return {"source_schema": name.schema, "source_name": name.name}


def source_arrays(names: Iterable[TableName]) -> dict[str, list[str]]:
    """Return the parameters of a statement about many tables of the source, in the order of ``TableName``."""
    ordered = sorted(names)
    return {"source_schemas": [name.schema for name in ordered], "source_names": [name.name for name in ordered]}
