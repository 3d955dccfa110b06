"""The tasks that follow the opening of a window in every DAG that loads: ``load``, ``check``, ``advance``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import task

from floodmark.app.run import is_merged
from floodmark.orchestration import tasks
from floodmark.orchestration.load_operator import LoadWindow
from floodmark.wiring.pipelines import PipelineWiring

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage


def chain_load(
    wiring: PipelineWiring, config_path: Path, pool: str | None, *, opened: Any, advanced: Any, job: str, doc_md: str
) -> None:
    """Add ``load`` and ``check`` between the first and the last task.

    opened, advanced: the first and the last task as called; the first returns the window's id. job: the name of the
    Spark application. pool: for the load, which reads the source; None is Airflow's default.
    """

    @task(doc_md="Check the rows of the window with Great Expectations.")  # type: ignore[untyped-decorator]
    def check(window_id: int) -> None:
        tasks.run_check(wiring, config_path, window_id)

    load = LoadWindow(
        task_id="load",
        name=job,
        config=config_path,
        window_id=f"{{{{ ti.xcom_pull(task_ids='{opened.operator.task_id}') }}}}",
        read_secrets=wiring.job_secrets,
        is_merged=partial(is_merged, wiring),
        lineage=partial(_read_lineage, wiring),
        measured=partial(tasks.measured_step, wiring, config_path),
        pool=pool,
        doc_md=doc_md,
    )
    opened >> load >> check(opened) >> advanced


def _read_lineage(wiring: PipelineWiring, window_id: int) -> OperatorLineage:
    # Only Airflow's OpenLineage provider calls it, which is an extra.
    from floodmark.orchestration.lineage import read_lineage  # noqa: PLC0415

    return read_lineage(wiring, window_id)
