"""``LoadWindow``: the one Spark job of a run, submitted for all tables of the pipeline.

It is a ``SparkSubmitOperator`` that keeps secrets off command line, template and log, falls back to ``local[*]`` where
the Spark connection is not defined, and distinguishes a reported error from a killed job. The ledger, not the job,
decides whether the window is merged.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from floodmark.core.errors import ConfigError, FloodmarkBugError
from floodmark.orchestration.tasks import explained
from floodmark.spark.launch.command import (
    JobOutput,
    application,
    client_command,
    driver_command,
    end_with_starter,
    job_arguments,
    job_environment,
    job_settings,
    start_failure,
)
from floodmark.spark.launch.target import DEFAULT_MASTER, target_of

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from floodmark.core.planning import LoadResult

_END_SECONDS = 5
"""The time that a load has to end by itself, after SIGTERM."""


class LoadHook(SparkSubmitHook):  # type: ignore[misc]
    """A hook that passes secrets in the driver's environment and reads the job's result from its output.

    source and warehouse: JSON of the connections.
    """

    def __init__(self, secrets: Mapping[str, str], **arguments: Any) -> None:
        super().__init__(**arguments)
        self.output = JobOutput()
        found = self.get_connection(self._conn_id)
        self._target = target_of(
            self._conn_id, self._connection["master"], found.extra_dejson, found.login, found.password
        )
        if self._target.server and arguments.get("conf"):
            raise ConfigError(
                f"connection {self._conn_id}",
                "its host is a Spark Connect server, and conf of airflow.load_operator_args is for spark-submit.",
                "Remove conf; the properties of Spark are those that the server was started with.",
            )
        self._conf: dict[str, Any] = job_settings(self._target) | (arguments.get("conf") or {})
        # Not env_vars: on YARN and Kubernetes the provider puts them on the command line.
        self._env = job_environment(secrets, self._target)

    def submit(self, application: str = "", **arguments: Any) -> str | None:
        """Start the job in a process group of its own, so that ``on_kill`` ends the driver's Python as well as the
        JVM."""
        driver_id: str | None = super().submit(
            application, process_group=0, preexec_fn=end_with_starter(), errors="replace", **arguments
        )
        return driver_id

    def _build_spark_submit_command(self, application: str) -> list[str]:
        """Return the command that ``submit`` runs: Python, or spark-submit where that must choose the driver's."""
        if self._target.server:
            return client_command(self._target, self._application_args)
        submitted = super()._build_spark_submit_command(application)
        command, options = driver_command(submitted, application, self._conf, os.environ | self._env)
        self._env |= options
        return command

    @property
    def was_run(self) -> bool:
        """Whether a process of spark-submit was started."""
        return self._submit_sp is not None

    @property
    def exit_code(self) -> int:
        """The exit code of the spark-submit that was run, negative for a signal."""
        assert self._submit_sp is not None  # noqa: S101  (see was_run)
        code: int = self._submit_sp.returncode
        return code

    def on_kill(self) -> None:
        if self._submit_sp is not None and self._submit_sp.poll() is None:
            os.killpg(self._submit_sp.pid, signal.SIGTERM)
            if self._target.server:
                # It has the server interrupt what it runs for this load.
                with suppress(subprocess.TimeoutExpired):
                    self._submit_sp.wait(_END_SECONDS)
        super().on_kill()

    @classmethod
    def get_connection(cls, conn_id: str) -> Any:
        """Return the connection, or ``local[*]`` where it is not defined; the provider would use a YARN cluster."""
        try:
            return super().get_connection(conn_id)
        except AirflowNotFoundException:
            return Connection(conn_id=conn_id, conn_type="spark", host=DEFAULT_MASTER)

    def _process_spark_submit_log(self, itr: Iterator[str]) -> None:
        super()._process_spark_submit_log(self.output.watch(itr))


class LoadWindow(SparkSubmitOperator):  # type: ignore[misc]
    """An operator that loads the window whose id the first task of the run returned.

    read_secrets: called while the task runs, returns the connections of source and warehouse as JSON. is_merged:
    queries the ledger; called before the job (True: there is nothing left to do) and after it. lineage: returns what
    the window reads and writes. measured: returns the context manager around both.
    """

    def __init__(
        self,
        *,
        config: Path,
        window_id: str,
        read_secrets: Callable[[], Mapping[str, str]],
        is_merged: Callable[[int], bool],
        lineage: Callable[[int], OperatorLineage],
        measured: Callable[[], AbstractContextManager[None]] = nullcontext,
        **arguments: Any,
    ) -> None:
        super().__init__(application=str(application()), application_args=job_arguments(window_id, config), **arguments)
        self._read_secrets = read_secrets
        self._is_merged = is_merged
        self._lineage = lineage
        self._measured = measured

    def get_openlineage_facets_on_start(self) -> OperatorLineage:
        """Return the lineage of the window as the ledger knows it. Airflow's OpenLineage provider calls it by this name
        when the task starts, and again when it has ended."""
        return self._lineage(self._window_id)

    @property
    def _window_id(self) -> int:
        assert self.application_args is not None  # noqa: S101  (set in __init__, rendered since)
        return int(self.application_args[1])

    def execute(self, context: Context) -> None:
        """Load the window. Raises the error that the job reported; AirflowException, which is retried, where the job
        was killed."""
        window_id = self._window_id
        with explained(), self._measured():
            if self._is_merged(window_id):
                self.log.info("Window %s is already merged: nothing to load.", window_id)
                return
            result = self._run(window_id)
            self._report(result)
            if not self._is_merged(window_id):
                raise FloodmarkBugError(
                    f"window {window_id}", "the load job reported success, but the ledger does not mark it as merged."
                )

    def _run(self, window_id: int) -> LoadResult:
        # The provider's on_kill reads this attribute.
        self._hook = hook = self._get_hook()
        try:
            hook.submit(self.application)
        except (AirflowException, OSError, ValueError) as problem:
            if not hook.was_run:
                raise start_failure(window_id, problem) from None
            if not isinstance(problem, AirflowException):
                raise
            # The provider's text only repeats the exit code and the output, which are already in the log.
        result: LoadResult = hook.output.require_result(window_id, hook.exit_code)
        return result

    def _get_hook(self) -> LoadHook:
        secrets = self._read_secrets()
        try:
            return LoadHook(
                secrets,
                conf=dict(self.conf or {}),
                conn_id=self._conn_id,
                name=self.name,
                application_args=self.application_args,
            )
        except ValueError as problem:
            # The provider's message names the part of the connection that it rejects.
            raise ConfigError(f"connection {self._conn_id}", f"{str(problem).rstrip('.')}.") from None

    def _report(self, result: LoadResult) -> None:
        for table, counts in result.counts.items():
            self.log.info(
                "%s: %s read, %s staged, %s inserted, %s updated, %s deleted, %s unchanged, %s in quarantine",
                table,
                counts.read_rows,
                counts.staged_rows,
                counts.inserted_rows,
                counts.updated_rows,
                counts.deleted_rows,
                counts.unchanged_rows,
                counts.quarantined_rows,
            )
