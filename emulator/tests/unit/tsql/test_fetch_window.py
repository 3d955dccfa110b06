"""Where fetches of a server cursor land, against ODBC's table of SQLFetchScroll and a simple walk through the rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlserver_emulator.tsql.cursors.fetch_window import FetchType, Window

ROWS = 10
AT_START, AT_END = Window(0, 3), Window(ROWS + 1, 3)


@pytest.mark.parametrize(
    ("before", "fetch", "row", "size", "rows", "position"),
    [
        (Window(), FetchType.NEXT, 0, 3, [1, 2, 3], 1),
        (Window(8, 3), FetchType.NEXT, 0, 3, [], -1),
        (Window(7, 3), FetchType.NEXT, 0, 3, [10], 10),
        (AT_END, FetchType.NEXT, 0, 3, [], -1),
        (Window(5, 3), FetchType.PRIOR, 0, 3, [2, 3, 4], 2),
        (Window(2, 3), FetchType.PRIOR, 0, 3, [1, 2, 3], 1),
        (Window(2, 3), FetchType.PRIOR_WHOLE, 0, 3, [1], 1),
        (Window(1, 3), FetchType.PRIOR, 0, 3, [], 0),
        (AT_END, FetchType.PRIOR, 0, 3, [8, 9, 10], 8),
        (Window(4, 3), FetchType.FIRST, 0, 2, [1, 2], 1),
        (Window(4, 3), FetchType.FIRST, 0, 0, [], 0),
        (Window(), FetchType.LAST, 0, 4, [7, 8, 9, 10], 7),
        (Window(), FetchType.LAST, 0, 20, list(range(1, 11)), 1),
        (Window(4, 3), FetchType.LAST, 0, 0, [], -1),
        (Window(), FetchType.ABSOLUTE, 9, 3, [9, 10], 9),
        (Window(), FetchType.ABSOLUTE, -2, 3, [9, 10], 9),
        (Window(), FetchType.ABSOLUTE, 0, 3, [], 0),
        (Window(), FetchType.ABSOLUTE, 11, 3, [], -1),
        (Window(), FetchType.ABSOLUTE, -11, 20, list(range(1, 11)), 1),
        (Window(), FetchType.ABSOLUTE, -11, 3, [], 0),
        (Window(5, 3), FetchType.RELATIVE, 2, 3, [7, 8, 9], 7),
        (Window(5, 3), FetchType.RELATIVE, -4, 3, [1, 2, 3], 1),
        (Window(3, 3), FetchType.RELATIVE, -3, 3, [1, 2, 3], 1),
        (Window(3, 3), FetchType.RELATIVE, -4, 3, [], 0),
        (AT_START, FetchType.RELATIVE, 2, 3, [2, 3, 4], 2),
        (AT_END, FetchType.RELATIVE, -2, 3, [9, 10], 9),
        (Window(4, 2), FetchType.REFRESH, 0, 9, [4, 5], 4),
    ],
)
def test_a_fetch_lands_where_odbc_says(
    before: Window, fetch: FetchType, row: int, size: int, *, rows: list[int], position: int
) -> None:
    after = before.moved(fetch, row, size, ROWS)
    assert list(range(1, ROWS + 1))[after.rows_of(ROWS)] == rows
    assert after.position(ROWS) == position


@given(st.integers(0, 40), st.integers(1, 12))
def test_next_visits_every_row_once_and_in_order(count: int, size: int) -> None:
    rows, seen, window = list(range(count)), [], Window()
    while found := rows[(window := window.moved(FetchType.NEXT, 0, size, count)).rows_of(count)]:
        seen += found
    assert seen == rows
    assert window.position(count) == (-1 if count == 0 or window.start > count else window.start)


@given(
    st.integers(0, 20),
    st.lists(
        st.tuples(
            st.sampled_from([t for t in FetchType if t is not FetchType.INFO]), st.integers(-25, 25), st.integers(0, 9)
        ),
        max_size=8,
    ),
)
def test_no_fetch_leaves_the_result(count: int, moves: list[tuple[FetchType, int, int]]) -> None:
    window = Window()
    for fetch, row, size in moves:
        window = window.moved(fetch, row, size, count)
        assert 0 <= window.start <= count + 1
        assert len(range(count)[window.rows_of(count)]) <= count
