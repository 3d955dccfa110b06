"""The cards and rows of the status pages, without a ledger."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from floodmark.core.status import AlertStatus, LastWindow, PipelineStatus, TableStatus
from floodmark.orchestration.pages.cards import Card, DagState, card_of, page_of, parts_of, rows_of, select, summary

NOW = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
ORDERS = TableStatus(
    source="dbo.Orders",
    target="shop.orders",
    lag_seconds=247.0,
    advanced_at=NOW - timedelta(minutes=5),
    last_window=LastWindow(7, 5318, 1485, 510, 165, 3),
    waiting_rows=2,
)
LINES = replace(ORDERS, source="dbo.Lines", lag_seconds=5.0, last_window=LastWindow(6, 9, 9, 0, 0, 0), waiting_rows=0)
SHOP = PipelineStatus("shop", None, None, (ORDERS, LINES))
RUNS = DagState(is_paused=False, next_run_at=NOW + timedelta(seconds=90))
PAUSED = DagState(is_paused=True, next_run_at=None)


def card(status: PipelineStatus = SHOP, dag: DagState | None = RUNS) -> Card:
    return card_of(status, dag, timedelta(minutes=10), NOW)


def test_card_says_what_an_operator_asks() -> None:
    shown = card()
    assert (shown.state, shown.tables) == ("healthy", "2 (2 healthy)")
    assert (shown.lag, shown.max_lag) == ("0:04:07", "0:10:00")
    # Of the latest window alone: dbo.Lines had nothing in it.
    assert shown.last_window == "0:05:00 ago: +1,485 ~510 \N{MINUS SIGN}165"
    assert shown.next_run == "in 0:01:30"


@pytest.mark.parametrize(
    ("dag", "next_run"),
    [
        (None, "Airflow has not parsed the DAG"),
        (PAUSED, "none, the DAG is paused"),
        (DagState(is_paused=False, next_run_at=None), "by hand or by an asset"),
        (DagState(is_paused=False, next_run_at=NOW), "due"),
    ],
)
def test_next_run(dag: DagState | None, next_run: str) -> None:
    assert card(dag=dag).next_run == next_run


@pytest.mark.parametrize(
    ("standing", "dag", "state"),
    [
        ("fine", RUNS, "healthy"),
        ("attention", RUNS, "attention"),
        ("incident", RUNS, "incident"),
        ("fine", PAUSED, "paused"),
        ("attention", PAUSED, "paused"),
        ("incident", PAUSED, "incident"),
    ],
)
def test_incident_is_shown_even_while_the_dag_is_paused(standing: str, dag: DagState, state: str) -> None:
    assert card(replace(SHOP, standing=standing), dag).state == state


def test_pipeline_that_has_never_run_has_no_last_window() -> None:
    new = TableStatus(source="dbo.Orders", target="shop.orders")
    assert (card(replace(SHOP, tables=(new,))).last_window, card(replace(SHOP, tables=())).lag) == ("none yet", "-")


def test_alerts_and_the_unfinished_window_are_on_the_card() -> None:
    alert = AlertStatus("run_failed:shop", "run_failed", "shop", None, "Run 5 failed.", "Read the log.", NOW, 1)
    shown = card(replace(SHOP, unfinished_window_id=8, unfinished_state="merged", alerts=(alert,)))
    assert (shown.alerts, shown.unfinished) == (("Run failed: Run 5 failed.",), "window 8 (merged)")


def test_cards_are_sorted_by_need_of_attention_and_found() -> None:
    cards = [
        Card("d", "healthy"),
        Card("C", "paused"),
        Card("b", "incident"),
        Card("a", "healthy"),
        Card("x", "unreadable"),
    ]
    assert [each.pipeline for each in select(cards, "", "")] == ["b", "x", "C", "a", "d"]
    assert [each.pipeline for each in select(cards, "c", "")] == ["C"]
    assert [each.pipeline for each in select(cards, "", "healthy")] == ["a", "d"]
    assert summary(cards) == "5 pipelines: 1 incident, 1 unreadable, 1 paused, 2 healthy"


def test_name_of_a_pipeline_is_quoted_in_its_address() -> None:
    assert Card("a/b ?c", "healthy").href == "status/a%2Fb%20%3Fc"


@pytest.mark.parametrize(("number", "items", "is_at"), [(1, [1, 2], 1), (3, [5], 3), (9, [5], 3), (-4, [1, 2], 1)])
def test_page_outside_the_list_is_the_first_or_the_last(number: int, items: list[int], is_at: int) -> None:
    page = page_of([1, 2, 3, 4, 5], number, 2)
    assert (page.items, page.number, page.count) == (items, is_at, 3)
    assert page_of([], number, 2).count == 1


def test_rows_show_the_worst_table_first() -> None:
    expired = replace(LINES, standing="incident", verdict="capture_stopped", drift=("a", "b"))
    rows = rows_of((ORDERS, expired), "")
    assert [(row.source, row.verdict, row.drift) for row in rows] == [
        ("dbo.Lines", "capture_stopped", "2 drift open"),
        ("dbo.Orders", "never_run", ""),
    ]
    assert [row.waiting for row in rows] == ["", "2"]
    assert [row.source for row in rows_of((ORDERS, expired), "LINES")] == ["dbo.Lines"]


def test_t_sql_of_an_advice_is_apart_from_its_sentences() -> None:
    text = "Start it: EXEC sys.sp_a; EXEC sys.sp_b @x = 1; and wait.\n-- Then:\nSELECT 1"
    assert parts_of(text) == [
        ("Start it: ", False, False),
        ("EXEC sys.sp_a; EXEC sys.sp_b @x = 1;", True, False),
        (" and wait.", False, False),
        ("-- Then:\nSELECT 1", True, True),
    ]
    assert parts_of("Read its log; then run floodmark run shop.") == [
        ("Read its log; then run floodmark run shop.", False, False)
    ]


def test_margin_of_the_last_window_is_in_place_of_an_unknown_headroom() -> None:
    known = replace(LINES, last_window=LastWindow(6, 9, 9, 0, 0, 0, 90_000.0))
    assert [row.margin for row in rows_of((known, ORDERS, replace(ORDERS, last_window=None)), "")] == [
        "1d 1:00:00",
        "",
        "",
    ]
