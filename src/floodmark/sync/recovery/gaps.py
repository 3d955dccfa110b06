"""Tables that are left out of windows: by a gap (``on_gap: fail``), or because they cannot be read, planned or merged.

They are reported at the end of each run, after the other tables have been published.
"""

from __future__ import annotations

from floodmark.core.errors import FloodmarkError
from floodmark.core.recovery.gap import REPAIR
from floodmark.core.settings import PipelineSettings
from floodmark.core.source.verdicts import incident
from floodmark.core.window.lane import is_load_lane
from floodmark.sync.alerts import Alerts
from floodmark.sync.ports.ledger import Ledger


def find_stopped(settings: PipelineSettings, ledger: Ledger) -> FloodmarkError | None:
    """Return the error of the gravest verdict, which names all stopped tables; None where no table is stopped."""
    stopped = [each for each in ledger.list_stopped(settings.name) if each.table in settings.sources]
    return incident(settings.name, tuple(stopped))


def resolve_repair_alerts(pipeline: str, ledger: Ledger, alerts: Alerts) -> None:
    """End the alerts about repairs where no load of the pipeline is unfinished.

    Such an alert was raised by a run that had checked before the end of the repair, or remains from a process that died
    between publishing the load and ending the alert.
    """
    if not any(is_load_lane(opened.plan.lane) for opened in ledger.list_unfinished(pipeline)):
        alerts.end_alerts(REPAIR, pipeline)
