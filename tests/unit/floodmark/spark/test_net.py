"""Net changes of random histories against the table they happened to, without Spark."""

from __future__ import annotations

import random
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from change_histories import assert_net_is_true, change_batch, histories_plan, random_history
from floodmark.core.change import is_changed
from floodmark.spark.net import collapse_changes, mask_bits, net_operations
from floodmark.spark.statements import order_columns


def _sorted_batches(rows: pa.RecordBatch, order: tuple[str, ...], rng: random.Random) -> list[pa.RecordBatch]:
    """As Spark hands them on: by key and order, cut anywhere."""
    keys = [(name, "ascending") for name in ("history", "id", *order)]
    shuffled = rows.take(pa.array(rng.sample(range(rows.num_rows), rows.num_rows), pa.int64()))
    ordered = shuffled.sort_by(keys)
    cuts = sorted(rng.randrange(rows.num_rows + 1) for _ in range(rng.randrange(6)))
    bounds = [0, *cuts, rows.num_rows]
    return [ordered.slice(a, b - a) for a, b in pairwise(bounds)]


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 2**32), st.booleans())
def test_net_changes_turn_the_target_into_the_table(seed: int, has_command_id: bool) -> None:
    rng = random.Random(seed)
    plan = histories_plan(has_command_id=has_command_id)
    history = random_history(7, seed, ordered_seqvals=not has_command_id)
    batches = _sorted_batches(change_batch(history.changes), order_columns(plan), rng)
    net = [row for batch in collapse_changes(batches, plan) for row in batch.to_pylist()]
    assert_net_is_true(history, net)


@pytest.mark.parametrize(
    ("operations", "net"),
    [
        ((2,), 2),
        ((2, 4), 2),
        ((2, 1), 1),
        ((4,), 4),
        ((1,), 1),
        ((1, 2), 4),
        ((4, 1), 1),
        ((2, 1, 2), 2),
        ((1, 2, 4), 4),
        ((2, 4, 1), 1),
    ],
)
def test_net_operation_is_that_of_the_whole_window(operations: tuple[int, ...], net: int) -> None:
    first, last = (pa.array([value], pa.int32()).to_numpy() for value in (operations[0], operations[-1]))
    assert net_operations(first, last).tolist() == [net]


def test_collapse_of_nothing_is_nothing() -> None:
    empty = change_batch([])
    assert list(collapse_changes([], histories_plan())) == []
    assert list(collapse_changes([empty, empty], histories_plan())) == []


@settings(deadline=None)
@given(st.integers(1, 20).flatmap(lambda width: st.lists(st.binary(min_size=width, max_size=width) | st.none())))
def test_mask_bits_of_an_array_are_those_of_each_mask(masks: list[bytes | None]) -> None:
    array = pa.array([b"\xff", *masks], pa.binary()).slice(1)
    for ordinal in (1, 2, 8, 9, 17, 160, 161):
        expected = [mask is not None and is_changed(mask, ordinal) for mask in masks]
        assert mask_bits(array, ordinal).tolist() == expected
