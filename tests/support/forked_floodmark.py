"""The command ``floodmark``, forked from a process that has imported all of it: half a second of work instead of three
of imports, so that it can run and be killed often. Its loads run without Spark and its checks find nothing, unless a
test is about them.

A load without Spark is a process of its own as well, a child of the command, and forked before the command has
connected to anything: neither shares a connection or a thread with the other.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, NoReturn, TextIO

import pytest

from torture_command import RunningCommand

if TYPE_CHECKING:
    # What is forked has imported them; a process of tests need not.
    from floodmark.core.errors import FloodmarkError
    from floodmark.core.plan import TableCounts, WindowPlan
    from floodmark.core.schema import TableName
    from floodmark.spark.launch.target import SparkTarget

_IMPORTED = (
    "airflow.sdk",
    "floodmark.cli.main",
    "floodmark.postgres.ledger.status",
    "floodmark.postgres.ledger.drift",
    "floodmark.spark.job",
    "floodmark.spark.stage",
    "floodmark.postgres.warehouse.sink",
    "floodmark.sources.sqlserver.condition",
    "floodmark.sources.cdc.kind",
    "floodmark.sources.cdc.operations",
    "floodmark.sources.cdc.reader",
    "floodmark.sources.cdc.source",
    "floodmark.sources.change_tracking.reader",
    "floodmark.sources.change_tracking.source",
    "floodmark.sources.compact.reader",
    "floodmark.sources.compact.source",
    "floodmark.sources.event_stream.reader",
    "floodmark.sources.event_stream.source",
    "mssql_python",
)


def begin(
    arguments: Sequence[str], environment: Mapping[str, str], *, with_spark: bool = False, with_checks: bool = False
) -> RunningCommand:
    """Begin a command in a session of its own.

    with_spark: its loads run in spark-submit, and its checks are made as well. with_checks: they are made all the same.
    """
    process, output = _start(arguments, environment, with_spark, with_spark or with_checks)
    return RunningCommand(arguments, process, output)


def _start(
    arguments: Sequence[str], environment: Mapping[str, str], with_spark: bool, with_checks: bool
) -> tuple[ForkServerProcess, TextIO]:
    """Return the leader of the session, and what it and its load write."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(
        target=_command, args=(arguments, environment, writer, with_spark, with_checks), daemon=True
    )
    with pytest.MonkeyPatch.context() as patch:
        # What the imported read at once, when the first command starts the process from which all are forked.
        patch.setenv("COLUMNS", environment.get("COLUMNS", "200"))
        patch.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
        process.start()
    writer.close()
    output = os.fdopen(os.dup(reader.fileno()), encoding="utf-8")
    reader.close()
    return process, output


def _command(
    arguments: Sequence[str], environment: Mapping[str, str], writer: Connection, with_spark: bool, with_checks: bool
) -> None:
    os.setsid()
    os.dup2(writer.fileno(), 1)
    os.dup2(writer.fileno(), 2)
    writer.close()
    os.environ.clear()
    os.environ.update(environment)
    if not with_spark:
        _replace_spark(LoadInWaiting())
    if not with_checks:
        _replace_checks()

    import sys

    from floodmark.cli import main as cli

    sys.argv = ["floodmark", *arguments]
    cli.main()


def _replace_spark(load: LoadInWaiting) -> None:
    from floodmark.spark.launch import command as load_job
    from floodmark.spark.launch import processes as load_process

    vars(load_job).update(submit_command=_load_command)
    vars(load_process).update(subprocess=SimpleNamespace(Popen=load.begin, PIPE=None, STDOUT=None))


def _replace_checks() -> None:
    from floodmark.app.pipeline import Pipeline

    Pipeline.quality = _NoChecks()  # type: ignore[assignment]


class _NoChecks:
    """A ``Quality`` that finds nothing."""

    def check_window(
        self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]
    ) -> Mapping[TableName, FloodmarkError]:
        return {}


def _load_command(_target: SparkTarget, window_id: int, config: Path) -> list[str]:
    from floodmark.spark.launch.command import job_arguments

    return job_arguments(window_id, config)


class LoadInWaiting:
    """A substitute for the Popen of a load.

    It waits for its arguments, and ends if the command ends without giving any.
    """

    def __init__(self) -> None:
        order, self._order = os.pipe()
        output, written = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.dup2(written, 1)
            os.dup2(written, 2)
            for descriptor in (self._order, output, written):
                os.close(descriptor)
            _load(order)
        os.close(order)
        os.close(written)
        self.stdout = os.fdopen(output, encoding="utf-8")
        self.returncode: int | None = None

    def begin(self, arguments: list[str], *, env: Mapping[str, str], **_streams: object) -> LoadInWaiting:
        with os.fdopen(self._order, "w", encoding="utf-8") as order:
            json.dump([arguments, dict(env)], order)
        return self

    def __enter__(self) -> LoadInWaiting:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stdout.close()
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


def _load(order: int) -> NoReturn:
    with os.fdopen(order, encoding="utf-8") as reader:
        text = reader.read()
    status = 0
    if text:
        arguments, environment = json.loads(text)
        os.environ.update(environment)
        # Airflow's, which the job does not import.
        logging.getLogger().handlers.clear()

        import load_without_spark

        status = load_without_spark.main(arguments)
    # What waits for the end of the process from which this one was forked is not ours.
    os._exit(status)
