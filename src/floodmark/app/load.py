"""Loads of single tables in parallel to the windows: repairs, and reloads that the operator requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from floodmark.app.drift import drift_watch
from floodmark.app.tables import parse_table
from floodmark.core.alerts.runs import LOAD_RUN_FAILED
from floodmark.sync.recovery.gaps import end_left_out
from floodmark.sync.recovery.reload import LoadPlanner
from floodmark.sync.recovery.repair import end_repair
from floodmark.wiring.pipelines import wire

if TYPE_CHECKING:
    from floodmark.app.context import AppContext
    from floodmark.core.window.plan import WindowPlan
    from floodmark.sync.window.opened import OpenResult
    from floodmark.wiring.pipelines import PipelineWiring


def load_planner(app: AppContext, pipeline: str) -> LoadPlanner:
    """Return the load planner of a pipeline. Raises ConfigError where the pipeline is not in the configuration."""
    wiring = wire(app.config, pipeline)
    return LoadPlanner(
        wiring.settings,
        wiring.source.snapshots(),
        wiring.ledger.windows(),
        wiring.warehouse.windows(),
        drift_watch(app, app.config.pipeline(pipeline).source),
        app.alerts(),
    )


def open_reload(app: AppContext, pipeline: str, table: str, where: str | None) -> OpenResult:
    """Open the reload of a table, or return the unfinished one. Raises from ``core.errors``.

    table: schema.table of the source. where: a condition in T-SQL from the operator; it is checked here.
    """
    name = parse_table(pipeline, table)
    condition = wire(app.config, pipeline).source.parse_condition(where, name) if where else ""
    return load_planner(app, pipeline).open_reload(name, condition)


def give_up_load(app: AppContext, pipeline: str, table: str) -> int:
    """Drop the unfinished load of a table, with the alerts about it. Return its window. Raises from ``core.errors``."""
    window_id = load_planner(app, pipeline).give_up(parse_table(pipeline, table))
    app.alerts().end_alerts(LOAD_RUN_FAILED, pipeline)
    return window_id


def end_load(app: AppContext, pipeline: str, window_id: int) -> WindowPlan:
    """End the alerts about the table and about failed loads after its window has been published. Return its plan."""
    plan = wire(app.config, pipeline).ledger.windows().read_window(window_id).plan
    alerts = app.alerts()
    end_repair(plan, alerts)
    end_left_out(plan, alerts)
    alerts.end_alerts(LOAD_RUN_FAILED, pipeline)
    return plan


def is_loading(wiring: PipelineWiring, plan: WindowPlan) -> bool:
    """Return whether a window of the plan's lane is unfinished."""
    unfinished = wiring.ledger.windows().list_unfinished(plan.pipeline)
    return any(opened.plan.lane == plan.lane for opened in unfinished)
