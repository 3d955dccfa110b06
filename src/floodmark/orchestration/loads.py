"""Loads beside the windows, put together from the configuration: for the command line and the DAG ``cdc_load_…``."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowSkipException

from floodmark.config.loading import load_config
from floodmark.core.errors import ConfigError
from floodmark.core.run_alerts import LOAD_RUN_FAILED
from floodmark.core.schema import TableName
from floodmark.core.window import WindowState
from floodmark.orchestration import tasks
from floodmark.orchestration.alerting import alerts_of
from floodmark.orchestration.drift_watch import drift_watch
from floodmark.orchestration.failure import explained
from floodmark.sync import advance
from floodmark.wiring import wire

if TYPE_CHECKING:
    from floodmark.config.models import Config
    from floodmark.core.window import WindowPlan
    from floodmark.sync.open_load import LoadDesk
    from floodmark.sync.open_window import OpenResult
    from floodmark.wiring import Wiring

_LOG = logging.getLogger(__name__)


def load_desk(config: Config, pipeline: str) -> LoadDesk:
    """Raises ConfigError for a pipeline that is not in the configuration."""
    from floodmark.sync.open_load import LoadDesk  # noqa: PLC0415

    wiring = wire(config, pipeline)
    return LoadDesk(
        wiring.settings,
        wiring.source(),
        wiring.ledger(),
        wiring.warehouse(),
        drift_watch(config, config.pipeline(pipeline).source),
        alerts_of(config),
    )


def open_reload(config: Config, pipeline: str, table: str, where: str | None) -> OpenResult:
    """table: schema.table of the source. where: T-SQL from a person, checked here. Raises from core.errors."""
    from floodmark.sqlserver.condition import parse_condition  # noqa: PLC0415

    try:
        name = TableName.parse(table)
    except ValueError as error:
        raise ConfigError(pipeline, f"{error}.") from None
    condition = parse_condition(where, name) if where else ""
    return load_desk(config, pipeline).open_reload(name, condition)


def run_open_load(config_path: Path, pipeline: str, params: Mapping[str, Any]) -> int:
    """The id of the window to load. Skips the run where no table is to be loaded anew."""
    with explained():
        config = load_config(config_path)
        if params.get("table"):
            opened = open_reload(config, pipeline, params["table"], params.get("where"))
        elif params.get("where"):
            raise ConfigError(pipeline, "a condition was given (where), and no table.", "Choose the table as well.")
        else:
            opened = load_desk(config, pipeline).open_pending()
    if opened.window_id is None:
        raise AirflowSkipException(opened.reason)
    return opened.window_id


def end_load(config: Config, pipeline: str, window_id: int) -> WindowPlan:
    """After the window has been published: whoever was told of a repair, or of runs that failed, hears that it is
    over."""
    from floodmark.sync.repair import end_repair  # noqa: PLC0415

    plan = wire(config, pipeline).ledger().read_window(window_id).plan
    alerts = alerts_of(config)
    end_repair(plan, alerts)
    alerts.end_alerts(LOAD_RUN_FAILED, pipeline)
    return plan


def _is_loading(wiring: Wiring, plan: WindowPlan) -> bool:
    return any(opened.plan.lane == plan.lane for opened in wiring.ledger().list_unfinished(plan.pipeline))


def run_advance_load(
    wiring: Wiring, config_path: Path, window_id: int, *, assets: Mapping[TableName, Asset], events: Any, stores: Any
) -> None:
    """Publish the load, then tell Airflow, and whoever waits for the end of a repair. Done again: ``run_advance``."""
    with explained():
        known = wiring.ledger().read_window(window_id)
        if known.state is WindowState.ADVANCED and _is_loading(wiring, known.plan):
            _LOG.info("Window %s was published before, and its table is being loaded anew since.", window_id)
            return
        if tasks.is_outdated(wiring, known):
            _LOG.info("Window %s was published before, and the watermark has moved on since.", window_id)
            end_load(load_config(config_path, parse_rules=False), wiring.settings.name, window_id)
            return
        result = advance.advance_window(window_id, wiring.ledger(), wiring.warehouse())
        plan = end_load(load_config(config_path, parse_rules=False), wiring.settings.name, window_id)
    for planned, table in zip(plan.tables, result.tables, strict=True):
        if table.source not in assets:  # taken out of the configuration since the load was merged
            continue
        asset = assets[table.source]
        events[asset].extra = tasks.event_extra(window_id, table)
        if plan.moves_watermark(planned):
            stores[asset].set(tasks.WATERMARK_KEY, str(result.to_lsn))
