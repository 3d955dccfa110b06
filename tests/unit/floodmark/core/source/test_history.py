"""A source that was restored and then written to differs from one that grew, was cleaned up, or says too little."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from floodmark.core.errors import SourceRewoundError
from floodmark.core.position import Interval
from floodmark.core.recovery import ReplayRecords, plan_replay
from floodmark.core.snapshot import SourceSnapshot, TableSnapshot, Validity, Verdict, explain_rewind
from floodmark.core.verdicts import classify, classify_read
from lsns import lsn
from source_snapshots import NOON, ORDERS, instance, settings, snapshot, state, table_seen

LATER = NOON + timedelta(hours=1)
KNOWN = state(50, watermark_at=NOON)


def seen(entry: datetime | None, low: int = 5, **other: object) -> tuple[TableSnapshot, SourceSnapshot]:
    table = table_seen(oldest=lsn(low))
    return table, replace(snapshot(table, **other), entries={lsn(50): entry})  # type: ignore[arg-type]


def classify_entry(entry: datetime | None, low: int = 5, **other: object) -> Validity:
    return classify(*seen(entry, low, **other), KNOWN)


@pytest.mark.parametrize("entry", [None, LATER, NOON - timedelta(hours=1), NOON + timedelta(milliseconds=20)])
def test_watermark_whose_entry_is_gone_or_another_one_is_ahead_of_the_source(entry: datetime | None) -> None:
    validity = classify_entry(entry)
    assert validity.verdict is Verdict.AHEAD_OF_SOURCE
    assert "has been restored, or failed over, to an older state and has written on since" in validity.cause
    assert f"at {lsn(50)}" in validity.cause
    assert f"committed at {NOON}" in validity.cause
    assert (f"now has another one there, committed at {entry}" if entry else "now has nothing there") in validity.cause
    assert "floodmark reload PIPELINE dbo.Orders" in validity.hint


@pytest.mark.parametrize("ticks", range(-2, 3))
def test_rounding_of_datetime_is_no_other_time(ticks: int) -> None:
    assert classify_entry(NOON + ticks * timedelta(seconds=1) / 300).verdict is Verdict.READY


@pytest.mark.parametrize(("low", "verdict"), [(49, Verdict.AHEAD_OF_SOURCE), (50, Verdict.READY), (51, Verdict.READY)])
def test_missing_entry_counts_only_above_the_low_end(low: int, verdict: Verdict) -> None:
    assert classify_entry(None, low).verdict is verdict


def test_nothing_is_said_where_the_login_may_read_no_times() -> None:
    assert classify_entry(None, newest_at=None).verdict is Verdict.READY


def test_nothing_is_said_of_a_watermark_without_a_time() -> None:
    for entry in (None, LATER):
        assert classify(*seen(entry), state(50)).verdict is Verdict.READY


def test_nothing_is_said_where_nobody_asked() -> None:
    table = table_seen()
    assert classify(table, snapshot(table), KNOWN).verdict is Verdict.READY


def test_expired_watermark_stays_expired() -> None:
    assert classify_entry(None, 52).verdict is Verdict.EXPIRED


@pytest.mark.parametrize("watermark", [10, 50])
def test_second_check_compares_what_was_read_with_the_end_of_its_window(watermark: int) -> None:
    for entry, verdict in ((NOON, Verdict.READY), (None, Verdict.AHEAD_OF_SOURCE), (LATER, Verdict.AHEAD_OF_SOURCE)):
        assert classify_read(*seen(entry), instance(), lsn(watermark), to=lsn(50), to_at=NOON).verdict is verdict


def test_what_a_restored_source_wrote_at_old_positions_is_not_replayed() -> None:
    _, source = seen(LATER)
    with pytest.raises(SourceRewoundError, match="has written on since"):
        plan_replay(settings(ORDERS), source, {ORDERS: KNOWN}, Interval(lsn(10), lsn(40)), ReplayRecords())


def test_window_beyond_the_end_of_a_restored_log_does_not_claim_that_it_was_written_on() -> None:
    _, source = seen(None, newest=40)
    said = explain_rewind(lsn(50), NOON, lsn(5), source)
    assert said is not None
    assert "to an older state: at" in said
    assert "written on" not in said


@dataclass(frozen=True)
class Log:
    """Entries of a log, as steps from the one before: in position, and in ticks of datetime."""

    positions: list[int]
    times: list[datetime]

    def grow(self, steps: list[int], rests: list[int]) -> Log:
        positions, times = list(self.positions), list(self.times)
        for step, rest in zip(steps, rests, strict=False):
            positions.append(positions[-1] + step)
            times.append(times[-1] + timedelta(seconds=rest) / 300)
        return Log(positions, times)

    def restore(self, count: int, after: datetime) -> Log:
        """The first ``count`` entries, and one that was written after the restore, which was after ``after``."""
        positions, times = self.positions[:count], self.times[:count]
        return Log([*positions, positions[-1] + 1], [*times, after + timedelta(seconds=1)])

    def show(self, watermark: int, low: int) -> tuple[TableSnapshot, SourceSnapshot]:
        """Cleaned up below the entry ``low``."""
        there = dict(zip(self.positions[low:], self.times[low:], strict=True))
        table = table_seen(oldest=lsn(self.positions[low]))
        newest = snapshot(table, newest=self.positions[-1], newest_at=self.times[-1])
        return table, replace(newest, entries={lsn(watermark): there.get(watermark)})


START = Log([10], [NOON])
steps = st.lists(st.integers(1, 3), max_size=6)
rests = st.lists(st.integers(0, 1000), min_size=6, max_size=6)


@given(steps, rests, steps, rests, st.data())
def test_log_that_only_grows_and_is_cleaned_up_is_never_called_rewound(
    before: list[int], times: list[int], after: list[int], more: list[int], data: st.DataObject
) -> None:
    read = START.grow(before, times)
    watermark, at = read.positions[-1], read.times[-1]
    grown = read.grow(after, more)
    low = data.draw(st.integers(0, len(grown.positions) - 1))
    verdict = classify(*grown.show(watermark, low), state(watermark, watermark_at=at)).verdict
    assert verdict is not Verdict.AHEAD_OF_SOURCE


@given(steps.filter(bool), rests, steps, rests, st.data())
def test_log_that_was_taken_back_below_the_watermark_is_never_read_on(
    before: list[int], times: list[int], after: list[int], more: list[int], data: st.DataObject
) -> None:
    """However far it has grown since, and whatever was cleaned up."""
    read = START.grow(before, times)
    watermark, at = read.positions[-1], read.times[-1]
    kept = data.draw(st.integers(1, len(read.positions) - 1))
    now = read.restore(kept, at).grow(after, more)
    low = data.draw(st.integers(0, len(now.positions) - 1))
    # The one case in which nothing can be said: cleanup has come to the very next position.
    assume(now.positions[low] != watermark + 1)
    verdict = classify(*now.show(watermark, low), state(watermark, watermark_at=at)).verdict
    expired = now.positions[low] > watermark
    assert verdict is (Verdict.EXPIRED if expired else Verdict.AHEAD_OF_SOURCE)
