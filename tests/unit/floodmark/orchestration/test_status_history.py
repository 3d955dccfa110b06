"""The windows of a table in words, and its charts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from floodmark.core.status import TableWindow
from floodmark.orchestration.pages.content import charts_of, window_rows

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
WINDOW = TableWindow(
    window_id=7,
    lane="",
    kind="first_load",
    state="advanced",
    attempt=1,
    opened_at=NOON,
    merged_at=NOON + timedelta(minutes=2),
    checked_at=NOON + timedelta(minutes=2, seconds=1.25),
    advanced_at=NOON + timedelta(minutes=2, seconds=1.5),
    to_lsn_at=None,
    read_rows=5318,
    inserted_rows=1485,
    updated_rows=510,
    deleted_rows=165,
    unchanged_rows=0,
    quarantined_rows=0,
)
LOADING = replace(
    WINDOW, window_id=8, kind="changes", lane="replay a-b", state="merged", attempt=2, checked_at=None, advanced_at=None
)


def test_windows_are_shown_in_words_the_newest_first() -> None:
    loading, done = window_rows([WINDOW, LOADING])
    assert (done.number, done.kind, done.state) == ("7", "first load", "published")
    assert (done.load, done.check, done.publish) == ("0:02:00", "1.2 s", "0.2 s")
    assert (done.read, done.changed) == ("5,318", "+1,485 ~510 \N{MINUS SIGN}165")
    assert (loading.kind, loading.state) == ("changes, replay a-b", "merged, attempt 2")
    assert (loading.check, loading.publish) == ("", "")


def test_charts_have_what_published_windows_did() -> None:
    rows, seconds = charts_of([WINDOW, LOADING])
    assert rows["times"] == seconds["times"] == ["2026-05-01T12:00:00+00:00"]
    assert {each["name"]: each["values"] for each in rows["series"]} == {
        "inserted": [1485],
        "updated": [510],
        "deleted": [165],
    }
    assert {each["name"]: each["values"] for each in seconds["series"]} == {
        "load": [120.0],
        "check": [1.25],
        "publish": [0.25],
    }
    colors = [each["color"] for chart in (rows, seconds) for each in chart["series"]]
    assert colors == [f"--chart-{number}" for number in range(6)]


MEASURED = replace(
    WINDOW, window_id=9, lag_seconds=95.5, margin_seconds=3 * 86_400.0, change_rows=12_000, change_bytes=1_048_576
)


def test_measures_are_in_words() -> None:
    measured, bare = window_rows([WINDOW, MEASURED])
    assert (measured.lag, measured.margin, measured.change_table) == ("0:01:36", "3d 0:00:00", "12,000 rows, 1.0 MiB")
    assert (bare.lag, bare.margin, bare.change_table, bare.run_id) == ("", "", "", "")
    # Until it is published, the lag grows.
    assert window_rows([replace(MEASURED, state="merged")])[0].lag == ""


def test_charts_of_measures_have_gaps_and_are_left_out_without_a_value() -> None:
    assert len(charts_of([WINDOW])) == 2
    charts = charts_of([WINDOW, MEASURED])[2:]
    assert [(each["title"], each["unit"]) for each in charts] == [
        ("Lag at publication", "s"),
        ("Margin before cleanup", "s"),
        ("Size of the change tables", "B"),
        ("Rows of the change tables", "rows"),
    ]
    assert [each["series"][0]["values"] for each in charts] == [
        [None, 95.5],
        [None, 3 * 86_400.0],
        [None, 1_048_576],
        [None, 12_000],
    ]
    assert [each["series"][0]["color"] for each in charts] == [f"--chart-{number}" for number in range(6, 10)]
    (only_rows,) = charts_of([WINDOW, replace(WINDOW, change_rows=0)])[2:]
    assert only_rows["series"][0]["values"] == [None, 0]
