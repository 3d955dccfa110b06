"""The promise of the merge: any order, repetition or overlap of windows ends in the same table.

A random history of a table is cut into random windows. What a window brings is computed here from the history, by the
definition of net changes; what the target must hold at the end is the history's last state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from warehouse_shop import DELETE, INSERT, UPDATE, Row, Shop, first_load

from floodmark.core.naming import quote_table
from floodmark.core.policies import Deletes
from floodmark.core.window.staging_names import staging_table
from floodmark.postgres.connection import WarehouseConnection
from floodmark.postgres.ledger.ledger import PostgresLedger

KEYS = 4
FIRST_POSITION = 2


@dataclass(frozen=True)
class Change:
    """One change of one key, at a commit of its own. notes None: the change row leaves the LOB out."""

    key: int
    deletes: bool
    amount: int
    notes: str | None


@dataclass(frozen=True)
class State:
    amount: int
    notes: str | None


History = Sequence[Change]
histories = st.lists(
    st.builds(
        Change, st.integers(1, KEYS), st.booleans(), st.integers(0, 99), st.none() | st.sampled_from(["a", "b", "ü"])
    ),
    min_size=1,
    max_size=12,
)


def states_at(history: History, position: int) -> dict[int, State]:
    """The source table after everything up to ``position``."""
    rows: dict[int, State] = {}
    for change in history[: position - FIRST_POSITION + 1]:
        if change.deletes:
            rows.pop(change.key, None)
        else:
            before = rows.get(change.key)
            notes = change.notes if change.notes is not None else before.notes if before else None
            rows[change.key] = State(change.amount, notes)
    return rows


def net_rows(history: History, after: int, to: int) -> list[Row]:
    """What the window ``(after, to]`` stages: the latest change of each key, with the latest LOB value it carried."""
    rows: dict[int, Row] = {}
    alive = states_at(history, after)
    for position, change in enumerate(history, FIRST_POSITION):
        known = change.key in alive
        if change.deletes:
            alive.pop(change.key, None)
        else:
            alive[change.key] = State(change.amount, None)
        if not after < position <= to or (change.deletes and not known):
            continue
        rows[change.key] = _net_row(position, change, known, rows.get(change.key))
    return list(rows.values())


def _net_row(position: int, change: Change, known: bool, earlier: Row | None) -> Row:
    if change.deletes:
        return Row(change.key, DELETE, position, change.amount, keep=True)
    if not known:  # an insert carries everything
        return Row(change.key, INSERT, position, change.amount, notes=change.notes)
    if change.notes is None and earlier is not None and earlier.op != DELETE:
        return Row(change.key, earlier.op, position, change.amount, notes=earlier.notes, keep=earlier.keep)
    return Row(change.key, UPDATE, position, change.amount, notes=change.notes, keep=change.notes is None)


@st.composite
def covering_windows(draw: st.DrawFn) -> tuple[History, list[tuple[int, int]]]:
    """A history, and windows that leave no gap, overlap, stand twice, and come in any order."""
    history = draw(histories)
    start, end = FIRST_POSITION - 1, FIRST_POSITION + len(history) - 1
    cuts = sorted({start, end, *draw(st.lists(st.integers(start, end), max_size=3))})
    windows = [(max(start, after - draw(st.integers(0, 2))), to) for after, to in pairwise(cuts)]
    again = draw(st.lists(st.sampled_from(windows), max_size=2))
    return history, draw(st.permutations(windows + again))


@pytest.fixture
def shop(database: WarehouseConnection, ledger: PostgresLedger) -> Shop:
    return Shop(database, ledger)


class Replayed:
    """A target that windows are merged into one after the other, whatever the ledger would say of their order."""

    def __init__(self, shop: Shop, deletes: Deletes) -> None:
        with psycopg.connect(shop.connection.conninfo()) as session:
            session.execute("DROP SCHEMA IF EXISTS shop CASCADE")
            session.execute(
                "TRUNCATE floodmark.tables, floodmark.windows, floodmark.window_tables, floodmark.load_chunks"
            )
            session.execute("TRUNCATE floodmark.tombstones")
        self._shop = shop
        self._plan = shop.begin(first_load(deletes), FIRST_POSITION)

    def merge(self, rows: list[Row]) -> None:
        self._shop.stage(self._plan, rows)
        self._shop.merge(self._plan)
        with psycopg.connect(self._shop.connection.conninfo()) as session:
            session.execute("UPDATE floodmark.windows SET state = 'planned'")
            session.execute(f"TRUNCATE {quote_table(staging_table(self._plan, 0))}")


def without_lobs(rows: list[Row]) -> list[Row]:
    return [Row(row.id, row.op, row.lsn, row.amount) for row in rows]


few = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("deletes", Deletes)
@few
@given(covering_windows())
def test_any_order_repetition_or_overlap_of_windows_ends_in_the_same_table(
    shop: Shop, deletes: Deletes, case: tuple[History, list[tuple[int, int]]]
) -> None:
    history, windows = case
    target = Replayed(shop, deletes)
    for after, to in windows:
        target.merge(without_lobs(net_rows(history, after, to)))
    end = states_at(history, FIRST_POSITION + len(history))
    assert {key: row[0] for key, row in shop.target().items()} == {key: Decimal(s.amount) for key, s in end.items()}


@pytest.mark.parametrize("deletes", Deletes)
@few
@given(covering_windows(), st.data())
def test_replays_between_windows_in_order_keep_every_lob(
    shop: Shop, deletes: Deletes, case: tuple[History, list[tuple[int, int]]], data: st.DataObject
) -> None:
    history, windows = case
    target = Replayed(shop, deletes)
    done: list[tuple[int, int]] = []
    for after, to in sorted(windows):
        replayed = data.draw(st.lists(st.sampled_from(done), max_size=1)) if done else []
        for window in [*replayed, (after, to)]:
            target.merge(net_rows(history, *window))
        done.append((after, to))
    end = states_at(history, FIRST_POSITION + len(history))
    assert shop.target() == {key: (Decimal(s.amount), None, s.notes) for key, s in end.items()}


@pytest.mark.parametrize("deletes", Deletes)
@few
@given(histories, st.data())
def test_first_load_that_reads_later_than_its_stamp_ends_in_the_same_table(
    shop: Shop, deletes: Deletes, history: History, data: st.DataObject
) -> None:
    end = FIRST_POSITION + len(history) - 1
    stamp = data.draw(st.integers(FIRST_POSITION, end))
    # Each key is read at a moment of its own: the load is chunked and takes no locks.
    read_at = [data.draw(st.integers(stamp, end)) for _ in range(KEYS)]
    seen = {key: states_at(history, read_at[key - 1]).get(key) for key in range(1, KEYS + 1)}
    target = Replayed(shop, deletes)
    target.merge([Row(key, INSERT, stamp, state.amount, notes=state.notes) for key, state in seen.items() if state])
    target.merge(net_rows(history, stamp, end))
    assert shop.target() == {
        key: (Decimal(state.amount), None, state.notes) for key, state in states_at(history, end).items()
    }
