"""The findings on a source that is read from its event stream, where no server can be made to show it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from floodmark.core.doctor import DiagnosisInput, Finding, Grade, worst
from floodmark.core.planning import classify_tables
from floodmark.sources.event_stream.doctor import (
    RemovalRules,
    ServerStream,
    StreamedTable,
    StreamFacts,
    StreamGroup,
    StreamRetention,
    diagnose_stream,
)
from floodmark.sync.filters import parse_filter
from source_snapshots import NOON, ORDERS, instance, settings, snapshot, table_seen

TABLE = instance().identity.object_id
WHOLE = StreamedTable("floods", has_all_columns=True, has_old_values=True)
SERVER = ServerStream(is_enabled=True, groups=(StreamGroup("floods", 2, 1),), tables={TABLE: WHOLE})


def examined(server: ServerStream = SERVER, where: str = "") -> tuple[Finding, ...]:
    found = settings(ORDERS)
    filtered = replace(found.tables[0], where=parse_filter(where) if where else None)
    chosen, seen = replace(found, tables=(filtered,)), snapshot(table_seen(feed=replace(instance(), delivers_net=True)))
    validities = classify_tables(chosen, seen, {})
    made = DiagnosisInput(chosen, seen, validities, "yes", False, timedelta(minutes=5), NOON)
    retention = StreamRetention(RemovalRules(timedelta(days=7)))
    return diagnose_stream(made, StreamFacts("hub", 2, 10, server, retention))


def test_sound_stream_has_nothing_but_good_findings() -> None:
    assert worst(examined()) is Grade.GOOD


@pytest.mark.parametrize(
    ("server", "check", "grade"),
    [
        ({"is_enabled": None}, "streaming", Grade.NOTE),
        ({"is_enabled": False}, "streaming", Grade.PROBLEM),
        ({"groups": ()}, "streaming", Grade.NOTE),
        ({"groups": (StreamGroup("floods", 0, 1),)}, "partition key", Grade.NOTE),
        ({"groups": (StreamGroup("floods", 2, 2),)}, "encoding", Grade.RISK),
        ({"tables": {}}, "stream group", Grade.PROBLEM),
        ({"tables": {TABLE: replace(WHOLE, has_all_columns=False)}}, "stream group", Grade.RISK),
        ({"tables": {TABLE: replace(WHOLE, has_old_values=False)}}, "stream group", Grade.NOTE),
        ({"failed": (23679, NOON - timedelta(hours=23))}, "deliveries", Grade.RISK),
    ],
)
def test_fact_becomes_a_finding_with_its_fix(server: dict[str, Any], check: str, grade: Grade) -> None:
    findings = examined(replace(SERVER, **server))
    assert [each.grade for each in findings if each.check == check and each.grade is not Grade.GOOD] == [grade]
    assert worst(findings) is grade
    assert all(each.fix for each in findings if each.grade is not Grade.GOOD)


@pytest.mark.parametrize("option", ["has_all_columns", "has_old_values"])
def test_filter_needs_events_with_all_values(option: str) -> None:
    assert worst(examined(where="Amount > 1")) is Grade.GOOD
    server = replace(SERVER, tables={TABLE: replace(WHOLE, **{option: False})})
    [problem] = [each for each in examined(server, "Amount > 1") if each.grade is Grade.PROBLEM]
    assert "nothing shows whether a row passes the filter" in problem.text
    assert "sp_add_object_to_event_stream_group" in problem.fix


def test_old_failure_and_groups_of_others_are_no_finding() -> None:
    groups = (*SERVER.groups, StreamGroup("others", 0, 2))
    assert worst(examined(replace(SERVER, groups=groups, failed=(23679, NOON - timedelta(days=2))))) is Grade.GOOD


def test_fix_quotes_names() -> None:
    groups = (StreamGroup("flood's", 2, 1),)
    (finding,) = (each for each in examined(replace(SERVER, groups=groups, tables={})) if each.grade is Grade.PROBLEM)
    assert "@stream_group_name = N'flood''s', @object_name = N'dbo.Orders'" in finding.fix
