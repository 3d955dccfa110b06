"""The promise of a log: any order, repetition or loss of attempts of windows ends in the list of all changes.

Random histories of a table are cut into random windows. What the log must hold is taken from the change rows of the
history itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from change_histories import Change, History
from floodmark.core.plan import TableCounts
from floodmark.core.schema import is_changed
from floodmark.core.settings import Style
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from order_rig import OrderRig, committed_at, make_history

_NAMES = {0x02: "id", 0x04: "a", 0x08: "lob", 0x10: "old"}
_KINDS = {1: 1, 2: 2, 3: 1, 4: 4}
LOGGED = (
    "encode(__lsn, 'hex'), __command_id, encode(__seq, 'hex'), __op, history, id, a, lob, old, __changed,"
    " __committed_at"
)
Event = tuple[object, ...]


def event_of(change: Change, *, has_key: bool = True) -> Event:
    """Return the row of the log for a change, by the definition of the log."""
    moves = change.operation in (3, 4) and is_changed(change.mask, 2)
    kind = 2 if change.operation == 4 and moves else _KINDS[change.operation]
    kind = kind if has_key else change.operation
    changed = [name for bit, name in _NAMES.items() if change.mask[-1] & bit] if kind in (3, 4) else None
    place = (change.start_lsn.hex(), change.command_id, change.seqval.hex(), kind)
    return (
        *place,
        change.history,
        change.id,
        change.a,
        change.lob,
        change.old,
        changed,
        committed_at(change.start_lsn),
    )


def events_of(history: History, *, has_key: bool = True) -> list[Event]:
    """Return all rows of the log: with a key, without the images before updates that leave it."""
    kept = [each for each in history.changes if not has_key or each.operation != 3 or is_changed(each.mask, 2)]
    return sorted((event_of(each, has_key=has_key) for each in kept), key=lambda event: event[:4])


@pytest.fixture
def session(database: WarehouseConnection) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database.conninfo(), autocommit=True) as opened:
        yield opened


def read_log(session: psycopg.Connection, rig: OrderRig) -> list[Event]:
    order = "__lsn, __command_id, __seq, __op"
    return session.execute(f'SELECT {LOGGED} FROM shop."{rig.target.name}" ORDER BY {order}').fetchall()


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@example(seed=11, has_key=True)
@example(seed=11, has_key=False)
@given(seed=st.integers(0, 2**32), has_key=st.booleans())
def test_windows_in_order_late_again_and_after_a_kill_end_in_the_list_of_all_changes(
    ledger: PostgresLedger, database: WarehouseConnection, session: psycopg.Connection, seed: int, has_key: bool
) -> None:
    rng = random.Random(seed)
    rig = OrderRig(ledger, database, Style.LOG, make_history(seed)[0], rng, has_key=has_key)
    cuts = sorted({1, 20, *(rng.randrange(2, 12) for _ in range(rng.randrange(4)))})
    windows = list(pairwise(cuts))
    if rng.random() < 0.7:
        # Some overlap others, and some come twice.
        windows = [(max(1, after - rng.randrange(3)), to) for after, to in windows] + rng.choices(windows, k=2)
        rng.shuffle(windows)
    counts = [rig.run(*window, is_killed=rng.random() < 0.3) for window in windows]
    expected = events_of(rig.history, has_key=has_key)
    assert read_log(session, rig) == expected
    assert sum(each.inserted_rows for each in counts) == len(expected)
    assert all(each.staged_rows == each.inserted_rows + each.unchanged_rows for each in counts)


def test_window_that_is_merged_again_leaves_every_row_as_it_was(
    ledger: PostgresLedger, database: WarehouseConnection, session: psycopg.Connection
) -> None:
    """A consumer that has read up to a window does not read a row of it again."""
    rig = OrderRig(ledger, database, Style.LOG, make_history(3)[0], random.Random(3))
    rig.run(1, 20)
    whole = f'SELECT * FROM shop."{rig.target.name}" ORDER BY __lsn, __command_id, __seq, __op'
    before = session.execute(whole).fetchall()
    assert before
    assert rig.run(1, 20) == TableCounts(staged_rows=len(before), unchanged_rows=len(before))
    assert session.execute(whole).fetchall() == before
