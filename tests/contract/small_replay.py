"""Replays of a source in memory: its log's times and counts, runs and loads of its pipeline, and a whole replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from small_source import NOON, NoChecks, SmallSource, SmallStager, settings
from warehouse_shop import ORDERS, PIPELINE, Shop

from floodmark.core.position import Interval
from floodmark.core.recovery import LocalSpan, MappedTimes
from floodmark.core.schema import TableName
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.sync.finish import advance_window, check_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.ports import Quality, Warehouse
from floodmark.sync.records import DriftCheck
from floodmark.sync.repair import LoadPlanner
from floodmark.sync.replay import Replay
from floodmark.sync.window import OpenResult
from lsns import lsn, number_of


@dataclass
class SmallLog:
    """``ReplaySource`` of a ``SmallSource``, whose clock is UTC; a position is a second."""

    source: SmallSource

    def read_local_time(self, at: datetime) -> LocalSpan:
        local = at.astimezone(UTC).replace(tzinfo=None)
        return LocalSpan(local, local)

    def map_times(self, from_at: datetime, to_at: datetime) -> MappedTimes:
        positions = range(self.source.oldest, self.source.position + 1)
        times = {position: NOON + timedelta(seconds=position) for position in positions}
        first = [position for position, at in times.items() if at >= from_at]
        last = [position for position, at in times.items() if at <= to_at]
        return MappedTimes(
            lsn(min(first)) if first else None,
            lsn(max(last)) if last else None,
            any(at < from_at for at in times.values()),
            min(times.values()),
            max(times.values()),
        )

    def count_changes(self, intervals: Mapping[str, Interval], limit: int = 0) -> Mapping[str, int]:
        counts = {n: sum(lsn(row.lsn) in interval for row in self.source.log) for n, interval in intervals.items()}
        return {name: min(rows, limit) if limit else rows for name, rows in counts.items()}


def between(after: int, to: int) -> Interval:
    return Interval(lsn(after), lsn(to))


def run_replay(
    shop: Shop,
    source: SmallSource,
    interval: Interval,
    *,
    ledger: PostgresLedger | None = None,
    warehouse: Warehouse | None = None,
    quality: Quality | None = None,
    **chosen: Any,
) -> OpenResult:
    """Replay as a run of a backfill does. ledger, warehouse: in the place of the shop's. quality: of checks that find
    nothing.
    """
    ledger, warehouse = ledger or shop.ledger, warehouse or shop.warehouse
    opened = Replay(settings(**chosen), source, SmallLog(source), ledger, warehouse).open(interval)
    if opened.window_id is not None:
        load_window(opened.window_id, ledger, warehouse, source, SmallStager(shop, source))
        check_window(opened.window_id, ledger, quality or NoChecks())
        advance_window(opened.window_id, ledger, warehouse)
    return opened


@dataclass
class Pipeline:
    """A source in memory and its target."""

    shop: Shop
    source: SmallSource

    def run(self, **chosen: Any) -> None:
        """A scheduled run."""
        self.finish(open_window(settings(**chosen), self.source, self.shop.ledger))

    def reload(self, **chosen: Any) -> None:
        """A load of the whole table."""
        self.finish(self.load_planner(**chosen).open_reload(ORDERS))

    def load_planner(self, **chosen: Any) -> LoadPlanner:
        return LoadPlanner(settings(**chosen), self.source, self.shop.ledger, self.shop.warehouse)

    def finish(self, opened: OpenResult) -> None:
        if opened.window_id is not None:
            stager = SmallStager(self.shop, self.source)
            load_window(opened.window_id, self.shop.ledger, self.shop.warehouse, self.source, stager)
            check_window(opened.window_id, self.shop.ledger, NoChecks())
            advance_window(opened.window_id, self.shop.ledger, self.shop.warehouse)

    def open_replay(self, after: int, to: int, **chosen: Any) -> OpenResult:
        """Its first step."""
        return self.planner(**chosen).open(between(after, to))

    def planner(
        self,
        log: SmallLog | None = None,
        drift: DriftCheck | None = None,
        only: Sequence[TableName] = (),
        **chosen: Any,
    ) -> Replay:
        log, (ledger, warehouse) = log or SmallLog(self.source), (self.shop.ledger, self.shop.warehouse)
        return Replay(settings(**chosen), self.source, log, ledger, warehouse, drift=drift, only=only)

    def replay(self, after: int, to: int, **other: Any) -> OpenResult:
        return run_replay(self.shop, self.source, between(after, to), **other)

    def target(self) -> dict[int, Decimal]:
        return {key: row[0] for key, row in self.shop.target().items()}

    def equal(self) -> bool:
        return self.target() == {key: Decimal(amount) for key, amount in self.source.rows.items()}

    def watermark(self) -> int:
        state = self.shop.ledger.read_tables(PIPELINE)[ORDERS]
        assert state.watermark is not None
        return number_of(state.watermark)
