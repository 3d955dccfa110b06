"""What the tasks of a run do, in Airflow's terms: skip, fail for good, or fail and be tried again.

The decisions are ``sync``'s, reads and writes the adapters'; this module only turns their outcome into Airflow's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowSkipException

from floodmark.config.loading import load_config
from floodmark.core.errors import FloodmarkError, NotHarvestedYetError
from floodmark.core.lane import is_replay_lane
from floodmark.core.lsn import Lsn
from floodmark.core.run_alerts import LAG, REPLAY_FAILED, RUN_FAILED, RUN_LATE
from floodmark.core.schema import TableName
from floodmark.core.window import WindowState
from floodmark.orchestration.alerting import alerts_of
from floodmark.orchestration.failure import explained
from floodmark.orchestration.measuring import measure_run, measured
from floodmark.orchestration.windows import open_next
from floodmark.sync import advance, check
from floodmark.sync.gaps import end_mended, find_stopped
from floodmark.wiring import wire

if TYPE_CHECKING:
    from floodmark.config.models import Config
    from floodmark.sync.advance import AdvanceResult, PublishedTable
    from floodmark.sync.ports import OpenedWindow
    from floodmark.wiring import Wiring

_LOG = logging.getLogger(__name__)
WATERMARK_KEY = "watermark"


def run_open_window(config_path: Path, pipeline: str, assets: Mapping[TableName, Asset], stores: Any) -> int:
    """The id of the window to finish. Skips the run, with the reason, where there is nothing to read."""
    with explained():
        # The DAG was built without looking into the rules; a broken one must not cost a load.
        config = load_config(config_path)
        try:
            with measured(config, pipeline):
                opened = open_next(config, pipeline)
        except NotHarvestedYetError as error:
            # Nothing is wrong and trying again in this run seldom helps: the next run is soon enough.
            raise AirflowSkipException(str(error)) from None
    if opened.window_id is None:
        end_well(config, pipeline)
        if opened.to_lsn is not None:
            with explained():
                states = wire(config, pipeline).ledger().read_tables(pipeline)
            # A table that is held, or loaded anew, stays where it is.
            moved = {table for table, state in states.items() if state.watermark == opened.to_lsn}
            _show_watermarks({each: assets[each] for each in assets if each in moved}, stores, opened.to_lsn)
        raise AirflowSkipException(opened.reason)
    return opened.window_id


def is_merged(wiring: Wiring, window_id: int) -> bool:
    """What the ledger says of a window."""
    return wiring.ledger().read_window(window_id).state is not WindowState.PLANNED


def measured_step(wiring: Wiring, config_path: Path) -> AbstractContextManager[None]:
    """Of a run that goes on with a window."""
    return measured(load_config(config_path, parse_rules=False), wiring.settings.name)


def run_check(wiring: Wiring, config_path: Path, window_id: int) -> None:
    """Raises AirflowFailException, with everything that was found, when a check fails."""
    with explained(), measured_step(wiring, config_path):
        check.check_window(window_id, wiring.ledger(), wiring.quality())


def run_advance(
    wiring: Wiring, config_path: Path, window_id: int, *, assets: Mapping[TableName, Asset], events: Any, stores: Any
) -> None:
    """Move the watermarks, then tell Airflow: one event and one shown watermark per table.

    Done again, as by a task that was cleared, it tells what is still true; of a window that is not the last any more,
    nothing is.
    """
    with explained():
        known = wiring.ledger().read_window(window_id)
        if is_outdated(wiring, known):
            _LOG.info("Window %s was published before, and a later one has been since: nothing is done.", window_id)
            return
        result = advance.advance_window(window_id, wiring.ledger(), wiring.warehouse())
    # A window that was merged before a table was taken out of the configuration still has it.
    told = [table for table in result.tables if table.source in assets]
    for table in told:
        events[assets[table.source]].extra = event_extra(window_id, table)
    if result.is_replay:
        # No watermark moved, and how late the data are is as it was.
        return
    _show_watermarks({table.source: assets[table.source] for table in told}, stores, result.to_lsn)
    if known.state is not WindowState.ADVANCED:
        # What has failed since a window was published is not over because its last task runs again.
        with explained():
            stopped = find_stopped(wiring.settings, wiring.ledger())
        end_well(load_config(config_path, parse_rules=False), wiring.settings.name, result, stopped=stopped is not None)


def is_outdated(wiring: Wiring, opened: OpenedWindow) -> bool:
    """Whether a window was published before, and a watermark that it moved has moved on since."""
    plan = opened.plan
    if opened.state is not WindowState.ADVANCED or is_replay_lane(plan.lane):
        return False
    states = wiring.ledger().read_tables(plan.pipeline)
    found = [states[table.source].watermark for table in plan.tables if table.source in states]
    return any(watermark is not None and watermark > plan.to_lsn for watermark in found)


def end_replay(config_path: Path, pipeline: str, replayed: str) -> None:
    """replayed: the data interval of a backfill that is done. Those of the same cause that failed for other intervals
    stay told of."""
    alerts_of(load_config(config_path, parse_rules=False)).end_part(REPLAY_FAILED, pipeline, replayed)


def run_tell_gaps(wiring: Wiring) -> None:
    """Raises AirflowFailException while a gap stops a table of the pipeline."""
    with explained():
        if error := find_stopped(wiring.settings, wiring.ledger()):
            raise error
        _LOG.info("No table of %s is stopped by a gap.", wiring.settings.name)


def end_well(config: Config, pipeline: str, result: AdvanceResult | None = None, *, stopped: bool = False) -> None:
    """What was said about failed and late runs is over; how late the data are is told.

    stopped: a gap stops a table, so that the run fails after all.
    """
    alerts = alerts_of(config)
    kinds = (RUN_LATE,) if stopped else (RUN_FAILED, RUN_LATE)
    if config.pipeline(pipeline).max_lag is None:
        # Nobody measures it any more.
        kinds = (*kinds, LAG)
    for kind in kinds:
        alerts.end_alerts(kind, pipeline)
    try:
        end_mended(pipeline, wire(config, pipeline).ledger(), alerts)
    except FloodmarkError as error:
        _LOG.warning("Whether a repair of %s is over is not known: %s", pipeline, error)
    measure_run(config, pipeline, result)


def event_extra(window_id: int, table: PublishedTable) -> dict[str, Any]:
    """What an asset event tells its consumers: the window ``(after_lsn, to_lsn]`` and what it did, in rows."""
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


def _show_watermarks(assets: Mapping[TableName, Asset], stores: Any, watermark: Lsn) -> None:
    """For display only: Airflow keeps the last writer's value, the ledger keeps the truth."""
    for asset in assets.values():
        stores[asset].set(WATERMARK_KEY, str(watermark))
