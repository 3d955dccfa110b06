"""Settings of the warehouse's role or database that are not the defaults, and databases of another encoding."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from warehouse_shop import INSERT, ORDERS, PIPELINE, UPDATE, Row, Shop, changes, first_load, staged_batch

from embedded_postgres.server import EmbeddedPostgres
from floodmark.core.errors import TargetRefusedError, WarehouseAdminError
from floodmark.core.plan import LoadKind, TablePlan, WindowPlan, plan_chunks
from floodmark.core.settings import OnFailure, Rule
from floodmark.core.snapshot import Validity, Verdict
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection, open_session, read_access
from floodmark.postgres.url import sqlalchemy_url
from floodmark.quality.great_expectations import GreatExpectationsQuality
from floodmark.sync.sessions import kept_sessions

SETTINGS = (
    "client_encoding = 'LATIN1'",
    "standard_conforming_strings = off",
    "array_nulls = off",
    "quote_all_identifiers = on",
    "DateStyle = 'SQL, DMY'",
    "IntervalStyle = iso_8601",
    "default_transaction_isolation = serializable",
)
LIMITS = (
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
)
RULES = (Rule("text", r"notes <> 'a\'", OnFailure.WARN),)


def merge(shop: Shop, table: TablePlan, to: int, rows: list[Row]) -> WindowPlan:
    """Merge a window whose rows go through the sink, as a worker writes them."""
    plan = shop.begin(table, to)
    if table.kind is LoadKind.FIRST_LOAD:
        shop.ledger.store_chunks(plan, ORDERS, plan_chunks([]))
    shop.warehouse.sink(plan, 0).write(0, iter([staged_batch(rows)]))
    shop.merge(plan)
    return plan


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_setting_of_the_database_changes_nothing(database: WarehouseConnection, tmp_path: Path, setting: str) -> None:
    with psycopg.connect(database.conninfo(), autocommit=True) as session:
        session.execute(f"ALTER DATABASE warehouse_test SET {setting}".encode())
    ledger = PostgresLedger(database)
    ledger.ensure_schema()
    ledger.record_verdicts(PIPELINE, [Validity(ORDERS, Verdict.NOT_STARTED, "", "")])
    shop = Shop(database, ledger)
    quality = GreatExpectationsQuality(sqlalchemy_url(database), shop.warehouse.open_rows, tmp_path)
    for table, to, rows in (
        (first_load(rules=RULES), 10, [Row(1, INSERT, 10, 1, notes="Müller"), Row(2, INSERT, 10, 2, notes="b")]),
        (changes(10, 20, rules=RULES), 20, [Row(2, UPDATE, 11, 22, notes="数"), Row(3, INSERT, 12, 3)]),
    ):
        plan = merge(shop, table, to, rows)
        assert quality.check_window(plan, ledger.read_counts(plan.window_id)) == {}
        shop.finish(plan)
    with psycopg.connect(database.conninfo()) as session:
        found = session.execute('SELECT "Id", "Notes", length("Notes") FROM shop.orders ORDER BY 1').fetchall()
    assert found == [(1, "Müller", 6), (2, "数", 1), (3, None, None)]
    assert set(ledger.read_tables(PIPELINE)) == {ORDERS}


def test_float_keys_that_differ_in_the_last_digit_are_two_in_tombstones(database: WarehouseConnection) -> None:
    with psycopg.connect(database.conninfo(), autocommit=True) as session:
        session.execute("ALTER DATABASE warehouse_test SET extra_float_digits = 0")
    with open_session(database) as session:
        row = session.execute(
            "SELECT jsonb_build_array(0.1::float8) = jsonb_build_array(0.1::float8 + 2e-17::float8)"
        ).fetchone()
    assert row == (False,)


def test_limits_of_the_role_end_no_statement_of_a_run(shop: Shop) -> None:
    with psycopg.connect(shop.connection.conninfo(), autocommit=True) as session:
        for limit in LIMITS:
            session.execute(f"ALTER DATABASE warehouse_test SET {limit} = '5s'".encode())
        session.execute("ALTER DATABASE warehouse_test SET statement_timeout = '1s'")
    with open_session(shop.connection) as session:
        shown = [session.execute("SELECT current_setting(%s)", [limit]).fetchone() for limit in LIMITS]
    assert shown == [("0",)] * len(LIMITS)
    plan = shop.begin(first_load(), 10)
    shop.stage(plan, [Row(1, INSERT, 10, 1)])
    with psycopg.connect(shop.connection.conninfo(), autocommit=True) as session:
        session.execute(
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1.2); RETURN NEW; END'"
        )
        session.execute("CREATE TRIGGER wait BEFORE INSERT ON shop.orders FOR EACH ROW EXECUTE FUNCTION wait()")
    # In a session of its own: the one that is kept is older than the limits.
    assert contextvars.Context().run(shop.merge, plan).inserted_rows == 1


def test_statement_that_is_canceled_refuses_its_table_and_has_advice(shop: Shop) -> None:
    plan = shop.begin(first_load(), 10)
    shop.stage(plan, [Row(1, INSERT, 10, 1)])
    with psycopg.connect(shop.connection.conninfo(), autocommit=True) as session:
        session.execute(
            "CREATE FUNCTION cancel() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN PERFORM pg_cancel_backend(pg_backend_pid()); PERFORM pg_sleep(60); END'"
        )
        session.execute("CREATE TRIGGER cancel BEFORE INSERT ON shop.orders FOR EACH ROW EXECUTE FUNCTION cancel()")
    words = r"dbo\.Orders: the warehouse canceled a statement about shop\.orders\. .* no statement_timeout"
    with pytest.raises(TargetRefusedError, match=words):
        shop.merge(plan)


@pytest.fixture
def shop(database: WarehouseConnection, ledger: PostgresLedger) -> Shop:
    return Shop(database, ledger)


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
def other_encoding(postgres: EmbeddedPostgres, request: pytest.FixtureRequest) -> Iterator[WarehouseConnection]:
    with psycopg.connect(postgres.conninfo(), autocommit=True) as session:
        session.execute(f"CREATE DATABASE other_encoding ENCODING '{request.param}' LOCALE 'C' TEMPLATE template0")
        with kept_sessions():
            yield WarehouseConnection(str(postgres.socket_dir), 5432, "other_encoding", "postgres")
        session.execute("DROP DATABASE other_encoding WITH (FORCE)")


def test_database_of_another_encoding_gets_no_ledger(other_encoding: WarehouseConnection) -> None:
    words = r"warehouse: its database has the encoding (LATIN1|SQL_ASCII), not UTF8\. Create a database"
    with pytest.raises(WarehouseAdminError, match=words):
        PostgresLedger(other_encoding).ensure_schema()
    with psycopg.connect(other_encoding.conninfo()) as session:
        assert session.execute("SELECT to_regnamespace('floodmark')").fetchone() == (None,)
    assert read_access(other_encoding, []).encoding in {"LATIN1", "SQL_ASCII"}
