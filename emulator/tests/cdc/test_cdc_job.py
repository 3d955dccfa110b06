"""The capture and cleanup jobs from within: idle rows, retention, failing scans, many databases, slots left behind."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc_database import wait_until
from sqlserver_emulator.assembly.factory import Engine, open_engine
from sqlserver_emulator.cdc.agent.job_process import JobProcess
from sqlserver_emulator.cdc.agent.supervisor import run_cleanup_job
from sqlserver_emulator.cdc.instances import read_instances
from sqlserver_emulator.cdc.jobs import CAPTURE, CLEANUP, Job, find_job, list_jobs
from sqlserver_emulator.cdc.log.slots import SPARE_SLOT, create_slot, drop_abandoned
from sqlserver_emulator.cdc.postgres import SqlConnection, connect, runner
from sqlserver_emulator.cdc.scan.capture import Capture
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import ErrorRaised, Rows
from sqlserver_emulator.session import Session


class Shop:
    """One T-SQL session on the engine in this process, and PostgreSQL behind it; the capture job is stopped."""

    def __init__(self, engine: Engine, session: Session, sql: SqlConnection) -> None:
        self.engine = engine
        self.session = session
        self.sql = sql
        ((self.database_id,),) = runner(sql)(
            "SELECT database_id FROM emulator.databases WHERE name = $1", (session.database,)
        )

    def run(self, *batches: str) -> list[tuple[Any, ...]]:
        """The rows of the last batch."""
        rows: list[tuple[Any, ...]] = []
        for text in batches:
            rows = []
            for event in self.session.run_batch(text):
                if isinstance(event, ErrorRaised):
                    raise event.error
                if isinstance(event, Rows):
                    rows.extend(event.rows)
        return rows

    def changes(self, columns: str = "id, v") -> list[tuple[Any, ...]]:
        return self.run(
            f"SELECT [__$operation], {columns} FROM cdc.dbo_t_CT"
            " ORDER BY [__$start_lsn], [__$command_id], [__$seqval], [__$operation]"
        )

    def capture(self) -> Capture:
        made: list[Capture] = []

        def is_open() -> bool:
            try:
                made.append(Capture(self.engine.conninfo, self.database_id))
            except psycopg.OperationalError:  # the job is just ending
                return False
            return True

        wait_until(is_open)
        return made[0]


@pytest.fixture(scope="module")
def engine(open_dir: Path) -> Iterator[Engine]:
    with open_engine(open_dir / "cdc-job", ["Shop"], "a-Password-1") as opened:
        yield opened


@pytest.fixture
def shop(engine: Engine) -> Iterator[Shop]:
    session = engine.open_session(login="sa", password="a-Password-1", database="Shop", application="test")
    with connect(engine.conninfo) as sql:
        made = Shop(engine, session, sql)
        made.run(
            "EXEC sys.sp_cdc_enable_db",
            "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v varchar(10))",
            "EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL",
            "EXEC sys.sp_cdc_stop_job",
        )
        yield made
        made.run("DROP TABLE dbo.t", "EXEC sys.sp_cdc_disable_db")
    session.close()


def test_scans_by_hand_use_one_connection_until_its_process_ends(shop: Shop) -> None:
    def kept() -> int:
        with shop.engine.scan_connections.lend() as connection:
            return connection.info.backend_pid

    shop.run("INSERT dbo.t VALUES (1, 'a')", "EXEC sys.sp_cdc_scan")
    process = kept()
    shop.run("INSERT dbo.t VALUES (2, 'b')", "EXEC emulator.run_capture")
    assert kept() == process
    # It marks no transactions as those of this database any more: a capture job would be refused otherwise.
    Capture(shop.engine.conninfo, shop.database_id).close()
    shop.sql.execute(f"SELECT pg_terminate_backend({process}, 10000)".encode())
    shop.run("INSERT dbo.t VALUES (3, 'c')", "EXEC sys.sp_cdc_scan")
    assert kept() != process
    assert [row[1] for row in shop.changes()] == [1, 2, 3]


def test_idle_row_marks_how_far_the_log_was_read_after_300_seconds(shop: Shop) -> None:
    """G47; docs/reference/sqlserver_cdc.md, "Time mapping"."""
    capture = shop.capture()
    try:
        shop.run("INSERT dbo.t VALUES (1, 'a')")
        assert capture.scan(500).transactions == 1
        assert not capture.write_idle_row()
        shop.sql.execute(b"UPDATE \"Shop.cdc\".lsn_time_mapping SET tran_end_time = tran_end_time - interval '301 s'")
        capture.scan(500)
        assert capture.write_idle_row()
        assert not capture.write_idle_row()
        newest = shop.run("SELECT TOP 1 start_lsn, tran_id FROM cdc.lsn_time_mapping ORDER BY start_lsn DESC")
        assert newest[0][1] == b"\0"
        assert shop.run("SELECT sys.fn_cdc_get_max_lsn()") == [(newest[0][0],)]
        shop.run("INSERT dbo.t VALUES (2, 'b')")
        capture.scan(500)
        assert shop.run("SELECT MAX([__$start_lsn]) FROM cdc.dbo_t_CT")[0][0] > newest[0][0]
    finally:
        capture.close()


def test_scan_takes_no_more_than_maxtrans_transactions(shop: Shop) -> None:
    shop.run(*(f"INSERT dbo.t VALUES ({i}, 'a')" for i in range(7)))
    capture = shop.capture()
    try:
        assert [capture.scan(3).transactions for _ in range(3)] == [3, 3, 1]
        assert [row[1] for row in shop.changes()] == list(range(7))
    finally:
        capture.close()


def test_change_table_that_has_grown_has_the_statistics_of_its_rows(shop: Shop) -> None:
    """Without them, a plan may read what is joined to the changes once for each of them: a SQL Server would know."""
    capture = shop.capture()
    try:
        (table,) = read_instances(runner(shop.sql), capture.database).values()
        known = f"SELECT reltuples::int FROM pg_class WHERE oid = '{table.instances[0].change_table}'::regclass"
        rows = (
            "SELECT {0} + ROW_NUMBER() OVER (ORDER BY a.object_id), 'a' FROM sys.objects a CROSS JOIN sys.all_columns b"
        )
        for first, expected in ((0, 6000), (10_000, 12_000), (20_000, 12_000)):
            shop.run(f"INSERT dbo.t SELECT TOP 6000 {rows.removeprefix('SELECT ').format(first)}")
            while not capture.scan(500).drained:
                pass
            assert runner(shop.sql)(known) == [(expected,)]
    finally:
        capture.close()


def test_job_takes_maxtrans_transactions_maxscans_times_and_then_waits(shop: Shop) -> None:
    """See docs/reference/sqlserver_cdc.md, "Capture and cleanup jobs": what is left stays in the log until the polling
    interval is over."""
    shop.run(
        "EXEC sys.sp_cdc_change_job @maxtrans = 2, @maxscans = 2",
        *(f"INSERT dbo.t VALUES ({i}, 'a')" for i in range(10)),
    )
    (job,) = list_jobs(runner(shop.sql), shop.database_id)[:1]
    process = JobProcess(job, shop.engine.conninfo, 86_400.0, {}, on_end=lambda: None)
    try:
        wait_until(lambda: len(shop.changes()) >= 4)
        for captured in (8, 10):
            assert process.send_settings({"delay_seconds": 0}, 60)  # which also ends the waiting
            assert len(shop.changes()) == captured
    finally:
        process.ask_to_end()
        process.process.wait(60)
        process.forget()
    sessions = "SELECT tran_count FROM sys.dm_cdc_log_scan_sessions WHERE session_id > 0 ORDER BY session_id"
    assert [count for (count,) in shop.run(sessions) if count][-5:] == [2] * 5


class _EndingProcess:
    """The process of a job that was dropped, at a database that had the same number; it takes its time to end."""

    stopping = True

    def __init__(self, job: Job) -> None:
        self.job = job
        self.process = self

    def poll(self) -> None:
        return None

    def report(self, _reported: object, _limit_seconds: float) -> bool:
        return False


def test_job_gets_settings_while_that_of_a_dropped_database_with_its_number_still_ends(
    shop: Shop, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = find_job(runner(shop.sql), shop.database_id, CAPTURE)
    assert job is not None
    running: dict[str, Any] = engine.supervisor._running
    gone = uuid.uuid4().hex

    def answers() -> bool:
        """Return whether the job runs and has ended a scan. That of the enabled table may still be about to stop."""
        process = running.get(job.job_id)
        return process is not None and not process.stopping and process.send_settings({}, 60)

    with monkeypatch.context() as context:
        context.setitem(running, gone, _EndingProcess(replace(job, job_id=gone)))
        shop.run("EXEC sys.sp_cdc_start_job")
        wait_until(answers)
        try:
            shop.run("EXEC emulator.delay_capture @seconds = 3600", "INSERT dbo.t VALUES (1, 'a')")
            wait_until(answers)
            assert shop.changes() == []
        finally:
            shop.run("EXEC emulator.clear_faults")
    wait_until(lambda: shop.changes() == [(2, 1, "a")])
    shop.run("EXEC sys.sp_cdc_stop_job")


def test_reader_that_did_not_store_is_read_again(shop: Shop) -> None:
    """A reader that received everything and died before its commit."""
    shop.run("INSERT dbo.t VALUES (1, 'a')")
    first = shop.capture()
    first._taker.begin_scan(500, first_session())
    wait_until(lambda: _received(first))
    first._connection.rollback()
    first.close()
    second = shop.capture()
    try:
        assert second.scan(500).transactions == 1
        assert shop.changes() == [(2, 1, "a")]
    finally:
        second.close()


def first_session() -> Any:
    from sqlserver_emulator.cdc.scan.scan_sessions import ScanSession

    return ScanSession()


def _received(capture: Capture) -> bool:
    capture._taker.add_messages(capture._reader.receive(0.05))
    capture._taker.take()
    return capture._taker.scan_transactions == 1


def test_cleanup_job_keeps_the_retention(shop: Shop) -> None:
    """See docs/reference/sqlserver_cdc.md, "Capture and cleanup jobs"."""
    capture = shop.capture()
    for i in range(3):
        shop.run(f"INSERT dbo.t VALUES ({i}, 'a')")
        capture.scan(500)
    capture.close()
    shop.sql.execute(
        b"UPDATE \"Shop.cdc\".lsn_time_mapping SET tran_end_time = tran_end_time - interval '2 h' WHERE start_lsn <"
        b' (SELECT max("__$start_lsn") FROM "Shop.cdc"."dbo_t_CT")'
    )
    shop.run("EXEC sys.sp_cdc_change_job N'cleanup', @retention = 60, @threshold = 1")
    job = find_job(runner(shop.sql), shop.database_id, CLEANUP)
    assert job is not None
    run_cleanup_job(shop.sql, job)
    # The mark is the newest entry that is older than the retention: it stays, what is below it goes.
    assert [row[1] for row in shop.changes()] == [1, 2]
    low, first = shop.run("SELECT sys.fn_cdc_get_min_lsn(N'dbo_t'), (SELECT MIN(start_lsn) FROM cdc.lsn_time_mapping)")[
        0
    ]
    assert low == first
    finished = (
        "SELECT a.stop_execution_date FROM msdb.dbo.sysjobactivity a JOIN msdb.dbo.cdc_jobs j ON j.job_id = a.job_id"
        " WHERE j.job_type = N'cleanup' AND a.stop_execution_date >= a.start_execution_date"
    )
    wait_until(lambda: shop.run(finished) != [])  # enabling the first table has started it, too
    shop.run("EXEC sys.sp_cdc_start_job N'cleanup'")
    wait_until(lambda: shop.run(finished) != [])


def test_failing_scan_is_shown_and_nothing_is_lost_when_the_cause_is_gone(shop: Shop) -> None:
    """See docs/reference/sqlserver_cdc.md, "DDL": narrowing can break capture."""
    shop.run("INSERT dbo.t VALUES (1, 'long value')", "DELETE dbo.t", "EXEC sys.sp_cdc_scan")
    shop.run("ALTER TABLE dbo.t ALTER COLUMN v int", "INSERT dbo.t VALUES (2, 5)")
    shop.run("EXEC sys.sp_cdc_start_job")
    wait_until(lambda: shop.run("SELECT error_number FROM sys.dm_cdc_errors") != [])
    shop.sql.execute(b'DELETE FROM "Shop.cdc"."dbo_t_CT"')
    stored = b'SELECT "__$operation", id, v::text FROM "Shop.cdc"."dbo_t_CT"'
    wait_until(lambda: shop.sql.execute(stored, prepare=False).fetchall() == [(2, 2, "5")])


@pytest.mark.parametrize(
    ("declared", "value", "altered", "cause"),
    [
        ("varchar(20)", "'long value'", "varchar(3)", 2628),
        ("int", "100000", "smallint", 8115),
        ("decimal(9, 2)", "100000", "decimal(4, 2)", 8115),
        ("varchar(20)", "'long value'", "int", 245),
    ],
)
def test_change_table_that_cannot_take_a_new_type_says_so_by_number(
    shop: Shop, declared: str, value: str, altered: str, cause: int
) -> None:
    """See docs/reference/sqlserver_cdc.md, "DDL": stored rows are converted by the capture job, long after the
    statement succeeded."""
    shop.run(
        f"CREATE TABLE dbo.x (id int NOT NULL PRIMARY KEY, v {declared})",
        "EXEC sys.sp_cdc_enable_table N'dbo', N'x', @role_name = NULL",
        f"INSERT dbo.x VALUES (1, {value})",
        "DELETE dbo.x",
        "EXEC sys.sp_cdc_scan",
        f"ALTER TABLE dbo.x ALTER COLUMN v {altered}",
    )
    with pytest.raises(SqlServerError) as failed:
        shop.run("EXEC sys.sp_cdc_scan")
    assert failed.value.number == 22976
    reported = shop.run("SELECT error_number, error_message FROM sys.dm_cdc_errors")
    assert sorted(number for number, _ in reported) == [cause, 22976]
    failures = "SELECT error_count FROM sys.dm_cdc_log_scan_sessions WHERE error_count > 0 AND session_id > 0"
    assert shop.run(failures) == [(2,)]
    shop.run("DROP TABLE dbo.x")


@pytest.mark.parametrize(
    ("statement", "update", "expected"),
    [
        ("UPDATE", "SET id = id", [(1, 1), (2, 1), (1, 2), (2, 2)]),
        ("UPDATE", "SET id = id WHERE id = 1", []),
        ("UPDATE", "SET id = id, v = 'b' WHERE id = 1", [(3, 1), (4, 1)]),
        ("MERGE", "SET id = id WHERE id = 1", [(1, 1), (2, 1)]),
    ],
)
def test_statement_that_assigns_a_key_is_deferred_when_a_merge_or_of_many_rows(
    shop: Shop, statement: str, update: str, expected: list[tuple[int, int]]
) -> None:
    """See docs/reference/sqlserver_cdc.md, "Row shapes" and G05, on the messages that the engine puts into the log."""
    shop.run("INSERT dbo.t VALUES (1, 'a'), (2, 'a')")
    ((table,),) = shop.run("SELECT OBJECT_ID('dbo.t')")
    with shop.sql.transaction():
        shop.sql.execute(
            b"SELECT pg_logical_emit_message(true, 'deferred', $1::text)",
            (json.dumps({"object_id": table, "statement": statement}),),
        )
        shop.sql.execute(f'UPDATE "Shop.dbo".t {update}'.encode())
        shop.sql.execute(b"SELECT pg_logical_emit_message(true, 'deferred', '{\"object_id\": 0}')")
        shop.sql.execute(b"UPDATE \"Shop.dbo\".t SET v = 'z' WHERE id = 2")
    shop.run("EXEC sys.sp_cdc_scan")
    assert [row[:2] for row in shop.changes()[2:]] == [*expected, (3, 2), (4, 2)]


def test_cleanup_waits_for_sessions_that_drop_instances_and_holds_nothing_that_they_need(shop: Shop) -> None:
    """Whatever else they had read before would make a deadlock of it."""
    job = find_job(runner(shop.sql), shop.database_id, CLEANUP)
    assert job is not None
    waits = "SELECT 1 FROM pg_locks WHERE relation = '\"Shop.cdc\".change_tables'::regclass AND NOT granted"
    with connect(shop.engine.conninfo) as cleaning, connect(shop.engine.conninfo) as dropping:
        with dropping.transaction():
            dropping.execute(b'LOCK TABLE "Shop.cdc".change_tables IN EXCLUSIVE MODE')
            thread = threading.Thread(target=run_cleanup_job, args=(cleaning, job))
            thread.start()
            wait_until(lambda: runner(shop.sql)(waits, ()) != [])
            dropping.execute(b'LOCK TABLE "Shop.cdc".lsn_time_mapping IN ACCESS EXCLUSIVE MODE NOWAIT')
        thread.join()


def test_slot_of_a_rolled_back_enabling_is_dropped_and_a_running_one_is_not(shop: Shop) -> None:
    session = shop.engine.open_session(login="sa", password="a-Password-1", database="master", application="test")
    other = Shop(shop.engine, session, shop.sql)
    other.run("CREATE DATABASE Abandoned", "USE Abandoned", "BEGIN TRAN", "EXEC sys.sp_cdc_enable_db")
    wait_until(lambda: _slots_after_dropping(shop) == 2)
    assert _slots_after_dropping(shop) == 2
    other.run("ROLLBACK")
    wait_until(lambda: _slots_after_dropping(shop) == 1)
    other.run("USE master", "DROP DATABASE Abandoned")
    session.close()


def _slots_after_dropping(shop: Shop) -> int:
    """The supervisor drops slots too: one that it has locked is passed over here."""
    drop_abandoned(runner(shop.sql))
    ((count,),) = runner(shop.sql)(
        "SELECT count(*) FROM pg_replication_slots WHERE slot_name <> $1::text::name", (SPARE_SLOT,)
    )
    return int(count)


def test_slot_that_another_session_drops_at_the_same_time_is_passed_over(shop: Shop) -> None:
    run = runner(shop.sql)
    with connect(shop.engine.conninfo) as enabling:
        enabling.execute("BEGIN")
        name = create_slot(runner(enabling), shop.engine.conninfo, shop.database_id)
        asked: list[str] = []

        def run_late(sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
            if "pg_try_advisory_lock" in sql and name not in asked:
                asked.append(name)
                enabling.execute("ROLLBACK")
                wait_until(lambda: _slots_after_dropping(shop) == 1)
            return run(sql, parameters)

        drop_abandoned(run_late)
        assert asked == [name]


def test_two_databases_see_their_own_changes_only(shop: Shop) -> None:
    session = shop.engine.open_session(login="sa", password="a-Password-1", database="master", application="test")
    other = Shop(shop.engine, session, shop.sql)
    other.run(
        "CREATE DATABASE Second",
        "USE Second",
        "EXEC sys.sp_cdc_enable_db",
        "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v varchar(10))",
        "EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL",
        "EXEC sys.sp_cdc_stop_job",
        "BEGIN TRAN; INSERT Shop.dbo.t VALUES (1, 'shop'); INSERT Second.dbo.t VALUES (2, 'second'); COMMIT",
        "EXEC sys.sp_cdc_scan",
    )
    shop.run("EXEC sys.sp_cdc_scan")
    assert (shop.changes(), other.changes()) == ([(2, 1, "shop")], [(2, 2, "second")])
    lsn = "SELECT MAX([__$start_lsn]) FROM cdc.dbo_t_CT"
    assert shop.run(lsn) == other.run(lsn)
    other.run("USE master", "DROP DATABASE Second")
    session.close()


def test_reading_while_captured_never_sees_a_commit_below_an_observed_maximum(shop: Shop) -> None:
    """See docs/reference/sqlserver_cdc.md, "Time mapping": what is below max_lsn is complete."""
    shop.run("EXEC sys.sp_cdc_start_job")
    ended = threading.Event()

    def write() -> None:
        session = shop.engine.open_session(login="sa", password="a-Password-1", database="Shop", application="writer")
        writer, number = Shop(shop.engine, session, shop.sql), 0
        while not ended.is_set():
            number += 1
            writer.run(f"INSERT dbo.t VALUES ({number}, 'a')")
        session.close()

    thread = threading.Thread(target=write)
    thread.start()
    seen: dict[bytes, int] = {}
    try:
        count = "SELECT COUNT(*) FROM cdc.dbo_t_CT WHERE [__$start_lsn] <= {0}"
        wait_until(lambda: len(shop.changes()) > 5)
        while len(seen) < 5:
            ((high,),) = shop.run("SELECT sys.fn_cdc_get_max_lsn()")
            seen.setdefault(high, shop.run(count.format(f"0x{high.hex()}"))[0][0])
    finally:
        ended.set()
        thread.join()
    for high, rows in seen.items():
        assert shop.run(count.format(f"0x{high.hex()}")) == [(rows,)]


def test_unchanged_instances_are_read_as_they_were_made(shop: Shop) -> None:
    capture = shop.capture()
    try:
        (table,) = read_instances(runner(shop.sql), capture.database).values()
        assert table.key_columns == {"id"}
        assert [(c.name, c.ordinal, c.type_name) for c in table.instances[0].columns] == [
            ("id", 1, "int"),
            ("v", 2, "varchar"),
        ]
    finally:
        capture.close()
