from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sqlserver_emulator.cdc.lsn import (
    FIRST_ROW_SLOT,
    IDLE_SLOT,
    ZERO_LSN,
    lsn_at,
    lsn_text,
    parse_position,
    position_of,
    position_text,
)

positions = st.integers(0, 2**50).map(lambda n: n * 8)


@given(positions, positions)
def test_lsn_orders_as_positions_do(a: int, b: int) -> None:
    assert (lsn_at(a) < lsn_at(b)) == (a < b)


@given(positions, st.integers(0, 65535))
def test_position_comes_back_from_any_slot(position: int, slot: int) -> None:
    assert position_of(lsn_at(position, slot)) == position


def test_lsn_of_the_first_position_is_not_zero() -> None:
    assert lsn_at(0, IDLE_SLOT) > ZERO_LSN


def test_idle_mark_lies_between_the_commit_before_and_the_commit_at_its_position() -> None:
    assert lsn_at(992) < lsn_at(1000, IDLE_SLOT) < lsn_at(1000)


def test_rows_of_one_record_are_below_a_later_commit() -> None:
    assert lsn_at(1000) < lsn_at(1000, FIRST_ROW_SLOT) < lsn_at(1000, FIRST_ROW_SLOT + 1) < lsn_at(1008)


def test_lsn_is_printed_as_the_server_does() -> None:
    assert lsn_text(bytes.fromhex("0000002D00000580001D")) == "0000002D:00000580:001D"


@given(positions)
def test_position_text_is_read_back(position: int) -> None:
    assert parse_position(position_text(position)) == position
