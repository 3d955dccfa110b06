"""The front page of the data docs."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from floodmark.quality.checks import CheckedBatch, render_index


def batch(window_id: int, name: str = "shop.orders.target", **changes: object) -> CheckedBatch:
    values: dict[str, object] = {
        "pipeline": "shop",
        "window_id": window_id,
        "checked_at": datetime(2026, 1, 1, 0, window_id, tzinfo=UTC),
        "name": name,
        "checks": 3,
        "failures": (),
        "warnings": (),
        "page": f"validations/{window_id}/{name}.html",
    }
    return CheckedBatch(**(values | changes))  # type: ignore[arg-type]


def test_index_shows_the_newest_window_first() -> None:
    page = render_index([batch(1), batch(3), batch(2)])
    assert re.findall(r"window (\d)", page) == ["3", "2", "1"]


def test_index_sorts_the_batches_of_a_window_by_name() -> None:
    page = render_index([batch(1, "b"), batch(1, "a")])
    assert page.index(">a<") < page.index(">b<")
    assert page.count("<h2>") == 1


def test_index_distinguishes_failed_warned_and_passed() -> None:
    page = render_index(
        [batch(1, "a", failures=("x",), warnings=("y",)), batch(1, "b", warnings=("y",)), batch(1, "c")]
    )
    assert re.findall(r'class="(\w+)">(?:failed|warned|passed)', page) == ["failed", "warned", "passed"]


def test_index_escapes_what_comes_from_names_and_rules() -> None:
    page = render_index([batch(1, "<b>&", failures=("Amount < 0",), page="a b/<c>.html")])
    assert "<b>&" not in page
    assert "Amount &lt; 0" in page
    assert 'href="a%20b/%3Cc%3E.html"' in page


def test_index_asks_nothing_of_the_network() -> None:
    assert "http" not in render_index([batch(1)]).replace("http-equiv", "")


def test_index_of_nothing_says_so() -> None:
    assert "No window has been checked yet" in render_index([])
