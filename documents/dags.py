"""The page of the DAGs: their tasks, schedules and forms, from a configuration that has one of each."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from documents.source_text import REPOSITORY, table

_CONFIG = """
sources:
  SOURCE:
    conn_id: source
    capture: {}
    retention: {}
warehouse: {conn_id: warehouse}
pipelines:
  PIPELINE:
    source: SOURCE
    schedule: "*/5 * * * *"
    tables: [{source: dbo.Orders, target: shop.orders}]
"""


def dags_page() -> str:
    """Return the page, from a process that Airflow is set up for. Raises CalledProcessError where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "FLOODMARK"))}
        own = {"AIRFLOW_HOME": folder, "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR"}
        written = subprocess.run(
            [sys.executable, "-m", "documents.dags", folder],
            cwd=REPOSITORY,
            env=kept | own,
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
    return written.stdout


def _page(folder: Path) -> str:
    # Imported here: Airflow reads its settings when it is imported.
    from floodmark.config.loading import load_config  # noqa: PLC0415
    from floodmark.orchestration.dags import build_every_dag  # noqa: PLC0415

    path = folder / "pipelines.yaml"
    path.write_text(_CONFIG, encoding="utf-8")
    lines = [
        "# DAGs",
        "",
        "The DAGs of a source and a pipeline, here named SOURCE and PIPELINE, with what they do by default. A DAG of",
        "capture or of retention exists where the source has the section `capture` or `retention`.",
        "",
    ]
    for name, dag in sorted(build_every_dag(load_config(path), path).items()):
        schedule = f"`{dag.timetable.expression}`" if hasattr(dag.timetable, "expression") else "on demand"
        if isinstance(dag.schedule, list):
            schedule = "when a run of `cdc_PIPELINE` finds work for it"
        lines += [f"## {name}", "", f"{dag.description}. Schedule: {schedule}.", ""]
        tasks = [
            [f"`{each.task_id}`", ", ".join(f"`{name}`" for name in sorted(each.upstream_task_ids)), each.doc_md or ""]
            for each in dag.topological_sort()
        ]
        lines += table(["task", "after", "work"], tasks)
        form = [[f"`{key}`", dag.params.get_param(key).description or ""] for key in dag.params]
        lines += table(["field of the form", "meaning"], form) if form else []
    return "\n".join(lines).rstrip()


if __name__ == "__main__":
    print(_page(Path(sys.argv[1])))
