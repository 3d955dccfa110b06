"""Switches of capture instances on a running source and a real ledger: proposed, decided, carried out, interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.drift import SwitchState
from floodmark.core.errors import OperatorError, TableHeldError, WatermarkConflictError
from floodmark.core.plan import replay_lane
from floodmark.core.position import Lsn
from floodmark.core.settings import Backfill
from floodmark.postgres.session import WarehouseConnection

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


def add_column(rig: SwitchRig, declaration: str = "Note nvarchar(20) NULL") -> None:
    rig.change(f"ALTER TABLE dbo.Orders ADD {declaration}", "INSERT INTO dbo.Orders (Id, Amount) VALUES (4, 40)")
    rig.run()


def test_new_column_is_taken_along_and_nothing_is_lost_or_doubled(rig: SwitchRig) -> None:
    add_column(rig)
    rig.change("UPDATE dbo.Orders SET Note = N'before' WHERE Id = 2")
    rig.approve()
    assert rig.alerts.open == {}
    rig.switches.take()
    assert rig.instances() == ["dbo_Orders", "dbo_Orders_2"]
    rig.change("UPDATE dbo.Orders SET Note = N'after' WHERE Id = 3", "DELETE FROM dbo.Orders WHERE Id = 1")
    rig.run()
    (said,) = rig.switches.take()
    assert "shop reads dbo_Orders_2; window" in said
    rig.change("INSERT INTO dbo.Orders VALUES (5, 50, N'five')")
    rig.finish(rig.load_planner().open_pending())
    rig.run()
    (said,) = rig.switches.take()
    assert said.endswith("done; dbo_Orders was dropped.")
    assert rig.instances() == ["dbo_Orders_2"]
    assert rig.switches.take() == []
    assert rig.differing() == []
    assert rig.rows('SELECT "Id", "Note" FROM shop.orders WHERE NOT __deleted ORDER BY 1') == [
        (2, "before"),
        (3, "after"),
        (4, None),
        (5, "five"),
    ]


def test_pipeline_reads_the_first_instance_until_it_has_reached_the_start_of_the_second(rig: SwitchRig) -> None:
    add_column(rig)
    rig.approve()
    rig.switches.take()
    rig.database.scan()
    (said,) = rig.switches.take()
    assert "shop reads dbo_Orders up to" in said
    first = rig.pinned()
    assert first is not None
    assert first.name == "dbo_Orders"
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    opened = rig.open()
    (said,) = rig.switches.take()
    assert "shop reads dbo_Orders up to" in said
    rig.finish(opened)
    rig.switches.take()
    second = rig.pinned()
    assert second is not None
    assert second.name == "dbo_Orders_2"


def test_window_of_the_first_instance_cannot_be_opened_after_the_switch(rig: SwitchRig) -> None:
    add_column(rig)
    rig.approve()
    rig.switches.take()
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    plan = rig.ledger.read_window(rig.run().window_id or 0).plan
    rig.switches.take()
    tables = [replace(table, watermark=plan.to) for table in plan.tables]
    with pytest.raises(OperatorError, match="read from capture instance dbo_Orders_2 now, not dbo_Orders"):
        rig.ledger.open_window("shop", plan.to, tables, lane="replay x")


def test_switch_that_waits_for_a_window_says_which_command_finishes_it(rig: SwitchRig) -> None:
    add_column(rig)
    rig.approve()
    rig.switches.take()
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    plan = rig.ledger.read_window(rig.run().window_id or 0).plan
    interval = plan.tables[0].interval
    assert interval is not None
    tables = [replace(table, watermark=plan.to) for table in plan.tables]
    left = rig.ledger.open_window("shop", plan.to, tables, lane=replay_lane(interval))
    (said,) = rig.switches.take()
    command = f"floodmark replay shop --from-lsn {interval.first} --to-lsn {interval.to}"
    assert said.endswith(f"shop switches when window {left.window_id} ({command}) has been published.")


def test_run_that_read_the_first_instance_does_not_pass_over_changes_of_the_second(rig: SwitchRig) -> None:
    add_column(rig)
    rig.approve()
    rig.switches.take()
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.run()
    first, state = rig.pinned(), rig.ledger.read_tables("shop")[ORDERS]
    assert first is not None
    assert state.watermark is not None
    rig.change("UPDATE dbo.Orders SET Note = N'x' WHERE Id = 2")
    rig.switches.take()
    newest = Lsn(rig.database.scalar("sys.fn_cdc_get_max_lsn()"))
    with pytest.raises(WatermarkConflictError, match="read from capture instance dbo_Orders_2 now, not dbo_Orders"):
        rig.ledger.advance_quiet("shop", newest, {ORDERS: state.watermark}, None, {ORDERS: first})
    assert rig.ledger.read_tables("shop")[ORDERS].watermark == state.watermark


@pytest.mark.parametrize("backfill", list(Backfill))
def test_column_with_a_default_fills_all_rows_or_those_that_were_touched(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection, backfill: Backfill
) -> None:
    rig = SwitchRig(emulator, source, database, backfill=backfill)
    rig.run()
    add_column(rig, "Rank int NOT NULL DEFAULT 7")
    rig.change("UPDATE dbo.Orders SET Rank = 8, Amount = 0 WHERE Id = 2")
    rig.approve()
    rig.switches.take()
    rig.change("UPDATE dbo.Orders SET Rank = 9 WHERE Id = 1")
    rig.run()
    rig.switches.take()
    rig.finish(rig.load_planner().open_pending())
    untouched = 7 if backfill is Backfill.ALL else None
    # Row 1 was changed in the new column alone: only the second instance has that, before the pipeline reads it.
    assert rig.rows('SELECT "Id", "Rank" FROM shop.orders ORDER BY 1') == [(1, 9), (2, 8), (3, untouched), (4, 7)]
    assert rig.switches.take()[0].endswith("done; dbo_Orders was dropped.")


def test_every_pipeline_goes_over_before_the_first_instance_goes(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection
) -> None:
    rig = SwitchRig(emulator, source, database, "shop", "copy")
    rig.run()
    rig.run("copy")
    add_column(rig)
    rig.approve()
    rig.switches.take()
    rig.change("UPDATE dbo.Orders SET Note = N'x', Amount = 1")
    rig.run()
    rig.switches.take()
    rig.finish(rig.load_planner().open_pending())
    (said,) = rig.switches.take()
    assert "copy reads dbo_Orders up to" in said
    assert rig.instances() == ["dbo_Orders", "dbo_Orders_2"]
    rig.run("copy")
    rig.switches.take()
    rig.finish(rig.load_planner("copy").open_pending())
    rig.switches.take()
    assert rig.instances() == ["dbo_Orders_2"]
    assert rig.differing() == []


def test_process_that_dies_between_any_two_steps_leaves_nothing_to_repair(
    rig: SwitchRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    add_column(rig, "Rank int NOT NULL DEFAULT 7")
    rig.approve()
    for place in ("mark_switch_made", "switch_pipeline", "record_backfill", "finish_switch"):
        if place == "switch_pipeline":
            rig.change("UPDATE dbo.Orders SET Amount = 12 WHERE Id = 1")
            rig.run()
        if place == "finish_switch":
            rig.switches.take()
            rig.finish(rig.load_planner().open_pending())
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(rig.drift, place, die)
            rig.switches.take()
    rig.switches.take()
    assert rig.instances() == ["dbo_Orders_2"]
    assert rig.rows("SELECT state FROM floodmark.instance_switches") == [(SwitchState.DONE.value,)]
    rig.change("INSERT INTO dbo.Orders VALUES (5, 50, 5)")
    rig.run()
    assert rig.differing() == []


def test_instance_that_a_user_has_made_by_hand_is_taken(rig: SwitchRig) -> None:
    add_column(rig)
    rig.database.enable("Orders", capture_instance="N'by_hand'")
    ((event, _),) = rig.switches.list_proposed()
    assert "-- by_hand exists and captures them." in event.proposal
    rig.approve()
    rig.change("UPDATE dbo.Orders SET Note = N'x'")
    rig.run()
    rig.switches.take()
    rig.finish(rig.load_planner().open_pending())
    rig.switches.take()
    assert rig.instances() == ["by_hand"]
    assert rig.differing() == []


def test_other_instance_in_the_second_place_goes_only_where_that_was_approved(rig: SwitchRig) -> None:
    rig.database.enable("Orders", capture_instance="N'other'", captured_column_list="N'Id'")
    add_column(rig)
    rig.approve()
    rig.switches.take()
    assert rig.instances() == ["dbo_Orders", "dbo_Orders_2"]


def test_other_instance_that_came_after_the_approval_is_an_alert_until_it_goes(rig: SwitchRig) -> None:
    add_column(rig)
    rig.approve()
    rig.database.enable("Orders", capture_instance="N'late'", captured_column_list="N'Id'")
    (said,) = rig.switches.take()
    assert "the table already has two capture instances, the maximum: dbo_Orders and late" in said
    assert rig.alerts.kinds == ["instance_switch"]
    rig.database.run("EXEC sys.sp_cdc_disable_table N'dbo', N'Orders', N'late'")
    rig.switches.take()
    assert rig.instances() == ["dbo_Orders", "dbo_Orders_2"]
    assert rig.alerts.open == {}


def test_proposal_that_has_changed_since_it_was_read_is_not_carried_out(rig: SwitchRig) -> None:
    add_column(rig)
    ((event, _),) = rig.switches.list_proposed()
    rig.change("ALTER TABLE dbo.Orders ADD Second int NULL")
    rig.watch_closely()
    with pytest.raises(OperatorError, match="changed since this was proposed") as refused:
        rig.switches.approve(event.event_id, "operator")
    assert "[Note], [Second]" in str(refused.value)
    rig.switches.approve(event.event_id, "operator")
    assert rig.switches.list_proposed() == []
    rig.switches.take()
    rig.change("UPDATE dbo.Orders SET Note = N'x', Second = 2 WHERE Id = 1")
    rig.run()
    rig.switches.take()
    rig.finish(rig.load_planner().open_pending())
    assert rig.differing() == []


def test_rejected_column_is_left_alone_and_cannot_be_decided_twice(rig: SwitchRig) -> None:
    add_column(rig)
    ((event, _),) = rig.switches.list_proposed()
    rig.switches.reject(event.event_id, "operator")
    assert rig.switches.list_proposed() == []
    assert rig.alerts.open == {}
    assert list(rig.alerts.outcomes.values()) == ["operator rejected it: dbo.Orders continues without column Note."]
    with pytest.raises(OperatorError, match="operator has already rejected it"):
        rig.switches.approve(event.event_id, "another")
    assert rig.switches.take() == []
    assert rig.instances() == ["dbo_Orders"]


def test_second_instance_that_is_dropped_before_anybody_reads_it_is_made_again(rig: SwitchRig) -> None:
    add_column(rig)
    rig.approve()
    rig.switches.take()
    rig.database.run("EXEC sys.sp_cdc_disable_table N'dbo', N'Orders', N'dbo_Orders_2'")
    (said,) = rig.switches.take()
    assert said.endswith("dbo_Orders_2 no longer exists; it will be created again.")
    rig.switches.take()
    assert rig.instances() == ["dbo_Orders", "dbo_Orders_2"]


def test_first_instance_that_is_dropped_too_early_ends_the_switch(rig: SwitchRig) -> None:
    add_column(rig)
    rig.approve()
    rig.database.run("EXEC sys.sp_cdc_disable_table N'dbo', N'Orders', N'dbo_Orders'")
    (said,) = rig.switches.take()
    assert "given up, because dbo_Orders no longer exists" in said
    assert rig.switches.take() == []


def test_type_that_changes_while_a_table_goes_over_holds_it_as_ever(rig: SwitchRig) -> None:
    add_column(rig)
    rig.approve()
    rig.switches.take()
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    rig.run()
    rig.change("ALTER TABLE dbo.Orders ALTER COLUMN Amount nvarchar(20)")
    (said,) = rig.switches.take()
    assert "column Amount has type integer, which cannot become character varying(20)" in said
    with pytest.raises(TableHeldError, match="column Amount was changed from int to nvarchar"):
        rig.run()


def test_rejected_column_is_not_asked_about_again_by_the_next_switch(rig: SwitchRig) -> None:
    add_column(rig)
    ((event, _),) = rig.switches.list_proposed()
    rig.switches.reject(event.event_id, "operator")
    rig.change("ALTER TABLE dbo.Orders ADD Wanted int NULL")
    rig.watch_closely()
    rig.approve()
    rig.switches.take()
    rig.change("UPDATE dbo.Orders SET Wanted = 1")
    rig.run()
    rig.switches.take()
    rig.finish(rig.load_planner().open_pending())
    rig.watch_closely()
    assert rig.switches.list_proposed() == []
    columns = rig.rows("SELECT column_name FROM information_schema.columns WHERE table_schema = 'shop'")
    assert ("Wanted",) in columns
    assert ("Note",) not in columns


def test_two_processes_do_not_take_steps_at_the_same_time(rig: SwitchRig) -> None:
    add_column(rig)
    rig.approve()
    with rig.drift.hold_switches("shop") as mine:
        assert mine
        assert rig.switches.take() == ["another process is working on the switches."]
    assert rig.instances() == ["dbo_Orders"]
    assert ORDERS in rig.ledger.read_tables("shop")


def test_instance_with_the_name_of_one_that_an_earlier_switch_has_dropped_is_no_replacement(rig: SwitchRig) -> None:
    names = []
    for number in range(4):
        rig.change(
            f"ALTER TABLE dbo.Orders ADD Extra{number} int NULL",
            f"INSERT INTO dbo.Orders (Id, Amount) VALUES ({10 + number}, 1)",
        )
        rig.run()
        rig.approve()
        rig.switches.take()
        rig.change(f"UPDATE dbo.Orders SET Extra{number} = {number} WHERE Id = 2")
        rig.run()
        rig.switches.take()
        rig.change(f"UPDATE dbo.Orders SET Extra{number} = {number} WHERE Id = 3")
        rig.finish(rig.load_planner().open_pending())
        rig.run()
        (said,) = rig.switches.take()
        assert " done; " in said
        names += rig.instances()
    assert names == ["dbo_Orders_2", "dbo_Orders_3", "dbo_Orders_2", "dbo_Orders_3"]
    rig.change("UPDATE dbo.Orders SET Amount = 99 WHERE Id = 2")
    rig.run()
    assert rig.alerts.open == {}
    assert rig.differing() == []
