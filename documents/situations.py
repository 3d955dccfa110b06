"""Situations of a table, each with the verdict that the rules and the words of a kind of source give on it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from floodmark.core.drift import describe_hold
from floodmark.core.position import NoPosition, Position
from floodmark.core.recovery import repairing
from floodmark.core.schema import SourceTable, TableName
from floodmark.core.settings import DriftClass
from floodmark.core.shapes import Difference
from floodmark.core.snapshot import (
    DatabaseIdentity,
    Feed,
    FeedIdentity,
    SourceSnapshot,
    SourceWords,
    TableSnapshot,
    TableState,
    Validity,
    Verdict,
)
from floodmark.core.verdicts import classify

EVERY, SERVER, LOG, TRACKING, CAPTURE_JOB = "", "server", "log", "tracking", "capture job"
TABLE = TableName("dbo", "Orders")
_NOON = datetime(2026, 5, 1, 12)


@dataclass(frozen=True)
class Kind:
    """A kind of source, as the page of verdicts shows it."""

    name: str
    words: SourceWords
    feed: str
    """The name of what the changes of the table are read from."""
    position: Callable[[int], Position]
    """Returns a position."""
    traits: Collection[str]
    """The situations that a table of the kind may be in, by the names in ``_SITUATIONS``."""
    list_own: Callable[[], Iterable[Validity]] = tuple
    """Returns the verdicts on the members of a table."""


@dataclass(frozen=True)
class Situation:
    """What differs from a table with changes to read."""

    table: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    ledger: Mapping[str, Any] | None = field(default_factory=dict)
    """None: the ledger does not know the table."""

    def classify(self, kind: Kind) -> Validity:
        """Return the verdict of the rules."""
        known = FeedIdentity(kind.feed, 42, _NOON)
        feed = Feed(
            known, SourceTable(TABLE, (), ("Id",)), kind.position(5), supports_net_changes=False, has_command_id=True
        )
        table = replace(TableSnapshot(TABLE, True, feed, kind.position(5)), **self.table)
        source = SourceSnapshot(
            database="Shop",
            cdc_enabled=True,
            newest=kind.position(100),
            newest_at=_NOON,
            taken_at=_NOON,
            seconds_behind=1.0,
            capture_running=True if CAPTURE_JOB in kind.traits else None,
            tables=(table,),
            is_synchronous=CAPTURE_JOB not in kind.traits,
            words=kind.words,
        )
        state = TableState(TABLE, kind.position(50), known, True, _NOON - timedelta(hours=1))
        ledger = None if self.ledger is None else replace(state, **self.ledger)
        source = replace(source, **self.source)
        return classify(table, source, ledger, pipeline="shop", source_name="shop_db")


_FOUND, _OTHER = DatabaseIdentity("SQL01", "Shop", "GUID-1"), DatabaseIdentity("SQL02", "Shop", "GUID-2")
_SILENT = {"seconds_behind": 1800.0}
_SITUATIONS: tuple[tuple[str, Callable[[Kind], Situation]], ...] = (
    (EVERY, lambda kind: Situation()),
    (EVERY, lambda kind: Situation(ledger=_all_read(kind))),
    (EVERY, lambda kind: Situation(ledger=None)),
    (SERVER, lambda kind: Situation(source={"identity": _OTHER}, ledger={"database": _FOUND})),
    (TRACKING, lambda kind: Situation(source={"cdc_enabled": False})),
    (SERVER, lambda kind: Situation(table={"exists": False, "feed": None})),
    (TRACKING, lambda kind: Situation(table={"feed": None}, ledger={"identity": None})),
    (LOG, lambda kind: Situation(table={"feed": None})),
    (LOG, lambda kind: Situation(table={"permitted": False, "feed": None})),
    (EVERY, lambda kind: Situation(ledger={"identity": FeedIdentity(kind.feed, 77, _NOON)})),
    (
        EVERY,
        lambda kind: Situation(
            ledger={"target_fault": "the target shop.orders does not exist, and was loaded before."}
        ),
    ),
    (LOG, lambda kind: Situation(table={"oldest": kind.position(70)})),
    (LOG, lambda kind: Situation(source={"newest": kind.position(40)})),
    (LOG, lambda kind: Situation(source={"entries": {kind.position(50): _NOON}})),
    (LOG, lambda kind: Situation(table={"oldest": NoPosition.NULL}, source={"newest": NoPosition.NULL})),
    (CAPTURE_JOB, lambda kind: Situation(source={"newest": kind.position(40), "is_replica": True})),
    (CAPTURE_JOB, lambda kind: Situation(table={"oldest": NoPosition.ZERO}, ledger=None)),
    (CAPTURE_JOB, lambda kind: Situation(table={"oldest": NoPosition.NULL}, ledger=None)),
    (
        CAPTURE_JOB,
        lambda kind: Situation(table={"oldest": NoPosition.NULL}, source={"capture_running": False}, ledger=None),
    ),
    (CAPTURE_JOB, lambda kind: Situation(source={"capture_running": False}, ledger=_all_read(kind))),
    (CAPTURE_JOB, lambda kind: Situation(source=_SILENT | {"capture_running": None}, ledger=_all_read(kind))),
    (
        CAPTURE_JOB,
        lambda kind: Situation(source=_SILENT | {"capture_running": None, "is_replica": True}, ledger=_all_read(kind)),
    ),
    (CAPTURE_JOB, lambda kind: Situation(source=_SILENT, ledger=_all_read(kind))),
)
"""The situations of a table, each with the trait of the kinds whose snapshots may show it."""


def _all_read(kind: Kind) -> Mapping[str, Any]:
    return {"watermark": kind.position(100)}


def list_verdicts(kind: Kind) -> Iterator[Validity]:
    """Yield the verdicts on the tables, devices and partitions of a kind, with the sentences of a log."""
    for trait, situation in _SITUATIONS:
        if trait in (EVERY, *kind.traits):
            yield situation(kind).classify(kind)
    yield from kind.list_own()
    yield Validity(TABLE, Verdict.HELD, *describe_hold(_NARROWED, 12, _NOON.replace(tzinfo=UTC)))
    yield repairing(Validity(TABLE, Verdict.REPAIRING, ""), "window 17 reloads it.")


_NARROWED = Difference(DriftClass.TYPE_NARROWED, "City", "nvarchar(50)", "nvarchar(20)")
