"""Sessions with SQL Server: the connection, its addresses, and the only module that uses the driver, mssql-python."""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, get_args

from floodmark.carried_file import path_of, read_file
from floodmark.core.errors import FloodmarkError, SourceUnavailableError
from floodmark.core.schema import TableName
from floodmark.core.snapshot import DatabaseIdentity, Survey, SurveyedTable
from floodmark.sources.sqlserver import errors, server_name
from floodmark.sources.sqlserver.login import (
    KERBEROS,
    PASSWORD,
    RUST_PROVIDER,
    Authentication,
    explain_refusal,
    fetch_token,
    login_parts,
)
from floodmark.sources.sqlserver.tables import Row, find_truncated, read_sql
from floodmark.sync.sessions import keep_or_close, take_kept

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# The connection to a source: a value that travels as JSON in an environment variable and hides its password.
#
# ``driver`` builds the connection string.


Encrypt = Literal["yes", "no", "strict"]
ApplicationIntent = Literal["ReadWrite", "ReadOnly"]


@dataclass(frozen=True, slots=True)
class SqlServerConnection:
    """A SQL Server database and the login that opens it. Raises ValueError for an unknown choice."""

    host: str
    """A name or an address: no protocol, instance or port."""
    port: int
    """0 where SQL Server Browser has the port of ``instance``."""
    database: str
    user: str
    """A login of the server, or the client id of an application or a managed identity; may be empty for the latter."""
    password: str = field(default="", repr=False)
    encrypt: Encrypt = "yes"
    """``yes`` (TLS 1.2 inside TDS), ``strict`` (TDS 8) or ``no``."""
    trust_server_certificate: bool = False
    """Do not check the certificate."""
    ca_file: str = ""
    """The file (PEM) with the only trusted authorities; empty for those of the system."""
    ca_pem: str = field(default="", repr=False)
    """The contents of ``ca_file``, where the connection has travelled to another machine."""

    application_intent: ApplicationIntent = "ReadWrite"
    """``ReadOnly``: a listener of an availability group leads to a readable secondary."""
    multi_subnet_failover: bool = False
    """Try all addresses of a listener at once, instead of one after the other."""
    connect_timeout: int = 0
    """The seconds that a connect may take; 0: ``CONNECT_TIMEOUT_SECONDS``."""
    instance: str = ""
    """The name of an instance, without a port."""
    authentication: Authentication = PASSWORD
    """How to log in: with a password, by the ticket of the process, or by a token."""
    tenant: str = ""
    """The tenant of Microsoft Entra ID that the application is of."""
    certificate_file: str = ""
    """The file (PEM) with certificate and private key of the application, in place of its secret."""
    certificate_pem: str = field(default="", repr=False)
    """The contents of ``certificate_file``."""
    server_spn: str = ""
    """The server's service name for Kerberos, ``MSSQLSvc/host:port``; empty for the one that the driver makes."""

    def __post_init__(self) -> None:
        for name, choices in (
            ("encrypt", get_args(Encrypt)),
            ("application_intent", get_args(ApplicationIntent)),
            ("authentication", get_args(Authentication)),
        ):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected one of {', '.join(choices)}")

    @classmethod
    def from_json(cls, text: str) -> SqlServerConnection:
        """Return the connection that ``to_json`` wrote. Raises ValueError or TypeError for any other text."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Return the connection as JSON, with the password: for an environment variable, never an argument or a log."""
        return json.dumps(asdict(self))

    def portable(self) -> SqlServerConnection:
        """Return the connection with the contents of its files, for other machines. Raises ValueError."""
        found = replace(self, ca_pem=read_file(self.ca_file, str(self), "ca_file")) if self.ca_file else self
        return found.with_certificate()

    def with_certificate(self) -> SqlServerConnection:
        """Return the connection with the contents of its client's certificate. Raises ValueError."""
        if not self.certificate_file or self.certificate_pem:
            return self
        return replace(self, certificate_pem=read_file(self.certificate_file, str(self), "certificate"))

    @property
    def uses_token(self) -> bool:
        """Whether it logs in by a token of Microsoft Entra ID."""
        return self.authentication not in (PASSWORD, KERBEROS)

    @property
    def hosts(self) -> Mapping[str, str]:
        """Return the host, by what it is."""
        return {"source": self.host}

    @property
    def ca_path(self) -> str:
        """The path of the trusted authorities on this machine; empty for those of the system."""
        return path_of(self.ca_pem) if self.ca_pem else self.ca_file

    def __str__(self) -> str:
        at = f":{self.port}" if self.port else f"\\{self.instance}"
        return f"{self.user or self.authentication}@{self.host}{at}/{self.database}"


# --------------------------------------------------------------------------------------------------------------------
# Batches that end at a number of bytes: rows with LOBs have any size, and a whole batch is held in memory.


ROWS_AT_ONCE = 16
"""The most rows to fetch at once. Rows may be much larger than those before them, so that a batch may pass its limit by
as many rows. Sixteen take hardly longer per row than hundreds."""


def read_sized_batches(
    fetch: Callable[[int], pa.RecordBatch], batch_rows: int, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield batches of at most ``batch_rows`` rows, which end as soon as they have ``batch_bytes`` bytes.

    fetch: returns the next rows, at most the given number; an empty batch at the end.
    """
    held: list[pa.RecordBatch] = []
    held_rows = held_bytes = 0
    rows = 1
    largest = 1  # the most bytes of a row, as the mean of the rows that were fetched with it
    while (fetched := fetch(rows)).num_rows:
        held.append(fetched)
        held_rows += fetched.num_rows
        held_bytes += fetched.nbytes
        largest = max(largest, fetched.nbytes // fetched.num_rows)
        if held_bytes >= batch_bytes or held_rows >= batch_rows:
            yield _joined(held)
            held, held_rows, held_bytes = [], 0, 0
        rows = max(1, min(2 * rows, ROWS_AT_ONCE, batch_rows - held_rows, (batch_bytes - held_bytes) // largest))
    if held:
        yield _joined(held)


def _joined(held: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa  # noqa: PLC0415  (only reading processes need it)

    return held[0] if len(held) == 1 else pa.concat_batches(held)


# --------------------------------------------------------------------------------------------------------------------
# Sessions with SQL Server: the only module that uses the driver, mssql-python.
#
# It chooses the ODBC provider, the connection string, TLS and timeouts, and translates the driver's errors. Statements
# and the meaning of their results belong to the kinds of sources.


_PROVIDER_VARIABLE = "MSSQL_PYTHON_NATIVE_PROVIDER"
_CA_VARIABLE = "SSL_CERT_FILE"
_UNTRUSTED = "certificate verify failed"
"""OpenSSL's message, which is always in English; the driver has only the general 08001 for it."""

_LOADING = threading.Lock()
_LOGIN_FAILED = "28000"
_REFUSED = (_LOGIN_FAILED, "42000")
_MASTER = "master"

CONNECT_TIMEOUT_SECONDS = 15
CONTROL_TIMEOUT_SECONDS = 60
LOCK_TIMEOUT_SECONDS = 60
_KEEP_ALIVE_SECONDS = 30


def _load_driver() -> Any:
    """Return mssql-python, imported once per process, with a provider that loads on this machine."""
    with _LOADING:
        return _imported()


@cache
def _imported() -> Any:
    """Import mssql-python. Two threads must not do it at once.

    It replaces its own module at the end of its import. The other thread would get the first one, where the choice of a
    provider has no effect, and would load the default provider for the whole process.
    """
    import mssql_python  # noqa: PLC0415  (a slow import that only reading processes need)

    mssql_python.pooling(enabled=False)  # each reuse of a pooled connection would query its state
    if not os.environ.get(_PROVIDER_VARIABLE):
        try:
            ctypes.CDLL(str(mssql_python.get_native_provider_info()["driver_path"]))
        except OSError as error:
            _LOG.info("Could not load msodbcsql18 (%s); using the provider %s", error, RUST_PROVIDER)
            mssql_python.native_provider = RUST_PROVIDER
    return mssql_python


def _raised() -> tuple[type[Exception], ...]:
    """Return the base classes of the driver's exceptions: its Warning is not an Error."""
    driver = _load_driver()
    return driver.Error, driver.Warning


def connect(connection: SqlServerConnection, *, subject: str = "", query_timeout_seconds: int = 0) -> SourceSession:
    """Open a session in autocommit mode. Raises from ``core.errors``.

    subject: the subject of later errors, by default the connection. query_timeout_seconds: 0 for no timeout.
    """
    return SourceSession(connect_dbapi(connection, query_timeout_seconds), subject or str(connection))


@contextlib.contextmanager
def proven_session(
    connection: SqlServerConnection, subject: str, prove: Callable[[SourceSession], None]
) -> Iterator[SourceSession]:
    """Open a session for reads, or use one that was kept, which is kept again after a block without an error.

    subject: of errors. prove: raises an error unless the server behind a session has what will be read.
    """
    session = _kept_session(connection, subject, prove)
    is_idle = False
    try:
        if session is None:
            session = connect(connection, subject=subject)
            session.limit_lock_waits()
            prove(session)
        yield session
        is_idle = True
    finally:
        if session is not None:
            keep_or_close(SourceSession, connection, session, is_idle=is_idle)


def _kept_session(
    connection: SqlServerConnection, subject: str, prove: Callable[[SourceSession], None]
) -> SourceSession | None:
    kept = take_kept(SourceSession, connection)
    if kept is None:
        return None
    session = kept.about(subject)
    try:
        prove(session)
    except BaseException as error:
        session.close()
        if isinstance(error, SourceUnavailableError):
            return None  # The server has ended it meanwhile.
        raise
    return session


def connect_dbapi(connection: SqlServerConnection, query_timeout_seconds: int = 0) -> Any:
    """Open a connection of the driver itself (DB-API 2.0) in autocommit mode. Raises from ``core.errors``."""
    try:
        raw = _open(connection)
        raw.timeout = query_timeout_seconds
    except _raised() as error:
        raise _refusal(connection, error) from None
    return raw


def _open(connection: SqlServerConnection) -> Any:
    server_name.require_host(connection.host, str(connection))
    driver = _load_driver()
    token = fetch_token(connection)
    provider = driver.get_native_provider_info()["id"] if connection.server_spn else ""
    with _AUTHORITIES.trusted(connection.ca_path):
        return driver.connect(
            _connection_string(connection, provider),
            autocommit=True,
            timeout=connection.connect_timeout or CONNECT_TIMEOUT_SECONDS,
            native_uuid=True,
            token_provider=token,
        )


def _refusal(connection: SqlServerConnection, error: Exception) -> FloodmarkError:
    """Return the error of ``core.errors`` for a connect that failed."""
    subject, message = str(connection), _message(error)
    if _UNTRUSTED in message:
        return errors.not_trusted(subject, message)
    sqlstate = _sqlstate(error, tuple(errors.AT_CONNECT))
    if sqlstate in _REFUSED:
        exists = _database_exists(connection)
        if exists is not None:
            return (errors.database_away if exists else errors.database_missing)(subject, message)
    explained = explain_refusal(connection, message, is_refused=sqlstate == _LOGIN_FAILED)
    if explained is not None:
        return explained
    addresses = 0 if connection.multi_subnet_failover else server_name.count_addresses(connection.host)
    if sqlstate in errors.UNREACHABLE and addresses > 1:
        return errors.one_of_several_addresses(subject, message, addresses)
    return errors.by_sqlstate(subject, sqlstate, message, errors.AT_CONNECT)


def _database_exists(connection: SqlServerConnection) -> bool | None:
    """Return whether the server has the database; None where the login cannot open ``master`` either.

    The driver reports no number at connect, and its SQLSTATE is the same for a wrong password and for a database that
    is away. A login that opens ``master`` has the right password.
    """
    if connection.database.lower() in ("", _MASTER):
        return None
    try:
        with connect(replace(connection, database=_MASTER)) as session:
            return session.fetch("SELECT DB_ID(?)", [connection.database])[0][0] is not None
    except FloodmarkError:
        return None


class SourceSession:
    """One connection, for one thread. ``subject``: the subject of errors, unless a call names another."""

    def __init__(self, raw: Any, subject: str) -> None:
        self._raw = raw
        self._subject = subject

    def __enter__(self) -> SourceSession:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def about(self, subject: str) -> SourceSession:
        """Return the same session with another subject of its errors."""
        return SourceSession(self._raw, subject)

    def close(self) -> None:
        """Close the connection, whatever its state."""
        with contextlib.suppress(*_raised()):
            self._raw.close()

    def fetch_sets(self, text: str, parameters: Sequence[object] = ()) -> list[list[tuple[Any, ...]]]:
        """Run one batch and return the rows of every result set that has columns."""
        return [rows for _, rows in self._fetch(text, parameters)]

    def fetch_named(self, text: str, parameters: Sequence[object] = ()) -> list[dict[str, Any]]:
        """Run one batch and return the rows of all result sets, by the names of their columns."""
        return [dict(zip(names, row, strict=True)) for names, rows in self._fetch(text, parameters) for row in rows]

    def _fetch(self, text: str, parameters: Sequence[object]) -> list[tuple[list[str], list[tuple[Any, ...]]]]:
        cursor = self._raw.cursor()
        sets = []
        with self._translated(self._subject):
            cursor.execute(text, *parameters)
            while True:
                if cursor.description:
                    names = [column[0] for column in cursor.description]
                    sets.append((names, [tuple(row) for row in cursor.fetchall()]))
                if not cursor.nextset():
                    break
            cursor.close()
        return sets

    def fetch(self, text: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run one batch and return the rows of its only result set."""
        return self.fetch_sets(text, parameters)[0]

    def limit_lock_waits(self, seconds: int = LOCK_TIMEOUT_SECONDS) -> None:
        """Limit the time that later statements wait for a lock. They raise SourceUnavailableError after it."""
        with self._translated(self._subject), contextlib.closing(self._raw.cursor()) as cursor:
            cursor.execute(f"SET LOCK_TIMEOUT {seconds * 1000}")

    def read_batches(
        self, subject: str, text: str, parameters: Sequence[object], batch_rows: int, batch_bytes: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Run one SELECT and stream its rows. Errors name ``subject``, also those raised while rows are read.

        batch_bytes: the bytes at which a batch ends; 0 where only the number of rows matters.
        """
        cursor = self._raw.cursor()
        with self._translated(subject):
            cursor.execute(text, *parameters)
            if batch_bytes:
                yield from read_sized_batches(cursor.arrow_batch, batch_rows, batch_bytes)
            else:
                with cursor.arrow_reader(batch_rows) as reader:
                    yield from reader
            cursor.close()

    @contextlib.contextmanager
    def _translated(self, subject: str) -> Iterator[None]:
        try:
            yield
        except _raised() as error:
            raise self._translate(subject, error) from None

    def _translate(self, subject: str, error: Exception) -> FloodmarkError:
        message = _message(error)
        try:
            # On another cursor: closing the failed one may run a statement that resets @@ERROR.
            cursor = self._raw.cursor()
            cursor.execute("SELECT @@ERROR")
            number = int(cursor.fetchone()[0])
        except _raised():
            return errors.cut_off(subject, message)
        if number:
            return errors.by_number(subject, number, message)
        return errors.by_sqlstate(subject, _sqlstate(error, tuple(errors.AT_CLIENT)), message, errors.AT_CLIENT)


def _connection_string(connection: SqlServerConnection, provider: str = "") -> str:
    port = connection.port or server_name.find_port(connection.host, connection.instance, str(connection))
    parts = {
        "Server": f"tcp:{connection.host},{port}",
        "Database": connection.database,
        **login_parts(connection, provider),
        "Encrypt": connection.encrypt,
        "TrustServerCertificate": "yes" if connection.trust_server_certificate else "no",
        "ApplicationIntent": connection.application_intent,
        "MultiSubnetFailover": "Yes" if connection.multi_subnet_failover else "No",
        "KeepAlive": str(_KEEP_ALIVE_SECONDS),
        # A session that is restored silently may be on another copy of the database.
        "ConnectRetryCount": "0",
    }
    return "".join(f"{key}={_braced(value)};" for key, value in parts.items() if value)


def _braced(value: str) -> str:
    return "{" + value.replace("}", "}}") + "}"


class _Authorities:
    """The file of authorities for OpenSSL inside the driver, set by an environment variable during a connect.

    The driver has no option for it, and a permanent variable would change the trust of everything else in the process.
    The Rust provider keeps the first file it has read: a process can reach sources of one authority only. Connections
    with the same file are opened in parallel: a connect to a dead server takes the whole timeout.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._file = ""
        self._users = 0
        self._before: str | None = None

    @contextlib.contextmanager
    def trusted(self, ca_file: str) -> Iterator[None]:
        if not ca_file:
            yield
            return
        self._take(ca_file)
        try:
            yield
        finally:
            self._give_back()

    def _take(self, ca_file: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._users or self._file == ca_file)
            if not self._users:
                self._file, self._before = ca_file, os.environ.get(_CA_VARIABLE)
                os.environ[_CA_VARIABLE] = ca_file
            self._users += 1

    def _give_back(self) -> None:
        with self._changed:
            self._users -= 1
            if self._users:
                return
            if self._before is None:
                del os.environ[_CA_VARIABLE]
            else:
                os.environ[_CA_VARIABLE] = self._before
            self._changed.notify_all()


_AUTHORITIES = _Authorities()


def _message(error: Exception) -> str:
    text = str(getattr(error, "ddbc_error", "") or error)
    for prefix in ("[Microsoft]", "[SQL Server]"):
        text = text.removeprefix(prefix)
    return text.strip().rstrip(".")


def _sqlstate(error: Exception, candidates: Sequence[str]) -> str:
    """Return the SQLSTATE whose text the error has: the driver keeps only its own English text of the SQLSTATE."""
    from mssql_python.exceptions import sqlstate_to_exception  # noqa: PLC0415

    for state in candidates:
        known = sqlstate_to_exception(state, "")
        if known is not None and known.driver_error == getattr(error, "driver_error", None):
            return state
    return ""


# --------------------------------------------------------------------------------------------------------------------
# The identity of the database that answered a snapshot.


def build_identity(database: str, server: str | None, guid: object, group_id: object) -> DatabaseIdentity | None:
    """Return the identity from the columns of a snapshot; None where the server does not show its name."""
    if server is None:
        return None
    texts = (None if each is None else str(each).lower() for each in (guid, group_id))
    return DatabaseIdentity(server, database, *texts)


# --------------------------------------------------------------------------------------------------------------------
# Modules of a database, such as procedures, that truncate tables.


def list_truncating(modules: Iterable[Row]) -> dict[TableName, tuple[str, ...]]:
    """Return the modules that truncate a table, by table. modules: their schema, name and definition."""
    found: dict[TableName, tuple[str, ...]] = {}
    for schema, name, definition in modules:
        for table in find_truncated(definition or "", schema):
            found[table] = (*found.get(table, ()), str(TableName(schema, name)))
    return found


# --------------------------------------------------------------------------------------------------------------------
# The survey of a database: its tables, their sizes and their keys.


def survey_database(at: SqlServerConnection) -> Survey:
    """Return the database of a connection. Raises SourceUnavailableError, SourceLoginError."""
    with connect(at) as session:
        databases, tables, columns = session.fetch_sets(read_sql("list_user_tables"))
    keys: dict[int, list[str]] = {}
    for object_id, column in columns:
        keys.setdefault(object_id, []).append(column)
    ((database, has_cdc),) = databases
    found = tuple(
        SurveyedTable(
            TableName(schema, name),
            None if rows is None else int(rows),
            tuple(keys.get(object_id, ())),
            has_cdc=bool(is_tracked),
        )
        for schema, name, object_id, is_tracked, rows in tables
    )
    return Survey(database, has_cdc=bool(has_cdc), tables=found)


def read_table_names(at: SqlServerConnection, statement: str) -> list[TableName]:
    """Return the tables that a statement of ``include/sql/source`` lists; their names are its first two columns."""
    with connect(at, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS) as session:
        return [TableName(schema, name) for schema, name, *_ in session.fetch(read_sql(statement))]
