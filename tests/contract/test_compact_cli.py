"""The command line on a fleet of devices: runs, verify, doctor, and devices that are left out.

Everything but Spark is real (``load_without_spark``).
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from fleet_rig import FleetRig, fleet_settings
from floodmark.cli.main import app
from floodmark.cli.process import out
from floodmark.core.settings import Style
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.spark import job
from floodmark.sync.columns import hash_value
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


@pytest.mark.parametrize("lost", ["DROP TABLE edge.orders", "UPDATE edge.orders SET amount = 0"])
def test_device_that_was_away_from_a_load_is_read_as_a_whole_when_it_is_back(rig: FleetRig, lost: str) -> None:
    rig.make("van-1", "INSERT INTO orders (id, amount) VALUES (1, 5)")
    rig.make("van-2", "INSERT INTO orders (id, amount) VALUES (1, 5), (2, 6)")
    assert call("run", "edge")[0] == 0
    away = rig.path("van-2").rename(rig.path("van-2").with_suffix(".away"))
    rig.execute(lost)
    code, text = call("reload", "edge", "main.orders")
    assert code == 0, text
    away.rename(rig.path("van-2"))
    rig.run("van-2", "UPDATE orders SET amount = 7 WHERE id = 2")
    assert call("run", "edge")[0] == 0
    assert rig.rows("SELECT __device, id, amount FROM edge.orders ORDER BY 1, 2") == [
        ("van-1", 1, 5),
        ("van-2", 1, 5),
        ("van-2", 2, 7),
    ]
    assert call("verify", "edge")[0] == 0


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


SECRET = "a secret of more than sixteen characters"
MASKED = """
sources: {vans: {conn_id: vans, kind: compact}}
warehouse: {conn_id: warehouse}
pipelines:
  edge:
    source: vans
    schedule: null
    tables:
      - source: main.people
        target: edge.people
        style: STYLE
        mask_key_conn_id: mask_key
        rules: [{name: positive, sql: '"amount" > 0'}]
        columns:
          id: {mask: hash}
          mail: {as: email, mask: hash}
          phone: {mask: last4}
          born: {mask: year}
          made: {cast: date}
          notes: drop
"""
PEOPLE = (
    "CREATE TABLE people (id TEXT PRIMARY KEY NOT NULL, amount INTEGER, mail TEXT, phone TEXT, born DATE,"
    " made DATETIME, notes TEXT)"
)
PLANTED = ("key-", "mail-", "+699-", "1987-06-", "23:59:59.777", "note-")


def person(number: int, amount: int = 1) -> str:
    values = f"('key-{number}', {amount}, 'mail-{number}@example.com', '+699-{number}-1234', '1987-06-0{number}'"
    columns = "id, amount, mail, phone, born, made, notes"
    return f"INSERT INTO people ({columns}) VALUES {values}, '2026-01-0{number} 23:59:59.777', 'note-{number}')"


def hashed(value: str) -> str:
    return hash_value(SECRET.encode(), value)


def dump(rig: FleetRig) -> str:
    """Return every row of every table of the warehouse's database."""
    tables = rig.rows(
        "SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables"
        " WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
    )
    return "\n".join(
        f"{table} {row}" for (table,) in tables for (row,) in rig.rows(f"SELECT t::text FROM {table} AS t")
    )


@pytest.mark.parametrize("style", [Style.CURRENT, Style.HISTORY, Style.LOG])
def test_columns_of_devices_come_to_the_target_as_the_file_says(
    rig: FleetRig, tmp_path: Path, style: Style, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("AIRFLOW_CONN_MASK_KEY", json.dumps({"conn_type": "generic", "password": SECRET}))
    (tmp_path / "pipelines.yaml").write_text(MASKED.replace("STYLE", style.value), encoding="utf-8")
    staged: list[str] = []
    merge = PostgresWarehouse.merge_window

    def watched(self: PostgresWarehouse, *arguments: Any, **named: Any) -> Any:
        staged.append(dump(rig))
        return merge(self, *arguments, **named)

    monkeypatch.setattr(PostgresWarehouse, "merge_window", watched)
    rig.make("van-1", person(1), person(2), person(3, -1), table=PEOPLE, tracked="people")
    said = [call("config", "check"), call("run", "edge")]
    rig.run("van-1", "UPDATE people SET mail = 'mail-11', phone = '123', made = NULL WHERE id = 'key-1'")
    rig.run("van-1", "DELETE FROM people WHERE id = 'key-2'", person(4))
    said += [call("run", "edge"), call("status", "edge"), call("quarantine", "list", "edge")]
    assert [code for code, _ in said] == [0] * len(said), said[1][1][-1500:]
    columns = "id, amount, email, phone, born::text, made::text FROM edge.people"
    newest = f"SELECT {columns} WHERE __op <> 1 AND __lsn = (SELECT max(__lsn) FROM edge.people) ORDER BY amount, email"
    assert sorted(rig.rows(newest)) == sorted([
        (hashed("key-1"), 1, hashed("mail-11"), "***", "1987-01-01", None),
        (hashed("key-4"), 1, hashed("mail-4@example.com"), "*******1234", "1987-01-01", "2026-01-04"),
    ])  # fmt: skip
    gone = "SELECT email FROM edge.people WHERE __op = 1"
    assert rig.rows(gone) == [(None if style is Style.LOG else hashed("mail-2@example.com"),)]
    assert hashed("key-3") in dump(rig).split("floodmark.quarantine ", 1)[1]
    rig.run("van-1", "UPDATE people SET amount = 3 WHERE id = 'key-3'")
    said += [call("run", "edge"), call("verify", "edge")]
    assert said[-1][0] == (1 if style is Style.LOG else 0), said[-1]
    files = [path for path in (tmp_path / "docs").rglob("*") if path.is_file()]
    texts = [dump(rig), *staged, *(text for _, text in said), caplog.text, *(path.read_text() for path in files)]
    assert [value for value in PLANTED for text in texts if value in text] == []
    rig.run(
        "van-1", "ALTER TABLE people ADD COLUMN extra TEXT", "UPDATE people SET extra = 'note-9' WHERE id = 'key-1'"
    )
    code, text = call("run", "edge")
    assert (code != 0, "a new column extra" in text) == (True, True), text
    assert "note-9" not in dump(rig)


def test_columns_that_devices_cannot_have_are_refused(rig: FleetRig, tmp_path: Path) -> None:
    rig.make("van-1", person(1), table=PEOPLE, tracked="people")
    plain = MASKED.replace("STYLE", "current").replace("mask_key_conn_id: mask_key\n", "\n")
    for columns, words in (
        ("__device: {mask: hash}", "__device has the names of devices"),
        ("__device: {as: van}", "__device has the names of devices"),
        ("Mail: drop", "there is no captured column Mail in this spelling"),
        ("id: drop", "id is part of the key"),
    ):
        text = plain.split("        columns:")[0]
        if "hash" in columns:
            text = text.replace("style: current\n", "style: current\n        mask_key_conn_id: mask_key\n")
        (tmp_path / "pipelines.yaml").write_text(f"{text}        columns: {{{columns}}}\n", encoding="utf-8")
        code, found = call("run", "edge")
        assert (code != 0, words in found) == (True, True), found


def test_device_that_spells_a_column_that_is_left_out_otherwise_brings_no_value(rig: FleetRig, tmp_path: Path) -> None:
    text = MASKED.replace("STYLE", "current").split("        columns:")[0].replace("mask_key_conn_id: mask_key\n", "\n")
    (tmp_path / "pipelines.yaml").write_text(
        f"{text}        new_columns: follow\n        columns: {{notes: drop}}\n", encoding="utf-8"
    )
    rig.make("van-2", person(1), table=PEOPLE, tracked="people")
    assert call("run", "edge")[0] == 0
    rig.make("van-1", person(2), table=PEOPLE.replace("notes", "Notes"), tracked="people")
    code, found = call("run", "edge")
    assert (code != 0, "the first device spells notes as Notes" in found) == (True, True), found
    assert "note-" not in dump(rig)


def test_another_filter_of_a_fleet_needs_a_target_without_rows(rig: FleetRig, tmp_path: Path) -> None:
    def configure(where: str) -> None:
        table = f'{{source: main.orders, target: edge.orders, where: "{where}"}}'
        text = CONFIG.replace("{source: main.orders, target: edge.orders}", table)
        (tmp_path / "pipelines.yaml").write_text(text, encoding="utf-8")

    configure("amount > 1 AND note LIKE 'a%'")
    rig.make("van-1", "INSERT INTO orders (id, amount, note) VALUES (1, 2, 'ab'), (2, 2, 'b'), (3, 1, 'ab')")
    assert call("run", "edge")[0] == 0
    assert rig.rows("SELECT id FROM edge.orders") == [(1,)]
    assert call("verify", "edge")[0] == 0
    configure("amount > 1")
    code, text = call("run", "edge")
    assert (code != 0, "where: amount > 1 AND note LIKE" in text.replace("[", "").replace("]", "")) == (True, True), (
        text
    )
    code, text = call("reload", "edge", "main.orders")
    assert (code != 0, "has rows of another filter, and a load of devices deletes no row" in text) == (True, True), text
    rig.execute("DROP TABLE edge.orders")
    code, text = call("reload", "edge", "main.orders")
    assert code == 0, text
    assert rig.rows("SELECT id FROM edge.orders ORDER BY 1") == [(1,), (2,)]
    assert call("run", "edge")[0] == 0
    assert call("verify", "edge")[0] == 0
