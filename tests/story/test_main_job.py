"""The main job of ``make run`` with a real Airflow, on a machine without Java, and the lineage that
Airflow sends of its loads."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import laptop_with_lineage
from floodmark_laptop.main_job import DAG_ID
from floodmark_laptop.processes import find_marked
from floodmark_laptop.shop import TABLES
from without_java import keeps_java

_EQUAL = re.compile(r"(dbo\.\w+) .* equal, ([\d,]+) rows")
_SPARK_IS_UP = re.compile(r"Its Java is (\S+) in (.+?)\.(?:\"|\n)")


@pytest.mark.timeout(900)
def test_main_job_ends_equal_where_there_is_no_java_and_leaves_nothing_behind(stack_dir: Path) -> None:
    """So few rows need no Spark. With FLOODMARK_TEST_JAVA=machine there is the machine's own Java."""
    if not keeps_java():
        assert shutil.which("java") is None
        assert "JAVA_HOME" not in os.environ
    state = stack_dir / "state"
    done = subprocess.run(
        [sys.executable, laptop_with_lineage.__file__, "run", "--windows", "0"],
        env={**os.environ, "FLOODMARK_STATE": str(state), laptop_with_lineage.FOLDER: str(stack_dir)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    equal = dict(_EQUAL.findall(done.stdout))
    assert set(equal) == {f"dbo.{table}" for table in TABLES}
    assert "0" not in equal.values()
    logs = [path.read_text() for path in (state / "logs" / "tasks").glob("**/task_id=load/*.log")]
    assert logs
    assert [java for log in logs for java in _SPARK_IS_UP.findall(log)] == []
    assert find_marked(state) == []
    assert not [log for log in logs if "OpenLineage method failed" in log]
    record = json.loads((stack_dir / "record.json").read_text())
    versions, orders, remarks = record["history"]
    assert versions > orders
    assert "***" in remarks
    assert set(remarks) <= {"***", None}
    assert_lineage_of_every_load(stack_dir / "events.jsonl", record)


def assert_lineage_of_every_load(file: Path, record: dict[str, Any]) -> None:
    """Compare what Airflow has sent of the first load and of each window with the ledger's record of them."""
    events = read_events(file)
    loads = of_task(events, "load", "COMPLETE")
    assert len(loads) >= 2
    assert [each["run"]["facets"]["floodmark_window"]["windowId"] for each in loads] == record["windows"]
    assert [counts_of(each) for each in loads] == record["counts"]
    (host, port), first = record["source"], loads[0]
    for load in loads:
        kind = "first_load" if load is first else "changes"
        assert {each["outputFacets"]["floodmark_window"]["kind"] for each in load["outputs"]} == {kind}
        assert (f"mssql://{host}:{port}", "Shop.dbo.Orders") in names(load["inputs"])
        written = {f"warehouse.shop.{table}" for table in ("orders", "orders_versions")}
        assert {(f"postgres://127.0.0.1:{record['warehouse_port']}", each) for each in written} <= names(
            load["outputs"]
        )
    for started, ended in zip(of_task(events, "load", "START"), loads, strict=True):
        assert names(started["outputs"]) == names(ended["outputs"])
    for published in of_task(events, "advance", "COMPLETE"):
        assert names(published["outputs"]) == names(counted(first))
    text = file.read_text(encoding="utf-8")
    assert len(record["secrets"]) == 3
    assert not [secret for secret in record["secrets"] if secret in text]


def read_events(file: Path) -> list[dict[str, Any]]:
    """Return the events of tasks and of DAG runs, the oldest first."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return sorted((json.loads(line) for line in lines), key=lambda event: str(event["eventTime"]))


def of_task(events: Iterable[dict[str, Any]], task: str, kind: str) -> list[dict[str, Any]]:
    """Return the events of one kind about a task of the pipeline's DAG."""
    return [each for each in events if (each["job"]["name"], each["eventType"]) == (f"{DAG_ID}.{task}", kind)]


def names(datasets: Iterable[dict[str, Any]]) -> set[tuple[str, str]]:
    """Return namespace and name of each dataset."""
    return {(each["namespace"], each["name"]) for each in datasets}


def counted(event: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the targets of a load: its outputs but the ended versions of histories, which have no counts."""
    return [each for each in event["outputs"] if "outputStatistics" in each["outputFacets"]]


def counts_of(event: dict[str, Any]) -> dict[str, list[int]]:
    """Return the rows that were read, inserted, updated and deleted, by the source of each target."""
    fields = ("readRows", "insertedRows", "updatedRows", "deletedRows")
    return {
        source_of(each): [each["outputFacets"]["floodmark_window"][field] for field in fields]
        for each in counted(event)
    }


def source_of(output: dict[str, Any]) -> str:
    """Return the one table that all columns of a target come from."""
    columns = output["facets"]["columnLineage"]["fields"].values()
    (source,) = {each["name"] for column in columns for each in column["inputFields"]}
    return str(source)
