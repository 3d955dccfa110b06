"""The words of a status."""

from __future__ import annotations

from dataclasses import replace

from floodmark.app.status import remarks, table_texts
from floodmark.core.status import PipelineStatus, TableStatus
from floodmark.core.upkeep import HOLD_MINUTES

ORDERS = TableStatus(source="dbo.Orders", target="shop.orders", verdict="ready", headroom_seconds=258_900.0)
LINES = replace(ORDERS, source="dbo.OrderLines", target="shop.order_lines")


def remarks_on(*tables: TableStatus) -> list[str]:
    return remarks(PipelineStatus("shop", None, None, tables))


def test_headroom_of_a_cleanup_that_is_held_has_no_end() -> None:
    assert table_texts(replace(ORDERS, headroom_seconds=HOLD_MINUTES * 60 - 258_900.0)).headroom == "no end"
    assert table_texts(ORDERS).headroom == "2d 23:55:00"


def test_headroom_that_has_no_time_is_a_number_of_transactions() -> None:
    tracked = replace(ORDERS, headroom_seconds=None, headroom_transactions=12_345)
    assert table_texts(tracked).headroom == "12,345 tx"
    assert table_texts(replace(tracked, headroom_seconds=258_900.0)).headroom == "2d 23:55:00"
    assert table_texts(replace(ORDERS, headroom_seconds=None)).headroom == "-"


def test_what_is_said_of_several_tables_is_said_once() -> None:
    stopped = [
        replace(each, verdict="capture_stopped", standing="incident", reason="capture_stopped", cause="It is stopped.")
        for each in (ORDERS, LINES)
    ]
    held = replace(ORDERS, source="dbo.Held", reason="held", cause="Since noon.")
    assert remarks_on(*stopped) == ["all 2 tables: capture_stopped: It is stopped."]
    assert remarks_on(*stopped, held) == [
        "dbo.Orders, dbo.OrderLines: capture_stopped: It is stopped.",
        "dbo.Held: held: Since noon.",
    ]


def test_open_drift_is_among_the_remarks() -> None:
    odd = replace(ORDERS, drift=("column Note int was added (event 3)",))
    assert remarks_on(LINES, odd) == ["dbo.Orders: drift: column Note int was added (event 3)"]
