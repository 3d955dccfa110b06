"""The findings on a source with change tracking, where no server can be made to show it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from floodmark.core.doctor import DiagnosisInput, Finding, Grade, worst
from floodmark.core.planning import classify_tables
from floodmark.core.settings import Style
from floodmark.sources.change_tracking.doctor import TrackingFacts, diagnose_tracking
from source_snapshots import NOON, ORDERS, instance, settings, snapshot, table_seen

FACTS = TrackingFacts(
    product_version="16.0.4150.1",
    engine_edition=4,
    database="Shop",
    user="reader",
    is_db_owner=False,
    may_view_state=True,
    taken_at_utc=NOON,
    utc_offset_minutes=0,
    retention_minutes=4320,
    cleans_up=True,
    allows_snapshot=1,
    oldest_seconds=3 * 86_400,
)


def examined(
    facts: TrackingFacts = FACTS, style: Style = Style.CURRENT, side: int = 7, **other: Any
) -> tuple[Finding, ...]:
    identity = replace(instance().identity, store_id=side)
    chosen = settings(ORDERS, style=style)
    seen = snapshot(table_seen(feed=replace(instance(), identity=identity, delivers_net=True)))
    validities = classify_tables(chosen, seen, {})
    made = DiagnosisInput(chosen, seen, validities, "yes", False, timedelta(minutes=5), NOON)
    return diagnose_tracking(replace(made, **other), facts)


def test_sound_source_has_nothing_but_good_findings() -> None:
    assert worst(examined()) is Grade.GOOD
    shown = " ".join(f"{each.text} {each.fix}" for each in examined())
    assert "capture" not in shown
    assert "cdc" not in shown.lower()


@pytest.mark.parametrize(
    ("facts", "check", "grade"),
    [
        ({"retention_minutes": 1439}, "retention", Grade.RISK),
        ({"retention_minutes": None}, "retention", Grade.NOTE),
        ({"cleans_up": False, "retention_minutes": 60}, "cleanup", Grade.RISK),
        ({"oldest_seconds": 4 * 86_400 + 1}, "cleanup", Grade.RISK),
        ({"allows_snapshot": 0}, "snapshot isolation", Grade.RISK),
        ({"allows_snapshot": 3}, "snapshot isolation", Grade.RISK),
        ({"may_view_state": False, "oldest_seconds": None}, "permissions", Grade.RISK),
        ({"sees_policies": False}, "security policy", Grade.NOTE),
        ({"utc_offset_minutes": -210}, "time zone", Grade.NOTE),
        ({"taken_at_utc": NOON + timedelta(seconds=61)}, "clock", Grade.RISK),
        ({"truncating": {ORDERS: ("dbo.Refresh",)}}, "truncate", Grade.RISK),
    ],
)
def test_fact_becomes_a_finding_with_its_fix(facts: dict[str, Any], check: str, grade: Grade) -> None:
    findings = examined(replace(FACTS, **facts))
    assert [finding.grade for finding in findings if finding.check == check] == [grade]
    assert worst(findings) is grade
    assert all(finding.fix for finding in findings if finding.grade is not Grade.GOOD)


@pytest.mark.parametrize(
    ("style", "grade"), [(Style.CURRENT, Grade.NOTE), (Style.HISTORY, Grade.NOTE), (Style.LOG, Grade.RISK)]
)
def test_hidden_side_table_adds_rows_to_a_log_alone(style: Style, grade: Grade) -> None:
    [finding] = [each for each in examined(style=style, side=0) if each.check == "side table"]
    assert finding.grade is grade
    assert ("to the log again" in finding.text) == (style is Style.LOG)


@pytest.mark.parametrize("style", [Style.LOG, Style.HISTORY])
def test_table_that_keeps_changes_needs_snapshot_isolation(style: Style) -> None:
    [finding] = [each for each in examined(replace(FACTS, allows_snapshot=0), style) if each.check == "style"]
    assert (finding.grade, finding.subject) == (Grade.PROBLEM, str(ORDERS))
    assert "ALLOW_SNAPSHOT_ISOLATION ON" in finding.fix
    assert worst(examined(FACTS, style)) is Grade.GOOD


@pytest.mark.parametrize(
    ("asked", "days"), [({"interval": timedelta(days=7)}, 21), ({"freshness": timedelta(days=2)}, 6)]
)
def test_rare_runs_and_late_rows_need_a_longer_retention(asked: dict[str, Any], days: int) -> None:
    [finding] = [each for each in examined(**asked) if each.check == "retention"]
    assert finding.grade is Grade.RISK
    assert f"(CHANGE_RETENTION = {days} DAYS)" in finding.fix
