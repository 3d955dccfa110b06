"""DBCC CHECKIDENT: the counter of an identity column, reported and set. The parser makes a call of the statement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from sqlserver_emulator.contract import Parameter, ProcedureCall, SystemProcedure
from sqlserver_emulator.engine.names import quote
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Event, Info
from sqlserver_emulator.types import BIT, TsqlType

_OBJECT: Final = "SELECT o.type, o.name FROM emulator.objects o WHERE o.object_id = tsql.object_id($1, NULL, $2)"
# The sequence belongs to its column.
_COUNTER: Final = """
SELECT i.sequence::text, pg_sequence_last_value(i.sequence), i.increment > 0, q.seqmin, q.seqmax,
       d.refobjid::regclass::text, a.attname
FROM tsql.identity_column($1, $2) i JOIN pg_sequence q ON q.seqrelid = i.sequence
JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = i.sequence::oid AND d.refobjsubid > 0
    AND d.refclassid = 'pg_class'::regclass
JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
"""


@dataclass(frozen=True, slots=True)
class _Counter:
    """The counter of an identity column. ``last`` None: it has not counted yet."""

    sequence: str
    last: int | None
    is_rising: bool
    least: int
    most: int
    relation: str
    column: str


def _checkident(call: ProcedureCall) -> Iterator[Event]:
    """Raises 2501, 2557, 2560 and 7997."""
    counter = _counter(call, str(call.arguments["@table"] or ""))
    is_quiet, value = bool(call.arguments["@is_quiet"]), call.arguments["@value"]
    shown = f"Checking identity information: current identity value '{_shown(counter.last)}'"
    if value is not None:
        if not is_quiet:
            yield Info(7989, f"{shown}.", state=3)
        if not counter.least <= Decimal(str(value)) <= counter.most:
            raise SqlServerError(2560, "Parameter 3 is incorrect for this DBCC statement.", state=14)
        # Where no row was inserted yet, the first one gets the value itself.
        _set(call, counter, int(str(value)), is_used=counter.last is not None)
    else:
        extreme = _extreme(call, counter)
        if not is_quiet:
            yield Info(7998, f"{shown}, current column value '{_shown(extreme)}'.", state=3)
        if call.arguments["@mode"] == "RESEED" and _is_behind(counter, extreme):
            _set(call, counter, extreme, is_used=True)
    if not is_quiet:
        done = "DBCC execution completed. If DBCC printed error messages, contact your system administrator."
        yield Info(2528, done)


def _counter(call: ProcedureCall, name: str) -> _Counter:
    if name.startswith("#"):
        raise NotSupportedByEmulatorError("DBCC CHECKIDENT of a temporary table")
    where = [name, call.engine.database]
    found = call.engine.fetch_all(_OBJECT, where)
    if not found or found[0][0] != "U":
        message = f'Cannot find a table or object with the name "{name}". Check the system catalog.'
        raise SqlServerError(2501, message, state=45)
    if not (call.engine.caller_is("db_owner") or call.engine.caller_is("db_ddladmin")):
        message = (
            f"User '{call.engine.login}' does not have permission to run DBCC CHECKIDENT for object '{found[0][1]}'."
        )
        raise SqlServerError(2557, message, severity=14, state=5)
    counters = call.engine.fetch_all(_COUNTER, where)
    if not counters:
        raise SqlServerError(7997, f"'{found[0][1]}' does not contain an identity column.")
    sequence, last, is_rising, least, most, relation, column = counters[0]
    return _Counter(
        str(sequence),
        None if last is None else int(str(last)),
        bool(is_rising),
        int(str(least)),
        int(str(most)),
        str(relation),
        str(column),
    )


def _extreme(call: ProcedureCall, counter: _Counter) -> int | None:
    """Return the value of the column that was counted last, going by the values alone."""
    function = "max" if counter.is_rising else "min"
    found = call.engine.fetch_all(f"SELECT {function}({quote(counter.column)}) FROM {counter.relation}")  # noqa: S608
    return None if found[0][0] is None else int(str(found[0][0]))


def _is_behind(counter: _Counter, extreme: int | None) -> bool:
    if extreme is None or not counter.least <= extreme <= counter.most:
        return False
    if counter.last is None:
        return True
    return counter.last < extreme if counter.is_rising else counter.last > extreme


def _set(call: ProcedureCall, counter: _Counter, value: int | None, *, is_used: bool) -> None:
    call.engine.fetch_all(
        "SELECT setval($1::text::regclass, $2::bigint, $3::boolean)", [counter.sequence, value, is_used]
    )


def _shown(value: int | None) -> str:
    return "NULL" if value is None else str(value)


DBCC_CHECKIDENT: Final = SystemProcedure(
    "dbcc.checkident",
    (
        Parameter("@table", TsqlType("nvarchar", 776)),
        Parameter("@mode", TsqlType("varchar", 8), "RESEED"),
        Parameter("@value", TsqlType("numeric", precision=38), None),
        Parameter("@is_quiet", BIT, False),
    ),
    _checkident,
)
