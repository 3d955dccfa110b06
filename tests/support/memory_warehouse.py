"""``MemoryWarehouse``: a warehouse in memory that publishes at the end of a run and shares nothing with the ledger.

It is for tests, and a sketch of what a lakehouse would do: staging is a list of parts, a merge is kept aside until the
window is published, and a repeated step changes nothing.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from floodmark.core.errors import (
    ConfigError,
    DuplicateKeyError,
    OperatorError,
    WarehouseUnavailableError,
    WatermarkConflictError,
)
from floodmark.core.plan import LoadKind, TableCounts, TablePlan, WindowPlan
from floodmark.core.schema import TableName
from floodmark.postgres.session import WarehouseConnection, open_transaction
from floodmark.sync.ports import CheckedRows, StagedNow, StagedPart, StagedRows, StagingSink, Warehouse, WarehouseTraits
from memory_target import Key, MemoryTarget, Values, key_of


class Place(NamedTuple):
    """Where the parts of a table are staged. attempt 0: a first load, whose parts outlast attempts."""

    window_id: int
    attempt: int
    source: TableName


@dataclass(frozen=True, slots=True)
class MergedWindow:
    """A merge that is not published yet."""

    attempt: int
    rows: Mapping[TableName, list[Values]]
    """What was staged, by source table."""
    counts: Mapping[TableName, TableCounts]


@dataclass(frozen=True)
class MemorySink:
    """``sync.ports.StagingSink`` for one table of one attempt. It holds no connection."""

    warehouse: MemoryWarehouse = field(repr=False)
    plan: WindowPlan
    index: int

    def write(self, part: int, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        rows = [row for batch in batches for row in batch.to_pylist()]
        return StagedPart(part, len(rows), self.warehouse.stage_part(self.plan, self.index, part, rows))


class MemoryWarehouse:
    """``sync.ports.Warehouse``. It has no rules, and no loads over a target that has rows."""

    traits = WarehouseTraits(publishes="at_advance", tables_at_once=True, has_primary_key=False, shares_ledger=False)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempts: dict[int, int] = {}
        self._parts: dict[Place, dict[tuple[int, str], list[Values]]] = {}
        self._receipts = itertools.count(1)
        self._merged: dict[int, MergedWindow] = {}
        self._published: set[int] = set()
        self._targets: dict[TableName, MemoryTarget] = {}
        self._views: dict[TableName, list[Values]] = {}

    def read(self, name: TableName) -> list[Values]:
        """Return the living rows that a reader sees of a target, or the rows of a table of ``open_rows``."""
        with self._lock:
            if name in self._views:
                return self._views[name]
            return self._seen(name).living()

    def _seen(self, name: TableName) -> MemoryTarget:
        """Return the target that readers see, with the lock held."""
        return self._targets.get(name) or MemoryTarget()

    def list_staged(self) -> set[int]:
        """Return the windows that have something in staging, or merged and not published."""
        with self._lock:
            return {place.window_id for place in self._parts} | set(self._merged)

    def prepare_window(self, plan: WindowPlan) -> None:
        for table in plan.tables:
            _refuse_unsupported(table)
        places = [_place(plan, index) for index in range(len(plan.tables))]
        with self._lock:
            if plan.attempt < self._attempts.get(plan.window_id, 0):
                raise _overtaken(plan)
            for left in self._published:
                self._drop(left)
            self._drop(plan.window_id, kept=[place for place in places if place.attempt == 0])
            self._attempts[plan.window_id] = plan.attempt
            for table, place in zip(plan.tables, places, strict=True):
                self._targets.setdefault(table.target, MemoryTarget())
                self._parts.setdefault(place, {})

    def sink(self, plan: WindowPlan, index: int) -> StagingSink:
        return MemorySink(self, plan, index)

    def stage_part(self, plan: WindowPlan, index: int, part: int, rows: list[Values]) -> str:
        """Keep the rows of a try of a part, those of a chunk in place of an earlier try. Return the receipt."""
        is_chunk = plan.tables[index].kind is LoadKind.FIRST_LOAD
        with self._fenced(plan):
            receipt = "" if is_chunk else str(next(self._receipts))
            self._parts[_place(plan, index)][part, receipt] = rows
            return receipt

    def count_parts(self, plan: WindowPlan, index: int) -> Mapping[int, int]:
        with self._lock:
            found: Counter[int] = Counter()
            for (part, _), rows in self._parts[_place(plan, index)].items():
                found[part] += len(rows)
            return +found

    def count_staged(self, plan: WindowPlan) -> Mapping[TableName, StagedNow]:
        with self._lock:
            return {
                table.source: StagedNow(sum(map(len, self._parts.get(_place(plan, index), {}).values())), 0)
                for index, table in enumerate(plan.tables)
            }

    def clear_parts(self, plan: WindowPlan, index: int, numbers: Collection[int]) -> None:
        if _place(plan, index) not in self._parts:
            return
        with self._fenced(plan):
            parts = self._parts[_place(plan, index)]
            for key in [key for key in parts if key[0] in numbers]:
                del parts[key]

    def drop_duplicates(self, plan: WindowPlan, index: int) -> int:
        table, dropped = plan.tables[index], 0
        seen: set[Key] = set()
        with self._fenced(plan):
            parts = self._parts[_place(plan, index)]
            for part, rows in parts.items():
                kept = []
                for row in rows:
                    if key_of(table, row) not in seen:
                        kept.append(row)
                    seen.add(key_of(table, row))
                dropped += len(rows) - len(kept)
                parts[part] = kept
        return dropped

    def merge_window(
        self, plan: WindowPlan, staged: Mapping[TableName, StagedRows] | None = None
    ) -> Mapping[TableName, TableCounts]:
        expected = staged or {}
        with self._fenced(plan):
            if plan.window_id in self._merged:
                return self._merged[plan.window_id].counts
            rows, counts = {}, {}
            for index, table in enumerate(plan.tables):
                found = self._staged_rows(plan, index, expected.get(table.source))
                if table.source in expected:
                    _refuse_lost(table, found, expected[table.source].staged_rows)
                _refuse_duplicates(table, found)
                rows[table.source] = found
                counts[table.source] = self._seen(table.target).copy().merge(table, found)
            self._merged[plan.window_id] = MergedWindow(plan.attempt, rows, counts)
            return counts

    def open_rows(self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]) -> Sequence[CheckedRows]:
        return [self._open_table(plan, index) for index in range(len(plan.tables))]

    def _open_table(self, plan: WindowPlan, index: int) -> CheckedRows:
        table, place = plan.tables[index], _place(plan, index)
        with self._lock:
            merged = self._merged.get(plan.window_id)
            if merged is None:
                return CheckedRows(table.target, None)
            after = self._seen(table.target).copy()
            after.merge(table, merged.rows[table.source])
            name = f"w{plan.window_id}_{table.source}"
            checked = CheckedRows(
                TableName("unpublished", name), TableName("staging", name) if place in self._parts else None
            )
            self._views[checked.target] = after.living()
            if checked.staged:
                self._views[checked.staged] = merged.rows[table.source]
            return checked

    def publish_window(self, plan: WindowPlan, transaction: Any = None) -> None:
        with self._lock:
            if plan.window_id in self._published:
                return
            merged = self._merged.get(plan.window_id)
            if merged is None or merged.attempt != plan.attempt:
                raise OperatorError(plan.pipeline, f"window {plan.window_id} is not merged, so it was not published.")
            for table in plan.tables:
                self._targets[table.target].merge(table, merged.rows[table.source])
            self._published.add(plan.window_id)
            del self._merged[plan.window_id]

    def drop_staging(self, window_id: int) -> None:
        with self._lock:
            self._drop(window_id)

    def _drop(self, window_id: int, kept: Collection[Place] = ()) -> None:
        """Drop all that is not published of a window; sinks of its attempts can no longer write."""
        self._attempts.pop(window_id, None)
        self._merged.pop(window_id, None)
        for place in [place for place in self._parts if place.window_id == window_id and place not in kept]:
            del self._parts[place]
        for view in [view for view in self._views if view.name.startswith(f"w{window_id}_")]:
            del self._views[view]

    def _staged_rows(self, plan: WindowPlan, index: int, reported: StagedRows | None) -> list[Values]:
        """Return the rows of the reported tries alone."""
        parts = self._parts[_place(plan, index)]
        if reported and plan.tables[index].kind is LoadKind.CHANGES:
            receipts = {part.receipt for part in reported.parts}
            parts = {key: rows for key, rows in parts.items() if key[1] in receipts}
        return [row for rows in parts.values() for row in rows]

    @contextmanager
    def _fenced(self, plan: WindowPlan) -> Iterator[None]:
        """Hold the lock; refuse an attempt that is not the latest one, or is of a finished window."""
        with self._lock:
            if self._attempts.get(plan.window_id) != plan.attempt:
                raise _overtaken(plan)
            yield


class CataloguedWarehouse(MemoryWarehouse):
    """``MemoryWarehouse`` whose catalog is a table of the ledger's database, and is part of the ledger's transaction.

    A merge makes new versions of targets, and the catalog says which version readers see.
    """

    traits = replace(MemoryWarehouse.traits, publishes_in_ledger=True)

    def __init__(self, ledger: WarehouseConnection) -> None:
        super().__init__()
        self._at = ledger
        self._versions: list[MemoryTarget] = [MemoryTarget()]
        self._begun: dict[int, dict[TableName, int]] = {}
        """The versions that each window began with."""
        with open_transaction(ledger) as session:
            session.execute("CREATE TABLE IF NOT EXISTS catalog (target text PRIMARY KEY, version integer NOT NULL)")

    def _seen(self, name: TableName) -> MemoryTarget:
        return self._versions[self._version(name)]

    def _version(self, name: TableName) -> int:
        with open_transaction(self._at) as session:
            row = session.execute("SELECT version FROM catalog WHERE target = %s", [str(name)]).fetchone()
        return row[0] if row else 0

    def prepare_window(self, plan: WindowPlan) -> None:
        super().prepare_window(plan)
        with open_transaction(self._at) as session:
            ended = session.execute("SELECT window_id FROM floodmark.windows WHERE state = 'advanced'").fetchall()
            for (window_id,) in ended:
                self.drop_staging(window_id)
            for table in plan.tables:
                create = "INSERT INTO catalog VALUES (%s, 0) ON CONFLICT DO NOTHING"
                session.execute(create, [str(table.target)])
        self._begun[plan.window_id] = {table.target: self._version(table.target) for table in plan.tables}

    def publish_window(self, plan: WindowPlan, transaction: Any = None) -> None:
        merged = self._merged[plan.window_id]
        for table in plan.tables:
            base = self._begun[plan.window_id][table.target]
            after = self._versions[base].copy()
            after.merge(table, merged.rows[table.source])
            self._versions.append(after)
            move = "UPDATE catalog SET version = %s WHERE (target, version) = (%s, %s)"
            if transaction.execute(move, [len(self._versions) - 1, str(table.target), base]).rowcount != 1:
                raise WatermarkConflictError(plan.pipeline, f"{table.target} was changed by another writer.")


if TYPE_CHECKING:
    # The tests that pass it to a step are not read by mypy.
    _warehouse: Warehouse = MemoryWarehouse()


def _place(plan: WindowPlan, index: int) -> Place:
    table = plan.tables[index]
    return Place(plan.window_id, 0 if table.kind is LoadKind.FIRST_LOAD else plan.attempt, table.source)


def _overtaken(plan: WindowPlan) -> WatermarkConflictError:
    subject = f"{plan.pipeline}, window {plan.window_id}"
    return WatermarkConflictError(subject, f"attempt {plan.attempt} is not the latest one.", "Nothing was written.")


def _refuse_unsupported(table: TablePlan) -> None:
    asked = {"rules": bool(table.settings.rules), "a reload": table.is_reload, "a condition": bool(table.where)}
    if names := [name for name, is_asked in asked.items() if is_asked]:
        raise ConfigError(str(table.source), f"the warehouse in memory does not support {' and '.join(names)}.")


def _refuse_lost(table: TablePlan, found: Sequence[Values], expected: int) -> None:
    if len(found) != expected:
        raise WarehouseUnavailableError(
            str(table.source), f"{expected} rows were staged, but {len(found)} are in staging now."
        )


def _refuse_duplicates(table: TablePlan, rows: Sequence[Values]) -> None:
    """Raise DuplicateKeyError: there is no primary key that would refuse the second row."""
    rows_per_key = Counter(key_of(table, row) for row in rows)
    if twice := [key for key, number in rows_per_key.items() if number > 1]:
        raise DuplicateKeyError(str(table.source), "a key is in staging more than once.", "", str(twice[0]))
