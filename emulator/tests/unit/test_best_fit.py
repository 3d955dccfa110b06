"""Similar characters for those that code page 1252 lacks."""

from __future__ import annotations

import pytest

from sqlserver_emulator.best_fit import BEST_FIT
from sqlserver_emulator.code_units import NUL, in_code_page, to_code_page


@pytest.mark.parametrize(
    ("text", "fit"),
    [
        ("čłĐđőşŹ", "clÐdosZ"),
        ("ƒƑ", "ƒƒ"),
        ("\uff37\uff41\uff5e\uff01", "Wa~!"),
        ("ΓΘΣΦΩαβδεμπστφ", "GTSFOaßdeµpstf"),
        ("₀₉⁴⁸ⁿ⁰", "0948n°"),
        ("ℂℊℓ\u212a\u212bℴ℮℘", "CglKÅoeP"),
        ("∞≤√−∅≈", "8=v-Ø˜"),
        ("─│┌┼╬╧╢", "-¦+++-¦"),
        ("\u2000\u2006\u3000\u2010\u3008\u300b", "   -<»"),
        ("€šŽ…™", "€šŽ…™"),
        ("\x81\x9d", "\x81\x9d"),
    ],
)
def test_character_has_a_similar_one(text: str, fit: str) -> None:
    assert in_code_page(text) == fit
    assert to_code_page(text, "cp1252") == to_code_page(fit, "cp1252")


@pytest.mark.parametrize("text", ["ẠặǺǡȀſ", "ΔЖאـ漢", "⁹₊⅓ŉǄ", "\U0010f000\ufffd"])
def test_character_without_a_similar_one_is_a_question_mark(text: str) -> None:
    assert in_code_page(text) == "?" * len(text)


def test_each_unit_is_one_byte() -> None:
    assert in_code_page(f"a{NUL}🦀b") == f"a{NUL}??b"


def test_no_character_of_the_code_page_is_replaced_and_all_fits_are_in_it() -> None:
    for character, fit in BEST_FIT.items():
        assert character.encode("cp1252", "ignore") == b"", character
        assert len(fit.encode("cp1252")) == 1, character
