"""Changes of rows within a logged transaction: who takes them, how they are numbered, when an update is a 1/2 pair.

Owns sequence values (one for each row in the log), command ids (one counter over all instances, reference cdc.md B.3)
and the deferred update (B.2). Where a transaction begins and ends is ``transactions``'; bytes are ``rows``'.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlserver_emulator.cdc import pgoutput
from sqlserver_emulator.cdc.instances import CaptureInstance, CdcDatabase, TrackedTable, read_instances
from sqlserver_emulator.cdc.log import PAYLOAD_AT, message_position
from sqlserver_emulator.cdc.lsn import FIRST_ROW_SLOT
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.cdc.pgoutput import Begin, Fields, Relation
from sqlserver_emulator.cdc.rows import InstanceRows, changed_places, row_start
from sqlserver_emulator.cdc.schema_changes import follow_logged_type
from sqlserver_emulator.cdc.writer import ChangeTableWriter

ROW_KINDS = frozenset({pgoutput.INSERT, pgoutput.UPDATE, pgoutput.DELETE})


@dataclass(slots=True)
class Target:
    """An instance that takes a table's rows.

    ``start``: what its rows begin with in transaction number ``transaction``; empty when it did not exist then.
    """

    instance: CaptureInstance
    rows: InstanceRows
    start: bytes = b""
    transaction: int = -1


@dataclass(slots=True)
class Shape:
    """A tracked table as logged now: who takes its rows, and where its unique and clustered keys are in them."""

    targets: list[Target]
    key_places: frozenset[int]


@dataclass(slots=True)
class Deferral:
    """A statement that assigns key columns of a table (logical message ``deferred``), from here to the next message.

    A MERGE is always carried out as delete and insert, an UPDATE when it has several rows or the key really changes; so
    the first row of an UPDATE is ``held`` until it is known whether there is a second.
    """

    object_id: int
    is_certain: bool
    held: tuple[Shape, bytes, Fields, Fields] | None = None


class RowChanges:
    """``begin`` a transaction, then ``take`` its rows in order. ``command_id`` is the last one given."""

    def __init__(self, run: Run, database: CdcDatabase, writer: ChangeTableWriter) -> None:
        self._run = run
        self._database = database
        self._writer = writer
        self.tables: dict[int, TrackedTable] = {}
        self._relations: dict[int, Relation] = {}
        self._shapes: dict[int, Shape | None] = {}
        self._transaction = 0
        self.command_id = 0
        self.written_bytes = 0

    def set_database(self, database: CdcDatabase) -> None:
        """Its instances or its LSNs changed."""
        self._database = database
        self.load_instances()

    def load_instances(self) -> None:
        """Read the instances again; every shape is made anew."""
        self.tables = read_instances(self._run, self._database)
        self._shapes = {}

    def set_relation(self, relation: Relation) -> None:
        """The log describes a table, because it changed or was not described before."""
        self._relations[relation.object_id] = relation
        self._shapes.pop(relation.object_id, None)

    def begin(self, begin: Begin, commit_lsn: bytes) -> None:
        self._transaction += 1
        self._commit_position = begin.commit_position
        self._commit_lsn = commit_lsn
        self.command_id = 0
        self._row_position = -1
        self._row_slot = 0
        self._deferral: Deferral | None = None

    def defer_updates(self, object_id: int, *, is_certain: bool) -> None:
        """Updates of this table are deferred from here on; 0 ends that."""
        self.release_held()
        self._deferral = Deferral(object_id, is_certain) if object_id else None

    def take(self, kind: int, message: bytes) -> None:
        """One INSERT, UPDATE or DELETE message."""
        object_id = pgoutput.row_object_id(message, PAYLOAD_AT)
        shape = self._shapes[object_id] if object_id in self._shapes else self._make_shape(object_id)
        if shape is None:
            return
        sequence = self._next_sequence(message)
        if kind == pgoutput.UPDATE:
            old, new = pgoutput.read_row_pair(message, PAYLOAD_AT)
            if self._deferral is not None and self._deferral.object_id == object_id:
                self._take_of_deferral(self._deferral, shape, sequence, old, new)
            else:
                self._take_update(shape, sequence, old, new)
            return
        self.release_held()
        row = pgoutput.read_row(message, PAYLOAD_AT)
        for target in shape.targets:
            if start := self._start_of(target):
                self.command_id += 1
                write = target.rows.insert if kind == pgoutput.INSERT else target.rows.delete
                self._append(target, write(start, sequence, self.command_id, row))

    def release_held(self) -> None:
        """The statement had one row: it is an update in place unless the key changed."""
        deferral = self._deferral
        if deferral is not None and deferral.held is not None:
            held, deferral.held = deferral.held, None
            self._take_update(*held)

    def _next_sequence(self, message: bytes) -> bytes:
        position = message_position(message)
        if position == self._row_position:
            self._row_slot += 1
        else:
            self._row_position, self._row_slot = position, FIRST_ROW_SLOT
        return self._database.lsn_at(position, self._row_slot)

    def _take_of_deferral(self, deferral: Deferral, shape: Shape, sequence: bytes, old: Fields, new: Fields) -> None:
        if not deferral.is_certain and deferral.held is None:
            deferral.held = (shape, sequence, old, new)
            return
        deferral.is_certain = True
        if deferral.held is not None:
            held, deferral.held = deferral.held, None
            self._take_deferred_update(*held)
        self._take_deferred_update(shape, sequence, old, new)

    def _take_update(self, shape: Shape, sequence: bytes, old: Fields, new: Fields) -> None:
        changed = changed_places(old, new)
        if not shape.key_places.isdisjoint(changed):
            self._take_deferred_update(shape, sequence, old, new)
        elif changed:
            for target in shape.targets:
                if start := self._start_of(target):
                    pair = target.rows.update(start, sequence, self.command_id + 1, (old, new), changed=changed)
                    if pair:
                        self.command_id += 1
                        self._append(target, pair)

    def _take_deferred_update(self, shape: Shape, sequence: bytes, old: Fields, new: Fields) -> None:
        """SQL Server logs a delete and an insert, which share the sequence value."""
        for target in shape.targets:
            if start := self._start_of(target):
                deleted = target.rows.delete(start, sequence, self.command_id + 1, old)
                inserted = target.rows.insert(start, sequence, self.command_id + 2, new)
                self.command_id += 2
                self._append(target, deleted + inserted)

    def _append(self, target: Target, rows: bytes) -> None:
        self.written_bytes += len(rows)
        self._writer.append(target.instance, rows)

    def _start_of(self, target: Target) -> bytes:
        if target.transaction != self._transaction:
            target.transaction = self._transaction
            exists = target.instance.enabled_at <= self._commit_position
            target.start = row_start(target.rows.column_count, self._commit_lsn) if exists else b""
        return target.start

    # -- shapes -----------------------------------------------------------------------------------------------------

    def _make_shape(self, object_id: int) -> Shape | None:
        table, relation = self.tables.get(object_id), self._relations[object_id]
        if table is None:
            self._shapes[object_id] = None
            return None
        if self._follow_types(table, relation):
            self.load_instances()
            table = self.tables[object_id]
        names = [column.name for column in relation.columns]
        shape = Shape(
            [Target(instance, InstanceRows(instance.columns, names)) for instance in table.instances],
            frozenset(place for place, name in enumerate(names) if name in table.key_columns),
        )
        self._shapes[object_id] = shape
        return shape

    def _follow_types(self, table: TrackedTable, relation: Relation) -> bool:
        """Give change tables the types that rows have here; True when one had others."""
        logged = {column.name: column for column in relation.columns}
        followed = False
        for instance in table.instances:
            if instance.enabled_at > self._commit_position:
                continue
            for column, stored in zip(instance.columns, instance.stored, strict=True):
                found = logged.get(column.source_name or "")
                if found and (found.type_oid, found.type_modifier) != (stored.type_oid, stored.type_modifier):
                    self._writer.flush()
                    followed = True
                    follow_logged_type(
                        self._run,
                        self._database,
                        instance,
                        column.ordinal,
                        type_oid=found.type_oid,
                        type_modifier=found.type_modifier,
                    )
        return followed
