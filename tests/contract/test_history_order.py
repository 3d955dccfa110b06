"""The promise of a history: at each commit it has the rows of the source, in whatever order its windows were merged.

Random histories of a table are cut into windows, and merged in several ways. All of them end in the same versions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from change_histories import History, Values
from floodmark.core.errors import DuplicateKeyError
from floodmark.core.plan import load_lane
from floodmark.core.settings import Style
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse import history
from lsns import lsn
from order_rig import OrderRig, committed_at, make_history

LAST = 20
VALUES = "id, a, lob, old"
CONTENT = f"{VALUES}, __lsn, __op, __deleted, __committed_at, __kept, __next_lsn, __valid_from, __valid_to"
OpenRig = Callable[[History, random.Random], OrderRig]
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


def by_key(found: Sequence[Sequence[Any]]) -> dict[str, Values]:
    rows = {key: Values(*values) for key, *values in found}
    assert len(rows) == len(found)
    return rows


@dataclass(frozen=True)
class HistoryReader:
    """A reader of histories. Another warehouse has one of its own."""

    session: Any

    def read_all(self, rig: OrderRig) -> list[tuple[Any, ...]]:
        view = f"{rig.target.name}_history"
        return list(self.session.execute(f'SELECT {CONTENT} FROM shop."{view}" ORDER BY id, __load, __lsn'))

    def rows_as_of(self, rig: OrderRig, number: int) -> dict[str, Values]:
        found = self.session.execute(
            f'SELECT {VALUES} FROM shop."{rig.target.name}_history" WHERE __lsn <= %(at)s'
            " AND (__next_lsn > %(at)s OR __next_lsn IS NULL) AND NOT __deleted",
            {"at": lsn(number).value},
        )
        return by_key(found.fetchall())

    def newest_rows(self, rig: OrderRig) -> dict[str, Values]:
        found = self.session.execute(f'SELECT {VALUES} FROM shop."{rig.target.name}" WHERE NOT __deleted')
        return by_key(found.fetchall())


def in_postgres(ledger: PostgresLedger, database: WarehouseConnection) -> OpenRig:
    return lambda commits, rng: OrderRig(ledger, database, Style.HISTORY, commits, rng)


def refuse_overlaps(versions: list[tuple[Any, ...]]) -> None:
    """Each version of a key begins where the one before it ends, in time and by its place."""
    lsn_, next_lsn, begin, end = map(CONTENT.split(", ").index, ("__lsn", "__next_lsn", "__valid_from", "__valid_to"))
    for one, other in pairwise([*versions, (None,) * len(versions[0])] if versions else []):
        assert one[next_lsn] == (other[lsn_] if one[0] == other[0] else None)
        assert one[end] == (other[begin] if one[0] == other[0] else None)
        assert one[end] is None or one[begin] <= one[end]


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@example(seed=3)
@example(seed=10)
@given(seed=st.integers(0, 2**32))
def test_any_order_of_windows_ends_in_the_rows_of_the_source_at_each_commit(
    ledger: PostgresLedger, database: WarehouseConnection, session: psycopg.Connection, seed: int
) -> None:
    merge_in_several_ways(in_postgres(ledger, database), HistoryReader(session), seed)


def merge_in_several_ways(
    open_rig: OpenRig, reader: HistoryReader, seed: int, chosen: Callable[[random.Random], Iterable[Windows]] = ways
) -> None:
    rng = random.Random(seed)
    commits, states = make_history(seed)
    expected = None
    for windows in chosen(rng):
        rig = open_rig(commits, rng)
        for window in windows:
            rig.run(*window, is_killed=rng.random() < 0.2)
        found = reader.read_all(rig)
        if expected is None:
            expected = found
            for number, rows in states.items():
                assert reader.rows_as_of(rig, number) == rows, number
            refuse_overlaps(found)
        assert found == expected
        assert reader.newest_rows(rig) == states[max(states)]


def read_while(rng: random.Random, states: States, at: int, end: int) -> dict[str, Values]:
    """Return what a load reads that sees each key at its own moment between two positions."""
    keys = {key for number in range(at, end + 1) for key in states[number]}
    seen = {key: states[rng.randrange(at, end + 1)].get(key) for key in keys}
    return {key: values for key, values in seen.items() if values is not None}


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@example(seed=3)
@given(seed=st.integers(0, 2**32))
def test_loads_leave_the_history_before_them_and_are_exact_from_the_end_of_their_read_on(
    ledger: PostgresLedger, database: WarehouseConnection, session: psycopg.Connection, seed: int
) -> None:
    load_three_times(in_postgres(ledger, database), HistoryReader(session), seed)


def load_three_times(open_rig: OpenRig, reader: HistoryReader, seed: int) -> None:
    """A load that reads while the source changes, a gap with another load, and a restore that lowers the positions."""
    rng = random.Random(seed)
    commits, states = make_history(seed, commits=28)
    rig = open_rig(commits, rng)
    lane = load_lane(rig.plan(1, 2).source)
    end = rng.randrange(5, 9)
    rig.load(read_while(rng, states, 5, end), 5, lane)
    for window in ((5, 11), (11, 18), (5, 18)):
        rig.run(*window)
    for number in range(end, 19):
        assert reader.rows_as_of(rig, number) == states[number], number
    # The changes from 19 to 22 are lost.
    before, end = reader.read_all(rig), rng.randrange(23, 26)
    rig.load(read_while(rng, states, 23, end), 23, lane)
    rig.run(23, 26)
    merged = reader.read_all(rig)
    # The load has read what is up to it.
    again = rig.run(2, 23)
    assert again.unchanged_rows == again.staged_rows > 0
    assert reader.read_all(rig) == merged
    rig.run(23, 29)
    for number in (*range(9, 19), *range(end, 30)):
        assert reader.rows_as_of(rig, number) == states[number], number
    assert reader.newest_rows(rig) == states[29]
    after = reader.read_all(rig)
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
    assert reader.newest_rows(rig) == courses[23]
    after = reader.read_all(rig)
    rig.load(courses[23], 23, lane)
    assert reader.read_all(rig) == after
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


def delete_and_repeat(
    open_rig: OpenRig, reader: HistoryReader, monkeypatch: pytest.MonkeyPatch, seed: int, times: int = 2
) -> int:
    """Merge windows in order and again, while versions are deleted for their age. Return how many were.

    Those that are left are as if none had been deleted, with the LOBs that came from one.
    """
    rng = random.Random(seed)
    commits, _ = make_history(seed, commits=18)
    whole = open_rig(commits, rng)
    whole.run(1, LAST)
    rig = open_rig(commits, rng)
    rig.keep_versions = 1
    since, deleted, kept_since = 0, 0, committed_at(lsn(2).value)
    for after, to in cut(rng):
        rig.run(after, to)
        for _ in range(times):
            since = max(since, rng.randrange(1, to + 1))
            kept_since = committed_at(lsn(since - (since % 4 == 3)).value)
            monkeypatch.setattr(history, "_kept_since", lambda _, at=kept_since: f"timestamptz '{at}'")
            deleted += rig.delete_old_versions()
            again = rng.randrange(1, to)
            rig.run(again, rng.randrange(again + 1, to + 1))
    rig.delete_old_versions()
    end = CONTENT.split(", ").index("__valid_to")
    expected = [row for row in reader.read_all(whole) if row[end] is None or row[end] >= kept_since]
    assert reader.read_all(rig) == expected
    return deleted


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@example(seed=3)
@example(seed=10)
@given(seed=st.integers(0, 2**32))
def test_versions_that_were_deleted_for_their_age_stay_away_and_the_others_are_right(
    ledger: PostgresLedger, database: WarehouseConnection, session: psycopg.Connection, seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        delete_and_repeat(in_postgres(ledger, database), HistoryReader(session), patch, seed)


def test_old_versions_are_deleted_from_the_oldest_on_where_no_window_is_unfinished(
    ledger: PostgresLedger, database: WarehouseConnection, session: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = OrderRig(ledger, database, Style.HISTORY, make_history(3)[0], random.Random(3), keep_versions=1)
    rig.run(1, LAST)
    monkeypatch.setattr(history, "_kept_since", lambda _: "timestamptz '2030-01-01'")
    monkeypatch.setattr(history, "AT_MOST", 2)
    ended = f'SELECT __next_lsn, id FROM shop."{rig.target.name}_versions" ORDER BY 1, 2'
    newest = f'SELECT * FROM shop."{rig.target.name}" ORDER BY id'
    before, others = session.execute(ended).fetchall(), session.execute(newest).fetchall()
    opened = rig.open(1, 2)
    assert rig.delete_old_versions() == 0
    assert session.execute(ended).fetchall() == before
    session.execute("UPDATE floodmark.windows SET state = 'advanced' WHERE window_id = %s", [opened.window_id])
    assert rig.delete_old_versions() == 2
    left = [at for at, _ in session.execute(ended).fetchall()]
    assert left == [at for at, _ in before][2:]
    assert session.execute(newest).fetchall() == others


BY_PLACE, TIMES = "ORDER BY __load, __lsn", "max(coalesce(__valid_from, __committed_at))"
HIGHEST = "greatest(t.__valid_from, s.__committed_at)"
BEGAN = "(SELECT at FROM began)"
WEAKENED = {
    "no later versions": ("has_late_events", "WHERE (t", "WHERE false AND (t", 3),
    "order by the position alone": ("merge_events", BY_PLACE, "ORDER BY __lsn", 0),
    "no highest time": ("merge_events", f"{TIMES} OVER w", "__committed_at", 0),
    "highest time of those near": ("merge_events", TIMES, "max(__committed_at)", 3),
    "what is left out is NULL": ("merge_events", "SELECT {healed}", "SELECT {columns}", 10),
    "what is left out is forgotten": ("merge_events", "{staged_kept}", "'{{}}'::text[]", 10),
    "a second change of a key": ("has_late_events", "HAVING count(*) > 1", "HAVING false", 0),
    "a version that ends": ("end_newest", "WHERE s.__load", "WHERE false AND s.__load", 0),
    "highest time of the end": ("end_newest", HIGHEST, "s.__committed_at", 5),
    "highest time of the newest": ("merge_newest", HIGHEST, "s.__committed_at", 5),
    "rows of a load that are equal": ("merge_loaded", "ELSE {differs}", "ELSE true", 0),
    "changes that a load has read": ("pass_over_loaded", "WHERE", "WHERE false AND", 0),
    "highest time of a load": ("merge_loaded", "greatest((SELECT at FROM began), t.__valid_from)", BEGAN, 0),
    "changes at a load": ("pass_over_loaded", "<=", "<", 0),
    "rows that a load does not find": ("merge_loaded", "THEN %(sweeps)s", "THEN false", 0),
    "changes of deleted versions": ("pass_over_deleted", "WHERE", "WHERE false AND", 10),
    "versions that a load ends": ("merge_loaded", "FROM differs WHERE __keep_had", "FROM differs WHERE false", 0),
}
"""A statement, its text, a weaker one, and the seed of a history that shows the difference."""


@pytest.mark.parametrize("name", WEAKENED)
def test_weakened_statement_is_found(
    ledger: PostgresLedger,
    database: WarehouseConnection,
    session: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    statement, right, weak, seed = WEAKENED[name]
    weakened = read_sql(statement).replace(right, weak)
    assert weakened != read_sql(statement)
    monkeypatch.setattr(history, "read_sql", lambda asked: weakened if asked == statement else read_sql(asked))
    prove = load_three_times if "load" in name or "alone" in name else merge_in_several_ways
    with pytest.raises((AssertionError, DuplicateKeyError)):
        if "deleted" in name:
            delete_and_repeat(in_postgres(ledger, database), HistoryReader(session), monkeypatch, seed)
        else:
            prove(in_postgres(ledger, database), HistoryReader(session), seed)
