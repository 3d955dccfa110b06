"""The findings of ``doctor`` on a source that is read by change tracking, and the rights that a login needs there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from floodmark.core.capture import bracket, bracket_table, grant_select
from floodmark.core.doctor import (
    Answers,
    DiagnosisInput,
    Finding,
    Grade,
    ServerFacts,
    about,
    create_user,
    examine_clock,
    examine_computed,
    examine_key,
    examine_tls,
    examine_types,
    examine_verdict,
    examine_view,
    first_of,
    hidden_policies,
    refused_net,
)
from floodmark.core.position import format_duration
from floodmark.core.schema import TableName
from floodmark.core.settings import Style, TableSettings
from floodmark.core.snapshot import TableSnapshot, Validity, Verdict

SNAPSHOT_ON = 1
"""In ``snapshot_isolation_state``: transactions may use SNAPSHOT. 0 is off, 2 and 3 are on the way to off and to on."""


@dataclass(frozen=True, slots=True)
class TrackingFacts(ServerFacts):
    """The facts about a database with change tracking."""

    retention_minutes: int | None
    """None where change tracking is off."""
    cleans_up: bool
    """AUTO_CLEANUP."""
    allows_snapshot: int
    """``snapshot_isolation_state`` of the database."""
    oldest_seconds: int | None
    """The age of the oldest commit that is still recorded; None where there is none, or the login may not see it."""
    sees_policies: bool = True
    """Whether security policies that do not appear in the catalog do not exist."""
    truncating: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    """The modules that truncate a table."""


# --------------------------------------------------------------------------------------------------------------------
# The minimum rights of a login at a source with change tracking, as a script for its DBA.


def build_tracking_grants(database: str, login: str, tables: Iterable[TableName]) -> str:
    """Return the script in T-SQL, which may be run repeatedly."""
    lines = [
        f"-- All rights that Floodmark needs with login {login}. To be run by the DBA.",
        f"USE {bracket(database)};",
        create_user(login),
        *(grant_tracking(table, login) for table in sorted(set(tables))),
        "-- To see commit times: lag, headroom, and whether the database was restored.",
        f"GRANT VIEW DATABASE STATE TO {bracket(login)};",
    ]
    return "\n".join(lines) + "\n"


def grant_tracking(table: TableName, user: str) -> str:
    """Return the statements that let a login read a table and its changes."""
    securable = bracket_table(table)
    return (
        f"{grant_select(table.schema, table.name, user)} GRANT VIEW CHANGE TRACKING ON {securable} TO {bracket(user)};"
    )


# --------------------------------------------------------------------------------------------------------------------
# The findings of ``doctor`` on a source that is read by change tracking, each with the statement that fixes it.
#
# Sources of the rules: SQL Server's documentation of change tracking, of its cleanup and of snapshot isolation
# (docs/reference/change_tracking.md).


_ONE_DAY_SECONDS = 24 * 60 * 60
ENABLE_DATABASE = "ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 7 DAYS, AUTO_CLEANUP = ON);"


def diagnose_tracking(examined: DiagnosisInput, facts: TrackingFacts) -> tuple[Finding, ...]:
    """Return the findings: the server first, then the tables in the order of the configuration."""
    found = about(facts.database, _examine_server(examined, facts))
    for settings, validity, seen in examined.tables:
        found += about(settings.source, _examine_table(settings, validity, seen, examined, facts))
    return tuple(found)


def _examine_server(examined: DiagnosisInput, facts: TrackingFacts) -> Answers:
    yield from examine_tls(examined)
    if not examined.snapshot.cdc_enabled:
        yield Grade.PROBLEM, "change tracking", "change tracking is not enabled.", ENABLE_DATABASE
        return
    yield Grade.GOOD, "change tracking", f"enabled; SQL Server {facts.product_version}.", ""
    yield from _retention(examined, facts)
    yield from _cleanup(facts)
    is_allowed = facts.allows_snapshot == SNAPSHOT_ON
    yield from first_of(
        "snapshot isolation",
        (is_allowed, Grade.GOOD, "it is allowed: the tables of a window are read at one moment.", ""),
        (
            True,
            Grade.RISK,
            "it is not allowed: the tables of a window are read one after the other, and may differ from each other by"
            " what is committed meanwhile, until the next window. Reads take shared locks.",
            _allow_snapshot(facts),
        ),
    )
    yield from first_of(
        "permissions",
        (facts.may_view_state, Grade.GOOD, "the login sees commit times.", ""),
        (
            True,
            Grade.RISK,
            "the login may not see commit times: lag and headroom are unknown, and a restore of the source is only"
            " noticed while its newest version is below the watermark.",
            f"GRANT VIEW DATABASE STATE TO {bracket(facts.user)};",
        ),
    )
    yield from examine_clock(examined, facts)
    if not facts.sees_policies:
        yield hidden_policies()


def _allow_snapshot(facts: TrackingFacts) -> str:
    return (
        f"ALTER DATABASE {bracket(facts.database)} SET ALLOW_SNAPSHOT_ISOLATION ON; row versions take space in tempdb."
    )


def _retention(examined: DiagnosisInput, facts: TrackingFacts) -> Answers:
    if facts.retention_minutes is None:
        yield Grade.NOTE, "retention", "the login may not see the retention.", "Ask the DBA for it."
        return
    kept = str(timedelta(minutes=facts.retention_minutes)).removesuffix(", 0:00:00")
    if not facts.cleans_up or facts.retention_minutes >= examined.needed_minutes:
        yield Grade.GOOD, "retention", f"changes are kept for {kept}.", ""
        return
    days = max(3, -(-examined.needed_minutes // (24 * 60)))
    every = f"; a run starts every {examined.interval}" if examined.interval else ""
    yield (
        Grade.RISK,
        "retention",
        f"changes are kept for {kept}{every}: after few failed runs, or a long first load, changes are lost.",
        f"ALTER DATABASE CURRENT SET CHANGE_TRACKING (CHANGE_RETENTION = {days} DAYS);",
    )


def _cleanup(facts: TrackingFacts) -> Answers:
    oldest, kept = facts.oldest_seconds, facts.retention_minutes
    late = oldest - kept * 60 if oldest is not None and kept is not None else None
    return first_of(
        "cleanup",
        (
            not facts.cleans_up,
            Grade.RISK,
            "AUTO_CLEANUP is off: the changes grow without end, and each read of them takes longer.",
            "ALTER DATABASE CURRENT SET CHANGE_TRACKING (AUTO_CLEANUP = ON);",
        ),
        (late is None, Grade.GOOD, "it is on.", ""),
        (
            (late or 0) > _ONE_DAY_SECONDS,
            Grade.RISK,
            f"it lags: the oldest change should have been cleaned up {format_duration(late or 0)} ago. Reads of changes"
            " get slower.",
            "Check for long transactions, and for errors of cleanup in dbo.MSchange_tracking_history. As db_owner: EXEC"
            " sys.sp_flush_CT_internal_table_on_demand; EXEC sys.sp_flush_commit_table_on_demand;",
        ),
        (True, Grade.GOOD, "it is on, and does not lag.", ""),
    )


def _examine_table(
    settings: TableSettings,
    validity: Validity,
    table_snapshot: TableSnapshot,
    examined: DiagnosisInput,
    facts: TrackingFacts,
) -> Answers:
    instance = table_snapshot.feed
    feed = "its changes" if instance else ""
    yield from examine_verdict(validity, feed, _fix_of_verdict(settings, validity, examined, facts))
    if modules := facts.truncating.get(settings.source):
        text = f"{', '.join(modules)} truncates it, which is no change: the table has to be reloaded each time."
        fix = "Delete the rows by DELETE without a condition instead, or set on_gap: repair for the table."
        yield Grade.RISK, "truncate", text, fix
    if instance is None:
        return
    if not instance.identity.store_id:
        is_log = settings.style is Style.LOG
        adds = ", and adds all rows to the log again" if is_log else ""
        yield (
            Grade.RISK if is_log else Grade.NOTE,
            "side table",
            "the login does not see its side table (sys.internal_tables): as long as nothing has been changed since its"
            f" tracking began, each run reads it as a whole{adds}.",
            f"GRANT VIEW DEFINITION ON {bracket_table(settings.source)} TO {bracket(facts.user)};",
        )
    yield from examine_key(settings, instance)
    if settings.style in (Style.LOG, Style.HISTORY) and facts.allows_snapshot != SNAPSHOT_ON:
        text = (
            f"style: {settings.style.value} needs snapshot isolation, and no load or window takes the table without it."
        )
        yield Grade.PROBLEM, "style", text, _allow_snapshot(facts)
    if refused := refused_net(settings, instance):
        yield Grade.PROBLEM, "key spelling", refused.message, refused.hint
    yield from examine_computed(instance, "are not loaded")
    yield from examine_types(settings, instance)
    yield from examine_view(settings, table_snapshot, facts.user)


def _fix_of_verdict(settings: TableSettings, validity: Validity, examined: DiagnosisInput, facts: TrackingFacts) -> str:
    name = settings.source
    if validity.verdict is Verdict.NO_PERMISSION:
        return grant_tracking(name, facts.user)
    if validity.verdict is Verdict.INSTANCE_MISSING:
        enable = f"ALTER TABLE {bracket_table(name)} ENABLE CHANGE_TRACKING;"
        first = "" if examined.snapshot.cdc_enabled else f"{ENABLE_DATABASE} "
        return f"{first}{enable} {grant_tracking(name, facts.user)} The table needs a primary key."
    return validity.hint
