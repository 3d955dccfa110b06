"""Changes of streamed tables in a capture folder, read with plain Avro and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sqlserver_emulator.assembly.factory import StreamDestination, open_engine
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.release import SQL_SERVER_2025
from stream_source import PASSWORD, SETUP, Source, place_of

PARTITIONS = 3
TYPES = {
    "int": ("105", "105"),
    "bigint": ("-9000000000", "-9000000000"),
    "tinyint": ("255", "255"),
    "bit": ("1", "1"),
    "decimal(9,2)": ("150", "150.00"),
    "money": ("1.5", "1.5000"),
    "float": ("0.1", "0.1"),
    "date": ("'2026-08-07'", "2026-08-07"),
    "time(3)": ("'16:25:00.5'", "16:25:00.500"),
    "time(7)": ("'16:25:00.1234567'", "16:25:00.1234567"),
    "datetime": ("'2025-03-14 16:45:01'", "2025-03-14 16:45:01.000"),
    "smalldatetime": ("'2025-03-14 16:45:00'", "2025-03-14 16:45:00"),
    "datetime2(7)": ("'2026-08-07 16:25:00.8833330'", "2026-08-07 16:25:00.8833330"),
    "datetime2(0)": ("'2026-08-07 16:25:01'", "2026-08-07 16:25:01"),
    "datetimeoffset(2)": ("'2026-08-07 16:25:00.5 -03:30'", "2026-08-07 16:25:00.50 -03:30"),
    "uniqueidentifier": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"),
    "varbinary(8)": ("0x0aFF", "0x0AFF"),
    "char(5)": ("'ab'", "ab   "),
    "nvarchar(10)": ("N'Gr\u00fc\u00dfe\U0001f600'", "Gr\u00fc\u00dfe\U0001f600"),
    "varchar(max)": ("'x'", "x"),
}
"""A literal of each type, and its text in an event."""


def test_changes_of_two_tables_are_numbered_across_them(source: Source) -> None:
    source.run("CREATE TABLE dbo.a (id int PRIMARY KEY, v varchar(9))", "CREATE TABLE dbo.b (id int PRIMARY KEY)")
    source.group("orders")
    source.add("orders", "dbo.a")
    source.add("orders", "dbo.b")
    source.run(
        "BEGIN TRAN; INSERT dbo.a VALUES (1, NULL); INSERT dbo.b VALUES (7); UPDATE dbo.a SET v = 'x'; COMMIT",
        "UPDATE dbo.a SET v = 'x'",
        "UPDATE dbo.a SET id = 2",
        "DELETE dbo.a",
    )
    events = source.events("orders")
    seen = [(operation, data["eventsource"]["tbl"], place_of(data)[1]) for operation, data in events]
    assert seen == [
        ("INS", "a", 1),
        ("INS", "b", 2),
        ("UPD", "a", 3),
        ("DEL", "a", 1),
        ("INS", "a", 2),
        ("DEL", "a", 1),
    ]
    update = events[2][1]
    assert json.loads(update["eventrow"]["old"]) == {"id": "1", "v": None}
    assert json.loads(update["eventrow"]["current"]) == {"id": "1", "v": "x"}
    assert update["eventsource"]["cols"] == [
        {"name": "id", "type": "int", "index": 0},
        {"name": "v", "type": "varchar(9)", "index": 1},
    ]
    assert update["eventsource"]["pkkey"] == [{"columnname": "id", "value": "1"}]
    for records in source.records("orders").values():
        assert [each["SequenceNumber"] for each in records] == list(range(len(records)))


def test_values_of_every_type_are_written(source: Source) -> None:
    columns = ", ".join(f"c{number} {name}" for number, name in enumerate(TYPES))
    source.run(f"CREATE TABLE dbo.a ({columns}, left_out xml)")
    source.group("types")
    source.add("types", "dbo.a")
    source.run(f"INSERT dbo.a VALUES ({', '.join(literal for literal, _ in TYPES.values())}, NULL)")
    ((_, data),) = source.events("types")
    assert [each["type"] for each in data["eventsource"]["cols"]] == list(TYPES)
    assert data["eventsource"]["pkkey"] == []
    assert list(json.loads(data["eventrow"]["current"]).values()) == [text for _, text in TYPES.values()]


def test_options_of_a_table_leave_out_columns_and_old_values(source: Source) -> None:
    source.run("CREATE TABLE dbo.a (id int PRIMARY KEY, v int, w int)")
    source.group("options", "@partition_key_scheme = N'Table'")
    source.add("options", "dbo.a", ", @include_all_columns = 0, @include_old_values = 0")
    source.run("INSERT dbo.a VALUES (1, 2, 3)", "UPDATE dbo.a SET w = 4")
    update = source.events("options")[1][1]
    assert [each["name"] for each in update["eventsource"]["cols"]] == ["id", "w"]
    assert update["eventrow"] == {"old": "{}", "current": '{"id":"1","w":"4"}'}
    assert len(source.records("options")) == 1


def test_large_transaction_is_delivered_whole(source: Source) -> None:
    """In time that grows with its rows: a pass over all of them for each would exceed the limit of every test."""
    source.run("CREATE TABLE dbo.a (id int PRIMARY KEY, v varchar(20))")
    source.group("large", "@partition_key_scheme = N'StreamGroup'")
    source.add("large", "dbo.a")
    source.run("INSERT dbo.a SELECT value, 'v' FROM GENERATE_SERIES(1, 50000)")
    source.run("EXEC emulator.run_event_stream")
    (records,) = source.records("large").values()
    assert len(records) == 50_000


def test_enabling_twice_is_refused_within_error_23626(source: Source) -> None:
    with pytest.raises(SqlServerError, match="23653/1") as caught:
        source.run("EXEC sys.sp_enable_change_event_stream")
    assert caught.value.number == 23626


def test_change_data_capture_and_streaming_exclude_each_other(source: Source) -> None:
    with pytest.raises(SqlServerError) as caught:
        source.run("EXEC sys.sp_cdc_enable_db")
    assert caught.value.number == 22898
    source.run("EXEC sys.sp_disable_event_stream", "EXEC sys.sp_cdc_enable_db")
    with pytest.raises(SqlServerError, match="23650/1"):
        source.run("EXEC sys.sp_enable_event_stream")
    source.run("EXEC sys.sp_cdc_disable_db", "EXEC sys.sp_enable_event_stream")


def test_numbers_go_on_after_a_restart(open_dir: Path) -> None:
    destination = StreamDestination(open_dir / "restart-hubs", 1)
    for start in (0, 1):
        with open_engine(
            open_dir / "restart", ["Shop"], PASSWORD, destination=destination, release=SQL_SERVER_2025
        ) as engine:
            session = engine.open_session(login="sa", password=PASSWORD, database="Shop", application="test")
            source = Source(engine, session, destination.folder)
            if not start:
                source.run(*SETUP, "CREATE TABLE dbo.a (id int PRIMARY KEY)")
                source.group("hub")
                source.add("hub", "dbo.a")
            source.run(f"INSERT dbo.a VALUES ({start})")
            assert len(source.events("hub")) == start + 1
            assert [each["SequenceNumber"] for each in source.records("hub")[0]] == list(range(start + 1))
            session.close()
