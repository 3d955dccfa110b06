import json
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.plan import (
    Bound,
    LoadChunk,
    LoadProgress,
    StoredChunk,
    chunk_from_json,
    chunk_to_json,
    plan_chunks,
    progress_of,
    select_lost,
)

values = st.integers() | st.text() | st.binary() | st.decimals(allow_nan=False, allow_infinity=False)
bounds = st.lists(values, min_size=1, max_size=3).map(tuple)


@given(bounds | st.none(), bounds | st.none())
def test_chunk_is_the_same_after_json(after: Bound | None, to: Bound | None) -> None:
    chunk = LoadChunk(3, after, to)
    read = chunk_from_json(json.loads(json.dumps(chunk_to_json(chunk))))
    assert read == chunk
    assert [type(value) for value in read.after or ()] == [type(value) for value in after or ()]


@given(st.lists(st.integers(), unique=True).map(sorted))
def test_every_key_lies_in_exactly_one_chunk(cuts: list[int]) -> None:
    chunks = plan_chunks([(cut,) for cut in cuts])
    assert [chunk.number for chunk in chunks] == list(range(len(cuts) + 1))
    for key in {*cuts, *(cut + 1 for cut in cuts), 0}:
        holders = [
            chunk
            for chunk in chunks
            if (chunk.after is None or (key,) > chunk.after) and (chunk.to is None or (key,) <= chunk.to)
        ]
        assert len(holders) == 1


def stored(*rows: int | None) -> list[StoredChunk]:
    return [StoredChunk(LoadChunk(number, None, (Decimal(1),)), each) for number, each in enumerate(rows)]


def test_chunks_that_count_as_staged_and_are_not_there_are_lost() -> None:
    assert select_lost(stored(5, None, 0, 7), {0: 5, 3: 6}) == (3,)
    assert select_lost(stored(5, None, 0, 7), {}) == (0, 3)
    # Of a window that the ledger does not have.
    assert select_lost(stored(5, None), {0: 5, 1: 4, 2: 3}) == (1, 2)


def test_progress_is_reported_in_percent_and_rows() -> None:
    progress = progress_of(stored(500_000, 500_000, 200_000, None, None, None, None))
    assert progress == LoadProgress(7, 3, 1_200_000)
    assert str(progress) == "42 %, 1,200,000 rows"
    assert progress_of([]).percent == 0
