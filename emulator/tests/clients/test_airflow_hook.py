"""Airflow's MsSqlHook and SQLExecuteQueryOperator on the emulator: what a DAG's tasks ask a SQL Server for."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from client_body import DATABASE, rows_of, run
from emulator_process import Emulator


@pytest.fixture
def hook(server: Emulator, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from airflow.providers.microsoft.mssql.hooks.mssql import MsSqlHook

    connection = {
        "conn_type": "mssql",
        "host": server.host,
        "port": server.port,
        "login": server.user,
        "password": server.password,
        "schema": DATABASE,
        "extra": {"encryption": "require"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", json.dumps(connection))
    yield MsSqlHook(mssql_conn_id="shop")


@pytest.fixture
def orders(server: Emulator) -> Iterator[str]:
    with contextlib.closing(server.connect_pymssql(DATABASE, autocommit=True)) as admin:
        run(admin, "DROP TABLE IF EXISTS dbo.Orders")
        run(admin, "CREATE TABLE dbo.Orders (Id int PRIMARY KEY, Name nvarchar(20), Amount decimal(9,2))")
        yield "dbo.Orders"


def test_the_hook_inserts_rows_and_reads_them(hook: Any, orders: str) -> None:
    hook.insert_rows(orders, [(1, "é", 1.5), (2, None, None)], target_fields=["Id", "Name", "Amount"])
    assert [tuple(row) for row in hook.get_records(f"SELECT Id, Name FROM {orders} ORDER BY Id")] == [
        (1, "é"),
        (2, None),
    ]
    assert tuple(hook.get_first(f"SELECT COUNT(*) FROM {orders} WHERE Id > %s", parameters=(1,))) == (1,)


def test_the_hook_replaces_rows_by_their_key(hook: Any, orders: str) -> None:
    fields = ["Id", "Name", "Amount"]
    hook.insert_rows(orders, [(1, "old", 1), (2, "kept", 2)], target_fields=fields)
    hook.insert_rows(orders, [(1, "new", 3), (3, "added", 4)], target_fields=fields, replace=True)
    found = hook.get_records(f"SELECT Id, Name FROM {orders} ORDER BY Id")
    assert [tuple(row) for row in found] == [(1, "new"), (2, "kept"), (3, "added")]


def test_the_hook_knows_a_tables_key_and_columns(hook: Any, orders: str) -> None:
    assert hook.dialect.get_primary_keys(orders) == ["Id"]
    assert hook.dialect.get_column_names(orders) == ["Id", "Name", "Amount"]


def test_the_hook_tests_its_connection_and_runs_several_statements_in_one_transaction(hook: Any, orders: str) -> None:
    assert hook.test_connection() == (True, "Connection successfully tested")
    with pytest.raises(Exception, match="Divide by zero"):
        hook.run([f"INSERT INTO {orders} (Id) VALUES (1)", "SELECT 1/0"])
    assert hook.get_records(f"SELECT * FROM {orders}") == []
    hook.run(f"INSERT INTO {orders} (Id) VALUES (1)", autocommit=True)
    assert len(hook.get_records(f"SELECT * FROM {orders}")) == 1


@pytest.mark.filterwarnings("ignore:pandas only supports SQLAlchemy:UserWarning")
def test_the_hook_gives_frames_and_an_engine(hook: Any, orders: str) -> None:
    hook.insert_rows(orders, [(i, f"n{i}", i) for i in range(5)], target_fields=["Id", "Name", "Amount"])
    frame = hook.get_df(f"SELECT Id, Name FROM {orders} ORDER BY Id")
    assert list(frame["Name"]) == [f"n{i}" for i in range(5)]
    with hook.get_sqlalchemy_engine().connect() as connection:
        assert connection.scalar(sa.text(f"SELECT COUNT(*) FROM {orders}")) == 5


def test_the_operator_runs_statements_and_returns_the_rows_of_the_last(
    hook: Any, orders: str, server: Emulator
) -> None:
    from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator

    operator = SQLExecuteQueryOperator(
        task_id="fill",
        conn_id="shop",
        sql=f"INSERT INTO {orders} (Id, Name) VALUES (%(id)s, N'by a task'); SELECT Id, Name FROM {orders};",
        parameters={"id": 7},
        split_statements=True,
        autocommit=True,
    )
    assert [tuple(row) for row in operator.execute({})] == [(7, "by a task")]
    with contextlib.closing(server.connect_pymssql(DATABASE)) as connection:
        assert rows_of(connection, f"SELECT Id FROM {orders}") == [(7,)]
