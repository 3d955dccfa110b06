"""Which rows a switch of capture instances loads."""

from __future__ import annotations

from datetime import datetime

from floodmark.core.drift import InstanceSwitch, SwitchState, rows_to_fill
from floodmark.core.position import Lsn
from floodmark.core.schema import TableName
from floodmark.core.settings import Backfill
from floodmark.core.snapshot import FeedIdentity
from lsns import lsn

NOON = datetime(2026, 1, 2, 12)


def switch(table: str, since: Lsn | None = None) -> InstanceSwitch:
    return InstanceSwitch(
        source="shop",
        table=TableName("dbo", table),
        old=FeedIdentity("first", 1, NOON),
        name="second",
        added=("Note",),
        columns=("Id", "Note"),
        enabling="",
        drops="",
        since=since,
        switch_id=1,
        state=SwitchState.MADE,
        approved_by="operator",
        approved_at=NOON,
    )


def test_rows_of_a_table_that_is_called_like_an_alias_are_compared_with_their_own_changes() -> None:
    condition = rows_to_fill(switch("C"), ("Note",), ("Id",), Backfill.TOUCHED)
    assert "AS d WHERE d.[Id] = [C].[Id]" in condition


def test_touched_rows_are_those_of_both_instances() -> None:
    condition = rows_to_fill(switch("Orders", lsn(7)), ("Note",), ("Id",), Backfill.TOUCHED)
    first, second = condition.split(" OR ")
    assert "[cdc].[first_CT]" in first
    assert "[__$start_lsn] >= 0x00000001000000000007" in first
    assert "[cdc].[second_CT]" in second
    assert "start_lsn" not in second


def test_every_row_is_loaded_for_a_column_that_the_target_has_already() -> None:
    for backfill in Backfill:
        assert rows_to_fill(switch("Orders"), ("Note",), ("Id",), backfill, there={"Id", "Note"}) == "1 = 1"
        assert rows_to_fill(switch("Orders"), ("Note",), ("Id",), backfill, there={"Id"}) != "1 = 1"
