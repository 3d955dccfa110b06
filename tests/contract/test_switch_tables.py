"""Switches of capture instances where the table is in use, spelled otherwise, restored elsewhere, or not the login's to
change."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.errors import TableHeldError
from floodmark.core.schema import TableName
from floodmark.core.settings import DriftClass
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.cdc.doctor import ReadTable, build_grants
from floodmark.sources.cdc.operations import SqlServerDriftSource
from floodmark.sources.cdc.source import SqlServerSource

PASSWORD = "Under2026!"

pytestmark = pytest.mark.usefixtures("ledger")


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int)",
            "INSERT INTO dbo.Orders VALUES (1, 10), (2, 20), (3, 30)",
        )
        made.enable("Orders")
        yield made


@pytest.fixture
def rig(emulator: Emulator, source: CdcDatabase, database: WarehouseConnection) -> SwitchRig:
    made = SwitchRig(emulator, source, database)
    made.run()
    return made


def propose(rig: SwitchRig) -> None:
    rig.change("ALTER TABLE dbo.Orders ADD Note nvarchar(20) NULL", "UPDATE dbo.Orders SET Amount = 11, Note = N'x'")
    for name in rig.tables:
        rig.run(name)


def switch_pipeline(rig: SwitchRig) -> str:
    """Once the second instance is there. What is said in the end."""
    rig.change("UPDATE dbo.Orders SET Amount = 12, Note = N'y' WHERE Id = 2")
    for name in rig.tables:
        rig.run(name)
    rig.switches.take()
    for name in rig.tables:
        rig.finish(rig.load_planner(name).open_pending())
    (said,) = rig.switches.take()
    return said


@contextlib.contextmanager
def used(emulator: Emulator, database: CdcDatabase, statement: str) -> Iterator[None]:
    """Use the source in an open transaction of another user."""
    with emulator.connect_pymssql(database.name, autocommit=True) as other, other.cursor() as cursor:
        cursor.execute(f"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN TRAN; {statement}")
        yield
        cursor.execute("ROLLBACK")


def test_table_in_use_is_left_alone_after_a_short_wait_and_changed_by_a_later_run(
    rig: SwitchRig, emulator: Emulator
) -> None:
    propose(rig)
    rig.approve()
    with used(emulator, rig.database, "UPDATE dbo.Orders SET Amount = 0"):
        (said,) = rig.switches.take()
    assert "dbo_Orders_2 could not be created yet: " in said
    assert "The next run of the drift DAG tries again." in said
    assert rig.instances() == ["dbo_Orders"]
    assert rig.alerts.open == {}
    rig.switches.take()
    assert rig.instances() == ["dbo_Orders", "dbo_Orders_2"]
    with used(emulator, rig.database, "SELECT * FROM cdc.dbo_Orders_CT"):
        assert "dbo_Orders could not be dropped yet: " in switch_pipeline(rig)
    assert rig.switches.take()[0].endswith("done; dbo_Orders was dropped.")
    assert rig.instances() == ["dbo_Orders_2"]
    assert rig.differing() == []


def test_login_without_the_right_learns_what_a_db_owner_has_to_run(rig: SwitchRig) -> None:
    propose(rig)
    rig.approve()
    name = f"reader_{rig.database.name}"
    rig.database.run(f"CREATE LOGIN {name} WITH PASSWORD = '{PASSWORD}'", f"CREATE USER {name} FOR LOGIN {name}")
    try:
        rig.dba = replace(rig.at, user=name, password=PASSWORD)
        (making,) = refused(rig)
        use = f"USE [{rig.database.name}]; "
        assert making.startswith(
            f"{use}EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'Orders',"
        )
        rig.database.run(making)
        rig.switches.take()
        assert rig.alerts.open == {}
        switch_pipeline(rig)
        (dropping,) = refused(rig)
        assert dropping.startswith(
            f"{use}EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'Orders',"
        )
        rig.database.run(dropping)
        assert rig.switches.take()[0].endswith("done; dbo_Orders was dropped.")
        assert rig.instances() == ["dbo_Orders_2"]
        assert rig.alerts.open == {}
    finally:
        rig.database.run(f"DROP USER {name}", f"DROP LOGIN {name}")


def test_new_column_arrives_with_the_recommended_login_and_a_dba_who_runs_what_is_proposed(rig: SwitchRig) -> None:
    """The login has the rights that ``floodmark doctor --grants`` prints, and no others."""
    name, use = f"reader_{rig.database.name}", f"USE [{rig.database.name}]"
    rig.database.run(f"CREATE LOGIN {name} WITH PASSWORD = '{PASSWORD}'")
    try:
        run_as_dba(rig, build_grants(rig.database.name, name, [ReadTable(ORDERS, "dbo_Orders")], {}))
        rig.at = rig.dba = replace(rig.at, user=name, password=PASSWORD)
        propose(rig)
        ((_, proposal),) = rig.switches.list_proposed()
        assert proposal.text.startswith(f"{use};\nEXEC sys.sp_cdc_enable_table")
        assert f"\nGRANT SELECT ON [cdc].[dbo_Orders_2_CT] TO [{name}];" in proposal.text
        (drift,) = rig.alerts.open.values()
        assert "have a db_owner run the T-SQL below" in drift.do
        # The DBA runs all of it, but forgets the grant. The first instance stays.
        run_as_dba(rig, "\n".join(line for line in proposal.text.splitlines() if not line.startswith("GRANT")))
        assert rig.instances() == ["dbo_Orders", "dbo_Orders_2"]
        rig.approve()
        rig.database.scan()
        (said,) = rig.switches.take()
        assert "the login may not read the change table of dbo_Orders_2." in said
        assert "no longer exists" not in said
        (blocked,) = rig.alerts.open.values()
        run_as_dba(rig, blocked.do.split("Have a db_owner run this: ")[1].split(" The drift DAG")[0])
        rig.switches.take()
        assert rig.alerts.open == {}
        switch_pipeline(rig)
        assert rig.rows('SELECT "Id", "Note" FROM shop.orders ORDER BY 1') == [(1, "x"), (2, "y"), (3, "x")]
        (dropping,) = refused(rig)
        (blocked,) = rig.alerts.open.values()
        assert blocked.means.startswith("Nothing is missing in the target: Note is loaded")
        run_as_dba(rig, dropping)
        assert rig.switches.take()[0].endswith("done; dbo_Orders was dropped.")
        assert (rig.alerts.open, rig.instances(), rig.differing()) == ({}, ["dbo_Orders_2"], [])
    finally:
        rig.database.run(use, f"DROP USER {name}", f"USE msdb; DROP USER {name}")
        rig.database.run(use, f"DROP LOGIN {name}")


def run_as_dba(rig: SwitchRig, script: str) -> None:
    """Run a script as a DBA does who is connected to another database."""
    rig.database.run("USE master", script, f"USE [{rig.database.name}]")


def refused(rig: SwitchRig) -> list[str]:
    """The statements that the alert gives to a person."""
    (said,) = rig.switches.take()
    assert "22904" in said
    return [
        alert.do.split("Have a db_owner run this: ")[1].split(" The drift DAG")[0]
        for alert in rig.alerts.open.values()
        if alert.kind == "instance_switch"
    ]


def test_pipelines_that_spell_the_table_in_other_case_go_over_and_leave_no_instance_behind(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection
) -> None:
    rig = SwitchRig(
        emulator,
        source,
        database,
        "shop",
        "copy",
        spelled={"shop": TableName("dbo", "orders"), "copy": TableName("DBO", "ORDERS")},
    )
    rig.run()
    rig.run("copy")
    propose(rig)
    (event,) = rig.drift.list_events("shop")
    assert (event.table, sorted(event.policies)) == (ORDERS, ["copy", "shop"])
    rig.approve()
    assert rig.switches.list_proposed() == []
    assert rig.alerts.open == {}
    rig.switches.take()
    assert rig.instances() == ["dbo_Orders", "dbo_Orders_2"]
    assert switch_pipeline(rig).endswith("done; dbo_Orders was dropped.")
    assert rig.instances() == ["dbo_Orders_2"]
    for name in rig.tables:
        assert rig.rows(f'SELECT "Id", "Note" FROM {name}.orders ORDER BY 1') == [(1, "x"), (2, "y"), (3, "x")]
    assert rig.differing() == []


@pytest.mark.parametrize("closely", [True, False])
def test_drift_is_one_event_however_many_pipelines_spell_the_table_otherwise_and_holds_each_of_them(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection, closely: bool
) -> None:
    spelled = {"shop": TableName("dbo", "orders"), "copy": TableName("DBO", "ORDERS")}
    rig = SwitchRig(emulator, source, database, "shop", "copy", spelled=spelled)

    def check() -> None:
        if closely:
            rig.watch_closely()
        else:
            for name in rig.tables:
                with contextlib.suppress(TableHeldError):
                    rig.open(name)

    for name in rig.tables:
        rig.run(name)
    rig.change("ALTER TABLE dbo.Orders ALTER COLUMN Amount smallint")
    check()
    (event,) = rig.drift.list_events("shop")
    assert (event.table, event.held, len(rig.alerts.open)) == (ORDERS, ("copy", "shop"), 1)
    assert {name: list(rig.drift.list_holds(name)) for name in spelled} == {k: [v] for k, v in spelled.items()}
    rig.drift.release("copy", spelled["copy"], "operator")
    assert [bool(rig.drift.list_holds(name)) for name in ("shop", "copy")] == [True, False]
    rig.change("DROP TABLE dbo.Orders")
    check()
    assert [event.explained.difference.kind for event in rig.drift.list_events("shop")] == [
        DriftClass.TYPE_NARROWED,
        DriftClass.TABLE_DROPPED,
    ]
    assert all(rig.drift.list_holds(name) for name in spelled)


def test_one_check_of_the_source_serves_all_pipelines_that_read_the_same(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []

    def counted(kind: type[Any], name: str) -> None:
        method = getattr(kind, name)

        def counting(*arguments: Any) -> Any:
            reads.append(name)
            return method(*arguments)

        monkeypatch.setattr(kind, name, counting)

    rig = SwitchRig(emulator, source, database, "shop", "copy")
    rig.run()
    rig.run("copy")
    rig.change("ALTER TABLE dbo.Orders ADD Note int NULL")
    counted(SqlServerSource, "read_snapshot")
    counted(SqlServerDriftSource, "read_drift")
    rig.watch_closely()
    assert reads == ["read_snapshot", "read_drift"]
    (event,) = rig.drift.list_events("shop")
    assert sorted(event.policies) == ["copy", "shop"]
    reads.clear()
    with psycopg.connect(database.conninfo()) as session:
        session.execute("UPDATE floodmark.tables SET instance_name = 'dbo_Orders_2' WHERE pipeline = 'copy'")
    rig.database.enable("Orders", capture_instance="N'dbo_Orders_2'")
    rig.watch_closely()
    assert reads == ["read_snapshot", "read_drift"] * 2


def test_instance_that_is_gone_is_to_be_made_by_the_name_that_is_read(rig: SwitchRig) -> None:
    propose(rig)
    rig.approve()
    rig.switches.take()
    switch_pipeline(rig)
    rig.database.run("EXEC sys.sp_cdc_disable_table N'dbo', N'Orders', N'dbo_Orders_2'")
    rig.database.enable("Orders")
    with pytest.raises(Exception, match="held"):
        rig.run()
    ((cause, hint),) = rig.rows("SELECT cause, hint FROM floodmark.verdicts")
    assert "capture instance dbo_Orders_2 " in cause
    assert "floodmark drift approve" in hint
    (alert,) = [alert for alert in rig.alerts.open.values() if "no longer exists" in alert.what]
    assert "with the name of the dropped instance" in alert.do
    event = next(
        each for each in rig.drift.list_events("shop") if each.explained.difference.kind is DriftClass.CDC_DISABLED
    )
    rig.drift.approve(event.event_id, "operator")
    with pytest.raises(Exception, match="the table has dbo_Orders, but not the capture instance dbo_Orders_2") as error:
        rig.run()
    assert "@capture_instance = N'dbo_Orders_2'" in str(error.value)


def test_copies_of_a_database_at_two_sources_are_switched_each_for_itself(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection
) -> None:
    rig = SwitchRig(emulator, source, database, elsewhere=["other"])
    # As a restored copy has it: the same names, object ids and dates.
    copy = SwitchRig(emulator, source, database, "other", source_name="copy", elsewhere=["shop"])
    rig.run()
    propose(rig)
    copy.run("other")
    copy.watch_closely()
    ((event, proposal),) = copy.switches.list_proposed()
    assert (event.source, event.table, proposal.added) == ("copy", ORDERS, ("Note",))
    rig.approve()
    assert [each.event_id for each, _ in copy.switches.list_proposed()] == [event.event_id]
    rig.switches.take()
    assert switch_pipeline(rig).endswith("done; dbo_Orders was dropped.")
