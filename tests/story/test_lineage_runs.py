"""The lineage that a real Airflow sends, of a first load and of a window with changes, as its readers see it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from airflow_rig import DAG_ID, AirflowRig

pytestmark = pytest.mark.timeout(600)

COUNTS = (
    "SELECT 'Shop.' || source_schema || '.' || source_name, read_rows, inserted_rows, updated_rows, deleted_rows"
    " FROM floodmark.window_tables WHERE window_id = {}"
)


def read_events(file: Path) -> list[dict[str, Any]]:
    """Return the events of tasks and of DAG runs, the oldest first."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return sorted((json.loads(line) for line in lines), key=lambda event: str(event["eventTime"]))


def of_task(events: Iterable[dict[str, Any]], task: str, kind: str) -> list[dict[str, Any]]:
    return [each for each in events if (each["job"]["name"], each["eventType"]) == (f"{DAG_ID}.{task}", kind)]


def names(datasets: Iterable[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(each["namespace"], each["name"]) for each in datasets}


def counts_of(event: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return, by the source of a target, the rows that were read, inserted, updated and deleted."""
    fields = ("readRows", "insertedRows", "updatedRows", "deletedRows")
    return {
        source_of(each): tuple(each["outputFacets"]["floodmark_window"][field] for field in fields)
        for each in event["outputs"]
    }


def source_of(output: dict[str, Any]) -> str:
    """The one table that all of its columns come from."""
    columns = output["facets"]["columnLineage"]["fields"].values()
    (source,) = {each["name"] for column in columns for each in column["inputFields"]}
    return str(source)


def test_airflow_sends_the_lineage_of_every_load(stack_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = stack_dir / "events.jsonl"
    transport = json.dumps({"type": "file", "log_file_path": str(file), "append": True})
    rig = AirflowRig(stack_dir, with_spark=False, settings={"AIRFLOW__OPENLINEAGE__TRANSPORT": transport})
    monkeypatch.setenv("PATH", f"{rig.programs}{os.pathsep}{os.environ['PATH']}")
    with rig.running():
        rig.wait(lambda: bool(rig.runs()), "the scheduled run")
        rig.wait_for_success(*rig.runs())
        rig.end_workload()
        rig.wait_for_success(rig.trigger())
        rig.wait(lambda: len(of_task(read_events(file), "report_gaps", "COMPLETE")) == 2, "the last events")
        source, warehouse = rig.stack.source, rig.stack.warehouse_address
        ids = [row[0] for row in rig.warehouse("SELECT window_id FROM floodmark.windows ORDER BY window_id")]
        counts = [{name: tuple(rows) for name, *rows in rig.warehouse(COUNTS.format(each))} for each in ids]
        secrets = (source.password, warehouse["password"])
    events = read_events(file)
    first, second = of_task(events, "load", "COMPLETE")
    assert [each["run"]["facets"]["floodmark_window"]["windowId"] for each in (first, second)] == ids
    assert [counts_of(each) for each in (first, second)] == counts
    for load, kind in ((first, "first_load"), (second, "changes")):
        assert {each["outputFacets"]["floodmark_window"]["kind"] for each in load["outputs"]} == {kind}
        assert (f"mssql://{source.host}:{source.port}", "Shop.dbo.Orders") in names(load["inputs"])
        assert (f"postgres://127.0.0.1:{warehouse['port']}", "warehouse.shop.orders") in names(load["outputs"])
    for started, ended in zip(of_task(events, "load", "START"), (first, second), strict=True):
        assert names(started["outputs"]) == names(ended["outputs"])
    for published in of_task(events, "advance", "COMPLETE"):
        assert names(published["outputs"]) == names(first["outputs"])
    text = file.read_text(encoding="utf-8")
    assert not [secret for secret in secrets if secret in text]
    assert "OpenLineage method failed" not in rig.logs("load")
