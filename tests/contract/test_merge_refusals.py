"""Rows that the target refuses, with messages that say who has to do what. On a real PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import psycopg
import pytest
from warehouse_shop import COLUMNS, DELETE, INSERT, ORDERS, UPDATE, Row, Shop, changes, first_load, instance

from floodmark.core.errors import (
    DataQualityError,
    DuplicateKeyError,
    TargetRefusedError,
    WarehouseAdminError,
    WarehouseUnavailableError,
)
from floodmark.core.plan import TablePlan, staging_table
from floodmark.core.schema import SourceColumn, TableName, quote_table
from floodmark.core.settings import Deletes, OnFailure, Rule
from floodmark.core.snapshot import Feed
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse import targets, warehouse
from floodmark.postgres.warehouse.gate import TEXT_RULE
from floodmark.sync.ports import StagedRows
from lsns import lsn
from table_plans import with_settings


@pytest.fixture
def shop(database: WarehouseConnection, ledger: PostgresLedger) -> Shop:
    return Shop(database, ledger)


def _change(shop: Shop, statement: str) -> None:
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute(statement)


def test_key_twice_in_staging_is_no_other_constraint_where_postgres_shortened_the_primary_keys_name(
    shop: Shop,
) -> None:
    table = with_settings(first_load(), target=TableName("shop", "o" * 63))
    plan = shop.begin(table, 10)
    shop.stage(plan, [Row(1, INSERT, 10), Row(1, INSERT, 10)])
    with pytest.raises(DuplicateKeyError, match=r"dbo\.Orders: duplicate key in staging\.$") as raised:
        shop.merge(plan)
    assert raised.value.detail == f"such as at {lsn(10)}"
    assert shop.warehouse.drop_duplicates(plan, 0) == 1
    assert shop.merge(plan).inserted_rows == 1


def test_not_null_that_a_user_put_on_a_column_is_named_and_no_row_is_shown(shop: Shop) -> None:
    shop.run(first_load(), 10, [Row(1, INSERT, 10, 1, notes="n")])
    _change(shop, 'ALTER TABLE shop.orders ALTER "Notes" SET NOT NULL, ADD CHECK ("Amount" < 100)')
    plan = shop.begin(changes(10, 20), 20)
    shop.stage(plan, [Row(2, INSERT, 11, 77)])
    with pytest.raises(WarehouseAdminError, match=r"column Notes of shop\.orders is NOT NULL") as found:
        shop.merge(plan)
    assert "77" not in str(found.value)
    _change(shop, f'UPDATE {quote_table(staging_table(plan, 0))} SET "Notes" = \'n\', "Amount" = 777')
    with pytest.raises(WarehouseAdminError, match=r"constraint orders_Amount_check of shop\.orders rejected") as found:
        shop.merge(plan)
    assert "777" not in str(found.value)


def _null_key(shop: Shop, op: int, *, nullable: bool) -> None:
    columns = (replace(COLUMNS[0], nullable=nullable), *COLUMNS[1:])
    plan = shop.begin(replace(changes(10, 20), feed=instance(columns)), 20)
    part = shop.stage_part(plan, [Row(2, INSERT, 11, 2), Row(cast(int, None), op, 12, 3)])
    counts = shop.warehouse.merge_window(plan, {ORDERS: StagedRows(2, 2, (part,))})[ORDERS]
    is_dropped = op == DELETE
    assert (counts.staged_rows, counts.inserted_rows) == (1 if is_dropped else 2, 1)
    assert (counts.quarantined_rows, counts.unchanged_rows) == (0 if is_dropped else 1, 0)
    assert sorted(shop.target()) == [1, 2]


@pytest.mark.parametrize("op", [INSERT, UPDATE, DELETE])
def test_row_without_a_key_is_set_aside_and_its_delete_dropped(shop: Shop, op: int) -> None:
    shop.run(first_load(), 10, [Row(1, INSERT, 10, 1)])
    _null_key(shop, op, nullable=True)


def test_null_in_a_key_that_has_none_is_reported_by_its_column(shop: Shop) -> None:
    shop.run(first_load(), 10, [Row(1, INSERT, 10, 1)])
    with pytest.raises(DataQualityError, match=r"dbo\.Orders: column Id of its key is NULL in rows of the window"):
        _null_key(shop, INSERT, nullable=False)


@pytest.mark.parametrize("deletes", Deletes)
@pytest.mark.parametrize("nullable", ["", "Disc%"])
def test_delete_whose_key_has_null_in_a_column_without_null_is_refused(
    shop: Shop, deletes: Deletes, nullable: str
) -> None:
    columns = tuple(replace(column, nullable=column.name == nullable) for column in COLUMNS)
    feed = instance(columns, ("Id", "Disc%", "Amount"))
    shop.run(replace(first_load(deletes), feed=feed), 10, [Row(1, INSERT, 10, 1, 5), Row(1, INSERT, 10, 2, 5)])
    with pytest.raises(DataQualityError, match=r"no key: Amount is NULL .* Reload the table") as found:
        shop.run(replace(changes(10, 20, deletes), feed=feed), 20, [Row(1, DELETE, 15, None, 5)])
    assert "5" not in str(found.value)
    assert shop.rows("SELECT count(*) FROM shop.orders WHERE NOT __deleted") == [{"count": 2}]


def test_null_in_a_delete_is_not_the_last_value_of_a_column_without_null(shop: Shop) -> None:
    columns = tuple(replace(column, nullable=column.name == "Disc%") for column in COLUMNS)
    feed = instance(columns)
    shop.run(replace(first_load(), feed=feed), 10, [Row(id, INSERT, 10, 7, 5) for id in (1, 2)])
    rows = [Row(1, DELETE, 15, None, None), Row(2, DELETE, 16, 8, 6), Row(3, DELETE, 17, None, None)]
    shop.run(replace(changes(10, 20), feed=feed), 20, rows)
    assert shop.rows('SELECT "Id", "Amount"::int, "Disc%" FROM shop.orders WHERE __deleted ORDER BY 1') == [
        {"Id": 1, "Amount": 7, "Disc%": None},
        {"Id": 2, "Amount": 8, "Disc%": 6},
        {"Id": 3, "Amount": None, "Disc%": None},
    ]


def _wider() -> TablePlan:
    columns = (COLUMNS[0], replace(COLUMNS[1], precision=20), *COLUMNS[2:])
    return replace(changes(10, 20), feed=instance(columns))


def test_longer_char_in_the_key_needs_all_rows(shop: Shop) -> None:
    def padded(length: int) -> Feed:
        return instance((*COLUMNS[:3], SourceColumn("Notes", "char", 4, length)), ("Notes",))

    shop.run(replace(first_load(), feed=padded(4)), 10, [])
    longer = replace(changes(10, 20), feed=padded(6))
    words = r"dbo\.Orders: column Notes of the key is char\(6\) now, and was character varying\(4\): .*Reload"
    with pytest.raises(TargetRefusedError, match=words):
        shop.begin(longer, 20)
    shop.warehouse.prepare_window(
        replace(shop.ledger.read_window(2).plan, tables=(replace(first_load(), feed=padded(6)),))
    )


def test_view_on_a_column_that_must_be_widened_is_named(shop: Shop) -> None:
    shop.run(first_load(), 10, [Row(1, INSERT, 10, 1)])
    _change(shop, 'CREATE VIEW shop.big AS SELECT "Id" FROM shop.orders WHERE "Amount" > 9')
    _change(shop, 'CREATE VIEW shop.ids AS SELECT "Id" FROM shop.orders')
    words = r"dbo\.Orders: column Amount of shop\.orders cannot become numeric\(20,2\): views use it: shop\.big\. Drop"
    with pytest.raises(WarehouseAdminError, match=words):
        shop.begin(_wider(), 20)
    _change(shop, "DROP VIEW shop.big")
    shop.warehouse.prepare_window(shop.ledger.read_window(2).plan)


def test_what_else_keeps_a_column_from_being_widened_is_said_in_the_warehouses_words(shop: Shop) -> None:
    shop.run(first_load(), 10, [Row(1, INSERT, 10, 1)])
    _change(shop, 'ALTER TABLE shop.orders ADD double numeric GENERATED ALWAYS AS ("Amount" * 2) STORED')
    with pytest.raises(
        WarehouseAdminError, match=r"cannot become .*: cannot alter type of a column used by a generated"
    ):
        shop.begin(_wider(), 20)


def test_widening_gives_way_to_a_reader_that_does_not_end(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warehouse, "LOCK_SECONDS", 0.5)
    shop.run(first_load(), 10, [Row(1, INSERT, 10, 1)])
    with psycopg.connect(shop.connection.conninfo(), application_name="psql") as reader:
        reader.execute("SELECT FROM shop.orders")
        with pytest.raises(TargetRefusedError, match=rf"locked .* 0\.5 s by session {reader.info.backend_pid} \(user"):
            shop.begin(_wider(), 20)


@pytest.mark.parametrize(
    ("rule", "way_out"),
    [
        (Rule("small", "amount < 100", OnFailure.QUARANTINE), "on_failure: warn"),
        (Rule(TEXT_RULE, "amount < 100", OnFailure.QUARANTINE), "unstorable: replace"),
    ],
)
def test_row_that_quarantine_cannot_hold_is_refused_by_its_rule_and_merged_once_it_is_good(
    shop: Shop, rule: Rule, way_out: str
) -> None:
    """A value of jsonb has a limit of 255 MB, a text of 1 GB."""
    shop.run(first_load(), 10, [])
    plan = shop.begin(changes(10, 20, rules=(rule,)), 20)
    shop.stage(plan, [Row(1, INSERT, 20, 500)])
    longer = f"""UPDATE {quote_table(staging_table(plan, 0))} SET "Notes" = repeat('x', 270000000)"""
    _change(shop, longer)
    with pytest.raises(DataQualityError, match=f"broke rule {rule.name}, and is too large for quarantine") as found:
        shop.merge(plan)
    assert way_out in found.value.hint
    _change(shop, f"""UPDATE {quote_table(staging_table(plan, 0))} SET "Amount" = 5""")
    assert shop.merge(plan).inserted_rows == 1
    assert shop.rows('SELECT length("Notes") AS n FROM shop.orders') == [{"n": 270_000_000}]


def test_locked_row_is_waited_for_no_longer_than_the_limit_and_the_session_is_named(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine it takes a second until the session that asks who blocks is open.
    monkeypatch.setattr(targets, "MERGE_LOCK_SECONDS", 3.0)
    shop.run(first_load(), 10, [Row(1, INSERT, 10, 1)])
    plan = shop.begin(changes(10, 20), 20)
    shop.stage(plan, [Row(1, UPDATE, 11, 987_654_321)])
    with psycopg.connect(shop.connection.conninfo(), application_name="editor") as blocking:
        blocking.execute("SELECT FROM shop.orders FOR UPDATE")
        with pytest.raises(TargetRefusedError) as found:
            shop.merge(plan)
        pid, user = blocking.info.backend_pid, shop.connection.user
    words = f"for more than 3 s by session {pid} (user {user}, application editor, in a transaction since 20"
    assert found.value.message.startswith(f"shop.orders or rows of it were locked {words}")
    assert "987654321" not in found.value.in_full
    assert shop.merge(plan).updated_rows == 1


def test_replay_that_meets_a_locked_row_is_retried(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "MERGE_LOCK_SECONDS", 0.2)
    shop.run(first_load(), 10, [Row(1, INSERT, 10, 1)])
    plan = replace(shop.begin(changes(10, 20), 20), lane="reload:dbo.Orders")
    shop.stage(plan, [Row(1, UPDATE, 11, 77)])
    with psycopg.connect(shop.connection.conninfo()) as blocking:
        blocking.execute("SELECT FROM shop.orders FOR UPDATE")
        with pytest.raises(WarehouseUnavailableError, match="or rows of it were locked"):
            shop.merge(plan)
