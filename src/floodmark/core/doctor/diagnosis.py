"""The findings of ``doctor`` on a source, each with the statement, or the step, that fixes it.

These are pure rules over a snapshot, the verdicts on it and ``ServerFacts``. What a login may not see is reported as
unknown, and never assumed to be good. Sources of the rules: SQL Server's documentation of change data capture and its
known issues.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from floodmark.core.doctor.finding import Finding, Grade
from floodmark.core.doctor.hazards import examine_database, examine_table_hazards, examine_taken_names
from floodmark.core.doctor.server_facts import ServerFacts
from floodmark.core.doctor.tables import examine_table
from floodmark.core.settings import PipelineSettings
from floodmark.core.source.capture_status import PlannedStop
from floodmark.core.source.editions import AZURE
from floodmark.core.source.scripts import bracket
from floodmark.core.source.snapshot import SourceSnapshot, Validity

_ONE_DAY_MINUTES = 24 * 60
_RUNS_WITHIN_RETENTION = 3
_SKEW_SECONDS = 60
START_CAPTURE = "EXEC sys.sp_cdc_start_job @job_type = N'capture';"


@dataclass(frozen=True, slots=True)
class DiagnosisInput:
    """All that a diagnosis is made from."""

    settings: PipelineSettings
    snapshot: SourceSnapshot
    validities: tuple[Validity, ...]
    facts: ServerFacts
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


def diagnose(examined: DiagnosisInput) -> tuple[Finding, ...]:
    """Return the findings: the server first, then the tables in the order of the configuration."""
    database = examined.facts.database
    found = [Finding(grade, check, database, text, fix) for grade, check, text, fix in _examine_server(examined)]
    found.extend(_examine_hazards(examined))
    for table, validity, table_snapshot in zip(
        examined.settings.tables, examined.validities, examined.snapshot.tables, strict=True
    ):
        found.extend(examine_table(table, validity, table_snapshot, examined.facts))
        found.extend(examine_table_hazards(table.source, table_snapshot, examined.facts.hazards))
    return tuple(found)


def _examine_hazards(examined: DiagnosisInput) -> Iterator[Finding]:
    facts = examined.facts
    if not examined.snapshot.cdc_enabled:
        return examine_taken_names(facts.hazards, facts.database)
    return examine_database(
        facts.hazards, facts.database, chooses_recovery=facts.engine_edition not in AZURE, sees_users=facts.is_db_owner
    )


_Found = Iterator[tuple[Grade, str, str, str]]


def _examine_server(examined: DiagnosisInput) -> _Found:
    yield from _tls(examined)
    if not examined.snapshot.cdc_enabled:
        yield Grade.PROBLEM, "cdc", "change data capture is not enabled.", "EXEC sys.sp_cdc_enable_db;"
        return
    yield Grade.GOOD, "cdc", f"enabled; SQL Server {examined.facts.product_version}.", ""
    if examined.snapshot.is_replica:
        yield (
            Grade.NOTE,
            "replica",
            "this is a read-only replica: its jobs run on the primary and were not checked.",
            "Run doctor on the primary as well; after a failover it needs jobs of its own: EXEC sys.sp_cdc_add_job"
            " @job_type = N'capture'; EXEC sys.sp_cdc_add_job @job_type = N'cleanup';",
        )
    else:
        yield from _jobs(examined)
        yield from _retention(examined)
    yield from _lob_limit(examined)
    yield from _clock(examined)
    if not examined.facts.may_view_state:
        yield (
            Grade.NOTE,
            "permissions",
            "the login may not see scans and errors of the capture job.",
            f"GRANT VIEW DATABASE STATE TO {bracket(examined.facts.user)};",
        )


def _tls(examined: DiagnosisInput) -> _Found:
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


def _jobs(examined: DiagnosisInput) -> _Found:
    facts, running = examined.facts, examined.snapshot.capture_running
    if not facts.has_agent:
        yield Grade.GOOD, "capture job", "the service runs capture and cleanup without an Agent.", ""
        return
    if facts.agent_running is False:
        yield Grade.PROBLEM, "agent", "SQL Server Agent is not running.", "Start the service SQL Server Agent."
    elif facts.agent_running is None:
        yield (
            Grade.NOTE,
            "agent",
            "the login may not see whether SQL Server Agent is running.",
            f"USE master; GRANT VIEW SERVER STATE TO {bracket(facts.user)};",
        )
    else:
        yield Grade.GOOD, "agent", "SQL Server Agent is running.", ""
    if facts.jobs is not None and not facts.jobs.has_capture:
        yield (
            Grade.PROBLEM,
            "capture job",
            "there is no capture job, so nothing is captured.",
            "EXEC sys.sp_cdc_add_job @job_type = N'capture';",
        )
    elif running is False and examined.planned_stop is not None:
        yield Grade.GOOD, "capture job", f"it is not running, because of {examined.planned_stop}.", ""
    elif facts.jobs is not None and not facts.jobs.is_continuous:
        yield (
            Grade.NOTE,
            "capture job",
            "it scans by a schedule of its own (continuous = 0); the newest entry's age shows whether it works.",
            "Make lag_limit in pipelines.yaml longer than the schedule's interval.",
        )
    elif running is False:
        yield Grade.PROBLEM, "capture job", "it is not running.", START_CAPTURE
    elif running is None:
        yield (
            Grade.NOTE,
            "capture job",
            "the login may not see whether it is running; the age of the log's newest entry shows it.",
            f"USE msdb; GRANT SELECT ON dbo.cdc_jobs TO {bracket(facts.user)};"
            f" GRANT SELECT ON dbo.sysjobactivity TO {bracket(facts.user)};",
        )
    else:
        yield Grade.GOOD, "capture job", "it is running.", ""


def _retention(examined: DiagnosisInput) -> _Found:
    jobs = examined.facts.jobs
    if jobs is None:
        fix = f"USE msdb; GRANT SELECT ON dbo.cdc_jobs TO {bracket(examined.facts.user)};"
        yield Grade.NOTE, "retention", "the login may not see the retention.", fix
        return
    if jobs.retention_minutes is None:
        yield (
            Grade.RISK,
            "retention",
            "there is no cleanup job: the change tables grow without end.",
            "EXEC sys.sp_cdc_add_job @job_type = N'cleanup';",
        )
        return
    interval = examined.interval
    runs_minutes = interval.total_seconds() / 60 * _RUNS_WITHIN_RETENTION if interval else 0
    needed = max(_ONE_DAY_MINUTES, round(runs_minutes))
    kept = str(timedelta(minutes=jobs.retention_minutes)).removesuffix(", 0:00:00")
    if jobs.retention_minutes < needed:
        every = f", and a run starts every {interval}" if interval else ""
        yield (
            Grade.RISK,
            "retention",
            f"changes are kept for {kept}{every}: after few failed runs, changes are lost.",
            f"EXEC sys.sp_cdc_change_job @job_type = N'cleanup', @retention = {max(needed, 4320)};",
        )
    else:
        yield Grade.GOOD, "retention", f"changes are kept for {kept}.", ""


def _lob_limit(examined: DiagnosisInput) -> _Found:
    limit = examined.facts.lob_limit_bytes
    tables = [
        str(table_snapshot.table)
        for table_snapshot in examined.snapshot.tables
        if table_snapshot.instance and any(column.is_lob for column in table_snapshot.instance.table.columns)
    ]
    if limit is None:
        yield Grade.NOTE, "max text repl size", "the login may not see the option.", "Ask the DBA: EXEC sp_configure;"
    elif limit >= 0 and tables:
        yield (
            Grade.RISK,
            "max text repl size",
            f"it is {limit} bytes: a larger value written to {', '.join(tables)} fails with error 7139.",
            "EXEC sp_configure 'max text repl size', -1; RECONFIGURE;",
        )
    else:
        yield Grade.GOOD, "max text repl size", "no limit." if limit < 0 else "no table has large values.", ""


def _clock(examined: DiagnosisInput) -> _Found:
    offset = examined.facts.utc_offset_minutes
    skew = (examined.facts.taken_at_utc - examined.now_utc).total_seconds()
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
            "Run the server's machine in UTC, or use LSNs for a `floodmark replay` of that hour.",
        )
    else:
        yield Grade.GOOD, "time zone", f"the server's clock is {zone} now.", ""


def worst(findings: tuple[Finding, ...]) -> Grade:
    """Return the worst grade, GOOD without findings."""
    return max((finding.grade for finding in findings), default=Grade.GOOD)
