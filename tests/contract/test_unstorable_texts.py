"""Texts that PostgreSQL cannot store, from the sink to the target, in windows and in first loads."""

from __future__ import annotations

import json
from collections.abc import Iterable

import psycopg
import pytest
from warehouse_shop import DELETE, INSERT, ORDERS, UPDATE, Row, Shop, changes, first_load, staged_batch

from floodmark.core.errors import DataQualityError
from floodmark.core.plan import LoadKind, TableCounts, TablePlan, plan_chunks, staging_table
from floodmark.core.schema import quote_table
from floodmark.core.settings import Deletes, UnstorablePolicy
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.verify import PostgresRowComparer
from lsns import lsn
from table_plans import with_settings

NUL = "secret\0text"
both_kinds = pytest.mark.parametrize("kind", LoadKind)


@pytest.fixture
def shop(database: WarehouseConnection, ledger: PostgresLedger) -> Shop:
    return Shop(database, ledger)


def run(shop: Shop, table: TablePlan, to: int, rows: Iterable[Row]) -> TableCounts:
    """Run a window whose rows go through the sink, as a worker writes them."""
    plan = shop.begin(table, to)
    if table.kind is LoadKind.FIRST_LOAD:
        shop.ledger.store_chunks(plan, ORDERS, plan_chunks([]))
    shop.warehouse.sink(plan, 0).write(0, iter([staged_batch(rows)]))
    counts = shop.merge(plan)
    shop.finish(plan)
    return counts


def window(shop: Shop, kind: LoadKind, policy: UnstorablePolicy) -> TablePlan:
    """Return a window up to 20 of either kind."""
    if kind is LoadKind.FIRST_LOAD:
        return with_settings(first_load(), unstorable=policy)
    run(shop, first_load(), 10, [Row(9, INSERT, 10, 9, notes="old")])
    return with_settings(changes(10, 20), unstorable=policy)


@both_kinds
def test_row_goes_to_quarantine_with_key_column_and_reason_and_the_others_are_merged(
    shop: Shop, kind: LoadKind
) -> None:
    table = window(shop, kind, UnstorablePolicy.QUARANTINE)
    counts = run(shop, table, 20, [Row(1, INSERT, 11, 1, notes=NUL), Row(2, INSERT, 12, 2, notes="fine")])
    assert (counts.staged_rows, counts.quarantined_rows, counts.inserted_rows) == (2, 1, 1)
    assert set(shop.target()) - {9} == {2}
    (found,) = shop.rows("SELECT rule, key, row_data FROM floodmark.quarantine")
    assert (found["rule"], found["key"]) == ("text_can_be_stored", [1])
    assert json.loads(found["row_data"]["__unstorable"]) == {"Notes": "U+0000"}


@both_kinds
def test_replaced_text_is_merged(shop: Shop, kind: LoadKind) -> None:
    table = window(shop, kind, UnstorablePolicy.REPLACE)
    counts = run(shop, table, 20, [Row(1, INSERT, 11, 1, notes=NUL)])
    assert (counts.quarantined_rows, shop.target()[1][2]) == (0, "secret\ufffdtext")


@both_kinds
def test_policy_fail_merges_nothing_and_shows_no_value(shop: Shop, kind: LoadKind) -> None:
    table = window(shop, kind, UnstorablePolicy.FAIL)
    with pytest.raises(
        DataQualityError, match=r"dbo\.Orders: texts cannot be stored in PostgreSQL: Notes \(U\+0000\)"
    ) as e:
        run(shop, table, 20, [Row(1, INSERT, 11, 1, notes=NUL)])
    assert "secret" not in e.value.in_full


def test_row_that_was_corrected_is_merged_over_the_quarantined_one(shop: Shop) -> None:
    table = window(shop, LoadKind.CHANGES, UnstorablePolicy.QUARANTINE)
    run(shop, table, 20, [Row(9, UPDATE, 11, 1, notes=NUL)])
    assert shop.target()[9][2] == "old"
    run(shop, changes(20, 30), 30, [Row(9, UPDATE, 21, 2, notes="new")])
    assert shop.target()[9][2] == "new"


@pytest.mark.parametrize("policy", [UnstorablePolicy.QUARANTINE, UnstorablePolicy.REPLACE])
def test_change_that_leaves_the_text_out_is_as_unstorable_as_the_text(shop: Shop, policy: UnstorablePolicy) -> None:
    run(shop, window(shop, LoadKind.CHANGES, UnstorablePolicy.QUARANTINE), 20, [Row(9, UPDATE, 11, 1, notes=NUL)])
    table = with_settings(changes(20, 30), unstorable=policy)
    counts = run(shop, table, 30, [Row(9, UPDATE, 21, 2, keep=True)])
    is_replaced = policy is UnstorablePolicy.REPLACE
    assert counts.quarantined_rows == (0 if is_replaced else 1)
    assert shop.target()[9][2] == ("secret\ufffdtext" if is_replaced else "old")


@pytest.mark.parametrize("deletes", Deletes)
@pytest.mark.parametrize("policy", UnstorablePolicy)
def test_deleted_row_leaves_the_target_whatever_its_last_text_was(
    shop: Shop, deletes: Deletes, policy: UnstorablePolicy
) -> None:
    run(shop, first_load(deletes), 10, [Row(9, INSERT, 10, 9, notes="old")])
    table = with_settings(changes(10, 20, deletes), unstorable=policy)
    counts = run(shop, table, 20, [Row(9, DELETE, 11, 1, notes=NUL)])
    assert (counts.deleted_rows, counts.quarantined_rows, shop.target()) == (1, 0, {})


def test_delete_of_a_key_that_cannot_be_stored_is_dropped(shop: Shop) -> None:
    run(shop, first_load(), 10, [Row(9, INSERT, 10, 9)])
    plan = shop.begin(changes(10, 20), 20)
    shop.stage(plan, [Row(9, DELETE, 11)])
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute(f'UPDATE {quote_table(staging_table(plan, 0))} SET __unstorable = \'{{"Id": "U+0000"}}\'')
    counts = shop.merge(plan)
    assert (counts.staged_rows, counts.deleted_rows, set(shop.target())) == (0, 0, {9})


def test_verification_names_the_row_that_is_in_quarantine(shop: Shop) -> None:
    table = window(shop, LoadKind.FIRST_LOAD, UnstorablePolicy.QUARANTINE)
    rows = [Row(1, INSERT, 11, 1, notes=NUL), Row(2, INSERT, 12, 2, notes="fine")]
    run(shop, table, 20, rows)
    values = staged_batch(rows).select(["Id", "Amount", "Disc%", "Notes"])
    found = PostgresRowComparer(shop.connection).compare_rows(table, [values])
    assert (found.waiting_rows, found.missing_rows, found.different_rows, found.extra_rows) == (1, 0, 0, 0)


def test_window_of_an_unstorable_text_ends_at_the_lsn_of_the_others(shop: Shop) -> None:
    run(shop, window(shop, LoadKind.CHANGES, UnstorablePolicy.QUARANTINE), 20, [Row(1, INSERT, 11, 1, notes=NUL)])
    assert shop.ledger.read_tables("shop")[ORDERS].watermark == lsn(20)
