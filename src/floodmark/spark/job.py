"""The load job of one window. Its last line of output is the result, for the caller."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from floodmark.core.errors import ConfigError, FloodmarkBugError, FloodmarkError, LoadStartError
from floodmark.core.plan import TableCounts
from floodmark.core.planning import STARTED, LoadResult, format_load_result
from floodmark.core.progress import ReadProgress, StepProgress, format_progress_line
from floodmark.core.schema import TableName, is_loopback
from floodmark.core.settings import (
    KIND_VARIABLE,
    LEDGER_VARIABLE,
    MASK_KEYS_VARIABLE,
    PROGRESS_VARIABLE,
    SOURCE_VARIABLE,
    WAREHOUSE_KIND_VARIABLE,
    WAREHOUSE_VARIABLE,
)
from floodmark.iceberg.folder import LakeFolder
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sources.kind import PortableConnection, find_kind
from floodmark.spark.engine import Engine, OpeningEngine, has_lost_java
from floodmark.spark.launch.target import SparkTarget
from floodmark.spark.stage import killed, recover
from floodmark.spark.stager import SparkStager
from floodmark.sync.columns import MaskKeys
from floodmark.sync.load import load_window
from floodmark.sync.ports import LoggedProgress, Warehouse
from floodmark.sync.sessions import kept_sessions

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# ``PrintedProgress``: the progress of a load as lines on standard output, for the process that started the job.


class PrintedProgress:
    """``sync.ports.Progress`` for a starter that draws it."""

    every_seconds = 1.0

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def report(self, read: ReadProgress) -> None:
        self._print(read)

    def report_step(self, step: StepProgress) -> None:
        self._print(step)

    def _print(self, progress: ReadProgress | StepProgress) -> None:
        with self._lock:
            # In one piece: the lines of the log go to the same pipe.
            sys.stdout.write(format_progress_line(progress) + "\n")
            sys.stdout.flush()


# --------------------------------------------------------------------------------------------------------------------


def main(opening: OpeningEngine, arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 when the window is merged. An error is logged, and is in the last line for programs."""
    parser = argparse.ArgumentParser(description="Load one window of a pipeline.")
    parser.add_argument("--window-id", type=int, required=True, help="of the ledger; it must have been opened")
    # The plan in the ledger is complete; the option only makes the log show where the window came from.
    parser.add_argument("--config", type=Path, help="the configuration that the window was opened with")
    options = parser.parse_args(arguments)
    print(STARTED, flush=True)
    result = _result(options.window_id, opening)
    # What keeps Spark from its start is reported by the starter, with what Java has printed.
    if result.error is not None and not isinstance(result.error, LoadStartError):
        _LOG.error("%s", result.error)
    sys.stdout.flush()
    print(format_load_result(result), flush=True)
    return 0 if result.error is None else 1


@kept_sessions()
def run_load_job(window_id: int, opening: OpeningEngine) -> Mapping[TableName, TableCounts]:
    """Load a window and return the rows per table. Source and warehouse come from the environment.

    Raises from ``core.errors``.
    """
    subject = f"window {window_id}"
    adapters = find_kind(os.environ.get(KIND_VARIABLE, "cdc")).load_adapters()
    source = _from_environment(SOURCE_VARIABLE, adapters.connection, subject)
    ledger = _from_environment(LEDGER_VARIABLE, WarehouseConnection, subject)
    is_lake = os.environ.get(WAREHOUSE_KIND_VARIABLE) == "iceberg"
    kind: type[PortableConnection] = LakeFolder if is_lake else WarehouseConnection
    at = _from_environment(WAREHOUSE_VARIABLE, kind, subject)

    def open_engine() -> Engine:
        engine = opening.get()
        for master in engine.masters:
            _require_reachable(master, {**source.hosts, **at.hosts})
            _require_variables(master, adapters.executor_variables(source), engine.session.conf.get)
        return engine

    began = time.monotonic()
    try:
        return load_window(
            window_id,
            PostgresLedger(ledger),
            _open_warehouse(at, ledger, lambda: open_engine().session),
            adapters.snapshots(source),
            SparkStager(open_engine, adapters.open_reader, adapters.plan_reads, _mask_keys(subject)),
            progress=PrintedProgress() if PROGRESS_VARIABLE in os.environ else LoggedProgress(),
        )
    finally:
        _LOG.info("The load took %.1f s.", time.monotonic() - began - opening.waited_seconds)


def _open_warehouse(
    at: PortableConnection, ledger: WarehouseConnection, open_spark: Callable[[], SparkSession]
) -> Warehouse:
    if isinstance(at, LakeFolder):
        # Only a lake needs the modules of the merge by Spark.
        from floodmark.iceberg.warehouse import IcebergWarehouse  # noqa: PLC0415

        return IcebergWarehouse(at, ledger, open_spark)
    assert isinstance(at, WarehouseConnection)  # noqa: S101  (the only other kind)
    return PostgresWarehouse(at)


def _require_reachable(master: str, hosts: Mapping[str, str]) -> None:
    """Raise ConfigError where an executor on another machine would connect to itself."""
    if SparkTarget(master).is_loopback:
        return
    for end, host in hosts.items():
        if host.startswith("/") or is_loopback(host):
            raise ConfigError(
                f"the {end}'s connection",
                f"its host is {host}, which is another machine for each executor of {master}.",
                "Name a host that the cluster's machines reach.",
            )


def _require_variables(master: str, names: Sequence[str], read_setting: Callable[[str, str], str | None]) -> None:
    """Raise ConfigError where executors on other machines have no variable of the environment by which they log in."""
    if SparkTarget(master).is_loopback:
        return
    for name in names:
        setting = f"spark.executorEnv.{name}"
        if not read_setting(setting, ""):
            raise ConfigError(
                "the source's connection",
                f"it logs in by Kerberos, and the executors of {master} have no keytab: {setting} is not set.",
                "Put a keytab and krb5.conf on each machine of the cluster, and name the keytab (FILE:/path) as this "
                "property in the Spark connection's conf.",
            )


def _result(window_id: int, opening: OpeningEngine) -> LoadResult:
    try:
        counts = run_load_job(window_id, opening)
    except FloodmarkError as error:
        return LoadResult(window_id, error=error)
    except Exception as error:  # noqa: BLE001  (the edge of the process: the caller must get every error)
        found = recover(error) or (killed() if has_lost_java() else None)
        if found is not None:
            return LoadResult(window_id, error=found)
        _LOG.exception("window %s", window_id)
        bug = FloodmarkBugError(f"window {window_id}", type(error).__name__, "See the log of the job.", str(error))
        return LoadResult(window_id, error=bug)
    return LoadResult(window_id, {str(table): rows for table, rows in counts.items()})


def _mask_keys(subject: str) -> MaskKeys:
    """Return the secrets of masks, which a job of an earlier version does not have."""
    try:
        return dict(json.loads(os.environ.get(MASK_KEYS_VARIABLE, "{}")))
    except (ValueError, TypeError) as error:
        # The text contains secrets: the message does not repeat it.
        raise ConfigError(subject, f"{MASK_KEYS_VARIABLE} is no JSON object ({type(error).__name__}).") from None


_Connection = TypeVar("_Connection", bound=PortableConnection)


def _from_environment(variable: str, kind: type[_Connection], subject: str) -> _Connection:
    text = os.environ.get(variable)
    if not text:
        raise ConfigError(
            subject, f"the environment variable {variable} is not set.", "Set it to a connection as JSON."
        )
    try:
        connection = kind.from_json(text)
    except (ValueError, TypeError) as error:
        # The text contains a password: the message does not repeat it.
        raise ConfigError(subject, f"{variable} is not a connection as JSON ({type(error).__name__}).") from None
    try:
        return connection.portable()
    except ValueError as error:
        raise ConfigError(subject, f"{error}.", "Correct the path in the connection's extra.") from None
