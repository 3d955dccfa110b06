"""The transport of Floodmark's errors through Spark: a worker's exception reaches the driver as a traceback's text.

``transported_errors`` writes the error into that text in a form that ``recover`` can parse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from floodmark.core.errors import ConfigError, FloodmarkError, LoadKilledError, LoadStartError
from floodmark.core.planning import PREFIX, LoadResult, format_load_result, parse_load_result

_TRANSPORTED = re.compile(re.escape(PREFIX) + r"\{.*\}")
# Spark's messages for processes that have ended; it reports this in no other way (PythonRunner, TaskEndReason).
_DIED = re.compile(r"Python worker exited unexpectedly|ExecutorLostFailure \(|FetchFailed|Container killed by YARN")
# Its messages for a cluster that has gone, or that never answered (StandaloneSchedulerBackend, DAGScheduler).
_CLUSTER_LOST = re.compile(
    r"All masters are unresponsive|Master removed our application|Application has been killed"
    r"|SparkContext was shut down|stopped SparkContext|Could not connect to|Failed to connect to"
)
# The messages of a client of Spark Connect whose server has gone, was started again, or ended the session.
_SERVER_LOST = re.compile(
    r"StatusCode\.UNAVAILABLE|INVALID_HANDLE\.(?:SESSION|OPERATION)|INVALID_CURSOR|OPERATION_CANCELED|NO_ACTIVE_SESSION"
)
_TOKEN_REFUSED = "StatusCode.UNAUTHENTICATED"  # noqa: S105  (a status)
# Its messages for a Python of executors that does not start; the last line is Python's own error (PythonWorkerFactory).
_NO_PYTHON = re.compile(
    r"Error from python worker:\n(?:\s+.*\n)*?\s*(?P<python>\w+Error: .*)\n(?:PYTHONPATH|[\w.]+Exception)"
    r"|(?P<program>Cannot run program .*?): error|\[PYTHON_VERSION_MISMATCH\] (?P<version>.*?)\.?\n"
)


class TransportedError(RuntimeError):
    """A FloodmarkError on its way out of a worker."""


@contextmanager
def transported_errors() -> Iterator[None]:
    """Raise errors of ``core.errors`` as TransportedError. For the code of a worker."""
    try:
        yield
    except FloodmarkError as error:
        raise TransportedError(format_load_result(LoadResult(0, error=error))) from None


def recover(error: BaseException) -> FloodmarkError | None:
    """Return the error that a worker raised, from Spark's exception; LoadKilledError where a process of Spark
    ended, LoadStartError where none starts, ConfigError where a Spark Connect server refuses the token.

    None where the exception contains no error of ``core.errors``.
    """
    if isinstance(error, FloodmarkError):
        return error
    text = str(error)
    match = _TRANSPORTED.search(text)
    result = parse_load_result(match[0]) if match else None
    if result is not None:
        return result.error
    if found := _NO_PYTHON.search(text):
        return LoadStartError(
            "the load",
            f"Python does not start on Spark's executors: {next(filter(None, found.groups()))}.",
            "They need the packages that docs/cluster.md lists, with the driver's minor version of Python.",
            text,
        )
    if _DIED.search(text):
        return LoadKilledError(
            "the load",
            "a process of Spark ended: it was killed, or it ran out of memory.",
            "Nothing is half-written; the next try loads the same window.",
        )
    return _find_loss(text)


def _find_loss(text: str) -> FloodmarkError | None:
    """Return the error about a server or a cluster that does not serve the load."""
    if _TOKEN_REFUSED in text:
        return ConfigError(
            "the Spark connection",
            "the Spark Connect server refuses its token.",
            "Its password must be the token that the server was started with.",
        )
    if _SERVER_LOST.search(text):
        return LoadKilledError(
            "the load",
            "the Spark Connect server ended, or it ended the session of the load.",
            "Check that it runs. Nothing is half-written; the next try loads the same window.",
            text,
        )
    if _CLUSTER_LOST.search(text):
        return LoadKilledError(
            "the load",
            "Spark's cluster did not answer, or it ended the application.",
            "Check that the master of the Spark connection runs and has workers. Nothing is half-written; the next "
            "try loads the same window.",
            text,
        )
    return None
