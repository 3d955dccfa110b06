"""Alerts and the messages made of them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from floodmark.core.alert import Alert, build_ended_message, build_raised_message
from floodmark.core.schema import TableName

RAISED = datetime(2026, 5, 1, 12, 30, tzinfo=UTC)
ALERT = Alert(
    kind="run_failed",
    subject="shop",
    table=TableName("dbo", "Orders"),
    what="The run failed.",
    means="No new rows arrive.",
    do="Read the log.",
    event_key="run_failed:shop",
)


def test_raised_message_says_what_where_since_when_what_it_means_and_what_to_do() -> None:
    assert str(build_raised_message(ALERT, RAISED)).splitlines() == [
        "Floodmark: run failed: shop, dbo.Orders",
        "What: The run failed.",
        "Where: shop, table dbo.Orders",
        "Since: 2026-05-01 12:30:00 UTC",
        "What it means: No new rows arrive.",
        "What to do: Read the log.",
    ]


def test_words_of_the_alert_go_before_what_would_be_said_by_default() -> None:
    message = build_raised_message(replace(ALERT, where="server a", since="noon, by its clock"), RAISED)
    assert ("Where", "server a") in message.lines
    assert ("Since", "noon, by its clock") in message.lines


def test_over_message_says_so_and_since_when() -> None:
    message = build_ended_message(ALERT, RAISED, RAISED.replace(hour=13))
    assert message.is_over
    assert message.title == "Floodmark: ended: run failed: shop, dbo.Orders"
    assert ("Since", "2026-05-01 12:30:00 UTC") in message.lines
    assert ("Ended at", "2026-05-01 13:30:00 UTC") in message.lines
    assert dict(message.lines)["What it was"] == "The run failed."
    assert "How it ended" not in dict(message.lines)


def test_over_message_says_how_it_ended_where_that_is_known() -> None:
    message = build_ended_message(ALERT, RAISED, RAISED.replace(hour=13), "ada rejected it.")
    assert ("How it ended", "ada rejected it.") in message.lines


@pytest.mark.parametrize("part", ["subject", "what", "means", "do", "event_key"])
def test_alert_that_lacks_a_part_of_every_message_is_refused(part: str) -> None:
    blank: dict[str, Any] = {part: " "}
    with pytest.raises(ValueError, match=f"lacks {part}"):
        replace(ALERT, **blank)


@pytest.mark.parametrize("kind", ["", "Run failed", "run-failed", "1st"])
def test_kind_that_is_no_word_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="is not a kind of alert"):
        replace(ALERT, kind=kind)
