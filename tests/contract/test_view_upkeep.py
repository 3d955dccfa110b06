"""The view of a target through changes of its columns, its name and its setting: what it keeps, and what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pytest
from small_replay import Pipeline
from small_source import SmallSource
from two_tables import ITEMS, PairRunner, pair
from warehouse_shop import COLUMNS, DELETE, INSERT, ORDERS, PIPELINE, Row, Shop, changes, first_load, instance

from cdc_database import wait_until
from floodmark.core.errors import FloodmarkError, TableRefusedError, TargetRefusedError
from floodmark.core.plan import TablePlan
from floodmark.core.schema import SourceColumn, TableName
from floodmark.core.settings import Deletes
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection

COMMENT = "The rows that the source has not deleted. Kept by Floodmark (live_view)."
WIDER = (COLUMNS[0], replace(COLUMNS[1], precision=20), *COLUMNS[2:])
LONGER = (*COLUMNS, SourceColumn("Extra", "nvarchar", 6, 20))
SHOWN = {"Id": "integer", "Amount": "numeric(18,2)", "Disc%": "integer", "Notes": "text"}


@dataclass
class ViewedShop:
    """A target with a view, and one row that is not deleted."""

    shop: Shop
    to: int = 10

    def __post_init__(self) -> None:
        self.execute("CREATE SCHEMA shop", "DROP ROLE IF EXISTS anna", "DROP ROLE IF EXISTS bert")
        self.execute("CREATE ROLE anna", "CREATE ROLE bert", "GRANT ALL ON SCHEMA shop TO anna, bert")
        rows = [Row(1, INSERT, 10, 1), Row(2, DELETE, 10, 2)]
        self.shop.run(self._viewed(first_load()), self.to, rows)

    def run(self, columns: tuple[SourceColumn, ...] = COLUMNS, **chosen: Any) -> None:
        """Run a window whose capture instance has these columns."""
        planned = replace(changes(self.to, self.to + 10), feed=instance(columns))
        self.shop.run(self._viewed(planned, **chosen), self.to + 10, [])
        self.to += 10

    def refused(self, words: str, columns: tuple[SourceColumn, ...] = COLUMNS, **chosen: Any) -> None:
        """Check that a window is refused and changes nothing, and give it up."""
        before = self.state()
        planned = self._viewed(replace(changes(self.to, self.to + 10), feed=instance(columns)), **chosen)
        with pytest.raises(FloodmarkError, match=words):
            self.shop.begin(planned, self.to + 10)
        assert self.state() == before
        with psycopg.connect(self.shop.connection.conninfo()) as session:
            session.execute("DELETE FROM floodmark.windows WHERE state = 'planned'")

    def _viewed(self, table: TablePlan, **chosen: Any) -> TablePlan:
        return replace(table, settings=replace(table.settings, **{"live_view": True} | chosen))

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.shop.connection.conninfo(), autocommit=True) as session:
            for statement in statements:
                session.execute(statement)

    def state(self) -> list[dict[str, Any]]:
        """Return all relations of the schema, with what a view may have lost."""
        return self.shop.rows(
            "SELECT c.oid::int, c.relname, pg_get_userbyid(c.relowner) AS owner, c.relacl::text, c.reloptions,"
            " obj_description(c.oid, 'pg_class') AS comment FROM pg_class c"
            " WHERE c.relnamespace = 'shop'::regnamespace ORDER BY c.relname"
        )

    def view(self, name: str = "orders_live") -> dict[str, Any]:
        (found,) = [each for each in self.state() if each["relname"] == name]
        return found

    def columns(self) -> dict[str, str]:
        found = self.shop.rows(
            "SELECT attname, format_type(atttypid, atttypmod) AS type FROM pg_attribute"
            " WHERE attrelid = 'shop.orders_live'::regclass AND attnum > 0 ORDER BY attnum"
        )
        return {row["attname"]: row["type"] for row in found}

    def ids(self) -> list[int]:
        return [row["Id"] for row in self.shop.rows("SELECT * FROM shop.orders_live")]


@pytest.fixture
def shop(database: WarehouseConnection, ledger: PostgresLedger) -> ViewedShop:
    return ViewedShop(Shop(database, ledger))


def test_view_shows_the_rows_and_columns_of_the_source_and_is_left_as_it_is(shop: ViewedShop) -> None:
    assert (shop.columns(), shop.ids(), shop.view()["comment"]) == (SHOWN, [1], COMMENT)
    before = shop.view()
    shop.run()
    assert shop.view() == before


def test_view_gets_an_added_column_and_keeps_those_that_use_it(shop: ViewedShop) -> None:
    shop.execute(
        "CREATE VIEW shop.report AS SELECT * FROM shop.orders_live",
        "ALTER VIEW shop.orders_live SET (security_barrier = true)",
        "GRANT SELECT ON shop.orders_live TO anna",
    )
    before = shop.view()
    shop.run(LONGER)
    assert shop.columns() == SHOWN | {"Extra": "character varying(20)"}
    assert (shop.view(), shop.ids()) == (before, [1])


def test_view_of_a_widened_column_is_made_again_with_all_that_it_had(shop: ViewedShop) -> None:
    """The privileges that every new relation gets here do not come to it."""
    shop.execute(
        "ALTER VIEW shop.orders_live SET (security_barrier = true, security_invoker = true)",
        f"COMMENT ON VIEW shop.orders_live IS 'Anna''s. {COMMENT}'",
        """COMMENT ON COLUMN shop.orders_live."Disc%" IS 'in percent'""",
        "GRANT SELECT ON shop.orders_live TO PUBLIC",
        "GRANT SELECT, UPDATE ON shop.orders_live TO bert WITH GRANT OPTION",
        'GRANT INSERT ("Id", "Disc%") ON shop.orders_live TO bert',
        "ALTER VIEW shop.orders_live OWNER TO anna",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA shop GRANT DELETE ON TABLES TO bert, PUBLIC",
    )
    before, granted = shop.view(), shop.shop.rows(GRANTED)
    shop.run(WIDER)
    after = shop.view()
    assert shop.columns() == SHOWN | {"Amount": "numeric(20,2)"}
    assert after.pop("oid") != before.pop("oid")
    assert sorted(after.pop("relacl").strip("{}").split(",")) == sorted(before.pop("relacl").strip("{}").split(","))
    assert (after, shop.shop.rows(GRANTED), shop.ids()) == (before, granted, [1])
    assert granted == [{"attname": "Disc%", "acl": "{bert=a/anna}", "comment": "in percent"}, *granted[1:]]


GRANTED = (
    "SELECT attname, attacl::text AS acl, col_description(attrelid, attnum) AS comment FROM pg_attribute"
    " WHERE attrelid = 'shop.orders_live'::regclass AND attacl IS NOT NULL ORDER BY attname"
)


def test_view_without_privileges_gets_none_when_it_is_made_again(shop: ViewedShop) -> None:
    shop.execute("ALTER DEFAULT PRIVILEGES IN SCHEMA shop GRANT SELECT ON TABLES TO PUBLIC")
    shop.run(WIDER)
    assert "=r/" not in shop.view()["relacl"].replace("postgres=", "")
    assert shop.columns()["Amount"] == "numeric(20,2)"


def test_readers_of_the_target_go_on_while_a_new_column_waits_for_one_of_its_view(shop: ViewedShop) -> None:
    """A reader locks the view and then the target. A run in the other order would wait for it and be waited for."""
    conninfo = shop.shop.connection.conninfo()
    waiting = "SELECT relation::regclass::text AS relation FROM pg_locks WHERE NOT granted AND locktype = 'relation'"
    with psycopg.connect(conninfo) as user, ThreadPoolExecutor(1) as pool:
        user.execute(f"COMMENT ON VIEW shop.orders_live IS '{COMMENT}'")
        run = pool.submit(shop.run, LONGER)
        wait_until(lambda: shop.shop.rows(waiting) == [{"relation": "shop.orders_live"}])
        shop.execute("SET lock_timeout = 1000", "SELECT FROM shop.orders")
        user.rollback()
        run.result(30)
    assert "Extra" in shop.columns()


@pytest.mark.parametrize(
    ("user", "name", "undo"),
    [
        ("CREATE VIEW shop.report AS SELECT 1 FROM shop.orders_live", r"shop\.report", "DROP VIEW shop.report"),
        (
            "CREATE MATERIALIZED VIEW shop.report AS SELECT * FROM shop.orders_live",
            r"shop\.report",
            "DROP MATERIALIZED VIEW shop.report",
        ),
        (
            "CREATE FUNCTION shop.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
            "CREATE TRIGGER asked INSTEAD OF INSERT ON shop.orders_live FOR EACH ROW EXECUTE FUNCTION shop.f()",
            r"trigger asked on view shop\.orders_live",
            "DROP TRIGGER asked ON shop.orders_live",
        ),
        (
            "CREATE RULE kept AS ON INSERT TO shop.orders_live DO INSTEAD NOTHING",
            r"rule kept on view shop\.orders_live",
            "DROP RULE kept ON shop.orders_live",
        ),
        (
            "CREATE FUNCTION shop.g(shop.orders_live[]) RETURNS int LANGUAGE sql AS 'SELECT 1'",
            r"function shop\.g\(shop\.orders_live\[\]\)",
            "DROP FUNCTION shop.g",
        ),
    ],
    ids=["view", "materialized view", "trigger", "rule", "row type"],
)
@pytest.mark.parametrize("is_off", [False, True], ids=["widened", "off"])
def test_view_that_others_use_is_not_dropped_and_they_are_named(
    shop: ViewedShop, user: str, name: str, undo: str, is_off: bool
) -> None:
    shop.execute(user)
    chosen: dict[str, Any] = {"live_view": False} if is_off else {"columns": WIDER}
    problem = "cannot be dropped" if is_off else r"cannot be made again for the new columns of shop\.orders"
    hint = "or set live_view again" if is_off else "run the pipeline, and create them again; no row is lost meanwhile"
    words = rf"dbo\.Orders: the view shop\.orders_live {problem}: other objects use it: {name}\. Drop them, {hint}\."
    shop.refused(words, **chosen)
    shop.execute(undo)
    shop.run(**chosen)
    assert shop.shop.exists("shop.orders_live") is not is_off


def test_view_of_an_owner_who_may_not_have_it_again_stays(shop: ViewedShop) -> None:
    shop.execute(
        "DROP ROLE IF EXISTS loader",
        "CREATE ROLE loader LOGIN",
        "ALTER SCHEMA shop OWNER TO loader",
        "ALTER TABLE shop.orders OWNER TO loader",
        "GRANT ALL ON SCHEMA floodmark, floodmark_staging TO loader",
        "GRANT ALL ON ALL TABLES IN SCHEMA floodmark TO loader",
        "ALTER VIEW shop.orders_live OWNER TO anna",
    )
    connection = replace(shop.shop.connection, user="loader")
    shop.shop = Shop(connection, PostgresLedger(connection))
    words = r"the view shop\.orders_live has to follow .* made again for its owner anna\."
    shop.refused(words, WIDER)
    shop.refused(words, LONGER)
    shop.shop = Shop(replace(connection, user="postgres"), PostgresLedger(replace(connection, user="postgres")))
    shop.execute("GRANT anna TO loader", "REVOKE CREATE ON SCHEMA shop FROM anna")
    shop.shop = Shop(connection, PostgresLedger(connection))
    shop.refused(words, WIDER)
    shop.execute("GRANT CREATE ON SCHEMA shop TO anna")
    shop.shop = Shop(connection, PostgresLedger(connection))
    shop.run(WIDER)
    assert (shop.view()["owner"], shop.columns()["Amount"]) == ("anna", "numeric(20,2)")


@pytest.mark.parametrize(
    ("other", "kind"),
    [
        ("CREATE VIEW shop.orders_live AS SELECT 1 AS mine", "a view of this name that Floodmark did not make"),
        ("CREATE TABLE shop.orders_live (mine int)", "a table"),
        ("CREATE MATERIALIZED VIEW shop.orders_live AS SELECT 1 AS mine", "a materialized view"),
        ("CREATE SEQUENCE shop.orders_live", "a sequence"),
        ("CREATE TYPE shop.orders_live AS (mine int)", "a type"),
        ("CREATE TYPE shop.orders_live AS ENUM ('mine')", "a type or relation"),
    ],
)
def test_relation_that_has_the_name_of_the_view_is_refused_and_stays(shop: ViewedShop, other: str, kind: str) -> None:
    shop.run(live_view=False)
    assert not shop.shop.exists("shop.orders_live")
    shop.execute(other)
    shop.refused(rf"dbo\.Orders: the view shop\.orders_live cannot be made: there is {kind}")
    before = shop.state()
    shop.run(live_view=False)
    assert shop.state() == before


def test_view_that_lost_its_comment_is_refused_until_it_gets_it_again(shop: ViewedShop) -> None:
    shop.execute("COMMENT ON VIEW shop.orders_live IS 'ours'")
    words = r"""COMMENT ON VIEW "shop"\."orders_live" IS 'The rows .*\(live_view\)\.';"""
    shop.refused(words)
    shop.execute(f"COMMENT ON VIEW shop.orders_live IS 'ours. {COMMENT}'")
    shop.run(WIDER)
    assert shop.view()["comment"] == f"ours. {COMMENT}"


def test_view_follows_a_target_that_was_renamed(shop: ViewedShop) -> None:
    shop.execute(
        "CREATE SCHEMA sales",
        "ALTER TABLE shop.orders SET SCHEMA sales",
        "ALTER TABLE sales.orders RENAME TO purchases",
        "CREATE VIEW shop.report AS SELECT * FROM shop.orders_live",
    )
    target = TableName("sales", "purchases")
    shop.shop.ledger.rename_target(PIPELINE, ORDERS, target)
    before = shop.view()["oid"]
    shop.run(target=target)
    assert not shop.shop.exists("shop.orders_live")
    assert shop.shop.rows("SELECT 'sales.purchases_live'::regclass::oid::int AS oid") == [{"oid": before}]
    shop.run(LONGER, target=target)
    (row,) = shop.shop.rows('SELECT "Id", "Extra" FROM sales.purchases_live')
    assert row == {"Id": 1, "Extra": None}


def loaded(shop: Shop, **chosen: Any) -> Pipeline:
    source = SmallSource()
    for key in (1, 2, 3):
        source.write(key, key * 10)
    pipeline = Pipeline(shop, source)
    pipeline.run(**chosen)
    return pipeline


def keys(shop: Shop) -> list[int]:
    return [row["Id"] for row in shop.rows('SELECT "Id" FROM shop.orders_live ORDER BY 1')]


def execute(shop: Shop, statement: str) -> None:
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute(statement)


def test_view_of_a_target_that_was_put_aside_reads_the_one_that_a_reload_made(
    database: WarehouseConnection, ledger: PostgresLedger
) -> None:
    pipeline = loaded(Shop(database, ledger), live_view=True)
    execute(pipeline.shop, "ALTER TABLE shop.orders RENAME TO orders_old")
    pipeline.source.write(2, None)
    pipeline.reload(live_view=True)
    assert keys(pipeline.shop) == [1, 3]
    execute(pipeline.shop, "DROP TABLE shop.orders_old")


def test_view_that_went_with_its_target_comes_back_with_a_reload(
    database: WarehouseConnection, ledger: PostgresLedger
) -> None:
    pipeline = loaded(Shop(database, ledger), live_view=True)
    execute(pipeline.shop, "DROP TABLE shop.orders CASCADE")
    pipeline.reload(live_view=True)
    assert keys(pipeline.shop) == [1, 2, 3]


@pytest.mark.parametrize("deletes", Deletes)
def test_view_of_a_loaded_table_is_made_and_dropped_by_the_next_window_and_not_by_a_replay(
    database: WarehouseConnection, ledger: PostgresLedger, deletes: Deletes
) -> None:
    pipeline = loaded(Shop(database, ledger), deletes=deletes)
    after = pipeline.source.position
    pipeline.source.write(2, None)
    pipeline.run(deletes=deletes)
    pipeline.replay(after, pipeline.source.position, deletes=deletes, live_view=True)
    assert not pipeline.shop.exists("shop.orders_live")
    pipeline.source.write(4, 40)
    pipeline.run(deletes=deletes, live_view=True)
    pipeline.replay(after, pipeline.source.position, deletes=deletes)
    assert keys(pipeline.shop) == [1, 3, 4]
    pipeline.source.write(5, 50)
    pipeline.run(deletes=deletes)
    assert not pipeline.shop.exists("shop.orders_live")
    assert pipeline.equal()


def test_table_whose_view_is_refused_does_not_stop_the_others(
    database: WarehouseConnection, ledger: PostgresLedger
) -> None:
    runner = PairRunner(Shop(database, ledger))
    runner.run()
    execute(runner.shop, "CREATE TABLE shop.items_live (mine int)")
    runner.source.write(ITEMS, 2, 30)
    runner.source.write(ORDERS, 1, 11)
    both = pair({"live_view": True}, {"live_view": True})
    with pytest.raises(TableRefusedError, match=r"dbo\.Items: refused: the view shop\.items_live cannot be made"):
        runner.run(both)
    assert runner.equal(ORDERS)
    assert keys(runner.shop) == [1, 2, 3]
    assert runner.verdicts()["Items"] == "refused"
    execute(runner.shop, "DROP TABLE shop.items_live")
    runner.source.write(ORDERS, 1, 12)
    runner.run(both)
    assert runner.equal(ITEMS)
    assert runner.shop.exists("shop.items_live")


def test_view_that_cannot_be_made_for_want_of_a_right_is_refused_by_its_table(
    database: WarehouseConnection, ledger: PostgresLedger
) -> None:
    shop = ViewedShop(Shop(database, ledger))
    shop.run(live_view=False)
    shop.execute(
        "DROP ROLE IF EXISTS loader",
        "CREATE ROLE loader LOGIN",
        "GRANT USAGE ON SCHEMA shop TO loader",
        "ALTER TABLE shop.orders OWNER TO loader",
        "GRANT ALL ON SCHEMA floodmark, floodmark_staging TO loader",
        "GRANT ALL ON ALL TABLES IN SCHEMA floodmark TO loader",
    )
    connection = replace(database, user="loader")
    shop.shop = Shop(connection, PostgresLedger(connection))
    planned = changes(shop.to, shop.to + 10)
    planned = replace(planned, settings=replace(planned.settings, live_view=True))
    with pytest.raises(TargetRefusedError, match=r"dbo\.Orders: the warehouse refused .* permission denied for schema"):
        shop.shop.begin(planned, shop.to + 10)
