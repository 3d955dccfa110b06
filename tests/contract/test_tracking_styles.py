"""Histories and logs of tables with change tracking: what windows of net changes bring to them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from emulator_process import Emulator
from floodmark.core.errors import ConfigError, TableNotPlannableError
from floodmark.core.position import Version
from floodmark.core.schema import TableName
from floodmark.core.settings import ColumnSettings, FirstLoad, Mask, OnFailure, OnGap, PipelineSettings, Rule, Style
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.release import PostgresQuarantine
from floodmark.sync.filters import parse_filter
from tracking_rig import PIPELINE, TrackingRig, changed_order, tracked_tables, tracking_rig

ORDERS, LINES = TableName("dbo", "Orders"), TableName("dbo", "Lines")
TABLES = (
    "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int, Note nvarchar(max), IsTest bit NOT NULL)",
    "CREATE TABLE dbo.Lines (Id int NOT NULL, B bigint NOT NULL, V int, PRIMARY KEY (Id, B))",
    "ALTER TABLE dbo.Orders ENABLE CHANGE_TRACKING",
    "ALTER TABLE dbo.Lines ENABLE CHANGE_TRACKING",
    "INSERT INTO dbo.Orders VALUES (1, 10, N'a', 0), (2, 20, N'b', 0)",
)
VERSIONS = 'SELECT __op, "Id", "Amount", "Note", __deleted FROM shop.orders_history ORDER BY "Id", __load, __lsn'
ENTRIES = 'SELECT __op, "Id", "Amount", "Note", __changed FROM shop.orders ORDER BY __load, __lsn, __seq, __op, "Id"'


def chosen(style: Style, *names: str, **settings: Any) -> PipelineSettings:
    return tracked_tables(*(names or ("Orders",)), style=style, first_load=FirstLoad(chunk_rows=1), **settings)


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[TrackingRig]:
    with tracking_rig(emulator, database, chosen(Style.HISTORY), TABLES) as made:
        yield made


def version(rig: TrackingRig) -> int:
    ((found,),) = rig.client.rows("SELECT CHANGE_TRACKING_CURRENT_VERSION()")
    return int(found)


def test_newest_state_of_a_row_in_each_window_is_a_version(rig: TrackingRig) -> None:
    rig.sync()
    rig.run(
        "UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1",
        "UPDATE dbo.Orders SET Amount = 12, Note = NULL WHERE Id = 1",
        "INSERT INTO dbo.Orders VALUES (3, 30, N'c', 0)",
        "DELETE dbo.Orders WHERE Id = 3",
        "DELETE dbo.Orders WHERE Id = 2",
    )
    rig.sync()
    rig.run("INSERT INTO dbo.Orders VALUES (2, 21, N'B', 1)")
    rig.sync()
    assert rig.rows(VERSIONS) == [
        (2, 1, 10, "a", False),
        (4, 1, 12, None, False),
        (2, 2, 20, "b", False),
        (1, 2, 20, "b", True),
        (2, 2, 21, "B", False),
    ]
    assert rig.rows('SELECT "IsTest", __kept FROM shop.orders_history WHERE __deleted') == [
        (False, ["Note", "Amount", "IsTest"])
    ]
    assert rig.differing() == []


def test_row_that_came_and_went_again_has_no_second_delete(rig: TrackingRig) -> None:
    rig.sync()
    rig.run("DELETE dbo.Orders WHERE Id = 2")
    rig.sync()
    before = rig.rows(VERSIONS)
    rig.run("INSERT INTO dbo.Orders VALUES (2, 21, N'B', 1)", "DELETE dbo.Orders WHERE Id = 2")
    opened = rig.sync()
    assert rig.rows(VERSIONS) == before
    counted = "SELECT read_rows, staged_rows, unchanged_rows FROM floodmark.window_tables"
    assert rig.rows(f"{counted} WHERE window_id = {opened.window_id}") == [(1, 0, 0)]


@pytest.mark.parametrize("where", ["", "IsTest = 0 AND Amount > 0"])
@pytest.mark.parametrize("seed", range(2))
def test_history_has_the_rows_of_the_source_as_of_the_end_of_each_window(
    rig: TrackingRig, where: str, seed: int
) -> None:
    chance = random.Random(seed)
    rig.settings = chosen(Style.HISTORY, where=parse_filter(where) if where else None)
    passing = f"SELECT Id, Amount, Note, IsTest FROM dbo.Orders WHERE {where or '1 = 1'} ORDER BY Id"
    ends = {}
    for number in range(1, 9):
        rig.sync()
        ends[version(rig)] = [tuple(row) for row in rig.client.rows(passing)]
        rig.run(*(changed_order(chance, 100 * number + each) for each in range(chance.choice((1, 3, 6)))))
    for end, rows in ends.items():
        lsn = f"'\\x{Version.of(end).value.hex()}'"
        assert (
            rig.rows(
                'SELECT "Id", "Amount", "Note", "IsTest" FROM shop.orders_history WHERE NOT __deleted'
                f' AND __lsn <= {lsn} AND (__next_lsn > {lsn} OR __next_lsn IS NULL) ORDER BY "Id"'
            )
            == rows
        )
    doubled = "SELECT count(*) FROM shop.orders_history AS a JOIN shop.orders_history AS b"
    next_is_deleted = (
        '"Id" = b."Id" AND a.__next_load = b.__load AND a.__next_lsn = b.__lsn AND a.__deleted AND b.__deleted'
    )
    assert rig.rows(f"{doubled} ON a.{next_is_deleted}") == [(0,)]
    rig.sync()
    assert rig.differing() == []


def test_row_that_leaves_the_filter_is_a_deleted_version_with_its_last_values_that_passed(rig: TrackingRig) -> None:
    rig.settings = chosen(Style.HISTORY, where=parse_filter("IsTest = 0"))
    rig.sync()
    rig.run(
        "UPDATE dbo.Orders SET IsTest = 1, Amount = 666 WHERE Id = 1", "INSERT INTO dbo.Orders VALUES (3, 3, 's', 1)"
    )
    rig.sync()
    rig.run("UPDATE dbo.Orders SET Amount = 667 WHERE Id IN (1, 3)")
    rig.sync()
    left = [(2, 1, 10, "a", False), (1, 1, 10, "a", True), (2, 2, 20, "b", False)]
    assert rig.rows(VERSIONS) == left


def utc_of_commits(rig: TrackingRig) -> Mapping[int, datetime]:
    text = (
        "SELECT commit_ts, DATEADD(minute, DATEDIFF(minute, GETDATE(), GETUTCDATE()), commit_time)"
        " FROM sys.dm_tran_commit_table"
    )
    return {int(number): at.replace(tzinfo=UTC) for number, at in rig.client.rows(text)}


@pytest.mark.parametrize("style", [Style.HISTORY, Style.LOG, Style.CURRENT])
def test_rows_have_the_times_of_their_commits(rig: TrackingRig, style: Style) -> None:
    rig.settings = chosen(style, commit_times=True)
    rig.sync()
    rig.run("EXEC emulator.advance_clock 3600", "UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.run("EXEC emulator.advance_clock 3600", "DELETE dbo.Orders WHERE Id = 2")
    rig.run("EXEC emulator.advance_clock 3600")
    rig.sync()
    view = "shop.orders_history" if style is Style.HISTORY else "shop.orders"
    found = rig.rows(f"SELECT __lsn, __committed_at FROM {view} WHERE __committed_at IS NOT NULL")
    times = {Version(bytes(lsn)).number: at for lsn, at in found}
    commits = utc_of_commits(rig)
    assert len(times) == (3 if style is Style.HISTORY else 2)  # a log's rows of a load have none
    assert {number: abs(at - commits[number]) < timedelta(seconds=1) for number, at in times.items()} == dict.fromkeys(
        times, True
    )


@contextmanager
def few_rights(rig: TrackingRig) -> Iterator[None]:
    """The pipeline's login sees no times of commits."""
    at = rig.at
    rig.run(
        "CREATE LOGIN styles_reader WITH PASSWORD = 'a-Password-1'",
        "CREATE USER styles_reader FOR LOGIN styles_reader",
        "GRANT SELECT, VIEW CHANGE TRACKING TO styles_reader",
    )
    rig.at = replace(rig.at, user="styles_reader", password="a-Password-1")
    try:
        yield
    finally:
        rig.at = at
        rig.run("DROP USER styles_reader", "DROP LOGIN styles_reader")


@pytest.mark.parametrize("style", [Style.HISTORY, Style.LOG, Style.CURRENT])
def test_times_are_those_of_the_read_for_a_login_that_sees_no_commit_times(rig: TrackingRig, style: Style) -> None:
    rig.settings = chosen(style, commit_times=True)
    with few_rights(rig):
        rig.sync()
        rig.run("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1", "EXEC emulator.advance_clock 7200")
        rig.sync()
        ((now,),) = rig.client.rows("SELECT SYSUTCDATETIME()")
        target = "shop.orders_history" if style is Style.HISTORY else "shop.orders"
        ((read,),) = rig.rows(f'SELECT __committed_at FROM {target} WHERE "Amount" = 11')
        rig.run("DELETE dbo.Orders WHERE Id = 1")
        rig.sync()
    assert abs(read - now.replace(tzinfo=UTC)) < timedelta(minutes=1)
    assert style is not Style.HISTORY or [row[0] for row in rig.rows(VERSIONS)] == [2, 4, 1, 2]


def test_log_has_an_entry_for_each_key_and_window(rig: TrackingRig) -> None:
    rig.settings = chosen(Style.LOG)
    rig.sync()
    rig.run(
        "UPDATE dbo.Orders SET Amount = Amount + 1",
        "UPDATE dbo.Orders SET Amount = Amount + 1",
        "INSERT INTO dbo.Orders VALUES (3, 30, N'c', 0)",
        "DELETE dbo.Orders WHERE Id = 3",
    )
    rig.sync()
    rig.run("DELETE dbo.Orders WHERE Id = 2")
    rig.sync()
    assert rig.rows(ENTRIES) == [
        (0, 1, 10, "a", None),
        (0, 2, 20, "b", None),
        (4, 1, 12, "a", None),
        (4, 2, 22, "b", None),
        (1, 3, None, None, None),
        (1, 2, None, None, None),
    ]
    rig.run("UPDATE dbo.Orders SET Amount = 0")
    rig.load_pending()
    rig.sync()
    assert rig.rows(ENTRIES)[-1] == (4, 1, 0, "a", None)


def test_change_that_the_next_window_reads_again_is_one_entry(rig: TrackingRig) -> None:
    """A window with a first load ends where it was planned, before the moment that it reads."""
    both = chosen(Style.LOG, "Orders", "Lines")
    rig.settings = replace(both, tables=both.tables[:1])
    rig.sync()
    rig.settings = both
    rig.run("INSERT INTO dbo.Orders VALUES (3, 30, N'c', 0)")
    opened = rig.open()
    rig.run("UPDATE dbo.Orders SET Amount = 31 WHERE Id = 3", "UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.finish(opened)
    rig.sync()
    assert [row[:3] for row in rig.rows(ENTRIES)] == [(0, 1, 10), (0, 2, 20), (4, 3, 31), (4, 1, 11)]


def test_without_snapshot_isolation_a_table_that_keeps_changes_is_left_out(rig: TrackingRig) -> None:
    kept = chosen(Style.HISTORY)
    current = tracked_tables("Lines")
    rig.settings = PipelineSettings(PIPELINE, (*kept.tables, *current.tables))
    rig.sync()
    rig.run(
        "ALTER DATABASE CURRENT SET ALLOW_SNAPSHOT_ISOLATION OFF",
        "UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1",
        "INSERT INTO dbo.Lines VALUES (1, 1, 1)",
    )
    rig.sync()
    assert rig.rows('SELECT "Id" FROM shop.lines') == [(1,)]
    assert len(rig.rows(VERSIONS)) == 2
    ((words,),) = rig.rows("SELECT cause FROM floodmark.verdicts WHERE verdict = 'refused'")
    assert "style: history" in words and "snapshot isolation" in words


def test_load_of_a_history_needs_snapshot_isolation(rig: TrackingRig) -> None:
    rig.run("ALTER DATABASE CURRENT SET ALLOW_SNAPSHOT_ISOLATION OFF")
    with pytest.raises(ConfigError, match=r"style: history.*ALLOW_SNAPSHOT_ISOLATION ON"):
        rig.sync()


def test_delete_after_a_row_in_quarantine_is_kept_for_its_release(rig: TrackingRig) -> None:
    rules = (Rule("small", '"Amount" < 100', OnFailure.QUARANTINE),)
    rig.settings = chosen(Style.HISTORY, rules=rules)
    rig.sync()
    rig.run("INSERT INTO dbo.Orders VALUES (7, 700, N'g', 0)")
    rig.sync()
    rig.run("DELETE dbo.Orders WHERE Id = 7", "INSERT INTO dbo.Orders VALUES (8, 8, NULL, 0)")
    rig.sync()
    rig.run("DELETE dbo.Orders WHERE Id = 8")
    rig.sync()
    rig.settings = chosen(Style.HISTORY)
    PostgresQuarantine(rig.warehouse).release(PIPELINE, rig.settings.tables[0], "anna")
    of_seven = 'SELECT __op, "Amount", __deleted FROM shop.orders_history WHERE "Id" = 7 ORDER BY __lsn'
    assert rig.rows(of_seven) == [(2, 700, False), (1, 700, True)]
    assert rig.rows('SELECT count(*) FROM shop.orders WHERE "Id" = 8 AND __deleted') == [(1,)]


def test_gap_is_one_change_of_the_history(rig: TrackingRig) -> None:
    rig.settings = chosen(Style.HISTORY, on_gap=OnGap.REPAIR)
    rig.sync()
    rig.run("TRUNCATE TABLE dbo.Orders", "INSERT INTO dbo.Orders VALUES (1, 10, N'a', 0), (3, 30, N'c', 0)")
    rig.sync()
    rig.load_pending()
    rig.sync()
    assert [row[:3] + row[4:] for row in rig.rows(VERSIONS)] == [
        (2, 1, 10, False),
        (2, 2, 20, False),
        (1, 2, 20, True),
        (2, 3, 30, False),
    ]
    assert rig.differing() == []


def test_what_change_tracking_does_not_know_is_refused(rig: TrackingRig) -> None:
    for style, settings, cause in (
        (Style.SNAPSHOT, {}, "only changes that change data capture has recorded begin the reads of a snapshot"),
        (Style.LOG, {"before_images": True}, "before_images: true, and change tracking has no row before an update"),
        (Style.LOG, {"where": parse_filter("Amount > 0")}, "where, and nothing shows whether a row .* had passed"),
    ):
        rig.settings = chosen(style, **settings)
        with pytest.raises(TableNotPlannableError, match=f"style: {style.value}, but {cause}"):
            rig.sync()


@pytest.mark.parametrize("style", [Style.HISTORY, Style.LOG])
def test_new_column_has_no_value_in_what_was_before_it(rig: TrackingRig, style: Style) -> None:
    rig.settings = chosen(style)
    rig.sync()
    rig.run(
        "ALTER TABLE dbo.Orders ADD Extra int NULL",
        "UPDATE dbo.Orders SET Extra = 5 WHERE Id = 1",
    )
    rig.sync()
    rig.run("DELETE dbo.Orders WHERE Id = 1")
    rig.sync()
    target = "shop.orders_history" if style is Style.HISTORY else "shop.orders"
    found = [value for (value,) in rig.rows(f'SELECT "Extra" FROM {target} WHERE "Id" = 1 ORDER BY __lsn')]
    assert found == [None, 5, 5 if style is Style.HISTORY else None]


def test_masked_values_of_a_deleted_row_are_those_of_its_last_version(rig: TrackingRig) -> None:
    columns = (ColumnSettings("Note", target="note", mask=Mask.LAST4), ColumnSettings("Amount", is_dropped=True))
    rig.settings = chosen(Style.HISTORY, columns=columns)
    rig.sync()
    rig.run("UPDATE dbo.Orders SET Note = N'secret' WHERE Id = 1")
    rig.sync()
    rig.run("DELETE dbo.Orders WHERE Id = 1")
    rig.sync()
    found = rig.rows('SELECT __op, note FROM shop.orders_history WHERE "Id" = 1 ORDER BY __lsn')
    assert found == [(2, "*"), (4, "**cret"), (1, "**cret")]
