"""``sys.dm_change_feed_log_scan_sessions``: what the log reader of a stream has done."""

from __future__ import annotations

import pytest

from cdc_database import wait_until
from sqlserver_emulator.assembly.factory import Engine
from sqlserver_emulator.cdc.postgres import connect, runner
from sqlserver_emulator.errors import SqlServerError
from stream_source import PASSWORD, Source, place_of

COLUMNS = [
    *("session_id", "start_time", "end_time", "duration", "batch_processing_phase", "error_count", "batch_start_lsn"),
    *("currently_processed_lsn", "batch_end_lsn", "tran_count", "currently_processed_commit_lsn"),
    *("currently_processed_commit_time", "log_record_count", "schema_change_count", "command_count", "latency"),
    *("empty_scan_count", "failed_sessions_count"),
]
NO_LSN = "00000000:00000000:0000"
LAST = "SELECT TOP (1) {} FROM sys.dm_change_feed_log_scan_sessions WHERE {} ORDER BY session_id DESC"


@pytest.fixture
def streamed(source: Source) -> Source:
    source.run("CREATE TABLE dbo.a (id int PRIMARY KEY)")
    source.group("scans")
    source.add("scans", "dbo.a")
    return source


def test_columns_are_those_of_the_documentation(source: Source) -> None:
    names = source.run(
        "SELECT name FROM sys.all_columns WHERE object_id = OBJECT_ID('sys.dm_change_feed_log_scan_sessions')"
        " ORDER BY column_id"
    )
    assert [name for (name,) in names] == COLUMNS


def test_scan_shows_the_transactions_that_it_delivered(streamed: Source) -> None:
    streamed.run("BEGIN TRAN; INSERT dbo.a VALUES (1), (2); DELETE dbo.a WHERE id = 1; COMMIT")
    *_, (_, last) = streamed.events("scans")
    shown = (
        "batch_processing_phase, tran_count, command_count, batch_end_lsn, currently_processed_commit_lsn, error_count"
    )
    commit_lsn = place_of(last)[0]
    assert streamed.run(LAST.format(shown, "tran_count > 0")) == [("Done", 1, 3, commit_lsn, commit_lsn, 0)]
    ((first_lsn, records, changes, latency, since),) = streamed.run(
        LAST.format(
            "batch_start_lsn, log_record_count, schema_change_count, latency,"
            " DATEDIFF(second, currently_processed_commit_time, end_time)",
            "tran_count > 0",
        )
    )
    assert first_lsn == last["eventsource"]["transaction"]["beginlsn"]
    assert (records >= 5, changes) == (True, 0)
    assert abs(latency - since) <= 1


def test_change_of_a_table_is_counted_with_its_next_row(streamed: Source) -> None:
    streamed.run("INSERT dbo.a VALUES (1)", "EXEC emulator.run_event_stream", "ALTER TABLE dbo.a ADD v int")
    streamed.run("INSERT dbo.a VALUES (2, 2)", "EXEC emulator.run_event_stream")
    assert streamed.run(LAST.format("schema_change_count, command_count", "tran_count > 0")) == [(1, 1)]


def test_empty_scans_share_a_row(streamed: Source) -> None:
    streamed.run("INSERT dbo.a VALUES (1)", "EXEC emulator.run_event_stream")
    found = "SELECT session_id, empty_scan_count, batch_start_lsn FROM sys.dm_change_feed_log_scan_sessions" + (
        " WHERE session_id > 0 AND empty_scan_count > 1"
    )
    # The records of empty scans are what the later ones find in the log.
    wait_until(lambda: streamed.run(found) != [])
    assert {lsn for *_, lsn in streamed.run(found)} == {NO_LSN}


def test_failed_scan_has_the_session_of_its_error_and_session_0_has_the_sums(streamed: Source) -> None:
    streamed.run("EXEC emulator.fail_event_stream @fault = 'unreachable'", "INSERT dbo.a VALUES (1)")
    streamed.run("BEGIN TRY EXEC emulator.run_event_stream END TRY BEGIN CATCH END CATCH")
    streamed.run("EXEC emulator.run_event_stream")
    assert streamed.run(
        "SELECT s.batch_processing_phase, s.failed_sessions_count, s.error_count, e.error_number"
        " FROM sys.dm_change_feed_log_scan_sessions s JOIN sys.dm_change_feed_errors e ON e.session_id = s.session_id"
    ) == [("Last scan, publish and commit", 1, 1, 23679)]
    sums = "SUM(tran_count), SUM(command_count), SUM(failed_sessions_count)"
    of_all = "SELECT {} FROM sys.dm_change_feed_log_scan_sessions WHERE session_id {} 0"
    (found,) = streamed.run(of_all.format(sums, ">"))
    assert found == (1, 1, 1)
    total = "batch_processing_phase, currently_processed_lsn, tran_count, command_count, failed_sessions_count"
    assert streamed.run(of_all.format(total, "=")) == [("Aggregate", NO_LSN, *found)]


def test_last_32_scans_are_kept_and_session_0_counts_them_all(streamed: Source) -> None:
    for number in range(40):
        streamed.run(f"INSERT dbo.a VALUES ({number})", "EXEC emulator.run_event_stream")
    shown = "SELECT COUNT(*) FROM sys.dm_change_feed_log_scan_sessions WHERE session_id > 0"
    assert streamed.run(shown) == [(32,)]
    assert streamed.run(LAST.format("tran_count, command_count", "session_id = 0")) == [(40, 40)]


def test_scan_of_a_stream_that_has_ended_is_not_recorded(engine: Engine) -> None:
    with connect(engine.conninfo) as connection:
        run = runner(connection)
        run("SELECT emulator.record_stream_error(1, 23679, 16, 1, 'x', '')", ())
        assert run("SELECT 1 FROM emulator.event_stream_scans WHERE database_id = 1", ()) == []


@pytest.mark.parametrize("view", ["dm_change_feed_log_scan_sessions", "dm_change_feed_errors"])
def test_views_are_for_who_may_view_the_state_of_the_database(streamed: Source, engine: Engine, view: str) -> None:
    streamed.run("IF SUSER_ID('reader') IS NULL CREATE LOGIN reader WITH PASSWORD = 'a-Password-1'")
    streamed.run("IF USER_ID('reader') IS NULL CREATE USER reader", "REVOKE VIEW DATABASE STATE FROM reader")
    session = engine.open_session(login="reader", password=PASSWORD, database="Shop", application="test")
    reader = Source(engine, session, streamed.folder)
    for change in ("sp_disable_event_stream", "sp_enable_event_stream"):
        # Also where there is nothing to see.
        streamed.run(f"EXEC sys.{change}")
        with pytest.raises(SqlServerError, match="VIEW DATABASE STATE") as caught:
            reader.run(f"SELECT * FROM sys.{view}")
        assert caught.value.number == 262
    streamed.run("GRANT VIEW DATABASE STATE TO reader")
    reader.run(f"SELECT * FROM sys.{view}")
    session.close()
