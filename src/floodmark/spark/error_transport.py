"""Errors of ours across Spark: a worker's exception reaches the driver as the text of a traceback.

``transported_errors`` writes the error into that text in a form that ``recover`` finds again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from floodmark.core.errors import FloodmarkError, LoadKilledError
from floodmark.core.window.load_result import PREFIX, LoadResult, format_load_result, parse_load_result

_TRANSPORTED = re.compile(re.escape(PREFIX) + r"\{.*\}")
# Spark's words for processes that are gone; it has no other sign of it (PythonRunner, TaskEndReason).
_DIED = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure \(")


class TransportedError(RuntimeError):
    """A FloodmarkError on its way out of a worker."""


@contextmanager
def transported_errors() -> Iterator[None]:
    """In a worker, around everything that may raise from ``core.errors``."""
    try:
        yield
    except FloodmarkError as error:
        raise TransportedError(format_load_result(LoadResult(0, error=error))) from None


def recover(error: BaseException) -> FloodmarkError | None:
    """The error that a worker raised, from what Spark made of it, or LoadKilledError where a worker is gone; None when
    none was carried."""
    if isinstance(error, FloodmarkError):
        return error
    text = str(error)
    match = _TRANSPORTED.search(text)
    result = parse_load_result(match[0]) if match else None
    if result is not None:
        return result.error
    if _DIED.search(text):
        return LoadKilledError(
            "the load", "a process of Spark's died: it was killed, or its memory was at an end.",
            "Nothing is half-written; the next try does the same window.",
        )  # fmt: skip
    return None
