from dataclasses import replace
from datetime import timedelta

from floodmark.core.plan import LoadKind, TablePlan
from floodmark.core.planning import plan_reload
from floodmark.core.position import NoPosition
from floodmark.core.recovery import Gap, build_gap, build_repair_alert
from floodmark.core.settings import FirstLoad, OnGap, TableSettings
from floodmark.core.snapshot import SourceSnapshot, TableState, Validity, Verdict
from floodmark.core.verdicts import GAPS, classify
from lsns import lsn
from source_snapshots import NOON, ORDERS, instance, settings, snapshot, state, table_seen

LATER = NOON + timedelta(hours=1)


def gap_of(source: SourceSnapshot, known: TableState) -> Gap:
    (seen,) = source.tables
    validity = classify(seen, source, known)
    assert validity.verdict in GAPS
    return build_gap(validity, seen, source, known)


def test_expired_gap_reaches_from_the_watermark_to_the_low_end() -> None:
    gap = gap_of(snapshot(table_seen(oldest=lsn(80), oldest_at=LATER)), state(50, watermark_at=NOON))
    assert (gap.verdict, gap.after, gap.to) == (Verdict.EXPIRED, lsn(50), lsn(80))
    assert (gap.after_at, gap.to_at) == (NOON, LATER)


def test_gap_of_a_replaced_instance_reaches_to_where_the_new_one_begins() -> None:
    identity = replace(instance().identity, object_id=43, created_at=LATER)
    made = table_seen(feed=instance(identity=identity, start=lsn(70)))
    gap = gap_of(snapshot(made), state(50, watermark_at=NOON))
    assert (gap.after, gap.to, gap.after_at, gap.to_at) == (lsn(50), lsn(70), NOON, LATER)


def test_gap_of_a_rewound_source_is_what_the_target_has_and_the_source_has_no_more() -> None:
    gap = gap_of(snapshot(table_seen(), newest=40), state(50, watermark_at=LATER))
    assert (gap.after, gap.to, gap.after_at, gap.to_at) == (lsn(40), lsn(50), NOON, LATER)


def test_gap_of_a_rewound_source_that_has_written_on_begins_nobody_knows_where() -> None:
    source = replace(snapshot(table_seen()), entries={lsn(50): LATER})
    gap = gap_of(source, state(50, watermark_at=NOON))
    assert (gap.after, gap.to, gap.after_at, gap.to_at) == (None, lsn(50), None, NOON)
    alert = build_repair_alert("shop", gap, 7)
    assert "ahead_of_source: the source has been restored, or failed over, to an older state" in alert.what
    lost = f"(an unknown beginning, {lsn(50)}], by the source's clock an unknown time to 2026-05-01 12:00:00"
    assert lost in alert.means


def test_alert_of_a_repair_says_what_was_lost_and_who_mends_it() -> None:
    gap = gap_of(snapshot(table_seen(oldest=lsn(80))), state(50, watermark_at=NOON))
    alert = build_repair_alert("shop", gap, 7)
    assert f"({lsn(50)}, {lsn(80)}], by the source's clock 2026-05-01 12:00:00 to an unknown time" in alert.means
    assert "DAG cdc_load_shop" in alert.do
    assert alert.event_key == "repair:shop:dbo.Orders"


def reload(settings_of_table: TableSettings, source: SourceSnapshot, where: str = "") -> TablePlan | Validity:
    return plan_reload(settings_of_table, source.tables[0], source, state(50), where)


def test_reload_is_planned_on_the_old_watermark_whatever_the_verdict() -> None:
    (table,) = settings(ORDERS, on_gap=OnGap.REPAIR, first_load=FirstLoad(parallel_reads=9)).tables
    for source in (snapshot(table_seen(oldest=lsn(80))), snapshot(table_seen(), newest=40), snapshot(table_seen())):
        plan = reload(table, source)
        assert isinstance(plan, TablePlan)
        assert (plan.kind, plan.interval, plan.watermark) == (LoadKind.FIRST_LOAD, None, lsn(50))
        assert (plan.is_reload, plan.where, plan.settings.first_load.parallel_reads) == (True, "", 9)


def test_reload_of_some_rows_sweeps_nothing() -> None:
    (table,) = settings(ORDERS).tables
    plan = reload(table, snapshot(table_seen()), "[Id] > 5")
    assert isinstance(plan, TablePlan)
    assert (plan.is_reload, plan.where) == (False, "[Id] > 5")


def test_reload_waits_until_the_instance_is_captured() -> None:
    (table,) = settings(ORDERS).tables
    found = reload(table, snapshot(table_seen(oldest=NoPosition.NULL)))
    assert isinstance(found, Validity)
    assert found.verdict is Verdict.NOT_CAPTURED_YET
