"""What ``doctor`` finds in a source before it costs rows: each finding with the statement, or the step, that mends it.

Pure rules over a snapshot, the verdicts on it and ``ServerFacts``. What a login may not see is said to be unknown, and
never taken for good. Sources of the rules: SQL Server's documentation of change data capture and its known issues.
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
from floodmark.core.source.scripts import quote
from floodmark.core.source.snapshot import SourceSnapshot, Validity

_ONE_DAY_MINUTES = 24 * 60
_RUNS_WITHIN_RETENTION = 3
_SKEW_SECONDS = 60
START_CAPTURE = "EXEC sys.sp_cdc_start_job @job_type = N'capture';"


@dataclass(frozen=True, slots=True)
class Examined:
    """encrypt and trusts_any: of the connection. interval: the longest between two runs, None on demand. now_utc: of
    this machine, when the facts were read. planned_stop: of the capture job, the one that is on."""

    settings: PipelineSettings
    snapshot: SourceSnapshot
    validities: tuple[Validity, ...]
    facts: ServerFacts
    encrypt: str
    trusts_any: bool
    interval: timedelta | None
    now_utc: datetime
    planned_stop: PlannedStop | None = None


def diagnose(examined: Examined) -> tuple[Finding, ...]:
    """Server first, then the tables in the order of the configuration."""
    database = examined.facts.database
    found = [Finding(grade, check, database, text, fix) for grade, check, text, fix in _examine_server(examined)]
    found.extend(_examine_hazards(examined))
    for table, validity, table_snapshot in zip(
        examined.settings.tables, examined.validities, examined.snapshot.tables, strict=True
    ):
        found.extend(examine_table(table, validity, table_snapshot, examined.facts))
        found.extend(examine_table_hazards(table.source, table_snapshot, examined.facts.hazards))
    return tuple(found)


def _examine_hazards(examined: Examined) -> Iterator[Finding]:
    facts = examined.facts
    if not examined.snapshot.cdc_enabled:
        return examine_taken_names(facts.hazards, facts.database)
    return examine_database(
        facts.hazards, facts.database, chooses_recovery=facts.engine_edition not in AZURE, sees_users=facts.is_db_owner
    )


_Found = Iterator[tuple[Grade, str, str, str]]


def _examine_server(examined: Examined) -> _Found:
    yield from _tls(examined)
    if not examined.snapshot.cdc_enabled:
        yield Grade.PROBLEM, "cdc", "change data capture is not enabled.", "EXEC sys.sp_cdc_enable_db;"
        return
    yield Grade.GOOD, "cdc", f"enabled; SQL Server {examined.facts.product_version}.", ""
    if examined.snapshot.is_replica:
        yield (
            Grade.NOTE, "replica", "this is a copy that can only be read: its jobs are the primary's, and not seen.",
            "Let doctor look at the primary as well; after a failover it needs jobs of its own: EXEC sys.sp_cdc_add_job"
            " @job_type = N'capture'; EXEC sys.sp_cdc_add_job @job_type = N'cleanup';",
        )  # fmt: skip
    else:
        yield from _jobs(examined)
        yield from _retention(examined)
    yield from _lob_limit(examined)
    yield from _clock(examined)
    if not examined.facts.may_view_state:
        yield (
            Grade.NOTE, "permissions", "the login may not see scans and errors of the capture job.",
            f"GRANT VIEW DATABASE STATE TO {quote(examined.facts.user)};",
        )  # fmt: skip


def _tls(examined: Examined) -> _Found:
    if examined.encrypt == "no":
        yield Grade.RISK, "tls", "the connection is not encrypted.", 'Set "encrypt": "yes" in the connection\'s extra.'
    elif examined.trusts_any:
        yield (
            Grade.RISK, "tls", "the connection is encrypted, but any certificate is trusted.",
            'Name the authority as "ca_file" and remove "trust_server_certificate" from the connection\'s extra.',
        )  # fmt: skip
    else:
        yield Grade.GOOD, "tls", f"encrypted ({examined.encrypt}), and the certificate is checked.", ""


def _jobs(examined: Examined) -> _Found:
    facts, running = examined.facts, examined.snapshot.capture_running
    if not facts.has_agent:
        yield Grade.GOOD, "capture job", "the service runs capture and cleanup by itself; there is no Agent.", ""
        return
    if facts.agent_running is False:
        yield Grade.PROBLEM, "agent", "SQL Server Agent does not run.", "Start the service SQL Server Agent."
    elif facts.agent_running is None:
        yield (
            Grade.NOTE, "agent", "whether SQL Server Agent runs cannot be seen.",
            f"USE master; GRANT VIEW SERVER STATE TO {quote(facts.user)};",
        )  # fmt: skip
    else:
        yield Grade.GOOD, "agent", "SQL Server Agent runs.", ""
    if facts.jobs is not None and not facts.jobs.has_capture:
        yield (
            Grade.PROBLEM, "capture job", "there is none, so nothing is captured.",
            "EXEC sys.sp_cdc_add_job @job_type = N'capture';",
        )  # fmt: skip
    elif running is False and examined.planned_stop is not None:
        yield Grade.GOOD, "capture job", f"it does not run for {examined.planned_stop}.", ""
    elif facts.jobs is not None and not facts.jobs.is_continuous:
        yield (
            Grade.NOTE, "capture job",
            "it scans by a schedule of its own (continuous = 0); the newest entry's age tells whether it works.",
            "Make lag_limit in pipelines.yaml longer than the schedule's interval.",
        )  # fmt: skip
    elif running is False:
        yield Grade.PROBLEM, "capture job", "it does not run.", START_CAPTURE
    elif running is None:
        yield (
            Grade.NOTE, "capture job", "whether it runs cannot be seen; the age of the log's newest entry tells.",
            f"USE msdb; GRANT SELECT ON dbo.cdc_jobs TO {quote(facts.user)};"
            f" GRANT SELECT ON dbo.sysjobactivity TO {quote(facts.user)};",
        )  # fmt: skip
    else:
        yield Grade.GOOD, "capture job", "it runs.", ""


def _retention(examined: Examined) -> _Found:
    jobs = examined.facts.jobs
    if jobs is None:
        fix = f"USE msdb; GRANT SELECT ON dbo.cdc_jobs TO {quote(examined.facts.user)};"
        yield Grade.NOTE, "retention", "the login may not see it.", fix
        return
    if jobs.retention_minutes is None:
        yield (
            Grade.RISK, "retention", "there is no cleanup job: the change tables grow without end.",
            "EXEC sys.sp_cdc_add_job @job_type = N'cleanup';",
        )  # fmt: skip
        return
    interval = examined.interval
    runs_minutes = interval.total_seconds() / 60 * _RUNS_WITHIN_RETENTION if interval else 0
    needed = max(_ONE_DAY_MINUTES, round(runs_minutes))
    kept = str(timedelta(minutes=jobs.retention_minutes)).removesuffix(", 0:00:00")
    if jobs.retention_minutes < needed:
        every = f", and a run comes every {interval}" if interval else ""
        yield (
            Grade.RISK, "retention", f"changes are kept for {kept}{every}: few failed runs lose some.",
            f"EXEC sys.sp_cdc_change_job @job_type = N'cleanup', @retention = {max(needed, 4320)};",
        )  # fmt: skip
    else:
        yield Grade.GOOD, "retention", f"changes are kept for {kept}.", ""


def _lob_limit(examined: Examined) -> _Found:
    limit = examined.facts.lob_limit_bytes
    tables = [
        str(table_snapshot.table) for table_snapshot in examined.snapshot.tables
        if table_snapshot.instance and any(column.is_lob for column in table_snapshot.instance.table.columns)
    ]  # fmt: skip
    if limit is None:
        yield Grade.NOTE, "max text repl size", "the login may not see it.", "Ask the DBA: EXEC sp_configure;"
    elif limit >= 0 and tables:
        yield (
            Grade.RISK, "max text repl size",
            f"it is {limit} bytes: whoever writes a larger value to {', '.join(tables)} gets error 7139.",
            "EXEC sp_configure 'max text repl size', -1; RECONFIGURE;",
        )  # fmt: skip
    else:
        yield Grade.GOOD, "max text repl size", "no limit." if limit < 0 else "no table has large values.", ""


def _clock(examined: Examined) -> _Found:
    offset = examined.facts.utc_offset_minutes
    skew = (examined.facts.taken_at_utc - examined.now_utc).total_seconds()
    if abs(skew) > _SKEW_SECONDS:
        yield (
            Grade.RISK, "clock",
            f"the server's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} ours.",
            "Synchronise both by NTP; lag and retention are measured by the server's.",
        )  # fmt: skip
    sign, minutes = ("+" if offset >= 0 else "-"), abs(offset)
    zone = f"UTC{sign}{minutes // 60:02}:{minutes % 60:02}"
    if offset:
        yield (
            Grade.NOTE, "time zone",
            f"the server's clock is {zone} now: commit times are local, and one hour a year may repeat.",
            "Let the server's machine run in UTC; or give `floodmark replay` LSNs for what happened in that hour.",
        )  # fmt: skip
    else:
        yield Grade.GOOD, "time zone", f"the server's clock is {zone} now.", ""


def worst(findings: tuple[Finding, ...]) -> Grade:
    return max((finding.grade for finding in findings), default=Grade.GOOD)
