"""What goes wrong in a user's life ends in one clear message, and nothing is lost or half-written.

Through the command line, on an emulator and a warehouse of its own; one database, and a configuration per mishap.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from cutting_proxy import cutting_proxy
from floodmark_laptop.stack import Stack

pytestmark = pytest.mark.timeout(600)

_DATABASE = "Mishaps"
_CUT_BYTES = 1_000_000
"""More than all that a run says and hears but the rows themselves."""
_MANY = "(SELECT column_id AS ID FROM master.sys.all_columns) many"
_FLOODMARK = str(Path(sys.executable).parent / "floodmark")


@dataclass
class Mishaps:
    """The stack, and the command run on one of the configurations."""

    stack: Stack
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def config(self, name: str, *tables: dict[str, Any]) -> Path:
        document = {
            "sources": {"src": {"conn_id": "bad_mssql"}},
            "warehouse": {"conn_id": "warehouse"},
            "pipelines": {name: {"source": "src", "schedule": "0 0 1 1 *", "tables": list(tables)}},
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path

    def start(self, config: Path, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [_FLOODMARK, "run", config.stem, "--config", str(config)],
            env=self.stack.airflow.environment() | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, config: Path, **environment: str) -> tuple[int, str]:
        process = self.start(config, **environment)
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    def fails(self, config: Path, **environment: str) -> str:
        """The output of a run that must fail without a stack trace."""
        status, output = self.run(config, **environment)
        assert status != 0, output
        assert "Traceback" not in output
        return output

    def succeeds(self, config: Path) -> str:
        status, output = self.run(config)
        assert status == 0, output
        return output

    def source(self, sql: str) -> None:
        with self.stack.connect_source() as connection:
            connection.cursor().execute(sql)

    def source_value(self, sql: str) -> Any:
        with self.stack.connect_source() as connection:
            cursor = connection.cursor()
            cursor.execute(sql)
            row = cursor.fetchone()
            return row[0] if row else None

    def warehouse(self, sql: str) -> list[tuple[Any, ...]]:
        with self.stack.connect_warehouse() as connection:
            return connection.execute(sql).fetchall()  # type: ignore[arg-type]

    def windows(self, config: Path) -> list[tuple[Any, ...]]:
        """Number and state of each window of the pipeline, oldest first."""
        return self.warehouse(
            f"SELECT window_id, state::text FROM floodmark.windows WHERE pipeline = '{config.stem}' ORDER BY window_id"
        )

    def wait_until_captured(self, table: str, where: str) -> None:
        self.stack.airflow.wait_for(
            lambda: self.source_value(f"SELECT COUNT(*) FROM cdc.dbo_{table}_CT WHERE {where}") > 0, "capture", 60
        )

    def assert_equal(self, config: Path) -> None:
        done = subprocess.run(
            [_FLOODMARK, "verify", config.stem, "--json", "--config", str(config)],
            env=self.stack.airflow.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        results = json.loads(done.stdout)
        assert [(each["source"], each["differences"]) for each in results if not each["equal"]] == []
        assert results

    def make_table(self, name: str, columns: str = "ID int NOT NULL PRIMARY KEY, V nvarchar(50) NULL") -> None:
        self.source(f"CREATE TABLE dbo.{name} ({columns})")
        self.source(f"EXEC sys.sp_cdc_enable_table N'dbo', N'{name}', @role_name = NULL, @supports_net_changes = 0")
        self.source(f"INSERT INTO dbo.{name} (ID, V) VALUES (1, N'one'), (2, N'zwölf')")
        self.wait_until_captured(name, "ID = 2")


@pytest.fixture(scope="module")
def mishaps() -> Iterator[Mishaps]:
    folder = Path(tempfile.mkdtemp(prefix="floodmark-bad-"))
    folder.chmod(0o755)
    stack = Stack(folder / "s", print, seconds_between_captures=0.2, database=_DATABASE, connection_id="bad_mssql")
    try:
        with stack:
            with stack.connect_source("master") as connection:
                connection.cursor().execute(f"CREATE DATABASE {_DATABASE}")
            each = Mishaps(stack, folder)
            each.source("EXEC sys.sp_cdc_enable_db")
            yield each
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _table(name: str, **more: Any) -> dict[str, Any]:
    return {"source": f"dbo.{name}", "target": f"bad.{name.lower()}", **more}


def test_run_names_the_tables_that_do_not_exist_or_have_no_cdc(mishaps: Mishaps) -> None:
    mishaps.source("CREATE TABLE dbo.Untracked (ID int NOT NULL PRIMARY KEY)")
    mishaps.make_table("Tracked")
    config = mishaps.config("missing", _table("Tracked"), _table("Untracked"), _table("Nowhere"))
    output = mishaps.fails(config)
    assert "dbo.Untracked" in output
    assert "dbo.Nowhere" in output
    assert mishaps.warehouse("SELECT to_regclass('bad.tracked')") == [(None,)]


def test_run_names_the_table_without_a_key(mishaps: Mishaps) -> None:
    mishaps.make_table("Keyless", "ID int NOT NULL, V nvarchar(50) NULL")
    output = mishaps.fails(mishaps.config("keyless", _table("Keyless")))
    assert "dbo.Keyless" in output
    assert "key" in output
    config = mishaps.config("keyless", _table("Keyless", key=["ID"]))
    mishaps.succeeds(config)
    mishaps.assert_equal(config)


def test_run_says_that_the_source_refused_the_password_without_showing_it(mishaps: Mishaps) -> None:
    mishaps.make_table("Secret")
    connection = json.loads(mishaps.stack.airflow.environment()["AIRFLOW_CONN_BAD_MSSQL"])
    connection["password"] = "entirely-wrong-password"
    output = mishaps.fails(mishaps.config("secret", _table("Secret")), AIRFLOW_CONN_BAD_MSSQL=json.dumps(connection))
    assert "sa" in output
    assert "entirely-wrong-password" not in output
    assert mishaps.stack.source.password not in output


def test_run_says_which_table_a_login_may_not_read(mishaps: Mishaps) -> None:
    mishaps.make_table("Guarded")
    mishaps.source("CREATE LOGIN poor WITH PASSWORD = 'Poor-but-honest-1'")
    mishaps.source("CREATE USER poor FOR LOGIN poor")
    connection = json.loads(mishaps.stack.airflow.environment()["AIRFLOW_CONN_BAD_MSSQL"])
    connection |= {"login": "poor", "password": "Poor-but-honest-1"}
    output = mishaps.fails(mishaps.config("guarded", _table("Guarded")), AIRFLOW_CONN_BAD_MSSQL=json.dumps(connection))
    assert "dbo.Guarded" in output


def test_run_ends_expired_when_cleanup_has_passed_the_watermark(mishaps: Mishaps) -> None:
    mishaps.make_table("Aged")
    config = mishaps.config("aged", _table("Aged"))
    mishaps.succeeds(config)
    before = mishaps.warehouse("SELECT watermark FROM floodmark.tables WHERE pipeline = 'aged'")
    mishaps.source("UPDATE dbo.Aged SET V = N'changed' WHERE ID = 1")
    mishaps.wait_until_captured("Aged", "V = N'changed'")
    mishaps.source("UPDATE dbo.Aged SET V = N'again' WHERE ID = 1")
    mishaps.wait_until_captured("Aged", "V = N'again'")
    mishaps.source(
        "DECLARE @low binary(10) = sys.fn_cdc_get_max_lsn() EXEC sys.sp_cdc_cleanup_change_table N'dbo_Aged', @low"
    )
    output = mishaps.fails(config)
    assert "dbo.Aged" in output
    assert "expired" in output
    assert mishaps.warehouse("SELECT watermark FROM floodmark.tables WHERE pipeline = 'aged'") == before


def test_run_stops_at_a_broken_rule_and_merges_nothing(mishaps: Mishaps) -> None:
    mishaps.make_table("Ruled")
    rule = {"name": "v_not_forbidden", "sql": "\"V\" <> 'forbidden'", "on_failure": "stop"}
    config = mishaps.config("ruled", _table("Ruled", rules=[rule]))
    mishaps.succeeds(config)
    mishaps.source("UPDATE dbo.Ruled SET V = N'forbidden' WHERE ID = 1")
    mishaps.source("UPDATE dbo.Ruled SET V = N'allowed' WHERE ID = 2")
    mishaps.wait_until_captured("Ruled", "V = N'allowed'")
    output = mishaps.fails(config)
    assert "v_not_forbidden" in output
    assert mishaps.warehouse('SELECT "V" FROM bad.ruled ORDER BY "ID"') == [("one",), ("zwölf",)]


def test_next_run_finishes_the_same_window_after_the_spark_driver_was_killed(mishaps: Mishaps) -> None:
    mishaps.make_table("Killed")
    config = mishaps.config("killed", _table("Killed"))
    process = mishaps.start(config)
    _kill_the_java_below(process)
    output, _ = process.communicate(timeout=300)
    assert process.returncode != 0, output
    assert "Traceback (most recent call last)" not in output.splitlines()[-1]
    ((opened, state),) = mishaps.windows(config)
    assert state == "planned"
    mishaps.succeeds(config)
    assert mishaps.windows(config) == [(opened, "advanced")]
    mishaps.assert_equal(config)


def test_two_runs_at_once_load_every_row_once(mishaps: Mishaps) -> None:
    mishaps.make_table("Twice")
    config = mishaps.config("twice", _table("Twice"))
    runs = [mishaps.start(config), mishaps.start(config)]
    outputs = [run.communicate(timeout=300)[0] for run in runs]
    assert 0 in [run.returncode for run in runs], outputs
    mishaps.assert_equal(config)
    mishaps.source("UPDATE dbo.Twice SET V = N'later' WHERE ID = 1")
    mishaps.wait_until_captured("Twice", "V = N'later'")
    mishaps.succeeds(config)
    mishaps.assert_equal(config)


def test_run_that_cannot_reach_the_source_says_so_and_a_later_one_goes_on(mishaps: Mishaps) -> None:
    mishaps.make_table("Away")
    config = mishaps.config("away", _table("Away"))
    connection = json.loads(mishaps.stack.airflow.environment()["AIRFLOW_CONN_BAD_MSSQL"]) | {"port": 1}
    output = mishaps.fails(config, AIRFLOW_CONN_BAD_MSSQL=json.dumps(connection))
    assert "127.0.0.1" in output
    warehouse = json.loads(mishaps.stack.airflow.environment()["AIRFLOW_CONN_WAREHOUSE"]) | {"port": 1}
    output = mishaps.fails(config, AIRFLOW_CONN_WAREHOUSE=json.dumps(warehouse))
    assert "warehouse" in output
    mishaps.succeeds(config)
    mishaps.assert_equal(config)


@pytest.mark.parametrize("cut", ["source", "warehouse"])
def test_load_that_is_cut_off_while_rows_flow_is_finished_by_the_next_run(mishaps: Mishaps, cut: str) -> None:
    table = f"Cut{cut}"
    mishaps.make_table(table, "ID int NOT NULL PRIMARY KEY, V nvarchar(1000) NULL")
    config = mishaps.config(table.lower(), _table(table))
    mishaps.succeeds(config)
    mishaps.source(
        f"INSERT INTO dbo.{table} (ID, V) SELECT 2 + ROW_NUMBER() OVER (ORDER BY a.ID), REPLICATE(N'flood', 200) "
        f"FROM (SELECT TOP 100 ID FROM {_MANY}) a CROSS JOIN (SELECT TOP 100 ID FROM {_MANY}) b"
    )
    mishaps.wait_until_captured(table, "ID = 10002")
    variable = {"source": "AIRFLOW_CONN_BAD_MSSQL", "warehouse": "AIRFLOW_CONN_WAREHOUSE"}[cut]
    connection = json.loads(mishaps.stack.airflow.environment()[variable])
    with cutting_proxy(connection["port"], _CUT_BYTES) as proxy:
        output = mishaps.fails(config, **{variable: json.dumps(connection | {"port": proxy.port})})
        assert proxy.cuts > 0, output
    assert f"the {cut} " in output.splitlines()[-1], output
    *_, (opened, state) = mishaps.windows(config)
    assert state == "planned"
    mishaps.succeeds(config)
    assert mishaps.windows(config)[-1] == (opened, "advanced")
    mishaps.assert_equal(config)


def _kill_the_java_below(process: subprocess.Popen[str]) -> None:
    """As soon as the load's JVM has been seen, which is long before the merge."""
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        for child in psutil.Process(process.pid).children(recursive=True):
            try:
                if child.name() == "java":
                    os.kill(child.pid, signal.SIGKILL)
                    return
            except (psutil.Error, ProcessLookupError):
                continue
        process.poll()
    raise AssertionError("no JVM was seen")
