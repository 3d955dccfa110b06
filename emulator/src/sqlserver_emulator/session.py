"""The contract of one client session, offered by ``tsql.interpreter`` to the connection.

One session belongs to one connection and one thread; only ``cancel`` may be called from another thread.
Errors of the user's batch come as ErrorRaised events, never as Python exceptions; an exception that escapes is a bug
(the connection answers it with error 50000-range text and closes).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlserver_emulator.collations import Collation
from sqlserver_emulator.events import ArrowBatch, Event
from sqlserver_emulator.external_logins import ExternalLogins
from sqlserver_emulator.release import Release
from sqlserver_emulator.types import TsqlType


@dataclass(frozen=True, slots=True)
class RpcArgument:
    """One parameter of a remote procedure call as decoded. ``name`` has its @, or is empty (positional).

    ``value`` is a ``TableValue`` where the client sent a table; ``type`` is then ``table``.
    """

    name: str
    type: TsqlType
    value: object
    output: bool = False
    default: bool = False
    """The client asked for the parameter's default value (status bit 0x02)."""


@dataclass(frozen=True, slots=True)
class TableValue:
    """The value of a table-valued parameter that a client sent.

    ``schema`` and ``name`` of its type may be empty: the procedure knows it. ``columns``: None for one that takes its
    default in each row, and has no value there. ``parameter``: its name as sent, or empty; ``ordinal``: its place in
    the call, from 1.
    """

    schema: str
    name: str
    columns: tuple[TsqlType | None, ...]
    rows: Iterable[tuple[object, ...]]
    parameter: str
    ordinal: int


class Session(Protocol):
    @property
    def database(self) -> str: ...

    @property
    def collation(self) -> Collation:
        """The collation of the current database."""

    @property
    def login(self) -> str: ...

    @property
    def session_id(self) -> int:
        """@@SPID, from 51 upwards."""

    @property
    def in_transaction(self) -> bool: ...

    def run_batch(self, text: str) -> Iterator[Event]:
        """SQLBatch: run every statement of ``text``."""

    def run_procedure(self, name: str, arguments: Sequence[RpcArgument]) -> Iterator[Event]:
        """RPC by name (also `sp_executesql`, `sp_prepexec`… by their names: the connection maps ids to names).

        Yields the procedure's events, then ReturnStatus, then ReturnValue for each output argument.
        """

    def load_bulk(self, types: Sequence[TsqlType], batches: Iterator[ArrowBatch]) -> Iterator[Event]:
        """The rows that the INSERT BULK before announced: ``types`` by position, as they come over the wire.

        The batches are as in ``events.RowsArrow``, datetimeoffset a struct of utc and minutes. What ``batches`` raises
        undoes the load and goes on to the caller.
        """

    def begin_transaction(self, name: str = "", isolation: int = 0) -> Iterator[Event]: ...

    def commit_transaction(self, name: str = "") -> Iterator[Event]: ...

    def rollback_transaction(self, name: str = "") -> Iterator[Event]: ...

    def save_transaction(self, name: str) -> Iterator[Event]: ...

    def reset(self) -> Sequence[Event]:
        """RESETCONNECTION: roll back, drop temp tables and handles, back to the login's database and options.

        Returns the end of the transaction that was open.
        """

    def cancel(self) -> None:
        """Attention, from another thread: end the running statement as soon as possible. No error event follows."""

    def close(self) -> None: ...


class SessionFactory(Protocol):
    """The engine as the server sees it: check a login, open a session."""

    @property
    def product(self) -> Release:
        """The release as which the server presents itself."""

    @property
    def external_logins(self) -> ExternalLogins:
        """The logins that are proved without a password."""

    @property
    def read_only_route(self) -> tuple[str, int] | None:
        """Host and port to which a login with the intent to read only is led; None: nowhere else."""

    def open_session(
        self, *, login: str, password: str | None, database: str, application: str, encrypted: bool = False
    ) -> Session:
        """``database`` '' means the login's default. ``password`` None: the login is proved already.
        ``encrypted``: all that the session sends and receives is.

        Raises SqlServerError 18456 (wrong login or password, severity 14) or 4060 (cannot open database, severity 11).
        """
