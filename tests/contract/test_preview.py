"""``floodmark plan``: what the next run would do, compared with what it does, on an emulator and a real ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from switch_rig import SwitchRig
from typer.testing import CliRunner

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.cli.main import app
from floodmark.cli.process import out
from floodmark.core.schema import TableName
from floodmark.core.settings import (
    ColumnSettings,
    Deletes,
    DerivedColumn,
    Mask,
    Naming,
    NewColumns,
    OnFailure,
    OnGap,
    PipelineSettings,
    Rule,
    Style,
    TableSettings,
)
from floodmark.postgres.ledger.status import PostgresStatusLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.views import PostgresTargets
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sync.filters import parse_filter
from floodmark.sync.preview import EFFECTS, NextStep, RunPreview, TablePreview, preview_run
from floodmark.sync.status import Limits, StatusReader

ORDERS, ITEMS = TableName("dbo", "Orders"), TableName("dbo", "Order Items")


class PreviewRig(SwitchRig):
    """A pipeline of tables that the test chooses."""

    def choose(self, *tables: TableSettings) -> None:
        self.pipelines = [PipelineSettings("shop", tables)]

    def preview(self) -> RunPreview:
        settings, statuses = self.pipelines[0], PostgresStatusLedger(self.connection)
        reader = StatusReader(settings, Limits("shop", 900.0, datetime.now(UTC)), self.ledger, statuses)
        plans = statuses.list_plans("shop")
        targets = PostgresTargets(self.connection)
        return preview_run(settings, SqlServerSource(self.at), reader, plans, targets.check_target)

    def find(self, source: TableName) -> TablePreview:
        return next(each for each in self.preview().tables if each.source == source)


def settings(source: TableName, **chosen: Any) -> TableSettings:
    return TableSettings(source, TableName("shop", source.name.lower().replace(" ", "_")), **chosen)


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[PreviewRig]:
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (Id int PRIMARY KEY, Note nvarchar(20))",
            "CREATE TABLE dbo.[Order Items] (Id int PRIMARY KEY)",
            "INSERT dbo.Orders VALUES (1, N'a')",
        )
        source.enable("Orders")
        source.enable("Order Items")
        made = PreviewRig(emulator, source, database)
        made.choose(settings(ORDERS))
        yield made


def test_each_step_is_shown_before_the_run_does_it(rig: PreviewRig) -> None:
    before = rig.preview()
    assert [(table.source, table.step) for table in before.tables] == [(ORDERS, NextStep.FIRST_LOAD)]
    assert rig.rows("SELECT to_regnamespace('floodmark'), to_regnamespace('shop')") == [(None, None)]
    rig.run()
    stopped = rig.find(ORDERS)  # the tests scan by themselves, so the job does not run
    assert (stopped.step, stopped.reason.partition(":")[0]) == (NextStep.LEFT_OUT, "capture stopped")
    rig.change("INSERT dbo.Orders VALUES (2, N'b')")
    assert rig.find(ORDERS).step is NextStep.CHANGES
    rig.choose(settings(ORDERS), settings(ITEMS))
    assert rig.find(ITEMS).step is NextStep.FIRST_LOAD
    opened = rig.open()
    assert rig.preview().unfinished_window_id == opened.window_id
    rig.finish(opened)
    assert rig.preview().unfinished_window_id is None
    rig.change("INSERT dbo.[Order Items] VALUES (1)")
    assert [table.step for table in rig.preview().tables] == [NextStep.NOTHING, NextStep.CHANGES]
    rig.choose(settings(ITEMS))
    gone = rig.find(ORDERS)
    assert (gone.step, gone.target) == (NextStep.NO_LONGER_READ, TableName("shop", "orders"))


def test_changed_settings_are_named_with_their_effect(rig: PreviewRig) -> None:
    rig.run()
    rule = Rule("short", 'length("Note") < 5', OnFailure.WARN)
    rig.choose(settings(ORDERS, deletes=Deletes.HARD, live_view=True, rules=(rule,)))
    assert [(each.name, each.before, each.now) for each in rig.find(ORDERS).changed] == [
        ("deletes", "soft", "hard"),
        ("live_view", "false", "true"),
        ("rules", "none", 'short (length("Note") < 5; warn)'),
    ]
    rig.change("DELETE dbo.Orders")
    rig.run()
    assert rig.find(ORDERS).changed == ()


def test_changed_settings_of_columns_rows_and_versions_are_named_as_the_file_has_them(rig: PreviewRig) -> None:
    kept = settings(ORDERS, style=Style.HISTORY)
    rig.choose(kept)
    rig.run()
    column = ColumnSettings("Note", "note", mask=Mask.LAST4)
    changed = replace(
        kept,
        columns=(column,),
        new_columns=NewColumns.DROP,
        derived=(DerivedColumn("twice", '"Id" * 2'),),
        where=parse_filter("Id>0"),
        keep_versions=90,
        open_end=date(9999, 12, 31),
        track=("Note",),
    )
    rig.choose(changed)
    assert {each.name: (each.before, each.now) for each in rig.find(ORDERS).changed} == {
        "columns": ("none", "Note as note mask last4"),
        "new_columns": ("none", "drop"),
        "derived": ("none", 'twice ("Id" * 2)'),
        "where": ("none", "[Id] > 0"),
        "keep_versions": ("none", "90"),
        "open_end": ("none", "9999-12-31"),
        "track": ("none", "Note"),
    }


def test_what_a_run_would_refuse_is_left_out_with_the_same_reason(rig: PreviewRig) -> None:
    rig.run()
    rig.change("INSERT dbo.Orders VALUES (2, N'b')")
    with psycopg.connect(rig.connection.conninfo()) as session:
        session.execute("CREATE TABLE shop.orders_live (mine int)")
    for chosen, words in (
        ({"naming": Naming.SNAKE_CASE}, "was loaded with naming: keep"),
        ({"target": TableName("shop", "elsewhere")}, "its target was shop.orders and is now shop.elsewhere"),
        ({"key": ("Note",)}, "is not in both keys"),
        ({"live_view": True}, "the view shop.orders_live cannot be made: there is a table of this name"),
    ):
        rig.choose(replace(settings(ORDERS), **chosen), settings(ITEMS))
        found = rig.preview()
        assert found.has_left_out
        refused = found.tables[0]
        assert (refused.step, words in refused.reason) == (NextStep.LEFT_OUT, True), refused
        assert refused.changed[0].name in chosen


def test_table_with_a_gap_is_left_out_or_reloaded(rig: PreviewRig) -> None:
    rig.run()
    with psycopg.connect(rig.connection.conninfo()) as session:
        session.execute("DROP TABLE shop.orders")
    lost = rig.find(ORDERS)
    assert (lost.step, "does not exist" in lost.reason) == (NextStep.LEFT_OUT, True)
    assert "floodmark reload shop dbo.Orders" in lost.hint
    rig.choose(settings(ORDERS, on_gap=OnGap.REPAIR))
    assert (rig.find(ORDERS).step, rig.preview().has_left_out) == (NextStep.RELOAD, False)


def test_every_setting_has_a_sentence_about_its_effect() -> None:
    assert {*EFFECTS, "source", "net", "mask_key_print", "keeps_messages"} == {
        each.name for each in fields(TableSettings)
    }


def test_command_shows_the_next_run_and_ends_with_3_for_a_table_that_is_left_out(
    rig: PreviewRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, warehouse = rig.at, rig.connection
    mssql = {"conn_type": "mssql", "host": at.host, "port": at.port, "login": at.user, "password": at.password}
    mssql |= {"schema": at.database, "extra": {"ca_file": at.ca_file}}
    postgres = {"conn_type": "postgres", "host": warehouse.host, "port": warehouse.port, "login": warehouse.user}
    postgres |= {"password": warehouse.password, "schema": warehouse.database}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_MSSQL", json.dumps(mssql))
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(postgres))
    path = tmp_path / "pipelines.yaml"
    monkeypatch.setenv("FLOODMARK_CONFIG", str(path))
    monkeypatch.setattr(out, "width", 200)
    rig.run()
    rig.change("INSERT dbo.Orders VALUES (2, N'b')")

    def plan(*options: str, table: str) -> tuple[int, str]:
        path.write_text(
            "sources: {shop: {conn_id: shop_mssql}}\nwarehouse: {conn_id: warehouse}\n"
            f"pipelines: {{shop: {{source: shop, tables: [{table}]}}}}\n",
            encoding="utf-8",
        )
        result = CliRunner().invoke(app, ["plan", "shop", *options])
        return result.exit_code, result.stdout

    code, shown = plan(table="{source: dbo.Orders, target: shop.orders, deletes: hard}")
    assert code == 0, shown
    assert "dbo.Orders: deletes: soft -> hard. It applies to deletes from the next window on." in shown
    code, shown = plan("--json", table="{source: dbo.Orders, target: shop.orders, naming: snake_case}")
    assert code == 3
    (table,) = json.loads(shown)["tables"]
    assert (table["step"], table["changed"][0]["name"]) == ("left_out", "naming")
    code, shown = plan(table="{source: dbo.*, target: shop.*, exclude: [dbo.Orders]}")
    assert (code, "dbo.Order Items  shop.Order Items  first load" in shown) == (0, True), shown
    plan(table="{source: dbo.Orders, target: shop.orders, naming: snake_case}")
    checked = CliRunner().invoke(app, ["config", "check", "--plan"])
    assert (checked.exit_code, "it was loaded with naming: keep" in checked.stdout) == (3, True)
