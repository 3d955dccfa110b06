"""The load job without Spark's JVM: everything else of it is what spark-submit runs. For what is killed often."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from floodmark.spark import job
from floodmark.sync.ports.reader import OpenCut, OpenReader, OpenShared, PlanParts
from in_process_stager import InProcessStager


def no_session() -> Any:
    return SimpleNamespace(get=lambda: None, waited_seconds=0.0)


def stager(
    _open_session: Any,
    open_reader: OpenReader,
    _plan_parts: PlanParts,
    open_cut: OpenCut | None,
    _open_shared: OpenShared | None,
) -> InProcessStager:
    return InProcessStager(open_reader, open_cut)


def main(arguments: Sequence[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    vars(job).update(SparkStager=stager)
    return job.main(no_session(), arguments)


if __name__ == "__main__":
    raise SystemExit(main())
