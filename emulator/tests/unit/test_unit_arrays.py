"""Columns of texts as code units: the same bytes as text by text, however the texts meet in the buffer."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlserver_emulator import code_units, unit_arrays
from tds_strategies import PATIENT

_HARD = (
    "ab\0é\u07ff\u0800\ufeff\uffff\ud800\udbff\udc00\udfff\U00010000\U0001f600\U0010efff\U0010f000\U0010f800\U0010ffff"
)
"""The first and last characters of each length, halves of pairs, and what the emulator holds them as."""
TEXTS = st.one_of(st.text("ab", max_size=5), st.text(_HARD, max_size=5)).map(code_units.escaped)


def _encoded(texts: list[str], offset: int = 0) -> list[bytes]:
    ends, data = unit_arrays.encode(*unit_arrays.content(pa.array(texts, pa.string()).slice(offset)))
    return [bytes(data[ends[i] : ends[i + 1]]) for i in range(len(ends) - 1)]


@PATIENT
@given(st.lists(TEXTS, max_size=6), st.integers(0, 3))
def test_texts_of_a_column_are_encoded_as_each_of_them(texts: list[str], offset: int) -> None:
    assert _encoded(texts, offset) == [code_units.to_utf16(text) for text in texts[offset:]]


@pytest.mark.parametrize("texts", [["\ud83d", "\ude00"], ["", "\ude00\ud83d", ""], ["\0", "", "\0a"]])
def test_halves_of_pairs_keep_their_values_apart(texts: list[str]) -> None:
    expected = [text.encode("utf-16-le", "surrogatepass") for text in texts]
    assert _encoded([code_units.escaped(text) for text in texts]) == expected
