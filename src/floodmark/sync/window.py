"""The parts that the openings of windows share: result, origin, holds, retry, and the verification of reads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from floodmark.core.drift import describe_hold
from floodmark.core.errors import WatermarkConflictError
from floodmark.core.plan import LoadKind, WindowPlan, WindowState
from floodmark.core.planning import check_readers_view, classify_tables
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings
from floodmark.core.snapshot import (
    DatabaseIdentity,
    SourceSnapshot,
    TableState,
    Validity,
    Verdict,
    explain_other_database,
)
from floodmark.core.verdicts import classify_read, incident
from floodmark.sync.ports import Source
from floodmark.sync.records import Hold

if TYPE_CHECKING:
    from floodmark.postgres.ledger.ledger import PostgresLedger

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# The result of opening a window.


@dataclass(frozen=True, slots=True)
class OpenResult:
    """A window to load, or the reason why there is none."""

    window_id: int | None
    """None where there is nothing to load, so that the run ends here."""
    reason: str
    state: WindowState | None = None
    """The state of the window: PLANNED for a new one."""
    to: Position | None = None
    """The end of the window, or the position that the watermarks moved to."""
    left_out: tuple[str, ...] = ()
    """Of a new replay: a sentence for each table that is not replayed, or not completely."""


# --------------------------------------------------------------------------------------------------------------------
# The check where a snapshot comes from, before anything else is concluded from it.
#
# Another database has other columns and instances than those that were recorded, and a replica that is behind has older
# ones. Neither is a gap or a drift of the source.


_ORIGIN = frozenset({Verdict.OTHER_DATABASE, Verdict.REPLICA_BEHIND})
"""The verdicts about the server that answered, and not about the table."""


def require_origin(
    settings: PipelineSettings,
    snapshot: SourceSnapshot,
    states: Mapping[TableName, TableState],
    ledger: PostgresLedger | None = None,
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


def follow_database(pipeline: str, snapshot: SourceSnapshot, ledger: PostgresLedger) -> None:
    """Record which database the pipeline follows, after ``require_origin`` has accepted the snapshot."""
    known, found = ledger.read_database(pipeline), snapshot.identity
    if found is None or found == known:
        return
    ledger.record_database(pipeline, known, found)
    _LOG.info("The pipeline follows database %s.", found)


def is_followed(known: DatabaseIdentity | None, snapshot: SourceSnapshot) -> bool:
    """Return whether nothing shows that another database answered."""
    return known is None or snapshot.identity is None or explain_other_database(known, snapshot.identity) is None


# --------------------------------------------------------------------------------------------------------------------
# The verdicts on tables that a drift of their schema holds.


def held_verdicts(validities: Sequence[Validity], holds: Mapping[TableName, Hold]) -> tuple[Validity, ...]:
    """Return the verdicts, with ``held`` for the held tables."""
    return tuple(
        _held(validity, holds[validity.table]) if validity.table in holds else validity for validity in validities
    )


def _held(validity: Validity, hold: Hold) -> Validity:
    cause, hint = describe_hold(hold.event.explained.difference, hold.event.event_id, hold.held_at)
    return replace(validity, verdict=Verdict.HELD, cause=cause, hint=hint)


# --------------------------------------------------------------------------------------------------------------------
# The retry of an opening when another process was faster: the next attempt finds what the other has written.
#
# The other may be a run that was killed: a statement that it had sent to the warehouse may be committed a moment later,
# after the next run has read the ledger.


_TRIES = 5
_Opened = TypeVar("_Opened")


def retry_on_conflict(open_once: Callable[[], _Opened]) -> _Opened:
    """Open a window, again after a conflict. Raises the WatermarkConflictError of the last attempt.

    open_once: writes nothing where it raises WatermarkConflictError.
    """
    for _ in range(_TRIES - 1):
        try:
            return open_once()
        except WatermarkConflictError as error:
            _LOG.info("Planned again: %s", error)
    return open_once()


# --------------------------------------------------------------------------------------------------------------------
# The second check of the source: all changes that were read, or will be read by a later attempt, must still exist.


def verify_reads(plan: WindowPlan, source: Source, read_whole: Collection[TableName] = ()) -> SourceSnapshot:
    """Raise the errors of ``open_window`` where a capture instance was cleaned up beyond the window, replaced or
    removed, or where the source was restored to a time before the window's end.

    A first load needs the changes after its ``to``: they make it consistent. It also needs the login to see the
    table as it is: a mask or a filter may have come since it was planned.

    read_whole: the tables whose read itself proves that it is complete; what was cleaned up since then does not matter.
    """
    snapshot, validities = classify_reads(plan, source)
    validities = tuple(
        each for each in validities if each.verdict is not Verdict.EXPIRED or each.table not in read_whole
    )
    if error := incident(plan.pipeline, validities):
        raise error
    loaded = {table.source: table for table in plan.tables if table.kind is LoadKind.FIRST_LOAD}
    for table_snapshot in snapshot.tables:
        if table_snapshot.table in loaded:
            check_readers_view(table_snapshot, accepts_filters=loaded[table_snapshot.table].keeps_unread)
    return snapshot


def classify_reads(plan: WindowPlan, source: Source) -> tuple[SourceSnapshot, tuple[Validity, ...]]:
    """Return the current snapshot of the source, and the verdict on each table of the plan."""
    feeds = planned_feeds(plan)
    snapshot = source.read_snapshot(list(feeds), feeds, planned_positions(plan))
    return snapshot, classify_planned(plan, snapshot)


def planned_feeds(plan: WindowPlan) -> dict[TableName, str]:
    """Return the feeds that a plan reads."""
    return {table.source: table.feed.identity.name for table in plan.tables}


def planned_positions(plan: WindowPlan) -> list[Position]:
    """Return the positions whose commit time ``classify_planned`` compares."""
    return [plan.to] if plan.to_at else []


def classify_planned(plan: WindowPlan, snapshot: SourceSnapshot) -> tuple[Validity, ...]:
    """Return the verdict on each table of a plan.

    snapshot: of the feeds of the plan, with its positions.
    """
    table_snapshots = {table_snapshot.table: table_snapshot for table_snapshot in snapshot.tables}
    return tuple(
        classify_read(
            table_snapshots[table.source],
            snapshot,
            table.feed,
            table.interval.after if table.interval else plan.to,
            to=plan.to,
            to_at=plan.to_at,
            pipeline=plan.pipeline,
        )
        for table in plan.tables
    )
