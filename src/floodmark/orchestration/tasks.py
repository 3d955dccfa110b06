"""The work of the tasks of a run, with its outcome in Airflow's terms, and the alerts that it raises."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.sdk import Asset, AssetAlias, get_current_context
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowRuntimeError, AirflowSkipException

from floodmark.app.alerts import AirflowMetrics, measured, report_tables
from floodmark.app.operate import replay_of
from floodmark.app.pipeline import App, Pipeline
from floodmark.app.run import (
    close_run,
    end_load,
    is_loading,
    is_outdated,
    load_planner,
    open_next,
    open_reload,
    publish_run,
    register_tables,
)
from floodmark.config.loading import load_config
from floodmark.config.models import Config, PipelineConfig
from floodmark.core.alert import Alert
from floodmark.core.alerts import (
    REPLAY_FAILED,
    RUN_FAILED,
    RunFailure,
    data_interval,
    is_about_tables,
    run_failed,
    run_late,
)
from floodmark.core.errors import ConfigError, FloodmarkError, NotCapturedYetError
from floodmark.core.plan import WindowState
from floodmark.core.position import Position
from floodmark.core.recovery import NoInterval
from floodmark.core.schema import TableName
from floodmark.sync.alerts import AlertNotes, Delivery, find_stopped

if TYPE_CHECKING:
    from floodmark.core.plan import PublishedTable

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# The errors that a call to Airflow's API server raises. They belong to two families without a common base class; the
# second one is raised when the server itself fails.


AIRFLOW_ERRORS = (AirflowException, AirflowRuntimeError)


# --------------------------------------------------------------------------------------------------------------------
# ``VariableNotes``: an Airflow variable that records which channels were notified while the warehouse is unreachable.
#
# Without it, an alert about an unreachable warehouse would be sent in every run, and its end would never be reported.


VARIABLE = "floodmark_alerts_not_in_the_ledger"


class VariableNotes(AlertNotes):
    """``sync.alerts.AlertNotes`` in an Airflow variable. Outside of Airflow's processes there are no notes.

    Two processes that write at the same time may lose a note. The cost is a message that is sent twice.
    """

    def read(self) -> dict[str, Delivery]:
        if not _is_inside_airflow():
            return {}
        from airflow.sdk import Variable  # noqa: PLC0415

        try:
            rows = Variable.get(VARIABLE, default=None, deserialize_json=True)
        except (*AIRFLOW_ERRORS, ValueError) as error:
            _LOG.warning("Could not read variable %s: %s", VARIABLE, error)
            return {}
        found = [_parse(row) for row in (rows if isinstance(rows, list) else [])]
        return {delivery.alert.event_key: delivery for delivery in found if delivery is not None}

    def write(self, notes: Mapping[str, Delivery]) -> None:
        if not _is_inside_airflow():
            return
        from airflow.sdk import Variable  # noqa: PLC0415

        rows = [_row(delivery) for delivery in notes.values()]
        description = "Alerts that were sent while Floodmark's ledger could not be reached."
        try:
            Variable.set(VARIABLE, rows, description=description, serialize_json=True)
        except AIRFLOW_ERRORS as error:
            _LOG.warning("Could not write variable %s: %s", VARIABLE, error)


def _is_inside_airflow() -> bool:
    """Return whether variables are available: a task, a callback or a trigger has a supervisor that provides them."""
    from airflow.sdk.execution_time import task_runner  # noqa: PLC0415

    return getattr(task_runner, "SUPERVISOR_COMMS", None) is not None


def _row(delivery: Delivery) -> dict[str, Any]:
    return {
        "alert": asdict(delivery.alert),
        "raised_at": delivery.raised_at.isoformat(),
        "told": sorted(delivery.notified),
    }


def _parse(row: Any) -> Delivery | None:
    """Return None for a row that this version cannot read. A lost note costs one more message."""
    try:
        fields = dict(row["alert"])
        if fields["table"] is not None:
            fields["table"] = TableName(**fields["table"])
        return Delivery(Alert(**fields), datetime.fromisoformat(row["raised_at"]), notified=set(row["told"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        _LOG.warning("Could not read a note in variable %s: %r", VARIABLE, error)
        return None


# --------------------------------------------------------------------------------------------------------------------
# The ``App`` of a task: notes in an Airflow variable, metrics by Airflow.


def open_app(config_path: Path | str, *, parse_rules: bool = True) -> App:
    """Return the configuration of a task with its pipelines. parse_rules: see ``load_config``. Raises ConfigError."""
    return app_of(load_config(config_path, parse_rules=parse_rules))


def app_of(config: Config) -> App:
    """Return a configuration that has been read with its pipelines."""
    return App(config, VariableNotes(), AirflowMetrics())


# --------------------------------------------------------------------------------------------------------------------
# The callbacks that Airflow calls when a run has failed or is late.
#
# The callback for failed runs belongs to the DAG. The DAG processor runs it at the scheduler's request, so that it also
# runs when the task, its worker or its machine was killed. Only the task knows the error. It leaves the error for the
# callback in XCom.


FAILURE_KEY = "floodmark_failure"
_UNFINISHED = ("queued", "running")
BACKFILL = "backfill"
"""The type of the runs that ``airflow backfill`` creates or repeats."""


def leave_failure(error: FloodmarkError) -> None:
    """Leave the error in XCom for the callback. Do nothing outside of a task; a failure to do so is only logged."""
    try:
        context = get_current_context()
    except RuntimeError:
        return
    try:
        context["ti"].xcom_push(FAILURE_KEY, asdict(RunFailure.of(error)))
    except AIRFLOW_ERRORS as problem:
        _LOG.warning("Could not save the cause of this failure for its alert: %s", problem)


def failure_callback(
    config_path: Path, kind: str, subject: str, kind_by_task: Mapping[str, str]
) -> Callable[[Mapping[str, Any]], None]:
    """Return the ``on_failure_callback`` of a DAG.

    kind, and the values of kind_by_task for single tasks: an alert kind of ``core.alerts``. subject: the pipeline
    or the source. A failed backfill of a pipeline raises an alert of another kind than a failed run.
    """

    def notify(context: Mapping[str, Any]) -> None:
        ti, dag = context.get("ti"), context["dag"]
        task_id = ti.task_id if ti else ""
        app = open_app(config_path, parse_rules=False)
        pipeline = app.pipelines.get(subject) if kind == RUN_FAILED else None
        replayed = _replayed(context) if kind == RUN_FAILED else ""
        if replayed and pipeline and not pipeline.source.has_history:
            # A backfill that was refused: no later one would end an alert about it.
            return
        raised, failure = REPLAY_FAILED if replayed else kind_by_task.get(task_id, kind), _take_failure(ti)
        if pipeline and raised == RUN_FAILED and report_tables(pipeline) and is_about_tables(failure):
            # Each of the tables has an alert: one message for one event.
            return
        alert = run_failed(
            raised,
            subject,
            failure,
            dag_id=dag.dag_id,
            run_id=context["run_id"],
            task_id=task_id,
            part=replayed,
        )
        app.alerts.raise_alert(alert)

    return notify


def _take_failure(ti: Any) -> RunFailure | None:
    if ti is None:
        return None
    try:
        return RunFailure.parse(ti.xcom_pull(task_ids=ti.task_id, key=FAILURE_KEY))
    except AIRFLOW_ERRORS as problem:
        _LOG.warning("Could not read why task %s failed: %s", ti.task_id, problem)
        return None


def _replayed(context: Mapping[str, Any]) -> str:
    """Return the data interval of a backfill, "" for another run.

    Airflow passes the run only where one of its tasks has run. Otherwise only the run's id is known.
    """
    run = context.get("dag_run")
    if run is None:
        return context["run_id"] if context["run_id"].startswith(f"{BACKFILL}__") else ""
    return data_interval(run.data_interval_start, run.data_interval_end) if run.run_type == BACKFILL else ""


def deadline_of(config_path: Path, name: str, pipeline: PipelineConfig) -> DeadlineAlert | None:
    """Return the deadline of a run: it must end within ``max_lag`` after it was queued. None without ``max_lag``.

    A deadline does not detect data that are late for another reason, such as a held table: see ``app.run``.
    """
    if pipeline.max_lag is None:
        return None
    known = {"config": str(config_path), "pipeline": name, "limit_seconds": pipeline.max_lag.total_seconds()}
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=pipeline.max_lag,
        # It runs in the triggerer: an executor without a free slot may be the reason why the run is late.
        callback=AsyncCallback(report_late_run, known),
    )


async def report_late_run(config: str, pipeline: str, limit_seconds: float, context: Mapping[str, Any]) -> None:
    """Raise the alert about a late run, unless the run has ended or is a backfill.

    Airflow also calls this when the run failed before its deadline, which is another alert. A backfill repeats rows
    and is never late.
    """
    run = context["dag_run"]
    if run["state"] not in _UNFINISHED or run["run_type"] == BACKFILL:
        return
    queued_at = str(run["queued_at"]).replace("T", " ").partition(".")[0] + " UTC"
    alert = run_late(pipeline, run["dag_run_id"], queued_at, limit_seconds)
    alerts = open_app(config, parse_rules=False).alerts
    # Channels and ledger block, and the triggerer runs all its triggers in one thread.
    await asyncio.to_thread(alerts.raise_alert, alert)


# --------------------------------------------------------------------------------------------------------------------
# Retry or fail: the only place that decides it, and the message in the log of a failed task.
#
# The error itself holds the decision (``FloodmarkError.retryable``). Any other exception is left alone: Airflow prints
# its traceback and retries.


def as_airflow_error(error: FloodmarkError) -> Exception:
    """Return the error for Airflow: AirflowFailException ends the task, AirflowException lets it be retried."""
    kind = AirflowException if error.retryable else AirflowFailException
    failure: Exception = kind(str(error))
    return failure


@contextmanager
def explained() -> Iterator[None]:
    """Pass our errors to Airflow as one message, without a traceback."""
    try:
        yield
    except FloodmarkError as error:
        retry = "The task is retried while it has retries left." if error.retryable else "The task is not retried."
        _LOG.error("%s %s", error.in_full, retry)
        leave_failure(error)
        raise as_airflow_error(error) from None


# --------------------------------------------------------------------------------------------------------------------
# The work of the tasks of a run, with its outcome in Airflow's terms: skipped, failed for good, or to be retried.
#
# ``sync`` decides, and the adapters read and write. This module only converts their outcome into Airflow's.


WATERMARK_KEY = "watermark"


def run_open_window(config_path: Path, name: str) -> int:
    """Return the id of the window to finish. Skips the run, with the reason, where there is nothing to read."""
    with explained():
        # The DAG was built without parsing the rules; an invalid rule must not cost a load.
        pipeline = open_app(config_path).pipeline(name)
        try:
            with measured(pipeline):
                opened = open_next(pipeline)
        except NotCapturedYetError as error:
            # Nothing is wrong, and a retry in this run seldom helps: the next run is soon enough.
            raise AirflowSkipException(str(error)) from None
        if opened.window_id is None:
            register_tables(pipeline)
    if opened.window_id is None:
        close_run(pipeline)
        raise AirflowSkipException(opened.reason)
    return opened.window_id


def record_run(pipeline: Pipeline, window_id: int, dag_run: Any) -> int:
    """Record the run of a window in the ledger, for the link on the window's page. Return the id of the window."""
    with explained():
        pipeline.ledger.record_run(window_id, dag_run.dag_id, dag_run.run_id)
    return window_id


class BroughtAssets(NamedTuple):
    """The assets of tables that patterns have brought. A DAG file cannot know them: their events go by an alias."""

    alias: AssetAlias
    assets: Mapping[TableName, Asset]

    def emit(self, events: Any, window_id: int, tables: Iterable[PublishedTable]) -> None:
        """Add the events of the tables that are among these."""
        for table in (each for each in tables if each.source in self.assets):
            events[self.alias].add(self.assets[table.source], extra=event_extra(window_id, table))


def run_advance(
    pipeline: Pipeline,
    window_id: int,
    *,
    assets: Mapping[TableName, Asset],
    events: Any,
    stores: Any,
    brought: BroughtAssets | None = None,
) -> None:
    """Move the watermarks, then notify Airflow: one asset event per table, and a displayed watermark where rows came.

    Repeated, for example by a cleared task, it reports what is still true. For a window that is no longer the last one
    it does nothing.
    """
    with explained():
        known = pipeline.ledger.read_window(window_id)
        if is_outdated(pipeline, known):
            _LOG.info("Window %s was published before, and a later window since then: nothing was done.", window_id)
            return
        result = publish_run(pipeline, window_id)
    # A window that was merged before a table was removed from the configuration still has it.
    published = [table for table in result.tables if table.source in assets]
    for table in published:
        events[assets[table.source]].extra = event_extra(window_id, table)
    if brought:
        brought.emit(events, window_id, result.tables)
    if result.is_replay:
        # No watermark moved, and the lag is unchanged.
        return
    for table in published:
        if table.has_rows:
            _show_watermark(assets[table.source], stores, result.to)
    if known.state is not WindowState.ADVANCED:
        # A failure after the window was published has not ended because the window's last task runs again.
        close_run(pipeline, result)


def run_report_gaps(pipeline: Pipeline) -> None:
    """Raise AirflowFailException while a table of the pipeline is left out of its windows."""
    with explained():
        if error := find_stopped(pipeline.settings, pipeline.ledger):
            raise error
        _LOG.info("No table of %s is left out of its windows.", pipeline.name)


def event_extra(window_id: int, table: PublishedTable) -> dict[str, Any]:
    """Return the extra of an asset event: the window ``(after, to]`` and its row counts."""
    return {
        "window_id": window_id,
        "source": str(table.source),
        "kind": table.kind.value,
        "after_lsn": str(table.after) if table.after else None,
        "to_lsn": str(table.to),
        "inserted_rows": table.counts.inserted_rows,
        "updated_rows": table.counts.updated_rows,
        "deleted_rows": table.counts.deleted_rows,
        "quarantined_rows": table.counts.quarantined_rows,
    }


def _show_watermark(asset: Asset, stores: Any, watermark: Position) -> None:
    """Set the watermark that Airflow displays. It is a copy: the ledger is the source of truth.

    Each call is a request to Airflow's API server. A watermark that moves over a quiet interval is therefore not
    displayed: a pipeline of 500 tables would make 500 requests in every run, most often with nothing new.
    """
    stores[asset].set(WATERMARK_KEY, str(watermark))


def run_open_load(config_path: Path, name: str, params: Mapping[str, Any]) -> int:
    """Return the id of the window to load. Skips the run where no table is to be loaded."""
    with explained():
        pipeline = open_app(config_path).pipeline(name)
        if params.get("table"):
            opened = open_reload(pipeline, params["table"], params.get("where"))
        elif params.get("where"):
            raise ConfigError(name, "a condition (where) was given without a table.", "Choose the table as well.")
        else:
            opened = load_planner(pipeline).open_pending()
    if opened.window_id is None:
        raise AirflowSkipException(opened.reason)
    return opened.window_id


def run_advance_load(
    pipeline: Pipeline,
    window_id: int,
    *,
    assets: Mapping[TableName, Asset],
    events: Any,
    stores: Any,
    brought: BroughtAssets | None = None,
) -> None:
    """Publish the load, then notify Airflow and end the alerts about the repair. Repeatable as ``run_advance`` is."""
    with explained():
        known = pipeline.ledger.read_window(window_id)
        if known.state is WindowState.ADVANCED and is_loading(pipeline, known.plan):
            _LOG.info("Window %s was published before, and its table is being loaded again.", window_id)
            return
        if is_outdated(pipeline, known):
            _LOG.info("Window %s was published before, and the watermark has moved on since then.", window_id)
            end_load(pipeline, window_id)
            return
        result = publish_run(pipeline, window_id)
        plan = end_load(pipeline, window_id)
    if brought:
        brought.emit(events, window_id, result.tables)
    for planned, table in zip(plan.tables, result.tables, strict=True):
        if table.source not in assets:  # removed from the configuration since the load was merged
            continue
        asset = assets[table.source]
        events[asset].extra = event_extra(window_id, table)
        if plan.moves_watermark(planned):
            _show_watermark(asset, stores, result.to)


def run_open_replay(config_path: Path, name: str, begin: datetime, end: datetime) -> int:
    """Return the id of the window that replays a data interval. Skips the run, with the reason, where there is
    nothing to replay."""
    with explained():
        replay = replay_of(open_app(config_path).pipeline(name))
        _LOG.info("Backfill: merging the changes committed from %s to %s again.", begin, end)
        interval = replay.find_moments(begin, end)
        if isinstance(interval, NoInterval):
            raise AirflowSkipException(interval.reason)
        opened = replay.open(interval)
    if opened.window_id is None:
        raise AirflowSkipException(opened.reason)
    return opened.window_id


def end_backfill(pipeline: Pipeline, dag_run: Any) -> None:
    """End the part of the alerts about failed backfills that this backfill has caused. The other parts stay open."""
    replayed = data_interval(dag_run.data_interval_start, dag_run.data_interval_end)
    pipeline.alerts.end_part(REPLAY_FAILED, pipeline.name, replayed)


# --------------------------------------------------------------------------------------------------------------------
# The owner of Floodmark's DAGs in Airflow.


OWNER = "floodmark"
