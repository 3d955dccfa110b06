"""A stream that was set up again: its tables are loaded again, and nothing else counts as that."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from change_log import ChangeLog
from emulator_process import Emulator
from floodmark.core.schema import TableName
from floodmark.core.settings import OnGap
from floodmark.core.snapshot import Verdict
from floodmark.postgres.session import WarehouseConnection
from stream_rig import COLUMNS, ORDERS, StreamRig, stream_rig
from two_streamed_tables import GROUP, OTHERS, emulated_stream


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection, tmp_path: Path) -> Iterator[StreamRig]:
    with stream_rig(emulator, database, tmp_path, on_gap=OnGap.REPAIR) as made:
        yield made


def begin_again(rig: StreamRig, *, guid: str, commits: int | None = None) -> None:
    """Let the log go on as that of a stream that was set up a minute later."""
    began_at = rig.log.began_at + timedelta(minutes=1)
    rig.log = replace(rig.log, guid=guid, began_at=began_at)
    if commits is not None:
        rig.log.commits = itertools.count(commits)


def loaded(rig: StreamRig) -> None:
    """Load the table and read two commits."""
    rig.sync()
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", "two")), *rig.change((3, "3.00", "three")))
    rig.sync()
    assert (rig.stopped(), rig.differing()) == ({}, [])


def assert_repaired(rig: StreamRig) -> None:
    """Require that the table is out of windows until it is loaded again, and then goes on."""
    assert set(rig.stopped().values()) == {Verdict.INSTANCE_REPLACED}
    assert rig.verdicts() == {"Orders": Verdict.INSTANCE_REPLACED}
    assert rig.sync().window_id is None
    assert rig.load_pending().window_id is not None
    assert (rig.stopped(), rig.differing()) == ({}, [])
    rig.stream(*rig.change((1, "7.00", "after")), *rig.change(3))
    rig.stream(*rig.change((4, "4.00", "four")))
    assert rig.sync().window_id is not None
    assert (rig.stopped(), rig.differing()) == ({}, [])
    assert rig.sync().window_id is None


def test_another_identifier_begins_an_epoch(rig: StreamRig) -> None:
    loaded(rig)
    last = rig.change((3, "5.00", "last of the old stream"))
    rig.change((1, "8.00", "lost"), 2)
    begin_again(rig, guid=str(uuid.uuid4()))
    rig.stream(*last, *rig.change((3, "6.00", "first of the new stream")))
    rig.sync()
    assert rig.query('SELECT "Note" FROM shop.orders WHERE "Id" = 3') == [("last of the old stream",)]
    assert_repaired(rig)


def test_log_that_steps_back_begins_an_epoch_that_events_of_the_old_one_do_not_undo(rig: StreamRig) -> None:
    rig.log.commits = itertools.count(1000)
    loaded(rig)
    late = rig.change((1, "5.00", "old"), (3, "5.00", "old"))
    rig.stream(*late)
    rig.sync()
    rig.change((1, "8.00", "lost"), 2)
    begin_again(rig, guid=rig.log.guid, commits=10)
    rig.stream(*rig.change((3, "6.00", "first of the new stream")))
    rig.sync()
    assert_repaired(rig)
    rig.stream(*late, *late)
    rig.sync()
    assert (rig.stopped(), rig.differing()) == ({}, [])


def test_old_events_that_come_late_or_again_begin_no_epoch(rig: StreamRig) -> None:
    rig.sync()
    first = rig.change((1, "1.00", "one"))
    second, third = rig.change((1, "2.00", "two")), rig.change((1, "3.00", "three"))
    rig.stream(*third)
    rig.sync()
    rig.stream(*second, *third, *first, *second)
    rig.sync()
    rig.stream(*rig.change((1, "4.00", "four")), *first, *second)
    rig.sync()
    assert (rig.stopped(), rig.differing()) == ({}, [])


def test_events_of_the_stream_before_come_again_after_the_load(rig: StreamRig) -> None:
    loaded(rig)
    late = rig.change((1, "5.00", "old"), (3, "5.00", "old"))
    begin_again(rig, guid=str(uuid.uuid4()), commits=50)
    rig.stream(*rig.change((3, "6.00", "first of the new stream")))
    rig.sync()
    assert_repaired(rig)
    rig.stream(*late)
    rig.sync()
    assert (rig.stopped(), rig.differing()) == ({}, [])


def turn_the_clock_back(rig: StreamRig) -> None:
    rig.log = replace(rig.log, began_at=rig.log.began_at - timedelta(minutes=2))


def test_clock_that_steps_back_after_an_epoch_has_begun_loses_no_change(rig: StreamRig) -> None:
    loaded(rig)
    begin_again(rig, guid=str(uuid.uuid4()))
    rig.stream(*rig.change((3, "6.00", "first of the new stream")))
    rig.sync()
    assert_repaired(rig)
    turn_the_clock_back(rig)
    rig.stream(*rig.change((1, "8.00", "updated")), *rig.change(2), *rig.change((5, "5.00", "inserted")))
    rig.sync()
    assert (rig.stopped(), rig.quarantined(), rig.differing()) == ({}, [], [])
    rig.reload()
    rig.stream(*rig.change((1, "9.00", "updated again")))
    rig.sync()
    assert (rig.stopped(), rig.quarantined(), rig.differing()) == ({}, [], [])


def test_event_of_which_nothing_shows_the_epoch_goes_to_quarantine(rig: StreamRig) -> None:
    rig.log.commits = itertools.count(1000)
    loaded(rig)
    begin_again(rig, guid=rig.log.guid, commits=10)
    rig.stream(*rig.change((3, "6.00", "first of the new stream")))
    rig.sync()
    assert_repaired(rig)
    turn_the_clock_back(rig)
    messages = rig.change((1, "8.00", "updated"))
    rig.stream(*messages)
    rig.sync()
    [(*_, reason, body)] = rig.quarantined()
    assert reason.startswith("the event is older than the stream in use, by its commit time")
    assert [body] == messages
    rig.reload()
    assert (rig.stopped(), rig.differing()) == ({}, [])


def test_identifiers_that_differ_from_message_to_message_are_no_epochs(rig: StreamRig) -> None:
    rig.sync()
    for key in range(1, 7):
        begin_again(rig, guid=str(uuid.uuid4()))
        rig.stream(*rig.change((key, "1.00", "one")))
        if key % 2:
            rig.sync()
            assert (rig.stopped(), rig.differing()) == ({}, [])


def test_stream_that_was_set_up_again_before_a_load_is_read_on(rig: StreamRig) -> None:
    loaded(rig)
    rig.change((1, "8.00", "lost"))
    begin_again(rig, guid=str(uuid.uuid4()), commits=1)
    rig.stream(*rig.change((2, "9.00", "new")))
    rig.reload()
    rig.stream(*rig.change((2, "9.50", "newer")))
    rig.sync()
    assert (rig.stopped(), rig.differing()) == ({}, [])


def test_events_of_another_database_do_not_give_rows_of_a_load_their_position(rig: StreamRig) -> None:
    other = ChangeLog("Elsewhere", COLUMNS, "Id", commits=itertools.count(9000))
    rig.stream(*rig.change((1, "1.00", "one")), *other.commit(({}, {"Id": "1", "Amount": None, "Note": None})))
    rig.sync()
    rig.stream(*rig.change((1, "2.00", "two")))
    rig.sync()
    assert rig.differing() == []


def with_others(rig: StreamRig) -> ChangeLog:
    """Add a table Others to the pipeline. Return its log: the same as that of the rig, with columns of its own."""
    rig.client.run("CREATE TABLE dbo.Others (Id int NOT NULL PRIMARY KEY)")
    others = replace(rig.settings.tables[0], source=OTHERS, target=TableName("shop", "others"))
    rig.settings = replace(rig.settings, tables=(*rig.settings.tables, others))
    return replace(rig.log, table="Others", columns=COLUMNS[:1])


def test_restore_that_one_table_shows_counts_for_all(rig: StreamRig) -> None:
    """The log of Others is above its old events again when the next one comes, and the identifiers are as before."""
    rig.log.commits = itertools.count(1000)
    others = with_others(rig)
    rig.sync()
    rig.stream(*rig.change((1, "1.00", "one")), *others.commit(({}, {"Id": "1"})))
    rig.stream(*others.commit(({}, {"Id": "2"})), *rig.change((2, "2.00", "lost")))
    rig.client.run("INSERT dbo.Others VALUES (1), (2)")
    rig.sync()
    assert (rig.stopped(), rig.differing()) == ({}, [])
    rig.client.run("DELETE dbo.Orders WHERE Id = 2; DELETE dbo.Others WHERE Id = 2")
    del rig.rows[2]
    begin_again(rig, guid=rig.log.guid, commits=1002)
    others = replace(others, began_at=rig.log.began_at, commits=itertools.count(1005))
    rig.client.run("INSERT dbo.Others VALUES (3)")
    rig.stream(*rig.change((3, "3.00", "three")), *others.commit(({}, {"Id": "3"})))
    rig.sync()
    assert set(rig.stopped()) & {"0", "1"}
    assert rig.verdicts() == {"Orders": Verdict.INSTANCE_REPLACED, "Others": Verdict.INSTANCE_REPLACED}
    rig.sync()
    for _ in rig.settings.tables:
        assert rig.load_pending().window_id is not None
    assert (rig.stopped(), rig.differing()) == ({}, [])
    rig.log.commits = others.commits
    rig.client.run("INSERT dbo.Others VALUES (4)")
    rig.stream(*others.commit(({}, {"Id": "4"})), *rig.change((1, "7.00", "after")))
    rig.sync()
    assert rig.verdicts() == {"Orders": Verdict.READY, "Others": Verdict.READY}
    assert rig.differing() == []


def test_two_commits_of_one_identifier_in_two_partitions_make_it_count(rig: StreamRig) -> None:
    rig.sync()
    rig.stream(*rig.change((1, "1.00", "one")), *rig.change((2, "2.00", "two")))
    rig.sync()
    rig.change((1, "8.00", "lost"))
    begin_again(rig, guid=str(uuid.uuid4()))
    rig.stream(*rig.change((3, "3.00", "three")))
    rig.sync()
    assert_repaired(rig)


@pytest.mark.parametrize("years", [0, 80])
def test_event_with_a_position_beyond_the_log_does_not_stop_what_follows(rig: StreamRig, years: int) -> None:
    """A damaged or forged event is the newest one at a load: the changes after it have lower LSNs, or earlier times."""
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", "two")))
    commit = 1 << 40
    began_at = rig.log.began_at + timedelta(days=365 * years) - timedelta(milliseconds=commit)
    beyond = replace(rig.log, table="Others", commits=itertools.count(commit), began_at=began_at)
    rig.stream(*beyond.commit(({}, {"Id": "1", "Amount": None, "Note": None})))
    rig.sync()
    rig.log = replace(rig.log, began_at=rig.log.began_at + timedelta(minutes=1))
    rig.stream(*rig.change((1, "9.00", "changed"), (3, "3.00", "three")), *rig.change(2))
    rig.sync()
    if years == 0:
        assert_repaired(rig)
    assert (rig.stopped(), rig.differing()) == ({}, [])


def test_table_that_was_removed_from_its_group_and_added_again_is_loaded_again(
    open_dir: Path, database: WarehouseConnection
) -> None:
    add, remove = (
        f"EXEC sys.sp_{verb}_event_stream_group N'{GROUP}', N'dbo.Orders'"
        for verb in ("add_object_to", "remove_object_from")
    )
    with emulated_stream(open_dir / "epochs", database) as rig:

        def sync(*statements: str) -> None:
            for each in (*statements, "EXEC emulator.run_event_stream"):
                rig.client.run(each)
            rig.sync()

        sync()
        sync("INSERT dbo.Orders VALUES (1, 1, N'one'), (2, 2, N'two')", "INSERT dbo.Others VALUES (1)")
        sync("UPDATE dbo.Orders SET Amount = 3 WHERE Id = 1", "INSERT dbo.Others VALUES (2)")
        assert (rig.stopped(), rig.differing()) == ({}, [])
        sync(
            remove,
            "DELETE dbo.Orders WHERE Id = 1",
            add,
            "UPDATE dbo.Orders SET Amount = 9 WHERE Id = 2",
            "INSERT dbo.Others VALUES (3)",
        )
        assert set(rig.stopped().values()) == {Verdict.INSTANCE_REPLACED}
        assert rig.differing() == [ORDERS]
        sync("INSERT dbo.Others VALUES (4)")
        assert rig.load_pending().window_id is not None
        assert (rig.stopped(), rig.differing()) == ({}, [])
        sync("INSERT dbo.Orders VALUES (3, 3, NULL)", "INSERT dbo.Others VALUES (5)")
        assert (rig.stopped(), rig.differing()) == ({}, [])
