"""UTF-16 code units that PostgreSQL's text cannot hold, as characters that it can (ADR 50).

SQL Server's national strings are any sequence of code units, U+0000 and halves of surrogate pairs included. Inside the
emulator such a unit is one private-use character of plane 16, and a character that is itself one of these is two of
them: the halves of its pair. A text has one form only, so equal values are equal texts. The wire applies this.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

from sqlserver_emulator.best_fit import BEST_FIT

_FIRST: Final = 0x10F000
"""The character for U+D800; 2,048 characters are those of the surrogates."""
NUL: Final = "\U0010f800"
"""The character for U+0000."""
UTF8_PREFIX: Final = b"\xf4\x8f"
"""Bytes with which these characters begin in UTF-8, and some others."""
_HALF: Final = 0xD800
_TO_ESCAPE: Final = re.compile("[\0\ud800-\udfff\U0010f000-\U0010f800]")
_ESCAPED: Final = re.compile("[\U0010f000-\U0010f800]")
_WIDE: Final = re.compile("[\U00010000-\U0010efff\U0010f801-\U0010ffff]")


def escaped(text: str) -> str:
    """Return a text that may have lone surrogates and U+0000 in the form that PostgreSQL holds."""
    if text.isascii() and "\0" not in text:
        return text
    return _TO_ESCAPE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character == "\0":
        return NUL
    units = character.encode("utf-16-le", "surrogatepass")
    halves = (int.from_bytes(units[at : at + 2], "little") for at in range(0, len(units), 2))
    return "".join(chr(_FIRST + half - _HALF) for half in halves)


def from_utf16(data: bytes) -> str:
    """Return the text of little-endian code units. Raises UnicodeDecodeError for half a unit."""
    return escaped(data.decode("utf-16-le", "surrogatepass"))


def to_utf16(text: str) -> bytes:
    """Return the code units of a text, little-endian."""
    if not text.isascii() and _ESCAPED.search(text):
        text = _ESCAPED.sub(_unit, text)
        return text.encode("utf-16-le", "surrogatepass")
    return text.encode("utf-16-le")


def _unit(found: re.Match[str]) -> str:
    return "\0" if found[0] == NUL else chr(ord(found[0]) - _FIRST + _HALF)


def _keep_unassigned(error: UnicodeError) -> tuple[str | bytes, int]:
    """Five bytes of code page 1252 are no characters: a server gives them the code points of the same numbers. Of
    characters that it lacks, some have a similar one."""
    if isinstance(error, UnicodeDecodeError) and error.encoding != "utf-8":
        return error.object[error.start : error.end].decode("latin-1"), error.end
    if isinstance(error, UnicodeEncodeError):
        found = error.object[error.start : error.end]
        return b"".join(_FITTING.get(each, b"?") for each in found), error.end
    return codecs.replace_errors(error)


_FITTING: Final = {
    **{each: each.encode("latin-1") for each in "\x81\x8d\x8f\x90\x9d"},
    **{each: fit.encode("cp1252") for each, fit in BEST_FIT.items()},
}
CODE_PAGE_ERRORS: Final = "sqlserver_emulator.code_page"
"""How bytes and characters that a code page does not know are read and written."""
codecs.register_error(CODE_PAGE_ERRORS, _keep_unassigned)


def from_code_page(data: bytes, code_page: str) -> str:
    """Return the text of a varchar's bytes."""
    return escaped(data.decode(code_page, CODE_PAGE_ERRORS))


def to_code_page(text: str, code_page: str) -> bytes:
    """Return a varchar's bytes. What the code page does not know is replaced."""
    # A pair is two units, neither of which a code page knows.
    return _WIDE.sub("??", text.replace(NUL, "\0")).encode(code_page, CODE_PAGE_ERRORS)


def in_code_page(text: str) -> str:
    """Return what a varchar of code page 1252 has of a text."""
    return text if text.isascii() else from_code_page(to_code_page(text, "cp1252"), "cp1252")


def first_units(text: str, count: int) -> str:
    """Return the first ``count`` code units of a text, and of a pair that is over the end the first half."""
    if len(text) * 2 <= count or unit_count(text) == len(text):
        return text[:count]
    return from_utf16(to_utf16(text)[: 2 * count])


def first_characters(text: str, count: int) -> str:
    """Return the first ``count`` code units of a text, or one less: no half of a pair."""
    units = first_units(text, count)
    return units if text.startswith(units) else units[:-1]


def unit_count(text: str) -> int:
    """Return the number of code units: two for a character beyond the first plane."""
    return len(text) + (0 if text.isascii() else len(_WIDE.findall(text)))
