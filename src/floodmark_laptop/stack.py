"""All of Floodmark on one machine: emulator, warehouse and Airflow, in one state folder.

This module defines the order of the start, the folders of the state, and the stop of all processes. ``main_job`` and
``__main__`` decide what is done with the stack.
"""

from __future__ import annotations

import fcntl
import getpass
import hashlib
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import psycopg
import pymssql
from psycopg import sql

from embedded_postgres import EmbeddedPostgres, EmbeddedPostgresError, make_passable_folder
from floodmark_laptop.airflow import Airflow
from floodmark_laptop.processes import MARK, Child, LaptopError, free_port, start, stop_marked, tail
from floodmark_laptop.shop import DATABASE

REPOSITORY = Path(__file__).resolve().parents[2]
CAPTURE_INTERVAL_SECONDS = 1.0
_EMULATOR_READY_SECONDS = 60.0
_WAREHOUSE_USER = "floodmark"

Say = Callable[[str], None]


def default_state_dir() -> Path:
    """Return the state folder: one per user and clone, in the system's temporary folder, which PostgreSQL can
    traverse."""
    chosen = os.environ.get("FLOODMARK_STATE")
    if chosen:
        return Path(chosen).resolve()
    clone = hashlib.sha256(os.fsencode(REPOSITORY)).hexdigest()[:8]
    return Path(tempfile.gettempdir()).resolve() / f"floodmark-{getpass.getuser()}-{clone}"


@dataclass(frozen=True)
class EmulatorAddress:
    """The address from the emulator's ready line, and the password."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    ca_file: str = ""


@dataclass
class Stack:
    """The running processes. Use ``with Stack(...) as stack``: leaving the block stops everything, also after an
    error."""

    state_dir: Path
    say: Say
    seconds_between_captures: float = CAPTURE_INTERVAL_SECONDS
    database: str = DATABASE
    connection_id: str = "shop_mssql"
    config_file: Path = REPOSITORY / "include" / "pipelines.yaml"
    connections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """More connections of Airflow, by their ids."""
    emulator_options: Sequence[str] = ()
    """More options of the emulator's command."""
    warehouse: EmbeddedPostgres = field(init=False)
    airflow: Airflow = field(init=False)
    emulator: Child = field(init=False)
    source: EmulatorAddress = field(init=False)
    _lock: IO[str] | None = field(default=None, init=False, repr=False)

    def __enter__(self) -> Stack:
        self._lock = _take_lock(self.state_dir)
        try:
            self._remove_leftovers()
            self._start_warehouse()
            self._start_emulator()
            self._configure_airflow()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Stop all processes. It is safe to call at any stage."""
        if hasattr(self, "airflow"):
            self.airflow.stop()
        if hasattr(self, "emulator"):
            self.emulator.stop()
        stop_marked(self.state_dir)
        if hasattr(self, "warehouse"):
            self.warehouse.stop()
        (self.state_dir / "environment").unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def data_docs_dir(self) -> Path:
        return self.state_dir / "data_docs"

    @property
    def logs_dir(self) -> Path:
        return self.state_dir / "logs"

    def start_airflow(self) -> None:
        """Start Airflow and wait until it is ready."""
        self.airflow.start()
        self.airflow.wait_until_ready()

    def connect_source(self, database: str = "", *, autocommit: bool = True) -> pymssql.Connection:
        """Return a connection of the ordinary driver, over TLS."""
        return pymssql.connect(
            server=self.source.host,
            port=str(self.source.port),
            user=self.source.user,
            password=self.source.password,
            database=database or self.database,
            autocommit=autocommit,
            encryption="require",
            login_timeout=15,
        )

    @property
    def warehouse_address(self) -> dict[str, Any]:
        """The fields of a connection to the warehouse, including the password."""
        return {
            "host": "127.0.0.1",
            "port": self.warehouse.port,
            "database": "warehouse",
            "user": _WAREHOUSE_USER,
            "password": self._warehouse_password,
        }

    def use_source_database(self, database: str) -> None:
        """Set the database of the source connection for processes that are started after this call."""
        self.database = database
        self._configure_airflow()

    def connect_warehouse(self) -> psycopg.Connection:
        """Return a connection to the warehouse."""
        return psycopg.connect(self.warehouse.conninfo("warehouse"))

    def _remove_leftovers(self) -> None:
        left = stop_marked(self.state_dir)
        if left:
            self.say(f"ended {left} processes of an earlier run")
        for name in ("emulator", "warehouse", "airflow", "logs", "data_docs", "lake"):
            shutil.rmtree(self.state_dir / name, ignore_errors=True)
        self.logs_dir.mkdir(parents=True)

    def _start_warehouse(self) -> None:
        self.warehouse = EmbeddedPostgres(self.state_dir / "warehouse", port=free_port())
        try:
            self.warehouse.start()
        except EmbeddedPostgresError as error:
            raise LaptopError(f"the warehouse did not start: {error}") from None
        self._warehouse_password = secrets.token_urlsafe(18)
        with psycopg.connect(self.warehouse.conninfo(), autocommit=True) as connection:
            role, password = sql.Identifier(_WAREHOUSE_USER), sql.Literal(self._warehouse_password)
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, password))
            for database in ("warehouse", "airflow"):
                name = sql.Identifier(database)
                connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(name, role))
            # The workers of a killed scheduler keep its connection open, with the locks of its last transaction.
            connection.execute("ALTER DATABASE airflow SET idle_in_transaction_session_timeout = '60s'")
        self.say(f"warehouse: PostgreSQL on 127.0.0.1:{self.warehouse.port}, database warehouse")

    def _start_emulator(self) -> None:
        password = secrets.token_urlsafe(18)
        environment = {**os.environ, "SQLSERVER_EMULATOR_SA_PASSWORD": password, MARK: str(self.state_dir)}
        log_file = self.logs_dir / "sqlserver-emulator.log"
        command = [
            sys.executable,
            "-m",
            "sqlserver_emulator",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--data",
            str(self.state_dir / "emulator"),
            "--capture-interval",
            str(self.seconds_between_captures),
            *self.emulator_options,
        ]
        self.emulator = start(
            "sqlserver-emulator", command, log_file=log_file, environment=environment, read_stdout=True
        )
        stdout = self.emulator.process.stdout
        line = stdout.readline() if stdout is not None else b""
        if not line:
            self.emulator.process.wait(_EMULATOR_READY_SECONDS)
            raise LaptopError(f"the emulator did not start; see {log_file}\n{tail(log_file)}")
        ready = json.loads(line)
        self.source = EmulatorAddress(ready["host"], ready["port"], ready["user"], password, ready["ca_file"])
        self.say(f"source: sqlserver_emulator on {self.source.host}:{self.source.port}")

    def _configure_airflow(self) -> None:
        port = self.warehouse.port
        metadata = f"postgresql+psycopg2://{_WAREHOUSE_USER}:{self._warehouse_password}@127.0.0.1:{port}/airflow"
        source = {
            "conn_type": "mssql",
            "host": self.source.host,
            "port": self.source.port,
            "login": self.source.user,
            "password": self.source.password,
            "schema": self.database,
            "extra": {"encrypt": "yes", "ca_file": self.source.ca_file},
        }
        warehouse = {
            "conn_type": "postgres",
            "host": "127.0.0.1",
            "port": port,
            "login": _WAREHOUSE_USER,
            "password": self._warehouse_password,
            "schema": "warehouse",
        }
        spark = {"conn_type": "spark", "host": "local[*]", "extra": {"deploy-mode": "client"}}
        self.airflow = Airflow(
            repository=REPOSITORY,
            state_dir=self.state_dir,
            port=free_port(),
            metadata_uri=metadata,
            connections={
                self.connection_id: json.dumps(source),
                "warehouse": json.dumps(warehouse),
                "spark_default": json.dumps(spark),
                **{name: json.dumps(connection) for name, connection in self.connections.items()},
            },
            extra_environment={
                "FLOODMARK_CONFIG": str(self.config_file),
                "FLOODMARK_DATA_DOCS": str(self.data_docs_dir),
            },
        )


def _take_lock(state_dir: Path) -> IO[str]:
    make_passable_folder(state_dir)
    if state_dir.stat().st_uid != os.geteuid():
        raise LaptopError(f"{state_dir} belongs to another user; name another folder in FLOODMARK_STATE")
    lock = (state_dir / "lock").open("a+", encoding="ascii")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise LaptopError(f"Floodmark already runs in {state_dir}; stop it with: make down") from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def running_pid(state_dir: Path) -> int | None:
    """Return the id of the process that holds the stack's lock, or None."""
    path = state_dir / "lock"
    if not path.exists():
        return None
    with path.open("r", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return int(lock.read() or 0) or None
    return None
