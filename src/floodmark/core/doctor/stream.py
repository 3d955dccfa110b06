"""The findings of ``doctor`` on a source that is read from its event stream (docs/reference/event_stream.md)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from floodmark.core.doctor.finding import Finding, Grade
from floodmark.core.doctor.grants import create_user
from floodmark.core.doctor.server import DiagnosisInput
from floodmark.core.doctor.tables import examine_key, examine_types, examine_verdict
from floodmark.core.schema import TableName
from floodmark.core.source.scripts import bracket, grant_select


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """The facts about a stream."""

    topic: str
    partitions: int
    messages: int
    """The number of messages that can be read now."""


def diagnose_stream(examined: DiagnosisInput, facts: StreamFacts) -> tuple[Finding, ...]:
    """Return the findings: the stream first, then the tables in the order of the configuration."""
    found = [_examine_topic(facts)]
    for settings, validity, seen in zip(
        examined.settings.tables, examined.validities, examined.snapshot.tables, strict=True
    ):
        feed = f"events in {facts.topic}" if seen.instance else ""
        found.extend(examine_verdict(settings, validity, feed, validity.hint))
        if seen.instance is None:
            continue
        found.extend(examine_key(settings, seen.instance))
        found.extend(examine_types(settings, seen.instance))
    return tuple(found)


def _examine_topic(facts: StreamFacts) -> Finding:
    if not facts.partitions:
        text = "there is no partition: nothing was streamed yet, or the path is wrong."
        fix = "Check the stream group (sys.sp_help_change_feed_table_groups), and the path of the stream."
        return Finding(Grade.PROBLEM, "stream", facts.topic, text, fix)
    return Finding(Grade.GOOD, "stream", facts.topic, f"{facts.partitions} partitions, {facts.messages} messages.")


def build_stream_grants(database: str, login: str, tables: Iterable[TableName]) -> str:
    """Return the script in T-SQL that grants a login all it needs. It may be run repeatedly."""
    lines = [
        f"-- All rights that Floodmark needs with login {login}. To be run by the DBA.",
        f"USE {bracket(database)};",
        create_user(login),
        *(grant_select(table.schema, table.name, login) for table in sorted(set(tables))),
    ]
    return "\n".join(lines) + "\n"
