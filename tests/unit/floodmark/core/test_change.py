import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.schema import bits_by_byte, changed_ordinals, is_changed


@pytest.mark.parametrize(
    ("mask", "ordinals"),
    [
        ("03", [1, 2]),
        ("1F", [1, 2, 3, 4, 5]),
        ("01FF", list(range(1, 10))),
        ("0008", [4]),
        ("0002", [2]),
        ("04", [3]),
        ("0100", [9]),
        ("00", []),
        ("", []),
    ],
)
def test_mask_counts_ordinals_from_the_right(mask: str, ordinals: list[int]) -> None:
    value = bytes.fromhex(mask)
    assert list(changed_ordinals(value)) == ordinals
    assert [ordinal for ordinal in range(1, 20) if is_changed(value, ordinal)] == ordinals


@given(st.sets(st.integers(1, 1024)))
def test_mask_lists_every_ordinal_that_was_set(ordinals: set[int]) -> None:
    mask = sum(1 << (ordinal - 1) for ordinal in ordinals).to_bytes(128)
    assert set(changed_ordinals(mask)) == ordinals
    assert all(is_changed(mask, ordinal) for ordinal in ordinals)


@given(st.sets(st.integers(1, 1024)), st.binary(min_size=128, max_size=128))
def test_bits_by_byte_ask_for_the_ordinals_and_no_others(ordinals: set[int], mask: bytes) -> None:
    is_any_set = any(mask[-1 - byte] & bits for byte, bits in bits_by_byte(ordinals))
    assert is_any_set == any(is_changed(mask, ordinal) for ordinal in ordinals)
