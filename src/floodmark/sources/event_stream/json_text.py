"""JSON as the server writes it, which includes halves of surrogate pairs.

An nvarchar holds any sequence of 16-bit units. Half of a pair can only be written as an escape (``\\ud83d``), which
``orjson`` refuses. Such a text is read by the slower module of the standard library, which keeps the half.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any, NoReturn

import orjson

from floodmark.sources.event_stream.faults import PoisonError

_SURROGATE = re.compile("\\\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""The escape of a half, or a half that an outer level had as an escape."""


def load_json(text: str | bytes, noun: str) -> Any:
    """Return the value of a JSON text. Raises PoisonError, naming what the text is.

    Numbers have the types of orjson: a fraction is a float.
    """
    # The fault is raised outside of the handler: the exception there holds the text.
    with suppress(orjson.JSONDecodeError, UnicodeEncodeError):
        return orjson.loads(text)
    return _load_halves(text, noun)


def load_exact_json(text: str | bytes, noun: str) -> Any:
    """Return the value of a JSON text with each fraction as its own text, so that no digit is lost."""
    try:
        return json.loads(text, parse_float=str, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise _not_json(noun) from None


def _load_halves(text: str | bytes, noun: str) -> Any:
    try:
        readable = text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError:
        raise _not_json(noun) from None
    if not _SURROGATE.search(readable):
        raise _not_json(noun)
    return load_exact_json(readable, noun)


def _not_json(noun: str) -> PoisonError:
    return PoisonError(f"{noun} is not valid JSON")


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError
