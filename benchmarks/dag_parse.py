"""The DAG files with many pipelines, parsed as Airflow's DAG processor does, against a file with one trivial DAG.

Each time is that of a whole process: it starts Python, imports Airflow, runs the function of the DAG processor that
parses one file, and serializes the DAGs. The process of a task parses its file for a single DAG.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.measuring import Report
from floodmark_laptop.stack import REPOSITORY, Stack

PIPELINES = 100
LIMIT = 1.5
_TABLES = 5
_ROUNDS = 3
_EMPTY = """
from airflow.sdk import DAG, task

with DAG("empty"):

    @task
    def nothing():
        pass

    nothing()
"""
_PARSE = """
import json, resource, sys
from pathlib import Path
import structlog
from airflow.dag_processing import processor
from airflow.sdk.definitions._internal.dag_parsing_context import _airflow_parsing_context_manager
path, dag_id = Path(sys.argv[1]), sys.argv[2]
request = processor.DagFileParseRequest(file=str(path), bundle_path=path.parent, bundle_name="b")
with _airflow_parsing_context_manager(dag_id=dag_id or None):
    parsed = processor._parse_file(request, structlog.get_logger())
used = resource.getrusage(resource.RUSAGE_SELF)
result = {"dags": len(parsed.serialized_dags), "errors": parsed.import_errors, "cpu": used.ru_utime + used.ru_stime}
print("RESULT " + json.dumps(result))
"""


@dataclass(frozen=True)
class Parsed:
    """The median of some parses of one file."""

    dags: int
    cpu_seconds: float
    """The processor time of the whole process: other processes disturb it less than the time on the clock."""


def measure(stack: Stack, report: Report, folder: Path) -> None:
    del stack  # Parsing needs neither a source nor a warehouse.
    empty = folder / "empty.py"
    empty.write_text(_EMPTY, encoding="utf-8")
    config = folder / "pipelines.yaml"
    config.write_text(yaml.safe_dump(_document()), encoding="utf-8")
    base = parse(empty, config)
    file = REPOSITORY / "dags" / "floodmark_dags.py"
    cases = [("one trivial DAG", base)]
    cases += [(f"dags/{file.name}", parse(file, config))]
    cases += [(f"dags/{file.name}, by a task of one pipeline", parse(file, config, "cdc_p000"))]
    report.add(f"## DAG files of {PIPELINES} pipelines and {PIPELINES} sources, {_TABLES} tables each")
    rows: list[tuple[object, ...]] = [
        (name, each.dags, f"{each.cpu_seconds:.2f}", f"{each.cpu_seconds / base.cpu_seconds:.2f}")
        for name, each in cases
    ]
    report.table(("file", "DAGs", "seconds of CPU, whole process", f"/ trivial (at most {LIMIT:g})"), rows)
    report.add("One file has the DAGs of all families. They were five files, of together 7.1 times the trivial one.")


def _document() -> dict[str, object]:
    names = [f"p{number:03d}" for number in range(PIPELINES)]
    stops = {"stops": [{"stop": "0 8 * * 1-5", "start": "0 18 * * 1-5"}], "time_zone": "Europe/Berlin"}
    source = {"conn_id": "source", "capture": stops, "retention": {"keep": "3d", "on_low": "raise_retention"}}
    return {
        "sources": dict.fromkeys(names, source),
        "warehouse": {"conn_id": "warehouse"},
        "pipelines": {name: {"source": name, "schedule": "*/5 * * * *", "tables": _tables(name)} for name in names},
    }


def _tables(name: str) -> list[dict[str, str]]:
    return [{"source": f"dbo.T{number}", "target": f"{name}.t{number}"} for number in range(_TABLES)]


def parse(path: Path, config: Path, dag_id: str = "") -> Parsed:
    """Parse a file in processes of its own. dag_id: as a task of that DAG; "" as the DAG processor."""
    results = [_parse_once(path, config, dag_id) for _ in range(_ROUNDS)]
    return Parsed(int(results[0]["dags"]), statistics.median(each["cpu"] for each in results))


def _parse_once(path: Path, config: Path, dag_id: str) -> dict[str, float]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "FLOODMARK"))}
    own = {
        "AIRFLOW_HOME": str(config.parent / "parse"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{config.parent}/parse.db",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "FLOODMARK_CONFIG": str(config),
    }
    command = [sys.executable, "-c", _PARSE, str(path), dag_id]
    done = subprocess.run(command, env=kept | own, cwd=config.parent, capture_output=True, text=True, check=False)
    line = done.stdout.rpartition("RESULT ")[2]
    if done.returncode != 0 or not line or json.loads(line)["errors"]:
        raise RuntimeError(f"{path} could not be parsed:\n{line}{done.stderr[-4000:]}")
    result: dict[str, float] = json.loads(line)
    return result
