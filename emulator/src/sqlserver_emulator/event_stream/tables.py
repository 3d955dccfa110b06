"""The streamed tables of a database with the options of their groups, read from the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlserver_emulator.cdc.log.pgoutput import NULL_FIELD, Fields, Relation
from sqlserver_emulator.cdc.lsn import parse_position
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.event_stream.destination import Hub
from sqlserver_emulator.event_stream.encoding import Generation, MessageForm
from sqlserver_emulator.event_stream.value_texts import LEFT_OUT, Writer, value_writer
from sqlserver_emulator.types import TsqlType

_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class StreamGroup:
    """Where changes go, and in which form."""

    name: str
    hub: Hub
    scheme: str
    column: str | None
    form: MessageForm


@dataclass(frozen=True, slots=True)
class StreamedColumn:
    """A column that events carry. ``place``: where it is in a logged row; ``index``: its 0-based place in the table."""

    name: str
    declared: str
    index: int
    place: int
    write: Writer
    is_lob: bool
    is_key: bool


@dataclass(frozen=True, slots=True)
class StreamedTable:
    """A table as its changes are streamed. ``enabled_at``: transactions that commit below it are not streamed."""

    schema: str
    name: str
    table_id: str
    group: StreamGroup
    all_columns: bool
    old_values: bool
    old_lobs: bool
    enabled_at: int
    columns: tuple[StreamedColumn, ...]
    key: tuple[StreamedColumn, ...]


def read_table(run: Run, relation: Relation) -> StreamedTable | None:
    """Return the streamed table that a logged relation is; None when it is not streamed."""
    rows = run(_TABLE, (relation.object_id,))
    if not rows:
        return None
    schema, name, table_id, all_columns, old_values, old_lobs, enabled_at, *group = rows[0]
    group_name, location, message_bytes, scheme, column, is_binary, generation, identity, secret = group
    form = MessageForm(Generation(generation), is_binary, message_bytes)
    columns = _read_columns(run, relation)
    keys = {column.name: column for column in columns if column.is_key}
    return StreamedTable(
        schema,
        name,
        table_id,
        StreamGroup(group_name, Hub(location, identity, secret), scheme, column, form),
        all_columns,
        old_values,
        old_lobs,
        parse_position(enabled_at),
        tuple(columns),
        tuple(keys[name] for (name,) in run(_KEY, (relation.object_id,)) if name in keys),
    )


def _read_columns(run: Run, relation: Relation) -> list[StreamedColumn]:
    places = {column.name: place for place, column in enumerate(relation.columns)}
    keys = {name for (name,) in run(_KEY, (relation.object_id,))}
    found = []
    for index, (name, stored_name, *facets) in enumerate(run(_COLUMNS, (relation.object_id,))):
        type_ = TsqlType(*facets)
        place = places.get(stored_name)
        if place is not None and type_.name not in LEFT_OUT:
            declared = "nvarchar(128)" if type_.name == "sysname" else str(type_)
            found.append(StreamedColumn(name, declared, index, place, value_writer(type_), type_.is_max, name in keys))
    return found


def image(columns: Sequence[StreamedColumn], row: Fields) -> dict[str, str | None]:
    """Return the texts of a row's values, None for NULL."""
    return {column.name: value_text(column, row) for column in columns}


def value_text(column: StreamedColumn, row: Fields) -> str | None:
    """Return the text of one value of a row."""
    field = row[column.place]
    return None if field == NULL_FIELD else column.write(field[_LENGTH_BYTES:].decode())


_TABLE = """
SELECT s.name::text, o.name::text, t.table_id::text, t.all_columns, t.old_values, t.old_lobs, t.enabled_at::text,
       g.name::text, g.location, g.message_bytes, g.scheme, g.column_name::text, g.is_binary,
       e.generation, c.identity::text, c.secret
FROM emulator.event_stream_tables t
JOIN emulator.event_stream_databases e ON e.database_id = t.database_id
JOIN emulator.event_stream_groups g ON g.database_id = t.database_id AND g.name = t.group_name
JOIN emulator.credentials c ON c.database_id = g.database_id AND c.name = g.credential
JOIN emulator.objects o USING (object_id)
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
WHERE t.object_id = $1::int
"""
_COLUMNS = """
SELECT name::text, postgres_name::text, type_name::text, length::int, precision::int, scale::int
FROM emulator.columns WHERE object_id = $1::int ORDER BY column_id
"""
_KEY = """
SELECT c.name::text FROM emulator.indexes i
JOIN emulator.index_columns ic USING (object_id, index_id)
JOIN emulator.columns c ON c.object_id = i.object_id AND c.column_id = ic.column_id
JOIN emulator.objects k ON k.object_id = i.constraint_object_id AND k.type = 'PK'
WHERE i.object_id = $1::int AND NOT ic.is_included_column ORDER BY ic.key_ordinal
"""
