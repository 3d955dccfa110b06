from __future__ import annotations

from floodmark.core.plan import MAIN_LANE, finishing_command, load_lane, replay_lane
from floodmark.core.position import Interval, Lsn
from floodmark.core.recovery import parse_bounds
from floodmark.core.schema import TableName


def test_each_lane_has_the_command_that_goes_on_with_its_window() -> None:
    assert finishing_command("shop", MAIN_LANE) == "floodmark run shop"
    assert finishing_command("shop", load_lane(TableName("dbo", "Orders"))) == "floodmark reload shop dbo.Orders"


def test_command_that_finishes_a_replay_asks_for_the_same_interval() -> None:
    interval = Interval(Lsn.parse("0x00000022000E98B30001"), Lsn.parse("0x00000022000F0D280001"))
    *_, first, _, last = finishing_command("shop", replay_lane(interval)).split()
    assert parse_bounds(first, last) == interval
