"""Kill the capture job, or everything, at any moment: after a restart no change is lost and none is there twice."""

from __future__ import annotations

import itertools
import random
import threading
from pathlib import Path

import psutil
import pymssql

from cdc_database import CdcDatabase, wait_until
from emulator_process import Emulator, capture_jobs, kill_family, running_emulator

_SEED = 4711
_markers = itertools.count(1_000_000_000)


class Writer:
    """Writes transactions of several rows until it is stopped, or until the server is gone."""

    def __init__(self, emulator: Emulator, first_id: int = 1) -> None:
        self._emulator = emulator
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.next_id = first_id

    def _run(self) -> None:
        random_ = random.Random(_SEED + self.next_id)
        try:
            with self._emulator.connect_pymssql("Crash", autocommit=True) as connection, connection.cursor() as cursor:
                while not self._ended.is_set():
                    cursor.execute(_transaction(random_, self.next_id))
                    self.next_id += 2
        except pymssql.Error:
            return  # killed with its server

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def _transaction(random_: random.Random, row_id: int) -> str:
    """Two rows, a change of an older one, now and then a deleted or a moved one; some roll back."""
    older = random_.randrange(1, row_id + 1)
    statements = [f"INSERT dbo.t VALUES ({row_id}, 'a'), ({row_id + 1}, 'b')"]
    statements.append(f"UPDATE dbo.t SET v = v + 'x' WHERE id = {older}")
    if random_.random() < 0.2:
        statements.append(f"DELETE dbo.t WHERE id = {older}")
    end = "ROLLBACK" if random_.random() < 0.1 else "COMMIT"
    return f"BEGIN TRAN; {'; '.join(statements)}; {end}"


def _database(emulator: Emulator) -> CdcDatabase:
    return CdcDatabase("Crash", emulator.connect_pymssql("Crash", autocommit=True))


def _prepare(emulator: Emulator) -> CdcDatabase:
    database = _database(emulator)
    database.run(
        "EXEC sys.sp_cdc_enable_db",
        "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v varchar(2000))",
        "EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL",
    )
    return database


def _assert_captured_exactly_once(database: CdcDatabase) -> None:
    """The change table, replayed, is the table; and no change is in it twice."""
    marker = next(_markers)
    database.run(f"INSERT dbo.t VALUES ({marker}, 'end')")
    wait_until(lambda: database.query(f"SELECT id FROM cdc.dbo_t_CT WHERE id = {marker}") != [], 60.0)
    replayed: dict[int, str] = {}
    for row in database.change_table("dbo_t"):
        if row["__$operation"] in (1, 3):
            assert replayed.pop(row["id"]) == row["v"]
        else:
            assert row["id"] not in replayed
            replayed[row["id"]] = row["v"]
    assert replayed == {row["id"]: row["v"] for row in database.query("SELECT id, v FROM dbo.t")}
    entries = database.query("SELECT start_lsn FROM cdc.lsn_time_mapping WHERE tran_id <> 0x00 ORDER BY start_lsn")
    commits = database.query("SELECT DISTINCT [__$start_lsn] AS start_lsn FROM cdc.dbo_t_CT ORDER BY 1")
    assert entries == commits
    database.run(f"DELETE dbo.t WHERE id = {marker}")


def test_capture_job_killed_over_and_over_loses_and_doubles_nothing(open_dir: Path) -> None:
    random_ = random.Random(_SEED)
    arguments = ("--capture-interval", "0.02", "--log-level", "error")
    with running_emulator(open_dir / "crash-job", *arguments, databases=("Crash",)) as emulator:
        database = _prepare(emulator)
        with Writer(emulator):
            for _ in range(4):
                wait_until(lambda: capture_jobs(emulator) != [])
                threading.Event().wait(random_.uniform(0.3, 1.2))
                for job in capture_jobs(emulator):
                    job.kill()
                    job.wait()
        _assert_captured_exactly_once(database)


def test_everything_killed_and_restarted_loses_and_doubles_nothing(open_dir: Path) -> None:
    random_ = random.Random(_SEED)
    folder = open_dir / "crash-all"
    for round_ in range(2):
        with running_emulator(folder, "--capture-interval", "0.02", databases=("Crash",)) as emulator:
            database = _prepare(emulator) if round_ == 0 else _database(emulator)
            if round_:
                _assert_captured_exactly_once(database)
            (last,) = database.query("SELECT COALESCE(MAX(id), 0) AS id FROM dbo.t WHERE id < 1000000000")
            with Writer(emulator, last["id"] + 1):
                threading.Event().wait(random_.uniform(0.5, 2.0))
                kill_family(emulator)
    with running_emulator(folder, "--capture-interval", "0.02", databases=("Crash",)) as emulator:
        _assert_captured_exactly_once(_database(emulator))


def test_capture_jobs_end_with_their_server(open_dir: Path) -> None:
    with running_emulator(open_dir / "crash-orphan", databases=("Crash",)) as emulator:
        _prepare(emulator)
        wait_until(lambda: capture_jobs(emulator) != [])
        jobs = capture_jobs(emulator)
        emulator.process.kill()
        _, alive = psutil.wait_procs(jobs, timeout=30)
        assert not alive
