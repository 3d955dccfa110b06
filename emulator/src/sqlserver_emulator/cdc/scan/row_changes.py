"""Changes of rows within a logged transaction: who takes them, how they are numbered, when an update is a 1/2 pair.

Owns sequence values (one for each row in the log), command ids (one counter over all instances,
docs/reference/sqlserver_cdc.md, "Order of changes") and the deferred update ("Row shapes" there). Where a transaction
begins and ends is ``transactions``'; bytes are ``rows``'.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlserver_emulator.cdc.instances import CaptureInstance, CdcDatabase, TrackedTable, read_instances
from sqlserver_emulator.cdc.log import pgoutput
from sqlserver_emulator.cdc.log.deferral import Deferral, HeldRow, spread_places, takes_over_keys
from sqlserver_emulator.cdc.log.pgoutput import Begin, Fields, Relation
from sqlserver_emulator.cdc.log.reader import PAYLOAD_AT, message_position
from sqlserver_emulator.cdc.lsn import FIRST_ROW_SLOT
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.cdc.rows import InstanceRows, changed_places, row_start
from sqlserver_emulator.cdc.scan.schema_changes import follow_logged_type
from sqlserver_emulator.cdc.scan.writer import ChangeTableWriter

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
    """A tracked table as logged now: who takes its rows, and where its keys are in them.

    ``key_places``: of unique and clustered keys. ``unique_places``: of each unique one.
    """

    targets: list[Target]
    key_places: frozenset[int]
    unique_places: tuple[tuple[int, ...], ...]


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
        """Take the database's new state: its instances or its LSNs changed."""
        self._database = database
        self.load_instances()

    def load_instances(self) -> None:
        """Read the instances again; every shape is made again when it is needed."""
        self.tables = read_instances(self._run, self._database)
        self._shapes = {}

    def set_relation(self, relation: Relation) -> None:
        """Take a table's description from the log: the table changed, or was not described before."""
        self._relations[relation.object_id] = relation
        self._shapes.pop(relation.object_id, None)

    def begin(self, begin: Begin, commit_lsn: bytes) -> None:
        self._transaction += 1
        self._commit_position = begin.commit_position
        self._commit_lsn = commit_lsn
        self.command_id = 0
        self._row_position = -1
        self._row_slot = 0
        self._deferral: Deferral[Shape] | None = None

    def defer_updates(self, object_id: int, *, is_certain: bool) -> None:
        """Defer updates of this table from here on; 0 ends that."""
        self.release_held()
        self._deferral = Deferral(object_id, is_certain) if object_id else None

    def take(self, kind: int, message: bytes) -> None:
        """Take one INSERT, UPDATE or DELETE message."""
        object_id = pgoutput.row_object_id(message, PAYLOAD_AT)
        # None is an answer too: no instance tracks the table.
        shape = self._shapes[object_id] if object_id in self._shapes else self._make_shape(object_id)
        if shape is None:
            return
        self._advance(message)
        deferral = self._deferral
        if deferral is not None:
            if deferral.object_id == object_id:
                deferral.held.append(HeldRow(kind, shape, self._row_position, self._row_slot, message))
                return
            self.release_held()
        sequence = self._database.lsn_at(self._row_position, self._row_slot)
        if kind == pgoutput.UPDATE:
            self._take_update(shape, sequence, *pgoutput.read_row_pair(message, PAYLOAD_AT))
        else:
            self._take_row(kind, shape, sequence, pgoutput.read_row(message, PAYLOAD_AT))

    def release_held(self) -> None:
        """Write the held rows: the statement has ended, as far as it is about its own table."""
        deferral = self._deferral
        if deferral is None or not deferral.held:
            return
        held = deferral.take_held()
        # docs/reference/sqlserver_cdc.md, "Row shapes": an UPDATE of many rows that assigns a key gives a pair 1 and 2
        # for each.
        deferral.is_certain = deferral.is_certain or len(held) > 1
        # Sources differ here: emulator/docs/emulator.md, "Where sources disagree".
        if takes_over_keys(held, held[0].shape.unique_places):
            self._take_deletes_first(held)
            return
        for row in held:
            sequence = self._database.lsn_at(row.position, row.slot)
            old, new = row.images()
            if old is None or new is None:
                self._take_row(row.kind, row.shape, sequence, old or new or [])
            elif deferral.is_certain:
                self._take_deferred_update(row.shape, sequence, old, new)
            else:
                self._take_update(row.shape, sequence, old, new)

    def _take_deletes_first(self, held: list[HeldRow[Shape]]) -> None:
        """Write all deletes, then all inserts, each with a sequence value of its own, as their order needs."""
        places = spread_places(held)
        for kind, image in ((pgoutput.DELETE, 0), (pgoutput.INSERT, 1)):
            for row in held:
                fields = row.images()[image]
                if fields is not None:
                    self._take_row(kind, row.shape, self._database.lsn_at(*next(places)), fields)

    def _advance(self, message: bytes) -> None:
        """Move to the place of the log that the row has."""
        position = message_position(message)
        # One record of the log may hold many rows, and each needs a sequence value of its own (docs/adr/0003).
        if position == self._row_position:
            self._row_slot += 1
        else:
            self._row_position, self._row_slot = position, FIRST_ROW_SLOT

    def _take_row(self, kind: int, shape: Shape, sequence: bytes, row: Fields) -> None:
        """Write an insert or a delete."""
        for target in shape.targets:
            if start := self._start_of(target):
                self.command_id += 1
                # docs/reference/sqlserver_cdc.md, "Order of changes": the counter covers all instances, so each has
                # another number for one change.
                write = target.rows.insert if kind == pgoutput.INSERT else target.rows.delete
                self._append(target, write(start, sequence, self.command_id, row))

    def _take_update(self, shape: Shape, sequence: bytes, old: Fields, new: Fields) -> None:
        changed = changed_places(old, new)
        # docs/reference/sqlserver_cdc.md, "Row shapes": a change of the primary, clustered or a unique key is logged as
        # delete and insert.
        if not shape.key_places.isdisjoint(changed):
            self._take_deferred_update(shape, sequence, old, new)
        elif changed:
            for target in shape.targets:
                if start := self._start_of(target):
                    pair = target.rows.update(start, sequence, self.command_id + 1, (old, new), changed=changed)
                    # An update that touches no captured column writes nothing and takes no number
                    # (docs/reference/sqlserver_cdc.md, "DDL").
                    if pair:
                        self.command_id += 1
                        self._append(target, pair)

    def _take_deferred_update(self, shape: Shape, sequence: bytes, old: Fields, new: Fields) -> None:
        """Write a delete and an insert that share the sequence value, as SQL Server logs such an update."""
        for target in shape.targets:
            if start := self._start_of(target):
                # docs/reference/sqlserver_cdc.md, "Row shapes": `__$command_id` is one higher in the second row of the
                # pair.
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
        # The change tables were altered, so what was read of the instances is out of date.
        if self._follow_types(table, relation):
            self.load_instances()
            table = self.tables[object_id]
        names = [column.name for column in relation.columns]
        at = {name: place for place, name in enumerate(names)}
        shape = Shape(
            [Target(instance, InstanceRows(instance.columns, names)) for instance in table.instances],
            frozenset(at[name] for name in table.key_columns if name in at),
            tuple(tuple(at[n] for n in key) for key in table.unique_keys if all(n in at for n in key)),
        )
        self._shapes[object_id] = shape
        return shape

    def _follow_types(self, table: TrackedTable, relation: Relation) -> bool:
        """Give change tables the types that rows have here; True when one had others."""
        logged = {column.name: column for column in relation.columns}
        followed = False
        for instance in table.instances:
            # The instance takes no rows of this transaction, and its change table has the types of a later time.
            if instance.enabled_at > self._commit_position:
                continue
            for column, stored in zip(instance.columns, instance.stored, strict=True):
                found = logged.get(column.source_name or "")
                if found and (found.type_oid, found.type_modifier) != (stored.type_oid, stored.type_modifier):
                    # The rows so far are encoded in the column's old type.
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
