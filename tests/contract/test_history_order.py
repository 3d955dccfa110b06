"""The promise of a history: at each commit it has the rows of the source, in whatever order its windows were merged.

Random histories of a table are cut into windows, and merged in several ways. All of them end in the same versions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from change_histories import History, Values
from floodmark.core.plan import load_lane
from floodmark.core.settings import Style
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from lsns import lsn
from order_rig import OrderRig, make_history

LAST = 20
VALUES = "id, a, lob, old"
CONTENT = f"{VALUES}, __lsn, __op, __deleted, __committed_at, __kept, __next_lsn, __valid_from, __valid_to"
States = Mapping[int, Mapping[str, Values]]
Windows = Sequence[tuple[int, int]]


@pytest.fixture
def session(database: WarehouseConnection) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database.conninfo(), autocommit=True) as opened:
        yield opened


def cut(rng: random.Random) -> Windows:
    return list(pairwise(sorted({1, LAST, *(rng.randrange(2, 12) for _ in range(rng.randrange(1, 5)))})))


def ways(rng: random.Random) -> Iterator[Windows]:
    """Yield the same changes as one window, as several in order, repeated, and overlapping in any order."""
    yield [(1, LAST)]
    yield cut(rng)
    yield [window for window in cut(rng) for _ in range(rng.randrange(1, 4))]
    windows = [(max(1, after - rng.randrange(3)), to) for after, to in cut(rng)]
    windows += rng.choices(windows, k=2)
    rng.shuffle(windows)
    yield windows


def read_all(session: psycopg.Connection, rig: OrderRig) -> list[tuple[Any, ...]]:
    view = f"{rig.target.name}_history"
    return session.execute(f'SELECT {CONTENT} FROM shop."{view}" ORDER BY id, __load, __lsn').fetchall()


def rows_as_of(session: psycopg.Connection, rig: OrderRig, number: int) -> dict[str, Values]:
    found = session.execute(
        f'SELECT {VALUES} FROM shop."{rig.target.name}_history" WHERE __lsn <= %(at)s'
        " AND (__next_lsn > %(at)s OR __next_lsn IS NULL) AND NOT __deleted",
        {"at": lsn(number).value},
    ).fetchall()
    by_key = {key: Values(*values) for key, *values in found}
    assert len(by_key) == len(found)
    return by_key


def newest_rows(session: psycopg.Connection, rig: OrderRig) -> dict[str, Values]:
    found = session.execute(f'SELECT {VALUES} FROM shop."{rig.target.name}" WHERE NOT __deleted').fetchall()
    return {key: Values(*values) for key, *values in found}


def refuse_overlaps(versions: list[tuple[Any, ...]]) -> None:
    """Each version of a key begins where the one before it ends, in time and by its place."""
    lsn_, next_lsn, begin, end = map(CONTENT.split(", ").index, ("__lsn", "__next_lsn", "__valid_from", "__valid_to"))
    for one, other in pairwise([*versions, (None,) * len(versions[0])] if versions else []):
        assert one[next_lsn] == (other[lsn_] if one[0] == other[0] else None)
        assert one[end] == (other[begin] if one[0] == other[0] else None)
        assert one[end] is None or one[begin] <= one[end]


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@example(seed=11)
@given(seed=st.integers(0, 2**32))
def test_any_order_of_windows_ends_in_the_rows_of_the_source_at_each_commit(
    ledger: PostgresLedger, database: WarehouseConnection, session: psycopg.Connection, seed: int
) -> None:
    rng = random.Random(seed)
    history, states = make_history(seed)
    expected = None
    for windows in ways(rng):
        rig = OrderRig(ledger, database, Style.HISTORY, history, rng)
        for window in windows:
            rig.run(*window, is_killed=rng.random() < 0.2)
        found = read_all(session, rig)
        if expected is None:
            expected = found
            for number, rows in states.items():
                assert rows_as_of(session, rig, number) == rows, number
            refuse_overlaps(found)
        assert found == expected
        assert newest_rows(session, rig) == states[max(states)]


def read_while(rng: random.Random, states: States, at: int, end: int) -> dict[str, Values]:
    """Return what a load reads that sees each key at its own moment between two positions."""
    keys = {key for number in range(at, end + 1) for key in states[number]}
    seen = {key: states[rng.randrange(at, end + 1)].get(key) for key in keys}
    return {key: values for key, values in seen.items() if values is not None}


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@example(seed=3)
@given(seed=st.integers(0, 2**32))
def test_loads_leave_the_history_before_them_and_are_exact_from_the_end_of_their_read_on(
    ledger: PostgresLedger, database: WarehouseConnection, session: psycopg.Connection, seed: int
) -> None:
    """A load that reads while the source changes, a gap with another load, and a restore that lowers the positions."""
    rng = random.Random(seed)
    history, states = make_history(seed, commits=28)
    rig = OrderRig(ledger, database, Style.HISTORY, history, rng)
    lane = load_lane(rig.plan(1, 2).source)
    end = rng.randrange(5, 9)
    rig.load(read_while(rng, states, 5, end), 5, lane)
    for window in ((5, 11), (11, 18), (5, 18)):
        rig.run(*window)
    for number in range(end, 19):
        assert rows_as_of(session, rig, number) == states[number], number
    # The changes from 19 to 22 are lost.
    before, end = read_all(session, rig), rng.randrange(23, 26)
    rig.load(read_while(rng, states, 23, end), 23, lane)
    for window in ((23, 26), (2, 18), (23, 29)):
        rig.run(*window)
    for number in (*range(9, 19), *range(end, 30)):
        assert rows_as_of(session, rig, number) == states[number], number
    assert newest_rows(session, rig) == states[29]
    after = read_all(session, rig)
    refuse_overlaps(after)
    ended = [row for row in before if row[-3] is not None]
    assert set(map(repr, ended)) <= set(map(repr, after))
    # The source goes back to 15, and takes another course with the same positions.
    other, lost = History(7, rng, rows=dict(states[15]), _transactions=14), after
    courses = {15: dict(other.rows)}
    for number in range(16, 24):
        other.run_transaction(rng.randrange(1, 5))
        courses[number] = dict(other.rows)
    rig.history = other
    rig.load(courses[16], 16, lane)
    for window in ((16, 20), (18, 23), (16, 20)):
        rig.run(*window)
    assert newest_rows(session, rig) == courses[23]
    after = read_all(session, rig)
    refuse_overlaps(after)
    assert {repr(row) for row in lost if row[-3] is not None} <= set(map(repr, after))


def test_window_that_is_merged_again_changes_nothing(
    ledger: PostgresLedger, database: WarehouseConnection, session: psycopg.Connection
) -> None:
    rig = OrderRig(ledger, database, Style.HISTORY, make_history(3)[0], random.Random(3))
    events = rig.run(1, LAST)
    whole = f'SELECT * FROM shop."{rig.target.name}_history" ORDER BY id, __lsn'
    before = session.execute(whole).fetchall()
    assert before and events.staged_rows == events.inserted_rows + events.updated_rows + events.deleted_rows
    again = rig.run(1, LAST)
    assert (again.staged_rows, again.unchanged_rows) == (events.staged_rows, events.staged_rows)
    assert session.execute(whole).fetchall() == before
