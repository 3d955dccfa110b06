"""``open_engine``: the emulator without the wire. Starts PostgreSQL, makes the databases, opens sessions.

Owns the life of everything below the server: cluster, shared catalog, capture supervisor, sessions. Implements
``session.SessionFactory``.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from sqlserver_emulator.assembly import cluster
from sqlserver_emulator.assembly.secondary import Secondary
from sqlserver_emulator.assembly.tracking_cleanup import TrackingCleanup
from sqlserver_emulator.cdc.agent.supervisor import CaptureSupervisor
from sqlserver_emulator.cdc.postgres import SpareConnections
from sqlserver_emulator.cdc.procedures.registry import procedures_of_capture
from sqlserver_emulator.clock import EngineClock
from sqlserver_emulator.contract import ProcedureRegistry
from sqlserver_emulator.control.login_faults import refuse_login
from sqlserver_emulator.control.procedures import control_procedures
from sqlserver_emulator.control.statement_faults import SessionFaults
from sqlserver_emulator.engine.access.open_sessions import OpenSessions
from sqlserver_emulator.engine.access.security import check_login
from sqlserver_emulator.engine.access.session_access import SessionAccess
from sqlserver_emulator.engine.catalog.session_catalog import SharedCatalog
from sqlserver_emulator.engine.connection.arrow_database import ArrowDatabase
from sqlserver_emulator.engine.connection.owner import CatalogListener, OwnerConnection
from sqlserver_emulator.engine.connection.pool import ConnectionPool
from sqlserver_emulator.engine.connection.snapshot import SnapshotConnection
from sqlserver_emulator.engine.connection.transaction import TransactionalConnection
from sqlserver_emulator.engine.ddl import hooks
from sqlserver_emulator.engine.procedures import PROCEDURES as ENGINE_PROCEDURES
from sqlserver_emulator.engine.session.engine_session import PostgresEngineSession
from sqlserver_emulator.engine.translate.translator import TsqlTranslator
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.event_stream.broker import BrokerDestination
from sqlserver_emulator.event_stream.capture_folder import CaptureFolder
from sqlserver_emulator.event_stream.destination import NoDestination
from sqlserver_emulator.event_stream.guard import GUARD as STREAM_GUARD
from sqlserver_emulator.event_stream.procedures import procedures_for
from sqlserver_emulator.event_stream.streams import EventStreams
from sqlserver_emulator.external_logins import ExternalLogins
from sqlserver_emulator.faults import FaultBoard
from sqlserver_emulator.release import SQL_SERVER_2022, Release
from sqlserver_emulator.session import Session
from sqlserver_emulator.tsql.interpreter import TsqlSession


@dataclass(frozen=True, slots=True)
class StreamDestination:
    """Where change event streams go: a folder of Event Hubs Capture. ``partitions``: of each hub."""

    folder: Path
    partitions: int = 4

    def open(self) -> CaptureFolder:
        """Return the destination."""
        return CaptureFolder(self.folder, self.partitions)


def open_engine(
    data_dir: Path,
    databases: Sequence[str] = (),
    sa_password: str | None = None,
    capture_interval_seconds: float | None = None,
    *,
    destination: StreamDestination | BrokerDestination | None = None,
    release: Release = SQL_SERVER_2022,
) -> Engine:
    """Start the engine on the state in ``data_dir`` (made if it is not there).

    ``sa_password`` None: one that nobody knows, for callers that only open ``engine_session``. Close the engine, or use
    it as a context manager. Raises EmbeddedPostgresError, EmulatorStateError for a folder of another version, and
    MissingExtraError for a broker without the extra kafka.
    """
    password = sa_password or secrets.token_urlsafe(16)
    return Engine(data_dir, databases, password, capture_interval_seconds, destination=destination, product=release)


class Engine:
    """``capture_interval_seconds``: how often capture jobs read the log; None leaves it to the jobs."""

    def __init__(
        self,
        data_dir: Path,
        databases: Sequence[str],
        sa_password: str,
        capture_interval_seconds: float | None,
        *,
        destination: StreamDestination | BrokerDestination | None,
        product: Release,
    ) -> None:
        self.product = product
        self.capture_interval_seconds = capture_interval_seconds
        self.read_only_route: tuple[str, int] | None = None
        """Host and port of the readable secondary; None: there is none."""
        self._sa_password = sa_password
        self._sessions = OpenSessions()
        with ExitStack() as opened:
            postgres = cluster.open_cluster(data_dir, databases, product)
            opened.callback(postgres.stop)
            self.conninfo = cluster.conninfo(postgres)
            """How processes of the emulator reach PostgreSQL: over its unix socket, as the superuser."""
            self._arrow = ArrowDatabase(self.conninfo)
            self._connections = ConnectionPool(self.conninfo)
            opened.callback(self._connections.close)
            self.scan_connections = SpareConnections(self.conninfo)
            opened.callback(self.scan_connections.close)
            self._owner = OwnerConnection(self.conninfo)
            opened.callback(self._owner.close)
            self.clock = EngineClock(self._owner.fetch)
            self.faults = FaultBoard(self.clock.now)
            self._catalog = SharedCatalog(self._owner.fetch)
            opened.callback(CatalogListener(self.conninfo, self._catalog.changed).close)
            self.external_logins = ExternalLogins()
            self.secondary = Secondary(self.conninfo, self._open, product, self.external_logins)
            opened.callback(self.secondary.release)
            self._translator = TsqlTranslator()
            self.supervisor = CaptureSupervisor(self)
            self.supervisor.start()
            opened.callback(self.supervisor.stop)
            opened.callback(TrackingCleanup(self.conninfo, self.clock).close)
            hooks.register(STREAM_GUARD)
            self.event_streams: EventStreams | None = None
            streaming: ProcedureRegistry = {}
            if product.has_event_streaming:
                hubs = destination.open() if destination else NoDestination()
                self.event_streams = EventStreams(self.conninfo, hubs, self.faults)
                opened.callback(self.event_streams.close)
                streaming = procedures_for(hubs)
            self._procedures = {
                **ENGINE_PROCEDURES,
                **procedures_of_capture(self.scan_connections),
                **streaming,
                **control_procedures(self, self._owner.fetch),
            }
            self._opened = opened.pop_all()

    @property
    def databases(self) -> tuple[str, ...]:
        """Every database, in the order of its id."""
        return tuple(
            str(name) for (name,) in self._owner.fetch("SELECT name FROM emulator.databases ORDER BY database_id")
        )

    def open_session(
        self, *, login: str, password: str | None, database: str, application: str, encrypted: bool = False
    ) -> Session:
        """Raises SqlServerError 18456 or 4060, or what a fault refuses logins with."""
        return self._open(
            login=login, password=password, database=database, application=application, encrypted=encrypted
        )

    def _open(
        self,
        *,
        login: str,
        password: str | None,
        database: str,
        application: str,
        encrypted: bool,
        snapshot: Callable[[], str] | None = None,
    ) -> Session:
        default = check_login(self._owner.fetch, login, password, self._sa_password)
        refuse_login(self.faults, login, database or default)
        entry = self._catalog.cache.database(database or default)
        if entry is None:
            raise _cannot_open(database or default)
        session_id = self._sessions.take()
        try:
            engine_session = self._engine_session(
                login, entry.name, session_id, application, encrypted=encrypted, snapshot=snapshot
            )
            return TsqlSession(
                engine_session,
                session_id=session_id,
                procedures=self._procedures,
                default_database=entry.name,
                release=self.product,
            )
        except BaseException:
            self._sessions.give_back(session_id)
            raise

    def engine_session(self, database: str, login: str = "sa") -> PostgresEngineSession:
        """A session without interpreter, for what runs next to clients."""
        return self._engine_session(login, database, self._sessions.take(), "engine")

    def _engine_session(
        self,
        login: str,
        database: str,
        session_id: int,
        application: str,
        *,
        encrypted: bool = False,
        snapshot: Callable[[], str] | None = None,
    ) -> PostgresEngineSession:
        connection = (
            TransactionalConnection(self._connections)
            if snapshot is None
            else SnapshotConnection(self._connections, snapshot)
        )
        connection.set_context("emulator.application", application)
        connection.set_context("emulator.secondary", "on" if self.read_only_route else "")
        self.clock.follow(connection)
        access = SessionAccess(
            connection,
            self._arrow,
            self._catalog,
            login=login,
            own_types=self._owner.own_types,
            sessions=self._sessions,
            session_id=session_id,
        )
        try:
            session = PostgresEngineSession(
                access,
                self._translator,
                login=login,
                database=database,
                session_id=session_id,
                on_close=lambda: self._sessions.give_back(session_id),
                faults=SessionFaults(self.faults, login),
            )
            if snapshot is None:
                _list_session(access, session_id, login, application, database, encrypted=encrypted)
        except SqlServerError as error:
            access.close()
            raise (_cannot_open(database) if error.number == 916 else error) from error
        except BaseException:
            access.close()
            raise
        return session

    def close(self) -> None:
        """Stop capture and PostgreSQL. Open sessions break."""
        self._opened.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _list_session(
    access: SessionAccess, session_id: int, login: str, application: str, database: str, *, encrypted: bool
) -> None:
    """Let the session be found in sys.dm_exec_sessions."""
    # The row of a session whose process was killed is still there, and the numbers of both come again.
    access.fetch(
        "DELETE FROM emulator.sessions WHERE session_id = $1::int OR backend_pid = pg_backend_pid()",
        [session_id],
    )
    access.fetch(
        "INSERT INTO emulator.sessions (session_id, backend_pid, login, application, database_name, encrypted)"
        " VALUES ($1::int, pg_backend_pid(), $2, $3, $4, $5::boolean)",
        [session_id, login, application, database, encrypted],
    )


def _cannot_open(database: str) -> SqlServerError:
    message = f'Cannot open database "{database}" requested by the login. The login failed.'
    return SqlServerError(4060, message, severity=11)
