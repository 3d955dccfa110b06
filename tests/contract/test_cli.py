"""The command line, on a real ledger. Runs with a source and Spark are in tests/story."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner
from warehouse_shop import INSERT, UPDATE, Row, Shop, changes, first_load

from floodmark.app.pipeline import Pipeline
from floodmark.cli.main import app
from floodmark.cli.process import out
from floodmark.core.alert import Alert
from floodmark.core.errors import LoadKilledError, WindowBusyError
from floodmark.core.plan import LoadKind, TablePlan, WindowState, load_lane, plan_chunks
from floodmark.core.position import Lsn, NoPosition
from floodmark.core.progress import SourceProgress
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.settings import OnFailure, Rule, TableSettings
from floodmark.core.snapshot import (
    DatabaseIdentity,
    Feed,
    FeedIdentity,
    SourceSnapshot,
    TableSnapshot,
    Validity,
    Verdict,
)
from floodmark.core.upkeep import ChangeTableSize
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.ledger.status import PostgresAlertLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.cdc.kind import CdcKind
from floodmark.sync.alerts import AlertService
from floodmark.sync.ports import Progress
from floodmark.sync.records import DriftFacts, TableDetails
from lsns import lsn

ORDERS = TableName("dbo", "Orders")
NOW = datetime(2026, 1, 1, 12, 0, 0)
CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}
"""


def instance() -> Feed:
    table = SourceTable(ORDERS, (SourceColumn("OrderID", "bigint", 1),), ("OrderID",))
    return Feed(FeedIdentity("dbo_Orders", 1, NOW), table, lsn(1), False, True)


class IdleSource:
    """Has captured up to LSN 9, and nothing of the table."""

    runs = True
    taken_at = NOW
    identity = DatabaseIdentity("SQL1", "Shop", "6f9619ff-8b86-d011-b42d-00c04fc964ff")

    def read_snapshot(
        self,
        tables: object,
        feeds: object = None,
        positions: Collection[Lsn] = (),
        marks: object = None,
        whole: object = (),
    ) -> SourceSnapshot:
        table_seen = TableSnapshot(ORDERS, True, instance(), lsn(1), last_change=NoPosition.NULL)
        entries = dict.fromkeys(positions, NOW)
        snapshot = SourceSnapshot("Shop", True, lsn(9), NOW, self.taken_at, 1.0, self.runs, (table_seen,), entries)
        return replace(snapshot, identity=self.identity)

    def read_drift(self, asked: object) -> DriftFacts:
        return DriftFacts({"dbo_Orders": TableDetails()}, ())


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: WarehouseConnection) -> CliRunner:
    """With a configuration of one table and the warehouse of the test."""
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    monkeypatch.setenv("FLOODMARK_CONFIG", str(path))
    warehouse = {
        "conn_type": "postgres",
        "host": database.host,
        "port": database.port,
        "login": database.user,
        "password": "s3cret-s3cret",
        "schema": database.database,
    }
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(warehouse))
    monkeypatch.delenv("AIRFLOW_CONN_SHOP_MSSQL", raising=False)
    monkeypatch.setattr(out, "width", 200)
    return CliRunner()


@pytest.fixture
def idle_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CdcKind, "snapshots", lambda self: IdleSource())
    monkeypatch.setattr(CdcKind, "drift", lambda self: IdleSource())
    monkeypatch.setattr(Pipeline, "job_secrets", lambda self: {})
    sizes = (ChangeTableSize("dbo_Orders", ORDERS, 1234, 5 << 20),)
    monkeypatch.setattr(
        CdcKind,
        "read_progress",
        lambda self, found, marks: SourceProgress(dict.fromkeys(found, 2), 4320, sizes),
    )


def publish_first_load(ledger: PostgresLedger, database: WarehouseConnection) -> int:
    """A window as the loads and checks of a run leave it, five rows inserted."""
    table = TablePlan(
        TableSettings(ORDERS, TableName("shop", "orders")),
        LoadKind.FIRST_LOAD,
        instance(),
        None,
        None,
    )
    window_id = ledger.open_window("shop", lsn(9), (table,), NOW).window_id
    with psycopg.connect(database.conninfo(), autocommit=True) as session:
        session.execute("UPDATE floodmark.window_tables SET read_rows = 5, staged_rows = 5, inserted_rows = 5")
        session.execute("UPDATE floodmark.windows SET state = 'merged'")
    ledger.mark_checked(window_id)
    ledger.advance(window_id)
    assert ledger.read_window(window_id).state is WindowState.ADVANCED
    return window_id


def test_config_check_counts_what_it_read(cli: CliRunner) -> None:
    result = cli.invoke(app, ["config", "check"])
    assert result.exit_code == 0
    assert result.stdout.endswith("good: 1 pipeline, 1 table.\n")


def test_config_check_lists_every_problem_and_ends_with_2(cli: CliRunner, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(CONFIG.replace("target: shop.orders", "target: shop.orders, rules: [{name: a, sql: 'a >'}]"))
    result = cli.invoke(app, ["config", "check", str(wrong)])
    assert result.exit_code == 2
    assert "pipelines.shop.tables[0].rules[0].sql" in result.stderr
    assert "Traceback" not in result.output


def test_config_check_shows_the_defaults_and_reads_them_again(cli: CliRunner, tmp_path: Path) -> None:
    shown = cli.invoke(app, ["config", "check", "--show"]).stdout
    assert "deletes: soft" in shown
    written = tmp_path / "shown.yaml"
    written.write_text(shown, encoding="utf-8")
    assert cli.invoke(app, ["config", "check", str(written)]).exit_code == 0


def test_quarantine_is_counted_by_table_and_rule(
    cli: CliRunner, ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    assert ledger.read_tables("shop") == {}
    assert "There is no row in quarantine." in cli.invoke(app, ["quarantine", "list"]).stdout
    with psycopg.connect(database.conninfo()) as session:
        session.execute(
            "INSERT INTO floodmark.quarantine (pipeline, source_schema, source_name, target_schema, target_name,"
            " window_id, rule, key, lsn, row_data)"
            " SELECT 'shop', 'dbo', 'Orders', 'shop', 'orders', 1, rule, jsonb_build_array(id),"
            " decode('00000000000000000001', 'hex'), '{\"Id\": 4711}'"
            " FROM (VALUES ('positive', 4711), ('positive', 4711), ('positive', 4712), ('known', 4711)) AS r (rule, id)"
        )
    result = cli.invoke(app, ["quarantine", "list"])
    assert result.exit_code == 0
    assert sorted(line.split()[:3] for line in result.stdout.splitlines()[2:]) == [
        ["dbo.Orders", "known", "1"],
        ["dbo.Orders", "positive", "2"],
    ]
    assert "4711" not in result.stdout
    found = json.loads(cli.invoke(app, ["quarantine", "list", "shop", "--json"]).stdout)
    assert {(each["pipeline"], each["table"], each["rule"], each["rows"]) for each in found} == {
        ("shop", "dbo.Orders", "positive", 2),
        ("shop", "dbo.Orders", "known", 1),
    }
    unknown = cli.invoke(app, ["quarantine", "list", "nothing"])
    assert (unknown.exit_code, "nothing" in unknown.stderr) == (2, True)


def test_quarantined_rows_are_released_and_discarded(
    cli: CliRunner, ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    shop = Shop(database, ledger)
    rule = Rule("positive", "amount > 0", OnFailure.QUARANTINE)
    shop.run(first_load(rules=(rule,)), 10, [Row(1, INSERT, 10, -4711), Row(2, INSERT, 10, 5)])
    released = cli.invoke(app, ["quarantine", "release", "shop", "DBO.orders"])
    assert released.exit_code == 0, released.stderr
    assert "entries released: 1; overtaken by later changes: 0." in released.stdout
    assert "rows inserted: 1; updated: 0." in released.stdout
    assert "4711" not in released.stdout
    assert "no row in quarantine" in cli.invoke(app, ["quarantine", "release", "shop", "dbo.Orders"]).stdout
    shop.run(changes(10, 20, rules=(rule,)), 20, [Row(2, UPDATE, 15, -5)])
    discarded = cli.invoke(app, ["quarantine", "discard", "shop", "dbo.Orders", "--rule", "positive"])
    assert "dbo.Orders: entries of rule positive discarded: 1." in discarded.stdout
    assert "There is no row in quarantine." in cli.invoke(app, ["quarantine", "list"]).stdout
    unknown = cli.invoke(app, ["quarantine", "release", "shop", "dbo.Nothing"])
    assert (unknown.exit_code, "dbo.Nothing" in unknown.stderr) == (2, True)


def test_status_before_the_first_run_says_so_and_makes_nothing(cli: CliRunner, database: WarehouseConnection) -> None:
    result = cli.invoke(app, ["status"])
    assert result.exit_code == 0
    assert "never_run" in result.stdout
    with psycopg.connect(database.conninfo()) as session:
        assert session.execute("SELECT to_regnamespace('floodmark')").fetchone() == (None,)


def test_status_shows_watermark_rows_and_windows(
    cli: CliRunner, ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    publish_first_load(ledger, database)
    (status,) = json.loads(cli.invoke(app, ["status", "shop", "--json"]).stdout)
    assert status["unfinished_window_id"] is None
    (table,) = status["tables"]
    assert (table["source"], table["target"]) == ("dbo.Orders", "shop.orders")
    assert (table["watermark"], table["windows"], table["inserted_rows"]) == (str(lsn(9)), 1, 5)
    assert table["watermark_at"] == NOW.isoformat()
    assert str(lsn(9)) in cli.invoke(app, ["status"]).stdout


def test_status_names_an_unfinished_window(cli: CliRunner, ledger: PostgresLedger) -> None:
    table = TablePlan(
        TableSettings(ORDERS, TableName("shop", "orders")),
        LoadKind.FIRST_LOAD,
        instance(),
        None,
        None,
    )
    opened = ledger.open_window("shop", lsn(9), (table,))
    assert f"window {opened.window_id} is unfinished (planned)" in cli.invoke(app, ["status"]).stdout


@pytest.mark.usefixtures("idle_source")
def test_status_asks_the_source_for_the_lag_with_option_live(
    cli: CliRunner, ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    publish_first_load(ledger, database)
    (status,) = json.loads(cli.invoke(app, ["status", "--live", "--json"]).stdout)
    (table,) = status["tables"]
    assert (table["lag_seconds"], table["transactions_behind"], table["headroom_seconds"]) == (0, 2, 3 * 86400)
    assert (table["verdict"], table["standing"], status["standing"]) == ("caught_up", "fine", "fine")
    assert table["change_tables"] == [{"instance": "dbo_Orders", "rows": 1234, "size_bytes": 5 << 20}]
    shown = cli.invoke(app, ["status", "--live"]).stdout
    assert shown.index("1,234 rows") < shown.index("5.0 MiB")
    assert "change table" not in cli.invoke(app, ["status"]).stdout


@pytest.mark.usefixtures("idle_source")
def test_status_shows_a_source_that_was_restored_and_has_written_on(
    cli: CliRunner, ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    publish_first_load(ledger, database)
    with psycopg.connect(database.conninfo(), autocommit=True) as session:
        session.execute("UPDATE floodmark.tables SET watermark_at = %s", [NOW - timedelta(hours=1)])
    (status,) = json.loads(cli.invoke(app, ["status", "--live", "--json"]).stdout)
    (table,) = status["tables"]
    assert (table["verdict"], status["standing"]) == ("ahead_of_source", "incident")
    assert f"committed at {NOW - timedelta(hours=1)}" in table["cause"]
    assert "ahead_of_source" in cli.invoke(app, ["status", "--live"]).stdout


def test_status_shows_the_last_window_apart_from_the_sum_of_all(
    cli: CliRunner, ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    window_id = publish_first_load(ledger, database)
    (table,) = json.loads(cli.invoke(app, ["status", "--json"]).stdout)[0]["tables"]
    last = {"window_id": window_id, "read_rows": 5, "inserted_rows": 5, "updated_rows": 0, "deleted_rows": 0}
    assert table["last_window"] == last | {"quarantined_rows": 0, "margin_seconds": None}
    assert table["state"] == "settling"


def test_status_shows_the_progress_of_a_table_that_is_reloaded(
    cli: CliRunner, ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    publish_first_load(ledger, database)
    table = TablePlan(
        TableSettings(ORDERS, TableName("shop", "orders")),
        LoadKind.FIRST_LOAD,
        instance(),
        None,
        lsn(9),
        True,
    )
    opened = ledger.open_window("shop", lsn(20), (table,), lane=load_lane(ORDERS))
    ledger.store_chunks(opened, ORDERS, plan_chunks([(number,) for number in range(6)]))
    with psycopg.connect(database.conninfo()) as session:
        session.execute("UPDATE floodmark.load_chunks SET state = 'staged', rows = 400000 WHERE chunk_no < 3")
    (status,) = json.loads(cli.invoke(app, ["status", "--json"]).stdout)
    (found,) = status["tables"]
    assert (found["verdict"], found["load_percent"], found["load_rows"]) == ("repairing", 42, 1_200_000)
    assert (found["standing"], status["unfinished_window_id"]) == ("attention", None)
    assert "reloads it: 42 %, 1,200,000 rows are staged" in " ".join(cli.invoke(app, ["status"]).stdout.split())


def test_status_of_a_ledger_of_the_version_before_brings_it_up_to_date(
    cli: CliRunner, ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    publish_first_load(ledger, database)
    with psycopg.connect(database.conninfo()) as session:
        session.execute("ALTER TABLE floodmark.windows DROP COLUMN lane CASCADE")
        session.execute("DROP TABLE floodmark.load_chunks, floodmark.gaps")
        session.execute("UPDATE floodmark.ledger_version SET version = 3")
    result = cli.invoke(app, ["status"])
    assert result.exit_code == 0, result.output


@pytest.mark.usefixtures("idle_source")
def test_reload_opens_a_load_and_goes_on_with_it_when_it_is_called_again(
    cli: CliRunner, ledger: PostgresLedger, database: WarehouseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_first_load(ledger, database)
    loaded: list[int] = []

    def killed(
        secrets: Mapping[str, str], master: str | None, window_id: int, path: Path, progress: Progress | None
    ) -> None:
        loaded.append(window_id)
        raise LoadKilledError("window", "killed.")

    monkeypatch.setattr("floodmark.cli.runs.run_load", killed)
    for _ in range(2):
        assert cli.invoke(app, ["reload", "shop", "dbo.orders"]).exit_code == 75
    assert len(loaded) == 2
    assert len(set(loaded)) == 1
    (opened,) = ledger.list_unfinished("shop")
    assert (opened.plan.lane, opened.plan.tables[0].is_reload) == (load_lane(ORDERS), True)
    refused = cli.invoke(app, ["reload", "shop", "dbo.Orders", "--give-up", "--where", "1 = 1"])
    assert (refused.exit_code, len(ledger.list_unfinished("shop"))) == (2, 1)
    given_up = cli.invoke(app, ["reload", "shop", "dbo.Orders", "--give-up"])
    assert (given_up.exit_code, given_up.stdout) == (
        0,
        f"Window {loaded[0]} was given up. The target stays as it was.\n",
    )
    assert ledger.list_unfinished("shop") == []
    nothing = cli.invoke(app, ["reload", "shop", "dbo.Orders", "--give-up"])
    assert (nothing.exit_code, "no load of it is unfinished" in nothing.stderr) == (1, True)


@pytest.mark.usefixtures("idle_source")
def test_run_that_fails_is_reported_until_a_run_succeeds(
    cli: CliRunner, ledger: PostgresLedger, database: WarehouseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Exception] = [LoadKilledError("window 1", "killed.")] * 2
    failures += [WindowBusyError("window 1", "another load of it is at work."), ValueError("not reported")]

    def fail(
        secrets: Mapping[str, str], master: str | None, window_id: int, path: Path, progress: Progress | None
    ) -> None:
        raise failures.pop(0)

    def reported() -> list[tuple[str, str, int]]:
        with psycopg.connect(database.conninfo()) as session:
            statement = "SELECT event_key, what, times FROM floodmark.alerts WHERE ended_at IS NULL ORDER BY alert_id"
            return session.execute(statement).fetchall()  # type: ignore[return-value]

    monkeypatch.setattr("floodmark.cli.runs.run_load", fail)
    ends = [cli.invoke(app, ["run", "shop"]) for _ in range(4)]
    assert [end.exit_code for end in ends] == [75, 75, 75, 1]
    assert reported() == [
        ("run_failed:shop:LoadKilledError:window 1", "window 1: killed.", 2),
        ("run_failed:shop:FloodmarkBugError:shop", "shop: the run ended with ValueError.", 1),
    ]
    (opened,) = ledger.list_unfinished("shop")
    ledger.leave_out(opened.plan.window_id, [ORDERS])
    publish_first_load(ledger, database)
    assert cli.invoke(app, ["run", "shop"]).exit_code == 0
    assert reported() == []
    assert cli.invoke(app, ["run", "nope"]).exit_code == 2
    assert reported() == []


@pytest.mark.usefixtures("idle_source")
def test_reload_refuses_what_is_no_table_or_no_condition(cli: CliRunner) -> None:
    for arguments, words in (
        (["dbo.Nope"], "it has no table dbo.Nope"),
        (["Orders"], "not a table name"),
        (["dbo.Orders", "--where", "1 = 1; DROP TABLE x"], "it contains a semicolon"),
    ):
        result = cli.invoke(app, ["reload", "shop", *arguments])
        assert result.exit_code == 2
        assert words in " ".join(result.stderr.split())


def test_status_check_ends_with_0_while_nothing_is_wrong(cli: CliRunner) -> None:
    assert cli.invoke(app, ["status", "--check"]).exit_code == 0


def test_status_check_ends_with_4_while_a_table_gets_no_new_rows(
    cli: CliRunner, ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    publish_first_load(ledger, database)
    stopped = Validity(ORDERS, Verdict.CAPTURE_STOPPED, "the capture job does not run.", "Start it.")
    ledger.record_verdicts("shop", [stopped])
    result = cli.invoke(app, ["status", "--check"])
    assert result.exit_code == 4
    assert "dbo.Orders: capture_stopped: the capture job does not run. Start it." in " ".join(result.stdout.split())
    assert cli.invoke(app, ["status"]).exit_code == 0


def test_status_check_ends_with_3_while_an_alert_about_the_pipeline_or_its_source_is_open(
    cli: CliRunner, database: WarehouseConnection
) -> None:
    planner = AlertService(lambda: PostgresAlertLedger(database), ())
    drift = Alert(kind="drift", subject="other", what="A [b]column[/b] went.", means="-", do="-", event_key="drift:1")
    planner.raise_alert(drift)
    assert cli.invoke(app, ["status", "--check"]).exit_code == 0
    planner.raise_alert(replace(drift, subject="shop", event_key="drift:2"))
    result = cli.invoke(app, ["status", "--check"])
    assert result.exit_code == 3
    assert "drift: A [b]column[/b] went." in result.stdout
    planner.end_alert("drift:2")
    assert cli.invoke(app, ["status", "--check"]).exit_code == 0


def test_status_check_ends_with_4_while_runs_fail_of_whatever(cli: CliRunner, database: WarehouseConnection) -> None:
    planner = AlertService(lambda: PostgresAlertLedger(database), ())
    failed = Alert(
        kind="run_failed", subject="shop", what="A check failed.", means="-", do="-", event_key="run_failed:1"
    )
    planner.raise_alert(failed)
    assert cli.invoke(app, ["status", "--check"]).exit_code == 4
    planner.end_alerts("run_failed", "shop")
    planner.raise_alert(replace(failed, kind="replay_failed", event_key="replay_failed:1"))
    assert cli.invoke(app, ["status", "--check"]).exit_code == 3


def test_quiet_run_with_nothing_to_read_prints_nothing(
    cli: CliRunner, ledger: PostgresLedger, database: WarehouseConnection, idle_source: None
) -> None:
    publish_first_load(ledger, database)
    before = logging.getLogger("floodmark").level
    assert cli.invoke(app, ["run", "shop"]).stdout.startswith("Nothing to read: ")
    result = cli.invoke(app, ["run", "shop", "-q"])
    assert (result.exit_code, result.stdout) == (0, "")
    assert logging.getLogger("floodmark").level == before, "the next command of the process would be quiet too"


@pytest.mark.parametrize("command", [[], ["run"], ["drift", "list"], ["alerts"]])
def test_help_shows_no_type_for_a_flag(command: list[str]) -> None:
    text = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "100"}).stdout
    assert "--help" in text
    assert "<bool>" not in text


def test_alert_is_closed_with_a_reason_also_if_its_cause_has_parts(
    cli: CliRunner, database: WarehouseConnection, caplog: pytest.LogCaptureFixture
) -> None:
    planner = AlertService(lambda: PostgresAlertLedger(database), ())
    failed = Alert(
        kind="replay_failed", subject="shop", what="It failed.", means="-", do="-", event_key="replay_failed:shop:A:1"
    )
    planner.raise_alert(replace(failed, part="night"))
    planner.raise_alert(replace(failed, event_key="replay_failed:shop:A:2"))
    assert "Name: replay_failed:shop:A:1" in cli.invoke(app, ["alerts", "list"]).stdout
    unclear = cli.invoke(app, ["alerts", "close", "replay_failed", "--reason", "done"])
    assert (unclear.exit_code, "2 open alerts begin with this name" in unclear.stderr) == (2, True)
    assert cli.invoke(app, ["alerts", "close", "replay_failed:shop:A:1", "--reason", " "]).exit_code == 2
    caplog.set_level("INFO", "floodmark")
    closed = cli.invoke(app, ["alerts", "close", "replay_failed:shop:A:1", "--reason", "the backfill was dropped"])
    assert (closed.exit_code, closed.stdout) == (0, "replay_failed:shop:A:1 is closed.\n")
    assert "closed it: the backfill was dropped" in caplog.text
    assert cli.invoke(app, ["alerts", "close", "replay_failed", "--reason", "done"]).exit_code == 0
    assert json.loads(cli.invoke(app, ["alerts", "list", "--json"]).stdout) == []
    missing = cli.invoke(app, ["alerts", "close", "replay_failed", "--reason", "done"])
    assert (missing.exit_code, "no open alert has this name" in missing.stderr) == (2, True)


def test_drift_that_nobody_has_decided_about_is_shown_with_its_table_and_not_with_others(
    cli: CliRunner, ledger: PostgresLedger, database: WarehouseConnection
) -> None:
    alert = Alert(kind="schema_drift", subject="shop", what="w", means="-", do="-", event_key="drift:1", table=ORDERS)
    planner = AlertService(lambda: PostgresAlertLedger(database), ())
    planner.raise_alert(replace(alert, table=TableName("dbo", "Of another pipeline")))
    assert cli.invoke(app, ["status", "--check"]).exit_code == 0
    publish_first_load(ledger, database)
    with psycopg.connect(database.conninfo()) as session:
        for column, pipeline, approved in (("New", "shop", "NULL"), ("Old", "shop", "now()"), ("Far", "hr", "NULL")):
            session.execute(
                "INSERT INTO floodmark.drift_events (source, source_schema, source_name, instance_name,"
                " instance_object_id, instance_created_at, kind, column_name, before, after, is_captured, proposal,"
                " policies, approved_at) VALUES ('shop', 'dbo', 'Orders', 'dbo_Orders', 1, now(), 'column_added', %s,"
                f" '', 'int', false, '', jsonb_build_object(%s::text, 'alert'), {approved})",
                [column, pipeline],
            )
    (status,) = json.loads(cli.invoke(app, ["status", "--json"]).stdout)
    (words,) = status["tables"][0]["drift"]
    assert "New" in words
    assert words.endswith("(event 1)")
    assert "(event 1)" in " ".join(cli.invoke(app, ["status"]).stdout.split())
    planner.raise_alert(replace(alert, event_key="drift:2"))
    assert cli.invoke(app, ["status", "--check"]).exit_code == 3


STOPS = "conn_id: shop_mssql, capture: {stops: [{stop: '* * * * *', start: '0 0 1 1 *'}]}"
"""The capture job is to stand still from now on, until the year ends."""


@pytest.mark.usefixtures("idle_source")
def test_status_check_of_a_capture_job_that_is_stopped_is_an_incident_only_where_nobody_planned_it(
    cli: CliRunner,
    ledger: PostgresLedger,
    database: WarehouseConnection,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    publish_first_load(ledger, database)
    monkeypatch.setattr(IdleSource, "runs", False)
    monkeypatch.setattr(IdleSource, "taken_at", NOW + timedelta(seconds=60))
    for plan, expected in ((STOPS, (0, "caught_up", 0)), ("conn_id: shop_mssql", (4, "capture_stopped", 60))):
        (tmp_path / "pipelines.yaml").write_text(CONFIG.replace("conn_id: shop_mssql", plan), encoding="utf-8")
        result = cli.invoke(app, ["status", "--live", "--check", "--json"])
        (table,) = json.loads(result.stdout)[0]["tables"]
        assert (result.exit_code, table["verdict"], table["lag_seconds"]) == expected


@pytest.mark.usefixtures("idle_source")
def test_run_with_nothing_to_read_says_why_and_starts_no_spark(
    cli: CliRunner, ledger: PostgresLedger, database: WarehouseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_first_load(ledger, database)
    monkeypatch.setattr("floodmark.cli.runs.run_load", lambda *arguments: pytest.fail("Spark was started"))
    result = cli.invoke(app, ["run", "shop"])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Nothing to read: ")


def test_an_unknown_pipeline_ends_with_2_and_names_those_there_are(cli: CliRunner) -> None:
    result = cli.invoke(app, ["run", "shopp"])
    assert result.exit_code == 2
    assert "there is no such pipeline" in result.stderr
    assert "shop." in result.stderr


def test_a_missing_connection_ends_with_2_and_says_how_to_add_it(cli: CliRunner) -> None:
    result = cli.invoke(app, ["run", "shop"])
    assert result.exit_code == 2
    assert "connection shop_mssql: Airflow does not know it." in result.stderr
    assert "AIRFLOW_CONN_SHOP_MSSQL" in result.stderr


def test_a_warehouse_that_is_down_ends_with_75_and_shows_no_password(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere = {"conn_type": "postgres", "host": str(tmp_path), "login": "a", "password": "s3cret-s3cret", "schema": "b"}
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(nowhere))
    result = cli.invoke(app, ["status"])
    assert result.exit_code == 75
    assert "the warehouse cannot be reached" in result.stderr
    assert result.stderr.rstrip().endswith("Run the command again.")
    assert "s3cret" not in result.output


def test_pipeline_is_renamed_by_a_command(cli: CliRunner, database: WarehouseConnection, idle_source: None) -> None:
    ledger = PostgresLedger(database)
    ledger.ensure_schema()
    publish_first_load(ledger, database)
    ledger.rename_pipeline("shop", "before")
    for arguments in (("before", "elsewhere"), ("shop", "shop")):
        assert cli.invoke(app, ["rename", *arguments]).exit_code == 2
    renamed = cli.invoke(app, ["rename", "before", "shop"])
    assert renamed.exit_code == 0
    assert renamed.output.startswith("shop goes on where before ended, with 1 tables: dbo.Orders.")
    again = cli.invoke(app, ["rename", "before", "shop"])
    assert (again.exit_code, "no table of this pipeline" in again.output) == (1, True)


def test_target_is_renamed_by_a_command(cli: CliRunner, database: WarehouseConnection, idle_source: None) -> None:
    ledger = PostgresLedger(database)
    ledger.ensure_schema()
    publish_first_load(ledger, database)
    now = ledger.rename_target("shop", TableName("dbo", "Orders"), TableName("old", "orders"))
    renamed = cli.invoke(app, ["rename-target", "shop", "dbo.Orders"])
    assert (renamed.exit_code, renamed.output) == (0, f"dbo.Orders goes on in {now}, which was old.orders.\n")
    again = cli.invoke(app, ["rename-target", "shop", "dbo.Orders"])
    assert (again.exit_code, f"its target is {now} in the ledger already" in again.output) == (1, True)
    assert cli.invoke(app, ["rename-target", "shop", "dbo.Unknown"]).exit_code == 2


def test_database_of_a_source_is_confirmed_by_a_command(
    cli: CliRunner, database: WarehouseConnection, monkeypatch: pytest.MonkeyPatch, idle_source: None
) -> None:
    ledger = PostgresLedger(database)
    ledger.ensure_schema()
    publish_first_load(ledger, database)
    before = replace(IdleSource.identity, server="SQL0")
    ledger.record_database("shop", None, before)
    refused = cli.invoke(app, ["run", "shop"])
    assert refused.exit_code == 1
    assert "other_database" in refused.output
    assert "floodmark source confirm shop." in refused.output
    status = cli.invoke(app, ["status", "--live", "--check", "shop"])
    assert status.exit_code == 4
    assert "other_database" in status.output
    unknown = cli.invoke(app, ["source", "confirm", "nothing"])
    assert unknown.exit_code == 2
    assert "there is no such source" in unknown.output
    confirmed = cli.invoke(app, ["source", "confirm", "shop"])
    assert confirmed.exit_code == 0
    assert f"shop follows {IdleSource.identity}; before, it followed {before}." in confirmed.output
    assert ledger.read_database("shop") == IdleSource.identity
    again = cli.invoke(app, ["source", "confirm", "shop"])
    assert again.output.strip() == f"shop follows {IdleSource.identity}."
