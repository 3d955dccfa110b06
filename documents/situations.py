"""Situations of a table, each with the verdict that the rules and the words of a kind of source give on it."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from compact_tracking import AnchorError, DamagedFileError
from floodmark.core.drift.proposals import describe_hold
from floodmark.core.drift.shapes import Difference
from floodmark.core.position import Lsn, LsnAbsence, Position, Version
from floodmark.core.recovery import repairing
from floodmark.core.schema import SourceTable, TableName
from floodmark.core.settings import DriftClass
from floodmark.core.snapshot import (
    CDC_WORDS,
    CaptureInstance,
    DatabaseIdentity,
    InstanceIdentity,
    SourceSnapshot,
    SourceWords,
    TableSnapshot,
    TableState,
    Validity,
    Verdict,
)
from floodmark.core.verdicts import classify
from floodmark.sources.change_tracking.source import TRACKING_WORDS
from floodmark.sources.compact.reader import BY_CLASS, OtherKeyError, ReservedColumnError, explain_fault
from floodmark.sources.compact.source import COMPACT_WORDS
from floodmark.sources.compact.tables import ValueRefusedError
from floodmark.sources.event_stream.epochs import Epoch, PartitionMark
from floodmark.sources.event_stream.options import StreamOptions
from floodmark.sources.event_stream.source import NOT_IN_SIGHT, STREAM_WORDS, find_faults, missed_fault
from floodmark.sources.event_stream.transport import PartitionEnds

_TABLE = TableName("dbo", "Orders")
_NOON = datetime(2026, 5, 1, 12)


@dataclass(frozen=True)
class Kind:
    """A kind of source."""

    name: str
    words: SourceWords
    feed: str
    """The name of what the changes of the table are read from."""
    position: Callable[[int], Position]
    """Returns a position."""


CDC = Kind("cdc", CDC_WORDS, "dbo_Orders", lambda number: Lsn(bytes.fromhex(f"0000002D{number:08X}0003")))
TRACKING = Kind("change_tracking", TRACKING_WORDS, "dbo.Orders@5", Version.of)
COMPACT = Kind("compact", COMPACT_WORDS, "Orders", Version.of)
STREAM = Kind("event_stream", STREAM_WORDS, "dbo.Orders", Version.of)
KINDS = (CDC, TRACKING, COMPACT, STREAM)


@dataclass(frozen=True)
class Situation:
    """What differs from a table with changes to read."""

    table: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    ledger: Mapping[str, Any] | None = field(default_factory=dict)
    """None: the ledger does not know the table."""

    def classify(self, kind: Kind) -> Validity:
        """Return the verdict of the rules."""
        known = InstanceIdentity(kind.feed, 42, _NOON)
        feed = CaptureInstance(
            known, SourceTable(_TABLE, (), ("Id",)), kind.position(5), supports_net_changes=False, has_command_id=True
        )
        table = replace(TableSnapshot(_TABLE, True, feed, kind.position(5)), **self.table)
        source = SourceSnapshot(
            database="Shop",
            cdc_enabled=True,
            max_lsn=kind.position(100),
            max_lsn_at=_NOON,
            taken_at=_NOON,
            seconds_behind=1.0,
            capture_running=True if kind is CDC else None,
            tables=(table,),
            is_synchronous=kind is not CDC,
            words=kind.words,
        )
        state = TableState(_TABLE, kind.position(50), known, True, _NOON - timedelta(hours=1))
        ledger = None if self.ledger is None else replace(state, **self.ledger)
        source = replace(source, **self.source)
        return classify(table, source, ledger, pipeline="shop", source_name="shop_db")


_FOUND, _OTHER = DatabaseIdentity("SQL01", "Shop", "GUID-1"), DatabaseIdentity("SQL02", "Shop", "GUID-2")
_SILENT = {"seconds_behind": 1800.0}
_WITH_SERVER = (CDC, TRACKING, STREAM)
_WITH_LOG = (CDC, TRACKING)
_SITUATIONS: tuple[tuple[tuple[Kind, ...], Callable[[Kind], Situation]], ...] = (
    (KINDS, lambda kind: Situation()),
    (KINDS, lambda kind: Situation(ledger=_all_read(kind))),
    (KINDS, lambda kind: Situation(ledger=None)),
    (_WITH_SERVER, lambda kind: Situation(source={"identity": _OTHER}, ledger={"database": _FOUND})),
    ((CDC, TRACKING, COMPACT), lambda kind: Situation(source={"cdc_enabled": False})),
    (_WITH_SERVER, lambda kind: Situation(table={"exists": False, "instance": None})),
    ((CDC, TRACKING, COMPACT), lambda kind: Situation(table={"instance": None}, ledger={"identity": None})),
    (_WITH_LOG, lambda kind: Situation(table={"instance": None})),
    (_WITH_LOG, lambda kind: Situation(table={"permitted": False, "instance": None})),
    (KINDS, lambda kind: Situation(ledger={"identity": InstanceIdentity(kind.feed, 77, _NOON)})),
    (
        KINDS,
        lambda kind: Situation(
            ledger={"target_fault": "the target shop.orders does not exist, and was loaded before."}
        ),
    ),
    (_WITH_LOG, lambda kind: Situation(table={"min_lsn": kind.position(70)})),
    (_WITH_LOG, lambda kind: Situation(source={"max_lsn": kind.position(40)})),
    (_WITH_LOG, lambda kind: Situation(source={"entries": {kind.position(50): _NOON}})),
    (_WITH_LOG, lambda kind: Situation(table={"min_lsn": LsnAbsence.NULL}, source={"max_lsn": LsnAbsence.NULL})),
    ((CDC,), lambda kind: Situation(source={"max_lsn": kind.position(40), "is_replica": True})),
    ((CDC,), lambda kind: Situation(table={"min_lsn": LsnAbsence.ZERO}, ledger=None)),
    ((CDC,), lambda kind: Situation(table={"min_lsn": LsnAbsence.NULL}, ledger=None)),
    (
        (CDC,),
        lambda kind: Situation(table={"min_lsn": LsnAbsence.NULL}, source={"capture_running": False}, ledger=None),
    ),
    ((CDC,), lambda kind: Situation(source={"capture_running": False}, ledger=_all_read(kind))),
    ((CDC,), lambda kind: Situation(source=_SILENT | {"capture_running": None}, ledger=_all_read(kind))),
    (
        (CDC,),
        lambda kind: Situation(source=_SILENT | {"capture_running": None, "is_replica": True}, ledger=_all_read(kind)),
    ),
    ((CDC,), lambda kind: Situation(source=_SILENT, ledger=_all_read(kind))),
)
"""The situations that a table of some kinds may be in, as the snapshots of these kinds show them."""


def _all_read(kind: Kind) -> Mapping[str, Any]:
    return {"watermark": kind.position(100)}


def list_verdicts(kind: Kind) -> Iterator[Validity]:
    """Yield the verdicts on the tables, devices and partitions of a kind, with the sentences of a log."""
    for kinds, situation in _SITUATIONS:
        if kind in kinds:
            yield situation(kind).classify(kind)
    if kind is COMPACT:
        yield from map(_of_device, _file_errors())
    if kind is STREAM:
        yield from _of_partitions()
    yield Validity(_TABLE, Verdict.HELD, *describe_hold(_NARROWED, 12, _NOON.replace(tzinfo=UTC)))
    yield repairing(Validity(_TABLE, Verdict.REPAIRING, ""), "window 17 reloads it.")


_NARROWED = Difference(DriftClass.TYPE_NARROWED, "City", "nvarchar(50)", "nvarchar(20)")


def _file_errors() -> Iterator[Exception]:
    """Yield the errors that a device's file may be met with. The text of each is the description of its class."""
    named = [
        kind
        for kind, _, _ in BY_CLASS
        if issubclass(kind, (AnchorError, DamagedFileError, OtherKeyError, ReservedColumnError))
    ]
    for each in (*named, ValueRefusedError):
        yield each((inspect.getdoc(each) or "").partition("\n")[0].rstrip("."))
    states = ("SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_CORRUPT", "SQLITE_INTERRUPT", "SQLITE_ERROR")
    yield from map(_sqlite_error, states)
    yield ValueError()
    yield PermissionError("permission denied")


def _sqlite_error(name: str) -> sqlite3.Error:
    error = sqlite3.OperationalError(name)
    error.sqlite_errorname = name
    return error


def _of_device(error: Exception) -> Validity:
    fault = explain_fault(error, Path("DEVICE.sqlite"), None)
    return Validity(_TABLE, fault.verdict, fault.cause, fault.hint)


def _of_partitions() -> Iterator[Validity]:
    mark = PartitionMark(500)
    lost = PartitionMark(500, lost="an event of the table may be lost: a segment did not arrive")
    replaced = PartitionMark(500, replaced="the stream was set up again")
    renamed = PartitionMark(500, database="Orders")
    for known, ends in (
        (mark, {0: PartitionEnds(700, 900)}),
        (lost, {0: PartitionEnds(100, 900)}),
        (replaced, {0: PartitionEnds(100, 900)}),
        (renamed, {0: PartitionEnds(100, 900)}),
        (mark, {0: PartitionEnds(0, 20)}),
        (mark, {}),
    ):
        for fault in find_faults({0: known}, ends, "Sales"):
            yield Situation(table={"fault": fault}).classify(STREAM)
    began_at = datetime(2026, 1, 1, tzinfo=UTC)
    missed = missed_fault(Epoch("", bytes(10), began_at, began_at))
    yield Situation(table={"fault": missed}).classify(STREAM)
    partly = StreamOptions(has_all_columns=False, has_old_values=True, group="floodmark", keeps_order=False)
    for each in (NOT_IN_SIGHT, partly.fault):
        if each is not None:
            yield Validity(_TABLE, each.verdict, each.cause, each.hint)
