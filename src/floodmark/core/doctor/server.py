"""The part of a diagnosis that is the same for each kind of SQL Server: encryption and clock of a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from floodmark.core.doctor.finding import Grade
from floodmark.core.doctor.server_facts import ServerFacts
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings
from floodmark.core.source.capture_status import PlannedStop
from floodmark.core.source.feed import MemberMark
from floodmark.core.source.snapshot import SourceSnapshot, Validity

_SKEW_SECONDS = 60
_ONE_DAY_MINUTES = 24 * 60
_RUNS_WITHIN_RETENTION = 3

ServerFindings = Iterator[tuple[Grade, str, str, str]]
"""Findings about the server or the database: grade, check, text and fix."""


@dataclass(frozen=True, slots=True)
class DiagnosisInput:
    """All that a diagnosis is made from, besides the facts about the server."""

    settings: PipelineSettings
    snapshot: SourceSnapshot
    validities: tuple[Validity, ...]
    encrypt: str
    """Of the connection."""
    trusts_any: bool
    """Whether the connection trusts any certificate."""
    interval: timedelta | None
    """The longest time between two runs; None on demand."""
    now_utc: datetime
    """The time of this machine when the facts were read."""
    planned_stop: PlannedStop | None = None
    """The planned stop of the capture job that is in effect."""
    freshness: timedelta = timedelta(0)
    """How late rows may be in the warehouse."""
    marks: Mapping[TableName, Sequence[MemberMark]] = field(default_factory=dict)
    """Where the members of tables were read to, as far as the ledger shows it."""

    @property
    def needed_minutes(self) -> int:
        """Return the retention that survives a day without runs, and a few failed ones."""
        interval = self.interval or timedelta(0)
        runs_minutes = max(interval, self.freshness).total_seconds() / 60 * _RUNS_WITHIN_RETENTION
        return max(_ONE_DAY_MINUTES, round(runs_minutes))


def examine_tls(examined: DiagnosisInput) -> ServerFindings:
    """Yield the finding on the encryption of the connection."""
    if examined.encrypt == "no":
        yield Grade.RISK, "tls", "the connection is not encrypted.", 'Set "encrypt": "yes" in the connection\'s extra.'
    elif examined.trusts_any:
        yield (
            Grade.RISK,
            "tls",
            "the connection is encrypted, but any certificate is trusted.",
            'Name the authority as "ca_file" and remove "trust_server_certificate" from the connection\'s extra.',
        )
    else:
        yield Grade.GOOD, "tls", f"encrypted ({examined.encrypt}), and the certificate is checked.", ""


def examine_clock(examined: DiagnosisInput, facts: ServerFacts, *, instead: str = "") -> ServerFindings:
    """Yield the findings on the clock of the server. instead: what names a moment where a local time is ambiguous."""
    offset = facts.utc_offset_minutes
    skew = (facts.taken_at_utc - examined.now_utc).total_seconds()
    if abs(skew) > _SKEW_SECONDS:
        yield (
            Grade.RISK,
            "clock",
            f"the server's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this machine's.",
            "Synchronise both by NTP; lag and retention are measured by the server's clock.",
        )
    sign, minutes = ("+" if offset >= 0 else "-"), abs(offset)
    zone = f"UTC{sign}{minutes // 60:02}:{minutes % 60:02}"
    if offset:
        yield (
            Grade.NOTE,
            "time zone",
            f"the server's clock is {zone} now: commit times are local, and one hour a year may repeat.",
            f"Run the server's machine in UTC{instead}.",
        )
    else:
        yield Grade.GOOD, "time zone", f"the server's clock is {zone} now.", ""
