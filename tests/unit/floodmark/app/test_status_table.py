"""The table of the status page."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from io import StringIO

import pytest
from rich.console import Console

from floodmark.app.status_table import status_table
from floodmark.core.status.report import LastWindow, PipelineStatus, TableStatus
from floodmark.core.upkeep.retention import HOLD_MINUTES

ORDERS = TableStatus(
    source="dbo.Orders",
    target="shop.orders",
    watermark="0x0000003200195AE00001",
    watermark_at=datetime(2026, 5, 1, 12, 30, 5),
    verdict="ready",
    state="consistent",
    lag_seconds=247.4,
    transactions_behind=5224,
    headroom_seconds=258_900.0,
    last_window=LastWindow(7, 5318, 1485, 510, 165, 0),
)
LINES = replace(ORDERS, source="dbo.OrderLines", target="shop.order_lines")


def shown(width: int, *tables: TableStatus) -> str:
    out = StringIO()
    Console(width=width, file=out).print(status_table(PipelineStatus("shop", None, None, tables)))
    return out.getvalue()


@pytest.mark.parametrize("width", [96, 200])
def test_a_status_is_three_lines_a_table(width: int) -> None:
    text = shown(width, ORDERS)
    assert max(map(len, text.splitlines())) <= width
    for whole in (
        "dbo.Orders",
        "-> shop.orders",
        "0x0000003200195AE00001",
        "2026-05-01 12:30:05",
        "0:04:07",
        "5,224 tx",
        "2d 23:55:00",
        "+1,485 ~510 -165",
    ):
        assert whole in text
    assert len([line for line in text.splitlines() if line.strip()]) == 1 + 3 + 1 + 3  # title, head, line, table


def test_a_status_of_80_columns_has_its_watermarks_and_times_whole() -> None:
    text = shown(80, LINES)
    assert max(map(len, text.splitlines())) <= 80
    for whole in ("0x0000003200195AE00001", "2026-05-01 12:30:05", "0:04:07", "5,224 tx", "2d 23:55:00"):
        assert whole in text


def test_headroom_of_a_cleanup_that_is_held_has_no_end() -> None:
    held = replace(ORDERS, headroom_seconds=HOLD_MINUTES * 60 - 258_900.0)
    assert "no end" in shown(96, held)
    assert "no end" not in shown(96, ORDERS)


def test_headroom_that_has_no_time_is_a_number_of_transactions() -> None:
    tracked = replace(ORDERS, headroom_seconds=None, headroom_transactions=12_345)
    assert "12,345 tx" in shown(96, tracked)
    assert "12,345 tx" not in shown(96, replace(tracked, headroom_seconds=258_900.0))


def test_what_is_said_of_several_tables_is_said_once() -> None:
    stopped = [
        replace(each, verdict="capture_stopped", standing="incident", reason="capture_stopped", cause="It stands.")
        for each in (ORDERS, LINES)
    ]
    held = replace(ORDERS, source="dbo.Held", reason="held", cause="Since noon.")
    assert "all 2 tables: capture_stopped: It stands." in shown(120, *stopped)
    text = shown(120, *stopped, held)
    assert "dbo.Orders, dbo.OrderLines: capture_stopped: It stands." in text
    assert "dbo.Held: held: Since noon." in text


def test_rows_in_quarantine_and_open_drift_are_shown_where_there_are_any() -> None:
    assert "quarantine" not in shown(100, ORDERS)
    assert "drift" not in shown(100, ORDERS)
    odd = replace(ORDERS, last_window=LastWindow(7, 5, 3, 0, 0, 2), drift=("column Note int was added (event 3)",))
    text = shown(100, LINES, odd)
    assert "2 in quarantine" in text
    assert "1 drift open" in text
    assert "dbo.Orders: drift: column Note int was added (event 3)" in text
