"""``emulator.help_faults`` and ``clear_faults``, and the faults that client sessions meet."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final, Protocol

from sqlserver_emulator.cdc.agent.supervisor import CaptureSupervisor
from sqlserver_emulator.cdc.enabling.enable_database import database_id_of
from sqlserver_emulator.clock import Fetch
from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.control.calls import (
    control_procedure,
    existing_database,
    existing_table,
    refusal,
    required,
    seconds,
    text,
    whole,
)
from sqlserver_emulator.control.log_reuse import FullLogs
from sqlserver_emulator.control.login_faults import REFUSALS
from sqlserver_emulator.control.statement_faults import FAILURES
from sqlserver_emulator.events import Column, Command, Event, ResultStart, Rows, StatementDone
from sqlserver_emulator.faults import CAPTURE_KINDS, Fault, FaultBoard, FaultKind, Match
from sqlserver_emulator.types import BIGINT, DATETIME, INT, NVARCHAR_4000, SYSNAME, TsqlType

_FLOAT: Final = TsqlType("float", precision=53)
_LONGEST_SECONDS: Final = 86_400.0
_WHICH: Final = (
    Parameter("@times", INT, 1),
    Parameter("@table", NVARCHAR_4000, None),
    Parameter("@text", NVARCHAR_4000, None),
    Parameter("@login", SYSNAME, None),
    Parameter("@database", SYSNAME, None),
)
"""Which statements meet a fault, and how often it happens; 0: until it is cleared."""
_WHOSE_LOGIN: Final = (
    Parameter("@times", INT, 1),
    Parameter("@state", INT, 1),
    Parameter("@login", SYSNAME, None),
    Parameter("@database", SYSNAME, None),
)
_LOCKED: Final = (
    Parameter("@table", NVARCHAR_4000),
    Parameter("@login", SYSNAME, None),
    Parameter("@database", SYSNAME, None),
)
_WITHOUT: Final = (
    Parameter("@table", NVARCHAR_4000),
    Parameter("@column", SYSNAME),
    Parameter("@database", SYSNAME, None),
)
_COLUMN: Final = """
SELECT column_id, is_nullable FROM emulator.columns WHERE object_id = $1::int AND lower(name) = lower($2::text)
"""
_COLUMNS: Final = (
    ("fault_id", INT),
    ("fault", SYSNAME),
    ("database_name", SYSNAME),
    ("login_name", SYSNAME),
    ("table_name", NVARCHAR_4000),
    ("text", NVARCHAR_4000),
    ("error_number", INT),
    ("value", _FLOAT),
    ("times_left", INT),
    ("since", DATETIME),
)


class FaultHost(Protocol):
    """The part of the engine that is used."""

    faults: FaultBoard
    supervisor: CaptureSupervisor


class FaultControl:
    """The procedures about faults, and what faults do outside of sessions."""

    def __init__(self, host: FaultHost, fetch: Fetch) -> None:
        self._host = host
        self._fetch = fetch
        self._logs = FullLogs(fetch)

    def procedures(self) -> tuple[SystemProcedure, ...]:
        return (
            control_procedure(
                "help_faults",
                (),
                self._help,
                "List the active faults, with the times that they will still happen (NULL: until they are cleared).",
            ),
            control_procedure(
                "clear_faults",
                (Parameter("@fault_id", INT, None),),
                self._clear,
                "End one fault, or all. The capture job catches up.",
            ),
            control_procedure(
                "fail_statements",
                (Parameter("@error", INT), *_WHICH),
                self._fail,
                "End statements with error 1205 (the session is a deadlock's victim) or 1222 (lock "
                "timeout) before they do anything.",
            ),
            control_procedure(
                "slow_statements",
                (Parameter("@seconds", _FLOAT), *_WHICH),
                self._slow,
                "Make statements wait before they begin. The client may cancel them.",
            ),
            control_procedure(
                "cut_connection",
                (Parameter("@after_rows", BIGINT), *_WHICH),
                self._cut_connection,
                "Break the connection after so many rows of one result. Shorter results stay whole.",
            ),
            control_procedure(
                "fail_logins",
                (Parameter("@error", INT), *_WHOSE_LOGIN),
                self._fail_logins,
                "Refuse logins with a right password, with error 4060, 40613, 976, 978, 983 or 18456 and "
                "this state. Open sessions go on: keep one for `clear_faults`.",
            ),
            control_procedure(
                "lock_reads",
                _LOCKED,
                self._lock_reads,
                "Make readers of the table wait for locks, as with READ_COMMITTED_SNAPSHOT OFF.",
            ),
            control_procedure(
                "null_in_deletes",
                _WITHOUT,
                self._null_in_deletes,
                "Capture deletes with NULL in this NOT NULL column, as servers did with bit columns, and with values "
                "that no row holds because a default that was added later gives them. Other changes have the value.",
            ),
            control_procedure(
                "stop_agent",
                (),
                self._stop_agent,
                "Stop SQL Server Agent: its jobs end, starting one is error 22022, and "
                "`sys.dm_server_services` shows it. `sp_cdc_scan` works.",
            ),
            control_procedure(
                "fill_log",
                (Parameter("@database", SYSNAME, None),),
                self._fill_log,
                "End every write to the database with error 9002. Tables of tempdb are not affected; "
                "`log_reuse_wait_desc` is `REPLICATION`.",
            ),
        )

    def clear(self, fault_id: int | None = None) -> tuple[Fault, ...]:
        """Remove one or all; returns what was removed when nothing feels it any more."""
        # Removed first, so that no new statement meets the fault while its effects are undone.
        gone = self._host.faults.clear(fault_id)
        for fault in gone:
            if fault.kind is FaultKind.LOG_FULL:
                self._logs.free(fault.database_id)
            elif fault.kind is FaultKind.AGENT_STOPPED:
                self._host.supervisor.start()
        if any(fault.kind is FaultKind.NULL_IN_DELETES for fault in gone):
            self._show_nulls_in_deletes()
        # Each database's job is asked once, however many of its faults are gone.
        for database_id in {fault.database_id for fault in gone if fault.kind in CAPTURE_KINDS}:
            self._host.supervisor.apply_faults(database_id)
        return gone

    def _help(self, _call: ProcedureCall) -> Iterator[Event]:
        yield ResultStart(tuple(Column(name, type_) for name, type_ in _COLUMNS))
        rows = [_row(fault) for fault in self._host.faults.active]
        if rows:
            yield Rows(rows)
        yield StatementDone(Command.SELECT, row_count=len(rows))

    def _clear(self, call: ProcedureCall) -> Iterator[Event]:
        fault_id = None
        if call.arguments["@fault_id"] is not None:
            fault_id = whole(call, "@fault_id", 1, 2**31 - 1)
        if not self.clear(fault_id) and fault_id is not None:
            raise refusal(f"There is no fault {fault_id}; emulator.help_faults lists them.")
        yield from ()

    def _fail(self, call: ProcedureCall) -> Iterator[Event]:
        self._add(call, Fault(FaultKind.STATEMENT_ERROR, number=_one_of(call, FAILURES)))
        yield from ()

    def _fail_logins(self, call: ProcedureCall) -> Iterator[Event]:
        state = whole(call, "@state", 1, 255)
        self._add(call, Fault(FaultKind.LOGIN_ERROR, number=_one_of(call, REFUSALS), state=state))
        yield from ()

    def _slow(self, call: ProcedureCall) -> Iterator[Event]:
        self._add(call, Fault(FaultKind.SLOW_STATEMENT, value=seconds(call, "@seconds", _LONGEST_SECONDS)))
        yield from ()

    def _cut_connection(self, call: ProcedureCall) -> Iterator[Event]:
        self._add(call, Fault(FaultKind.CONNECTION_CUT, value=whole(call, "@after_rows", 0, 2**53)))
        yield from ()

    def _lock_reads(self, call: ProcedureCall) -> Iterator[Event]:
        table = str(required(call, "@table"))
        database = existing_database(call, text(call, "@database") or call.engine.database)
        fault = Fault(
            FaultKind.LOCKED_READS,
            Match(database, text(call, "@login"), table),
            object_id=existing_table(call, database, table),
        )
        self._host.faults.add(fault)
        yield from ()

    def _null_in_deletes(self, call: ProcedureCall) -> Iterator[Event]:
        table, column = str(required(call, "@table")), str(required(call, "@column"))
        database = existing_database(call, text(call, "@database") or call.engine.database)
        object_id = existing_table(call, database, table)
        found = call.engine.fetch_all(_COLUMN, (object_id, column))
        if not found:
            raise refusal(f"Table '{table}' has no column '{column}'.")
        ((column_id, is_nullable),) = found
        if is_nullable:
            raise refusal(f"Column '{column}' of table '{table}' is not NOT NULL.")
        match = Match(database, table=table, text=column)
        fault = Fault(FaultKind.NULL_IN_DELETES, match, object_id=object_id, column_id=int(str(column_id)))
        self._host.faults.add(fault)
        self._show_nulls_in_deletes()
        yield from ()

    def _show_nulls_in_deletes(self) -> None:
        """Show capture, which runs in other processes, the faults that there are now."""
        faults = [fault for fault in self._host.faults.active if fault.kind is FaultKind.NULL_IN_DELETES]
        columns = json.dumps([(fault.object_id, fault.column_id) for fault in faults])
        self._fetch("SELECT emulator.set_nulls_in_deletes($1::jsonb)", (columns,))

    def _add(self, call: ProcedureCall, fault: Fault) -> None:
        database = text(call, "@database")
        match = Match(
            existing_database(call, database) if database else "",
            **{name: text(call, f"@{name}") for name in ("login", "table", "text") if f"@{name}" in call.arguments},
        )
        self._host.faults.add(replace(fault, match=match, times=whole(call, "@times", 0, 2**31 - 1)))

    def _stop_agent(self, _call: ProcedureCall) -> Iterator[Event]:
        """The service SQL Server Agent ends, and with it every job; nobody starts one until it is back."""
        self._host.faults.add(Fault(FaultKind.AGENT_STOPPED))
        self._host.supervisor.stop()
        yield from ()

    def _fill_log(self, call: ProcedureCall) -> Iterator[Event]:
        database = existing_database(call, text(call, "@database") or call.engine.database)
        fault = Fault(FaultKind.LOG_FULL, Match(database), database_id=database_id_of(call.engine.fetch_all, database))
        # The advisory lock is held by a connection that lives as long as the server, not by the caller's session.
        self._logs.fill(self._host.faults.add(fault).database_id)
        yield from ()


def _one_of(call: ProcedureCall, numbers: Collection[int]) -> int:
    """Return the argument ``@error``. Raises 49998 for another number."""
    error = call.arguments["@error"]
    if error not in numbers:
        raise refusal(f"@error must be one of {', '.join(map(str, numbers))}, not {error}.")
    return int(str(error))


def _row(fault: Fault) -> tuple[object, ...]:
    """NULL represents what the fault does not ask or have; times_left NULL: until it is cleared."""
    match = fault.match
    words = (match.database, match.login, match.table, match.text)
    numbers = (fault.number or None, fault.value, fault.times or None)
    return (fault.fault_id, fault.kind.value, *(word or None for word in words), *numbers, fault.since)
