"""The second step of a run: bring the window's rows to staging, and merge them in one transaction.

It may be killed at any point and run again: nothing is visible before the merge, and the merge happens once. A table
that staging or the target refuses leaves the window, with the verdict ``refused``; the others are merged.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from floodmark.core.errors import (
    ConfigError,
    DataQualityError,
    DuplicateKeyError,
    FloodmarkBugError,
    FloodmarkError,
    OtherDatabaseError,
    SourceBehindError,
    TableRefusedError,
)
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.source.history import LogEntry
from floodmark.core.source.snapshot import Validity
from floodmark.core.window.lane import MAIN_LANE
from floodmark.core.window.members import MemberRead
from floodmark.core.window.plan import LoadKind, TableCounts, WindowPlan, WindowState
from floodmark.sync.ports.ledger import Ledger
from floodmark.sync.ports.progress import LoggedProgress, Progress
from floodmark.sync.ports.source import Source
from floodmark.sync.ports.stager import StagedRows, Stager
from floodmark.sync.ports.warehouse import Warehouse
from floodmark.sync.run.first_load import forget_first_loads
from floodmark.sync.run.load_progress import LoadWatch, progress_reported
from floodmark.sync.run.refusals import concerns_one_table, refusal, refused_verdict
from floodmark.sync.run.stage import stage_cut, stage_tables
from floodmark.sync.window.origin import is_followed
from floodmark.sync.window.verify_reads import verify_reads

_LOG = logging.getLogger(__name__)


def load_window(
    window_id: int,
    ledger: Ledger,
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
    ledger: Ledger
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
        _LOG.info("Window %s of %s, attempt %s, up to %s.", plan.window_id, plan.pipeline, plan.attempt, plan.to_lsn)
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
        _LOG.info("Window %s is merged: %s in one transaction.", plan.window_id, merged)
        return counts

    def _prepare(self) -> None:
        while True:
            try:
                return self.warehouse.prepare_window(self.plan)
            except FloodmarkError as error:
                self._leave_out({self._table_of(error): error})

    def _stage(self, watch: LoadWatch) -> None:
        try:
            cut = stage_cut(self.plan, self.warehouse, self.stager)
            if cut is not None:
                self.read_whole = frozenset(self.plan.tables[index].source for index in cut.tables)
                self._extend(cut.end)
            done = cut.tables if cut else {}
            staged = stage_tables(self.plan, self.ledger, self.warehouse, self.stager, done, on_staged=watch.end)
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
        has_first_load = any(table.kind is LoadKind.FIRST_LOAD for table in self.plan.tables)
        if end.lsn > self.plan.to_lsn and not has_first_load:
            self.plan = self.ledger.extend_window(self.plan, end)
            _LOG.info("Window %s now ends at %s, which was read.", self.plan.window_id, end.lsn)

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
            snapshot.max_lsn if isinstance(snapshot.max_lsn, Position) else None,
            snapshot.max_lsn_at,
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
        f"({', '.join(map(str, key))})",
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
