"""Replays of a source in memory: its log's times and counts, and a whole replay as a run does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from small_source import NOON, NoChecks, SmallSource, SmallStager, settings
from warehouse_shop import Shop, lsn

from floodmark.core.interval import Interval
from floodmark.core.replay import LocalSpan, MappedTimes
from floodmark.sync.advance import advance_window
from floodmark.sync.check import check_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import OpenResult
from floodmark.sync.replay import Replay


@dataclass
class SmallLog:
    """``ReplaySource`` of a ``SmallSource``, whose clock is UTC; a position is a second."""

    source: SmallSource

    def read_local_time(self, at: datetime) -> LocalSpan:
        local = at.astimezone(UTC).replace(tzinfo=None)
        return LocalSpan(local, local)

    def map_times(self, from_at: datetime, to_at: datetime) -> MappedTimes:
        positions = range(self.source.min_lsn, self.source.position + 1)
        times = {position: NOON + timedelta(seconds=position) for position in positions}
        first = [position for position, at in times.items() if at >= from_at]
        last = [position for position, at in times.items() if at <= to_at]
        return MappedTimes(
            lsn(min(first)) if first else None,
            lsn(max(last)) if last else None,
            any(at < from_at for at in times.values()),
            min(times.values()),
        )

    def count_changes(self, intervals: Mapping[str, Interval]) -> Mapping[str, int]:
        return {
            name: sum(lsn(row.lsn) in interval for row in self.source.log) for name, interval in intervals.items()
        }  # fmt: skip


def between(after: int, to: int) -> Interval:
    return Interval(lsn(after), lsn(to))


def run_replay(
    shop: Shop, source: SmallSource, interval: Interval, *, ledger: Any = None, warehouse: Any = None, **chosen: Any
) -> OpenResult:
    """As a run of a backfill does it. ledger, warehouse: in the place of the shop's."""
    ledger, warehouse = ledger or shop.ledger, warehouse or shop.warehouse
    opened = Replay(settings(**chosen), source, SmallLog(source), ledger).open(interval)
    if opened.window_id is not None:
        load_window(opened.window_id, ledger, warehouse, source, SmallStager(shop, source))
        check_window(opened.window_id, ledger, NoChecks())
        advance_window(opened.window_id, ledger, warehouse)
    return opened
