"""The release of rows from quarantine, and their discarding."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import psycopg
import pytest
from warehouse_shop import DELETE, INSERT, ORDERS, PIPELINE, TARGET, UPDATE, Row, Shop, changes, first_load, instance

from floodmark.core.errors import OperatorError, TargetRefusedError, WatermarkConflictError
from floodmark.core.plan import load_lane
from floodmark.core.recovery import Release, WaitingRows
from floodmark.core.settings import Deletes, OnFailure, PipelineSettings, Rule, TableSettings, UnstorablePolicy
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.release import PostgresQuarantine
from floodmark.sync.alerts import update_waiting
from lsns import lsn
from open_alerts import OpenAlerts

POSITIVE = Rule("positive", "amount > 0", OnFailure.QUARANTINE)
ODD = Rule("odd", "amount % 2 <> 0", OnFailure.QUARANTINE)
SMALL = Rule("small", "amount < 100", OnFailure.QUARANTINE)
OUTCOMES = "SELECT key ->> 0 AS key, rule, outcome, settled_by FROM floodmark.quarantine ORDER BY quarantine_id"


@pytest.fixture
def shop(database: WarehouseConnection) -> Shop:
    ledger = PostgresLedger(database)
    ledger.ensure_schema()
    return Shop(database, ledger)


def release(shop: Shop, *rules: Rule, unstorable: UnstorablePolicy = UnstorablePolicy.QUARANTINE) -> Release:
    settings = TableSettings(ORDERS, TARGET, rules=rules, unstorable=unstorable)
    return PostgresQuarantine(shop.connection).release(PIPELINE, settings, "anna")


def outcomes(shop: Shop) -> list[tuple[str, str | None]]:
    return [(row["key"], row["outcome"]) for row in shop.rows(OUTCOMES)]


def correct(shop: Shop, key: int, values: str) -> None:
    """Correct the values of a row as an operator does."""
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute(
            "UPDATE floodmark.quarantine SET row_data = row_data || %s::jsonb WHERE key = jsonb_build_array(%s::int)",
            [values, key],
        )


def reopen(shop: Shop) -> None:
    """Take the rows in quarantine back to the state that versions without settling at the merge left."""
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute("UPDATE floodmark.quarantine SET settled_at = NULL, settled_by = NULL, outcome = NULL")


def waiting(shop: Shop) -> list[WaitingRows]:
    return list(shop.ledger.count_waiting(PIPELINE))


def test_rows_wait_until_a_window_merges_a_later_change_of_them(shop: Shop) -> None:
    """A row waits once, however many rules it broke, and however often."""
    rules = (POSITIVE, ODD)
    shop.run(first_load(rules=rules), 10, [Row(1, INSERT, 10, -2), Row(2, INSERT, 10, -1), Row(3, INSERT, 10, 3)])
    shop.run(changes(10, 20, rules=rules), 20, [Row(1, UPDATE, 11, -4)])
    assert waiting(shop) == [WaitingRows(ORDERS, 2, ("odd", "positive"))]
    shop.run(changes(20, 30, rules=rules), 30, [Row(1, UPDATE, 21, 1)])
    assert waiting(shop) == [WaitingRows(ORDERS, 1, ("positive",))]
    assert {row["settled_by"] for row in shop.rows(OUTCOMES)} == {"floodmark", None}
    # The row that is read again still waits, and the row that the source has deleted does not.
    shop.run(replace(first_load(rules=rules), is_reload=True, watermark=lsn(30)), 40, [Row(2, INSERT, 40, -1)])
    assert waiting(shop) == [WaitingRows(ORDERS, 1, ("positive",))]
    shop.run(changes(40, 50, rules=rules), 50, [Row(2, DELETE, 41, -1)])
    assert waiting(shop) == []


def test_alert_about_rows_lasts_until_none_waits(shop: Shop) -> None:
    alerts, settings = OpenAlerts(), PipelineSettings(PIPELINE, (TableSettings(ORDERS, TARGET),))

    def titles() -> list[str]:
        update_waiting(settings, shop.ledger, alerts)
        return [f"{alert.table}: {alert.what}" for alert in alerts.open.values()]

    assert titles() == []
    shop.run(first_load(rules=(POSITIVE,)), 10, [Row(1, INSERT, 10, -1), Row(2, INSERT, 10, -2)])
    assert titles() == ["dbo.Orders: 2 rows wait in quarantine, because of rule positive."]
    PostgresQuarantine(shop.connection).discard(PIPELINE, ORDERS, None, "anna")
    assert titles() == []


def amounts(shop: Shop) -> dict[int, Decimal]:
    return {key: amount for key, (amount, _, _) in shop.target().items()}


@pytest.mark.parametrize("deletes", Deletes)
def test_rows_are_merged_when_the_rule_is_gone(shop: Shop, deletes: Deletes) -> None:
    shop.run(first_load(deletes, (POSITIVE,)), 10, [Row(1, INSERT, 10, -1, 3, "n"), Row(2, INSERT, 10, 2)])
    shop.run(changes(10, 20, deletes, (POSITIVE,)), 20, [Row(2, UPDATE, 15, -2), Row(3, INSERT, 16, 3)])
    assert release(shop) == Release(2, 0, {}, 0, 3, inserted_rows=1, updated_rows=1)
    assert shop.target() == {1: (Decimal(-1), 3, "n"), 2: (Decimal(-2), None, None), 3: (Decimal(3), None, None)}
    found = shop.rows('SELECT "Id", __lsn, __op, __window_id FROM shop.orders WHERE __window_id = 3 ORDER BY 1')
    assert [(row["Id"], row["__lsn"], row["__op"]) for row in found] == [
        (1, lsn(10).value, INSERT),
        (2, lsn(15).value, UPDATE),
    ]
    assert outcomes(shop) == [("1", "released"), ("2", "released")]
    assert {row["settled_by"] for row in shop.rows(OUTCOMES)} == {"anna"}
    assert release(shop) == Release()


def test_watermark_stays_and_the_window_is_recorded(shop: Shop) -> None:
    shop.run(first_load(rules=(POSITIVE,)), 10, [Row(1, INSERT, 10, -1)])
    release(shop)
    assert shop.ledger.read_tables(PIPELINE)[ORDERS].watermark == lsn(10)
    (window,) = shop.rows("SELECT * FROM floodmark.windows WHERE lane = 'release dbo.Orders'")
    assert window["state"] == "advanced"
    assert shop.ledger.read_counts(window["window_id"])[ORDERS].inserted_rows == 1
    assert shop.ledger.list_unfinished(PIPELINE) == []
    assert shop.rows("SELECT * FROM pg_tables WHERE schemaname = 'floodmark_staging'") == []


def test_corrected_rows_are_merged_and_the_others_stay(shop: Shop) -> None:
    shop.run(first_load(rules=(POSITIVE,)), 10, [Row(1, INSERT, 10, -1), Row(2, INSERT, 10, -2)])
    correct(shop, 1, '{"Amount": 7.5}')
    assert release(shop, POSITIVE) == Release(1, 0, {"positive": 1}, 0, 2, inserted_rows=1)
    assert amounts(shop) == {1: Decimal("7.50")}
    assert outcomes(shop) == [("1", "released"), ("2", None)]


def test_row_that_still_breaks_another_rule_stays(shop: Shop) -> None:
    shop.run(first_load(rules=(POSITIVE,)), 10, [Row(1, INSERT, 10, -1)])
    correct(shop, 1, '{"Amount": 500}')
    stops = replace(SMALL, on_failure=OnFailure.STOP)
    assert release(shop, POSITIVE, stops) == Release(remaining={"positive": 1, "small": 1})
    assert amounts(shop) == {}
    assert release(shop, POSITIVE) == Release(2, 0, {}, 0, 3, inserted_rows=1)


def test_row_with_a_later_change_in_the_target_is_overtaken(shop: Shop) -> None:
    shop.run(first_load(rules=(POSITIVE,)), 10, [Row(1, INSERT, 10, -1)])
    shop.run(changes(10, 20, rules=(POSITIVE,)), 20, [Row(1, UPDATE, 11, 5)])
    assert outcomes(shop) == [("1", "overtaken")]
    assert release(shop) == Release()
    assert amounts(shop) == {1: Decimal(5)}


def test_row_that_an_earlier_version_left_open_behind_a_later_change_is_settled(shop: Shop) -> None:
    shop.run(first_load(rules=(POSITIVE,)), 10, [Row(1, INSERT, 10, -1)])
    shop.run(changes(10, 20, rules=(POSITIVE,)), 20, [Row(1, UPDATE, 11, 5)])
    reopen(shop)
    assert release(shop) == Release(overtaken=1)
    assert amounts(shop) == {1: Decimal(5)}


@pytest.mark.parametrize("deletes", Deletes)
def test_deleted_row_does_not_come_back(shop: Shop, deletes: Deletes) -> None:
    shop.run(first_load(deletes, (POSITIVE,)), 10, [Row(1, INSERT, 10, -1)])
    shop.run(changes(10, 20, deletes, (POSITIVE,)), 20, [Row(1, DELETE, 11, -1)])
    assert outcomes(shop) == [("1", "overtaken")]
    reopen(shop)
    assert release(shop) == Release(overtaken=1)
    assert amounts(shop) == {}


@pytest.mark.parametrize("deletes", Deletes)
def test_row_that_was_gone_in_a_reload_does_not_come_back(shop: Shop, deletes: Deletes) -> None:
    """It never was in the target, so that its sweep has left no tombstone."""
    shop.run(first_load(deletes, (POSITIVE,)), 10, [Row(1, INSERT, 10, -1), Row(2, INSERT, 10, 2)])
    again = replace(first_load(deletes, (POSITIVE,)), is_reload=True, watermark=lsn(10))
    shop.run(again, 30, [Row(2, INSERT, 30, -2)])
    assert outcomes(shop) == [("1", "overtaken"), ("2", None)]
    reopen(shop)
    assert release(shop) == Release(1, 1, {}, 0, 3, updated_rows=1)
    assert amounts(shop) == {2: Decimal(-2)}


def test_only_the_newest_row_of_a_key_is_merged(shop: Shop) -> None:
    shop.run(first_load(rules=(POSITIVE,)), 10, [Row(1, INSERT, 10, -1)])
    shop.run(changes(10, 20, rules=(POSITIVE,)), 20, [Row(1, UPDATE, 11, -2)])
    shop.run(changes(20, 30, rules=(POSITIVE,)), 30, [Row(1, UPDATE, 21, -3)])
    assert release(shop) == Release(1, 2, {}, 0, 4, inserted_rows=1)
    assert amounts(shop) == {1: Decimal(-3)}
    assert outcomes(shop) == [("1", "overtaken"), ("1", "overtaken"), ("1", "released")]


def test_older_row_is_not_merged_while_the_newest_breaks_a_rule(shop: Shop) -> None:
    shop.run(first_load(rules=(POSITIVE,)), 10, [Row(1, INSERT, 10, -1)])
    shop.run(changes(10, 20, rules=(SMALL,)), 20, [Row(1, UPDATE, 11, 500)])
    assert release(shop, SMALL) == Release(remaining={"positive": 1, "small": 1})
    assert amounts(shop) == {}


def test_lob_that_a_change_left_out_comes_from_quarantine(shop: Shop) -> None:
    shop.run(first_load(rules=(POSITIVE,)), 10, [Row(1, INSERT, 10, -1, notes="text")])
    shop.run(changes(10, 20, rules=(POSITIVE,)), 20, [Row(1, UPDATE, 11, -2, keep=True)])
    release(shop)
    assert shop.target() == {1: (Decimal(-2), None, "text")}


def test_row_without_its_lob_or_a_column_stays(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    rows = [Row(1, UPDATE, 11, -1, keep=True), Row(2, INSERT, 12, -2), Row(3, INSERT, 13, -3), Row(4, INSERT, 14, -4)]
    shop.run(changes(10, 20, rules=(POSITIVE,)), 20, rows)
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute("UPDATE floodmark.quarantine SET row_data = row_data - 'Disc%%' WHERE key = '[2]'", [])
    correct(shop, 3, '{"Id": 33}')
    assert release(shop) == Release(1, 0, {"positive": 3}, 3, 3, inserted_rows=1)
    assert amounts(shop) == {4: Decimal(-4)}


def test_unstorable_text_is_released_by_the_policy_or_a_correction(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    shop.run(changes(10, 20, rules=(POSITIVE,)), 20, [Row(1, INSERT, 11, -1), Row(2, INSERT, 12, -2)])
    for key in (1, 2):
        correct(shop, key, '{"Notes": "a\ufffdb", "__unstorable": "{\\"Notes\\": \\"U+0000\\"}"}')
    assert release(shop).remaining == {"positive": 2, "text_can_be_stored": 2}
    correct(shop, 2, '{"Notes": "ab", "__unstorable": null}')
    assert release(shop) == Release(2, 0, {"positive": 1, "text_can_be_stored": 1}, 0, 4, inserted_rows=1)
    assert release(shop, unstorable=UnstorablePolicy.REPLACE).inserted_rows == 1
    assert {key: notes for key, (_, _, notes) in shop.target().items()} == {1: "a\ufffdb", 2: "ab"}


def test_value_of_a_wrong_type_is_refused_without_being_shown(shop: Shop) -> None:
    shop.run(first_load(rules=(POSITIVE,)), 10, [Row(1, INSERT, 10, -1)])
    correct(shop, 1, '{"Amount": "a secret"}')
    with pytest.raises(OperatorError, match="does not have the type") as found:
        release(shop)
    assert "secret" not in str(found.value)
    assert outcomes(shop) == [("1", None)]


def test_row_that_a_deferred_constraint_rejects_stays(shop: Shop) -> None:
    shop.run(first_load(rules=(POSITIVE,)), 10, [Row(1, INSERT, 10, 1), Row(2, INSERT, 10, -2)])
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute("CREATE TABLE shop.mine (id bigint PRIMARY KEY)")
        session.execute("INSERT INTO shop.mine VALUES (1)")
        session.execute(
            'ALTER TABLE shop.orders ADD CONSTRAINT mine FOREIGN KEY ("Id") REFERENCES shop.mine '
            "DEFERRABLE INITIALLY DEFERRED"
        )
    with pytest.raises(TargetRefusedError, match=r"constraint mine of shop\.orders rejected the rows"):
        release(shop)
    assert set(amounts(shop)) == {1}


def test_table_that_is_being_reloaded_or_was_never_merged_is_refused(shop: Shop) -> None:
    with pytest.raises(OperatorError, match="no window has merged it"):
        release(shop)
    shop.run(first_load(rules=(POSITIVE,)), 10, [Row(1, INSERT, 10, -1)])
    again = replace(first_load(), is_reload=True, watermark=lsn(10))
    shop.ledger.open_window(PIPELINE, lsn(30), [again], lane=load_lane(ORDERS))
    with pytest.raises(WatermarkConflictError, match="is reloading it"):
        release(shop)


def test_rows_of_members_are_refused(shop: Shop) -> None:
    of_devices = replace(first_load(rules=(POSITIVE,)), feed=replace(instance(), member_column="Id"))
    shop.run(of_devices, 10, [Row(1, INSERT, 10, -1)])
    with pytest.raises(OperatorError, match="belong to members"):
        release(shop)


def test_discarded_rows_stay_out_and_later_changes_are_loaded(shop: Shop) -> None:
    rules = (POSITIVE, Rule("noted", "notes IS NOT NULL", OnFailure.QUARANTINE))
    shop.run(first_load(rules=rules), 10, [Row(1, INSERT, 10, -1), Row(2, INSERT, 10, -2, notes="n")])
    quarantine = PostgresQuarantine(shop.connection)
    assert quarantine.discard(PIPELINE, ORDERS, "noted", "anna") == 1
    assert quarantine.discard(PIPELINE, ORDERS, None, "anna") == 2
    assert quarantine.discard(PIPELINE, ORDERS, None, "anna") == 0
    assert release(shop) == Release()
    shop.run(changes(10, 20, rules=rules), 20, [Row(1, UPDATE, 11, 4, notes="n")])
    assert amounts(shop) == {1: Decimal(4)}
