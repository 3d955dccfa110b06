"""Tables that a gap has stopped (``on_gap: fail``): left out of windows until somebody has them loaded anew, and told
of at the end of each run, when the others have been published."""

from __future__ import annotations

from floodmark.core.errors import FloodmarkError
from floodmark.core.recovery.gap import REPAIR
from floodmark.core.settings import PipelineSettings
from floodmark.core.source.verdicts import incident
from floodmark.core.window.lane import is_load_lane
from floodmark.sync.alerts import Alerts
from floodmark.sync.ports.ledger import Ledger


def find_stopped(settings: PipelineSettings, ledger: Ledger) -> FloodmarkError | None:
    """The error that the run is to end with, of the gravest verdict, naming all that are stopped; None: no table is."""
    stopped = [each for each in ledger.list_stopped(settings.name) if each.table in settings.sources]
    return incident(settings.name, tuple(stopped))


def resolve_repair_alerts(pipeline: str, ledger: Ledger, alerts: Alerts) -> None:
    """While no load is unfinished nothing is being repaired: what is still told of a repair was told by a run that had
    looked before its end, or is left from a process that died between publishing it and telling so."""
    if not any(is_load_lane(opened.plan.lane) for opened in ledger.list_unfinished(pipeline)):
        alerts.end_alerts(REPAIR, pipeline)
