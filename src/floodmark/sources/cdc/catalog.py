"""The conversion of result sets of ``read_snapshot.sql`` and ``read_tables.sql`` to values of the core. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from floodmark.core.lsn import Lsn, LsnAbsence, read_lsn
from floodmark.core.position import Position
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.source.feed import InstanceIdentity
from floodmark.core.source.snapshot import CaptureInstance, WiderInstance
from floodmark.sources.sqlserver.tables import (
    FoundTable,
    Row,
    build_tables,
    grouped,
    read_source_column,
    round_to_tick,
)

COMMAND_ID = "__$command_id"
_OWN_COLUMNS = frozenset({"__$start_lsn", "__$end_lsn", "__$seqval", "__$operation", "__$update_mask", COMMAND_ID})
"""Exactly these: a column of a user may begin with ``__$`` too (docs/reference/sqlserver_cdc.md, "Row shapes")."""
_BRACKETED = re.compile(r"\[((?:[^\]]|\]\])*)\]")
_ROWVERSION = "timestamp"


_UNSEEN: Row = (None, None, bytes(10), 0, None, 0, None)
"""The row of a change table that the login may not see."""


@dataclass(frozen=True, slots=True)
class FoundInstance:
    """A capture instance of table ``source_object_id``."""

    name: str
    source_object_id: int
    created_at: datetime
    min_lsn: Position | LsnAbsence
    readable: bool
    """The login may read the change table."""
    instance: CaptureInstance | None
    """The instance with its columns; None where it is not readable."""
    min_lsn_at: datetime | None = None
    """The commit time of ``min_lsn``."""
    last_change_lsn: Position | LsnAbsence | None = None
    """See ``TableSnapshot``; None also where the change table was locked."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """The tables that were asked for and their capture instances, as far as the login may see them."""

    tables: tuple[FoundTable, ...]
    instances: tuple[FoundInstance, ...] = ()

    def find_instance(self, table: FoundTable, pinned: str | None) -> FoundInstance | None:
        """Return the pinned instance; else the newest that the capture job has reached; else the newest."""
        mine = [instance for instance in self.instances if instance.source_object_id == table.object_id]
        if pinned is not None:
            mine = [instance for instance in mine if instance.name.casefold() == pinned.casefold()]
        return max(mine, key=_age, default=None)

    def find_wider(self, found: FoundInstance) -> WiderInstance | None:
        """Return the older instance of the same table that captures columns which the found one does not.

        A newer one is no accident: a switch of capture instances makes it, and drift has reported its columns.
        """
        if found.instance is None:
            return None
        mine = {column.name for column in found.instance.table.stored_columns}
        for other in self.instances:
            if other.instance is None or other is found or other.created_at > found.created_at:
                continue
            stored = [column.name for column in other.instance.table.stored_columns]
            more = tuple(name for name in stored if name not in mine)
            if other.source_object_id == found.source_object_id and more:
                return WiderInstance(other.name, more)
        return None

    def list_instances(self, table: FoundTable) -> tuple[str, ...]:
        """Return the names of all capture instances of a table."""
        return tuple(sorted(each.name for each in self.instances if each.source_object_id == table.object_id))


def _age(found: FoundInstance) -> tuple[bool, datetime, str]:
    return isinstance(found.min_lsn, Position), found.created_at, found.name


def build_catalog(
    tables: Iterable[Row],
    instances: Iterable[Row] = (),
    change_tables: Iterable[Row] = (),
    columns: Iterable[Row] = (),
    primary_keys: Iterable[Row] = (),
    *,
    masked: Iterable[Row] = (),
    filters: Iterable[Row] = (),
) -> Catalog:
    """Return the catalog of the instances of ``read_snapshot.sql`` and the six result sets of ``read_tables.sql``."""
    columns_of = grouped(columns)
    keys_of = grouped(primary_keys)
    change_table_of = {row[0]: row for row in change_tables}
    return Catalog(
        tables=build_tables(tables, masked, filters),
        instances=tuple(_read_instance(row, change_table_of, columns_of, keys_of) for row in instances),
    )


def _read_instance(
    row: Row, change_table_of: Mapping[int, Row], columns_of: Mapping[int, list[Row]], keys_of: Mapping[int, list[Row]]
) -> FoundInstance:
    """Return the instance of a row of sys.sp_cdc_help_change_data_capture."""
    (
        schema,
        table,
        name,
        object_id,
        source_object_id,
        start_lsn,
        _end_lsn,
        net,
        _drop_pending,
        _role,
        index_name,
        _filegroup,
        created_at,
        index_columns,
        _captured,
    ) = row
    _, _, low_end, is_readable, min_lsn_at, is_end_known, last = change_table_of.get(object_id, _UNSEEN)
    captured = columns_of.get(object_id, [])
    readable = is_readable == 1 and bool(captured)
    instance = None
    if readable:
        # A row without an index repeats the index columns of the row before it.
        indexed = parse_column_list(index_columns) if index_name else ()
        instance = CaptureInstance(
            identity=InstanceIdentity(name, object_id, round_to_tick(created_at)),
            table=SourceTable(
                name=TableName(schema, table),
                columns=_read_columns(captured, columns_of.get(source_object_id, [])),
                key=indexed or tuple(key[1] for key in keys_of.get(source_object_id, [])),
            ),
            start_lsn=Lsn(bytes(start_lsn)),
            supports_net_changes=bool(net),
            has_command_id=any(column[1] == COMMAND_ID for column in captured),
        )
    return FoundInstance(
        name,
        source_object_id,
        created_at,
        read_lsn(low_end),
        readable,
        instance,
        min_lsn_at,
        read_lsn(last) if is_end_known else None,
    )


def _read_columns(captured: Sequence[Row], source: Sequence[Row]) -> tuple[SourceColumn, ...]:
    """Return the change table's columns in mask order, with the details that only the source table has.

    A captured column that was dropped from the source table is left out: it is NULL in all changes after the drop, and
    these NULLs must not overwrite the target's values.
    """
    source_column = {row[1]: row for row in source}
    names = [row for row in captured if row[1] not in _OWN_COLUMNS]
    return tuple(
        _read_column(row, source_column[row[1]], ordinal)
        for ordinal, row in enumerate(names, 1)
        if row[1] in source_column
    )


def _read_column(captured: Row, source: Row, ordinal: int) -> SourceColumn:
    _, name, type_name, max_length, precision, scale, _, _, *collation = captured
    _, _, source_type, _, _, _, nullable, computed, *_ = source
    if source_type == _ROWVERSION:  # binary(8) in the change table
        type_name = source_type
    return read_source_column((name, ordinal, type_name, max_length, precision, scale, nullable, computed, *collation))


def parse_column_list(text: str | None) -> tuple[str, ...]:
    """Return the names of a list such as ``[a], [b ]]c]``."""
    return tuple(name.replace("]]", "]") for name in _BRACKETED.findall(text or ""))
