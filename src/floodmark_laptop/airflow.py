"""A real Airflow on free ports of 127.0.0.1: API server, scheduler, DAG processor, triggerer; driven over its REST API.

This module has the environment of those processes and a small client. The DAGs are in ``floodmark.orchestration``.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from cryptography.fernet import Fernet

from floodmark_laptop.processes import MARK, Child, LaptopError, start

USER = "admin"
_PROCESSES: dict[str, tuple[str, ...]] = {
    # Without --skip-serve-logs they would listen on all interfaces; the API server reads the log folder itself.
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "triggerer": ("triggerer", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "api-server": ("api-server",),
}
"""The command line of each process, in the order in which they are stopped."""
_HEALTH = {"scheduler": "scheduler", "triggerer": "triggerer", "dag-processor": "dag_processor"}
"""The part of the API server's health report about each of the other processes."""
_NOT_INHERITED = ("AIRFLOW", "OPENLINEAGE", "SPARK_", "PYSPARK_")
"""Prefixes of variables that are meant for another Airflow or Spark."""
_READY_SECONDS = 120.0
_ANSWER_SECONDS = 30.0


class AirflowBusyError(LaptopError):
    """Airflow's API server did not answer in time."""


@dataclass
class Airflow:
    """Airflow in ``state_dir``, with its metadata in a PostgreSQL database."""

    repository: Path
    state_dir: Path
    port: int
    metadata_uri: str
    """The URI of the metadata database."""
    connections: Mapping[str, str]
    """JSON for AIRFLOW_CONN_*, by connection id. It is passed only in the environment of the processes."""
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    processes: Sequence[str] = tuple(_PROCESSES)
    """The names of the processes that are started. Without deadlines nothing needs the triggerer."""
    children: list[Child] = field(default_factory=list, init=False)
    _ended: list[Child] = field(default_factory=list, init=False, repr=False)
    _client: httpx.Client | None = field(default=None, init=False, repr=False)

    @property
    def home(self) -> Path:
        return self.state_dir / "airflow"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def password(self) -> str:
        """The password of the user, kept in a file of mode 600."""
        return str(json.loads((self.home / "passwords.json").read_text(encoding="utf-8"))[USER])

    def environment(self) -> dict[str, str]:
        """Return the environment of every Airflow process and of the ``airflow`` command."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_INHERITED)}
        settings = {
            "CORE__DAGS_FOLDER": str(self.repository / "dags"),
            "CORE__PLUGINS_FOLDER": str(self.repository / "plugins"),
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__EXECUTOR": "LocalExecutor",
            "CORE__PARALLELISM": "4",
            "CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.home / "passwords.json"),
            "CORE__FERNET_KEY": self._secret("fernet", lambda: Fernet.generate_key().decode("ascii")),
            "CORE__AUTH_MANAGER": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
            "DATABASE__SQL_ALCHEMY_CONN": self.metadata_uri,
            "API__HOST": "127.0.0.1",
            "API__PORT": str(self.port),
            "API__BASE_URL": self.url,
            "API__WORKERS": "1",
            "API__SECRET_KEY": self._secret("api"),
            "API_AUTH__JWT_SECRET": self._secret("jwt"),
            "LOGGING__BASE_LOG_FOLDER": str(self.state_dir / "logs" / "tasks"),
            "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
            # The end of a process that closed its sockets first is noticed after this time (docs/operations.md).
            "WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            "LOGGING__COLORED_CONSOLE_LOG": "False",
            "DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            # The default is one folder in /tmp for every user of the machine.
            "DAG_PROCESSOR__DAG_BUNDLE_STORAGE_PATH": str(self.home / "bundles"),
            "USAGE_DATA_COLLECTION__ENABLED": "False",
        }
        return {
            **kept,
            "AIRFLOW_HOME": str(self.home),
            **{f"AIRFLOW__{name}": value for name, value in settings.items()},
            **{f"AIRFLOW_CONN_{name.upper()}": value for name, value in self.connections.items()},
            **self.extra_environment,
            "GX_ANALYTICS_ENABLED": "false",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}",
            MARK: str(self.state_dir),
        }

    def write_environment(self, path: Path) -> None:
        """Write the environment for a shell, so that ``floodmark`` and ``airflow`` use the same connections.

        The file contains passwords. It does not contain the mark: processes of that shell do not end with the stack.
        """
        given = {
            name: value for name, value in self.environment().items() if name != MARK and os.environ.get(name) != value
        }
        _write_private(path, "".join(f"export {name}={shlex.quote(value)}\n" for name, value in given.items()))

    def start(self) -> None:
        """Migrate the metadata database and start the processes."""
        self.home.mkdir(parents=True, exist_ok=True)
        if not (self.home / "passwords.json").exists():
            _write_private(self.home / "passwords.json", json.dumps({USER: secrets.token_urlsafe(12)}))
        migrate = self._spawn("migrate", "db", "migrate")
        if migrate.process.wait(_READY_SECONDS) != 0:
            migrate.check()
        self.children = [self._spawn(name, *_PROCESSES[name]) for name in self.processes]

    def child(self, name: str) -> Child:
        """Return one of the processes, as it was started last."""
        return next(child for child in self.children if child.name == name)

    def start_again(self, name: str) -> None:
        """Start one of the processes again after it has ended. Its remaining child processes end with ``stop``."""
        if name == "api-server":
            self._disconnect()
        ended = self.child(name)
        self.children[self.children.index(ended)] = self._spawn(name, *_PROCESSES[name])
        self._ended.append(ended)

    def wait_until_ready(self) -> None:
        """Wait until the API server answers, and reports that the other processes are healthy."""

        def healthy() -> bool:
            try:
                health = httpx.get(f"{self.url}/api/v2/monitor/health", timeout=5).json()
            except (httpx.HTTPError, ValueError):
                return False
            parts = (part for name, part in _HEALTH.items() if name in self.processes)
            return all(health.get(part, {}).get("status") == "healthy" for part in parts)

        self.wait_for(healthy, "Airflow to become healthy", _READY_SECONDS)

    def wait_for(self, condition: Callable[[], bool], what: str, timeout_seconds: float) -> None:
        """Poll a condition. Raises LaptopError when a process ends meanwhile, and at the limit.

        A condition that gets no answer from Airflow in time does not hold yet.
        """
        deadline = time.monotonic() + timeout_seconds
        while not _holds(condition):
            for child in self.children:
                child.check()
            if time.monotonic() > deadline:
                logs = self.state_dir / "logs"
                raise LaptopError(f"timed out after {timeout_seconds:.0f} s waiting for {what}; see {logs}")
            time.sleep(0.5)

    def stop(self) -> None:
        """Stop the processes, the scheduler first so that it starts nothing new.

        A scheduler with a running task waits for it without a limit and, when killed, leaves its workers and the task's
        processes behind (observed with 3.3.2). They share its session and are ended by it.
        """
        self._disconnect()
        for child in self.children:
            child.process.terminate()
        for child in (*self.children, *self._ended):
            child.stop(timeout_seconds=8.0)
        self.children, self._ended = [], []

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def call(self, method: str, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Make one REST call to ``/api/v2/…``. Raises LaptopError; AirflowBusyError without an answer."""
        try:
            if self._client is None:
                self._client = self._log_in()
            answer = self._client.request(method, f"/api/v2{path}", json=body)
        except httpx.TimeoutException as error:
            raise AirflowBusyError(f"Airflow gave no answer to {method} {path} in {_ANSWER_SECONDS:.0f} s") from error
        except httpx.TransportError as error:
            raise LaptopError(f"Airflow could not be asked for {method} {path}: {error}") from error
        if answer.status_code >= httpx.codes.BAD_REQUEST:
            raise LaptopError(f"Airflow answered {answer.status_code} to {method} {path}: {answer.text}")
        result: dict[str, Any] = answer.json() if answer.content else {}
        return result

    def _log_in(self) -> httpx.Client:
        client = httpx.Client(base_url=self.url, timeout=_ANSWER_SECONDS)
        login = client.post("/auth/token", json={"username": USER, "password": self.password})
        if login.status_code >= httpx.codes.BAD_REQUEST:
            raise LaptopError(f"Airflow refused the login of {USER}: {login.text}")
        client.headers["Authorization"] = f"Bearer {login.json()['access_token']}"
        return client

    def wait_for_dag(self, dag_id: str) -> None:
        """Wait until the DAG processor has found the DAG. Raises LaptopError with the text of an import error."""

        def found() -> bool:
            errors = self.call("GET", "/importErrors").get("import_errors", [])
            if errors:
                raise LaptopError(f"a DAG file could not be imported: {errors[0]['stack_trace']}")
            return any(dag["dag_id"] == dag_id for dag in self.call("GET", "/dags?limit=100")["dags"])

        self.wait_for(found, f"DAG {dag_id} to be found", _READY_SECONDS)

    def unpause(self, dag_id: str) -> None:
        """Unpause a DAG."""
        self.call("PATCH", f"/dags/{dag_id}", {"is_paused": False})

    def trigger(self, dag_id: str) -> str:
        """Start a run now and return its id."""
        return str(self.call("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": None})["dag_run_id"])

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return all runs, the oldest first."""
        answer = self.call("GET", f"/dags/{dag_id}/dagRuns?order_by=run_after&limit=100")
        return list(answer["dag_runs"])

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str]:
        """Return the state of each task of a run, by task id."""
        answer = self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")
        return {task["task_id"]: str(task["state"]) for task in answer["task_instances"]}

    def task_log_folder(self, dag_id: str, run_id: str) -> Path:
        """Return the folder with the logs of a run's tasks."""
        return self.state_dir / "logs" / "tasks" / f"dag_id={dag_id}" / f"run_id={run_id}"

    def _spawn(self, name: str, *arguments: str) -> Child:
        logs = self.state_dir / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "airflow", *arguments]
        return start(name, command, log_file=logs / f"airflow-{name}.log", environment=self.environment())

    def _secret(self, name: str, make: Callable[[], str] = lambda: secrets.token_hex(32)) -> str:
        path = self.home / f"{name}.secret"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_private(path, make())
        return path.read_text(encoding="ascii")


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except AirflowBusyError:
        return False


def _write_private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
