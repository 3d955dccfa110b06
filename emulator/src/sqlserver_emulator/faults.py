"""Faults on demand: those that are active now. They live until they are cleared or the server stops.

Owns the list. ``control.statement_faults`` does what a client's session meets; the agent and its jobs
ask ``of_capture``.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum


class FaultKind(Enum):
    CAPTURE_FAILURE = "capture failure"
    CAPTURE_DELAY = "capture delay"
    SLOW_SCAN = "slow scan"
    NULL_IN_DELETES = "null in deletes"
    STATEMENT_ERROR = "statement error"
    SLOW_STATEMENT = "slow statement"
    CONNECTION_CUT = "connection cut"
    LOG_FULL = "log full"
    AGENT_STOPPED = "agent stopped"
    LOGIN_ERROR = "login error"
    LOCKED_READS = "locked reads"
    HUB_UNREACHABLE = "hub unreachable"
    STREAM_SESSION_LOST = "stream session lost"
    STREAM_REORDERED = "stream reordered"
    STREAM_MESSAGE_CUT = "stream message cut"


CAPTURE_KINDS = frozenset({FaultKind.CAPTURE_FAILURE, FaultKind.CAPTURE_DELAY, FaultKind.SLOW_SCAN})
STREAM_KINDS = frozenset(
    {
        FaultKind.HUB_UNREACHABLE,
        FaultKind.STREAM_SESSION_LOST,
        FaultKind.STREAM_REORDERED,
        FaultKind.STREAM_MESSAGE_CUT,
    }
)
_SINGLE_KINDS = CAPTURE_KINDS | STREAM_KINDS | {FaultKind.AGENT_STOPPED}
_OUTSIDE_SESSIONS = _SINGLE_KINDS | {FaultKind.LOGIN_ERROR, FaultKind.NULL_IN_DELETES}


@dataclass(frozen=True, slots=True)
class Match:
    """Which statements a fault meets: all that is given has to fit. Names without regard to case."""

    database: str = ""
    login: str = ""
    table: str = ""
    text: str = ""

    def fits(self, statement: str, databases: frozenset[str], login: str) -> bool:
        """``databases``: those the statement is in, in lower case."""
        return (
            (not self.database or self.database.lower() in databases)
            and (not self.login or self.login.lower() == login.lower())
            and (not self.table or table_pattern(self.table).search(statement) is not None)
            and (not self.text or self.text.lower() in statement.lower())
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """``times``: how often it still happens, 0 for ever. ``value``: rows or seconds; ``detail``: what is said.

    ``database_id``: of a fault of capture or of an event stream. ``object_id``: of a table whose readers wait, or
    whose deletes have no value of ``column_id``.
    """

    kind: FaultKind
    match: Match = Match()
    times: int = 0
    value: float = 0.0
    number: int = 0
    state: int = 1
    detail: str = ""
    database_id: int = 0
    object_id: int = 0
    column_id: int = 0
    fault_id: int = 0
    since: datetime = field(default=datetime.min)


@dataclass(frozen=True, slots=True)
class CaptureFaults:
    """How a database's capture job is hindered. ``failure``: what it fails with, or None."""

    delay_seconds: float = 0.0
    scan_seconds: float = 0.0
    failure: str | None = None


class FaultBoard:
    """Any thread may use it. ``statement_faults`` is a tuple that never changes, so that reading takes no lock."""

    def __init__(self, now: Callable[[], datetime] = datetime.now) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._faults: tuple[Fault, ...] = ()
        self._last_id = 0
        self.statement_faults: tuple[Fault, ...] = ()

    @property
    def active(self) -> tuple[Fault, ...]:
        return self._faults

    def add(self, fault: Fault) -> Fault:
        """A fault of capture or of the Agent replaces the one of its kind in its database."""
        with self._lock:
            self._last_id += 1
            made = replace(fault, fault_id=self._last_id, since=self._now())
            kept = self._faults
            if fault.kind in _SINGLE_KINDS:
                kept = tuple(f for f in kept if (f.kind, f.database_id) != (fault.kind, fault.database_id))
            self._put((*kept, made))
            return made

    def clear(self, fault_id: int | None = None) -> tuple[Fault, ...]:
        """Remove one or all; returns what was removed."""
        with self._lock:
            gone = tuple(f for f in self._faults if fault_id is None or f.fault_id == fault_id)
            self._put(tuple(f for f in self._faults if f not in gone))
            return gone

    def has(self, kind: FaultKind) -> bool:
        """Return whether a statement may meet a fault of the kind."""
        return any(fault.kind is kind for fault in self.statement_faults)

    def find(self, kind: FaultKind, statement: str, databases: frozenset[str], login: str) -> Fault | None:
        """The oldest fault of the kind that fits; whether it happens is another question."""
        fits = (f for f in self.statement_faults if f.kind is kind and f.match.fits(statement, databases, login))
        return next(fits, None)

    def locked_reads(self, databases: frozenset[str], login: str) -> Sequence[Fault]:
        """Return the faults that let this login's reads wait for locks, on whatever table."""
        return [
            fault
            for fault in self.statement_faults
            if fault.kind is FaultKind.LOCKED_READS and replace(fault.match, table="").fits("", databases, login)
        ]

    def happens(self, fault: Fault) -> bool:
        """Count it; False when it has happened often enough or was cleared since it was found."""
        with self._lock:
            current = next((f for f in self._faults if f.fault_id == fault.fault_id), None)
            if current is not None and current.times:
                left = replace(current, times=current.times - 1)
                rest = tuple(left if f is current else f for f in self._faults)
                self._put(tuple(f for f in rest if f is not left or left.times))
            return current is not None

    def refused_login(self, login: str, database: str) -> Fault | None:
        """Return the oldest fault that refuses this login to this database, and count it; None where there is none."""
        for fault in self._faults:
            fits = fault.match.fits("", frozenset([database.lower()]), login)
            if fault.kind is FaultKind.LOGIN_ERROR and fits and self.happens(fault):
                return fault
        return None

    def of_capture(self, database_id: int) -> CaptureFaults:
        found = {f.kind: f for f in self._faults if f.kind in CAPTURE_KINDS and f.database_id == database_id}
        delay, slow = found.get(FaultKind.CAPTURE_DELAY), found.get(FaultKind.SLOW_SCAN)
        failure = found.get(FaultKind.CAPTURE_FAILURE)
        return CaptureFaults(
            delay.value if delay else 0.0, slow.value if slow else 0.0, failure.detail if failure else None
        )

    def meets_stream(self, kind: FaultKind, database_id: int) -> bool:
        """Return whether a delivery of the database's event stream meets the fault now, and count it."""
        found = next((f for f in self._faults if (f.kind, f.database_id) == (kind, database_id)), None)
        return found is not None and self.happens(found)

    def _put(self, faults: tuple[Fault, ...]) -> None:
        self._faults = faults
        self.statement_faults = tuple(f for f in faults if f.kind not in _OUTSIDE_SESSIONS)


def table_pattern(table: str) -> re.Pattern[str]:
    """Return a pattern for the table's name, bracketed, quoted or bare, with each part that was given."""
    parts = [part.strip('[]"') for part in table.split(".")]
    quoted = r"\s*\.\s*".join(rf'[\["]?{re.escape(part)}[\]"]?' for part in parts)
    return re.compile(rf"(?<![\w@#$]){quoted}(?![\w@#$])", re.IGNORECASE)
