"""The procedures that show groups, tables and settings of a stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from emulator_process import running_emulator
from sqlserver_emulator.errors import SqlServerError
from stream_source import SETUP, Source


def test_groups_show_their_options(source: Source) -> None:
    source.group("help", "@partition_key_scheme = N'Column'", "@partition_key_column_name = N'id'")
    ((group_id, *row),) = source.run("EXEC sys.sp_help_change_feed_table_groups")
    location = "floods.servicebus.windows.net:9093/help"
    kafka = "AzureEventHubsApacheKafka"
    assert row == ["help", location, "c", None, None, True, 1, 256 << 10, 3, "id", 1, kafka]
    assert source.run("EXEC sys.sp_help_change_event_stream_groups") == [(group_id, *row)]


def test_table_shows_its_options_and_where_it_began(source: Source) -> None:
    source.run("CREATE TABLE dbo.a (id int PRIMARY KEY)", "CREATE TABLE dbo.b (id int PRIMARY KEY)")
    source.group("help")
    source.add("help", "dbo.a", ", @include_old_values = 0")
    (row,) = source.run("EXEC sys.sp_help_change_feed_table @source_schema = N'dbo', @source_name = N'a'")
    group_id, table_id = row[0], row[4]
    assert (row[1], row[2], row[3], row[7]) == ("help", "dbo", "a", 4)
    assert row[8] == source.run("SELECT OBJECT_ID('dbo.a')")[0][0]
    assert len(row[10]) == 10
    assert row[-3:] == (False, True, False)
    by_ids = f"EXEC sys.sp_help_change_feed_table @table_group_id = '{group_id}', @table_id = '{table_id}'"
    assert source.run(by_ids) == [row]
    assert source.run("EXEC sys.sp_help_change_feed_table @source_schema = N'dbo', @source_name = N'b'") == []


def test_settings_show_what_is_published(source: Source) -> None:
    source.run("CREATE TABLE dbo.a (id int PRIMARY KEY)")
    source.group("help")
    source.add("help", "dbo.a")
    ((maxtrans, before, _, seconds, reseed),) = source.run("EXEC sys.sp_help_change_feed_settings")
    assert (maxtrans, seconds, reseed) == (500, 5, 0)
    source.run("INSERT dbo.a VALUES (1)")
    ((_, data),) = source.events("help")
    after = source.run("EXEC sys.sp_help_change_feed_settings")[0][1]
    published = bytes.fromhex(data["eventsource"]["transaction"]["commitlsn"].replace(":", ""))
    assert before < published <= after


def test_drivers_read_every_column(open_dir: Path) -> None:
    with running_emulator(open_dir / "help-wire", "--release", "2025", databases=("Shop",)) as server:
        connection = server.connect_pymssql("Shop", autocommit=True)
        cursor = connection.cursor()
        for statement in (*SETUP, "CREATE TABLE dbo.a (id int PRIMARY KEY)"):
            cursor.execute(statement)
        cursor.execute(
            "EXEC sp_create_event_stream_group N'g', N'AzureEventHubsApacheKafka',"
            " N'floods.servicebus.windows.net/h', N'c'"
        )
        cursor.execute("EXEC sp_add_object_to_event_stream_group N'g', N'dbo.a'")
        cursor.execute("EXEC sys.sp_help_change_feed")
        assert len(cursor.fetchall()) == 1
        for call in ("table_groups", "table @source_schema = N'dbo', @source_name = N'a'", "settings"):
            cursor.execute(f"EXEC sys.sp_help_change_feed_{call}")
            assert len(cursor.fetchall()) == 1
        cursor.execute("SELECT * FROM sys.dm_change_feed_log_scan_sessions")
        cursor.fetchall()
        cursor.execute("SELECT * FROM sys.dm_change_feed_errors")
        cursor.fetchall()
        connection.close()


@pytest.mark.parametrize(
    "name", ["feed", "feed_table_groups", "feed_settings", "event_stream_groups", "event_stream_tables"]
)
def test_nothing_is_shown_where_nothing_is_enabled(source: Source, name: str) -> None:
    source.run("EXEC sys.sp_disable_event_stream")
    with pytest.raises(SqlServerError) as caught:
        source.run(f"EXEC sys.sp_help_change_{name}")
    source.run("EXEC sys.sp_enable_event_stream")
    assert caught.value.number == 23636


def test_all_tables_are_listed_with_their_groups(source: Source) -> None:
    source.run("CREATE TABLE dbo.a (id int PRIMARY KEY)", "CREATE TABLE dbo.b (id int PRIMARY KEY)")
    assert source.run("EXEC sys.sp_help_change_event_stream_tables") == []
    for group, table in (("second", "a"), ("first", "b")):
        source.group(group)
        source.add(group, f"dbo.{table}")
    rows = source.run("EXEC sys.sp_help_change_event_stream_tables")
    assert [(row[1], row[3]) for row in rows] == [("first", "b"), ("second", "a")]
    for row in rows:
        by_name = f"EXEC sys.sp_help_change_feed_table @source_schema = N'dbo', @source_name = N'{row[3]}'"
        assert source.run(by_name) == [row]
    older = source.run("EXEC sys.sp_help_change_feed")
    assert [row[:4] for row in older] == [(row[0], row[1], row[5], "c") for row in rows]
    assert [row[6:11] for row in older] == [(row[2], row[3], row[4], row[8], row[7]) for row in rows]
