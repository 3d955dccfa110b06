"""Real rows under a stream of changes, by runs of the command, compared row by row at the end.

The first load runs on Spark. The same steps as tasks of a real Airflow, all with Spark, are in ``test_main_job``.
The stream goes on as long as runs read under it. FLOODMARK_ADVENTUREWORKS_CHANGES: the changes that it has at least.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import adventureworks
import pymssql
import pytest
import yaml

from floodmark_laptop.stack import Stack
from forked_comparison import compare
from forked_floodmark import begin
from spark_engine import SUPPORT

_CHANGES = int(os.environ.get("FLOODMARK_ADVENTUREWORKS_CHANGES", "15000"))
_PAUSE_SECONDS = 0.05
"""Between two transactions while runs read: the stream has to last, not to be long."""
_WINDOWS_UNDER_LOAD = 2
_LIMIT_SECONDS = 600


@pytest.mark.timeout(900)
def test_real_rows_end_equal_after_first_load_and_windows_under_changes(stack_dir: Path, tmp_path: Path) -> None:
    folder = adventureworks.data_folder()
    if folder is None:
        pytest.skip("no rows of AdventureWorks are next to this clone; FLOODMARK_ADVENTUREWORKS names their folder")
    tables = adventureworks.read_tables(folder)
    config = tmp_path / "pipelines.yaml"
    config.write_text(yaml.safe_dump(_pipelines(tables)), encoding="utf-8")
    with Stack(
        stack_dir, print, database=adventureworks.DATABASE, connection_id="aw_mssql", config_file=config
    ) as stack:
        _load_source(stack, tables)
        changes = _Changes(stack, tables)
        changes.start()
        _run(stack, with_spark=True)
        for _ in range(_WINDOWS_UNDER_LOAD):
            _run(stack)
        changes.finish()
        assert changes.stream.changes >= _CHANGES
        _wait_for_capture(stack)
        _run(stack)
        results = compare(stack, "aw")
        assert len(results) == len(tables)
        assert [(c.table, c.differences) for c in results if not c.equal] == []


def _pipelines(tables: list[adventureworks.Table]) -> dict[str, object]:
    # Tables with partitions are left to Spark, where a run has one.
    entries = [
        {"source": f"{t.schema}.{t.name}", "target": f"aw.{t.schema.lower()}_{t.name.lower()}", "partitions": 1}
        for t in tables
    ]
    return {
        "sources": {"aw": {"conn_id": "aw_mssql"}},
        "warehouse": {"conn_id": "warehouse"},
        "pipelines": {"aw": {"source": "aw", "schedule": "0 0 1 1 *", "tables": entries}},
    }


def _load_source(stack: Stack, tables: list[adventureworks.Table]) -> None:
    with stack.connect_source("master") as connection:
        connection.cursor().execute(f"CREATE DATABASE [{adventureworks.DATABASE}]")
    with stack.connect_source() as connection:
        adventureworks.create_tables(connection, tables)
        adventureworks.enable_cdc(connection, tables)
        for table in tables:
            adventureworks.insert_rows(connection, table)
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE dbo.Marker (ID int NOT NULL PRIMARY KEY)")
        cursor.execute("EXEC sys.sp_cdc_enable_table N'dbo', N'Marker', @role_name = NULL")


def _run(stack: Stack, *, with_spark: bool = False) -> None:
    environment = stack.airflow.environment() | {"PYTHONPATH": SUPPORT}
    command = begin(("run", "aw"), environment, with_spark=with_spark, with_checks=True)
    assert command.wait(_LIMIT_SECONDS) == 0, command.output


def _wait_for_capture(stack: Stack) -> None:
    with stack.connect_source() as connection:
        cursor = connection.cursor()
        cursor.execute("INSERT INTO dbo.Marker (ID) VALUES (1)")

        def captured() -> bool:
            cursor.execute("SELECT COUNT(*) FROM cdc.dbo_Marker_CT")
            row = cursor.fetchone()
            return row is not None and row[0] == 1

        stack.airflow.wait_for(captured, "the capture job to catch up", 240)


class _Changes:
    """The change stream on a thread of its own, until ``finish``."""

    def __init__(self, stack: Stack, tables: list[adventureworks.Table]) -> None:
        self.stream = adventureworks.ChangeStream(tables)
        self._connection = stack.connect_source()
        self._error: pymssql.Error | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        assert self._thread.is_alive() or self._error
        self._is_over.set()
        self._thread.join(600)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error
        self._connection.close()

    def _run(self) -> None:
        try:
            cursor = self._connection.cursor()
            for batch in self.stream.transactions():
                cursor.execute(batch)
                if self._is_over.wait(_PAUSE_SECONDS) and self.stream.changes >= _CHANGES:
                    return
        except pymssql.Error as error:
            self._error = error
