"""Similar characters for those that code page 1252 lacks, where Microsoft names one.

The rule is Unicode's decomposition, in the ranges in which Microsoft's table (bestfit1252 at unicode.org) follows it,
and the characters in which it goes further: letters with strokes, Greek letters, signs, and lines of boxes.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from itertools import chain
from typing import Final

_ACCENTED: Final = chain(range(0x100, 0x1E0), range(0x1E4, 0x1F1))
"""Letters with accents, each of which is its letter. The table has none behind these."""
_COMPATIBLE: Final = chain(
    range(0x2000, 0x2007), range(0x2074, 0x2079), (0x207F,), range(0x2080, 0x208A), range(0x2102, 0x2135), (0x3000,)
)
"""Blanks, small digits, and letters as signs, each of which is the plain character."""
_WIDE: Final = range(0xFF01, 0xFF5F)
_ALONE: Final = (
    "ĐÐ đd ĦH ħh ıi ŁL łl ŦT ŧt ƀb ƉÐ Ƒƒ ƗI ƚl ƟO ƫt ƮT ƶz ǀ| ǃ! ǤG ǥg ɡg ʹ' ʺ\" ʼ' ˄^ ˈ' ˉ¯ ˊ´ ˋ` ˍ_ ˚°"
    ' \u0300` \u0301´ \u0302^ \u0303~ \u0304¯ \u0305¯ \u0308¨ \u030a° \u030e" \u0327¸ \u0331_ \u0332_ \u037e;'
    " ΓG ΘT ΣS ΦF ΩO αa βß δd εe μµ πp σs τt φf һh ։: ٪%"
    " \u2010- \u2011- ‗= ․· ′' ‵` ⁄/ ⁰° ₡¢ ₤£ ₧P ℇE ℘P ℮e"
    " ∅Ø −- ∓± ∕/ ∖\\ ∗* ∘° ∙· √v ∞8 ∣| ∩n ∶: ∼~ ≈˜ ≡= ≤= ≥= ≪« ≫» ⋅·"
    " ⌂¦ ⌃^ ⌐¬ ⌠( ⌡) \u2329< \u232a> ▀¯ ▄_ █¦ ▌¦ ▐¦ ░¦ ▒¦ ▓¦ ■¦ ☼¤ ❘| 〈< 〉> 《« 》» 〚[ 〛] ・·"
)
_LINES: Final = {"-": "─┬┴═╤╥╦╧╨╩", "¦": "│┤║╞╟╠╡╢╣", "+": "┌┐└┘├┼╒╓╔╕╖╗╘╙╚╛╜╝╪╫╬"}


def _in_code_page(text: str) -> bool:
    return len(text) == 1 and text.encode("cp1252", "ignore") != b""


def _pairs() -> Iterator[tuple[str, str]]:
    for code in _ACCENTED:
        decomposed = unicodedata.normalize("NFD", chr(code))
        if len(decomposed) > 1 and decomposed[0].isascii():
            yield chr(code), decomposed[0]
    for code in chain(_COMPATIBLE, _WIDE):
        yield chr(code), unicodedata.normalize("NFKC", chr(code))
    yield from ((pair[0], pair[1]) for pair in _ALONE.split(" "))
    yield from ((line, sign) for sign, lines in _LINES.items() for line in lines)


BEST_FIT: Final = {character: fit for character, fit in _pairs() if not _in_code_page(character) and _in_code_page(fit)}
"""A character of code page 1252, by the one that it takes the place of."""
