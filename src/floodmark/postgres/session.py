"""Sessions with the warehouse's PostgreSQL, and the one place where its errors become ours.

Sessions are short: a load may take hours, and a connection that idles that long is cut by some firewall. The ledger and
the warehouse both stand on this module; what they ask is their own business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Protocol

import psycopg

from floodmark.core.errors import (
    FloodmarkBugError,
    FloodmarkError,
    WarehouseAdminError,
    WarehouseUnavailableError,
)

SUBJECT = "warehouse"
# As JSON, moments are written in the session's zone; keys in tombstones must not depend on it.
_SESSION_SETTINGS = "SET TIME ZONE 'UTC'; SET bytea_output = 'hex'"

_HINTS = {
    "25006": "The warehouse connection leads to a server that only reads; name the primary.",
    "28": "Check user and password of the warehouse connection.",
    "3D": "Check the database name of the warehouse connection.",
    "42501": "Grant the right to the user of the warehouse connection.",
    "53100": "Free or add disk space in the warehouse; the next run goes on with the same window.",
}
_UNAVAILABLE = ("08", "40001", "40P01", "53200", "53300", "55P03", "57P", "57014", "58")
# libpq hands on no SQLSTATE while it connects. Where the server speaks another language, none of these is found and the
# failure counts as "unavailable": it is retried and then reported, with the server's own words.
_REFUSED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|FATAL: .*(does not exist|denied)"
)


class Reachable(Protocol):
    """Anything that knows how to be reached, such as ``warehouse.connection.WarehouseConnection``."""

    def conninfo(self) -> str: ...


@contextmanager
def open_transaction(at: Reachable, subject: str = SUBJECT) -> Iterator[psycopg.Connection]:
    """A connection with one transaction: committed at the end of the block, rolled back when it raises.

    Errors of psycopg leave it as errors of ``core.errors`` about ``subject``.
    """
    with _connection(at, subject) as connection:
        try:
            connection.execute(_SESSION_SETTINGS)
            with connection.transaction():
                yield connection
        except psycopg.Error as error:
            raise translate(error, subject) from error


@contextmanager
def open_session(at: Reachable, subject: str = SUBJECT) -> Iterator[psycopg.Connection]:
    """A connection in autocommit, for what must outlive a transaction. Errors as in ``open_transaction``."""
    with _connection(at, subject) as connection:
        try:
            connection.execute(_SESSION_SETTINGS)
            yield connection
        except psycopg.Error as error:
            raise translate(error, subject) from error


@contextmanager
def _connection(at: Reachable, subject: str) -> Iterator[psycopg.Connection]:
    try:
        connection = psycopg.connect(at.conninfo(), autocommit=True)
    except psycopg.Error as error:
        raise _connect_error(error, subject) from error
    # Not its own context manager, which would run a COMMIT on a connection that may long be gone.
    with closing(connection):
        yield connection


def translate(error: psycopg.Error, subject: str) -> FloodmarkError:
    """What an error of an open session means to us, by SQLSTATE."""
    return by_sqlstate(error.sqlstate, str(error), subject)


def by_sqlstate(state: str | None, message: str, subject: str) -> FloodmarkError:
    """The same for other drivers. ``message`` is shown, not read; ``state`` None: the connection is gone.

    What follows the first line, such as where a COPY stood, may hold a row; of a statement that met data it cannot
    take, which is a bug of ours, the first line holds a value as well.
    """
    words, detail = _one_line(message.strip().partition("\n")[0]), _one_line(message)
    if state is None or state.startswith(_UNAVAILABLE):
        return WarehouseUnavailableError(
            subject, f"the warehouse is not available: {words}.", "It is tried again.", detail
        )  # fmt: skip
    for prefix, hint in _HINTS.items():
        if state.startswith(prefix):
            return WarehouseAdminError(subject, f"the warehouse refused ({state}): {words}.", hint, detail)
    if state.startswith("53"):
        return WarehouseAdminError(subject, f"the warehouse is out of resources ({state}): {words}.", "", detail)
    return FloodmarkBugError(subject, f"the warehouse answered {state}.", "The log has its words.", detail)


def _connect_error(error: psycopg.Error, subject: str) -> FloodmarkError:
    words = _one_line(str(error))
    if _REFUSED.search(words):
        hint = "Check user, password and database of the warehouse connection."
        return WarehouseAdminError(subject, f"the warehouse refused the login: {words}.", hint)
    return WarehouseUnavailableError(subject, f"the warehouse cannot be reached: {words}.", "It is tried again.")


def _one_line(message: str) -> str:
    return " ".join(message.split()).rstrip(".?")
