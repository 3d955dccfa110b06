"""The doctor's conclusions from given facts, where no server can be made to show them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from floodmark.core.capture import PlannedStop
from floodmark.core.doctor import DiagnosisInput, Finding, Grade, worst
from floodmark.core.planning import classify_tables
from floodmark.core.position import Lsn, NoPosition
from floodmark.core.schema import MAX_LENGTH, SourceColumn
from floodmark.core.snapshot import WiderInstance
from floodmark.sources.cdc.doctor import CdcFacts, Jobs, ReadTable, build_grants, diagnose
from lsns import lsn
from source_snapshots import NOON, ORDERS, instance, settings, snapshot, table_seen

FACTS = CdcFacts(
    product_version="16.0.4150.1",
    engine_edition=3,
    database="Shop",
    user="reader",
    is_db_owner=False,
    collation="Latin1_General_CI_AS",
    lob_limit_bytes=-1,
    agent_running=True,
    may_view_state=True,
    taken_at_utc=NOON,
    utc_offset_minutes=0,
    jobs=Jobs(True, 4320),
)


def examined(facts: CdcFacts = FACTS, seen: Any = None, **other: Any) -> tuple[Finding, ...]:
    chosen = settings(ORDERS)
    seen = seen or snapshot(table_seen())
    made = DiagnosisInput(chosen, seen, classify_tables(chosen, seen, {}), "yes", False, timedelta(minutes=5), NOON)
    return diagnose(replace(made, **other), facts)


def grades(findings: tuple[Finding, ...], check: str) -> list[Grade]:
    return [finding.grade for finding in findings if finding.check == check]


def with_columns(*columns: SourceColumn) -> Any:
    found = instance()
    return snapshot(table_seen(feed=replace(found, table=replace(found.table, columns=columns))))


def test_instance_with_fewer_columns_than_an_older_one_is_a_risk_unless_it_was_chosen() -> None:
    seen = snapshot(table_seen(wider=WiderInstance("ours", ("B", "C"))))
    (found,) = [finding for finding in examined(seen=seen) if finding.check == "captured columns"]
    assert found.grade is Grade.RISK
    assert found.text.endswith("lacks columns that the older ours has: B, C.")
    assert "set capture_instance: ours" in found.fix
    chosen = settings(ORDERS, capture_instance="dbo_Orders")
    made = DiagnosisInput(chosen, seen, classify_tables(chosen, seen, {}), "yes", False, timedelta(minutes=5), NOON)
    assert grades(diagnose(made, FACTS), "captured columns") == []


STOP = PlannedStop(datetime(2026, 5, 4, 8, tzinfo=UTC), datetime(2026, 5, 4, 18, tzinfo=UTC))


@pytest.mark.parametrize(("stop", "grade"), [(STOP, Grade.GOOD), (None, Grade.PROBLEM)])
def test_capture_job_that_is_stopped_is_a_problem_only_where_nobody_planned_it(
    stop: PlannedStop | None, grade: Grade
) -> None:
    found = examined(seen=replace(snapshot(table_seen()), capture_running=False), planned_stop=stop)
    assert grades(found, "capture job") == [grade]


def test_sound_source_has_nothing_but_good_findings() -> None:
    assert worst(examined()) is Grade.GOOD
    said = [finding.text for finding in examined() if finding.check in {"instance", "retention"}]
    assert said == ["changes are kept for 3 days.", "dbo_Orders: can be read."]


@pytest.mark.parametrize(
    ("facts", "check", "grade"),
    [
        ({"agent_running": False}, "agent", Grade.PROBLEM),
        ({"agent_running": None}, "agent", Grade.NOTE),
        ({"jobs": Jobs(False, 4320)}, "capture job", Grade.PROBLEM),
        ({"jobs": Jobs(True, 4320, is_continuous=False)}, "capture job", Grade.NOTE),
        ({"jobs": Jobs(True, None)}, "retention", Grade.RISK),
        ({"jobs": Jobs(True, 1439)}, "retention", Grade.RISK),
        ({"jobs": None}, "retention", Grade.NOTE),
        ({"lob_limit_bytes": None}, "max text repl size", Grade.NOTE),
        ({"may_view_state": False}, "permissions", Grade.NOTE),
        ({"utc_offset_minutes": -210}, "time zone", Grade.NOTE),
        ({"taken_at_utc": NOON + timedelta(seconds=61)}, "clock", Grade.RISK),
        ({"other_collations": {ORDERS: ("Code (Greek_CI_AS)",)}}, "collation", Grade.RISK),
    ],
)
def test_fact_becomes_a_finding_that_says_what_mends_it(facts: dict[str, Any], check: str, grade: Grade) -> None:
    findings = examined(replace(FACTS, **facts))
    assert grades(findings, check) == [grade]
    assert worst(findings) is grade
    assert all(finding.fix for finding in findings if finding.grade is not Grade.GOOD)


@pytest.mark.parametrize(
    ("low", "grade", "fix"),
    [(lsn(5), Grade.GOOD, ""), (NoPosition.ZERO, Grade.NOTE, "ALTER ROLE [ga]]te] ADD MEMBER [reader];")],
)
def test_gating_role_is_asked_for_where_the_login_is_not_known_to_be_in_it(
    low: Lsn | NoPosition, grade: Grade, fix: str
) -> None:
    findings = examined(replace(FACTS, roles={"dbo_Orders": "ga]te"}), snapshot(table_seen(oldest=low)))
    gated = [each for each in findings if "gated by role ga]te" in each.text]
    assert [(each.grade, each.fix) for each in gated] == [(grade, fix)]


@pytest.mark.parametrize(
    ("limit", "type_name", "grade"),
    [(65536, "nvarchar", Grade.RISK), (65536, "int", Grade.GOOD), (-1, "nvarchar", Grade.GOOD)],
)
def test_lob_limit_matters_to_tables_with_large_values(limit: int, type_name: str, grade: Grade) -> None:
    length = MAX_LENGTH if type_name == "nvarchar" else 0
    seen = with_columns(SourceColumn("Id", "int", 1), SourceColumn("Note", type_name, 2, length))
    assert grades(examined(replace(FACTS, lob_limit_bytes=limit), seen), "max text repl size") == [grade]


def test_of_a_replica_nothing_is_said_about_jobs() -> None:
    facts = replace(FACTS, agent_running=False, jobs=Jobs(False, None))
    findings = examined(facts, replace(snapshot(table_seen()), is_replica=True, capture_running=None))
    assert grades(findings, "replica") == [Grade.NOTE]
    assert [grades(findings, check) for check in ("agent", "capture job", "retention")] == [[], [], []]


def test_change_table_without_command_ids_is_a_risk() -> None:
    seen = snapshot(table_seen(feed=instance(has_command_id=False)))
    assert grades(examined(seen=seen), "command id") == [Grade.RISK]


def test_database_without_change_data_capture_is_one_problem_at_the_server() -> None:
    seen = snapshot(table_seen(feed=None), cdc_enabled=False, newest=NoPosition.NULL)
    found = examined(seen=seen)
    assert [each.fix for each in found if each.check == "cdc"] == ["EXEC sys.sp_cdc_enable_db;"]


def test_azure_sql_database_is_not_asked_for_an_agent() -> None:
    findings = examined(replace(FACTS, engine_edition=5, agent_running=None))
    assert (grades(findings, "agent"), grades(findings, "capture job")) == ([], [Grade.GOOD])


@pytest.mark.parametrize(
    ("encrypt", "trusts_any", "grade"), [("yes", False, 0), ("strict", False, 0), ("yes", True, 2), ("no", False, 2)]
)
def test_tls_that_anybody_could_break_is_a_risk(encrypt: str, trusts_any: bool, grade: int) -> None:
    assert grades(examined(encrypt=encrypt, trusts_any=trusts_any), "tls") == [Grade(grade)]


def test_rare_runs_need_a_longer_retention() -> None:
    findings = examined(interval=timedelta(days=2))
    (found,) = [each for each in findings if each.check == "retention"]
    assert (found.grade, "@retention = 8640" in found.fix) == (Grade.RISK, True)


def test_grants_quote_names_and_name_the_gating_role() -> None:
    script = build_grants("Shop", "a]b'c", [ReadTable(ORDERS, "in]st", True)], {"in]st": "gate"})
    assert "CREATE USER [a]]b'c] FOR LOGIN [a]]b'c];" in script
    assert "DATABASE_PRINCIPAL_ID(N'a]b''c')" in script
    assert "GRANT SELECT ON [cdc].[in]]st_CT] TO [a]]b'c];" in script
    assert "GRANT SELECT ON [cdc].[fn_cdc_get_net_changes_in]]st] TO [a]]b'c];" in script
    assert "ALTER ROLE [gate] ADD MEMBER [a]]b'c];" in script


def test_grants_for_an_instance_that_cannot_be_seen_say_that_its_name_is_a_guess() -> None:
    script = build_grants("Shop", "reader", [ReadTable(ORDERS, None)], {})
    assert "-- dbo.Orders: its capture instance cannot be seen; dbo_Orders is the name by default." in script
