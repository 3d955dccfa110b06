"""Masks of values: each type, what has no room, and texts that no strict encoder takes."""

from __future__ import annotations

import hmac
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from floodmark.core.settings import ColumnSettings, Mask
from floodmark.sync.columns import hash_value, mask_values

SECRET = b"a secret"
LONG = "1234567890" * 3 + "1234"
HALF = "abcdef\ud800"


def masked(values: list[Any], kind: pa.DataType, mask: Mask, digits: int = 0) -> list[Any]:
    return list(
        mask_values(pa.array(values, kind), ColumnSettings("Any", mask=mask, digits=digits), SECRET).to_pylist()
    )


def hashed(text: str) -> str:
    return hmac.digest(SECRET, text.encode("utf-16-le", "surrogatepass"), "sha256").hex()


@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
def test_hashes_of_a_column_are_those_of_single_values_with_any_secret(length: int) -> None:
    secret, texts = bytes(range(1, length + 1)), ["one", "", None, "ä" * 100, "one"]
    found = mask_values(pa.array(texts), ColumnSettings("Any", mask=Mask.HASH), secret).to_pylist()
    assert found == [None if text is None else hash_value(secret, text) for text in texts]
    empty = mask_values(pa.array([None], pa.string()), ColumnSettings("Any", mask=Mask.HASH), secret)
    assert (empty.type, empty.to_pylist()) == (pa.string(), [None])


def test_hashes_of_texts_of_any_characters_are_those_of_single_values() -> None:
    """Halves of pairs, whole pairs, and NUL, in texts that lie next to each other in memory."""
    chance = random.Random(5)
    for characters in ("0ä€\0\n\ud83d\ude00", "0ä€\0\n\ud83d\ude00\U0001f600"):
        for _ in range(200):
            texts = ["".join(chance.choices(characters, k=chance.randrange(5))) for _ in range(chance.randrange(6))]
            octets = pa.array([text.encode("utf-8", "surrogatepass") for text in texts], pa.binary())
            found = mask_values(octets.view(pa.string()), ColumnSettings("Any", mask=Mask.HASH), SECRET)
            assert found.to_pylist() == [hash_value(SECRET, text) for text in texts]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ("näme 日本", pa.string(), "näme 日本"),
        ("", pa.string(), ""),
        (-12, pa.int64(), "-12"),
        (True, pa.bool_(), "1"),
        (Decimal("1.50"), pa.decimal128(9, 2), "1.50"),
        (Decimal("0.0000000"), pa.decimal128(9, 7), "0.0000000"),
        (0.1, pa.float64(), "0.1"),
        (date(2026, 1, 31), pa.date32(), "2026-01-31"),
        (datetime(2026, 1, 31), pa.timestamp("us"), "2026-01-31 00:00:00.000000"),
        (datetime(2026, 1, 31, tzinfo=UTC), pa.timestamp("us", tz="UTC"), "2026-01-31 00:00:00.000000+00:00"),
        (b"\x00\xff", pa.binary(), "00ff"),
    ],
)
def test_hash_is_that_of_the_text_of_a_value_and_null_stays_null(value: Any, kind: pa.DataType, text: str) -> None:
    assert masked([value, None, value], kind, Mask.HASH) == [hashed(text), None, hashed(text)]
    assert masked([None, value], kind, Mask.REDACT) == [None, "***"]
    assert masked([value, None], kind, Mask.NULL) == [None, None]


def test_no_text_is_shown_by_more_than_four_characters_of_it() -> None:
    texts = ["0699 1234567", "12345", "1234", "", None, "日本日本日本"]
    assert masked(texts, pa.string(), Mask.LAST4) == ["********4567", "*2345", "****", "", None, "**日本日本"]


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (date(1987, 6, 5), pa.date32(), date(1987, 1, 1)),
        (date(1, 12, 31), pa.date32(), date(1, 1, 1)),
        (datetime(9999, 12, 31, 23, 59, 59, 999999), pa.timestamp("us"), datetime(9999, 1, 1)),
        ("1987-06-05 04:03:02.1234567 +05:30", pa.string(), "1987-01-01 00:00:00.0000000 +00:00"),
    ],
)
def test_year_is_kept_of_a_moment_and_nothing_else(value: Any, kind: pa.DataType, expected: Any) -> None:
    assert masked([value, None], kind, Mask.YEAR) == [expected, None]


@pytest.mark.parametrize(
    ("value", "kind", "digits", "expected"),
    [
        (41234, pa.int32(), -3, 41000),
        (-41500, pa.int32(), -3, -42000),
        (41234, pa.int32(), 2, 41234),
        (32767, pa.int16(), -3, 32000),
        (-32768, pa.int16(), -1, -32760),
        (9223372036854775807, pa.int64(), -1, 9223372036854775800),
        (Decimal("12.345"), pa.decimal128(5, 3), 1, Decimal("12.300")),
        (Decimal("99.99"), pa.decimal128(4, 2), 0, Decimal("99.00")),
        (Decimal("1.25"), pa.decimal128(4, 2), 9, Decimal("1.25")),
        (
            Decimal(LONG + "5.678"),
            pa.decimal128(38, 3),
            0,
            Decimal(LONG + "6.000"),
        ),
        (1234.56, pa.float64(), -2, 1200.0),
        (float("inf"), pa.float64(), 1, float("inf")),
    ],
)
def test_number_is_rounded_to_one_that_its_type_has_room_for(
    value: Any, kind: pa.DataType, digits: int, expected: Any
) -> None:
    assert masked([value, None], kind, Mask.ROUND, digits) == [expected, None]


def test_half_of_a_surrogate_pair_is_masked_like_any_other_character() -> None:
    texts = pa.array([HALF.encode("utf-8", "surrogatepass")], pa.binary()).view(pa.string())
    hashes = mask_values(texts, ColumnSettings("Any", mask=Mask.HASH), SECRET)
    assert hashes.to_pylist() == [hashed(HALF)]
    last = mask_values(texts, ColumnSettings("Any", mask=Mask.LAST4), SECRET)
    assert last.cast(pa.binary()).to_pylist() == [("***" + HALF[3:]).encode("utf-8", "surrogatepass")]
