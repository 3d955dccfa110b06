from __future__ import annotations

import pytest

from floodmark.core.progress import Pace, describe_seconds


def test_rate_and_time_left() -> None:
    pace = Pace(rows=50_000, seconds=20)
    assert pace.describe() == ", 2,500 rows/s"
    assert pace.describe(rows_left=0) == ", 2,500 rows/s"
    assert pace.describe(rows_left=300_000) == ", 2,500 rows/s, about 2 min left"


@pytest.mark.parametrize("pace", [Pace(0, 5), Pace(-3, 5), Pace(3, 0)])
def test_no_rate_before_the_first_row(pace: Pace) -> None:
    assert pace.describe(rows_left=5) == ""


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "1 s"), (59, "59 s"), (60, "1 min"), (3_599, "60 min"), (5_400, "1.5 h"), (129_600, "1.5 days")],
)
def test_durations(seconds: float, words: str) -> None:
    assert describe_seconds(seconds) == words
