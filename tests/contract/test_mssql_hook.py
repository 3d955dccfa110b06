"""Airflow's ways to use a connection of Floodmark: ``airflow connections test``, and the hook behind it and *Test*."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import column, select, table

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.errors import ConfigError, SourceLoginError
from floodmark.orchestration.mssql_hook import FloodmarkMsSqlHook
from sql_browser import answer_of, browser

Fields = dict[str, Any]
TEST_ALL = """
import sys
from airflow.__main__ import main
for conn_id in {conn_ids!r}:
    sys.argv = ["airflow", "connections", "test", conn_id]
    try:
        main()
    except SystemExit as end:
        print("EXIT", conn_id, end.code)
    else:
        print("EXIT", conn_id, 0)
"""


@pytest.fixture(scope="module")
def database(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run("CREATE TABLE dbo.Names (id int NOT NULL, name nvarchar(20))", "INSERT dbo.Names VALUES (1, N'größe')")
        yield made


@pytest.fixture
def fields(emulator: Emulator, database: CdcDatabase) -> Fields:
    return {
        "conn_type": "floodmark_mssql",
        "host": emulator.host,
        "port": emulator.port,
        "login": emulator.user,
        "password": emulator.password,
        "schema": database.name,
        "extra": {"Encrypt": "Mandatory", "ca_file": str(emulator.ca_file), "APP": "airflow"},
    }


@pytest.fixture
def hook(fields: Fields, monkeypatch: pytest.MonkeyPatch) -> FloodmarkMsSqlHook:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(fields))
    return FloodmarkMsSqlHook("shop")


def test_airflow_tests_a_connection_with_what_floodmark_takes(fields: Fields, tmp_path: Path) -> None:
    """A certificate that nothing trusts and a wrong password are found; the provider's hook fails on the extras."""
    untrusted = fields | {"extra": {"Encrypt": "Mandatory"}}
    connections = {
        "good": fields,
        "untrusted": untrusted,
        "misspelled": fields | {"extra": {"encript": "yes"}},
        "wrong": fields | {"password": "s3cret-s3cret"},
        "of_the_provider": fields | {"conn_type": "mssql"},
    }
    # The Rust driver reads the trusted authorities once in a process: what trusts none needs a process of its own.
    others = [name for name in connections if name != "untrusted"]
    printed = "".join(airflow_tests(names, connections, tmp_path) for names in (["untrusted"], others))
    ends = dict(line.split()[1:] for line in printed.splitlines() if line.startswith("EXIT"))
    assert ends == {name: "0" if name == "good" else "1" for name in connections}, printed
    assert "Connection success!" in printed
    assert "certificate" in printed
    assert "encript (did you mean encrypt?)" in printed
    assert "Login failed" in printed
    assert "s3cret" not in printed


def airflow_tests(names: list[str], connections: dict[str, Fields], home: Path) -> str:
    """Return what ``airflow connections test`` prints for each of some connections, in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-c", TEST_ALL.format(conn_ids=names)],
        # Tests that ran before in this process may trust a certificate (``emulator_process.trust``).
        env={name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "SSL_CERT_FILE"))}
        | {f"AIRFLOW_CONN_{name.upper()}": json.dumps(each) for name, each in connections.items()}
        | {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__TEST_CONNECTION": "Enabled", "COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    return done.stdout + done.stderr


def test_hook_reads_and_writes_as_airflows_operators_do(hook: FloodmarkMsSqlHook, database: CdcDatabase) -> None:
    assert hook.test_connection() == (True, "Connection successfully tested")
    assert hook.get_first("SELECT name FROM dbo.Names WHERE id = ?", parameters=[1])[0] == "größe"
    database.run("CREATE TABLE dbo.Written (id int NOT NULL, name nvarchar(20))")
    hook.insert_rows("dbo.Written", [(2, "b"), (3, "c")], target_fields=["id", "name"])
    hook.run("DELETE FROM dbo.Written WHERE id = ?", parameters=[3], autocommit=True)
    assert [tuple(row) for row in hook.get_records("SELECT id FROM dbo.Written ORDER BY id")] == [(2,)]
    with hook.get_conn() as session:
        session.cursor().execute("DELETE FROM dbo.Written WHERE id = 2")
        session.rollback()
    assert database.scalar("(SELECT count(*) FROM dbo.Written)") == 1


def test_hook_has_an_engine_of_sqlalchemy(hook: FloodmarkMsSqlHook) -> None:
    with hook.get_sqlalchemy_engine().connect() as session:
        assert session.scalar(select(column("name")).select_from(table("Names", schema="dbo"))) == "größe"


def test_hook_takes_a_connection_of_the_providers_type_and_another_database(
    hook: FloodmarkMsSqlHook, fields: Fields, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(fields | {"conn_type": "mssql"}))
    assert FloodmarkMsSqlHook(mssql_conn_id="shop", schema="master").get_first("SELECT DB_NAME()")[0] == "master"


def test_instance_without_a_port_is_the_one_that_sql_server_browser_names(
    hook: FloodmarkMsSqlHook, fields: Fields, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = fields | {"host": f"{emulator.host}\\REPORTING", "port": None}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(written))
    said = answer_of(f"ServerName;S;InstanceName;REPORTING;IsClustered;No;Version;16.0.1000.6;tcp;{emulator.port};;")
    with browser(monkeypatch, lambda _: said) as asked:
        assert hook.get_first("SELECT name FROM dbo.Names")[0] == "größe"
    assert asked == [b"\x04REPORTING\0"]


def test_hook_says_what_is_wrong_in_floodmarks_words(fields: Fields, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(fields | {"password": "s3cret-s3cret"}))
    with pytest.raises(SourceLoginError, match="Login failed"):
        FloodmarkMsSqlHook("shop").get_conn()
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(fields | {"extra": {"encript": "yes"}}))
    with pytest.raises(ConfigError, match=r"did you mean encrypt\?"):
        FloodmarkMsSqlHook("shop").get_conn()
