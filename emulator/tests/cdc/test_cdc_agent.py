"""The agent, where one of its checks fails: it continues, as all capture jobs would be stopped without it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cdc_database import wait_until
from sqlserver_emulator.assembly.factory import Engine, open_engine
from sqlserver_emulator.cdc.jobs import is_agent_running
from sqlserver_emulator.cdc.log.reader import LogReader
from sqlserver_emulator.cdc.log.slots import SPARE_SLOT, keep_spare
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.cdc.postgres import connect, runner
from sqlserver_emulator.events import ErrorRaised, Rows

LOGGED = "SELECT pg_logical_emit_message(false, 'test', repeat('x', 3000000), true)"
_PLACE = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1::text::name"


@pytest.fixture(scope="module")
def engine(open_dir: Path) -> Iterator[Engine]:
    with open_engine(open_dir / "agent", ["Shop"], "a-Password-1") as opened:
        yield opened


@pytest.fixture
def run(engine: Engine) -> Iterator[Run]:
    with connect(engine.conninfo) as sql:
        yield runner(sql)


def test_spare_slot_that_another_process_moves_is_left_alone(engine: Engine, run: Run) -> None:
    before = run(_PLACE, (SPARE_SLOT,))
    run(LOGGED, ())
    with closing(LogReader(engine.conninfo, slot=SPARE_SLOT, publication="none", after_position=0)):
        keep_spare(run)
        assert run(_PLACE, (SPARE_SLOT,)) == before
    # Its process at the server lives on for a moment.
    wait_until(lambda: run("SELECT active FROM pg_replication_slots WHERE slot_name = $1", (SPARE_SLOT,)) == [(False,)])
    keep_spare(run)
    assert run(_PLACE, (SPARE_SLOT,)) != before


def test_agent_outlives_a_check_that_fails(engine: Engine, run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    session = engine.open_session(login="sa", password="a-Password-1", database="Shop", application="test")

    def rows(batch: str) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for event in session.run_batch(batch):
            if isinstance(event, ErrorRaised):
                raise event.error
            if isinstance(event, Rows):
                found += event.rows
        return found

    rows("EXEC sys.sp_cdc_enable_db")
    rows("CREATE TABLE dbo.t (id int PRIMARY KEY)")
    said: list[str] = []
    run("ALTER TABLE emulator.cdc_jobs RENAME TO cdc_jobs_elsewhere", ())
    try:
        wait_until(lambda: said.append(capfd.readouterr().err) or "the agent will try again" in "".join(said))
    finally:
        run("ALTER TABLE emulator.cdc_jobs_elsewhere RENAME TO cdc_jobs", ())
    rows("EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL; INSERT dbo.t VALUES (1)")
    wait_until(lambda: rows("SELECT id FROM cdc.dbo_t_CT") == [(1,)])
    session.close()


def test_agent_that_was_stopped_is_seen_as_stopped_at_once(engine: Engine, run: Run) -> None:
    for _ in range(5):
        engine.supervisor.stop()
        assert not is_agent_running(run)
        engine.supervisor.start()
        assert is_agent_running(run)


def test_agent_whose_statement_waits_for_a_client_ends(engine: Engine, run: Run) -> None:
    waits = "SELECT count(*)::int FROM pg_locks WHERE NOT granted AND relation = 'emulator.cdc_job_activity'::regclass"
    with connect(engine.conninfo) as other:
        client = runner(other)
        client("BEGIN", ())
        client("LOCK TABLE emulator.cdc_job_activity IN ACCESS EXCLUSIVE MODE", ())
        wait_until(lambda: run(waits, ()) == [(1,)])
        ended = threading.Thread(target=engine.supervisor.stop, daemon=True)
        ended.start()
        ended.join(20)
        client("ROLLBACK", ())
    assert not ended.is_alive()
    wait_until(lambda: not is_agent_running(run))
    engine.supervisor.start()
