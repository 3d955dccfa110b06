"""The checks between merge and advance, on a real PostgreSQL."""

from __future__ import annotations

import dataclasses
import html
import logging
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psycopg
import pytest

from floodmark.core.errors import (
    ConfigError,
    DataQualityError,
    FloodmarkError,
    TargetRefusedError,
    WarehouseUnavailableError,
    WatermarkConflictError,
)
from floodmark.core.plan import LoadKind, TableCounts, TablePlan, WindowPlan, staging_table
from floodmark.core.schema import SourceColumn, SourceTable, TableName, quote, quote_table
from floodmark.core.settings import Deletes, OnFailure, Rule, TableSettings
from floodmark.core.snapshot import Feed, FeedIdentity
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.url import sqlalchemy_url
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.quality import checks
from floodmark.quality.great_expectations import GreatExpectationsQuality
from lsns import lsn
from table_plans import with_settings

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
ROWS = 10
PASSWORD = "a$b@c%20:/secret"
ORDERS, LINES = TableName("dbo", "Orders"), TableName("dbo", "OrderLines")
NOT_NEGATIVE = Rule("amount_not_negative", "amount >= 0", OnFailure.QUARANTINE)


def table_plan(source: TableName, target: str, columns: dict[str, str], key: tuple[str, ...]) -> TablePlan:
    captured = tuple(
        SourceColumn(name, kind, ordinal + 1, precision=18, scale=2)
        for ordinal, (name, kind) in enumerate(columns.items())
    )
    instance = Feed(
        FeedIdentity(f"dbo_{source.name}", 1, datetime(2026, 1, 1)),
        SourceTable(source, captured, key),
        lsn(1),
        supports_net_changes=False,
        has_command_id=True,
    )
    return TablePlan(
        TableSettings(source, TableName("shop", target)),
        LoadKind.FIRST_LOAD,
        instance,
        None,
        None,
    )


TABLES = (
    table_plan(ORDERS, "orders", {"OrderID": "bigint", "Amount": "decimal"}, ("OrderID",)),
    table_plan(LINES, "order_lines", {"OrderID": "bigint", "Line Number": "int"}, ("OrderID", "Line Number")),
)
FLOODMARK_COLUMNS = "__lsn bytea, __op smallint, __window_id bigint, __loaded_at timestamptz, __deleted boolean"


def run(at: WarehouseConnection, sql: str) -> None:
    with psycopg.connect(at.conninfo(), autocommit=True) as connection:
        connection.execute(sql.encode())


@pytest.fixture
def warehouse(database: WarehouseConnection) -> WarehouseConnection:
    """Reached with a password full of characters that mean something in a URL."""
    return dataclasses.replace(database, password=PASSWORD)


@pytest.fixture
def plan(warehouse: WarehouseConnection, ledger: PostgresLedger) -> WindowPlan:
    """A merged window of ten new orders and ten lines, before anything is wrong with it."""
    run(warehouse, "CREATE SCHEMA shop")
    opened = ledger.begin_load(ledger.open_window("shop", lsn(9), TABLES).window_id).plan
    run(warehouse, f'CREATE TABLE shop.orders ("OrderID" bigint, "Amount" numeric(18,2), {FLOODMARK_COLUMNS})')
    run(warehouse, f'CREATE TABLE shop.order_lines ("OrderID" bigint, "Line Number" int, {FLOODMARK_COLUMNS})')
    own = rf"'\x{lsn(9).value.hex()}', 2, {opened.window_id}, now(), false FROM generate_series(1, {ROWS}) AS i"
    run(warehouse, f"INSERT INTO shop.orders SELECT i, i * 10, {own}")
    run(warehouse, f"INSERT INTO shop.order_lines SELECT i / 2, i % 2, {own}")
    for index, table in enumerate(opened.tables):
        staging = quote_table(staging_table(opened, index))
        run(warehouse, f"CREATE TABLE {staging} AS SELECT * FROM {quote_table(table.target)}")
    return opened


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return tmp_path / "docs"


def counts(quarantined_orders: int = 0) -> dict[TableName, TableCounts]:
    return {
        ORDERS: TableCounts(read_rows=ROWS, staged_rows=ROWS, quarantined_rows=quarantined_orders),
        LINES: TableCounts(read_rows=ROWS, staged_rows=ROWS),
    }


def with_rules(plan: WindowPlan, *rules: Rule) -> WindowPlan:
    return dataclasses.replace(plan, tables=(with_settings(plan.tables[0], rules=rules), *plan.tables[1:]))


class RaisingQuality(GreatExpectationsQuality):
    """Raises the error about the first table that fails."""

    def check_window(
        self, plan: WindowPlan, counts: Mapping[TableName, TableCounts]
    ) -> Mapping[TableName, FloodmarkError]:
        errors = super().check_window(plan, counts)
        for error in errors.values():
            raise error
        return errors


def quality_of(
    warehouse: Any, docs: Path, kind: type[GreatExpectationsQuality] = RaisingQuality, **chosen: Any
) -> GreatExpectationsQuality:
    return kind(sqlalchemy_url(warehouse), PostgresWarehouse(warehouse).open_rows, docs, **chosen)


def test_a_window_that_is_merged_as_counted_passes(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path
) -> None:
    quality_of(warehouse, docs).check_window(with_rules(plan, NOT_NEGATIVE), counts())
    index = (docs / "index.html").read_text(encoding="utf-8")
    assert index.count(">passed<") == 4
    [page] = set(re.findall(r'href="([^"]+)"', index))
    text = (docs / unquote(page)).read_text(encoding="utf-8")
    assert "staging holds the 10 rows" in text
    assert "(rule amount_not_negative, on failure quarantine)" in text


def test_the_report_holds_no_password(warehouse: WarehouseConnection, plan: WindowPlan, docs: Path) -> None:
    quality_of(warehouse, docs).check_window(plan, counts())
    texts = [path.read_bytes() for path in docs.rglob("*") if path.is_file()]
    assert texts
    assert not [text for text in texts if b"secret" in text]


def test_a_staged_row_that_the_target_lacks_fails(warehouse: WarehouseConnection, plan: WindowPlan, docs: Path) -> None:
    run(warehouse, 'DELETE FROM shop.orders WHERE "OrderID" = 4')
    with pytest.raises(DataQualityError, match=r"dbo\.Orders: every_staged_row_merged: .* found 1 row against it"):
        quality_of(warehouse, docs).check_window(plan, counts())
    assert ">failed<" in (docs / "index.html").read_text(encoding="utf-8")


def test_rows_in_quarantine_are_missing_from_staging(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path
) -> None:
    run(warehouse, 'DELETE FROM shop.orders WHERE "OrderID" = 4')
    run(warehouse, f'DELETE FROM {quote_table(staging_table(plan, 0))} WHERE "OrderID" = 4')
    quality_of(warehouse, docs).check_window(plan, counts(quarantined_orders=1))
    with pytest.raises(DataQualityError, match="staged_row_count"):
        quality_of(warehouse, docs).check_window(plan, counts())


def test_a_row_older_than_the_staged_one_fails(warehouse: WarehouseConnection, plan: WindowPlan, docs: Path) -> None:
    run(warehouse, rf"""UPDATE shop.orders SET __lsn = '\x{lsn(8).value.hex()}' WHERE "OrderID" IN (5, 6)""")
    with pytest.raises(DataQualityError, match=r"every_staged_row_merged.*found 2 rows"):
        quality_of(warehouse, docs).check_window(plan, counts())


@pytest.mark.parametrize(("tombstone", "passes"), [(10, True), (8, False)])
def test_with_hard_deletes_a_row_may_be_missing_when_a_later_delete_took_it(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path, tombstone: int, passes: bool
) -> None:
    hard = dataclasses.replace(plan, tables=tuple(with_settings(table, deletes=Deletes.HARD) for table in plan.tables))
    run(warehouse, 'DELETE FROM shop.order_lines WHERE ("OrderID", "Line Number") = (2, 1)')
    run(
        warehouse,
        "INSERT INTO floodmark.tombstones (target_schema, target_name, key, lsn) "
        rf"VALUES ('shop', 'order_lines', '[2, 1]', '\x{lsn(tombstone).value.hex()}')",
    )
    quality = quality_of(warehouse, docs)
    if passes:
        quality.check_window(hard, counts())
    else:
        with pytest.raises(DataQualityError, match=r"dbo\.OrderLines: every_staged_row_merged"):
            quality.check_window(hard, counts())


def test_a_staged_delete_of_a_row_that_never_arrived_passes(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path
) -> None:
    run(warehouse, 'DELETE FROM shop.orders WHERE "OrderID" = 7')
    run(warehouse, f'UPDATE {quote_table(staging_table(plan, 0))} SET __op = 1 WHERE "OrderID" = 7')
    quality_of(warehouse, docs).check_window(plan, counts())


def test_staging_with_another_number_of_rows_than_the_ledger_counted_fails(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path
) -> None:
    run(warehouse, f'DELETE FROM {quote_table(staging_table(plan, 0))} WHERE "OrderID" = 1')
    with pytest.raises(DataQualityError, match=r"staged_row_count: expected that staging holds the 10 rows.*found 9"):
        quality_of(warehouse, docs).check_window(plan, counts())


def test_a_key_that_occurs_twice_fails_for_a_composite_key_too(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path
) -> None:
    run(warehouse, 'INSERT INTO shop.order_lines SELECT * FROM shop.order_lines WHERE "OrderID" = 3 LIMIT 1')
    run(warehouse, 'INSERT INTO shop.orders SELECT * FROM shop.orders WHERE "OrderID" = 3')
    errors = quality_of(warehouse, docs, GreatExpectationsQuality).check_window(plan, counts())
    assert "shop.orders: key_unique" in str(errors[ORDERS])
    message = "shop.order_lines: key_unique: expected that no two rows share the key (OrderID, Line Number)"
    assert message in str(errors[LINES])


def test_tables_that_fail_are_named_one_by_one_and_the_others_pass(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path
) -> None:
    quality = quality_of(warehouse, docs, GreatExpectationsQuality)
    run(warehouse, 'UPDATE shop.orders SET "Amount" = -1 WHERE "OrderID" = 2')
    errors = quality.check_window(with_rules(plan, NOT_NEGATIVE), counts())
    assert [(table, type(error), error.subject) for table, error in errors.items()] == [
        (ORDERS, DataQualityError, "dbo.Orders")
    ]
    nonsense = Rule("nonsense", "no_such_function(amount) > 0", OnFailure.STOP)
    errors = quality.check_window(with_rules(plan, nonsense), counts())
    assert [(table, type(error)) for table, error in errors.items()] == [(ORDERS, ConfigError)]


def test_a_broken_rule_fails_or_warns_as_declared(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(warehouse, 'UPDATE shop.orders SET "Amount" = -1 WHERE "OrderID" = 2')
    quality = quality_of(warehouse, docs)
    quality.check_window(with_rules(plan, dataclasses.replace(NOT_NEGATIVE, on_failure=OnFailure.WARN)), counts())
    assert "shop.orders: amount_not_negative" in caplog.text
    assert ">warned<" in (docs / "index.html").read_text(encoding="utf-8")
    with pytest.raises(DataQualityError, match=r"^dbo\.Orders: shop\.orders: amount_not_negative.*the watermark"):
        quality.check_window(with_rules(plan, NOT_NEGATIVE), counts())


def test_a_rule_reads_this_window_and_living_rows_only_and_null_passes(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path
) -> None:
    run(warehouse, 'UPDATE shop.orders SET "Amount" = -1, __deleted = true WHERE "OrderID" = 1')
    run(warehouse, 'UPDATE shop.orders SET "Amount" = -1, __window_id = __window_id + 1 WHERE "OrderID" = 2')
    run(warehouse, 'UPDATE shop.orders SET "Amount" = NULL WHERE "OrderID" = 3')
    quality_of(warehouse, docs).check_window(with_rules(plan, NOT_NEGATIVE), counts())


def test_a_rule_may_hold_braces(warehouse: WarehouseConnection, plan: WindowPlan, docs: Path) -> None:
    braces = Rule("braces", "CAST(amount AS text) NOT LIKE '{%}'", OnFailure.STOP)
    quality_of(warehouse, docs).check_window(with_rules(plan, braces), counts())


def test_a_rule_that_cannot_be_evaluated_is_named(warehouse: WarehouseConnection, plan: WindowPlan, docs: Path) -> None:
    broken = Rule("nonsense", "no_such_function(amount) > 0", OnFailure.STOP)
    with pytest.raises(ConfigError, match="rule nonsense cannot be evaluated") as raised:
        quality_of(warehouse, docs).check_window(with_rules(plan, broken), counts())
    assert "no_such_function" in raised.value.detail


def test_late_rows_are_reported_and_do_not_stop_the_run(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(warehouse, "UPDATE floodmark.windows SET opened_at = now() - interval '2 hours'")
    quality_of(warehouse, docs, freshness_seconds=3600).check_window(plan, counts())
    assert "fresh: expected that rows are in the warehouse within 3600 seconds" in caplog.text


def test_the_report_keeps_as_many_windows_as_configured(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path
) -> None:
    quality = quality_of(warehouse, docs, GreatExpectationsQuality, kept_windows=3)
    quality.check_window(plan, counts(quarantined_orders=1))
    pages = links(docs)
    assert len(pages) == 4
    results = set((docs / ".stores" / "validation_results").rglob("*.json"))
    assert len(results) == 4
    for kept in (5, 6):
        quality.check_window(plan, counts())
        assert len(links(docs)) == kept
    quality.check_window(plan, counts())
    assert len(links(docs)) == 3
    assert (docs / "index.html").read_text(encoding="utf-8").count("<h2>") == 3
    assert not [path for path in (*pages, *results) if path.exists()]
    assert len(list((docs / ".stores" / "windows").iterdir())) == 3


def links(docs: Path) -> set[Path]:
    """The pages that the front page links to. All of them exist."""
    index = (docs / "index.html").read_text(encoding="utf-8")
    found = {docs / unquote(page) for page in re.findall(r'href="([^"]+)"', index)}
    assert all(page.is_file() for page in found)
    return found


def test_great_expectations_runs_only_for_a_window_with_findings(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def refuse(*_: object, **__: object) -> None:
        opened.append(1)
        raise ValueError("no context")

    monkeypatch.setattr(GreatExpectationsQuality, "_open_context", refuse)
    quality = quality_of(warehouse, docs)
    braces = Rule("braces", "CAST(amount AS text) NOT LIKE '{%:a%}'", OnFailure.STOP)
    quality.check_window(with_rules(plan, NOT_NEGATIVE, braces), counts())
    run(warehouse, 'UPDATE shop.orders SET "Amount" = -1 WHERE "OrderID" = 2')
    assert not opened
    with pytest.raises(DataQualityError, match="amount_not_negative"):
        quality.check_window(with_rules(plan, NOT_NEGATIVE), counts())
    assert opened


def test_report_that_cannot_be_written_stops_no_table(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    docs.write_text("a file in the place of the folder")
    run(warehouse, 'UPDATE shop.orders SET "Amount" = -1 WHERE "OrderID" = 2')
    quality = quality_of(warehouse, docs, GreatExpectationsQuality)
    errors = quality.check_window(with_rules(plan, NOT_NEGATIVE), counts())
    assert set(errors) == {ORDERS}
    assert "Read the report" not in str(errors[ORDERS])
    assert f"the report in {docs} was not written (FileExistsError" in caplog.text
    assert quality.check_window(plan, counts()) == {}


@pytest.mark.parametrize(
    "blocked",
    [".lock/", "index.html/", "static", "validations", "expectations", ".stores", ".stores/validation_results",
     ".stores/windows"],
)  # fmt: skip
def test_report_that_is_blocked_at_one_place_is_a_warning(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path, caplog: pytest.LogCaptureFixture, blocked: str
) -> None:
    """Great Expectations logs some failures with their traceback, and goes on."""
    place = docs / blocked
    if blocked.endswith("/"):
        (place / "in the way").mkdir(parents=True)
    else:
        place.parent.mkdir(parents=True)
        place.write_text("a file in the place of the folder")
    errors = quality_of(warehouse, docs, GreatExpectationsQuality).check_window(plan, counts(quarantined_orders=1))
    assert set(errors) == {ORDERS}
    assert f"the report in {docs} was not written" in caplog.text
    assert "Traceback" not in caplog.text
    assert all(record.levelno <= logging.WARNING for record in caplog.records)


NAMES = (r"A/R a\b", "Tax 5% a :b a::b", "{batch} ${HOME} #1?", '"x" <b>& Größe o\'clock')
TEXTS = ("':none'", "'%:a%'", r"'a\:b'", "'{}'", "'a::b'", "'$1 %s %%'", "CAST('x' AS text) || ':b'")


@pytest.mark.parametrize("name", NAMES)
def test_any_name_and_text_is_judged_and_reported_as_any_other(
    warehouse: WarehouseConnection, ledger: PostgresLedger, docs: Path, name: str
) -> None:
    """A finding of one table makes Great Expectations check all of them."""
    run(warehouse, "CREATE SCHEMA shop")
    columns = {name: "bigint", f"Qty. {name}": "decimal"}
    odd = table_plan(TableName("dbo", name), name, columns, (name,))
    note = Rule("note", f'"Qty. {name.replace(chr(34), chr(34) * 2)}" > 5', OnFailure.WARN)
    texts = (
        Rule(f"text{number}", f"CAST({quote(name)} AS text) <> {text}", OnFailure.STOP)
        for number, text in enumerate(TEXTS)
    )
    tables = (with_settings(odd, rules=(note, *texts)), TABLES[0])
    opened = ledger.begin_load(ledger.open_window("shop", lsn(9), tables).window_id).plan
    own = (
        rf"'\x{lsn(9).value.hex()}'::bytea AS __lsn, 2 AS __op, {opened.window_id} AS __window_id, now() AS __loaded_at"
    )
    for index, table in enumerate(opened.tables):
        key, amount = (quote(column.name) for column in table.feed.table.stored_columns)
        rows = f"SELECT i::bigint AS {key}, i::numeric AS {amount}, {own}, false AS __deleted"
        target, staging = quote_table(table.target), quote_table(staging_table(opened, index))
        run(warehouse, f"CREATE TABLE {target} AS {rows} FROM generate_series(1, {ROWS}) AS i")
        run(warehouse, f"CREATE TABLE {staging} AS SELECT * FROM {target}")
    counted = {table.source: TableCounts(read_rows=ROWS, staged_rows=ROWS) for table in tables}
    assert quality_of(warehouse, docs, GreatExpectationsQuality).check_window(opened, counted) == {}
    index_page = (docs / "index.html").read_text(encoding="utf-8")
    assert [index_page.count(f">{verdict}<") for verdict in ("passed", "warned", "failed")] == [3, 1, 0]
    assert f">{html.escape(f'shop.{name}.target')}<" in index_page
    assert len(links(docs)) == 4


def test_a_warehouse_that_does_not_answer_is_a_transient_error(plan: WindowPlan, docs: Path, tmp_path: Path) -> None:
    class Nowhere:
        def conninfo(self) -> str:
            return f"host={tmp_path} dbname=postgres"

    with pytest.raises(WarehouseUnavailableError):
        quality_of(Nowhere(), docs).check_window(plan, counts())


@pytest.mark.parametrize("loss", ["TRUNCATE", "DROP TABLE"])
def test_a_window_whose_staged_rows_are_gone_is_checked_in_the_target(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path, caplog: pytest.LogCaptureFixture, loss: str
) -> None:
    """A crash of the warehouse empties staging after the merge; another run that finished the window drops it."""
    for index in range(len(plan.tables)):
        run(warehouse, f"{loss} {quote_table(staging_table(plan, index))}")
    quality = quality_of(warehouse, docs)
    quality.check_window(with_rules(plan, NOT_NEGATIVE), counts() | {LINES: TableCounts()})
    assert "dbo.Orders: its staged rows are gone" in caplog.text
    run(warehouse, 'UPDATE shop.orders SET "Amount" = -1 WHERE "OrderID" = 2')
    with pytest.raises(DataQualityError, match="amount_not_negative"):
        quality.check_window(with_rules(plan, NOT_NEGATIVE), counts())


def test_another_run_that_finishes_the_window_meanwhile_is_known_by_its_staging_table(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path
) -> None:
    def dropping(table: str) -> GreatExpectationsQuality:
        def open_rows(*asked: Any) -> Any:
            opened = PostgresWarehouse(warehouse).open_rows(*asked)
            run(warehouse, f"DROP TABLE {table}")
            return opened

        return GreatExpectationsQuality(sqlalchemy_url(warehouse), open_rows, docs)

    errors = dropping("shop.orders").check_window(plan, counts())
    assert [(table, error.message) for table, error in errors.items()] == [
        (ORDERS, "check every_staged_row_merged cannot be evaluated (42P01).")
    ]
    with pytest.raises(WatermarkConflictError, match="another run has finished the window"):
        dropping(quote_table(staging_table(plan, 1))).check_window(plan, counts())


def test_rule_that_names_no_column_refuses_its_table_alone(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path
) -> None:
    unknown = with_rules(plan, Rule("unknown", "nothing > 0", OnFailure.STOP))
    errors = quality_of(warehouse, docs, GreatExpectationsQuality).check_window(unknown, counts())
    assert [(table, type(error)) for table, error in errors.items()] == [(ORDERS, ConfigError)]


def test_target_that_is_locked_refuses_its_table_alone(
    warehouse: WarehouseConnection, plan: WindowPlan, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LOCK_TIMEOUT_SECONDS", 1)
    with psycopg.connect(warehouse.conninfo()) as blocking:
        blocking.execute("LOCK TABLE shop.orders")
        errors = quality_of(warehouse, docs, GreatExpectationsQuality).check_window(plan, counts())
    assert [(table, type(error)) for table, error in errors.items()] == [(ORDERS, TargetRefusedError)]
    assert "for a lock on dbo.Orders" in str(errors[ORDERS])
    index = (docs / "index.html").read_text(encoding="utf-8")
    assert [index.count(f">{verdict}<") for verdict in ("passed", "failed")] == [2, 2]
