"""Deliveries that fail: nothing is lost, and the server shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sqlserver_emulator.assembly.factory import open_engine
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.release import SQL_SERVER_2025
from stream_source import PASSWORD, SETUP, Source

HOLDUP = "SELECT log_reuse_wait_desc FROM sys.databases WHERE name = 'Shop'"
ERRORS = "SELECT error_number, source_task FROM sys.dm_change_feed_errors ORDER BY session_id"


def streamed(source: Source, hub: str) -> None:
    source.run("CREATE TABLE dbo.a (id int PRIMARY KEY)")
    source.group(hub)
    source.add(hub, "dbo.a")


def test_unreachable_hub_holds_the_log_until_it_is_back(source: Source) -> None:
    streamed(source, "unreachable")
    source.run("EXEC emulator.fail_event_stream @fault = 'unreachable', @times = 0", "INSERT dbo.a VALUES (1)")
    with pytest.raises(SqlServerError) as caught:
        source.run("EXEC emulator.run_event_stream")
    assert caught.value.number == 23679
    assert source.run(HOLDUP) == [("REPLICATION",)]
    assert (23679, 3) in source.run(ERRORS)
    assert source.records("unreachable") == {}
    source.run("EXEC emulator.clear_faults")
    assert [operation for operation, _ in source.events("unreachable")] == ["INS"]
    assert source.run(HOLDUP) == [("NOTHING",)]


def test_delivery_whose_end_is_unknown_is_made_again_with_other_ids(source: Source) -> None:
    streamed(source, "lost")
    source.run("EXEC emulator.fail_event_stream @fault = 'lost session'", "INSERT dbo.a VALUES (1), (2)")
    source.run("BEGIN TRY EXEC emulator.run_event_stream END TRY BEGIN CATCH END CATCH")
    events = source.events("lost")
    assert len(events) == 4
    bodies = [json.loads(each["Body"]) for records in source.records("lost").values() for each in records]
    assert len({body["id"] for body in bodies}) == 4
    assert len({body["logicalid"] for body in bodies}) == 2


def test_delivery_that_fails_goes_on_where_it_was_and_sends_little_again(source: Source) -> None:
    source.run("CREATE TABLE dbo.a (id int PRIMARY KEY, v nvarchar(max))")
    source.group("long", "@max_message_size_kb = 1024")
    source.add("long", "dbo.a")
    source.run("EXEC emulator.fail_event_stream @fault = 'unreachable', @times = 0")
    for number in range(12):
        source.run(f"INSERT dbo.a VALUES ({number}, REPLICATE(CAST('x' AS nvarchar(max)), 500000))")
    source.run("EXEC emulator.clear_faults", "EXEC emulator.fail_event_stream @fault = 'lost session'")
    source.run("BEGIN TRY EXEC emulator.run_event_stream END TRY BEGIN CATCH END CATCH")
    sent = [data["eventsource"]["pkkey"][0]["value"] for _, data in source.events("long")]
    assert set(sent) == {str(number) for number in range(12)}
    assert 12 < len(sent) <= 18


def test_last_32_errors_are_kept(source: Source) -> None:
    streamed(source, "many")
    source.run("EXEC emulator.fail_event_stream @fault = 'unreachable', @times = 0", "INSERT dbo.a VALUES (1)")
    for _ in range(40):
        source.run("BEGIN TRY EXEC emulator.run_event_stream END TRY BEGIN CATCH END CATCH")
    assert source.run("SELECT COUNT(*) FROM sys.dm_change_feed_errors") == [(32,)]
    source.run("EXEC emulator.clear_faults")


def test_server_without_a_destination_reaches_no_hub(open_dir: Path) -> None:
    with open_engine(open_dir / "nowhere", ["Shop"], PASSWORD, release=SQL_SERVER_2025) as engine:
        session = engine.open_session(login="sa", password=PASSWORD, database="Shop", application="test")
        source = Source(engine, session, open_dir / "nowhere-hubs")
        source.run(*SETUP)
        streamed(source, "hub")
        source.run("INSERT dbo.a VALUES (1)")
        with pytest.raises(SqlServerError, match="started without --event-hubs-folder"):
            source.run("EXEC emulator.run_event_stream")
        session.close()


def test_delivery_is_in_another_order_and_its_final_segments_come_first(source: Source) -> None:
    source.run("CREATE TABLE dbo.a (id int PRIMARY KEY, v nvarchar(max))")
    source.group("reordered", "@max_message_size_kb = 128", "@partition_key_scheme = N'StreamGroup'")
    source.add("reordered", "dbo.a")
    source.run("EXEC emulator.fail_event_stream @fault = 'reordered'")
    source.run("INSERT dbo.a VALUES (1, N'x'), (2, REPLICATE(CAST(N'y' AS nvarchar(max)), 500000))")
    source.run("EXEC emulator.run_event_stream")
    found = source.records("reordered")
    assert set(found) == {0, 1, 2}
    places = {
        partition: [
            (int(body["logicalid"].rpartition(":")[2]), body["segmentindex"], body["finalsegment"])
            for body in (json.loads(record["Body"]) for record in records)
        ]
        for partition, records in found.items()
    }
    last, begins = max((each[0][1], partition) for partition, each in places.items())
    assert last > 2
    backwards = [(2, index, index == last) for index in range(last, -1, -1)] + [(1, 0, True)]
    assert places == {(begins + turn) % 3: backwards[turn::3] for turn in range(3)}
    assert source.run("EXEC emulator.help_faults") == []


def test_first_message_of_a_delivery_is_cut_and_not_sent_again(source: Source) -> None:
    streamed(source, "cut")
    source.run("EXEC emulator.fail_event_stream @fault = 'cut message'", "INSERT dbo.a VALUES (1), (2)")
    source.run("EXEC emulator.run_event_stream", "INSERT dbo.a VALUES (3)", "EXEC emulator.run_event_stream")
    whole, cut = [], []
    for records in source.records("cut").values():
        for body in (record["Body"] for record in records):
            (whole if body.endswith(b"}") else cut).append(body)
    assert len(cut) == 1
    assert cut[0].startswith(b'{"specversion":"1.0"')
    assert {json.loads(json.loads(json.loads(body)["data"])["eventrow"]["current"])["id"] for body in whole} == {
        "2",
        "3",
    }


def test_fault_has_to_be_known(source: Source) -> None:
    with pytest.raises(SqlServerError, match="must be one of unreachable, lost session, reordered, cut message"):
        source.run("EXEC emulator.fail_event_stream @fault = 'rain'")
