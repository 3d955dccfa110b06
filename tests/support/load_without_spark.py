"""The load job without Spark's JVM: everything else of it is what spark-submit runs. For what is killed often."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from floodmark.spark import job
from floodmark.sqlserver.connection import SqlServerConnection
from floodmark.warehouse.connection import WarehouseConnection
from in_process_stager import InProcessStager


def no_session(_name: str) -> Any:
    return SimpleNamespace(stop=lambda: None)


def stager(_session: Any, warehouse: WarehouseConnection) -> InProcessStager:
    return InProcessStager(SqlServerConnection.from_json(os.environ[job.SOURCE_VARIABLE]), warehouse)


if __name__ == "__main__":
    job.open_session, job.SparkStager = no_session, stager  # type: ignore[assignment,misc]
    raise SystemExit(job.main())
