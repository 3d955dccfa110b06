"""The second step of a run: bring the window's rows to staging, and merge them in one transaction.

It may be killed at any point and run again: nothing is visible before the merge, and the merge happens once. A table
that staging or the target refuses leaves the window, with the verdict ``refused``; the others are merged.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from floodmark.core.columns import hides_key
from floodmark.core.errors import (
    CaptureStoppedError,
    ConfigError,
    DataQualityError,
    DuplicateKeyError,
    FloodmarkBugError,
    FloodmarkError,
    LoadStartError,
    OtherDatabaseError,
    SourceBehindError,
    SourceLoginError,
    TableRefusedError,
    TargetRefusedError,
    WarehouseAdminError,
    WatermarkConflictError,
)
from floodmark.core.plan import (
    MAIN_LANE,
    LoadKind,
    MemberRead,
    StoredChunk,
    TableCounts,
    TablePlan,
    WindowPlan,
    WindowState,
    plan_chunks,
    progress_of,
    select_lost,
)
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.snapshot import LogEntry, Validity, Verdict
from floodmark.core.verdicts import incident
from floodmark.sync.load_progress import LoadWatch, progress_reported
from floodmark.sync.ports import LoggedProgress, Progress, Source, StagedRows, Stager, Warehouse
from floodmark.sync.window import is_followed, verify_reads

if TYPE_CHECKING:
    from floodmark.postgres.ledger.ledger import PostgresLedger

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# A limit for the reads of the source that run in parallel.


class ReadSlots:
    """A number of statements that may read the source at a time. Threads share it."""

    def __init__(self, slots: int) -> None:
        self._limit = slots
        self._free = slots
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, wanted: int) -> Iterator[int]:
        """Hold as many slots as wanted, at most the limit, during the block. Waits until they are free."""
        slots = min(wanted, self._limit)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= slots)
            self._free -= slots
        try:
            yield slots
        finally:
            with self._changed:
                self._free += slots
                self._changed.notify_all()


# --------------------------------------------------------------------------------------------------------------------
# The read of whole tables, in chunks that are kept after the load that staged them.
#
# The bounds of the chunks are read once per window and kept in the ledger. A load that continues after another was
# killed reads only the chunks whose rows are not in staging. Where the key is masked, the ledger has no bounds, and the
# load begins again (ADR 109).


def has_first_load(plan: WindowPlan) -> bool:
    """Return whether a table of a window is read as a whole."""
    return any(table.kind is LoadKind.FIRST_LOAD for table in plan.tables)


def slots_of(plan: WindowPlan) -> ReadSlots:
    """Return the slots for the first loads of a window."""
    limits = [table.settings.first_load.parallel_reads for table in plan.tables if table.kind is LoadKind.FIRST_LOAD]
    return ReadSlots(max(limits, default=1))


def stage_first_load(
    plan: WindowPlan, index: int, ledger: PostgresLedger, warehouse: Warehouse, stager: Stager, *, slots: ReadSlots
) -> StagedRows:
    """Stage all chunks of a table. Chunks that are in staging already are not read again."""
    if plan.tables[index].reads_no_rows:
        return StagedRows(0, 0)
    source = plan.tables[index].source
    stored = _stored_chunks(plan, index, ledger, warehouse, stager, slots=slots)
    missing = [each.chunk for each in stored if each.staged_rows is None]
    if len(missing) < len(stored):
        _LOG.info(
            "%s: %s are already staged; %s of %s chunks are left.",
            source,
            progress_of(stored),
            len(missing),
            len(stored),
        )
    if missing:
        with slots.taken(min(plan.tables[index].settings.first_load.parallel_reads, len(missing))) as reads:
            parts = stager.stage_chunks(plan, index, missing, reads, warehouse.sink(plan, index))
        if not warehouse.traits.shares_ledger:
            ledger.record_staged(plan, source, parts)
    rows = progress_of(ledger.list_chunks(plan.window_id, source)).rows
    return StagedRows(rows, rows)


def _stored_chunks(
    plan: WindowPlan, index: int, ledger: PostgresLedger, warehouse: Warehouse, stager: Stager, *, slots: ReadSlots
) -> list[StoredChunk]:
    """Return the chunks of the ledger, after a comparison with staging."""
    source = plan.tables[index].source
    stored = ledger.list_chunks(plan.window_id, source)
    hides_bounds = hides_key(plan.tables[index].settings, plan.tables[index].feed.table)
    if hides_bounds and stored:
        warehouse.clear_parts(plan, index, [each.chunk.number for each in stored])
    if hides_bounds or not stored:
        with slots.taken(1):  # the whole key is read
            bounds = stager.read_chunk_bounds(plan, index)
        stored = ledger.store_chunks(plan, source, plan_chunks(bounds), hides_bounds=hides_bounds)
    if hides_bounds:
        return list(stored)
    lost = select_lost(stored, warehouse.count_parts(plan, index))
    if lost:
        _LOG.warning("%s: %s chunks are no longer in staging as they were; they are read again.", source, len(lost))
        warehouse.clear_parts(plan, index, lost)
        ledger.reset_chunks(plan, source, lost)
        stored = ledger.list_chunks(plan.window_id, source)
    return list(stored)


def forget_first_loads(plan: WindowPlan, ledger: PostgresLedger, warehouse: Warehouse) -> None:
    """Discard the staged chunks, so that the next attempt reads all chunks again.

    Nothing is left to discard where another run has ended the window, or begun it again, meanwhile.
    """
    with suppress(WatermarkConflictError):
        for index, table in enumerate(plan.tables):
            if table.kind is LoadKind.FIRST_LOAD:
                numbers = [each.chunk.number for each in ledger.list_chunks(plan.window_id, table.source)]
                warehouse.clear_parts(plan, index, numbers)
                ledger.reset_chunks(plan, table.source, numbers)


# --------------------------------------------------------------------------------------------------------------------
# The errors of a load or a check that concern one table alone: it leaves the window, and the others go on.


_CONCERN_ALL = (
    WatermarkConflictError,
    OtherDatabaseError,
    SourceLoginError,
    CaptureStoppedError,
    LoadStartError,
    WarehouseAdminError,
)


def concerns_one_table(error: FloodmarkError) -> bool:
    """Return whether an error, met while one table was staged or merged, need not stop the others.

    An error that is retried stops all: the next try may have no loss. Login, space and fences are the same for all.
    """
    return not error.retryable and (isinstance(error, TargetRefusedError) or not isinstance(error, _CONCERN_ALL))


def refused_verdict(table: TablePlan, error: FloodmarkError) -> Validity:
    """Return the verdict on a table that a load or a check has refused. It contains no value of a row."""
    verdict = Validity(table.source, Verdict.REFUSED, error.message, error.hint, table.watermark)
    return verdict if error.hint else replace(verdict, hint="The log of the load has the details.")


def refusal(pipeline: str, verdicts: Sequence[Validity], errors: Mapping[TableName, FloodmarkError]) -> FloodmarkError:
    """Return the error about a window of which all tables are refused."""
    found = incident(pipeline, tuple(verdicts))
    return found if found and len(errors) > 1 else next(iter(errors.values()))


# --------------------------------------------------------------------------------------------------------------------
# The staging of all tables of a window: the changes of all of them, then those that are read as a whole, several at a
# time.


TABLES_AT_ONCE = 4
"""The number of tables that are read as a whole in parallel. A small table spends most of its time waiting. The tasks
that the engine runs at once limit rows and memory, not this number."""


def stage_changes(plan: WindowPlan, warehouse: Warehouse, stager: Stager) -> Mapping[int, StagedRows | FloodmarkError]:
    """Stage the changes of all tables that are not read as a whole. Raises an error that concerns all tables.

    A table that had no change when the window was planned may have one at the moment that is read.
    """
    changed = [index for index, table in enumerate(plan.tables) if table.kind is LoadKind.CHANGES]
    return stager.stage_changes(plan, {index: warehouse.sink(plan, index) for index in changed}) if changed else {}


def stage_tables(
    plan: WindowPlan,
    ledger: PostgresLedger,
    warehouse: Warehouse,
    stager: Stager,
    staged: Mapping[int, StagedRows | FloodmarkError],
    *,
    on_staged: Callable[[TableName, int], None],
) -> Mapping[TableName, StagedRows | FloodmarkError]:
    """Stage the tables of a window. Return for each its rows, or the error that concerns it alone.

    staged: the tables whose changes are staged already. on_staged: called for each table that was staged, with the rows
    that were read. Raises any other error, when no task is left that writes.
    """
    slots = slots_of(plan)

    def stage(index: int) -> StagedRows | FloodmarkError:
        try:
            rows = staged.get(index) or stage_first_load(plan, index, ledger, warehouse, stager, slots=slots)
            if isinstance(rows, FloodmarkError):
                return rows
            _report(plan, index, rows)
            on_staged(plan.tables[index].source, rows.read_rows)
            return rows
        except FloodmarkError as error:
            if concerns_one_table(error):
                return error
            raise

    contexts = [copy_context() for _ in plan.tables]
    with ThreadPoolExecutor(TABLES_AT_ONCE, thread_name_prefix="stage") as pool:
        # With the sessions of the warehouse that the caller keeps. A context runs in one thread at a time.
        results = pool.map(lambda context, index: context.run(stage, index), contexts, range(len(contexts)))
        try:
            return dict(zip((table.source for table in plan.tables), results, strict=True))
        except BaseException:
            # Wait for running tables: after an error of one, no task of another may continue to write.
            pool.shutdown(cancel_futures=True)
            raise


def _report(plan: WindowPlan, index: int, rows: StagedRows) -> None:
    table = plan.tables[index]
    if table.quiet and not rows.read_rows:
        _LOG.info("%s: no change in %s.", table.source, table.interval)
    else:
        _LOG.info("%s: %s rows read, %s staged.", table.source, rows.read_rows, rows.staged_rows)


# --------------------------------------------------------------------------------------------------------------------


def load_window(
    window_id: int,
    ledger: PostgresLedger,
    warehouse: Warehouse,
    source: Source,
    stager: Stager,
    *,
    progress: Progress | None = None,
) -> Mapping[TableName, TableCounts]:
    """Load a window and return the rows per merged table. For a window that is merged already, return its counts.

    progress: receives the progress; None for the log. Raises WindowBusyError while another load of the window is
    running, and the error about its tables where none of them can be merged.
    """
    with ledger.hold_load(window_id):
        opened = ledger.begin_load(window_id)
        if opened.state is not WindowState.PLANNED:
            _LOG.info("Window %s is already %s; there is nothing to load.", window_id, opened.state.value)
            return ledger.read_counts(window_id)
        return _WindowLoad(opened.plan, ledger, warehouse, source, stager, progress or LoggedProgress()).run()


@dataclass
class _WindowLoad:
    """One attempt at a window."""

    plan: WindowPlan
    """The tables that are left."""
    ledger: PostgresLedger
    warehouse: Warehouse
    source: Source
    stager: Stager
    progress: Progress
    staged: dict[TableName, StagedRows] = field(default_factory=dict)
    refused: dict[TableName, FloodmarkError] = field(default_factory=dict)
    read_whole: frozenset[TableName] = frozenset()
    """The tables whose read itself proves that it is complete."""
    verdicts: list[Validity] = field(default_factory=list)
    """The verdicts on the refused tables."""

    def run(self) -> Mapping[TableName, TableCounts]:
        """Stage and merge the window."""
        plan = self.plan
        _LOG.info("Window %s of %s, attempt %s, up to %s.", plan.window_id, plan.pipeline, plan.attempt, plan.to)
        self._prepare()
        with progress_reported(self.plan, self.ledger, self.warehouse, self.progress) as watch:
            self._stage(watch)
        self._record_reads()
        watch.begin_step("merging")
        try:
            counts = self._merge()
        except (ConfigError, DataQualityError, FloodmarkBugError, TableRefusedError):
            # The rows may be corrected at the source: the refused ones must not be kept for the next attempt.
            forget_first_loads(self.plan, self.ledger, self.warehouse)
            raise
        for name, rows in counts.items():
            _log_counts(name, rows)
        merged = f"all {len(counts)} tables" if len(counts) > 1 else "its table"
        is_published = self.warehouse.traits.publishes == "at_merge"
        seen = " in one transaction" if is_published else ", which no reader sees before the checks have passed"
        _LOG.info("Window %s is merged: %s%s.", plan.window_id, merged, seen)
        return counts

    def _prepare(self) -> None:
        while True:
            try:
                return self.warehouse.prepare_window(self.plan)
            except FloodmarkError as error:
                self._leave_out({self._table_of(error): error})

    def _stage(self, watch: LoadWatch) -> None:
        try:
            changed = stage_changes(self.plan, self.warehouse, self.stager)
            ends = {i: rows.read_to for i, rows in changed.items() if isinstance(rows, StagedRows) and rows.read_to}
            self.read_whole = frozenset(self.plan.tables[index].source for index in ends)
            for end in ends.values():
                self._extend(end)
            staged = stage_tables(self.plan, self.ledger, self.warehouse, self.stager, changed, on_staged=watch.end)
        except SourceBehindError:
            # Where the source itself was restored, its verdict explains more than the copy that has another log.
            verify_reads(self.plan, self.source)
            raise
        self.staged = {name: rows for name, rows in staged.items() if isinstance(rows, StagedRows)}
        if refused := {name: error for name, error in staged.items() if isinstance(error, FloodmarkError)}:
            self._leave_out(refused)

    def _extend(self, end: LogEntry) -> None:
        """Move the end of the window to what was read, so that all tables have the state of one moment of the source.

        Not in a window with a first load: chunks that an earlier attempt has staged are as old as its planned end.
        """
        if end.position > self.plan.to and not has_first_load(self.plan):
            self.plan = self.ledger.extend_window(self.plan, end)
            _LOG.info("Window %s now ends at %s, which was read.", self.plan.window_id, end.position)

    def _record_reads(self) -> None:
        snapshot = verify_reads(self.plan, self.source, self.read_whole)
        if not is_followed(self.ledger.read_database(self.plan.pipeline), snapshot):
            raise OtherDatabaseError(
                self.plan.pipeline,
                f"the connection leads to {snapshot.identity}, and the window was planned for another database.",
                "Correct the connection; nothing was merged.",
            )
        _LOG.info("The source still had all changes of the window when the read ended.")
        members = self._members()
        self.ledger.record_reads(
            self.plan,
            {name: rows.read_rows for name, rows in self.staged.items()},
            snapshot.latest_commit_at,
            snapshot.newest if isinstance(snapshot.newest, Position) else None,
            snapshot.newest_at,
            members=members,
        )
        _log_quarantined(members)

    def _members(self) -> dict[TableName, Sequence[MemberRead]]:
        """Return how members were read. The rows of a first load contain what changed before its ends."""
        members: dict[TableName, Sequence[MemberRead]] = {
            name: rows.members for name, rows in self.staged.items() if rows.members
        }
        for table in self.plan.tables:
            if table.kind is LoadKind.FIRST_LOAD and table.ends and table.source in self.staged and not table.where:
                known = {each.member: each.mark for each in table.marks}
                members[table.source] = [MemberRead(end.member, known.get(end.member), end.mark) for end in table.ends]
        return members

    def _merge(self) -> Mapping[TableName, TableCounts]:
        """Merge the tables, without those that the target refuses.

        Of the rows that a first load has read twice, one is kept, no matter which: a scan returns a row twice that
        moves while the scan runs. The move is committed after L0, so a later window has the change.
        """
        kept_once: set[TableName] = set()
        while True:
            try:
                counts = self.warehouse.merge_window(self.plan, self.staged)
            except FloodmarkError as error:
                name = self._table_of(error)
                if isinstance(error, DuplicateKeyError) and name not in kept_once and self._is_first_load(name):
                    kept_once.add(name)
                    self._keep_once(name)
                else:
                    self._leave_out({name: error})
            else:
                return counts if self.warehouse.traits.shares_ledger else self.ledger.record_merge(self.plan, counts)

    def _keep_once(self, name: TableName) -> None:
        index = self._index(name)
        if found := self.stager.find_double_key(self.plan, index):
            self._leave_out({name: _double_key(self.plan, index, *found)})
            return
        duplicates = self.warehouse.drop_duplicates(self.plan, index)
        _LOG.info("%s: %s rows were read twice, because they moved meanwhile.", name, duplicates)
        self.staged[name] = replace(self.staged[name], staged_rows=self.staged[name].staged_rows - duplicates)

    def _table_of(self, error: FloodmarkError) -> TableName:
        """Return the table that an error is about. Raises the error where it is about more than one table."""
        for table in self.plan.tables:
            if str(table.source) == error.subject and concerns_one_table(error):
                return table.source
        raise error

    def _leave_out(self, errors: Mapping[TableName, FloodmarkError]) -> None:
        """Remove refused tables from the window. Raises the error about them where no other table is left.

        Only windows of the main lane have tables that wait for each other; a load or a replay fails as a whole.
        """
        if self.plan.lane != MAIN_LANE:
            raise next(iter(errors.values()))
        verdicts = [refused_verdict(each, errors[each.source]) for each in self.plan.tables if each.source in errors]
        self.refused.update(errors)
        self.verdicts += verdicts
        # Before the window may end: the error about several tables has no details.
        for error in errors.values():
            _LOG.error("Left out of window %s: %s", self.plan.window_id, error.in_full)
        left = self.ledger.refuse_tables(self.plan, verdicts)
        if left is None:
            raise refusal(self.plan.pipeline, self.verdicts, self.refused)
        self.plan = left
        self.staged = {name: rows for name, rows in self.staged.items() if name not in errors}

    def _index(self, name: TableName) -> int:
        return next(index for index, table in enumerate(self.plan.tables) if table.source == name)

    def _is_first_load(self, name: TableName) -> bool:
        return self.plan.tables[self._index(name)].kind is LoadKind.FIRST_LOAD


def _double_key(plan: WindowPlan, index: int, key: tuple[object, ...], rows: int) -> ConfigError:
    table = plan.tables[index]
    return ConfigError(
        str(table.source),
        f"the declared key ({', '.join(table.feed.table.key)}) is not unique: {rows} rows have the same key.",
        "Declare columns that identify each row (key: [..] in pipelines.yaml).",
        "" if hides_key(table.settings, table.feed.table) else f"({', '.join(map(str, key))})",
    )


def _log_quarantined(members: Mapping[TableName, Sequence[MemberRead]]) -> None:
    """Log the messages in quarantine, each once: several tables may report the same one."""
    every = [(read.member, each) for reads in members.values() for read in reads for each in read.quarantined]
    for member, each in {(member, each.topic, each.place): (member, each) for member, each in every}.values():
        place = f"{each.place} of {each.topic}/{member}"
        _LOG.warning("Message %s is in floodmark.quarantined_messages: %s.", place, each.reason)


def _log_counts(name: TableName, rows: TableCounts) -> None:
    _LOG.info(
        "%s: %s inserted, %s updated, %s deleted, %s unchanged.",
        name,
        rows.inserted_rows,
        rows.updated_rows,
        rows.deleted_rows,
        rows.unchanged_rows,
    )
    if rows.swept_rows:
        _LOG.info("%s: %s rows that the source no longer has were swept.", name, rows.swept_rows)
    if rows.quarantined_rows:
        _LOG.warning("%s: %s rows broke a rule and are in floodmark.quarantine.", name, rows.quarantined_rows)
    if rows.warned_rows:
        _LOG.warning("%s: %s rows broke a rule that only warns; they were merged.", name, rows.warned_rows)
