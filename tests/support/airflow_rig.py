"""A real Airflow over the sample database, with its processes at hand to be killed, and steps of a window held inside
the transaction that ends them, so that a kill surely hits there.

A trigger on ``floodmark.windows`` waits for a lock that the test has: the process that writes a state is held before
its commit. Another one keeps any watermark that moves back.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import psycopg

from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark_laptop.airflow import Airflow
from floodmark_laptop.main_job import BackgroundWorkload, create_shop, wait_for_capture
from floodmark_laptop.processes import end_session
from floodmark_laptop.stack import Stack
from torture_rig import CDC, PER_SECOND

DAG_ID = "cdc_shop"
LOAD_DAG_ID = "cdc_load_shop"
STATES = {"open_window": "planned", "load": "merged", "check": "checked", "advance": "advanced"}
"""Task -> the state that a window has when it is done."""
_LOCK = 7001
_LIMIT_SECONDS = 300.0
_TESTS = Path(__file__).parent
# What a killed scheduler or worker leaves is noticed after minutes by default. With Airflow's own settings:
_SOON = {
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "2",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
}
# By default each is parsed every half a minute.
_DAG_FILES_STAY = {"AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600"}
_POLICY = """
from datetime import timedelta

def task_policy(task):
    task.retry_delay = timedelta(seconds=1)
"""
# A task is forked from the scheduler: what that has imported, none of them imports again, which is half of its work.
_IMPORTED = """
import sys

if "scheduler" in sys.argv:
    import airflow.providers.microsoft.mssql.hooks.mssql
    import airflow.providers.postgres.hooks.postgres
    import floodmark.orchestration.dags
    import floodmark.orchestration.tasks
    import floodmark.postgres.ledger.ledger
    import floodmark.postgres.warehouse.warehouse
    import floodmark.sources.cdc.kind
    import floodmark.sources.cdc.source
"""
_WITHOUT_QUALITY = """
from types import SimpleNamespace
from floodmark.app.pipeline import Pipeline

Pipeline.quality = SimpleNamespace(check_window=lambda plan, counts: {})
"""
_GATES = f"""
CREATE SCHEMA test;
CREATE TABLE test.moved_back (pipeline text, source_name text, was bytea, became bytea);
CREATE FUNCTION test.wait() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    PERFORM pg_advisory_xact_lock_shared({_LOCK}, ascii(NEW.state));
    RETURN NEW;
END $$;
CREATE FUNCTION test.keep() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
    INSERT INTO test.moved_back VALUES (NEW.pipeline, NEW.source_name, OLD.watermark, NEW.watermark);
    RETURN NEW;
END $$;
CREATE TRIGGER wait BEFORE INSERT OR UPDATE OF state ON floodmark.windows FOR EACH ROW EXECUTE FUNCTION test.wait();
CREATE TRIGGER keep BEFORE UPDATE OF watermark ON floodmark.tables FOR EACH ROW
    WHEN (NEW.watermark IS NULL AND OLD.watermark IS NOT NULL OR NEW.watermark < OLD.watermark)
    EXECUTE FUNCTION test.keep();
"""


class AirflowRig:
    """with_spark: loads run in spark-submit and checks in Great Expectations, as for users; else both are replaced.

    with_triggerer: there is one to kill. No pipeline of the rig has a deadline, so that it has nothing to do.
    """

    def __init__(self, folder: Path, *, with_spark: bool, with_triggerer: bool) -> None:
        self._folder = folder
        self._with_spark = with_spark
        self._with_triggerer = with_triggerer
        # The schedule's hour ends ten minutes ago, so that no scheduled run comes in between.
        self.end = (datetime.now(UTC) - timedelta(minutes=10)).replace(second=0, microsecond=0)
        config = folder / "pipelines.yaml"
        schedule = f'source: shop\n    schedule: "{self.end.minute} * * * *"\n'
        config.write_text(CDC.config.replace("source: shop\n", schedule, 1))
        self.stack = Stack(folder / "s", print, seconds_between_captures=0.2, config_file=config)
        self._workload: BackgroundWorkload | None = None
        # Those of its schedulers: whatever they start stays in them.
        self._sessions: set[int] = set()
        self.past_lsns = ("", "")
        """What ``work_in_the_past`` did lies between them; hexadecimal digits."""

    @property
    def programs(self) -> Path:
        """The folder that has to be on the PATH."""
        return self._folder / "bin"

    @property
    def airflow(self) -> Airflow:
        return self.stack.airflow

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """The source's clock is hours behind at first; a workload writes until ``end_workload``."""
        with self.stack:
            self.set_clock(hours_ago=2)
            workload = create_shop(self.stack)
            self._prepare_warehouse()
            self._prepare_airflow()
            self.stack.start_airflow()
            self._workload = BackgroundWorkload(self.stack, workload, PER_SECOND)
            self._workload.start()
            self.airflow.wait_for_dag(DAG_ID)
            self.airflow.unpause(DAG_ID)
            yield

    def end_workload(self) -> None:
        """End the workload; what it has written is in the change tables when this returns."""
        assert self._workload is not None
        self._workload.finish()
        wait_for_capture(self.stack, self._workload.workload.mark_end())

    def set_clock(self, hours_ago: int) -> None:
        """Set the clock of the source into the hour of the schedule that ended so long before the last one."""
        at = (self.end - timedelta(hours=hours_ago, minutes=30)).astimezone().replace(tzinfo=None)
        self.source(f"EXEC emulator.set_clock @now = '{at.isoformat(timespec='seconds')}'")

    def work_in_the_past(self) -> None:
        """Changes in each of the two hours that ``backfill`` is about; from then on the clock is right."""
        self.set_clock(hours_ago=1)
        begin = self._captured_lsn()
        self.wait_for_work(40)
        self.set_clock(hours_ago=0)
        self.wait_for_work(40)
        self.past_lsns = (begin, self._captured_lsn())
        self.source("EXEC emulator.reset_clock")

    def _captured_lsn(self) -> str:
        with self.stack.connect_source() as connection, connection.cursor() as cursor:
            cursor.execute("EXEC emulator.run_capture")
            cursor.execute("SELECT CONVERT(varchar(20), sys.fn_cdc_get_max_lsn(), 2)")
            row = cursor.fetchone()
        assert row is not None
        return str(row[0])

    def wait_for_work(self, transactions: int) -> None:
        """Wait for that many transactions of the workload."""
        assert self._workload is not None
        workload = self._workload.workload
        enough = workload.transactions + transactions
        self.wait(lambda: workload.transactions >= enough, "the workload")

    def source(self, statement: str, database: str = "master") -> None:
        with self.stack.connect_source(database) as connection:
            connection.cursor().execute(statement)

    def warehouse(self, statement: str) -> list[tuple[Any, ...]]:
        with self.stack.connect_warehouse() as session:
            cursor = session.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        self.airflow.wait_for(condition, what, _LIMIT_SECONDS)

    def runs(self) -> list[str]:
        return [str(run["dag_run_id"]) for run in self.airflow.runs(DAG_ID)]

    def trigger(self) -> str:
        return self.airflow.trigger(DAG_ID)

    def reload(self, table: str) -> None:
        """Reload a table by the DAG of loads."""
        self.airflow.wait_for_dag(LOAD_DAG_ID)
        self.airflow.unpause(LOAD_DAG_ID)
        wanted = {"logical_date": None, "conf": {"table": table}}
        run = self.airflow.call("POST", f"/dags/{LOAD_DAG_ID}/dagRuns", wanted)
        self.wait_for_success(run["dag_run_id"], dag_id=LOAD_DAG_ID)

    def wait_for_success(self, *run_ids: str, dag_id: str = DAG_ID) -> None:
        """Wait until the runs have succeeded without anybody's help; processes of them may have been killed."""

        def succeeded() -> bool:
            states = {run["dag_run_id"]: run["state"] for run in self.airflow.runs(dag_id)}
            for run in run_ids:
                assert states[run] != "failed", self.airflow.task_states(dag_id, run)
            return all(states[run] == "success" for run in run_ids)

        self.wait(succeeded, f"{', '.join(run_ids)} to succeed")

    def wait_for_failure(self, run_id: str) -> None:
        def failed() -> bool:
            states = {run["dag_run_id"]: run["state"] for run in self.airflow.runs(DAG_ID)}
            assert states[run_id] != "success", self.airflow.task_states(DAG_ID, run_id)
            return bool(states[run_id] == "failed")

        self.wait(failed, f"{run_id} to fail")

    def running_tasks(self) -> dict[str, tuple[int, str]]:
        """Task id -> its process and its run, over all runs."""
        answer = self.airflow.call("GET", f"/dags/{DAG_ID}/dagRuns/~/taskInstances?state=running")
        return {task["task_id"]: (task["pid"], task["dag_run_id"]) for task in answer["task_instances"] if task["pid"]}

    def run_of(self, task: str) -> str:
        """That in which it is running."""
        return self.running_tasks()[task][1]

    def tries(self, run_id: str, task: str) -> int:
        """How many of them have begun."""
        found = self.airflow.call("GET", f"/dags/{DAG_ID}/dagRuns/{run_id}/taskInstances/{task}")
        number: int = found["try_number"]
        return number if found["state"] == "running" else number - 1

    def wait_for_try(self, run_id: str, task: str, number: int) -> None:
        self.wait(lambda: self.tries(run_id, task) >= number, f"try {number} of {task} to begin")

    @contextlib.contextmanager
    def gate(self, *tasks: str) -> Iterator[Gate]:
        """Closed for these tasks' last transactions, of whatever window, until it is opened."""
        with self.stack.connect_warehouse() as session:
            session.autocommit = True
            gate = Gate(self, session)
            for task in tasks:
                gate.close(task)
            yield gate

    def kill(self, victim: str, task: str | None = None) -> None:
        """victim: ``task``, the process that runs ``task``; ``worker``, the one that watches over it; ``scheduler``;
        ``machine``, the scheduler with all that it has started; or another one of Airflow's four. Without ``task``
        whatever runs now, which may be nothing."""
        self._sessions.add(self.airflow.child("scheduler").process.pid)
        running = self.running_tasks()
        assert task is None or task in running, f"{task} was to be killed; running: {running}"
        if victim in ("task", "worker"):
            for each in [task] if task else list(running)[:1]:
                self._kill_of(running[each][0], victim)
            return
        name = "scheduler" if victim == "machine" else victim
        child = self.airflow.child(name)
        if name == "scheduler":
            self._stop_inside_transaction(child.process)
        child.process.kill()
        child.process.wait()
        if victim == "machine":
            end_session(child.process.pid)
        self.airflow.start_again(name)
        if name == "api-server":
            self.airflow.wait_until_ready()

    def _stop_inside_transaction(self, scheduler: subprocess.Popen[bytes]) -> None:
        """Stop the scheduler while it holds locks of runs: its workers keep the connection, with these locks."""
        locks = (
            "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE state = 'idle in transaction' AND mode = 'RowShareLock' AND client_port IN ({})"
        )

        def stopped_inside() -> bool:
            scheduler.send_signal(signal.SIGSTOP)
            ports = [str(each.laddr.port) for each in psutil.Process(scheduler.pid).net_connections() if each.raddr]
            if ports and self.warehouse(locks.format(", ".join(ports))):
                return True
            scheduler.send_signal(signal.SIGCONT)
            return False

        deadline = time.monotonic() + _LIMIT_SECONDS
        while not stopped_inside():
            assert time.monotonic() < deadline, "the scheduler was never seen inside a transaction"
            time.sleep(random.uniform(0.01, 0.1))

    def _kill_of(self, pid: int, victim: str) -> None:
        """It may have ended by itself, and its worker before it: then its parent is nobody of ours."""
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            process = psutil.Process(pid)
            killed = (process.parent() or process) if victim == "worker" else process
            if os.getsid(killed.pid) in self._sessions:
                killed.kill()

    def loads_at_work(self) -> list[int]:
        """Return the processes of loads, no matter which process started them."""
        config = str(self._folder / "pipelines.yaml")
        found = ((process.pid, process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
        return [pid for pid, words in found if "--window-id" in words and config in words]

    def backfill(self, **options: object) -> None:
        """Create a backfill of the last two hours of the schedule, with options of Airflow's REST call."""
        hours = [(self.end - timedelta(hours=ago)).isoformat() for ago in (2, 1)]
        wanted = {"dag_id": DAG_ID, "from_date": hours[0], "to_date": hours[1], "reprocess_behavior": "completed"}
        self.airflow.call("POST", "/backfills", wanted | options)

    def may_backfill(self) -> bool:
        """Return whether no backfill is left; Airflow checks that every half a minute, and has one at a time."""
        backfills = self.airflow.call("GET", f"/backfills?dag_id={DAG_ID}")["backfills"]
        return all(each["completed_at"] for each in backfills)

    def backfill_runs(self) -> list[str]:
        """Return the runs that are, or were made, runs of a backfill."""
        return [str(run["dag_run_id"]) for run in self.airflow.runs(DAG_ID) if run["run_type"] == "backfill"]

    def logs(self, task: str) -> str:
        """Return the logs of all tries of all runs."""
        folder = self.stack.logs_dir / "tasks" / f"dag_id={DAG_ID}"
        return "\n".join(path.read_text(errors="replace") for path in sorted(folder.glob(f"*/task_id={task}/*.log")))

    def _prepare_warehouse(self) -> None:
        PostgresLedger(WarehouseConnection(**self.stack.warehouse_address)).ensure_schema()
        self.warehouse(_GATES)

    def _prepare_airflow(self) -> None:
        policy = self.airflow.home / "config" / "airflow_local_settings.py"
        policy.parent.mkdir(parents=True)
        policy.write_text(_POLICY + _IMPORTED + ("" if self._with_spark else _WITHOUT_QUALITY), encoding="utf-8")
        if not self._with_triggerer:
            self.airflow.processes = [name for name in self.airflow.processes if name != "triggerer"]
        self.airflow.extra_environment = {
            **self.airflow.extra_environment,
            **_SOON,
            **_DAG_FILES_STAY,
        }
        if not self._with_spark:
            self._replace_spark()

    def _replace_spark(self) -> None:
        """Replace Spark by a program of another name that Airflow's Spark connection may name."""
        program = self.programs / "spark3-submit"
        program.parent.mkdir()
        load = _TESTS / "load_without_spark.py"
        program.write_text(
            '#!/bin/sh\nwhile [ "${1##*/}" != load_window.py ]; do shift; done\nshift\n'
            f'exec "{sys.executable}" "{load}" "$@"\n'
        )
        program.chmod(0o755)
        spark = '{"conn_type": "spark", "host": "local[*]", "extra": {"spark-binary": "spark3-submit"}}'
        self.airflow.connections = {**self.airflow.connections, "spark_default": spark}


class Gate:
    """Locks that the trigger waits for, one for each state."""

    def __init__(self, rig: AirflowRig, session: psycopg.Connection) -> None:
        self._rig = rig
        self._session = session

    def close(self, task: str) -> None:
        self._session.execute("SELECT pg_advisory_lock(%s, ascii(%s))", (_LOCK, STATES[task]))

    def open(self, task: str) -> None:
        self._session.execute("SELECT pg_advisory_unlock(%s, ascii(%s))", (_LOCK, STATES[task]))

    def wait_for(self, task: str) -> None:
        """Wait until the task is held before its commit."""
        self._rig.wait(lambda: self._waits(task), f"{task} to come to its end")

    def _waits(self, task: str) -> bool:
        query = "SELECT FROM pg_locks WHERE classid = %s AND objid = ascii(%s) AND NOT granted"
        return self._session.execute(query, (_LOCK, STATES[task])).fetchone() is not None
