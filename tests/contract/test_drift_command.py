"""From the task of the drift DAG to ``floodmark drift``: the configuration's own connections, alerts and ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from shop_connections import set_connections
from typer.testing import CliRunner
from warehouse_shop import COLUMNS, INSERT, UPDATE, Row, Shop, changes, first_load, insert_rows, instance

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.app.operate import list_proposed
from floodmark.app.pipeline import App
from floodmark.app.status import read_history
from floodmark.app.upkeep import watch_drift
from floodmark.cli.main import app
from floodmark.cli.process import out
from floodmark.config.loading import load_config
from floodmark.core.plan import staging_table
from floodmark.core.schema import TableName, quote_table
from floodmark.orchestration.pages.buttons import Rights, drift_buttons
from floodmark.orchestration.pages.decisions import take_decision
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from lsns import lsn

CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    tables: [{source: dbo.Orders, target: shop.orders}, {source: dbo.Plain, target: shop.plain}]
"""


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(
            "CREATE TABLE dbo.Orders (Id int PRIMARY KEY, Code int)", "CREATE TABLE dbo.Plain (Id int PRIMARY KEY)"
        )
        made.enable("Orders")
        made.enable("Plain")
        yield made


@pytest.fixture
def config(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    emulator: Emulator,
    source: CdcDatabase,
    database: WarehouseConnection,
) -> Path:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    set_connections(monkeypatch, emulator, source.name, database, "s3cret")
    monkeypatch.setenv("FLOODMARK_CONFIG", str(path))
    monkeypatch.setattr(out, "width", 200)
    return path


def test_a_hold_is_found_reported_listed_shown_in_the_status_and_ended(
    config: Path, source: CdcDatabase, database: WarehouseConnection
) -> None:
    cli, loaded = CliRunner(), load_config(config)
    assert cli.invoke(app, ["drift", "list"]).stdout == "There is no undecided drift. See also --all.\n"
    assert watch_drift(App(loaded), "shop") == "no table is held"
    source.run("ALTER TABLE dbo.Orders ALTER COLUMN Code nvarchar(20)")
    source.scan()
    for _ in range(2):
        assert watch_drift(App(loaded), "shop") == "held: dbo.Orders in shop"
    with psycopg.connect(database.conninfo()) as session:
        alerts = session.execute("SELECT kind, times, ended_at IS NULL FROM floodmark.alerts").fetchall()
    assert alerts == [("schema_drift", 1, True)]
    listed = cli.invoke(app, ["drift", "list"]).stdout
    assert "column Code was changed from int to nvarchar(20), another kind of value" in " ".join(listed.split())
    assert "ALTER TABLE dbo.Orders ALTER COLUMN Code nvarchar(20)" in listed
    (document,) = json.loads(cli.invoke(app, ["drift", "list", "--json"]).stdout)
    assert (document["kind"], document["column"], document["held"]) == ("type_changed", "Code", ["shop"])
    (status,) = json.loads(cli.invoke(app, ["status", "--json"]).stdout)
    held = next(table for table in status["tables"] if table["source"] == "dbo.Orders")
    assert (held["verdict"], held["standing"]) == ("held", "incident")
    assert "column Code" in held["cause"]
    approved = cli.invoke(app, ["drift", "approve", str(document["event_id"])])
    assert approved.stdout == "Event 1 is approved; dbo.Orders continues in shop.\n"
    assert watch_drift(App(loaded), "shop") == "no table is held"
    with psycopg.connect(database.conninfo()) as session:
        assert session.execute("SELECT count(*) FROM floodmark.alerts WHERE ended_at IS NULL").fetchone() == (0,)
    assert cli.invoke(app, ["drift", "list"]).stdout == "There is no undecided drift. See also --all.\n"
    assert cli.invoke(app, ["drift", "list", "--all"]).stdout.count("approved") >= 1


def test_a_proposal_is_listed_approved_and_carried_out_or_rejected_once(config: Path, source: CdcDatabase) -> None:
    cli, loaded = CliRunner(), load_config(config)
    assert cli.invoke(app, ["drift", "switch", "shop"]).stdout == "no switch of a capture instance is in progress.\n"
    watch_drift(App(loaded), "shop")
    source.run("ALTER TABLE dbo.Orders ADD Note nvarchar(20)", "ALTER TABLE dbo.Plain ADD Hidden int")
    source.scan()
    watch_drift(App(loaded), "shop")
    by_column = {
        each["column"]: str(each["event_id"])
        for each in json.loads(cli.invoke(app, ["drift", "list", "--json"]).stdout)
    }
    assert "@captured_column_list = N'[Id], [Code], [Note]';" in cli.invoke(app, ["drift", "list"]).stdout
    rejected = cli.invoke(app, ["drift", "reject", by_column["Hidden"]])
    assert rejected.stdout == "dbo.Plain continues without Hidden.\n"
    approved = cli.invoke(app, ["drift", "approve", by_column["Note"]]).stdout
    assert approved.startswith("dbo.Orders switches from capture instance dbo_Orders to dbo_Orders_2, with Note.")
    for number in by_column.values():
        again = cli.invoke(app, ["drift", "approve", number])
        assert again.exit_code == 1
        assert "already" in again.stderr
    # No run has read the table yet, so that no pipeline has to switch, and nothing has to be loaded.
    switched = cli.invoke(app, ["drift", "switch", "shop"])
    assert switched.stdout == "dbo.Orders, dbo_Orders to dbo_Orders_2: done; dbo_Orders was dropped.\n"
    instances = source.query("EXEC sys.sp_cdc_help_change_data_capture")
    assert sorted(row["capture_instance"] for row in instances) == ["dbo_Orders_2", "dbo_Plain"]
    listed = cli.invoke(app, ["drift", "list", "--all"]).stdout
    assert ("rejected" in listed, "approved" in listed, "Switch" in listed) == (True, True, False)


def test_columns_that_are_added_together_are_reported_asked_about_and_rejected_together(
    config: Path, source: CdcDatabase, database: WarehouseConnection
) -> None:
    cli, loaded = CliRunner(), load_config(config)
    watch_drift(App(loaded), "shop")
    source.run("ALTER TABLE dbo.Orders ADD Note nvarchar(20), Colour int")
    source.scan()
    watch_drift(App(loaded), "shop")
    source.run("ALTER TABLE dbo.Orders ADD Late bit")
    source.scan()
    watch_drift(App(loaded), "shop")
    with psycopg.connect(database.conninfo()) as session:
        reported = [what for (what,) in session.execute("SELECT what FROM floodmark.alerts ORDER BY what")]
    note, colour = "column Note nvarchar(20) (event 1)", "column Colour int (event 2)"
    for what, column, others in zip(
        reported, ("Colour int", "Late bit", "Note nvarchar(20)"), (note, f"{note} and {colour}", colour), strict=True
    ):
        assert what.startswith(f"dbo.Orders: column {column} was added; the capture instance does not capture it. ")
        assert f" It would be captured together with {others}. " in what
    listed = " ".join(cli.invoke(app, ["drift", "list"]).stdout.split())
    assert f"It would be captured together with {note} and {colour}." in listed

    (question,) = list_proposed(App(loaded), "shop")
    assert question.subject == "dbo.Orders: capture Note, Colour, Late?"
    assert (
        "columns Note nvarchar(20), Colour int, Late bit were added; the capture instance does not capture them. "
        "DDL at LSN" in question.body
    )
    assert question.body.count("ADD Note nvarchar(20), Colour int") == question.body.count("ADD Late bit") == 1
    rejected = cli.invoke(app, ["drift", "reject", str(question.event_id)])
    assert rejected.stdout == "dbo.Orders continues without Note, Colour, Late.\n"
    assert cli.invoke(app, ["drift", "list"]).stdout == "There is no undecided drift. See also --all.\n"


def test_what_is_not_there_is_refused_by_name(config: Path) -> None:
    cli = CliRunner()
    for arguments, words in (
        (["approve", "7"], "drift event 7: the ledger has no such event."),
        (["release", "shop", "dbo.Orders"], "dbo.Orders: pipeline shop does not hold it."),
        (["release", "nowhere", "dbo.Orders"], "nowhere: there is no such pipeline."),
        (["release", "shop", "Orders"], "not a table name"),
    ):
        result = cli.invoke(app, ["drift", *arguments])
        assert result.exit_code in (1, 2)
        assert words in " ".join(result.stderr.split())


def test_a_dropped_column_keeps_its_old_values_in_the_target(
    database: WarehouseConnection, ledger: PostgresLedger
) -> None:
    shop = Shop(database, ledger)
    shop.run(first_load(), 10, [Row(1, INSERT, 10, 100, discount=5), Row(2, INSERT, 10, 200, discount=7)])
    left = tuple(column for column in COLUMNS if column.name != "Disc%")
    plan = shop.begin(replace(changes(10, 20), feed=instance(left)), 20)
    staged = Row(1, UPDATE, 15, 111).staged()
    del staged["Disc%"]
    with psycopg.connect(database.conninfo()) as session:
        insert_rows(session, quote_table(staging_table(plan, 0)), [staged])
    shop.merge(plan)
    shop.finish(plan)
    assert shop.target() == {1: (111, 5, None), 2: (200, 7, None)}
    assert ledger.read_tables("shop")[plan.tables[0].source].watermark == lsn(20)


def test_a_proposal_is_approved_on_the_page_as_it_was_read(
    config: Path, source: CdcDatabase, database: WarehouseConnection
) -> None:
    loaded, rights = load_config(config), Rights(("cdc_shop",), lambda dag: dag == "cdc_drift_shop")
    watch_drift(App(loaded), "shop")
    source.run("ALTER TABLE dbo.Orders ADD Note nvarchar(20)")
    source.scan()
    watch_drift(App(loaded), "shop")
    (note,) = read_history(App(loaded).pipeline("shop"), TableName("dbo", "Orders"), 9).drift
    approve, _ = drift_buttons("shop", note)
    read = json.loads(approve.body)
    other = take_decision(rights, "shop", "approve", read | {"proposal": "EXEC x;"}, "anna")
    assert (other.code, "has changed since the page was read" in other.body) == (409, True)
    answer = take_decision(rights, "shop", "approve", read, "anna")
    said = json.loads(answer.body)["done"]
    assert (answer.code, said.split(" with")[0]) == (
        200,
        "dbo.Orders switches from capture instance dbo_Orders to dbo_Orders_2,",
    )
    with psycopg.connect(database.conninfo()) as session:
        assert session.execute("SELECT approved_by FROM floodmark.instance_switches").fetchall() == [("anna",)]
