"""Net changes of random histories against the table they happened to, without Spark."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from change_histories import KEYS, Change, assert_net_is_true, change_batch, histories_shape, random_history
from floodmark.core.schema import is_changed
from floodmark.spark.net import (
    collapse_changes,
    drop_superseded_changes,
    entries,
    list_changes,
    mask_bits,
    net_operations,
    pack,
    stamp_loaded,
    unpack,
)
from floodmark.sync.ports import RowShape

CHANGE = Change(bytes(10), 1, bytes(10), 2, b"\x1f", 1, "0", 1, "lob", "old")
KEY = ("history", "id")


def _net(rows: pa.RecordBatch, shape: RowShape, rng: random.Random) -> list[dict]:
    """Return what a load finds: read in any pieces, packed and thinned, brought together by bucket, collapsed."""
    shuffled = rows.take(pa.array(rng.sample(range(rows.num_rows), rows.num_rows), pa.int64()))
    cuts = sorted(rng.randrange(rows.num_rows + 1) for _ in range(rng.randrange(4)))
    packed: list[pa.RecordBatch] = []
    for begin, end in pairwise([0, *cuts, rows.num_rows]):
        for batch in pack([shuffled.slice(begin, end - begin)], KEY, partial(drop_superseded_changes, shape=shape)):
            packed += [batch.slice(row, 1) for row in range(batch.num_rows)]
    packed.sort(key=lambda batch: batch.column("bucket")[0].as_py())
    found = list(entries(packed))
    assert sum(entry.source_rows for entry in found) == rows.num_rows
    return [row for batch in collapse_changes(unpack(found), shape) for row in batch.to_pylist()]


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 2**32), st.booleans(), st.booleans(), st.booleans())
def test_net_changes_turn_the_target_into_the_table(
    seed: int, has_command_id: bool, declared_key: bool, comes_again: bool
) -> None:
    shape, rng = histories_shape(has_command_id=has_command_id), random.Random(seed)
    history = random_history(7, seed, ordered_seqvals=not has_command_id, declared_key=declared_key)
    again = [each for each in history.changes if comes_again and rng.random() < 0.3]
    assert_net_is_true(history, _net(change_batch([*history.changes, *again]), shape, rng))


def test_busy_row_is_thinned_to_what_matters() -> None:
    shape = histories_shape()
    history = random_history(1, seed=3)
    for number in range(500):
        history.run_transaction(1 + number % 3)
    changes = change_batch(history.changes)
    thinned = drop_superseded_changes(changes, shape)
    assert thinned.num_rows <= KEYS * 4 < changes.num_rows
    assert_net_is_true(history, [row for b in collapse_changes([thinned], shape) for row in b.to_pylist()])


def test_changes_of_many_keys_are_not_sorted_only_to_be_thinned() -> None:
    changes = change_batch([replace(CHANGE, id=str(number)) for number in range(10)])
    assert drop_superseded_changes(changes, histories_shape()) is changes


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
        ((6,), 2),
        ((6, 4), 2),
        ((3,), 1),
        ((3, 6), 4),
        ((6, 3), 1),
    ],
)
def test_net_operation_is_that_of_the_whole_window(operations: tuple[int, ...], net: int) -> None:
    first, last = (pa.array([value], pa.int32()).to_numpy() for value in (operations[0], operations[-1]))
    assert net_operations(first, last).tolist() == [net]


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize(
    ("changes", "last"),
    [
        ([(2, 5), (1, None)], 5),
        ([(4, 5), (4, 6), (1, None)], 6),
        ([(1, None)], None),
        ([(1, None), (2, 5), (1, None)], 5),
        ([(2, 5), (1, 7)], 7),
    ],
)
def test_null_in_a_delete_is_not_the_last_value_of_a_column_without_null(
    changes: list[tuple[int, int | None]], last: int | None, nullable: bool
) -> None:
    net = _net_of(changes, nullable=nullable)
    assert (net["__op"], net["a"]) == (1, changes[-1][1] if nullable else last)


def _net_of(changes: list[tuple[int, int | None]], *, nullable: bool) -> dict:
    """Return the net change of a row that one transaction changes. changes: operation and a."""
    rows = [
        replace(CHANGE, command_id=number, operation=operation, a=value, mask=b"\x04")
        for number, (operation, value) in enumerate(changes)
    ]
    shape = histories_shape()
    shape = replace(shape, values=tuple(replace(each, is_nullable=nullable) for each in shape.values))
    (net,) = _net(change_batch(rows), shape, random.Random(1))
    return net


def test_delete_without_a_value_is_that_of_the_row_that_got_the_key_before() -> None:
    assert _net_of([(6, 5), (1, None)], nullable=False)["__op"] == 1
    assert _net_of([(6, 5), (1, None)], nullable=True)["__op"] == 2
    assert _net_of([(6, 5), (1, 6)], nullable=False)["__op"] == 2


def test_collapse_of_nothing_is_nothing() -> None:
    empty = change_batch([])
    assert list(collapse_changes([], histories_shape())) == []
    assert list(collapse_changes([empty, empty], histories_shape())) == []
    assert list(pack([], KEY, lambda rows: rows)) == []


@settings(deadline=None)
@given(st.integers(1, 20).flatmap(lambda width: st.lists(st.binary(min_size=width, max_size=width) | st.none())))
def test_mask_bits_of_an_array_are_those_of_each_mask(masks: list[bytes | None]) -> None:
    array = pa.array([b"\xff", *masks], pa.binary()).slice(1)
    for ordinal in (1, 2, 8, 9, 17, 160, 161):
        expected = [mask is not None and is_changed(mask, ordinal) for mask in masks]
        assert mask_bits(array, ordinal).tolist() == expected


def test_log_has_each_change_with_its_place_and_the_columns_of_an_update() -> None:
    changes = [
        replace(CHANGE, operation=operation, mask=bytes([mask]), command_id=number)
        for number, (operation, mask) in enumerate([(1, 0x1F), (2, 0x1F), (3, 0x04), (4, 0x04), (4, 0x0C), (4, 0x10)])
    ]
    [listed] = list_changes([change_batch(changes, has_key=False)], histories_shape())
    found = [(row["__command_id"], row["__op"], row["__changed"]) for row in listed.to_pylist()]
    updates = [(2, 3, ["a"]), (3, 4, ["a"]), (4, 4, ["a", "lob"]), (5, 4, ["old"])]
    assert found == [(0, 1, None), (1, 2, None), *updates]
    [without_commands] = list_changes([change_batch(changes, has_key=False)], replace(histories_shape(), command=""))
    assert without_commands.column("__command_id").to_pylist() == [0] * 6


def test_row_that_comes_and_goes_in_one_commit_is_no_event_of_a_history() -> None:
    """But for a key that a row had before: a statement that passes keys on may give it before it is left."""
    shape = histories_shape()
    shape = replace(shape, key=(*shape.key, shape.position))
    came_and_went = [(2, 0x1F), (4, 0x04), (1, 0x1F), (2, 0x1F), (1, 0x1F)]
    given_and_left = [(4, 0x12), (3, 0x12), (1, 0x1F)]
    went_and_came = [(1, 0x1F), (2, 0x1F)]
    changes = [
        replace(CHANGE, start_lsn=bytes([commit] * 10), operation=operation, mask=bytes([mask]), command_id=number)
        for commit, commands in enumerate([came_and_went, given_and_left, went_and_came])
        for number, (operation, mask) in enumerate(commands)
    ]
    [events] = collapse_changes([change_batch(changes)], shape)
    found = [(row["__lsn"][0], row["__op"]) for row in events.to_pylist()]
    assert sorted(found) == [(1, 1), (2, 4)]


def test_rows_of_a_chunk_are_numbered_through_its_batches() -> None:
    batches = [pa.RecordBatch.from_pydict({"id": [1] * rows}) for rows in (2, 0, 300)]
    found = [row for batch in stamp_loaded(batches, b"\x07" * 10, 258) for row in batch.to_pylist()]
    assert {row["__committed_at"] for row in found} == {None}
    assert [row["__seq"] for row in found] == [(258).to_bytes(4) + number.to_bytes(6) for number in range(302)]
    assert {(row["__op"], row["__lsn"], row["__command_id"], row["__changed"]) for row in found} == {
        (0, b"\x07" * 10, 0, None)
    }
