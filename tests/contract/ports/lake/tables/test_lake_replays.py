"""Replays into a lake, and windows of two lanes with one table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lake_rig import SMALL, LakeRig, quarantined
from warehouse_contract import END, ONE, WarehouseContract, one, replayed
from warehouse_shop import INSERT, ORDERS, UPDATE, Row, changes, first_load, reload

from floodmark.core.errors import ConfigError, OperatorError, WatermarkConflictError, WindowBusyError
from floodmark.core.plan import TableCounts, replay_lane
from floodmark.core.position import Interval
from floodmark.core.settings import Deletes
from floodmark.iceberg.upkeep import LakeUpkeep
from lsns import lsn
from table_plans import with_settings

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def replay_lane_of(after: int, to: int) -> str:
    return replay_lane(Interval(lsn(after), lsn(to)))


def test_replay_brings_no_deleted_row_back_and_leaves_the_snapshots_of_positions(rig: LakeRig) -> None:
    WarehouseContract().test_deleted_row_does_not_come_back_with_an_older_change(rig, Deletes.SOFT)
    rig.run(first_load(), 10, one())
    rig.run(changes(10, 20), 20, [Row(2, INSERT, 15, 5, notes="n")])
    [before] = LakeUpkeep(rig.lake, lambda: None).list_tables([rig.target])
    again = replace(changes(10, 15), watermark=lsn(20))
    rig.run(again, 15, [Row(2, INSERT, 15, 5, notes="n")], replay_lane_of(10, 15))
    [after] = LakeUpkeep(rig.lake, lambda: None).list_tables([rig.target])
    assert len(after.snapshots) == 3
    assert [after.snapshot_at(lsn(at)) for at in (10, 15, 20)] == [before.snapshot_at(lsn(at)) for at in (10, 15, 20)]


def test_replay_passes_over_what_waits_in_quarantine_as_in_postgresql(rig: LakeRig) -> None:
    both = [replayed(each, Deletes.SOFT) for each in (rig, rig.in_postgres())]

    def replay_both(after: int, to: int, *rows: Row) -> TableCounts:
        table = replace(changes(after, to, rules=(SMALL,)), watermark=lsn(END))
        counts = [each.run(table, to, rows, replay_lane_of(after, to)) for each in both]
        assert counts[0] == counts[1]
        assert both[0].visible() == both[1].visible()
        assert quarantined(both[0]) == quarantined(both[1])
        return counts[0]

    replay_both(20, 30, Row(1, UPDATE, 25, 500, notes="x"), Row(2, INSERT, 26, 5, notes="n"))
    older = (Row(1, UPDATE, 15, 5, keep=True), Row(2, UPDATE, 16, 6, keep=True))
    assert replay_both(10, 20, *older).staged_rows == 1
    assert replay_both(20, 30, Row(1, UPDATE, 25, 500, notes="x")).quarantined_rows == 1
    assert len(quarantined(both[0])) == 1
    assert replay_both(30, 40, Row(1, UPDATE, 35, 7, keep=True)).inserted_rows == 1


def test_replay_without_the_value_of_a_lob_is_refused(rig: LakeRig) -> None:
    target = replayed(rig, Deletes.SOFT)
    table = replace(changes(10, 20), watermark=lsn(END))
    with pytest.raises(OperatorError, match=r"1 rows are missing in .* left out the value of Notes"):
        target.run(table, 20, [Row(1, UPDATE, 15, 5, keep=True)], replay_lane_of(10, 20))
    assert target.visible() == {}


def test_replay_of_a_table_whose_deletes_left_no_trace_is_refused(rig: LakeRig) -> None:
    """Also after a change to soft deletes, which keep a row as a trace from then on."""
    rig.run(first_load(Deletes.HARD), 10, one())
    rig.run(changes(10, 20), 20, [Row(2, INSERT, 15, 5, notes="n")])
    for deletes in Deletes:
        again = replace(changes(10, 20, deletes), watermark=lsn(20))
        with pytest.raises(ConfigError, match="has, or had, deletes: hard would bring rows back"):
            rig.open(again, to=20, lane=replay_lane_of(10, 20))
        unfinished = rig.ledger.unfinished_window(rig.pipeline, replay_lane_of(10, 20))
        assert unfinished is not None
        rig.ledger.leave_out(unfinished.plan.window_id, [ORDERS])


def test_replay_that_was_planned_before_a_load_of_the_table_is_not_merged(rig: LakeRig) -> None:
    """Its changes may be of a past that the source no longer has: a retry of its task does not plan it again."""
    rig.run(first_load(), 10, one())
    rig.run(changes(10, 20), 20, [Row(2, INSERT, 15, 5, notes="n")])
    replay = rig.open(replace(changes(10, 20), watermark=lsn(20)), to=20, lane=replay_lane_of(10, 20))
    rig.run(reload(20), 12, one(), lane="load dbo.Orders")
    again = rig.prepare(replay.window_id)
    staged = rig.stage(again, [Row(2, INSERT, 15, 5, notes="n")])
    with pytest.raises(WatermarkConflictError, match="the whole table was read since the replay was planned"):
        rig.merge(again, staged.rows)
    assert rig.visible() == ONE


def test_window_of_another_lane_waits_until_the_first_is_published(rig: LakeRig) -> None:
    """Its merge would give up what the first has merged. A window that was opened before may begin after it."""
    rig.run(first_load(), 10, one())
    rig.run(changes(10, 20), 20, [Row(2, INSERT, 15, 5, notes="n")])
    again, lane = replace(changes(10, 20), watermark=lsn(20)), replay_lane_of(10, 20)
    main = rig.open(changes(20, 30), to=30)
    staged = rig.stage(main, [Row(3, INSERT, 25, 5, notes="n")])
    rig.merge(main, staged.rows)
    words = f"window {main.window_id} .* is unfinished, and has the table shop.{rig.target.name} too"
    with pytest.raises(WindowBusyError, match=words):
        rig.open(again, to=20, lane=lane)
    opened = rig.ledger.unfinished_window(rig.pipeline, lane)
    assert opened is not None
    rig.finish(main)
    later = rig.ledger.open_window(rig.pipeline, lsn(40), [with_settings(changes(30, 40), target=rig.target)]).window_id
    other = rig.ledger.open_window(
        rig.pipeline, lsn(15), [with_settings(replace(changes(10, 15), watermark=lsn(30)), target=rig.target)],
        lane=replay_lane_of(10, 15),
    ).window_id  # fmt: skip
    replay = rig.prepare(other)
    with rig.ledger.hold_load(other):
        for window in (later, opened.plan.window_id):
            with pytest.raises(WindowBusyError, match="Finish it first: floodmark replay"):
                rig.prepare(window)
    # No load has the replay any more. It begins again after the run, with a lower number or a higher one.
    rig.prepare(later)
    with pytest.raises(WatermarkConflictError):
        rig.merge(replay)
    replay = rig.prepare(other)
    rig.merge(replay)
    with pytest.raises(WindowBusyError, match="Finish it first: floodmark replay"):
        rig.prepare(later)
    rig.finish(replay)
    plan = rig.prepare(later)
    staged = rig.stage(plan, [Row(4, INSERT, 35, 5, notes="n")])
    rig.merge(plan, staged.rows)
    rig.finish(plan)
    assert sorted(rig.visible()) == [1, 2, 3, 4]
