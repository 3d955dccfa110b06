"""The check where a snapshot comes from, before anything else is concluded from it.

Another database has other columns and instances than those that were recorded, and a replica that is behind has older
ones. Neither is a gap or a drift of the source.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings
from floodmark.core.source.database import DatabaseIdentity, explain_other_database
from floodmark.core.source.snapshot import SourceSnapshot, Verdict
from floodmark.core.source.state import TableState
from floodmark.core.source.verdicts import incident
from floodmark.core.window.planning import classify_tables
from floodmark.sync.ports.ledger import Databases, Verdicts

_LOG = logging.getLogger(__name__)
_ORIGIN = frozenset({Verdict.OTHER_DATABASE, Verdict.REPLICA_BEHIND})
"""The verdicts about the server that answered, and not about the table."""


def require_origin(
    settings: PipelineSettings,
    snapshot: SourceSnapshot,
    states: Mapping[TableName, TableState],
    ledger: Verdicts | None = None,
) -> None:
    """Raise OtherDatabaseError where another database answered than the pipeline follows, and SourceBehindError where
    a replica answered that lacks what the pipeline has read.

    ledger: where the verdicts are recorded; None for a check that records nothing.
    """
    found = tuple(each for each in classify_tables(settings, snapshot, states) if each.verdict in _ORIGIN)
    if error := incident(settings.name, found):
        if ledger is not None:
            ledger.record_verdicts(settings.name, found)
        raise error


def follow_database(pipeline: str, snapshot: SourceSnapshot, ledger: Databases) -> None:
    """Record which database the pipeline follows, after ``require_origin`` has accepted the snapshot."""
    known, found = ledger.read_database(pipeline), snapshot.identity
    if found is None or found == known:
        return
    ledger.record_database(pipeline, known, found)
    _LOG.info("The pipeline follows database %s.", found)


def is_followed(known: DatabaseIdentity | None, snapshot: SourceSnapshot) -> bool:
    """Return whether nothing shows that another database answered."""
    return known is None or snapshot.identity is None or explain_other_database(known, snapshot.identity) is None
