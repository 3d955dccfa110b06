"""RPC messages: one or more calls, by name or by number, with their parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.session import RpcArgument
from sqlserver_emulator.tds.parameter_values import read_wire_type
from sqlserver_emulator.tds.reading import MessageReader, ProtocolError, skip_all_headers
from sqlserver_emulator.tds.table_values import TABLE, read_table
from sqlserver_emulator.types import TsqlType

_BY_NUMBER = 0xFFFF
_SEPARATORS = (0xFF, 0xFE)
"""Between two calls; 0xFE (NoExec) is sent by no known driver."""

MOST_PARAMETERS = 2100
_TABLE_TYPE = TsqlType("table")
_OUTPUT = 0x01
_DEFAULT = 0x02

PROCEDURE_NAMES = {
    1: "sp_cursor",
    2: "sp_cursoropen",
    3: "sp_cursorprepare",
    4: "sp_cursorexecute",
    5: "sp_cursorprepexec",
    6: "sp_cursorunprepare",
    7: "sp_cursorfetch",
    8: "sp_cursoroption",
    9: "sp_cursorclose",
    10: "sp_executesql",
    11: "sp_prepare",
    12: "sp_execute",
    13: "sp_prepexec",
    14: "sp_prepexecrpc",
    15: "sp_unprepare",
}


@dataclass(frozen=True, slots=True)
class RpcCall:
    """``is_last``: no other call follows in the message."""

    procedure: str
    arguments: tuple[RpcArgument, ...]
    is_last: bool


def parse_calls(payload: bytes) -> Iterator[RpcCall]:
    """Calls in order. Raises NotSupportedByEmulatorError for a parameter of a refused type, 8003 for too many, or what
    is wrong with a table (``table_values``); the rest of the message is not read then."""
    reader = MessageReader(payload)
    skip_all_headers(reader)
    while True:
        procedure = _read_procedure(reader)
        arguments = tuple(islice(_read_arguments(reader), MOST_PARAMETERS + 1))
        if len(arguments) > MOST_PARAMETERS:
            raise _too_many_parameters()
        is_last = reader.at_end
        if not is_last:
            reader.read_u8()
            is_last = reader.at_end
        yield RpcCall(procedure, arguments, is_last)
        if is_last:
            return


def _too_many_parameters() -> SqlServerError:
    message = (
        f"The incoming request has too many parameters. The server supports a maximum of {MOST_PARAMETERS} parameters. "
        "Reduce the number of parameters and resend the request."
    )
    return SqlServerError(8003, message)


def _invalid_value(number: int, name: str, type: TsqlType) -> SqlServerError:
    message = (
        "The incoming tabular data stream (TDS) remote procedure call (RPC) protocol stream is incorrect. Parameter "
        f'{number} ("{name}"): The supplied value is not a valid instance of data type {type.name}. Check the source '
        "data for invalid values. An example of an invalid value is data of numeric type with scale greater than "
        "precision."
    )
    return SqlServerError(8023, message)


def _read_procedure(reader: MessageReader) -> str:
    length = reader.read_u16()
    if length == _BY_NUMBER:
        number = reader.read_u16()
        name = PROCEDURE_NAMES.get(number, "")
        if not name:
            raise ProtocolError(f"RPC with the unknown procedure number {number}")
    else:
        name = reader.read_text(length)
    reader.read_u16()  # option flags: recompile, no metadata; metadata sent regardless is accepted by every driver
    return name


def _read_arguments(reader: MessageReader) -> Iterator[RpcArgument]:
    number = 0
    while not reader.at_end and reader.peek_u8() not in _SEPARATORS:
        name = reader.read_short_text()
        status = reader.read_u8()
        number += 1
        if reader.peek_u8() == TABLE:
            reader.read_u8()
            table = read_table(reader, number, name, may_be_null=bool(status & _DEFAULT))
            yield RpcArgument(name, _TABLE_TYPE, table, bool(status & _OUTPUT), bool(status & _DEFAULT))
            continue
        wire_type = read_wire_type(reader)
        value = wire_type.read_value(reader)
        if isinstance(value, float) and not math.isfinite(value):
            raise _invalid_value(number, name, wire_type.type)
        yield RpcArgument(name, wire_type.type, value, bool(status & _OUTPUT), bool(status & _DEFAULT))
