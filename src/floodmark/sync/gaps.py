"""Tables that a gap has stopped (``on_gap: fail``): left out of windows until somebody has them loaded anew, and told
of at the end of each run, when the others have been published."""

from __future__ import annotations

from floodmark.core.errors import FloodmarkError
from floodmark.core.settings import PipelineSettings
from floodmark.core.validity import incident
from floodmark.sync.ports import Ledger


def find_stopped(settings: PipelineSettings, ledger: Ledger) -> FloodmarkError | None:
    """The error that the run is to end with, of the gravest verdict, naming all that are stopped; None: no table is."""
    stopped = [each for each in ledger.list_stopped(settings.name) if each.table in settings.sources]
    return incident(settings.name, tuple(stopped))
