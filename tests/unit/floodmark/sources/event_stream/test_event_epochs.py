"""An epoch ends with a newer event of another identifier, or with one of a lower LSN; with nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.schema import TableName
from floodmark.sources.event_stream.defaults import EPOCH_SLACK
from floodmark.sources.event_stream.epochs import (
    Epoch,
    EpochWatch,
    LoadedCommit,
    PartitionMark,
    Tail,
    TailEvent,
    are_marked,
    begin_epoch,
    epochs_of_load,
    missed_epoch,
    newest_of,
)

NOON = datetime(2026, 8, 7, 12, tzinfo=UTC)
TABLE = TableName("dbo", "Orders")


def event(lsn: int, seconds: float, guid: str = "a", partition: int = 0) -> TailEvent:
    return TailEvent(partition, (TABLE.schema, TABLE.name), guid, lsn.to_bytes(10), NOON + timedelta(seconds=seconds))


def marked(lsn: int, seconds: float) -> Epoch:
    return Epoch("a", lsn.to_bytes(10), NOON + timedelta(seconds=seconds), None, is_marked=True)


@pytest.mark.parametrize(
    ("found", "begins"),
    [
        (event(6, 1), False),
        (event(6, 1, "b"), True),
        (event(4, -1, "b"), False),
        (event(4, 1), False),
        (event(4, 11), True),
        (event(4, -11), False),
    ],
)
def test_event_after_an_epoch(found: TailEvent, begins: bool) -> None:
    watch = EpochWatch(marked(5, 0))
    assert watch.belongs(found) is not begins
    assert (watch.later is not None) is begins


@given(st.lists(st.integers(0, 20), min_size=1))
def test_any_order_and_repetition_of_the_events_of_one_epoch_begins_no_other(order: list[int]) -> None:
    watch = EpochWatch()
    for number in order:
        assert watch.belongs(event(number + 1, number))
    assert watch.known is not None
    assert watch.known.is_marked is (len(set(order)) > 1)


@given(st.lists(st.integers(0, 20), min_size=1))
def test_identifier_that_differs_from_commit_to_commit_never_counts(order: list[int]) -> None:
    watch = EpochWatch()
    for number in order:
        assert watch.belongs(event(number + 1, number, f"guid-{number}"))
    assert watch.known is not None
    assert not watch.known.is_marked


def test_events_after_the_beginning_of_an_epoch_are_in_it_whatever_their_lsn() -> None:
    watch = EpochWatch(marked(5, 0))
    assert not watch.belongs(event(1, 60))
    assert not watch.belongs(event(9, 70))
    assert watch.belongs(event(6, 50))
    assert watch.later is not None
    assert (watch.later.lsn, watch.later.begins_at) == ((9).to_bytes(10), NOON + timedelta(seconds=60))


def test_event_of_the_identifier_that_began_an_epoch_is_never_older() -> None:
    watch = EpochWatch(marked(5, 0))
    assert not watch.belongs(event(6, 60, "b"))
    next_window = EpochWatch(Epoch.parse(watch.later.to_list() if watch.later else []))
    assert next_window.belongs(event(7, 50, "b"))
    assert not next_window.belongs(event(4, 50, "a"))
    assert next_window.is_older(event(4, 50, "a"))


def test_identifier_shows_nothing_in_an_epoch_that_began_with_a_lower_lsn() -> None:
    watch = EpochWatch(marked(500, 0))
    assert not watch.belongs(event(6, 60))
    next_window = EpochWatch(watch.later)
    assert not next_window.belongs(event(400, 50))
    assert next_window.is_older(event(400, 50))


def test_epoch_of_an_earlier_ledger_has_no_identifier_of_its_own() -> None:
    text = ["b", "00000000000000000005", NOON.isoformat(), NOON.isoformat(), True]
    assert not Epoch.parse(text).is_named


@pytest.mark.parametrize(("found", "begins"), [(event(6, 11), True), (event(6, 9), False), (event(8, 11), False)])
def test_lsn_below_that_of_another_table_or_partition_begins_an_epoch(found: TailEvent, *, begins: bool) -> None:
    watch = EpochWatch(marked(5, -30), newest=newest_of([marked(7, -20), marked(4, 0)]))
    assert watch.belongs(found) is not begins
    assert (watch.later is not None and watch.later.steps_back) is begins


def test_only_a_log_that_went_back_counts_for_other_tables() -> None:
    watch = EpochWatch(marked(5, 0))
    assert not watch.belongs(event(6, 11, "b"))
    assert watch.later is not None
    assert not watch.later.steps_back
    assert missed_epoch([marked(5, 0)], [watch.later]) is None
    back = begun(60)
    assert missed_epoch([], [marked(5, 0), back, begun(50)]) == back
    assert missed_epoch([replace(marked(5, 0), begins_at=NOON)], [back]) == back
    assert missed_epoch([begun(60)], [back]) is None
    assert missed_epoch([], [begin_epoch(event(1, 0), NOON)]) is None


def begun(seconds: float) -> Epoch:
    """Return an epoch for which the log of the database went back."""
    return replace(begin_epoch(event(1, seconds), NOON + timedelta(seconds=seconds)), steps_back=True)


def test_load_begins_the_epoch_that_its_table_has_missed() -> None:
    own, missed = [event(6, 59), event(7, 61)], begun(60)
    epochs = epochs_of_load([marked(5, 0)], Tail(own).of_table(TABLE), [0, 1], missed, is_marked=False)
    assert {number: (each.lsn[-1], each.begins_at) for number, each in epochs.items()} == {
        0: (7, missed.begins_at),
        1: (0, missed.begins_at),
    }
    assert missed_epoch(epochs.values(), [missed]) is None
    assert missed_epoch(epochs_of_load([], [], [0], missed, is_marked=False).values(), [missed]) is None


def test_two_commits_with_one_identifier_may_be_in_two_partitions() -> None:
    first, second = begin_epoch(event(1, 0)), begin_epoch(event(2, 1))
    assert are_marked([first, second])
    assert not are_marked([first, replace(second, guid="b"), first, replace(first, lsn=bytes(10))])
    assert are_marked([marked(1, 0)])


def test_epoch_of_a_mark_of_an_earlier_version_has_no_flags_of_its_beginning() -> None:
    epoch = Epoch.parse(begun(60).to_list()[:5])
    assert (epoch.begins_at, epoch.is_named, epoch.steps_back) == (NOON + timedelta(seconds=60), False, False)


def test_mark_keeps_its_epoch_and_its_load() -> None:
    epoch = replace(begin_epoch(event(5, 0.5), NOON), steps_back=True)
    for each in (epoch, marked(5, 0)):
        mark = PartitionMark(7, replaced="why", epoch=each, loaded=LoadedCommit((9).to_bytes(10), NOON))
        assert PartitionMark.parse(str(mark)) == mark


def test_load_begins_with_the_newest_epoch_and_ignores_what_is_older() -> None:
    own = [event(8, -5, partition=1), event(2, 60, "b"), event(3, 61, "b")]
    tail = Tail(own)
    epochs = epochs_of_load([marked(5, 0)], tail.of_table(TABLE), [0, 1], is_marked=False)
    assert {number: (each.guid, each.lsn[-1]) for number, each in epochs.items()} == {0: ("b", 3), 1: ("b", 0)}
    assert tail.newest(epochs[0]) == own[-1]
    assert not EpochWatch(epochs[1]).belongs(own[0])
    assert epochs_of_load([], [], [0], is_marked=True) == {}


def test_newest_event_is_that_of_the_last_epoch() -> None:
    assert Tail().newest(None) is None
    assert Tail([event(7, 0), event(9, 1), event(8, 2)]).newest(None) == event(9, 1)
    assert Tail([event(7, 0), event(9, 1), event(2, 30), event(3, 31)]).newest(None) == event(3, 31)


def test_load_covers_older_commits_but_none_of_a_later_epoch() -> None:
    loaded = LoadedCommit((9).to_bytes(10), NOON)
    at = NOON + EPOCH_SLACK
    assert [loaded.covers(lsn.to_bytes(10), at) for lsn in (1, 9, 10)] == [True, True, False]
    assert not loaded.covers((1).to_bytes(10), at + timedelta(seconds=1))
