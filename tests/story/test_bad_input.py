"""Mistakes that users make end in one clear message, and nothing is lost or half-written."""

from __future__ import annotations

import json

import pytest

from mishaps import Mishaps, table

pytestmark = pytest.mark.timeout(600)


def test_run_names_the_tables_that_do_not_exist_or_have_no_cdc_and_loads_the_other(mishaps: Mishaps) -> None:
    mishaps.source("CREATE TABLE dbo.Untracked (ID int NOT NULL PRIMARY KEY)")
    mishaps.make_table("Tracked")
    config = mishaps.config("missing", table("Tracked"), table("Untracked"), table("Nowhere"))
    output = mishaps.fails(config)
    assert "dbo.Untracked" in output
    assert "dbo.Nowhere" in output
    assert mishaps.warehouse('SELECT "ID", "V" FROM bad.tracked ORDER BY 1') == [(1, "one"), (2, "zwölf")]


def test_run_names_the_table_without_a_key(mishaps: Mishaps) -> None:
    mishaps.make_table("Keyless", "ID int NOT NULL, V nvarchar(50) NULL")
    output = mishaps.fails(mishaps.config("keyless", table("Keyless")))
    assert "dbo.Keyless" in output
    assert "key" in output
    config = mishaps.config("keyless", table("Keyless", key=["ID"]))
    mishaps.succeeds(config)
    mishaps.assert_equal(config)


def test_run_says_that_the_source_refused_the_password_without_showing_it(mishaps: Mishaps) -> None:
    mishaps.make_table("Secret")
    connection = json.loads(mishaps.stack.airflow.environment()["AIRFLOW_CONN_BAD_MSSQL"])
    connection["password"] = "entirely-wrong-password"
    output = mishaps.fails(mishaps.config("secret", table("Secret")), AIRFLOW_CONN_BAD_MSSQL=json.dumps(connection))
    assert "sa" in output
    assert "entirely-wrong-password" not in output
    assert mishaps.stack.source.password not in output


def test_run_whose_java_does_not_start_says_what_java_said(mishaps: Mishaps) -> None:
    mishaps.make_table("Unstarted")
    config = mishaps.config("unstarted", table("Unstarted", partitions=1))
    output = mishaps.on_spark.fails(config, SPARK_SUBMIT_OPTS="--add-modules=of.nobody")
    message = output[output.index("floodmark: window") :]
    assert "Spark did not start the load (exit status 1)." in message
    assert "Module of.nobody not found" in message
    assert "SPARK_SUBMIT_OPTS" in message
    assert [state for _, state in mishaps.windows(config)] == ["planned"]
    mishaps.succeeds(config)
    mishaps.assert_equal(config)


def test_run_says_which_table_a_login_may_not_read(mishaps: Mishaps) -> None:
    mishaps.make_table("Guarded")
    mishaps.source("CREATE LOGIN poor WITH PASSWORD = 'Poor-but-honest-1'")
    mishaps.source("CREATE USER poor FOR LOGIN poor")
    connection = json.loads(mishaps.stack.airflow.environment()["AIRFLOW_CONN_BAD_MSSQL"])
    connection |= {"login": "poor", "password": "Poor-but-honest-1"}
    config = mishaps.config("guarded", table("Guarded"))
    output = mishaps.fails(config, AIRFLOW_CONN_BAD_MSSQL=json.dumps(connection))
    assert "dbo.Guarded" in output


def test_run_ends_expired_when_cleanup_has_passed_a_watermark_and_the_other_table_goes_on(mishaps: Mishaps) -> None:
    mishaps.make_table("Aged")
    mishaps.make_table("Fresh")
    config = mishaps.config("aged", table("Aged"), table("Fresh"))
    mishaps.succeeds(config)
    stopped = "SELECT watermark FROM floodmark.tables WHERE pipeline = 'aged' AND source_name = 'Aged'"
    before = mishaps.warehouse(stopped)
    mishaps.source("UPDATE dbo.Fresh SET V = N'changed' WHERE ID = 1")
    mishaps.source("UPDATE dbo.Aged SET V = N'changed' WHERE ID = 1")
    mishaps.wait_until_captured("Aged", "V = N'changed'")
    mishaps.source("UPDATE dbo.Aged SET V = N'again' WHERE ID = 1")
    mishaps.wait_until_captured("Aged", "V = N'again'")
    mishaps.source(
        "DECLARE @low binary(10) = sys.fn_cdc_get_max_lsn() EXEC sys.sp_cdc_cleanup_change_table N'dbo_Aged', @low"
    )
    output = mishaps.fails(config)
    assert "floodmark: dbo.Aged: expired: " in output
    assert mishaps.warehouse(stopped) == before
    assert mishaps.warehouse('SELECT "V" FROM bad.fresh WHERE "ID" = 1') == [("changed",)]


def test_run_stops_at_a_broken_rule_and_merges_nothing(mishaps: Mishaps) -> None:
    mishaps.make_table("Ruled")
    rule = {"name": "v_not_forbidden", "sql": "\"V\" <> 'forbidden'", "on_failure": "stop"}
    config = mishaps.config("ruled", table("Ruled", rules=[rule]))
    mishaps.succeeds(config)
    mishaps.source("UPDATE dbo.Ruled SET V = N'forbidden' WHERE ID = 1")
    mishaps.source("UPDATE dbo.Ruled SET V = N'allowed' WHERE ID = 2")
    mishaps.wait_until_captured("Ruled", "V = N'allowed'")
    output = mishaps.checked.fails(config)
    assert "v_not_forbidden" in output
    assert mishaps.warehouse('SELECT "V" FROM bad.ruled ORDER BY "ID"') == [("one",), ("zwölf",)]


def test_run_that_cannot_reach_the_source_says_so_and_a_later_one_goes_on(mishaps: Mishaps) -> None:
    mishaps.make_table("Away")
    config = mishaps.config("away", table("Away"))
    connection = json.loads(mishaps.stack.airflow.environment()["AIRFLOW_CONN_BAD_MSSQL"]) | {"port": 1}
    output = mishaps.fails(config, AIRFLOW_CONN_BAD_MSSQL=json.dumps(connection))
    assert "127.0.0.1" in output
    warehouse = json.loads(mishaps.stack.airflow.environment()["AIRFLOW_CONN_WAREHOUSE"]) | {"port": 1}
    output = mishaps.fails(config, AIRFLOW_CONN_WAREHOUSE=json.dumps(warehouse))
    assert "warehouse" in output
    mishaps.succeeds(config)
    mishaps.assert_equal(config)
