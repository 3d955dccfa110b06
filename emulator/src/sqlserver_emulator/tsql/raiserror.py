"""The printf of RAISERROR: %d %i %u %o %x %X %s %%, with flags, width, precision and * as Microsoft documents them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlserver_emulator.errors import SqlServerError

_SPECIFICATION = re.compile(
    r"%(?P<flags>[-+0# ]*)(?P<width>\d+|\*)?(?:\.(?P<precision>\d*|\*))?(?:h|l|I64)?(?P<type>.)"
)
_LIMIT = 2047
_INTEGERS = "diuoxX"


def format_message(template: str, arguments: Sequence[object]) -> str:
    """Return the message. Raises 2786 when an argument's type does not fit; missing arguments read "(null)"."""
    remaining = iter(enumerate(arguments, start=1))
    text = _SPECIFICATION.sub(lambda found: _substitute(found, remaining), template)
    # The limit of a message in characters; the server cuts and ends with an ellipsis as well.
    return text if len(text) <= _LIMIT else text[: _LIMIT - 3] + "..."


def _substitute(found: re.Match[str], remaining: Iterator[tuple[int, object]]) -> str:
    kind = found["type"]
    if kind == "%":
        return "%"
    if kind != "s" and kind not in _INTEGERS:
        raise SqlServerError(2787, f"Invalid format specification: '{found[0]}'.")
    width = _size(found["width"], remaining)
    precision = _size(found["precision"], remaining)
    position, value = next(remaining, (0, None))
    # A missing argument and NULL read the same.
    if value is None:
        return _pad("(null)", found["flags"], width)
    layout = _Layout(kind, found["flags"], width, precision)
    if not isinstance(value, str if kind == "s" else int):
        raise _wrong_type(position)
    return _text(str(value), layout) if isinstance(value, str) else _integer(value, layout)


@dataclass(frozen=True, slots=True)
class _Layout:
    kind: str
    flags: str
    width: int | None
    precision: int | None


def _size(given: str | None, remaining: Iterator[tuple[int, object]]) -> int | None:
    if given != "*":
        return int(given) if given else None
    position, value = next(remaining, (0, None))
    if not isinstance(value, int):
        raise _wrong_type(position)
    return value


def _text(value: str, layout: _Layout) -> str:
    return _pad(value if layout.precision is None else value[: layout.precision], layout.flags, layout.width)


def _integer(value: int, layout: _Layout) -> str:
    kind, flags = layout.kind, layout.flags
    signed = kind in "di"
    # %u, %o and %x show a negative number as 32 bits without a sign.
    number = value if signed or value >= 0 else value % 2**32
    digits = format(abs(number), {"o": "o", "x": "x", "X": "X"}.get(kind, "d")).zfill(layout.precision or 0)
    prefix = {"o": "0", "x": "0x", "X": "0X"}.get(kind, "") if "#" in flags and number else ""
    sign = "-" if number < 0 else "+" if signed and "+" in flags else " " if signed and " " in flags else ""
    if "0" in flags and "-" not in flags and layout.precision is None and layout.width:
        digits = digits.zfill(layout.width - len(sign) - len(prefix))
    return _pad(sign + prefix + digits, flags, layout.width)


def _pad(text: str, flags: str, width: int | None) -> str:
    if width is None:
        return text
    return text.ljust(width) if "-" in flags else text.rjust(width)


def _wrong_type(position: int) -> SqlServerError:
    message = (
        f"The data type of substitution parameter {position} does not match the expected type of the format "
        "specification."
    )
    return SqlServerError(2786, message)
