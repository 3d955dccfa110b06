"""``floodmark doctor``: looks at the source of a pipeline and asks ``core.diagnosis`` what to think of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from croniter import croniter  # type: ignore[import-untyped]
from rich.markup import escape
from rich.table import Table

from floodmark.core.diagnosis import Examined, diagnose
from floodmark.core.errors import CdcNotEnabledError, SourcePermissionError
from floodmark.core.finding import Finding, Grade
from floodmark.core.grants import ReadTable, build_grants
from floodmark.core.planning import classify_tables, pinned_instances
from floodmark.core.window import NetSource

if TYPE_CHECKING:
    from floodmark.core.capture_job import PlannedStop
    from floodmark.core.schema import TableName
    from floodmark.wiring import Wiring

_TICKS = 300
_STYLES = {Grade.GOOD: "", Grade.NOTE: "", Grade.RISK: "yellow", Grade.PROBLEM: "red"}


def examine(
    wiring: Wiring, schedule: str | None, heartbeat: TableName | None = None, planned_stop: PlannedStop | None = None
) -> tuple[Finding, ...]:
    """Asks the source only: a doctor is called before there is a ledger, and when the warehouse is down.
    planned_stop: of the capture job, the one that is on."""
    connection = wiring.source_connection()
    facts = wiring.read_facts()
    now_utc = datetime.now(UTC).replace(tzinfo=None)
    snapshot = wiring.source().read_snapshot(wiring.settings.sources, pinned_instances(wiring.settings, {}))
    found = diagnose(
        Examined(
            wiring.settings, snapshot, classify_tables(wiring.settings, snapshot, {}, planned_stop), facts,
            connection.encrypt, connection.trust_server_certificate, longest_interval(schedule, now_utc), now_utc,
            planned_stop,
        )
    )  # fmt: skip
    return found if heartbeat is None else (*found, _examine_heartbeat(wiring, heartbeat))


def _examine_heartbeat(wiring: Wiring, table: TableName) -> Finding:
    from floodmark.sqlserver.jobs import SqlServerJobs  # noqa: PLC0415

    try:
        found = SqlServerJobs(wiring.source_connection()).read_heartbeat(table)
    except CdcNotEnabledError as error:
        return Finding(Grade.PROBLEM, "heartbeat", str(table), error.message, error.hint)
    except SourcePermissionError as error:
        return Finding(Grade.NOTE, "heartbeat", str(table), f"it cannot be seen: {error.message}", error.hint)
    return Finding(Grade.GOOD, "heartbeat", str(table), f"there, with beat {found.beat}.", "")


def longest_interval(schedule: str | None, after: datetime) -> timedelta | None:
    """Between two runs of a cron schedule, among the next few hundred; None for one on demand."""
    if schedule is None:
        return None
    ticks = croniter(schedule, after)
    times: list[datetime] = [ticks.get_next(datetime) for _ in range(_TICKS)]
    return max(later - earlier for earlier, later in pairwise(times))


def write_grants(wiring: Wiring, login: str) -> str:
    """The script for the tables of the pipeline, with the capture instances that the connection's login can see."""
    facts = wiring.read_facts()
    snapshot = wiring.source().read_snapshot(wiring.settings.sources, pinned_instances(wiring.settings, {}))
    tables = [
        ReadTable(
            table.source, sighting.instance.identity.name if sighting.instance else table.capture_instance,
            table.net is NetSource.SERVER,
        )
        for table, sighting in zip(wiring.settings.tables, snapshot.tables, strict=True)
    ]  # fmt: skip
    return build_grants(facts.database, login, tables, facts.roles)


def findings_table(pipeline: str, findings: Sequence[Finding]) -> Table:
    """The worst first."""
    table = Table(title=f"pipeline {pipeline}: its source", title_justify="left")
    for name in ("", "check", "where", "finding", "mend it with"):
        table.add_column(name, overflow="fold")
    for each in sorted(findings, key=lambda finding: -finding.grade):
        cells = (each.grade.name.lower(), each.check, each.subject, each.text, each.mend)
        table.add_row(*map(escape, cells), style=_STYLES[each.grade])
    return table


def findings_json(findings: Sequence[Finding]) -> str:
    return json.dumps([asdict(each) | {"grade": each.grade.name.lower()} for each in findings], indent=2)
