"""Random histories of a table, cut into windows; what each window stages, and what the table holds at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import strategies as st
from warehouse_shop import DELETE, INSERT, UPDATE, Row

KEYS = (1, -1, 2, -2)
"""A hash of a key may leave out the sign of a number."""
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
        Change, st.sampled_from(KEYS), st.booleans(), st.integers(0, 99), st.none() | st.sampled_from(["a", "b", "ü"])
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
    """Return what the window ``(after, to]`` stages: the latest change of each key, with its latest LOB value."""
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


def without_lobs(rows: list[Row]) -> list[Row]:
    return [Row(row.id, row.op, row.lsn, row.amount) for row in rows]
