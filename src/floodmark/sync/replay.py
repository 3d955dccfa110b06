"""The replay of an interval: find it, count its changes, and open its window on its own lane.

Then a replay is a window like any other: the same steps load, check and finish it, but no watermark moves at its end.
Two replays of one interval share one window: the second finishes what the first has left. Where the plan no longer
applies, the window is given up and planned again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from floodmark.core.errors import CdcNotEnabledError, InstanceReplacedError, SourceRewoundError, WindowExpiredError
from floodmark.core.plan import TablePlan, WindowPlan, WindowState, is_load_lane, replay_lane
from floodmark.core.planning import known_positions, pinned_feeds
from floodmark.core.position import Interval
from floodmark.core.recovery import (
    LocalSpan,
    MappedTimes,
    NoInterval,
    ReplayPlan,
    ReplayRecords,
    covering_times,
    explain_stale,
    interval_of,
    plan_replay,
)
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings
from floodmark.sync.ports import Source
from floodmark.sync.records import DriftCheck, NoDriftCheck, OpenedWindow
from floodmark.sync.window import OpenResult, require_origin, retry_on_conflict, verify_reads

if TYPE_CHECKING:
    from floodmark.postgres.ledger.ledger import PostgresLedger
    from floodmark.sync.ports import Warehouse

_LOG = logging.getLogger(__name__)


_GONE = (WindowExpiredError, InstanceReplacedError, SourceRewoundError, CdcNotEnabledError)
"""After these errors an unfinished plan can never be read again."""


class ReplaySource(Protocol):
    """The port of a replay to the source, in addition to a snapshot. Every method raises from ``core.errors``."""

    def read_local_time(self, at: datetime) -> LocalSpan:
        """Return the time on the source's clock at a moment with a time zone."""

    def map_times(self, from_at: datetime, to_at: datetime) -> MappedTimes:
        """Map two times of the source's clock to positions of its log."""

    def count_changes(self, intervals: Mapping[str, Interval], limit: int = 0) -> Mapping[str, int]:
        """Count the change rows by capture instance, each in its interval, and no further than a limit other than 0."""


@dataclass(frozen=True, slots=True)
class ReplayCount:
    """The number of change rows that a replay of one table would read."""

    table: TableName
    interval: Interval
    rows: int


class Replay:
    """The replays of one pipeline. only: of these tables; none for all."""

    def __init__(
        self,
        settings: PipelineSettings,
        source: Source,
        log: ReplaySource,
        ledger: PostgresLedger,
        warehouse: Warehouse,
        *,
        drift: DriftCheck | None = None,
        only: Sequence[TableName] = (),
    ) -> None:
        chosen = tuple(table for table in settings.tables if not only or table.source in only)
        self._settings = replace(settings, tables=chosen)
        self._only = tuple(sorted(only))
        self._source = source
        self._log = log
        self._ledger = ledger
        self._warehouse = warehouse
        self._drift = drift or NoDriftCheck()

    def find_moments(self, begin: datetime, end: datetime) -> Interval | NoInterval:
        """Return the interval between two moments with a time zone. Raises the errors of ``find_times``."""
        spans = self._log.read_local_time(begin), self._log.read_local_time(end)
        return self.find_times(*covering_times(*spans))

    def find_times(self, from_at: datetime, to_at: datetime) -> Interval | NoInterval:
        """Return the interval between two times of the source's own clock, both inclusive. Raises WindowExpiredError,
        ConfigError."""
        from_at, to_at = covering_times(LocalSpan(from_at, from_at), LocalSpan(to_at, to_at))
        found = interval_of(self._settings.name, from_at, to_at, self._log.map_times(from_at, to_at))
        if isinstance(found, Interval):
            _LOG.info("%s to %s of the source's clock is %s.", from_at, to_at, found)
        return found

    def count(self, interval: Interval) -> tuple[ReplayCount, ...]:
        """Count the change rows of an interval, for a dry run. Raises the errors of ``open``."""
        self._ledger.ensure_schema()
        plan = self._plan(interval)
        return tuple(
            ReplayCount(table.source, table.interval, rows)
            for table, rows in self._counted(plan)
            if table.interval is not None
        )

    def open(self, interval: Interval) -> OpenResult:
        """Open the window of a replay, or return the unfinished one.

        Where there is nothing to merge again, the result has no window_id, and its reason says why. Raises the error of
        the gravest verdict; WindowExpiredError for an interval that begins before a validity interval.
        """
        self._ledger.ensure_schema()
        lane = replay_lane(interval, self._only)
        return retry_on_conflict(lambda: self._open(interval, lane))

    def _open(self, interval: Interval, lane: str) -> OpenResult:
        unfinished = self._ledger.unfinished_window(self._settings.name, lane)
        if unfinished is not None and unfinished.is_refused:
            self._drop_refused(unfinished.plan)
            unfinished = None
        if unfinished is not None and unfinished.state is not WindowState.PLANNED:
            return self._go_on(unfinished)
        try:
            plan = self._plan(interval)
        except _GONE as error:
            if unfinished is not None:
                self._give_up(unfinished.plan, str(error))
            raise
        if unfinished is not None:
            stale = explain_stale(unfinished.plan, plan)
            if stale is None:
                return self._go_on(unfinished)
            self._give_up(unfinished.plan, stale)
        return self._open_new(plan, lane)

    def _open_new(self, plan: ReplayPlan, lane: str) -> OpenResult:
        # Whether there is any: the load reads them all, and must not be the second to do so.
        tables = [replace(table, quiet=rows == 0) for table, rows in self._counted(plan, limit=1)]
        if all(table.quiet for table in tables):
            reason = " | ".join((f"no table has a change to replay in {plan.interval}.", *plan.left_out))
            _LOG.info("Nothing to replay: %s", reason)
            return OpenResult(None, reason)
        opened = self._ledger.open_window(self._settings.name, plan.to, tables, lane=lane)
        _LOG.info("Window %s opened: a replay of %s; no watermark moves.", opened.window_id, plan.interval)
        return OpenResult(opened.window_id, "a replay", WindowState.PLANNED, plan.to, plan.left_out)

    def _go_on(self, unfinished: OpenedWindow) -> OpenResult:
        plan, state = unfinished.plan, unfinished.state
        reason = f"window {plan.window_id}, a replay of the same interval, is unfinished: {state.value}."
        _LOG.info("%s This run finishes it.", reason)
        for table in plan.tables:
            _LOG.info("%s: %s, as it was planned.", table.source, table.interval)
        if state is WindowState.PLANNED:
            self._ledger.replace_rules(plan.window_id, {table.source: table.rules for table in self._settings.tables})
        return OpenResult(plan.window_id, reason, state, plan.to)

    def _give_up(self, window: WindowPlan, why: str) -> None:
        """Give up a window of which nothing was merged. A running load of the window detects this."""
        _LOG.warning("Window %s, a replay of the same interval, was given up. %s", window.window_id, why)
        self._warehouse.drop_staging(window.window_id)
        self._ledger.leave_out(window.window_id, [table.source for table in window.tables])

    def _drop_refused(self, window: WindowPlan) -> None:
        _LOG.warning("Window %s, a replay of the same interval, was given up: its checks refused it.", window.window_id)
        self._warehouse.drop_staging(window.window_id)
        self._ledger.drop_merged(window.window_id)

    def _plan(self, interval: Interval) -> ReplayPlan:
        settings = self._settings
        left_out = {
            table.source: "it is being reloaded."
            for opened in self._ledger.list_unfinished(settings.name)
            if is_load_lane(opened.plan.lane)
            for table in opened.plan.tables
        }
        # The order matters: a load that ends in between moves the watermark, and the window is refused.
        states = self._ledger.read_tables(settings.name)
        whole_loads = self._ledger.list_whole_loads(settings.name)
        forgotten = self._ledger.list_forgotten(settings.name)
        net_ends = self._ledger.list_server_net_ends(settings.name, interval.to)
        next_begins = self._ledger.list_next_begins(settings.name, interval.to)
        snapshot = self._source.read_snapshot(settings.sources, pinned_feeds(settings, states), known_positions(states))
        require_origin(settings, snapshot, states, self._ledger)
        examined = self._drift.examine(settings, snapshot, states)
        snapshot = examined.snapshot
        left_out |= dict.fromkeys(examined.holds, "it is held because of a schema drift.")
        left_out = {table: why for table, why in left_out.items() if table in settings.sources}
        records = ReplayRecords(left_out, whole_loads, net_ends, forgotten, next_begins)
        plan = plan_replay(settings, snapshot, states, interval, records)
        for line in plan.left_out:
            _LOG.warning("%s", line)
        return plan

    def _counted(self, plan: ReplayPlan, limit: int = 0) -> list[tuple[TablePlan, int]]:
        """Return the change rows of each table, counted up to a limit other than 0.

        Raises where cleanup deleted changes before they were counted.
        """
        if not plan.tables:
            return []
        intervals = {table.feed.identity.name: table.interval for table in plan.tables if table.interval}
        counts = self._log.count_changes(intervals, limit)
        verify_reads(WindowPlan(0, self._settings.name, plan.to, plan.tables), self._source)
        counted = [(table, counts[table.feed.identity.name]) for table in plan.tables]
        for table, rows in counted:
            found = f"{rows} change rows" if rows != limit or not limit else "changes"
            _LOG.info("%s: %s in %s.", table.source, found, table.interval)
        return counted
