"""The work of the tasks of a run, with its outcome in Airflow's terms: skipped, failed for good, or to be retried.

``sync`` decides, and the adapters read and write. This module only converts their outcome into Airflow's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowSkipException

from floodmark.app.load import end_load, is_loading, load_planner, open_reload
from floodmark.app.measure import measured
from floodmark.app.replay import end_replay, replay_of
from floodmark.app.run import check_run, close_run, is_outdated, open_next, publish_run, stopped_table
from floodmark.core.errors import ConfigError, NotCapturedYetError
from floodmark.core.position import Position
from floodmark.core.recovery.replay_interval import NoInterval
from floodmark.core.schema import TableName
from floodmark.core.window.plan import WindowState
from floodmark.orchestration.context import open_app
from floodmark.orchestration.failure import explained

if TYPE_CHECKING:
    from floodmark.core.window.published import PublishedTable
    from floodmark.wiring.pipelines import PipelineWiring

_LOG = logging.getLogger(__name__)
WATERMARK_KEY = "watermark"


def run_open_window(config_path: Path, pipeline: str) -> int:
    """Return the id of the window to finish. Skips the run, with the reason, where there is nothing to read."""
    with explained():
        # The DAG was built without parsing the rules; an invalid rule must not cost a load.
        app = open_app(config_path)
        try:
            with measured(app, pipeline):
                opened = open_next(app, pipeline)
        except NotCapturedYetError as error:
            # Nothing is wrong, and a retry in this run seldom helps: the next run is soon enough.
            raise AirflowSkipException(str(error)) from None
    if opened.window_id is None:
        close_run(app, pipeline)
        raise AirflowSkipException(opened.reason)
    return opened.window_id


def record_run(wiring: PipelineWiring, window_id: int, dag_run: Any) -> int:
    """Record the run of a window in the ledger, for the link on the window's page. Return the id of the window."""
    with explained():
        wiring.ledger.windows().record_run(window_id, dag_run.dag_id, dag_run.run_id)
    return window_id


def measured_step(wiring: PipelineWiring, config_path: Path) -> AbstractContextManager[None]:
    """Return the context manager that measures the lag when a later step of a run fails."""
    return measured(open_app(config_path, parse_rules=False), wiring.settings.name)


def run_check(wiring: PipelineWiring, config_path: Path, window_id: int) -> None:
    """Check a window. Raises AirflowFailException, with all findings, when a check fails."""
    with explained(), measured_step(wiring, config_path):
        check_run(wiring, window_id)


def run_advance(
    wiring: PipelineWiring,
    config_path: Path,
    window_id: int,
    *,
    assets: Mapping[TableName, Asset],
    events: Any,
    stores: Any,
) -> None:
    """Move the watermarks, then notify Airflow: one asset event per table, and a displayed watermark where rows came.

    Repeated, for example by a cleared task, it reports what is still true. For a window that is no longer the last one
    it does nothing.
    """
    with explained():
        known = wiring.ledger.windows().read_window(window_id)
        if is_outdated(wiring, known):
            _LOG.info("Window %s was published before, and a later window since then: nothing was done.", window_id)
            return
        result = publish_run(wiring, window_id)
    # A window that was merged before a table was removed from the configuration still has it.
    published = [table for table in result.tables if table.source in assets]
    for table in published:
        events[assets[table.source]].extra = event_extra(window_id, table)
    if result.is_replay:
        # No watermark moved, and the lag is unchanged.
        return
    for table in published:
        if table.has_rows:
            _show_watermark(assets[table.source], stores, result.to_lsn)
    if known.state is not WindowState.ADVANCED:
        # A failure after the window was published has not ended because the window's last task runs again.
        with explained():
            stopped = stopped_table(wiring)
        app = open_app(config_path, parse_rules=False)
        close_run(app, wiring.settings.name, result, stopped=stopped is not None)


def run_report_gaps(wiring: PipelineWiring) -> None:
    """Raise AirflowFailException while a table of the pipeline is left out of its windows."""
    with explained():
        if error := stopped_table(wiring):
            raise error
        _LOG.info("No table of %s is left out of its windows.", wiring.settings.name)


def event_extra(window_id: int, table: PublishedTable) -> dict[str, Any]:
    """Return the extra of an asset event: the window ``(after_lsn, to_lsn]`` and its row counts."""
    return {
        "window_id": window_id,
        "source": str(table.source),
        "kind": table.kind.value,
        "after_lsn": str(table.after_lsn) if table.after_lsn else None,
        "to_lsn": str(table.to_lsn),
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


def run_open_load(config_path: Path, pipeline: str, params: Mapping[str, Any]) -> int:
    """Return the id of the window to load. Skips the run where no table is to be loaded."""
    with explained():
        app = open_app(config_path)
        if params.get("table"):
            opened = open_reload(app, pipeline, params["table"], params.get("where"))
        elif params.get("where"):
            raise ConfigError(pipeline, "a condition (where) was given without a table.", "Choose the table as well.")
        else:
            opened = load_planner(app, pipeline).open_pending()
    if opened.window_id is None:
        raise AirflowSkipException(opened.reason)
    return opened.window_id


def run_advance_load(
    wiring: PipelineWiring,
    config_path: Path,
    window_id: int,
    *,
    assets: Mapping[TableName, Asset],
    events: Any,
    stores: Any,
) -> None:
    """Publish the load, then notify Airflow and end the alerts about the repair. Repeatable as ``run_advance`` is."""
    pipeline = wiring.settings.name
    with explained():
        ledger = wiring.ledger.windows()
        known = ledger.read_window(window_id)
        if known.state is WindowState.ADVANCED and is_loading(wiring, known.plan):
            _LOG.info("Window %s was published before, and its table is being loaded again.", window_id)
            return
        if is_outdated(wiring, known):
            _LOG.info("Window %s was published before, and the watermark has moved on since then.", window_id)
            end_load(open_app(config_path, parse_rules=False), pipeline, window_id)
            return
        result = publish_run(wiring, window_id)
        plan = end_load(open_app(config_path, parse_rules=False), pipeline, window_id)
    for planned, table in zip(plan.tables, result.tables, strict=True):
        if table.source not in assets:  # removed from the configuration since the load was merged
            continue
        asset = assets[table.source]
        events[asset].extra = event_extra(window_id, table)
        if plan.moves_watermark(planned):
            _show_watermark(asset, stores, result.to_lsn)


def run_open_replay(config_path: Path, pipeline: str, begin: datetime, end: datetime) -> int:
    """Return the id of the window that replays a data interval. Skips the run, with the reason, where there is
    nothing to replay."""
    with explained():
        replay = replay_of(open_app(config_path), pipeline)
        _LOG.info("Backfill: merging the changes committed from %s to %s again.", begin, end)
        interval = replay.find_moments(begin, end)
        if isinstance(interval, NoInterval):
            raise AirflowSkipException(interval.reason)
        opened = replay.open(interval)
    if opened.window_id is None:
        raise AirflowSkipException(opened.reason)
    return opened.window_id


def end_backfill(config_path: Path, pipeline: str, replayed: str) -> None:
    """End the alert about a backfill that has finished. replayed: its data interval."""
    end_replay(open_app(config_path, parse_rules=False), pipeline, replayed)
