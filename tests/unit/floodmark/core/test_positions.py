"""A stored position and the text of one show which kind of position it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.position import Lsn, Version, name_positions, parse_position, read_position
from lsns import lsn

NEWEST = (1 << 48) - 2
numbers = st.integers(0, NEWEST)


@given(numbers)
def test_version_comes_back_from_its_bytes_and_its_text(number: int) -> None:
    version = Version.of(number)
    assert read_position(version.value) == parse_position(str(version)) == version
    assert version.number == number
    assert str(version) == str(number)


@given(st.binary(min_size=10, max_size=10).filter(lambda value: any(value[:4])))
def test_lsn_comes_back_from_its_bytes_and_its_text(value: bytes) -> None:
    found = Lsn(value)
    assert read_position(value) == parse_position(str(found)) == found
    assert type(read_position(value)) is Lsn


@given(numbers, numbers)
def test_versions_are_in_the_order_of_their_numbers(first: int, second: int) -> None:
    assert (Version.of(first) < Version.of(second)) == (first < second)
    assert (Version.of(first).value < Version.of(second).value) == (first < second)


def test_version_before_the_first_commit_has_no_predecessor_and_the_last_no_successor() -> None:
    assert Version.of(0).next() == Version.of(1)
    with pytest.raises(ValueError, match="not a position"):
        Version.of(0).previous()
    with pytest.raises(ValueError, match="not the position of a version"):
        Version.of(NEWEST).next()
    with pytest.raises(OverflowError):
        Version.of(NEWEST + 1)
    with pytest.raises(ValueError, match="not a position"):
        Version.of(-1)


def test_positions_of_two_kinds_are_not_compared() -> None:
    lsn, version = Lsn(b"\0\0\0\1".ljust(10, b"\0")), Version.of(NEWEST)
    assert lsn != version
    with pytest.raises(TypeError):
        assert version < lsn


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "1.5", "\u0661", "0x00000000000000000012"])
def test_text_that_names_no_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an LSN"):
        parse_position(text)


def test_only_versions_count_the_commits_between_them() -> None:
    assert Version.of(9).count_above(Version.of(4)) == 5
    assert Version.of(4).count_above(Version.of(9)) == -5
    first, second = Lsn(((1 << 48) + 1).to_bytes(10)), Lsn(((1 << 48) + 9).to_bytes(10))
    assert second.count_above(first) is None
    assert Version.of(4).count_above(first) is None


def test_position_of_a_row_is_named_by_its_commit() -> None:
    """A change of a stream has four bytes more: its place in the commit."""
    commit = lsn(7).value
    assert name_positions([commit, commit + bytes(4), Version.of(12).value]) == f"{lsn(7)}, {lsn(7)}, {Version.of(12)}"
