"""The command line on a fleet of devices: runs, verify, doctor, and devices that are left out.

Everything but Spark is real (``load_without_spark``).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from fleet_rig import FleetRig, fleet_settings
from floodmark.cli.main import app
from floodmark.cli.process import out
from floodmark.postgres.session import WarehouseConnection
from floodmark.spark import job
from load_without_spark import no_session, stager

CONFIG = """
sources: {vans: {conn_id: vans, kind: compact}}
warehouse: {conn_id: warehouse}
pipelines:
  edge:
    source: vans
    tables:
      - {source: main.orders, target: edge.orders}
"""


@pytest.fixture
def rig(tmp_path: Path, database: WarehouseConnection, monkeypatch: pytest.MonkeyPatch) -> FleetRig:
    folder = tmp_path / "devices"
    folder.mkdir()
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    warehouse = {"conn_type": "postgres", "host": database.host, "port": database.port, "schema": database.database}
    for name, value in {
        "FLOODMARK_CONFIG": str(path),
        "FLOODMARK_DATA_DOCS": str(tmp_path / "docs"),
        "AIRFLOW_CONN_WAREHOUSE": json.dumps(warehouse | {"login": database.user, "password": "s3cret-s3cret"}),
        "AIRFLOW_CONN_VANS": json.dumps({"conn_type": "fs", "extra": {"path": str(folder)}}),
    }.items():
        monkeypatch.setenv(name, value)

    def run_load(secrets: Mapping[str, str], master: str | None, window_id: int, path: Path, _progress: None) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(job, "SparkStager", stager)
            for name, value in secrets.items():
                patch.setenv(name, value)
            job.run_load_job(window_id, no_session())

    monkeypatch.setattr("floodmark.cli.runs.run_load", run_load)
    monkeypatch.setattr(out, "width", 200)
    return FleetRig(folder, database, fleet_settings())


def call(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, " ".join(result.output.split())


def open_alerts(rig: FleetRig) -> list[str]:
    with psycopg.connect(rig.warehouse.conninfo()) as session:
        rows = session.execute("SELECT event_key FROM floodmark.alerts WHERE ended_at IS NULL ORDER BY 1").fetchall()
    return [key for (key,) in rows if key.startswith("table_left_out")]


def test_commands_on_a_fleet(rig: FleetRig) -> None:
    assert call("config", "check")[0] == 0
    rig.make("van-1", "INSERT INTO orders (id, amount, note) VALUES (1, 1.5, 'one'), (2, 2.5, NULL)")
    rig.make("van-2", "INSERT INTO orders (id) VALUES (1)")
    code, text = call("doctor", "edge", "--all")
    assert code == 0, text
    assert "tracked by 2 of 2 devices: can be read" in text
    assert call("run", "edge")[0] == 0
    assert call("verify", "edge")[0] == 0
    copy = rig.back_up("van-1")
    rig.run("van-1", "DELETE FROM orders WHERE id = 1")
    assert call("run", "edge")[0] == 0
    rig.put_back("van-1", copy)
    rig.run("van-2", "INSERT INTO orders (id) VALUES (2)")
    code, text = call("run", "edge")
    assert code == 1
    assert "[main.orders].van-1: ahead_of_source: " in text
    assert open_alerts(rig) == ["table_left_out:edge:[main.orders].van-1:ahead_of_source"]
    assert [row[:2] for row in rig.living()] == [("van-1", 2), ("van-2", 1), ("van-2", 2)]
    assert call("verify", "edge")[0] == 1
    assert call("source", "reload-device", "edge", "main.orders", "van-9")[0] == 1
    assert call("source", "reload-device", "edge", "main.nope", "van-1")[0] == 2
    assert call("source", "reload-device", "edge", "main.orders", "van-1")[0] == 0
    assert call("run", "edge")[0] == 0
    assert call("verify", "edge")[0] == 0
    assert open_alerts(rig) == []
    code, text = call("status", "edge")
    assert code == 0
    assert "main.orders" in text


def test_commands_that_a_fleet_does_not_have_say_why(rig: FleetRig) -> None:
    rig.make("van-1", "INSERT INTO orders (id) VALUES (1)")
    assert call("run", "edge")[0] == 0
    for arguments, words in (
        (["reload", "edge", "main.orders", "--where", "id = 1"], "cannot be chosen by a condition"),
        (["doctor", "edge", "--grants", "someone"], "a file has no logins"),
        (["replay", "edge", "--from-lsn", "1", "--to-lsn", "2"], "there is nothing to replay"),
    ):
        code, text = call(*arguments)
        assert code == 2, text
        assert words in text


def test_reload_of_a_table_reads_all_devices_and_keeps_the_rows_of_those_that_are_away(rig: FleetRig) -> None:
    rig.make("van-1", "INSERT INTO orders (id) VALUES (1)")
    rig.make("van-2", "INSERT INTO orders (id) VALUES (1)")
    assert call("run", "edge")[0] == 0
    rig.remove("van-2")
    rig.run("van-1", "INSERT INTO orders (id) VALUES (2)")
    code, text = call("reload", "edge", "main.orders")
    assert code == 0, text
    assert [row[:2] for row in rig.living()] == [("van-1", 1), ("van-1", 2), ("van-2", 1)]
    # A row that was inserted and deleted since the last window, and that the reload has read in between.
    rig.run("van-1", "DELETE FROM orders WHERE id = 2")
    assert call("run", "edge")[0] == 0
    assert [row[:2] for row in rig.living()] == [("van-1", 1), ("van-2", 1)]


def test_doctor_names_what_is_wrong_with_files(rig: FleetRig) -> None:
    rig.make("van-1")
    rig.path("van-2").write_bytes(b"no database at all" * 100)
    rig.path("van-3").touch()
    code, text = call("doctor", "edge")
    assert code == 4
    assert "the files of van-2 cannot be read" in text
    assert "van-3 do not track it" in text


def test_a_column_that_one_device_gets_arrives_and_is_reported(rig: FleetRig) -> None:
    rig.make("van-1", "INSERT INTO orders (id) VALUES (1)")
    rig.make("van-2", "INSERT INTO orders (id) VALUES (1)")
    assert call("run", "edge")[0] == 0
    rig.run("van-2", "ALTER TABLE orders ADD COLUMN weight REAL", "UPDATE orders SET weight = 2.5")
    code, text = call("run", "edge")
    assert code == 0, text
    assert rig.rows("SELECT __device, weight FROM edge.orders ORDER BY 1") == [("van-1", None), ("van-2", 2.5)]
    rig.make(
        "a-van", "INSERT INTO orders (id) VALUES (1)", table="CREATE TABLE orders (note TEXT, id INTEGER PRIMARY KEY)"
    )
    code, text = call("run", "edge")
    assert code == 0, text
    assert call("verify", "edge")[0] == 0


def test_a_column_that_every_device_lost_keeps_its_values(rig: FleetRig) -> None:
    rig.make("van-1", "INSERT INTO orders (id, note) VALUES (1, 'kept')")
    assert call("run", "edge")[0] == 0
    with closing(sqlite3.connect(rig.path("van-1"), isolation_level=None)) as file:
        file.execute("ALTER TABLE orders DROP COLUMN note")
        file.execute("UPDATE orders SET amount = 7")
    code, text = call("run", "edge")
    assert code == 0, text
    assert rig.rows("SELECT amount, note FROM edge.orders") == [(7, "kept")]


STYLES = """
sources: {vans: {conn_id: vans, kind: compact}}
warehouse: {conn_id: warehouse}
pipelines:
  edge:
    source: vans
    schedule: null
    tables:
      - {source: main.orders, target: edge.orders, style: history, open_end: 9999-12-31}
  audit:
    source: vans
    schedule: null
    style: log
    tables:
      - {source: main.orders, target: audit.orders}
"""


def test_commands_on_a_history_and_a_log_of_a_fleet(rig: FleetRig, tmp_path: Path) -> None:
    (tmp_path / "pipelines.yaml").write_text(STYLES, encoding="utf-8")
    assert call("config", "check")[0] == 0
    rig.make("van-1", "INSERT INTO orders (id, amount, note) VALUES (1, 1.5, 'one'), (2, 2.5, NULL)")
    rig.make("van-2", "INSERT INTO orders (id) VALUES (1)")
    assert call("doctor", "edge", "--all")[0] == 0

    def run_both(*statements: str) -> None:
        rig.run("van-1", *statements)
        for pipeline in ("edge", "audit"):
            code, text = call("run", pipeline)
            assert code == 0, text

    run_both()
    run_both("UPDATE orders SET amount = 3 WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    history = "SELECT __device, id, __op, amount::text, note FROM edge.orders_history ORDER BY 1, 2, __lsn"
    versions = [
        ("van-1", 1, 2, "1.50", "one"),
        ("van-1", 1, 4, "3.00", "one"),
        ("van-1", 2, 2, "2.50", None),
        ("van-1", 2, 1, "2.50", None),
        ("van-2", 1, 2, None, None),
    ]
    assert rig.rows(history) == versions
    log = "SELECT __device, id, __op, amount::text FROM audit.orders ORDER BY __lsn, 1, 2"
    loaded = [("van-1", 1, 0, "1.50"), ("van-1", 2, 0, "2.50"), ("van-2", 1, 0, None)]
    assert rig.rows(log) == [*loaded, ("van-1", 1, 4, "3.00"), ("van-1", 2, 1, None)]
    assert rig.rows("SELECT count(*) FROM edge.orders_history WHERE __valid_to = '9999-12-31 UTC'") == [(3,)]
    assert call("verify", "edge")[0] == 0

    code, text = call("reload", "edge", "main.orders")
    assert code == 0, text
    assert rig.rows(history) == versions
    run_both("INSERT INTO orders (id, amount) VALUES (2, 9)")
    assert call("source", "reload-device", "audit", "main.orders", "van-2")[0] == 0
    run_both("INSERT INTO orders (id, amount) VALUES (3, 9)")
    assert rig.rows(history)[4:] == [("van-1", 2, 2, "9.00", None), ("van-1", 3, 2, "9.00", None), versions[-1]]
    assert rig.rows(log)[-2:] == [("van-1", 3, 2, "9.00"), ("van-2", 1, 0, None)]
    assert call("verify", "edge")[0] == 0

    code, text = call("forget", "edge", "main.orders", "--key", "__device=van-1", "--key", "id=2")
    assert code == 0, text
    assert [row[:2] for row in rig.rows(history)] == [("van-1", 1), ("van-1", 1), ("van-1", 3), ("van-2", 1)]
