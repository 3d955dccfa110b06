"""Changes of streamed tables in a capture folder, read with plain Avro and JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastavro import reader

from sqlserver_emulator.assembly.factory import Engine, StreamDestination, open_engine
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import ErrorRaised, Rows
from sqlserver_emulator.release import SQL_SERVER_2025
from sqlserver_emulator.session import Session

PASSWORD = "a-Password-1"
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
SETUP = (
    "ALTER DATABASE SCOPED CONFIGURATION SET PREVIEW_FEATURES = ON",
    "IF NOT EXISTS (SELECT 1 FROM sys.database_scoped_credentials)"
    " CREATE DATABASE SCOPED CREDENTIAL c WITH IDENTITY = 'Managed Identity'",
    "EXEC sys.sp_enable_event_stream",
)


class Source:
    """A session in a database with a stream, and what its folder holds."""

    def __init__(self, engine: Engine, session: Session, folder: Path) -> None:
        self.engine, self.session, self.folder = engine, session, folder

    def run(self, *batches: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for text in batches:
            rows = []
            for event in self.session.run_batch(text):
                if isinstance(event, ErrorRaised):
                    raise event.error
                if isinstance(event, Rows):
                    rows.extend(event.rows)
        return rows

    def records(self, hub: str) -> dict[int, list[dict[str, Any]]]:
        """The records of each partition, in the order of paths."""
        found: dict[int, list[dict[str, Any]]] = {}
        for path in sorted((self.folder / "floods" / hub).glob("*/**/*.avro")):
            with path.open("rb") as opened:
                found.setdefault(int(path.parts[-7]), []).extend(reader(opened))  # type: ignore[arg-type]
        return found

    def events(self, hub: str) -> list[tuple[str, dict[str, Any]]]:
        """Operation and data of each event, in the order of the log."""
        self.run("EXEC emulator.run_event_stream")
        bodies = [json.loads(each["Body"]) for records in self.records(hub).values() for each in records]
        found = [(body["operation"], json.loads(body["data"])) for body in bodies]
        return sorted(found, key=lambda each: _place(each[1]))

    def group(self, name: str, *options: str) -> None:
        self.run(
            f"EXEC sys.sp_create_event_stream_group @stream_group_name = N'{name}',"
            " @destination_type = N'AzureEventHubsApacheKafka',"
            f" @destination_location = N'floods.servicebus.windows.net:9093/{name}', @destination_credential = N'c'"
            + "".join(f", {option}" for option in options)
        )

    def add(self, group: str, table: str, *options: str) -> None:
        self.run(f"EXEC sys.sp_add_object_to_event_stream_group N'{group}', N'{table}'" + "".join(options))


def _place(data: dict[str, Any]) -> tuple[str, int]:
    transaction = data["eventsource"]["transaction"]
    return transaction["commitlsn"], transaction["sequencenumber"]


@pytest.fixture(scope="module")
def engine(open_dir: Path) -> Iterator[Engine]:
    destination = StreamDestination(open_dir / "hubs", PARTITIONS)
    with open_engine(
        open_dir / "streams", ["Shop"], PASSWORD, destination=destination, release=SQL_SERVER_2025
    ) as opened:
        yield opened


@pytest.fixture
def source(engine: Engine, open_dir: Path) -> Iterator[Source]:
    session = engine.open_session(login="sa", password=PASSWORD, database="Shop", application="test")
    made = Source(engine, session, open_dir / "hubs")
    made.run(*SETUP)
    yield made
    made.run("IF @@TRANCOUNT > 0 ROLLBACK", "EXEC sys.sp_disable_event_stream", "DROP TABLE IF EXISTS dbo.a, dbo.b")
    session.close()


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
    seen = [(operation, data["eventsource"]["tbl"], _place(data)[1]) for operation, data in events]
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


def test_large_transaction_is_delivered_within_seconds(source: Source) -> None:
    source.run("CREATE TABLE dbo.a (id int PRIMARY KEY, v varchar(20))")
    source.group("large", "@partition_key_scheme = N'StreamGroup'")
    source.add("large", "dbo.a")
    source.run("INSERT dbo.a SELECT value, 'v' FROM GENERATE_SERIES(1, 50000)")
    began = time.monotonic()
    source.run("EXEC emulator.run_event_stream")
    assert time.monotonic() - began < 30
    (records,) = source.records("large").values()
    assert len(records) == 50_000


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("DROP TABLE dbo.a", 23662),
        ("TRUNCATE TABLE dbo.a", 23663),
        ("EXEC sp_rename N'dbo.a', N'c'", 23661),
        ("EXEC sp_rename N'dbo.a.v', N'w', N'COLUMN'", 4928),
        ("ALTER TABLE dbo.a DROP CONSTRAINT pk_a", 23665),
        ("ALTER SCHEMA other TRANSFER dbo.a", 23659),
        ("DROP DATABASE SCOPED CREDENTIAL c", 23803),
    ],
)
def test_change_that_a_stream_cannot_follow_is_refused(source: Source, statement: str, number: int) -> None:
    source.run("CREATE TABLE dbo.a (id int CONSTRAINT pk_a PRIMARY KEY, v int)")
    source.run("IF SCHEMA_ID('other') IS NULL EXEC ('CREATE SCHEMA other')")
    source.group("ddl")
    source.add("ddl", "dbo.a")
    with pytest.raises(SqlServerError) as caught:
        source.run(statement)
    assert caught.value.number == number
    # The rest of DDL is free, and so is the table when it is not streamed any more.
    source.run("ALTER TABLE dbo.a ADD w int", "ALTER TABLE dbo.a DROP COLUMN v", "CREATE INDEX i ON dbo.a (w)")
    source.run("EXEC sys.sp_remove_object_from_event_stream_group N'ddl', N'dbo.a'", "DROP TABLE dbo.a")


def test_primary_key_is_not_added_to_a_streamed_table(source: Source) -> None:
    source.run("CREATE TABLE dbo.a (id int NOT NULL)")
    source.group("keys")
    source.add("keys", "dbo.a")
    with pytest.raises(SqlServerError) as caught:
        source.run("ALTER TABLE dbo.a ADD PRIMARY KEY (id)")
    assert caught.value.number == 23664


def test_preview_features_and_full_recovery_are_required(source: Source) -> None:
    source.run("EXEC sys.sp_disable_event_stream", "ALTER DATABASE Shop SET RECOVERY SIMPLE")
    with pytest.raises(SqlServerError, match="23634/1"):
        source.run("EXEC sys.sp_enable_event_stream")
    source.run("ALTER DATABASE Shop SET RECOVERY FULL")
    source.run("ALTER DATABASE SCOPED CONFIGURATION SET PREVIEW_FEATURES = OFF")
    with pytest.raises(SqlServerError, match="23623/1"):
        source.run("EXEC sys.sp_enable_event_stream")
    source.run(*SETUP)


def test_catalog_shows_what_is_streamed(source: Source) -> None:
    source.run("CREATE TABLE dbo.a (id int PRIMARY KEY)", "CREATE TABLE dbo.b (id int PRIMARY KEY)")
    source.group("catalog")
    source.add("catalog", "dbo.a")
    assert source.run("SELECT is_event_stream_enabled FROM sys.databases WHERE name = 'Shop'") == [(1,)]
    assert source.run("SELECT name, is_replicated FROM sys.tables ORDER BY name") == [("a", 1), ("b", 0)]


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
