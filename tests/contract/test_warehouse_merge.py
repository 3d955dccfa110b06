"""Effects of a merge on a target, on a real PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal

import psycopg
import pytest
from warehouse_shop import COLUMNS, DELETE, INSERT, ORDERS, UPDATE, Row, Shop, changes, first_load, instance

from cdc_database import wait_until
from floodmark.core.errors import (
    ConfigError,
    DataQualityError,
    FloodmarkBugError,
    OperatorError,
    WarehouseAdminError,
    WarehouseUnavailableError,
    WatermarkConflictError,
)
from floodmark.core.plan import TableCounts, TablePlan, WindowPlan, WindowState, replay_lane, staging_table
from floodmark.core.position import Interval
from floodmark.core.schema import SourceColumn, quote_table
from floodmark.core.settings import Deletes, OnFailure, Rule
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection, open_transaction
from floodmark.postgres.warehouse.gate import Leftovers, find_leftovers
from floodmark.sync.ports import StagedRows
from lsns import lsn
from table_plans import with_settings


@pytest.fixture
def shop(database: WarehouseConnection, ledger: PostgresLedger) -> Shop:
    return Shop(database, ledger)


def test_first_load_and_a_window_are_counted_by_what_became_of_the_rows(shop: Shop) -> None:
    loaded = shop.run(first_load(), 10, [Row(id, INSERT, 10, id * 10, notes=f"n{id}") for id in (1, 2, 3)])
    assert loaded == TableCounts(staged_rows=3, inserted_rows=3)
    rows = [
        Row(1, UPDATE, 11, 11, keep=True),
        Row(2, DELETE, 12, 20),
        Row(4, INSERT, 13, 40, 5, "new"),
        Row(9, DELETE, 14),
    ]
    counts = shop.run(changes(10, 20), 20, rows)
    assert counts == TableCounts(staged_rows=4, inserted_rows=1, updated_rows=1, deleted_rows=1, unchanged_rows=1)
    assert shop.target() == {
        1: (Decimal("11.00"), None, "n1"),
        3: (Decimal("30.00"), None, "n3"),
        4: (Decimal("40.00"), 5, "new"),
    }
    soft_deleted = shop.rows('SELECT "Amount", __op, __window_id FROM shop.orders WHERE "Id" = 2 AND __deleted')
    assert soft_deleted == [{"Amount": Decimal("20.00"), "__op": DELETE, "__window_id": 2}]


def test_updated_row_of_a_new_target_stays_on_its_page(shop: Shop) -> None:
    shop.run(first_load(), 10, [Row(id, INSERT, 10, id) for id in range(1, 501)])
    pages = 'SELECT "Id", (ctid::text::point)[0] AS page FROM shop.orders WHERE "Id" % 10 = 0 ORDER BY 1'
    before = shop.rows(pages)
    assert len({row["page"] for row in before}) > 1
    shop.run(changes(10, 20), 20, [Row(id, UPDATE, 11, 0, keep=True) for id in range(10, 501, 10)])
    assert shop.rows(pages) == before


def test_row_that_comes_back_counts_as_inserted(shop: Shop) -> None:
    shop.run(first_load(), 10, [Row(1, INSERT, 10)])
    shop.run(changes(10, 20), 20, [Row(1, DELETE, 15)])
    counts = shop.run(changes(20, 30), 30, [Row(1, UPDATE, 25, 7)])
    assert counts == TableCounts(staged_rows=1, inserted_rows=1)
    assert shop.target() == {1: (Decimal("7.00"), None, None)}


@pytest.mark.parametrize("deletes", Deletes)
def test_replay_of_an_older_window_changes_nothing(shop: Shop, deletes: Deletes) -> None:
    older = [Row(1, UPDATE, 12, 12), Row(2, UPDATE, 13, 13), Row(3, INSERT, 14, 14)]
    shop.run(first_load(deletes), 10, [Row(1, INSERT, 10), Row(2, INSERT, 10)])
    shop.run(changes(10, 20, deletes), 20, older)
    shop.run(changes(20, 30, deletes), 30, [Row(1, UPDATE, 21, 21), Row(2, DELETE, 22), Row(3, DELETE, 23)])
    after = shop.target()
    shop.set_watermark(10)
    counts = shop.run(changes(10, 20, deletes), 20, older)
    assert counts == TableCounts(staged_rows=3, unchanged_rows=3)
    assert shop.target() == after == {1: (Decimal("21.00"), None, None)}


def test_hard_delete_removes_the_row_and_keeps_its_key_and_lsn(shop: Shop) -> None:
    shop.run(first_load(Deletes.HARD), 10, [Row(1, INSERT, 10)])
    counts = shop.run(changes(10, 20, Deletes.HARD), 20, [Row(1, DELETE, 15), Row(7, DELETE, 16)])
    assert counts == TableCounts(staged_rows=2, deleted_rows=1, unchanged_rows=1)
    assert shop.rows("SELECT * FROM shop.orders") == []
    assert shop.rows("SELECT key, lsn FROM floodmark.tombstones ORDER BY key") == [
        {"key": [1], "lsn": lsn(15).value},
        {"key": [7], "lsn": lsn(16).value},
    ]
    back = shop.run(changes(20, 30, Deletes.HARD), 30, [Row(1, INSERT, 25, 5)])
    assert back == TableCounts(staged_rows=1, inserted_rows=1)


@pytest.mark.parametrize("keys", [[(1, 100000000), (10000, 1)], [(7, 1), (-7, 1), (7, -1), (-7, -1)]])
def test_each_of_several_keys_with_one_hash_has_a_tombstone(shop: Shop, keys: list[tuple[int, int]]) -> None:
    hashes = ", ".join(f"jsonb_hash_extended('[{id}, {discount}]', seed)" for id, discount in keys)
    for row in shop.rows(f"SELECT ARRAY[{hashes}] AS hashes FROM generate_series(0, 1) AS seed"):
        assert len(set(row["hashes"])) == 1
    columns = tuple(replace(column, nullable=False) for column in COLUMNS)
    loaded = replace(first_load(Deletes.HARD), feed=instance(columns, ("Id", "Disc%")))
    window = replace(changes(10, 20, Deletes.HARD), feed=loaded.feed)
    shop.run(loaded, 10, [Row(id, INSERT, 10, 0, discount) for id, discount in keys])
    assert shop.run(window, 20, [Row(id, DELETE, 15, 0, discount) for id, discount in keys]).deleted_rows == len(keys)
    later = replace(window, interval=Interval(lsn(20), lsn(30)), watermark=lsn(20))
    shop.run(later, 30, [Row(keys[0][0], DELETE, 25, 0, keys[0][1])])
    found = {tuple(row["key"]): row["lsn"] for row in shop.rows("SELECT key, lsn FROM floodmark.tombstones")}
    assert found == {key: lsn(25 if key == keys[0] else 15).value for key in keys}


def test_tombstones_still_hold_after_a_change_to_soft_deletes(shop: Shop) -> None:
    shop.run(first_load(Deletes.HARD), 10, [Row(1, INSERT, 10)])
    shop.run(changes(10, 20, Deletes.HARD), 20, [Row(1, DELETE, 15)])
    shop.set_watermark(1)
    shop.run(changes(1, 12, Deletes.SOFT), 12, [Row(1, UPDATE, 12, 5)])
    assert shop.target() == {}


def test_window_merges_once(shop: Shop) -> None:
    plan = shop.begin(first_load(), 10)
    shop.stage(plan, [Row(1, INSERT, 10)])
    shop.merge(plan)
    with pytest.raises(WatermarkConflictError, match="merged"):
        shop.merge(plan)


def test_load_believed_dead_can_neither_merge_nor_touch_the_staging_of_its_successor(shop: Shop) -> None:
    shop.run(first_load(), 5, [])
    zombie = shop.begin(changes(5, 10), 10)
    shop.stage(zombie, [Row(1, INSERT, 10)])
    successor = shop.ledger.begin_load(zombie.window_id).plan
    shop.warehouse.prepare_window(successor)
    with pytest.raises(psycopg.errors.UndefinedTable):
        shop.stage(zombie, [Row(2, INSERT, 10)])
    with pytest.raises(WatermarkConflictError, match="attempt 2 has begun"):
        shop.merge(zombie)
    shop.stage(successor, [Row(3, INSERT, 10)])
    shop.merge(successor)
    assert set(shop.target()) == {3}


def test_staging_in_use_by_another_load_does_not_hold_up_its_successor(shop: Shop) -> None:
    shop.run(first_load(), 5, [])
    zombie = shop.begin(changes(5, 10), 10)
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute(f"LOCK TABLE {quote_table(staging_table(zombie, 0))}")
        successor = shop.ledger.begin_load(zombie.window_id).plan
        shop.warehouse.prepare_window(successor)
        shop.stage(successor, [Row(3, INSERT, 10)])
        shop.merge(successor)
    shop.finish(successor)
    assert not shop.exists(quote_table(staging_table(zombie, 0)))


def test_staging_in_use_is_kept_and_the_tables_that_are_dropped_with_it_go(shop: Shop) -> None:
    opened = shop.ledger.open_window("shop", lsn(10), [first_load(), items(first_load())])
    plan = shop.ledger.begin_load(opened.window_id).plan
    shop.warehouse.prepare_window(plan)
    of_orders, of_items = (quote_table(staging_table(plan, index)) for index in (0, 1))
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute(f"LOCK TABLE {of_items}")
        shop.warehouse.drop_staging(plan.window_id)
        assert not shop.exists(of_orders)
        assert shop.exists(of_items)
    shop.warehouse.drop_staging(plan.window_id)
    assert not shop.exists(of_items)


def test_table_without_changes_is_recorded_and_its_rows_in_quarantine_wait(shop: Shop) -> None:
    shop.run(first_load(rules=QUARANTINE[:1]), 10, [Row(1, INSERT, 10, -5), Row(2, INSERT, 10, 5)])
    wider = SourceColumn("Extra", "int", 6)
    table = replace(changes(10, 20, rules=QUARANTINE[:1]), feed=instance((*COLUMNS, wider)))
    plan = shop.begin(table, 20)
    stray = shop.stage_part(plan, [Row(2, UPDATE, 11, 7)])  # of a try that no task has reported
    assert shop.warehouse.merge_window(plan, {ORDERS: StagedRows(0, 0)}) == {ORDERS: TableCounts()}
    shop.finish(plan)
    assert stray.rows
    assert shop.target() == {2: (Decimal("5.00"), None, None)}
    assert shop.rows("SELECT settled_at FROM floodmark.quarantine") == [{"settled_at": None}]
    [recorded] = shop.rows("SELECT target_columns, target_window_id FROM floodmark.tables")
    assert "Extra" in recorded["target_columns"]
    assert recorded["target_window_id"] == 1


def test_merge_asks_once_what_earlier_windows_have_left_of_its_tables(shop: Shop) -> None:
    hard = first_load(Deletes.HARD), items(first_load(rules=QUARANTINE[:1]))
    opened = shop.ledger.open_window("shop", lsn(10), hard)
    plan = shop.ledger.begin_load(opened.window_id).plan
    shop.warehouse.prepare_window(plan)
    shop.stage(plan, [Row(1, INSERT, 10, 1), Row(2, INSERT, 10, 2)], 0)
    shop.stage(plan, [Row(1, INSERT, 10, -5)], 1)
    shop.warehouse.merge_window(plan)
    with open_transaction(shop.connection) as session:
        assert find_leftovers(session, plan) == [Leftovers(False, False, False), Leftovers(False, True, True)]
        session.execute("INSERT INTO floodmark.tombstones VALUES ('shop', 'orders', '[1]', %s)", [lsn(15).value])
        after, before = (replace(plan, tables=(changes(at, 20), plan.tables[1])) for at in (15, 14))
        assert [each.has_tombstones for each in find_leftovers(session, after)] == [False, False]
        assert [each.has_tombstones for each in find_leftovers(session, before)] == [True, False]
        session.execute("UPDATE floodmark.quarantine SET settled_at = now(), outcome = 'discarded', settled_by = 'me'")
        assert find_leftovers(session, plan)[1] == Leftovers(False, True, False)


def items(table: TablePlan) -> TablePlan:
    """Return the plan of another table, of which all else is the same."""
    return with_settings(table, source=ORDERS.__class__("dbo", "Items"), target=ORDERS.__class__("shop", "items"))


def test_staging_that_a_finished_window_has_left_goes_with_the_next_one(shop: Shop) -> None:
    shop.run(first_load(), 5, [])
    killed = shop.begin(changes(5, 10), 10)
    shop.merge(killed)
    shop.ledger.mark_checked(killed.window_id)
    shop.ledger.advance(killed.window_id)
    assert shop.exists(quote_table(staging_table(killed, 0)))
    replayed = begin_replay(shop, replace(changes(5, 10), watermark=lsn(10)))
    assert not shop.exists(quote_table(staging_table(killed, 0)))
    shop.run(changes(10, 20), 20, [])
    assert shop.exists(quote_table(staging_table(replayed, 0)))


def test_merges_of_two_lanes_into_one_target_queue_up_and_count_what_is_true(shop: Shop) -> None:
    shop.run(first_load(), 10, [])
    plans = []
    for lane in ("", "replay 1"):
        opened = shop.ledger.open_window("shop", lsn(20), [changes(10, 20)], lane=lane)
        plan = shop.ledger.begin_load(opened.window_id).plan
        shop.warehouse.prepare_window(plan)
        shop.stage(plan, [Row(1, INSERT, 15)])
        plans.append(plan)
    with psycopg.connect(shop.connection.conninfo(), autocommit=True) as session, ThreadPoolExecutor(2) as pool:
        session.execute(
            "CREATE FUNCTION public.stand_still() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM pg_advisory_xact_lock(77); RETURN NULL; END'"
        )
        session.execute("CREATE TRIGGER stand_still AFTER INSERT ON shop.orders EXECUTE FUNCTION public.stand_still()")
        session.execute("SELECT pg_advisory_lock(77)")
        merges = [pool.submit(shop.merge, plan) for plan in plans]
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        wait_until(lambda: session.execute(waiting).fetchone() == (2,))
        session.execute("SELECT pg_advisory_unlock(77)")
        counts = [merge.result(30) for merge in merges]
    assert sorted((count.inserted_rows, count.unchanged_rows) for count in counts) == [(0, 1), (1, 0)]


def test_merge_of_several_tables_is_one_transaction(shop: Shop) -> None:
    strict = (Rule("positive", "Amount > 0", OnFailure.STOP),)
    other = items(first_load(rules=strict))
    opened = shop.ledger.open_window("shop", lsn(10), [first_load(), other])
    plan = shop.ledger.begin_load(opened.window_id).plan
    shop.warehouse.prepare_window(plan)
    shop.stage(plan, [Row(1, INSERT, 10, 5)], 0)
    shop.stage(plan, [Row(1, INSERT, 10, -5)], 1)
    with pytest.raises(DataQualityError, match=r"dbo\.Items: rows .* broke rule positive \(Amount > 0\)\.") as found:
        shop.merge(plan)
    assert "key 1" not in str(found.value)
    assert found.value.detail == f"such as at {lsn(10)}"
    assert shop.target() == {}
    assert shop.ledger.read_window(plan.window_id).state is WindowState.PLANNED


def test_staging_that_lost_rows_is_not_merged(shop: Shop) -> None:
    plan = shop.begin(first_load(), 10)
    shop.stage(plan, [Row(1, INSERT, 10)])
    with pytest.raises(WarehouseUnavailableError, match="2 rows were staged, but 1 are in staging now"):
        shop.warehouse.merge_window(plan, {ORDERS: StagedRows(2, 2)})


def test_constraint_that_a_user_put_on_the_target_is_named(shop: Shop) -> None:
    shop.run(first_load(), 10, [Row(1, INSERT, 10, 1)])
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute('ALTER TABLE shop.orders ADD CONSTRAINT mine UNIQUE ("Amount")')
    with pytest.raises(WarehouseAdminError, match=r"dbo\.Orders: constraint mine of shop\.orders rejected rows"):
        shop.run(changes(10, 20), 20, [Row(2, INSERT, 11, 1)])


def test_trigger_that_rejects_rows_as_a_constraint_does_is_named(shop: Shop) -> None:
    """Found by the kill tests, which saw "constraint None"."""
    shop.run(first_load(), 10, [Row(1, INSERT, 10, 1)])
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute(
            "CREATE FUNCTION shop.refuse() RETURNS trigger LANGUAGE plpgsql"
            " AS 'BEGIN RAISE EXCEPTION USING ERRCODE = ''23514''; END'"
        )
        session.execute("CREATE TRIGGER mine AFTER INSERT ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.refuse()")
    with pytest.raises(WarehouseAdminError, match=r"a trigger of shop\.orders rejected rows \(PL/pgSQL .*refuse\(\)"):
        shop.run(changes(10, 20), 20, [Row(2, INSERT, 11, 1)])


def test_key_that_is_twice_in_staging_is_refused(shop: Shop) -> None:
    for table, to in ((first_load(), 10), (changes(10, 20), 20)):
        plan = shop.begin(table, to)
        shop.stage(plan, [Row(1, INSERT, to), Row(1, INSERT, to)])
        with pytest.raises(FloodmarkBugError, match="duplicate key in staging"):
            shop.merge(plan)
        shop.warehouse.clear_parts(plan, 0, [0])
        shop.stage(plan, [Row(1, INSERT, to)])
        shop.merge(plan)
        shop.finish(plan)


QUARANTINE = (Rule("positive", "amount > 0", OnFailure.QUARANTINE), Rule("noted", "notes IS NOT NULL", OnFailure.WARN))


def test_broken_rows_go_to_quarantine_with_the_reason_and_deletes_pass(shop: Shop) -> None:
    rows = [Row(1, INSERT, 10, -1, notes="x"), Row(2, INSERT, 10, 1), Row(3, INSERT, 10, None, notes="y")]
    counts = shop.run(first_load(rules=QUARANTINE), 10, rows)
    assert counts == TableCounts(staged_rows=3, inserted_rows=2, quarantined_rows=1, warned_rows=1)
    assert set(shop.target()) == {2, 3}
    (found,) = shop.rows("SELECT * FROM floodmark.quarantine")
    assert (found["pipeline"], found["rule"], found["window_id"], found["key"]) == ("shop", "positive", 1, [1])
    assert found["row_data"]["Amount"] == -1
    assert shop.run(changes(10, 20, rules=QUARANTINE), 20, [Row(2, DELETE, 11, -1)]).deleted_rows == 1


def test_row_that_breaks_two_rules_is_counted_once(shop: Shop) -> None:
    rules = (QUARANTINE[0], Rule("small", "amount BETWEEN 0 AND 9", OnFailure.QUARANTINE))
    counts = shop.run(first_load(rules=rules), 10, [Row(1, INSERT, 10, -1), Row(2, INSERT, 10, 99)])
    assert counts == TableCounts(staged_rows=2, quarantined_rows=2)
    assert [row["rule"] for row in shop.rows("SELECT rule FROM floodmark.quarantine ORDER BY key, rule")] == [
        "positive",
        "small",
        "small",
    ]


def test_rows_that_are_read_again_stand_in_quarantine_once(shop: Shop) -> None:
    rules = QUARANTINE[:1]
    rows = [Row(1, UPDATE, 15, -1), Row(2, INSERT, 16, -2, notes="%x")]
    shop.run(first_load(rules=rules), 10, [Row(1, INSERT, 10, 1)])
    shop.run(changes(10, 20, rules=rules), 20, rows)
    before = shop.rows("SELECT * FROM floodmark.quarantine ORDER BY quarantine_id")
    shop.set_watermark(10)
    assert shop.run(changes(10, 20, rules=rules), 20, rows).quarantined_rows == 2
    assert shop.rows("SELECT * FROM floodmark.quarantine ORDER BY quarantine_id") == before
    other = (Rule("big", "amount > 9", OnFailure.QUARANTINE), *rules)
    shop.set_watermark(10)
    shop.run(changes(10, 20, rules=other), 20, rows)
    found = shop.rows("SELECT key, rule FROM floodmark.quarantine ORDER BY key, rule")
    assert [(row["key"], row["rule"]) for row in found] == [
        ([1], "big"),
        ([1], "positive"),
        ([2], "big"),
        ([2], "positive"),
    ]


@pytest.mark.parametrize("deletes", Deletes)
def test_rows_that_are_loaded_again_at_the_same_lsn_stand_in_quarantine_once_and_are_not_swept(
    shop: Shop, deletes: Deletes
) -> None:
    rules = QUARANTINE[:1]
    shop.run(first_load(deletes, rules), 10, [Row(1, INSERT, 10, 1), Row(2, INSERT, 10, 2)])
    for _ in range(2):
        again = replace(first_load(deletes, rules), is_reload=True, watermark=lsn(10))
        counts = shop.run(again, 10, [Row(1, INSERT, 10, -1), Row(2, INSERT, 10, 2)])
        assert (counts.quarantined_rows, counts.swept_rows) == (1, 0)
        assert set(shop.target()) == {1, 2}
    (found,) = shop.rows("SELECT window_id, row_data FROM floodmark.quarantine")
    assert (found["window_id"], found["row_data"]["Amount"]) == (3, -1)


def test_rule_sees_the_kept_lob_of_the_target(shop: Shop) -> None:
    rules = (Rule("noted", "notes IS NOT NULL", OnFailure.QUARANTINE),)
    shop.run(first_load(), 10, [Row(1, INSERT, 10, notes="kept"), Row(2, INSERT, 10)])
    rows = [Row(1, UPDATE, 11, 5, keep=True), Row(2, UPDATE, 12, 5, keep=True)]
    assert shop.run(changes(10, 20, rules=rules), 20, rows).quarantined_rows == 1
    assert shop.target() == {1: (Decimal("5.00"), None, "kept"), 2: (Decimal("0.00"), None, None)}


def test_lob_of_a_quarantined_change_is_not_lost_when_a_later_change_mends_the_row(shop: Shop) -> None:
    rules = QUARANTINE[:1]
    shop.run(first_load(rules=rules), 10, [Row(1, INSERT, 10, 1, notes="old")])
    shop.run(
        changes(10, 20, rules=rules), 20, [Row(1, UPDATE, 15, -1, notes="new"), Row(2, INSERT, 16, -2, notes="two")]
    )
    shop.run(changes(20, 30, rules=rules), 30, [Row(1, UPDATE, 25, -3, keep=True)])
    shop.run(changes(30, 40, rules=rules), 40, [Row(1, UPDATE, 35, 3, keep=True), Row(2, UPDATE, 36, 4, keep=True)])
    assert shop.target() == {1: (Decimal("3.00"), None, "new"), 2: (Decimal("4.00"), None, "two")}


@pytest.mark.parametrize("deletes", Deletes)
def test_replay_that_would_bring_a_lost_row_back_without_its_lob_is_refused(shop: Shop, deletes: Deletes) -> None:
    shop.run(first_load(deletes), 10, [Row(id, INSERT, 10, notes=f"n{id}") for id in (1, 2, 3)])
    rows = [Row(1, UPDATE, 15, 11, keep=True), Row(2, UPDATE, 16, 12, keep=True), Row(3, DELETE, 17, keep=True)]
    shop.run(changes(10, 20, deletes), 20, rows)
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute('DELETE FROM shop.orders WHERE "Id" IN (1, 3)')
    replay = begin_replay(shop, replace(changes(14, 20, deletes), watermark=lsn(20)))
    shop.stage(replay, rows)
    with pytest.raises(OperatorError, match=r"1 rows are missing in shop.orders, .* value of Notes"):
        shop.merge(replay)
    assert set(shop.target()) == {2}
    whole = begin_replay(shop, replace(changes(10, 20, deletes), watermark=lsn(20)))
    shop.stage(whole, [Row(1, UPDATE, 15, 11, notes="n1"), *rows[1:]])
    shop.merge(whole)
    assert shop.target()[1] == (Decimal("11.00"), None, "n1")


@pytest.mark.parametrize("deletes", Deletes)
@pytest.mark.parametrize("outcome", [None, "discarded"])
def test_replay_leaves_out_a_row_of_which_quarantine_alone_has_a_newer_version(
    shop: Shop, deletes: Deletes, outcome: str | None
) -> None:
    """The target is lost, and the row breaks a rule since: no load brings it back, and the replay would never end."""
    shop.run(first_load(deletes), 10, [Row(id, INSERT, 10, notes=f"n{id}") for id in (1, 2, 3)])
    rows = [Row(1, UPDATE, 15, 11, keep=True), Row(2, UPDATE, 16, 12, keep=True)]
    shop.run(changes(10, 20, deletes), 20, rows)
    bad = [Row(1, UPDATE, 25, -1, keep=True), Row(3, UPDATE, 12, -3, keep=True)]
    shop.run(changes(20, 30, deletes, QUARANTINE[:1]), 30, bad)
    with psycopg.connect(shop.connection.conninfo()) as session:
        if outcome:
            session.execute("UPDATE floodmark.quarantine SET outcome = %s, settled_at = now()", [outcome])
        session.execute('DELETE FROM shop.orders WHERE "Id" IN (1, 3)')
    replay = begin_replay(shop, replace(changes(14, 20, deletes), watermark=lsn(30)))
    shop.stage(replay, rows)
    counts = shop.merge(replay)
    assert (counts.staged_rows, counts.unchanged_rows) == (1, 1)
    assert set(shop.target()) == {2}
    older = begin_replay(shop, replace(changes(10, 20, deletes), watermark=lsn(30)))
    shop.stage(older, [Row(3, UPDATE, 15, 3, keep=True)])  # quarantine has an older version of it
    with pytest.raises(OperatorError, match=r"1 rows are missing in shop.orders"):
        shop.merge(older)


def test_window_that_finds_a_row_missing_whose_lob_it_does_not_bring_says_so(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.run(first_load(), 10, [])
    shop.run(changes(10, 20), 20, [Row(1, UPDATE, 15, 11, keep=True), Row(2, INSERT, 16)])
    assert "1 rows are missing in shop.orders" in caplog.text
    assert "Such as at 0x" in caplog.text
    assert "floodmark reload shop dbo.Orders --where" in caplog.text


def begin_replay(shop: Shop, table: TablePlan) -> WindowPlan:
    assert table.interval is not None
    opened = shop.ledger.open_window("shop", table.interval.to, [table], lane=replay_lane(table.interval))
    plan = shop.ledger.begin_load(opened.window_id).plan
    shop.warehouse.prepare_window(plan)
    return plan


def test_rule_that_cannot_be_evaluated_names_itself(shop: Shop) -> None:
    rules = (Rule("ratio", '1 / ("Disc%" - 5) > 0', OnFailure.WARN),)
    plan = shop.begin(first_load(rules=rules), 10)
    shop.stage(plan, [Row(1, INSERT, 10, discount=5)])
    with pytest.raises(ConfigError, match=r"dbo\.Orders: one of its rules \(ratio\) .*DivisionByZero"):
        shop.merge(plan)


def test_rule_over_an_unknown_column_names_it(shop: Shop) -> None:
    plan = shop.begin(first_load(rules=(Rule("r", "Amont > 0", OnFailure.WARN),)), 10)
    with pytest.raises(ConfigError, match="rule r: there is no column Amont"):
        shop.merge(plan)


def test_value_on_which_a_rule_cannot_be_evaluated_is_in_no_log(shop: Shop) -> None:
    plan = shop.begin(first_load(rules=(Rule("r", "CAST(Notes AS INT) > 0", OnFailure.WARN),)), 10)
    shop.stage(plan, [Row(1, INSERT, 10, 5, notes="Smith")])
    with pytest.raises(ConfigError, match=r"one of its rules \(r\) cannot be evaluated on a value") as found:
        shop.merge(plan)
    assert "Smith" not in found.value.in_full


def test_target_is_widened_and_given_new_columns(shop: Shop) -> None:
    shop.run(first_load(), 10, [Row(1, INSERT, 10, 5)])
    columns = (
        SourceColumn("Id", "bigint", 1),
        SourceColumn("Amount", "decimal", 2, precision=20, scale=4),
        SourceColumn("Disc%", "smallint", 3),
        *instance().table.columns[3:],
        SourceColumn("Extra", "nvarchar", 6, 20),
    )
    shop.run(replace(changes(10, 20), feed=instance(columns)), 20, [])
    types = shop.rows(
        "SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute"
        " WHERE attrelid = 'shop.orders'::regclass AND attnum > 0"
    )
    found = {row["attname"]: row["type"] for row in types}
    assert (found["Id"], found["Amount"], found["Extra"]) == ("bigint", "numeric(20,4)", "character varying(20)")
    assert found["Disc%"] == "integer"


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ('CREATE TABLE shop.orders ("Id" int PRIMARY KEY)', "column __lsn is missing or not bytea"),
        (
            '{good}; ALTER TABLE shop.orders ALTER "Amount" TYPE uuid USING NULL',
            "Amount has type uuid, which cannot become",
        ),
        ("{good}; ALTER TABLE shop.orders DROP CONSTRAINT orders_pkey", r"column Id is not in both keys"),
        ("{good}; ALTER TABLE shop.orders ADD mine int NOT NULL", "column mine is NOT NULL, has no default"),
    ],
)
def test_target_of_another_shape_is_refused_by_column(shop: Shop, statement: str, words: str) -> None:
    shop.begin(first_load(), 10)
    with psycopg.connect(shop.connection.conninfo()) as session:
        if not statement.startswith("{good}"):
            session.execute("DROP TABLE shop.orders")
        session.execute(statement.removeprefix("{good}; "))
    with pytest.raises(
        ConfigError, match=rf"dbo\.Orders: the target shop\.orders exists with another shape: .*{words}"
    ):
        shop.warehouse.prepare_window(shop.ledger.read_window(1).plan)


def test_user_without_rights_on_the_database_can_load_into_a_schema_of_his(shop: Shop) -> None:
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute("DROP ROLE IF EXISTS loader")
        session.execute("CREATE ROLE loader LOGIN")
        session.execute("CREATE SCHEMA shop AUTHORIZATION loader")
        session.execute("GRANT ALL ON SCHEMA floodmark, floodmark_staging TO loader")
        session.execute("GRANT ALL ON ALL TABLES IN SCHEMA floodmark TO loader")
    connection = replace(shop.connection, user="loader")
    loader = Shop(connection, PostgresLedger(connection))
    loader.ledger.ensure_schema()
    loader.run(first_load(), 10, [Row(1, INSERT, 10)])
    loader.run(changes(10, 20), 20, [Row(2, INSERT, 15)])
    assert set(loader.target()) == {1, 2}


def test_right_that_is_missing_is_asked_for(shop: Shop) -> None:
    shop.run(first_load(), 10, [Row(1, INSERT, 10)])
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute("DROP ROLE IF EXISTS stranger")
        session.execute("CREATE ROLE stranger LOGIN")
    stranger = PostgresLedger(replace(shop.connection, user="stranger"))
    with pytest.raises(WarehouseAdminError, match=r"permission denied for .*Grant the right"):
        stranger.read_tables("shop")


def test_target_may_have_columns_of_its_own(shop: Shop) -> None:
    shop.run(first_load(), 10, [Row(1, INSERT, 10)])
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute("ALTER TABLE shop.orders ADD mine int NOT NULL DEFAULT 7")
    shop.run(changes(10, 20), 20, [Row(2, INSERT, 15)])
    assert shop.rows("SELECT mine FROM shop.orders") == [{"mine": 7}, {"mine": 7}]
