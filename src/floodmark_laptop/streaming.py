"""A stand-in for a server that streams changes: it makes events of what change data capture has captured.

SQL Server 2025 streams from its log, and has no change data capture in the same database; the emulator is a SQL Server
2022. The events have the values, the commit LSNs and the order of the change tables. They go to a capture folder at
least once: some are repeated, large ones are split, and without a key they are dealt to any partition.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count, groupby
from operator import itemgetter
from typing import Any

import pymssql

from floodmark.core.schema import SourceColumn
from floodmark.sources.sqlserver.tables import read_source_column
from floodmark_laptop.capture_files import CaptureWriter
from sqlserver_emulator.event_stream.encoding import MessageForm, OutgoingChange, encode_change

PARTITIONS = 4
_GUID = "5a3f6a52-7d0d-4b5e-9a65-0f6a4f6d2c11"
_COLUMNS = """
SELECT c.name, c.column_id, t.name, c.max_length, c.precision, c.scale, c.is_nullable, c.is_computed
FROM sys.columns AS c JOIN sys.types AS t ON t.user_type_id = c.user_type_id
WHERE c.object_id = OBJECT_ID(%s) AND t.name NOT IN (N'timestamp', N'xml', N'text', N'ntext', N'image', N'sql_variant')
ORDER BY c.column_id
"""
_KEY = """
SELECT c.name FROM sys.indexes AS i
JOIN sys.index_columns AS k ON k.object_id = i.object_id AND k.index_id = i.index_id
JOIN sys.columns AS c ON c.object_id = k.object_id AND c.column_id = k.column_id
WHERE i.object_id = OBJECT_ID(%s) AND i.is_primary_key = 1 ORDER BY k.key_ordinal
"""
_STYLES = {
    **dict.fromkeys(("datetime", "smalldatetime", "datetime2", "datetimeoffset", "time"), "121"),
    **dict.fromkeys(("binary", "varbinary"), "1"),
    **dict.fromkeys(("float", "real"), "3"),
    **dict.fromkeys(("money", "smallmoney"), "2"),
    "date": "23",
}
"""The style of CONVERT that writes a value as an event has it."""
_TEXTS = frozenset({"char", "nchar", "varchar", "nvarchar"})
_DELETE, _INSERT, _BEFORE, _AFTER = 1, 2, 3, 4
_Values = Mapping[str, str | None]
Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Table:
    """A table whose changes are streamed."""

    name: str
    columns: tuple[SourceColumn, ...]
    key: tuple[str, ...]

    def select(self) -> str:
        """Return the query for its change rows between two LSNs."""
        texts = ", ".join(_as_text(column) for column in self.columns)
        own = "[__$start_lsn], [__$command_id], [__$seqval], [__$operation]"
        interval = "[__$start_lsn] > %s AND [__$start_lsn] <= %s"
        return f"SELECT {own}, {texts} FROM cdc.[dbo_{self.name}_CT] WHERE {interval}"  # noqa: S608  (names of tables)


@dataclass(frozen=True, slots=True)
class _Change:
    """A row of a change table, or the two of an update."""

    lsn: bytes
    order: tuple[Any, ...]
    table: _Table
    old: _Values
    current: _Values


@dataclass
class ChangeStreamer:
    """Streams the changes of tables of schema dbo. ``connect`` opens the database."""

    connect: Callable[[], pymssql.Connection]
    database: str
    tables: Sequence[str]
    writer: CaptureWriter
    form: MessageForm = field(default_factory=lambda: MessageForm(limit_bytes=128 << 10))
    repeats: float = 0.05
    """The share of the rounds that send the messages of the round before again."""
    chance: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311  (reproducible on purpose)
    sent_to: bytes = bytes(10)
    """The LSN up to which all changes were sent."""
    _last: list[tuple[int, bytes]] = field(default_factory=list)

    def send(self) -> int:
        """Send what is captured now. Return the number of changes. Raises pymssql.Error where the server is away."""
        with self.connect() as connection, connection.cursor() as opened:
            cursor: Any = opened
            cursor.execute("SELECT sys.fn_cdc_get_max_lsn()")
            newest = bytes(cursor.fetchone()[0] or bytes(10))
            changes = [each for name in self.tables for each in self._read(cursor, _describe(cursor, name), newest)]
        changes.sort(key=lambda change: (change.lsn, change.order))
        messages = [
            (partition, body)
            for lsn, found in groupby(changes, key=lambda change: change.lsn)
            for sequence, change in enumerate(found, 1)
            for partition, body in self._encode(lsn, sequence, change)
        ]
        again = self._last if self.chance.random() < self.repeats else []
        self._write([*again, *messages])
        # After the messages: where this is lost, they are sent again.
        self.sent_to, self._last = newest, messages
        return len(changes)

    def _read(self, cursor: Any, table: _Table, newest: bytes) -> Iterator[_Change]:
        cursor.execute(table.select(), (self.sent_to, newest))
        rows = [(bytes(row[0]), (row[1], bytes(row[2])), row[3], row[4:]) for row in cursor.fetchall()]
        pending: dict[tuple[bytes, Any], _Values] = {}
        for lsn, order, operation, values in sorted(rows, key=itemgetter(0, 1, 2)):
            image = dict(zip((column.name for column in table.columns), values, strict=True))
            if operation == _BEFORE:
                # A value of any length is in the image before only where it changed.
                lobs = {column.name for column in table.columns if column.is_lob}
                pending[lsn, order] = {name: text for name, text in image.items() if name not in lobs}
                continue
            old = pending.pop((lsn, order), {}) if operation == _AFTER else image if operation == _DELETE else {}
            yield _Change(lsn, order, table, old, {} if operation == _DELETE else image)

    def _encode(self, lsn: bytes, sequence: int, change: _Change) -> Iterator[tuple[int, bytes]]:
        table, ids = change.table, count()
        image = change.current or change.old
        outgoing = OutgoingChange(
            database=self.database,
            schema="dbo",
            table=table.name,
            columns=tuple((column.name, column.declared_type, column.ordinal - 1) for column in table.columns),
            key=tuple((name, str(image[name])) for name in table.key),
            guid=_GUID,
            commit_lsn=lsn,
            begin_lsn=lsn,
            sequence=sequence,
            committed_at=datetime.now(UTC),
            operation="INS" if not change.old else "UPD" if change.current else "DEL",
            old=change.old,
            current=change.current,
        )
        for body in encode_change(outgoing, self.form, lambda: f"{self.chance.getrandbits(96):024x}-{next(ids):07}"):
            yield self.chance.randrange(PARTITIONS), body

    def _write(self, messages: Sequence[tuple[int, bytes]]) -> None:
        for partition in range(PARTITIONS):
            if bodies := [body for place, body in messages if place == partition]:
                self.writer.write(partition, bodies)


def _describe(cursor: Any, name: str) -> _Table:
    # A column that is added later is not captured: its values are not streamed either.
    cursor.execute("SELECT name FROM sys.columns WHERE object_id = OBJECT_ID(%s)", (f"cdc.dbo_{name}_CT",))
    captured = {row[0] for row in cursor.fetchall()}
    cursor.execute(_COLUMNS, (f"dbo.{name}",))
    columns = tuple(read_source_column(row) for row in cursor.fetchall() if row[0] in captured)
    cursor.execute(_KEY, (f"dbo.{name}",))
    return _Table(name, columns, tuple(row[0] for row in cursor.fetchall()))


def _as_text(column: SourceColumn) -> str:
    name = f"[{column.name}]"
    if column.type_name in _TEXTS:
        return name
    if column.type_name == "uniqueidentifier":
        return f"CONVERT(varchar(36), {name})"
    style = _STYLES.get(column.type_name)
    length = "max" if column.type_name in ("binary", "varbinary") else "60"
    return f"CONVERT(varchar({length}), {name}{f', {style}' if style else ''})"
