"""Table-valued parameters as clients send them ([MS-TDS] "Table Valued Parameter (TVP) Values"): type, columns, rows.

The numbers of the errors are those that Microsoft lists for such a stream; a message that ends too early is a
``ProtocolError``, as anywhere else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.session import TableValue
from sqlserver_emulator.tds.parameter_values import WireType, read_wire_type
from sqlserver_emulator.tds.reading import MessageReader

TABLE: Final = 0xF3
"""The token in place of that of a type."""

_NO_COLUMNS = 0xFFFF
_MOST_COLUMNS = 1024
_HAS_DEFAULT = 0x0200
"""Flag of a column that has no values in the rows."""

_END = 0x00
_ROW = 0x01
_ORDER_UNIQUE = 0x10
_COLUMN_ORDERING = 0x11
_ASCENDING, _DESCENDING, _UNIQUE = 0x01, 0x02, 0x04
_SOUND_ORDERS = frozenset({_ASCENDING, _DESCENDING, _UNIQUE, _ASCENDING | _UNIQUE, _DESCENDING | _UNIQUE})

_STREAM = "The incoming tabular data stream (TDS) remote procedure call (RPC) protocol stream is incorrect. "
_OF_TABLE_TYPE = f"Data type 0x{TABLE:02X} (user-defined table type) "
_TEXTS: Final = {
    8029: _OF_TABLE_TYPE + "unexpected token encountered processing a table-valued parameter.",
    8043: "The supplied value is not a valid instance of data type {type}. Check the source data for invalid values. "
    "An example of an invalid value is data of numeric type with scale greater than precision.",
    8047: _OF_TABLE_TYPE + "has a non-zero length database name specified. Database name is not allowed with a "
    "table-valued parameter, only schema name and type name are valid.",
    8050: _OF_TABLE_TYPE + "has an invalid column count specified.",
    8051: _OF_TABLE_TYPE + "has an invalid column name specified.",
    8054: _OF_TABLE_TYPE + "has invalid ordering and uniqueness metadata specified.",
    8055: _OF_TABLE_TYPE + "has invalid column ordering metadata specified.",
    8056: _OF_TABLE_TYPE + "has too many optional metadata tokens specified.",
    8057: f"Data type 0x{TABLE:02X} (user-defined table type). The specified column is computed or default and has "
    "ordering or uniqueness set. Ordering and uniqueness can only be set on columns that have client supplied data.",
    8060: _OF_TABLE_TYPE + "is null and not set to default. A null table-valued parameter is required to be sent as a "
    "default parameter.",
}
_NOT_OF_THE_STREAM = frozenset({8057})


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows that were read once already; they are read again each time, as values take many times their bytes."""

    data: bytes
    start: int
    columns: tuple[WireType, ...]

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        reader = MessageReader(self.data, self.start)
        while reader.read_u8() == _ROW:
            yield tuple([column.read_value(reader) for column in self.columns])


def read_table(reader: MessageReader, ordinal: int, name: str, *, may_be_null: bool) -> TableValue:
    """Read what follows the token ``TABLE``. ``may_be_null``: the client asks for the parameter's default."""
    return _TableReader(reader, ordinal, name).read(may_be_null=may_be_null)


class _TableReader:
    def __init__(self, reader: MessageReader, ordinal: int, name: str) -> None:
        self._reader = reader
        self._ordinal = ordinal
        self._name = name

    def read(self, *, may_be_null: bool) -> TableValue:
        reader = self._reader
        if reader.read_short_text():
            raise self._fault(8047)
        schema, type_name = reader.read_short_text(), reader.read_short_text()
        columns = self._columns()
        if columns is None and not may_be_null:
            raise self._fault(8060)
        self._optional_metadata(columns or ())
        sent = tuple(column for column in columns or () if column is not None)
        rows = self._rows(sent)
        types = tuple(None if column is None else column.type for column in columns or ())
        return TableValue(schema, type_name, types, rows, self._name, self._ordinal)

    def _columns(self) -> tuple[WireType | None, ...] | None:
        """Return the columns, None for one that has its default in each row; None in all: the table is NULL."""
        count = self._reader.read_u16()
        if count == _NO_COLUMNS:
            return None
        if not 1 <= count <= _MOST_COLUMNS:
            raise self._fault(8050)
        return tuple([self._column(number) for number in range(1, count + 1)])

    def _column(self, number: int) -> WireType | None:
        reader = self._reader
        reader.read_u32()  # user type
        flags = reader.read_u16()
        column = read_wire_type(reader)
        # Columns are matched by position, so a name has nothing to say.
        if reader.read_short_text():
            raise self._fault(8051, column=number)
        return None if flags & _HAS_DEFAULT else column

    def _optional_metadata(self, columns: tuple[WireType | None, ...]) -> None:
        """Read what a client promises of the rows. Nothing comes of it: a table has no order, and keys are checked."""
        readers = {_ORDER_UNIQUE: self._order_unique, _COLUMN_ORDERING: self._column_ordering}
        seen = set()
        while (token := self._reader.read_u8()) != _END:
            if token not in readers:
                raise self._fault(8029)
            if token in seen:
                raise self._fault(8056)
            seen.add(token)
            readers[token](columns)

    def _order_unique(self, columns: tuple[WireType | None, ...]) -> None:
        for _ in range(self._reader.read_u16()):
            number, flags = self._reader.read_u16(), self._reader.read_u8()
            if not 1 <= number <= len(columns) or flags not in _SOUND_ORDERS:
                raise self._fault(8054, column=number)
            if columns[number - 1] is None:
                raise self._fault(8057, column=number)

    def _column_ordering(self, columns: tuple[WireType | None, ...]) -> None:
        count = self._reader.read_u16()
        if count != len(columns):
            raise self._fault(8055)
        numbers = [self._reader.read_u16() for _ in range(count)]
        own = list(range(1, count + 1))
        if sorted(numbers) != own:
            raise self._fault(8055)
        if numbers != own:
            raise NotSupportedByEmulatorError("columns of a table-valued parameter in another order than its type's")

    def _rows(self, columns: tuple[WireType, ...]) -> _Rows:
        """Read to the end of the rows, so that every fault of a value is found before anything runs."""
        reader = self._reader
        rows = _Rows(reader.data, reader.position, columns)
        number = 0
        while (token := reader.read_u8()) != _END:
            number += 1
            if token != _ROW:
                raise self._fault(8029, row=number)
            for position, column in enumerate(columns, 1):
                value = column.read_value(reader)
                if isinstance(value, float) and not math.isfinite(value):
                    raise self._fault(8043, row=number, column=position, type=column.type.name)
        return rows

    def _fault(self, number: int, *, row: int = 0, column: int = 0, type: str = "") -> SqlServerError:
        place = f'Table-valued parameter {self._ordinal} ("{self._name}"), row {row}, column {column}: '
        stream = "" if number in _NOT_OF_THE_STREAM else _STREAM
        return SqlServerError(number, stream + place + _TEXTS[number].format(type=type))
