"""The truth table of the verdicts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_strategies import lsns
from floodmark.core.errors import (
    CaptureStoppedError,
    CdcNotEnabledError,
    InstanceReplacedError,
    SourcePermissionError,
    SourceRewoundError,
    WindowExpiredError,
)
from floodmark.core.position import Lsn, NoPosition
from floodmark.core.schema import TableName
from floodmark.core.snapshot import (
    DatabaseIdentity,
    FeedIdentity,
    SourceSnapshot,
    TableSnapshot,
    TableState,
    Validity,
    Verdict,
    join_verdicts,
)
from floodmark.core.verdicts import INCIDENTS, classify, classify_read, incident, is_quiet, is_unproven, not_captured
from lsns import lsn
from source_snapshots import ITEMS, NOON, ORDERS, instance, snapshot, state, table_seen

LATER = FeedIdentity("dbo_Orders", 43, NOON + timedelta(days=1))
NEW = None
SHOP, TEST_SYSTEM = (DatabaseIdentity("SQL1", "Shop", guid) for guid in ("1", "2"))
DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
REPLICA = {"is_replica": True}
LOADED = state(50, watermark_at=NOON - SECOND, consistent=False, read_to=lsn(60), read_to_at=NOON - SECOND)
STOPPED = {"capture_running": False}
UNKNOWN_AND_SILENT = {"capture_running": None, "seconds_behind": 5000.0}
SILENT = {"seconds_behind": 5000.0}
UNREADABLE = {"feed": None, "oldest": NoPosition.NULL, "permitted": False}
NO_INSTANCE = {"feed": None, "oldest": NoPosition.NULL}
NO_TABLE = {"exists": False, **NO_INSTANCE}

TRUTH = [
    # what the source says of the table, of itself, what the ledger says, the verdict
    ({}, {}, state(50), Verdict.READY),
    ({}, {}, state(100), Verdict.CAUGHT_UP),
    ({}, {}, NEW, Verdict.NOT_STARTED),
    ({}, {}, state(None), Verdict.NOT_STARTED),
    # The low end: the first LSN that is needed is the one after the watermark.
    ({"oldest": lsn(51)}, {}, state(50), Verdict.READY),
    ({"oldest": lsn(52)}, {}, state(50), Verdict.EXPIRED),
    ({"oldest": lsn(101)}, {}, state(100), Verdict.CAUGHT_UP),
    # The high end.
    ({}, {"newest": 50}, state(50), Verdict.CAUGHT_UP),
    ({}, {"newest": 49}, state(50), Verdict.AHEAD_OF_SOURCE),
    ({}, {"newest": NoPosition.NULL}, state(50), Verdict.AHEAD_OF_SOURCE),
    # Another database, whatever its log and its tables are.
    ({}, {"identity": TEST_SYSTEM}, state(50, database=SHOP), Verdict.OTHER_DATABASE),
    ({"exists": False}, {"identity": TEST_SYSTEM, "newest": 49}, state(50, database=SHOP), Verdict.OTHER_DATABASE),
    ({}, {"identity": TEST_SYSTEM}, state(None, database=SHOP), Verdict.NOT_STARTED),
    ({}, {"identity": TEST_SYSTEM}, state(50), Verdict.READY),
    ({}, {}, state(50, database=SHOP), Verdict.READY),
    # A replica that lags has nothing of what came after, whatever else it shows.
    ({}, {"newest": 49, **REPLICA}, state(50), Verdict.REPLICA_BEHIND),
    ({}, {"newest": 50, **REPLICA}, state(50), Verdict.CAUGHT_UP),
    ({}, {"newest": NoPosition.NULL, **REPLICA}, state(50), Verdict.REPLICA_BEHIND),
    ({"feed": instance(identity=LATER)}, {"newest": 49, **REPLICA}, state(50), Verdict.REPLICA_BEHIND),
    ({}, {"newest": 49, "cdc_enabled": False, **REPLICA}, state(50), Verdict.REPLICA_BEHIND),
    ({}, {"newest": 49, **REPLICA}, state(50, watermark_at=NOON - DAY), Verdict.REPLICA_BEHIND),
    ({}, {"newest": 49, **REPLICA}, state(50, watermark_at=NOON - DAY - SECOND), Verdict.AHEAD_OF_SOURCE),
    ({}, {"newest": 55, **REPLICA}, LOADED, Verdict.REPLICA_BEHIND),
    ({}, {"newest": 55, **REPLICA}, replace(LOADED, consistent=True), Verdict.READY),
    # Not captured yet: NULL and zero are both what real servers return.
    ({"oldest": NoPosition.NULL}, {}, NEW, Verdict.NOT_CAPTURED_YET),
    ({"oldest": NoPosition.ZERO}, {"newest": 4}, NEW, Verdict.NOT_CAPTURED_YET),
    ({}, {"newest": NoPosition.NULL}, NEW, Verdict.NOT_CAPTURED_YET),
    ({}, {"newest": 4}, NEW, Verdict.NOT_CAPTURED_YET),
    ({}, {"newest": 5}, NEW, Verdict.NOT_STARTED),
    ({"oldest": NoPosition.NULL}, STOPPED, NEW, Verdict.CAPTURE_STOPPED),
    # Rights: a low end of zero for an instance that the capture job has long reached.
    (UNREADABLE, {}, state(50), Verdict.NO_PERMISSION),
    ({"permitted": False}, {}, NEW, Verdict.NO_PERMISSION),
    ({"oldest": NoPosition.ZERO}, {}, state(50), Verdict.NO_PERMISSION),
    ({"oldest": NoPosition.ZERO}, {}, NEW, Verdict.NO_PERMISSION),
    # The instance.
    (NO_TABLE, {}, state(50), Verdict.INSTANCE_MISSING),
    (NO_INSTANCE, {}, state(50), Verdict.INSTANCE_MISSING),
    (NO_INSTANCE, {"cdc_enabled": False}, NEW, Verdict.INSTANCE_MISSING),
    ({"feed": instance(identity=LATER)}, {}, state(50), Verdict.INSTANCE_REPLACED),
    ({"feed": instance(identity=LATER)}, {}, state(50, identity=None), Verdict.READY),
    # The target is another table than the one that the watermark belongs to.
    ({}, {}, state(50, target_fault="gone."), Verdict.TARGET_LOST),
    ({}, {}, state(100, target_fault="gone."), Verdict.TARGET_LOST),
    ({}, {}, state(None, target_fault="gone."), Verdict.NOT_STARTED),
    ({"oldest": lsn(60)}, {}, state(50, target_fault="gone."), Verdict.EXPIRED),
    # Capture: what there is, is read; that nothing comes any more shows at the end of it.
    ({}, STOPPED, state(50), Verdict.READY),
    ({}, STOPPED, state(100), Verdict.CAPTURE_STOPPED),
    ({}, STOPPED, NEW, Verdict.NOT_STARTED),
    ({}, UNKNOWN_AND_SILENT, state(100), Verdict.CAPTURE_STOPPED),
    ({}, UNKNOWN_AND_SILENT, state(50), Verdict.READY),
    ({}, SILENT, state(100), Verdict.CAPTURE_LAGGING),
    ({}, {"capture_running": None, "seconds_behind": None}, state(100), Verdict.CAUGHT_UP),
    # The graver finding comes first.
    ({"oldest": lsn(60), "feed": instance(identity=LATER)}, STOPPED, state(50), Verdict.INSTANCE_REPLACED),
    ({"oldest": lsn(60)}, STOPPED, state(50), Verdict.EXPIRED),
]


@pytest.mark.parametrize(("table", "source", "known", "verdict"), TRUTH)
def test_verdict_follows_the_truth_table(
    table: dict[str, object], source: dict[str, object], known: TableState | None, verdict: Verdict
) -> None:
    seen = table_seen(**table)
    assert classify(seen, snapshot(seen, **source), known).verdict is verdict  # type: ignore[arg-type]


def test_every_verdict_is_in_the_truth_table() -> None:
    # The others are no matter of what the source shows alone.
    assert {row[3] for row in TRUTH} == set(Verdict) - {
        Verdict.HELD,
        Verdict.REPAIRING,
        Verdict.NOT_PLANNABLE,
        Verdict.DEFINITION_CHANGED,
        Verdict.REFUSED,
        Verdict.DAMAGED,
    }


@pytest.mark.parametrize(
    ("source", "evidence"),
    [
        (STOPPED, "is not running (evidence: job activity)"),
        (UNKNOWN_AND_SILENT, "seems not to be running (evidence: age of the newest entry of the log)"),
        (SILENT, "is running (evidence: job activity)"),
    ],
)
def test_verdict_on_capture_says_what_it_rests_on(source: dict[str, object], evidence: str) -> None:
    observed = snapshot(table_seen(), **source)  # type: ignore[arg-type]
    assert evidence in classify(table_seen(), observed, state(100)).cause


def test_verdict_carries_its_numbers_and_says_what_to_do() -> None:
    seen = table_seen(oldest=lsn(60))
    validity = classify(seen, snapshot(seen), state(50))
    assert (validity.watermark, validity.oldest, validity.newest) == (lsn(50), lsn(60), lsn(100))
    assert str(lsn(50)) in validity.cause
    assert "retention" in validity.hint


@given(lsns, lsns, lsns)
def test_only_a_position_inside_the_validity_interval_is_ready(low: Lsn, high: Lsn, watermark: Lsn) -> None:
    seen = table_seen(oldest=low)
    source = replace(snapshot(seen), newest=high)
    known = TableState(ORDERS, watermark, instance().identity, consistent=True)
    try:
        inside = low <= watermark.next() and watermark < high
    except OverflowError:
        return
    assert (classify(seen, source, known).verdict is Verdict.READY) == inside


@pytest.mark.parametrize(
    ("table", "verdict"),
    [
        ({}, Verdict.READY),
        ({"oldest": lsn(51)}, Verdict.READY),
        ({"oldest": lsn(52)}, Verdict.EXPIRED),
        (NO_INSTANCE, Verdict.INSTANCE_MISSING),
        ({"feed": instance(identity=LATER)}, Verdict.INSTANCE_REPLACED),
        (UNREADABLE, Verdict.NO_PERMISSION),
    ],
)
def test_second_check_finds_what_happened_during_the_read(table: dict[str, object], verdict: Verdict) -> None:
    seen = table_seen(**table)
    assert classify_read(seen, snapshot(seen), instance(), lsn(50)).verdict is verdict


def test_missing_instance_is_to_be_made_by_the_name_that_is_searched_for() -> None:
    seen = table_seen(**NO_INSTANCE, searched_for="dbo_Orders_2", others=("dbo_Orders",))
    known = replace(state(50), identity=replace(instance().identity, name="dbo_Orders_2"))
    verdict = classify(seen, snapshot(seen), known)
    assert "the table has dbo_Orders, but not the capture instance dbo_Orders_2" in verdict.cause
    assert "sys.sp_cdc_enable_table for it with @capture_instance = N'dbo_Orders_2'" in verdict.hint
    assert "set capture_instance: dbo_Orders in pipelines.yaml" in verdict.hint
    never = table_seen(**NO_INSTANCE)
    assert "@capture_instance" not in classify(never, snapshot(never), None).hint


def test_stopped_capture_does_not_spoil_what_was_read() -> None:
    seen = table_seen()
    source: SourceSnapshot = snapshot(seen, newest=50, capture_running=False)
    assert classify_read(seen, source, instance(), lsn(50)).verdict is Verdict.CAUGHT_UP


@pytest.mark.parametrize(
    ("table", "source", "known", "error"),
    [
        (NO_TABLE, {}, NEW, CdcNotEnabledError),
        (UNREADABLE, {}, NEW, SourcePermissionError),
        ({"oldest": lsn(60)}, {}, state(50), WindowExpiredError),
        ({}, {"newest": 49}, state(50), SourceRewoundError),
        ({"feed": instance(identity=LATER)}, {}, state(50), InstanceReplacedError),
        ({}, STOPPED, state(100), CaptureStoppedError),
    ],
)
def test_incident_raises_the_error_of_who_must_act(
    table: dict[str, object], source: dict[str, object], known: TableState | None, error: type[Exception]
) -> None:
    seen = table_seen(**table)
    found = incident("shop", (classify(seen, snapshot(seen, **source), known),))  # type: ignore[arg-type]
    assert type(found) is error
    assert str(found).startswith("dbo.Orders: ")


def test_incident_names_all_affected_tables_in_one_message() -> None:
    validities = (
        Validity(ORDERS, Verdict.EXPIRED, "gone."),
        Validity(TableSnapshot(ITEMS, True, None, NoPosition.NULL).table, Verdict.INSTANCE_REPLACED, "another."),
        Validity(ORDERS, Verdict.READY, "fine."),
    )
    error = incident("shop", validities)
    assert isinstance(error, InstanceReplacedError)
    assert str(error) == (
        "shop: 2 tables cannot be read. dbo.Items: instance_replaced: another. | dbo.Orders: expired: gone."
    )


def test_incident_says_once_what_is_wrong_with_several_tables_alike_and_what_to_do() -> None:
    stopped = tuple(
        Validity(table, Verdict.CAPTURE_STOPPED, "it does not run.", "Start it.")
        for table in (ORDERS, TableSnapshot(ITEMS, True, None, NoPosition.NULL).table)
    )
    error = incident("shop", stopped)
    assert error is not None
    assert error.message == "2 tables cannot be read. dbo.Items, dbo.Orders: capture_stopped: it does not run."
    assert error.hint == "Start it."


def test_what_is_the_same_for_several_tables_is_reported_once_with_all_their_names() -> None:
    lagging = [Validity(table, Verdict.CAPTURE_LAGGING, "nothing new.", "Wait.") for table in (ORDERS, ITEMS)]
    other = Validity(TableName("dbo", "Other"), Verdict.CAUGHT_UP, "all read.")
    assert join_verdicts([*lagging, other]) == (
        "dbo.Orders, dbo.Items: capture_lagging: nothing new. Wait. | dbo.Other: caught_up: all read."
    )


@given(st.sampled_from([verdict for verdict in Verdict if verdict not in INCIDENTS]))
def test_other_verdicts_are_no_incident(verdict: Verdict) -> None:
    assert incident("shop", (Validity(ORDERS, verdict, "cause"),)) is None


def test_table_that_waits_for_its_harvest_can_be_tried_again() -> None:
    error = not_captured("shop", (Validity(ORDERS, Verdict.NOT_CAPTURED_YET, "wait."),))
    assert error is not None
    assert error.retryable
    assert not_captured("shop", (Validity(ORDERS, Verdict.READY, "go."),)) is None


@pytest.mark.parametrize(
    ("last", "quiet"),
    [(lsn(50), True), (lsn(49), True), (lsn(51), False), (NoPosition.NULL, True), (None, False)],
)
def test_table_is_quiet_when_its_last_change_is_not_above_the_watermark(
    last: Lsn | NoPosition | None, quiet: bool
) -> None:
    assert is_quiet(table_seen(last_change=last), lsn(50)) is quiet


def _stored(store_id: int) -> FeedIdentity:
    return replace(instance().identity, store_id=store_id)


@pytest.mark.parametrize(
    ("known", "found", "verdict"),
    [
        (7, 7, Verdict.CAUGHT_UP),
        (7, 8, Verdict.INSTANCE_REPLACED),
        (0, 8, Verdict.READY),
        (7, 0, Verdict.READY),
        (0, 0, Verdict.READY),
    ],
)
def test_watermark_where_the_feed_began_is_proven_by_the_store_alone(known: int, found: int, verdict: Verdict) -> None:
    seen = table_seen(feed=replace(instance(), identity=_stored(found)), restarts_at=lsn(50))
    of_ledger = state(50, identity=_stored(known))
    assert classify(seen, snapshot(seen, newest=50), of_ledger).verdict is verdict
    assert is_unproven(seen, of_ledger) is (verdict is Verdict.READY)
    # A feed that began again begins at a watermark that was moved on, or above it.
    moved = classify(seen, snapshot(seen, newest=51), state(51, identity=_stored(known))).verdict
    assert moved is (verdict if verdict is Verdict.INSTANCE_REPLACED else Verdict.CAUGHT_UP)


def test_table_whose_changes_are_known_above_the_watermark_alone_is_not_quiet() -> None:
    seen = table_seen(last_change=NoPosition.NULL, changes_after=lsn(50))
    assert is_quiet(seen, lsn(50))
    assert not is_quiet(seen, lsn(49))
