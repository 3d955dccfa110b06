"""The load job without Spark's JVM: everything else of it is what spark-submit runs. For what is killed often."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from floodmark.spark import job
from floodmark.sync.ports.reader import OpenReader, PlanParts
from in_process_stager import InProcessStager


def no_session(_name: str, _rows: Any) -> Any:
    return SimpleNamespace(stop=lambda: None, sparkContext=SimpleNamespace(master="local"))


def stager(_session: Any, open_reader: OpenReader, _plan_parts: PlanParts) -> InProcessStager:
    return InProcessStager(open_reader)


if __name__ == "__main__":
    job.open_spark_session, job.SparkStager = no_session, stager  # type: ignore[assignment,misc]
    raise SystemExit(job.main())
