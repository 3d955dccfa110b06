"""The Grafana dashboard of the documents: its metrics are those that the code sends, and Grafana can read it."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from floodmark.app.alerts import AirflowMetrics
from floodmark.core.plan import AdvanceResult, LoadKind, PublishedTable, TableCounts
from floodmark.core.position import Lsn
from floodmark.core.schema import TableName
from floodmark.core.status import TableMeasure

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
DASHBOARD = json.loads((EXAMPLES / "grafana.json").read_text(encoding="utf-8"))
MAPPINGS = yaml.safe_load((EXAMPLES / "statsd_mapping.yaml").read_text(encoding="utf-8"))["mappings"]
ORDERS = TableName("dbo", "Order Lines")
LSN = Lsn(b"\0\0\0\1".ljust(10, b"\0"))
_NAME = re.compile(r"\bfloodmark_\w+")
_COLUMNS = 24


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The StatsD names that the code sends, without Airflow's prefix, with the kind of each."""
    found: dict[str, str] = {}
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    for kind in ("incr", "gauge", "timing"):
        monkeypatch.setattr(
            f"airflow.sdk.observability.stats.Stats.{kind}",
            lambda name, *_, kind=kind, **__: found.update({name: kind}),
        )
    counts = TableCounts(read_rows=7, staged_rows=6, inserted_rows=5, deleted_rows=1)
    table = PublishedTable(ORDERS, TableName("shop", "orders"), LoadKind.CHANGES, LSN, LSN, counts)
    metrics = AirflowMetrics()
    metrics.send_window(AdvanceResult(1, "sales.eu", LSN, (table,)), 12.5)
    metrics.send_measures("sales.eu", [TableMeasure(ORDERS, 63.0, 5.0, 9, 8192, 3)])
    return found


def exported(name: str) -> tuple[str, dict[str, str]]:
    """Return name and labels of a metric as statsd_exporter gives them: the first mapping decides."""
    for mapping in MAPPINGS:
        pattern = re.escape(mapping["match"]).replace(r"\*", r"([^.]*)")
        match = re.fullmatch(pattern, f"airflow.{name}")
        if match:
            return match.expand(_groups(mapping["name"])), {
                label: match.expand(_groups(value)) for label, value in mapping["labels"].items()
            }
    raise AssertionError(f"no mapping has {name}")


def _groups(text: str) -> str:
    """Return a text with references to groups as Python writes them."""
    return re.sub(r"\$\{?(\d)\}?", r"\\g<\1>", text)


def expressions() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_dashboard_shows_each_metric_that_the_code_sends_and_no_other(sent: dict[str, str]) -> None:
    names = set()
    for name, kind in sent.items():
        metric, labels = exported(name)
        # A timer becomes a summary, in seconds.
        names |= {f"{metric}_sum", f"{metric}_count"} if kind == "timing" else {metric}
        table = {} if kind == "timing" else {"table": "dbo.Order_Lines"}
        assert labels == {"pipeline": "sales_eu"} | table
    assert {found for each in expressions() for found in _NAME.findall(each)} == names
    (variable,) = (each for each in DASHBOARD["templating"]["list"] if each["type"] == "query")
    assert set(_NAME.findall(variable["query"]["query"])) <= names


def test_counters_are_shown_as_increases(sent: dict[str, str]) -> None:
    counters = {exported(name)[0] for name, kind in sent.items() if kind == "incr"}
    assert counters
    for expression in expressions():
        for name in counters & set(_NAME.findall(expression)):
            assert f"increase({name}{{" in expression


def test_panels_have_a_place_and_a_source_each() -> None:
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= _COLUMNS
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references) >= 1
        for each in (panel, *panel["targets"]):
            assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    for one, other in combinations((panel["gridPos"] for panel in panels), 2):
        apart = (one[at] + one[size] <= other[at] or other[at] + other[size] <= one[at] for at, size in ("xw", "yh"))
        assert any(apart)
    names = {each["name"] for each in DASHBOARD["templating"]["list"]}
    # What begins with two underscores is Grafana's own.
    used = {name for each in expressions() for name in re.findall(r"\$(?!__)(\w+)", each)} | {"datasource"}
    assert used == names


@pytest.mark.parametrize("key", ["title", "uid", "schemaVersion", "panels", "templating", "time"])
def test_dashboard_has_the_parts_that_an_import_needs(key: str) -> None:
    assert DASHBOARD[key]
