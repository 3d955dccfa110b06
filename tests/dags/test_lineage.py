"""The lineage of a load, as Airflow's OpenLineage provider takes it from the tasks and sends it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.utils.state import TaskInstanceState
from dag_process import DagProcess

from floodmark.app.pipeline import App
from floodmark.core.plan import LoadKind, TableCounts, TablePlan, WindowPlan, WindowState
from floodmark.core.position import Interval
from floodmark.core.schema import MappedColumn, TableName
from floodmark.core.settings import Cast, ColumnSettings, DerivedColumn, Mask, Style, TableSettings
from floodmark.orchestration.asset_lineage import _name_targets
from floodmark.sync.records import OpenedWindow
from lsns import lsn
from recorded_events import RecordedEvents
from source_snapshots import ITEMS, ORDERS, instance

CONFIG = """
sources:
  shop: {conn_id: shop_mssql}
  stream: {kind: event_stream, conn_id: shop_mssql, stream_conn_id: shop_topic}
  devices: {kind: compact, conn_id: shop_devices}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    tables: [{source: dbo.Orders, target: shop.orders}, {source: dbo.Items, target: shop.my items}]
  stream: {source: stream, tables: [{source: dbo.Orders, target: a.orders}, {source: dbo.Items, target: a.items}]}
  devices: {source: devices, tables: [{source: dbo.Orders, target: b.orders}, {source: dbo.Items, target: b.items}]}
"""
_LOGIN = {"login": "u-login", "password": "s3cret-s3cret"}
CONNECTIONS: Mapping[str, Mapping[str, object]] = {
    "shop_mssql": {"conn_type": "mssql", "host": "sql.test", "port": 14330, "schema": "Shop", **_LOGIN},
    "warehouse": {"conn_type": "postgres", "host": "wh.test", "schema": "dwh", **_LOGIN},
    "shop_topic": {
        "conn_type": "kafka",
        "extra": {
            "bootstrap.servers": "k1.test:9093, k2.test:9093",
            "topic": "changes",
            "sasl.password": "s3cret-s3cret",
        },
    },
    "shop_devices": {"conn_type": "fs", "extra": {"path": "/data/devices"}},
}
SOURCES = [("mssql://sql.test:14330", "Shop.dbo.Orders"), ("mssql://sql.test:14330", "Shop.dbo.Items")]
TARGETS = [("postgres://wh.test:5432", "dwh.shop.orders"), ("postgres://wh.test:5432", "dwh.shop.my items")]
COUNTS = {
    ORDERS: TableCounts(
        read_rows=9, staged_rows=7, inserted_rows=3, updated_rows=2, deleted_rows=1, quarantined_rows=1
    ),
    ITEMS: TableCounts(read_rows=4, staged_rows=4, inserted_rows=4),
}


def table_plan(source: TableName, target: str, interval: Interval | None, **other: Any) -> TablePlan:
    return TablePlan(
        TableSettings(source, TableName.parse(target)),
        LoadKind.CHANGES if interval else LoadKind.FIRST_LOAD,
        instance(source),
        interval,
        interval.after if interval else None,
        **other,
    )


PLAN = WindowPlan(
    7,
    "shop",
    lsn(90),
    (
        table_plan(ORDERS, "shop.orders", Interval(lsn(50), lsn(90))),
        table_plan(ITEMS, "shop.my items", None, is_reload=True, where="Note = N's3cret-s3cret'"),
    ),
)


class FakeLedger:
    def __init__(self, state: WindowState) -> None:
        self.state = state

    def read_window(self, window_id: int) -> OpenedWindow:
        assert window_id == 7
        return OpenedWindow(PLAN, self.state)

    def read_counts(self, window_id: int) -> Mapping[TableName, TableCounts]:
        assert (window_id, self.state) == (7, WindowState.MERGED)
        return COUNTS


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch, config_file: Path) -> FakeLedger:
    """The ledger, with the window merged. All connections are defined, and no server is there."""
    fake = FakeLedger(WindowState.MERGED)
    monkeypatch.setattr(App, "ledger", fake)
    for name, fields in CONNECTIONS.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(fields))
    monkeypatch.setenv("FLOODMARK_CONFIG", str(config_file))
    _name_targets.cache_clear()
    return fake


def event_of(dag: DAG, task_id: str = "load", state: TaskInstanceState = TaskInstanceState.SUCCESS) -> dict[str, Any]:
    load = dag.get_task("load")
    load.application_args[1] = "7"  # as Airflow renders it
    return RecordedEvents().event_of(dag, task_id, state)


def named(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(each["namespace"], each["name"]) for each in datasets]


def own_fields(facet: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facet.items() if not name.startswith("_")}


def test_load_sends_its_tables_and_its_window_when_it_ends(dags: dict[str, DAG], ledger: FakeLedger) -> None:
    event = event_of(dags["cdc_shop"])
    assert (event["eventType"], named(event["inputs"]), named(event["outputs"])) == ("COMPLETE", SOURCES, TARGETS)
    assert own_fields(event["run"]["facets"]["floodmark_window"]) == {
        "pipeline": "shop",
        "windowId": 7,
        "toPosition": str(lsn(90)),
        "state": "merged",
        "isReplay": False,
    }
    orders, items = (own_fields(each["outputFacets"]["floodmark_window"]) for each in event["outputs"])
    assert orders == {
        "kind": "changes",
        "afterPosition": str(lsn(50)),
        "toPosition": str(lsn(90)),
        "readRows": 9,
        "insertedRows": 3,
        "updatedRows": 2,
        "deletedRows": 1,
        "quarantinedRows": 1,
        "sweptRows": 0,
    }
    assert (items["kind"], items["toPosition"], "afterPosition" in items) == ("reload", str(lsn(90)), False)
    assert [each["outputFacets"]["outputStatistics"]["rowCount"] for each in event["outputs"]] == [6, 4]


def test_load_sends_the_columns_of_both_ends_and_what_each_comes_from(dags: dict[str, DAG], ledger: FakeLedger) -> None:
    event = event_of(dags["cdc_shop"])
    source, target = event["inputs"][0]["facets"], event["outputs"][0]["facets"]
    types = [[(each["name"], each["type"]) for each in facets["schema"]["fields"]] for facets in (source, target)]
    assert types == [[("Id", "int"), ("Amount", "decimal(18,2)")], [("Id", "integer"), ("Amount", "numeric(18,2)")]]
    (amount,) = target["columnLineage"]["fields"]["Amount"]["inputFields"]
    assert (amount["namespace"], amount["name"], amount["field"]) == (*SOURCES[0], "Amount")


def test_columns_of_a_target_have_their_names_there(
    dags: dict[str, DAG], ledger: FakeLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = (MappedColumn("Id", "id"), MappedColumn("Amount", "amount"), MappedColumn("Dropped", "dropped"))
    named = replace(PLAN, tables=tuple(replace(table, columns=names) for table in PLAN.tables))
    monkeypatch.setattr(FakeLedger, "read_window", lambda self, _: OpenedWindow(named, self.state))
    event = event_of(dags["cdc_shop"])
    source, target = event["inputs"][0]["facets"], event["outputs"][0]["facets"]
    fields = [[each["name"] for each in facets["schema"]["fields"]] for facets in (source, target)]
    assert fields == [["Id", "Amount"], ["id", "amount"]]
    lineage = target["columnLineage"]["fields"]
    assert {name: each["inputFields"][0]["field"] for name, each in lineage.items()} == {"id": "Id", "amount": "Amount"}


PLAIN, TEXT = "numeric(18,2)", "character varying(64)"
MADE = {
    "kept": (ColumnSettings("Amount"), PLAIN, ("IDENTITY", None)),
    "renamed": (ColumnSettings("Amount", "amount"), PLAIN, ("IDENTITY", None)),
    "cast": (ColumnSettings("Amount", cast=Cast.TEXT), TEXT, ("TRANSFORMATION", False)),
    "masked": (ColumnSettings("Amount", mask=Mask.ROUND), PLAIN, ("TRANSFORMATION", True)),
    "both": (ColumnSettings("Amount", mask=Mask.ROUND, cast=Cast.TEXT), TEXT, ("TRANSFORMATION", True)),
}
"""Settings of a column, its type in the target, and how the lineage says that it was made."""


@pytest.mark.parametrize("style", Style)
@pytest.mark.parametrize("made", MADE)
def test_lineage_says_how_a_column_was_made(
    dags: dict[str, DAG], ledger: FakeLedger, monkeypatch: pytest.MonkeyPatch, style: Style, made: str
) -> None:
    column, kind, how = MADE[made]
    name = column.target or "Amount"
    names = (MappedColumn("Id", "Id"), MappedColumn("Amount", name))
    tables = tuple(
        replace(table, settings=replace(table.settings, style=style, columns=(column,)), columns=names)
        for table in PLAN.tables
    )
    plan = replace(PLAN, tables=tables)
    monkeypatch.setattr(FakeLedger, "read_window", lambda self, _: OpenedWindow(plan, self.state))
    facets = event_of(dags["cdc_shop"])["outputs"][0]["facets"]
    (field,) = facets["columnLineage"]["fields"][name]["inputFields"]
    (transformation,) = field["transformations"]
    assert (transformation["subtype"], transformation.get("masking")) == how
    assert {each["name"]: each["type"] for each in facets["schema"]["fields"]} == {"Id": "integer", name: kind}


def test_lineage_says_what_derived_columns_and_ended_versions_are_made_of(
    dags: dict[str, DAG], ledger: FakeLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    derived = (
        DerivedColumn("Twice", "amount * 2"),
        DerivedColumn("Text", "Id::text || AMOUNT::text"),
        DerivedColumn("One", "1"),
        DerivedColumn("Wrong", "Gone + 1"),
    )
    names = (MappedColumn("Id", "Id"), MappedColumn("Amount", "amount"))
    masked = (ColumnSettings("Amount", "amount", mask=Mask.ROUND),)
    settings = replace(PLAN.tables[0].settings, style=Style.HISTORY, columns=masked, derived=derived)
    plan = replace(PLAN, tables=(replace(PLAN.tables[0], settings=settings, columns=names), PLAN.tables[1]))
    monkeypatch.setattr(FakeLedger, "read_window", lambda self, _: OpenedWindow(plan, self.state))
    outputs = event_of(dags["cdc_shop"])["outputs"]
    assert named(outputs) == [TARGETS[0], (TARGETS[0][0], f"{TARGETS[0][1]}_versions"), TARGETS[1]]
    assert ["outputStatistics" in each["outputFacets"] for each in outputs] == [True, False, True]
    ended = own_fields(outputs[1]["outputFacets"]["floodmark_window"])
    assert ended == {"kind": "changes", "afterPosition": str(lsn(50)), "toPosition": str(lsn(90))}
    for output in outputs[:2]:
        facets = output["facets"]
        assert [(each["name"], each.get("type")) for each in facets["schema"]["fields"]] == [
            ("Id", "integer"),
            ("amount", "numeric(18,2)"),
            ("Twice", None),
            ("Text", None),
            ("One", None),
            ("Wrong", None),
        ]
        made = {
            name: {
                field["field"]: (how["subtype"], how.get("masking"))
                for field in each["inputFields"]
                for how in field["transformations"]
            }
            for name, each in facets["columnLineage"]["fields"].items()
        }
        assert made == {
            "Id": {"Id": ("IDENTITY", None)},
            "amount": {"Amount": ("TRANSFORMATION", True)},
            "Twice": {"Amount": ("TRANSFORMATION", True)},
            "Text": {"Id": ("TRANSFORMATION", False), "Amount": ("TRANSFORMATION", True)},
            "One": {},
        }


@pytest.mark.parametrize(("state", "kind"), [(TaskInstanceState.RUNNING, "START"), (TaskInstanceState.FAILED, "FAIL")])
def test_load_that_has_not_merged_sends_its_plan_without_counts(
    dags: dict[str, DAG], ledger: FakeLedger, state: TaskInstanceState, kind: str
) -> None:
    ledger.state = WindowState.PLANNED
    event = event_of(dags["cdc_load_shop"], state=state)
    assert (event["eventType"], named(event["inputs"]), named(event["outputs"])) == (kind, SOURCES, TARGETS)
    assert event["run"]["facets"]["floodmark_window"]["state"] == "planned"
    facets = event["outputs"][0]["outputFacets"]
    assert list(facets) == ["floodmark_window"]
    assert set(own_fields(facets["floodmark_window"])) == {"kind", "afterPosition", "toPosition"}


@pytest.mark.parametrize("pipeline", ["shop", "stream", "devices"])
def test_events_have_no_login_no_password_and_no_condition(
    dags: dict[str, DAG], ledger: FakeLedger, pipeline: str
) -> None:
    text = json.dumps(event_of(dags[f"cdc_{pipeline}"]))
    assert "s3cret" not in text
    assert "u-login" not in text


def test_changes_of_a_stream_come_from_the_topic_and_first_loads_from_the_table(
    dags: dict[str, DAG], ledger: FakeLedger
) -> None:
    event = event_of(dags["cdc_stream"])
    assert named(event["inputs"]) == [("kafka://k1.test:9093", "changes"), SOURCES[1]]
    assert "schema" not in event["inputs"][0]["facets"]
    (field,) = event["outputs"][0]["facets"]["columnLineage"]["fields"]["Id"]["inputFields"]
    assert (field["namespace"], field["name"]) == ("kafka://k1.test:9093", "changes")


def test_tables_of_devices_come_from_the_path_of_their_files(dags: dict[str, DAG], ledger: FakeLedger) -> None:
    assert named(event_of(dags["cdc_devices"])["inputs"]) == [("file", "/data/devices")]


def test_assets_of_the_last_task_are_the_targets(dags: dict[str, DAG], ledger: FakeLedger) -> None:
    event = event_of(dags["cdc_shop"], "advance")
    assert (event["inputs"], named(event["outputs"])) == ([], TARGETS)


WITHOUT_PROVIDER = """
import sys
from importlib.abc import MetaPathFinder
import importlib_metadata

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "openlineage" or name.startswith("airflow.providers.openlineage"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
of_all = importlib_metadata.distributions
importlib_metadata.distributions = lambda: (each for each in of_all() if "openlineage" not in each.name)
from airflow.sdk import Asset
from floodmark.dags import *
from floodmark.orchestration.asset_lineage import dataset_of_asset
print("RESULT", cdc_shop.get_task("load").task_id, Asset("floodmark://shop/shop/orders").normalized_uri)
"""


def test_dags_and_assets_need_no_openlineage(dag_process: DagProcess, config_file: Path) -> None:
    done = dag_process.run(WITHOUT_PROVIDER, FLOODMARK_CONFIG=str(config_file))
    assert done.returncode == 0, done.stderr
    assert "RESULT load floodmark://shop/shop/orders" in done.stdout
