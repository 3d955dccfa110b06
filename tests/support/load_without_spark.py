"""The load job without Spark's JVM: everything else of it is what spark-submit runs. For what is killed often."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from floodmark.spark import job
from floodmark.spark.engine import Engine, OpeningEngine
from floodmark.sync.columns import MaskKeys
from floodmark.sync.ports import OpenReader, PlanReads, Stager
from in_process_stager import InProcessStager, no_engine


class _NoEngine(OpeningEngine):
    """It opens nothing, so that nothing has to wait for it."""

    def __init__(self) -> None:
        self.waited_seconds = 0.0

    def begin(self) -> Any:
        return None

    def get(self) -> NoReturn:
        no_engine()

    def stop(self) -> None:
        pass


def no_session() -> OpeningEngine:
    return _NoEngine()


def stager(
    _open_engine: Callable[[], Engine],
    open_reader: OpenReader,
    plan_reads: PlanReads,
    mask_keys: MaskKeys,
) -> Stager:
    return InProcessStager(open_reader, plan_reads, mask_keys)


def main(arguments: Sequence[str] | None = None) -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    vars(job).update(SparkStager=stager)
    return job.main(no_session(), arguments)


if __name__ == "__main__":
    raise SystemExit(main())
