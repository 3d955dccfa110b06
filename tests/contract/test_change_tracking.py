"""A pipeline over SQL Server Change Tracking ends with the rows of its tables, and says so where it cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import psycopg
import pytest

from emulator_process import Emulator
from floodmark.core.errors import FloodmarkError, InstanceReplacedError, TableRefusedError, WindowExpiredError
from floodmark.core.plan import LoadChunk, LoadKind, WindowPlan
from floodmark.core.position import Version
from floodmark.core.settings import OnGap
from floodmark.core.snapshot import LogEntry, Verdict
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.ports import StagedPart, StagingSink
from floodmark.sync.window import OpenResult
from in_process_stager import InProcessStager
from tracking_rig import TrackingRig, tracked_tables, tracking_rig

TABLES = (
    "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount decimal(9,2), Note nvarchar(max))",
    "ALTER TABLE dbo.Orders ENABLE CHANGE_TRACKING",
    "CREATE TABLE dbo.Lines (A int NOT NULL, B bigint NOT NULL, V nvarchar(20), PRIMARY KEY (A, B))",
    "ALTER TABLE dbo.Lines ENABLE CHANGE_TRACKING WITH (TRACK_COLUMNS_UPDATED = ON)",
    "INSERT dbo.Orders VALUES (1, 1.5, N'one'), (2, 2.5, N'two'), (3, 3.5, NULL)",
    "INSERT dbo.Lines VALUES (1, 1, N'é'), (1, 2, N'🌊')",
)


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[TrackingRig]:
    with tracking_rig(emulator, database, tracked_tables("Orders", "Lines"), TABLES) as made:
        yield made


def test_first_load_and_windows_end_with_the_rows_of_the_tables(rig: TrackingRig) -> None:
    rig.sync()
    assert rig.differing() == []
    assert rig.watermark() == Version.of(2)
    rig.run(
        "UPDATE dbo.Orders SET Amount = 9 WHERE Id = 1",
        "DELETE dbo.Orders WHERE Id = 2",
        "INSERT dbo.Orders VALUES (4, 4, N'four')",
        "INSERT dbo.Orders VALUES (5, 5, NULL)",
        "DELETE dbo.Orders WHERE Id = 5",
        "DELETE dbo.Orders WHERE Id = 3",
        "INSERT dbo.Orders VALUES (3, 33, N'again')",
        "UPDATE dbo.Lines SET B = 7 WHERE B = 2",
    )
    rig.sync()
    assert rig.differing() == []
    assert rig.watermark() == rig.watermark("Lines") == Version.of(10)
    deleted = rig.rows('SELECT "Id", "Amount", "Note" FROM shop.orders WHERE __deleted ORDER BY 1')
    assert deleted == [(2, 2.5, "two"), (5, None, None)]
    assert rig.sync().window_id is None


def test_window_is_one_moment_of_all_tables_and_ends_there(rig: TrackingRig) -> None:
    rig.sync()
    rig.run("UPDATE dbo.Orders SET Amount = 9 WHERE Id = 1")
    opened = rig.open()
    assert opened.to == Version.of(3)
    # Lines had no change when the window was planned.
    rig.run("UPDATE dbo.Orders SET Amount = 10 WHERE Id = 1", "DELETE dbo.Lines WHERE B = 1")
    rig.finish(opened)
    assert rig.watermark() == rig.watermark("Lines") == Version.of(5)
    assert rig.differing() == []
    assert rig.sync().window_id is None


def test_verification_leaves_out_what_was_changed_after_the_watermark_and_nothing_else(rig: TrackingRig) -> None:
    rig.sync()
    rig.run("UPDATE dbo.Orders SET Amount = 9 WHERE Id = 1", "INSERT dbo.Orders VALUES (7, 7, NULL)")
    rig.run("DELETE dbo.Lines WHERE B = 1")
    assert rig.differing() == []
    rig.change_warehouse('UPDATE shop.orders SET "Amount" = 0 WHERE "Id" <> 1')
    assert [each.name for each in rig.differing()] == ["Orders"]


def test_verification_takes_a_column_that_the_target_lacks_for_nulls(rig: TrackingRig) -> None:
    rig.sync()
    rig.run("ALTER TABLE dbo.Orders ADD Later int NULL")
    assert rig.differing() == []
    rig.run("ALTER TABLE dbo.Orders ADD Filled int NOT NULL DEFAULT 7 WITH VALUES")
    assert [each.name for each in rig.differing()] == ["Orders"]


def test_commits_between_two_tables_of_a_window_belong_to_the_next_window(rig: TrackingRig) -> None:
    rig.sync()
    rig.run("UPDATE dbo.Orders SET Amount = 9 WHERE Id = 1", "UPDATE dbo.Lines SET V = N'x' WHERE B = 1")
    opened = rig.open()

    def write_between() -> None:
        rig.run("BEGIN TRAN; DELETE dbo.Orders WHERE Id = 1; DELETE dbo.Lines WHERE B = 1; COMMIT")

    rig.finish(opened, before_table={1: write_between})
    assert rig.rows('SELECT count(*) FROM shop.orders WHERE NOT __deleted AND "Id" = 1') == [(1,)]
    assert rig.rows('SELECT "V" FROM shop.lines WHERE NOT __deleted AND "B" = 1') == [("x",)]
    assert rig.watermark() == Version.of(4)
    rig.sync()
    assert rig.differing() == []


def test_without_snapshot_isolation_rows_are_read_as_they_are_and_the_end_stays_as_planned(
    rig: TrackingRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.sync()
    rig.run(f"ALTER DATABASE {rig.at.database} SET ALLOW_SNAPSHOT_ISOLATION OFF")
    rig.run("UPDATE dbo.Orders SET Amount = 9 WHERE Id = 1", "UPDATE dbo.Lines SET V = N'x' WHERE B = 1")
    opened = rig.open()
    rig.run("UPDATE dbo.Orders SET Amount = 10 WHERE Id = 1", "INSERT dbo.Orders VALUES (7, 7, NULL)")
    rig.finish(opened)
    assert "Snapshot isolation is not allowed" in caplog.text
    assert rig.watermark() == Version.of(4)
    assert rig.differing() == []
    rig.sync()
    assert rig.watermark() == Version.of(6)
    assert rig.differing() == []


def test_tables_without_a_change_at_the_planned_end_are_read_when_a_load_has_moved_it_and_died(
    rig: TrackingRig,
) -> None:
    rig.sync()
    rig.run("UPDATE dbo.Orders SET Amount = 9 WHERE Id = 1")
    opened = rig.open()
    assert opened.window_id is not None
    assert [table.quiet for table in rig.ledger.read_window(opened.window_id).plan.tables] == [False, True]
    rig.run("UPDATE dbo.Lines SET V = N'new' WHERE B = 1")
    # The first load of the window reads at one moment, and ends before it merges.
    rig.ledger.extend_window(rig.ledger.begin_load(opened.window_id).plan, LogEntry(Version.of(4), None))
    rig.run(f"ALTER DATABASE {rig.at.database} SET ALLOW_SNAPSHOT_ISOLATION OFF")
    rig.finish(opened)
    assert rig.watermark("Lines") == Version.of(4)
    assert rig.differing() == []


def test_cleanup_during_a_read_at_one_moment_loses_nothing(rig: TrackingRig) -> None:
    rig.sync()
    rig.run("UPDATE dbo.Orders SET Amount = 9 WHERE Id = 1")
    opened = rig.open()
    rig.finish(opened, after_read=rig.clean_up)
    assert rig.differing() == []
    assert rig.sync().window_id is None


def test_cleanup_before_a_read_is_found_by_the_read(rig: TrackingRig) -> None:
    rig.sync()
    rig.run("UPDATE dbo.Orders SET Amount = 9 WHERE Id = 1", "UPDATE dbo.Lines SET V = N'x' WHERE B = 1")
    opened = rig.open()
    rig.clean_up()
    with pytest.raises(TableRefusedError):
        rig.finish(opened)
    assert rig.watermark() == Version.of(2)
    with pytest.raises(WindowExpiredError, match="have been cleaned up"):
        rig.sync()


def test_truncated_table_is_replaced_although_its_version_is_valid(rig: TrackingRig) -> None:
    rig.sync()
    rig.run("TRUNCATE TABLE dbo.Orders", "UPDATE dbo.Lines SET V = N'x' WHERE B = 1")
    assert rig.verdicts() == {"Orders": Verdict.INSTANCE_REPLACED, "Lines": Verdict.READY}
    rig.sync()
    assert rig.rows('SELECT "V" FROM shop.lines WHERE "B" = 1') == [("x",)]
    with pytest.raises(InstanceReplacedError, match="the table was truncated, or its change tracking was switched off"):
        rig.sync()


@pytest.mark.parametrize(
    ("statements", "verdict", "words"),
    [
        (
            ("ALTER TABLE dbo.Orders DISABLE CHANGE_TRACKING", "ALTER TABLE dbo.Orders ENABLE CHANGE_TRACKING"),
            Verdict.INSTANCE_REPLACED,
            "what happened before that is not in the changes",
        ),
        (("ALTER TABLE dbo.Orders DISABLE CHANGE_TRACKING",), Verdict.INSTANCE_MISSING, "not enabled for the table"),
        (
            ("DROP TABLE dbo.Orders", TABLES[0], "ALTER TABLE dbo.Orders ENABLE CHANGE_TRACKING"),
            Verdict.INSTANCE_REPLACED,
            "dropped and created again",
        ),
        (("DROP TABLE dbo.Orders",), Verdict.INSTANCE_MISSING, "there is no such table"),
    ],
)
def test_table_whose_history_ends_has_a_verdict(
    rig: TrackingRig, statements: tuple[str, ...], verdict: Verdict, words: str
) -> None:
    rig.sync()
    # The current version moves, as it does in a database that is used.
    rig.run("UPDATE dbo.Lines SET V = N'x' WHERE B = 1", *statements)
    (validity,) = [each for each in rig.classify() if each.table.name == "Orders"]
    assert validity.verdict is verdict
    assert words in validity.cause
    assert "capture" not in str(validity)


def test_database_that_tracks_nothing_says_so(rig: TrackingRig) -> None:
    rig.sync()
    rig.run(
        "ALTER TABLE dbo.Orders DISABLE CHANGE_TRACKING",
        "ALTER TABLE dbo.Lines DISABLE CHANGE_TRACKING",
        f"ALTER DATABASE {rig.at.database} SET CHANGE_TRACKING = OFF",
    )
    assert set(rig.verdicts().values()) == {Verdict.INSTANCE_MISSING}
    with pytest.raises(FloodmarkError, match=f"change tracking is not enabled in database {rig.at.database}"):
        rig.sync()


def test_watermark_that_equals_the_oldest_valid_version_is_valid_and_one_below_is_expired(rig: TrackingRig) -> None:
    rig.sync()
    rig.run("UPDATE dbo.Orders SET Amount = 9 WHERE Id = 1", f"EXEC emulator.advance_clock {3 * 86_400}")
    rig.run("UPDATE dbo.Orders SET Amount = 8 WHERE Id = 1", "EXEC sys.sp_flush_CT_internal_table_on_demand")
    (validity, _) = rig.classify(watermark=3)
    assert (validity.verdict, validity.oldest) == (Verdict.READY, Version.of(4))
    (validity, _) = rig.classify(watermark=2)
    assert validity.verdict is Verdict.EXPIRED
    assert "they are complete from 4 on" in validity.cause
    assert "CHANGE_RETENTION" in validity.hint


def test_table_without_changes_for_longer_than_the_retention_is_caught_up(rig: TrackingRig) -> None:
    rig.sync()
    rig.clean_up()
    assert set(rig.verdicts().values()) == {Verdict.CAUGHT_UP}
    assert rig.sync().window_id is None
    rig.run("UPDATE dbo.Orders SET Amount = 9 WHERE Id = 1")
    rig.sync()
    rig.clean_up()
    # Lines has had no change since, and its watermark has moved with the versions that were examined.
    assert set(rig.verdicts().values()) == {Verdict.CAUGHT_UP}
    assert rig.differing() == []


@pytest.mark.parametrize("transactions", [0, 1, 2, 5])
def test_database_that_was_restored_is_ahead_whatever_was_written_since(rig: TrackingRig, transactions: int) -> None:
    """The version is below, at, or above the watermark."""
    rig.sync()
    rig.run("EXEC emulator.take_backup")
    rig.run("UPDATE dbo.Orders SET Amount = 9 WHERE Id = 1", "DELETE dbo.Orders WHERE Id = 2")
    rig.sync()
    rig.run("EXEC emulator.restore_backup")
    for number in range(transactions):
        rig.run("EXEC emulator.advance_clock 1", f"INSERT dbo.Orders VALUES ({100 + number}, 1, NULL)")
    assert set(rig.verdicts().values()) == {Verdict.AHEAD_OF_SOURCE}


def test_rows_that_come_and_go_during_the_first_load_end_right(rig: TrackingRig) -> None:
    opened = rig.open()
    rig.run(
        "INSERT dbo.Orders VALUES (7, 7, N'stays'), (8, 8, N'goes')",
        "DELETE dbo.Orders WHERE Id = 1",
        "UPDATE dbo.Orders SET Amount = 22 WHERE Id = 2",
    )
    rig.finish(opened)
    rig.run("DELETE dbo.Orders WHERE Id = 8", "INSERT dbo.Orders VALUES (1, 11, N'back')")
    assert rig.watermark() == Version.of(2)
    rig.sync()
    assert rig.differing() == []
    assert all(state.consistent for state in rig.ledger.read_tables("tracked").values())


class _StagerThatMeetsWrites(InProcessStager):
    """Rows come to dbo.Orders when its chunks have been read, and before the load asks how far the source is."""

    def __init__(self, rig: TrackingRig) -> None:
        super().__init__(rig.open_reader(), rig.plan_reads)
        self._rig = rig

    def stage_chunks(
        self, plan: WindowPlan, index: int, chunks: Sequence[LoadChunk], reads: int, sink: StagingSink
    ) -> Sequence[StagedPart]:
        parts = super().stage_chunks(plan, index, chunks, reads, sink)
        if plan.tables[index].source.name == "Orders":
            self._rig.run("INSERT dbo.Orders VALUES (70, 1, NULL)", "UPDATE dbo.Orders SET Amount = 9 WHERE Id = 1")
        return parts


@pytest.fixture
def untouched_rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[TrackingRig]:
    """A table with rows, and without a change since tracking was switched on: its version is 0, which no commit has."""
    created, *_ = orders = [each for each in TABLES if "Orders" in each and "ENABLE" not in each]
    assert created.startswith("CREATE")
    enabled = [each for each in TABLES if "Orders" in each and "ENABLE" in each]
    with tracking_rig(emulator, database, tracked_tables("Orders"), [*orders, *enabled]) as made:
        yield made


def test_changes_during_the_first_load_of_a_database_without_a_version_are_read(untouched_rig: TrackingRig) -> None:
    rig = untouched_rig
    rig.stager = _StagerThatMeetsWrites(rig)
    rig.sync()
    rig.stager = None
    assert rig.watermark() == Version.of(0)
    rig.sync()
    assert rig.differing() == []
    assert rig.watermark() == Version.of(2)


def test_changes_during_the_first_load_are_read_by_a_login_that_sees_no_commit_times(rig: TrackingRig) -> None:
    rig.run(
        "CREATE LOGIN tracked_reader WITH PASSWORD = 'a-Password-1'",
        "CREATE USER tracked_reader FOR LOGIN tracked_reader",
        "GRANT SELECT, VIEW CHANGE TRACKING TO tracked_reader",
    )
    try:
        rig.at = replace(rig.at, user="tracked_reader", password="a-Password-1")
        rig.stager = _StagerThatMeetsWrites(rig)
        rig.sync()
        rig.stager = None
        rig.sync()
        assert rig.differing() == []
    finally:
        rig.run("DROP USER tracked_reader", "DROP LOGIN tracked_reader")


_BEGIN_AGAIN = {
    "truncated": ("TRUNCATE TABLE dbo.Orders",),
    "truncated and filled": ("TRUNCATE TABLE dbo.Orders", "INSERT dbo.Orders VALUES (2, 22, NULL), (9, 9, NULL)"),
    "off and on": (
        "ALTER TABLE dbo.Orders DISABLE CHANGE_TRACKING",
        "UPDATE dbo.Orders SET Amount = 10 WHERE Id = 2",
        "DELETE dbo.Orders WHERE Id = 1",
        "ALTER TABLE dbo.Orders ENABLE CHANGE_TRACKING",
    ),
    "database off and on, and a change": (
        "ALTER TABLE dbo.Orders DISABLE CHANGE_TRACKING",
        "ALTER DATABASE CURRENT SET CHANGE_TRACKING = OFF",
        "DELETE dbo.Orders WHERE Id = 1",
        "ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON",
        "ALTER TABLE dbo.Orders ENABLE CHANGE_TRACKING",
        "INSERT dbo.Orders VALUES (9, 9, NULL)",
    ),
}
"""What begins the tracking of a table again, at the same version where none was given before."""
both_begin_again = pytest.mark.parametrize("statements", list(_BEGIN_AGAIN.values()), ids=list(_BEGIN_AGAIN))


@contextmanager
def _reader(rig: TrackingRig, *rights: str) -> Iterator[None]:
    """The pipeline's login is one with few rights."""
    at = rig.at
    rig.run(
        "CREATE LOGIN tracked_reader WITH PASSWORD = 'a-Password-1'",
        "CREATE USER tracked_reader FOR LOGIN tracked_reader",
        f"GRANT {', '.join(('SELECT', 'VIEW CHANGE TRACKING', *rights))} ON dbo.Orders TO tracked_reader",
    )
    rig.at = replace(rig.at, user="tracked_reader", password="a-Password-1")
    try:
        yield
    finally:
        rig.at = at
        rig.run("DROP USER tracked_reader", "DROP LOGIN tracked_reader")


def _kinds(rig: TrackingRig, opened: OpenResult) -> list[LoadKind]:
    assert opened.window_id is not None
    return [table.kind for table in rig.ledger.read_window(opened.window_id).plan.tables]


@both_begin_again
def test_tracking_that_began_again_before_the_first_version_is_replaced(
    untouched_rig: TrackingRig, statements: tuple[str, ...]
) -> None:
    rig = untouched_rig
    rig.sync()
    assert rig.verdicts() == {"Orders": Verdict.CAUGHT_UP}
    rig.run(*statements)
    [validity] = rig.classify()
    assert validity.verdict is Verdict.INSTANCE_REPLACED
    assert "truncated, or its change tracking was switched off and on" in validity.cause
    with pytest.raises(InstanceReplacedError):
        rig.sync()
    rig.settings = tracked_tables("Orders", on_gap=OnGap.REPAIR)
    rig.sync()
    rig.load_pending()
    assert rig.differing() == []
    rig.run("DELETE dbo.Orders", "INSERT dbo.Orders VALUES (5, 5, NULL)")
    rig.sync()
    assert rig.differing() == []


@both_begin_again
def test_table_whose_side_table_is_hidden_is_read_whole_until_a_version_proves_its_changes(
    untouched_rig: TrackingRig, statements: tuple[str, ...]
) -> None:
    rig = untouched_rig
    with _reader(rig):
        rig.sync()
        [validity] = rig.classify()
        assert validity.verdict is Verdict.READY
        assert "GRANT VIEW DEFINITION" in validity.hint
        assert _kinds(rig, rig.sync()) == [LoadKind.FIRST_LOAD]
        rig.run(*statements)
        assert _kinds(rig, rig.sync()) == [LoadKind.FIRST_LOAD]
        assert rig.differing() == []
        rig.run("INSERT dbo.Orders VALUES (5, 5, NULL)", "DELETE dbo.Orders WHERE Id = 2")
        rig.sync()
        rig.run("UPDATE dbo.Orders SET Amount = 55 WHERE Id = 5")
        assert _kinds(rig, rig.sync()) == [LoadKind.CHANGES]
        assert rig.differing() == []
        assert rig.sync().window_id is None


def test_login_that_sees_the_side_table_reads_no_table_again(untouched_rig: TrackingRig) -> None:
    rig = untouched_rig
    with _reader(rig, "VIEW DEFINITION"):
        rig.sync()
        assert rig.sync().window_id is None
        rig.run("UPDATE dbo.Orders SET Amount = 55 WHERE Id = 1")
        assert _kinds(rig, rig.sync()) == [LoadKind.CHANGES]


def test_tracking_that_begins_again_while_the_first_load_reads_is_found(untouched_rig: TrackingRig) -> None:
    rig = untouched_rig
    opened = rig.open()
    rig.run("TRUNCATE TABLE dbo.Orders")
    with pytest.raises(InstanceReplacedError):
        rig.finish(opened)


def test_tracking_that_begins_again_before_the_changes_are_read_is_found(untouched_rig: TrackingRig) -> None:
    rig = untouched_rig
    rig.sync()
    rig.run("UPDATE dbo.Orders SET Amount = 55 WHERE Id = 1")
    opened = rig.open()
    # As if the plan had been made before the tracking began again, at the version that it has kept.
    _change_ledger(rig, "UPDATE floodmark.windows SET plan = jsonb_set(plan, '{tables,0,instance,store_id}', '7')")
    with pytest.raises(InstanceReplacedError):
        rig.finish(opened)


@pytest.mark.parametrize("is_moved", [False, True], ids=["at the first version", "above it"])
def test_ledger_that_knows_no_side_table_goes_on(untouched_rig: TrackingRig, is_moved: bool) -> None:
    rig = untouched_rig
    rig.sync()
    if is_moved:
        rig.run("DELETE dbo.Orders WHERE Id = 1")
        rig.sync()
    _change_ledger(rig, "UPDATE floodmark.tables SET instance_store_id = 0")
    rig.run("UPDATE dbo.Orders SET Amount = 55 WHERE Id = 2")
    assert _kinds(rig, rig.sync()) == [LoadKind.CHANGES if is_moved else LoadKind.FIRST_LOAD]
    assert rig.differing() == []
    assert rig.rows("SELECT instance_store_id <> 0 FROM floodmark.tables") == [(True,)]
    assert rig.sync().window_id is None


def _change_ledger(rig: TrackingRig, statement: str) -> None:
    with psycopg.connect(rig.warehouse.conninfo()) as session:
        session.execute(statement)


def test_login_without_the_right_gets_a_verdict_that_says_what_to_grant(rig: TrackingRig) -> None:
    rig.run(
        "CREATE LOGIN tracked_reader WITH PASSWORD = 'a-Password-1'",
        "CREATE USER tracked_reader FOR LOGIN tracked_reader",
        "GRANT SELECT ON dbo.Orders TO tracked_reader",
        "GRANT SELECT ON dbo.Lines TO tracked_reader",
        "GRANT VIEW CHANGE TRACKING ON dbo.Lines TO tracked_reader",
    )
    try:
        rig.at = replace(rig.at, user="tracked_reader", password="a-Password-1")
        assert rig.verdicts() == {"Orders": Verdict.NO_PERMISSION, "Lines": Verdict.NOT_STARTED}
        rig.run("GRANT VIEW CHANGE TRACKING ON dbo.Orders TO tracked_reader")
        rig.sync()
        rig.run("UPDATE dbo.Orders SET Amount = 9 WHERE Id = 1")
        rig.sync()
        assert rig.differing() == []
    finally:
        rig.run("DROP USER tracked_reader", "DROP LOGIN tracked_reader")


def _expire(rig: TrackingRig) -> None:
    rig.run("DELETE dbo.Orders WHERE Id = 2", "UPDATE dbo.Orders SET Amount = 9 WHERE Id = 1")
    rig.clean_up()
    rig.run("INSERT dbo.Orders VALUES (50, 1, NULL)")


def _truncate(rig: TrackingRig) -> None:
    rig.run("TRUNCATE TABLE dbo.Orders", "INSERT dbo.Orders VALUES (1, 50, N'new'), (60, 60, NULL)")


def _restore(rig: TrackingRig, transactions: int) -> None:
    rig.run("EXEC emulator.take_backup", "DELETE dbo.Orders WHERE Id = 1", "UPDATE dbo.Lines SET V = N'lost'")
    rig.run("INSERT dbo.Orders VALUES (70, 1, N'lost')")
    rig.sync()
    rig.run("EXEC emulator.restore_backup")
    for number in range(transactions):
        rig.run("EXEC emulator.advance_clock 1", f"INSERT dbo.Orders VALUES ({100 + number}, 1, NULL)")


@pytest.mark.parametrize(
    "lose",
    [_expire, _truncate, partial(_restore, transactions=1), partial(_restore, transactions=6)],
    ids=["expired", "truncated", "restored-behind", "restored-past"],
)
def test_tables_that_lost_their_history_are_repaired(rig: TrackingRig, lose: Callable[[TrackingRig], None]) -> None:
    rig.settings = tracked_tables("Orders", "Lines", on_gap=OnGap.REPAIR)
    rig.sync()
    lose(rig)
    rig.sync()
    while rig.load_pending().window_id is not None:
        rig.run("UPDATE dbo.Orders SET Note = N'meanwhile' WHERE Id = 1")
    rig.run("DELETE dbo.Orders WHERE Id = 1", "INSERT dbo.Lines VALUES (9, 9, NULL)")
    rig.sync()
    assert rig.differing() == []
    assert rig.sync().window_id is None
