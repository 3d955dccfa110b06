"""The promise of the merge: any order, repetition or overlap of windows ends in the same table.

A random history of a table is cut into random windows. What a window brings is computed here from the history, by the
definition of net changes; what the target must hold at the end is the history's last state.
"""

from __future__ import annotations

from decimal import Decimal

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from warehouse_shop import INSERT, Row, Shop, first_load
from window_histories import (
    FIRST_POSITION,
    KEYS,
    History,
    covering_windows,
    histories,
    net_rows,
    states_at,
    without_lobs,
)

from floodmark.core.plan import staging_table
from floodmark.core.schema import quote_table
from floodmark.core.settings import Deletes
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection


@pytest.fixture
def shop(database: WarehouseConnection, ledger: PostgresLedger) -> Shop:
    return Shop(database, ledger)


class Replayed:
    """A target that windows are merged into one after the other, whatever the ledger would say of their order."""

    def __init__(self, shop: Shop, deletes: Deletes) -> None:
        with psycopg.connect(shop.connection.conninfo()) as session:
            session.execute("DROP SCHEMA IF EXISTS shop CASCADE")
            session.execute("TRUNCATE floodmark.tables, floodmark.windows CASCADE")
            session.execute("TRUNCATE floodmark.tombstones")
        self._shop = shop
        self._plan = shop.begin(first_load(deletes), FIRST_POSITION)

    def merge(self, rows: list[Row]) -> None:
        self._shop.stage(self._plan, rows)
        self._shop.merge(self._plan)
        with psycopg.connect(self._shop.connection.conninfo()) as session:
            session.execute("UPDATE floodmark.windows SET state = 'planned'")
            session.execute(f"TRUNCATE {quote_table(staging_table(self._plan, 0))}")


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
    seen = {key: states_at(history, data.draw(st.integers(stamp, end))).get(key) for key in KEYS}
    target = Replayed(shop, deletes)
    target.merge([Row(key, INSERT, stamp, state.amount, notes=state.notes) for key, state in seen.items() if state])
    target.merge(net_rows(history, stamp, end))
    assert shop.target() == {
        key: (Decimal(state.amount), None, state.notes) for key, state in states_at(history, end).items()
    }
