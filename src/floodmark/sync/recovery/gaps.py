"""Tables that are left out of windows: by a gap (``on_gap: fail``), or because they cannot be read, planned or merged.

They are reported at the end of each run, after the other tables have been published: by the error of the run, and by an
alert for each table, which lasts from the first such run until the table is in a window again or has been loaded.
"""

from __future__ import annotations

from floodmark.core.alerts.left_out import TABLE_LEFT_OUT, left_out, left_out_keys
from floodmark.core.errors import FloodmarkError
from floodmark.core.recovery.gap import REPAIR
from floodmark.core.settings import PipelineSettings
from floodmark.core.source.snapshot import Validity
from floodmark.core.source.verdicts import incident
from floodmark.core.window.lane import is_load_lane
from floodmark.core.window.plan import WindowPlan
from floodmark.sync.alerts import Alerts
from floodmark.sync.ports.ledger import Ledger


def find_stopped(settings: PipelineSettings, ledger: Ledger) -> FloodmarkError | None:
    """Return the error of the gravest verdict, which names all stopped tables; None where no table is stopped."""
    return incident(settings.name, _list_stopped(settings, ledger))


def report_left_out(settings: PipelineSettings, ledger: Ledger, alerts: Alerts) -> tuple[str, ...]:
    """Raise the alert about each table that is left out. Return the event keys."""
    found = [left_out(settings.name, validity) for validity in _list_stopped(settings, ledger)]
    for alert in found:
        alerts.raise_alert(alert)
    return tuple(alert.event_key for alert in found)


def update_left_out(settings: PipelineSettings, ledger: Ledger, alerts: Alerts) -> None:
    """Raise the alert about each table that is left out, and end those about the others.

    For the end of a run, when the verdicts are those of the run. A table that is being loaded keeps its alert.
    """
    raised = report_left_out(settings, ledger, alerts)
    loads = [each.plan.tables for each in ledger.list_unfinished(settings.name) if is_load_lane(each.plan.lane)]
    loading = [key for (table,) in loads for key in left_out_keys(settings.name, table.source)]
    alerts.end_alerts(TABLE_LEFT_OUT, settings.name, keep=(*raised, *loading))


def end_left_out(plan: WindowPlan, alerts: Alerts) -> None:
    """End the alerts about a table after a load of the whole table has been published."""
    for table in plan.tables:
        for key in left_out_keys(plan.pipeline, table.source) if not table.where else ():
            alerts.end_alert(key)


def _list_stopped(settings: PipelineSettings, ledger: Ledger) -> tuple[Validity, ...]:
    tables = [each for each in ledger.list_stopped(settings.name) if each.table in settings.sources]
    members = [each for table, each in ledger.list_stopped_members(settings.name) if table in settings.sources]
    return (*tables, *members)


def resolve_repair_alerts(pipeline: str, ledger: Ledger, alerts: Alerts) -> None:
    """End the alerts about repairs where no load of the pipeline is unfinished.

    Such an alert was raised by a run that had checked before the end of the repair, or remains from a process that died
    between publishing the load and ending the alert.
    """
    if not any(is_load_lane(opened.plan.lane) for opened in ledger.list_unfinished(pipeline)):
        alerts.end_alerts(REPAIR, pipeline)
