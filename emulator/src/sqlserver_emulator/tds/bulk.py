"""The message of a bulk load: COLMETADATA, rows, and perhaps DONE (FreeTDS leaves it out), read as its packets come."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.system_types import SYSTEM_TYPES
from sqlserver_emulator.system_types.wire import Form, Packing
from sqlserver_emulator.tds.bulk_cells import Layout, Length, map_cells
from sqlserver_emulator.tds.bulk_columns import BulkColumn, decode_column
from sqlserver_emulator.tds.parameter_values import read_wire_type
from sqlserver_emulator.tds.reading import MessageReader, ProtocolError
from sqlserver_emulator.tds.type_info import CODE_PAGE, UTF8_FLAG, is_plp
from sqlserver_emulator.types import TsqlType

_COLUMN_METADATA = 0x81
_BATCH_BYTES = 1 << 20
_LARGEST_ROW_BYTES = 256 << 20
_MOST_COLUMNS = 1024
"""Of a table; they are parsed again with every packet until all are there."""
_FIXED_BYTES = {type.wire.fixed_token: type.wire.size for type in SYSTEM_TYPES if type.wire.fixed_token is not None}
_SHORT = frozenset(type.wire.token for type in SYSTEM_TYPES if type.wire.form is Form.SHORT)
_POINTER = frozenset(type.wire.token for type in SYSTEM_TYPES if type.wire.form is Form.LONG)
_COLLATION_FLAGS = {
    type.wire.token: 8 if type.wire.form is Form.LONG else 6
    for type in SYSTEM_TYPES
    if type.wire.packing is Packing.CODE_PAGE
}
"""Where in the TYPE_INFO of char, varchar and text the byte lies that says UTF-8."""


class BulkReader:
    """``columns`` are read when it is made; ``batches`` gives the rows, once, as ``pyarrow.RecordBatch``.

    Raises ProtocolError, SqlServerError for values that no column can have, and NotSupportedByEmulatorError for types.
    """

    def __init__(self, payloads: Iterator[bytes], *, column_encryption: bool = False) -> None:
        self._payloads = payloads
        self._column_encryption = column_encryption
        self._data = b""
        self.columns = self._read_columns()

    @property
    def types(self) -> tuple[TsqlType, ...]:
        return tuple(column.type for column in self.columns)

    def batches(self) -> Iterator[pa.RecordBatch]:
        layouts = [column.layout for column in self.columns]
        wanted = _BATCH_BYTES
        while self._gather(wanted) or self._data:
            found = map_cells(self._data, layouts)
            if len(found.positions):
                yield self._batch(found.positions.shape[0], [decode_column(found, column) for column in self.columns])
            self._data = self._data[found.end :]
            if found.is_done:
                return
            if found.end == 0 and not self._gather(len(self._data) + 1):
                raise ProtocolError("a bulk load ends inside a row")
            # A row larger than what was gathered is parsed again only when there is twice as much of it.
            wanted = max(_BATCH_BYTES, 2 * len(self._data))
            if len(self._data) > _LARGEST_ROW_BYTES:
                raise ProtocolError(f"a bulk-loaded row of more than {_LARGEST_ROW_BYTES} bytes")

    def _batch(self, row_count: int, arrays: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(arrays, names=[str(column.number) for column in self.columns])

    def _gather(self, size: int) -> bool:
        """Have at least ``size`` bytes at hand; False when the message ends before."""
        pieces, have = [self._data], len(self._data)
        while have < size and (payload := next(self._payloads, None)) is not None:
            pieces.append(payload)
            have += len(payload)
        self._data = b"".join(pieces)
        return have >= size

    def _read_columns(self) -> tuple[BulkColumn, ...]:
        wanted = 1
        while True:
            complete = self._gather(wanted)
            reader = MessageReader(self._data)
            try:
                columns = _read_metadata(reader, column_encryption=self._column_encryption)
            except ProtocolError:
                if not complete:
                    raise
                wanted = len(self._data) + 1
                continue
            self._data = self._data[reader.position :]
            return columns


def _read_metadata(reader: MessageReader, *, column_encryption: bool) -> tuple[BulkColumn, ...]:
    token = reader.read_u8()
    if token != _COLUMN_METADATA:
        raise ProtocolError(f"a bulk load begins with 0x{token:02X}")
    count = reader.read_u16()
    if not 1 <= count <= _MOST_COLUMNS:
        raise ProtocolError(f"a bulk load of {count} columns")
    if column_encryption and reader.read_u16():
        raise NotSupportedByEmulatorError("a bulk load of encrypted columns")
    return tuple(_read_column(reader, number + 1) for number in range(count))


def _read_column(reader: MessageReader, number: int) -> BulkColumn:
    reader.read_bytes(6)  # user type and flags
    start = reader.position
    token = reader.peek_u8()
    type_ = read_wire_type(reader).type
    flags_at = _COLLATION_FLAGS.get(token)
    is_utf8 = flags_at is not None and reader.data[start + flags_at] & UTF8_FLAG
    if token in _POINTER:
        reader.read_text(reader.read_u16())  # the table's name: here without the number of its parts
    reader.read_short_text()
    return BulkColumn(number, type_, _layout(token, type_), "utf-8" if is_utf8 else CODE_PAGE)


def _layout(token: int, type_: TsqlType) -> Layout:
    if token in _FIXED_BYTES:
        return Layout(Length.FIXED, _FIXED_BYTES[token])
    if is_plp(type_):
        return Layout(Length.CHUNKS, 0)
    if token in _SHORT:
        return Layout(Length.SHORT, 0)
    return Layout(Length.POINTER if token in _POINTER else Length.BYTE, 0)
