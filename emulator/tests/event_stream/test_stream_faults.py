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


def test_fault_has_to_be_known(source: Source) -> None:
    with pytest.raises(SqlServerError, match="must be one of unreachable, lost session"):
        source.run("EXEC emulator.fail_event_stream @fault = 'rain'")
