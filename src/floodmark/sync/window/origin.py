"""The check where a snapshot comes from, before anything else is concluded from it.

A replica that is behind shows older columns and instances, and fewer changes, than the run before has recorded.
"""

from __future__ import annotations

from collections.abc import Mapping

from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings
from floodmark.core.source.snapshot import SourceSnapshot, Verdict
from floodmark.core.source.state import TableState
from floodmark.core.source.verdicts import incident
from floodmark.core.window.planning import classify_tables
from floodmark.sync.ports.ledger import Verdicts

_ORIGIN = frozenset({Verdict.REPLICA_BEHIND})
"""The verdicts about the server that answered, and not about the table."""


def require_origin(
    settings: PipelineSettings,
    snapshot: SourceSnapshot,
    states: Mapping[TableName, TableState],
    ledger: Verdicts | None = None,
) -> None:
    """Raise SourceBehindError where a replica answered that lacks what the pipeline has read.

    ledger: where the verdicts are recorded; None for a check that records nothing.
    """
    found = tuple(each for each in classify_tables(settings, snapshot, states) if each.verdict in _ORIGIN)
    if error := incident(settings.name, found):
        if ledger is not None:
            ledger.record_verdicts(settings.name, found)
        raise error
