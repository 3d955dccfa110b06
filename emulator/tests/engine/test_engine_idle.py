"""An emulator without clients sleeps, and wakes at once for what concerns it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cdc_database import wait_until
from engine_client import Client
from sqlserver_emulator.assembly.factory import Engine
from sqlserver_emulator.cdc.agent import supervisor
from sqlserver_emulator.engine.connection.notifications import Notifications

_SLEEPERS = {"catalog-listener", "cdc-agent", "tracking-cleanup"}
_CLEANUPS = (
    "SELECT COUNT(*) FROM msdb.dbo.sysjobhistory h JOIN msdb.dbo.cdc_jobs j ON j.job_id = h.job_id"
    " WHERE j.job_type = 'cleanup' AND j.database_id = DB_ID() AND h.step_id = 0"
)


def test_threads_of_an_idle_engine_sleep(engine: Engine, client: Client) -> None:
    before = _switches()
    assert set(before) >= _SLEEPERS
    client.run("WAITFOR DELAY '00:00:03'")
    woken = {name: count - before[name] for name, count in _switches().items()}
    # One round of the agent may be among them, whose statements wait for PostgreSQL.
    assert woken["cdc-agent"] < 60
    assert woken["catalog-listener"] <= 2
    assert woken["tracking-cleanup"] <= 2


@pytest.fixture
def no_rounds(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The agent's rounds, which see everything, are an hour from each other."""
    monkeypatch.setattr(supervisor, "_UPKEEP_SECONDS", 3600.0)
    _begin_round(engine)
    wait_until(lambda: engine.supervisor._next_upkeep > 0)
    yield
    monkeypatch.undo()
    _begin_round(engine)


def _begin_round(engine: Engine) -> None:
    engine.supervisor._next_upkeep = 0.0
    engine.supervisor._wake()


@pytest.mark.usefixtures("no_rounds")
def test_agent_starts_a_killed_job_again_at_once(engine: Engine, client: Client) -> None:
    client.run("EXEC sys.sp_cdc_enable_db")
    client.run("CREATE TABLE dbo.idle (id int PRIMARY KEY)")
    client.run("EXEC sys.sp_cdc_enable_table N'dbo', N'idle', @role_name = NULL")
    running = engine.supervisor._running
    wait_until(lambda: len(running) == 1)
    (job_id, process) = next(iter(running.items()))
    try:
        assert process.send_settings({}, 60)  # the round that started it is over
        process.process.kill()
        wait_until(lambda: running.get(job_id, process) is not process)
    finally:
        client.run("EXEC sys.sp_cdc_disable_db")


@pytest.mark.usefixtures("no_rounds")
def test_agent_cleans_at_once_when_the_clock_is_moved(engine: Engine, client: Client) -> None:
    client.run("EXEC sys.sp_cdc_enable_db")
    client.run("CREATE TABLE dbo.moved (id int PRIMARY KEY)")
    client.run("EXEC sys.sp_cdc_enable_table N'dbo', N'moved', @role_name = NULL")
    try:
        wait_until(lambda: client.value(_CLEANUPS) == 1)  # the one that enabling the first table begins
        for expected in (2, 3):
            engine.clock.advance(86_400.0)
            wait_until(lambda expected=expected: client.value(_CLEANUPS) == expected)
    finally:
        engine.clock.reset()
        client.run("EXEC sys.sp_cdc_disable_db")


@pytest.mark.usefixtures("no_rounds")
def test_run_is_due_as_soon_as_the_one_before_has_an_outcome(
    engine: Engine, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread of a cleanup lives on for a moment after its outcome is to be seen."""
    due = engine.supervisor._next_cleanup

    def clean_and_wait(*arguments: Any) -> bool:
        has_ended = supervisor_clean(*arguments)
        wait_until(lambda: engine.supervisor._next_cleanup > due)
        return has_ended

    supervisor_clean = supervisor.run_cleanup_job
    monkeypatch.setattr(supervisor, "run_cleanup_job", clean_and_wait)
    client.run("EXEC sys.sp_cdc_enable_db")
    client.run("CREATE TABLE dbo.due (id int PRIMARY KEY)")
    client.run("EXEC sys.sp_cdc_enable_table N'dbo', N'due', @role_name = NULL")
    try:
        wait_until(lambda: client.value(_CLEANUPS) == 1)
        engine.clock.advance(86_400.0)
        wait_until(lambda: client.value(_CLEANUPS) == 2)
    finally:
        engine.clock.reset()
        client.run("EXEC sys.sp_cdc_disable_db")


@pytest.fixture
def listening(engine: Engine) -> Iterator[psycopg.Connection]:
    with psycopg.connect(engine.conninfo, autocommit=True) as connection:
        connection.execute("LISTEN idle_test")
        yield connection


@pytest.fixture
def notifications(listening: psycopg.Connection) -> Iterator[Notifications]:
    """Close them also after a failure: a socket left open would fail a later test."""
    with closing(Notifications(listening)) as notifications:
        yield notifications


def test_notification_ends_the_wait(engine: Engine, notifications: Notifications) -> None:
    with _waiting(notifications) as answers:
        _notify(engine)
        wait_until(lambda: answers == [True])


def test_notification_that_came_with_a_statement_is_not_lost(
    engine: Engine, listening: psycopg.Connection, notifications: Notifications
) -> None:
    _notify(engine)
    listening.execute("SELECT 1")
    with _waiting(notifications) as answers:
        wait_until(lambda: answers == [True])


def test_several_notifications_are_one(engine: Engine, notifications: Notifications) -> None:
    _notify(engine, "one", "two", "three")
    assert notifications.wait(60)
    assert not notifications.wait(0)


def test_wake_ends_the_wait_without_a_notification(notifications: Notifications) -> None:
    with _waiting(notifications) as answers:
        notifications.wake()
        wait_until(lambda: answers == [False])


def test_wakes_before_the_wait_are_one_and_never_block(notifications: Notifications) -> None:
    for _ in range(4):
        notifications.wake()
    assert not notifications.wait()
    for _ in range(100_000):  # more than the socket holds
        notifications.wake()
    assert not notifications.wait()
    notifications.close()
    notifications.wake()


def test_wait_ends_with_the_server_s_session(
    engine: Engine, listening: psycopg.Connection, notifications: Notifications
) -> None:
    with psycopg.connect(engine.conninfo, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (listening.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        while not notifications.wait(60):
            continue


def _notify(engine: Engine, *payloads: str) -> None:
    """Notify in one transaction, whose notifications reach the listener together."""
    with psycopg.connect(engine.conninfo) as other:
        for payload in payloads or ("",):
            other.execute("SELECT pg_notify('idle_test', %s)", (payload,))


@contextmanager
def _waiting(notifications: Notifications) -> Iterator[list[bool]]:
    """Wait in a thread; yields what the wait answers."""
    answers: list[bool] = []
    thread = threading.Thread(target=_into(answers, notifications), daemon=True)
    thread.start()
    try:
        yield answers
    finally:
        notifications.wake()
        thread.join(60)


def _into(answers: list[bool], notifications: Notifications) -> Callable[[], None]:
    return lambda: answers.append(notifications.wait())


def _switches() -> dict[str, int]:
    """Return how often each thread has gone to sleep so far."""
    found = {}
    for thread in threading.enumerate():
        status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("voluntary_ctxt_switches")]
        found[thread.name] = int(line.split()[1])
    return found
