"""The answers to the checks of a window, by plain SQL over one connection.

Most windows pass: one statement asks all checks. Where its answer is not a plain yes, each check is asked alone, and an
error of one is a finding about its table. The report of such a window is written by ``great_expectations``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy import URL, Connection, NullPool, create_engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from floodmark.core.errors import (
    ConfigError,
    FloodmarkBugError,
    FloodmarkError,
    TargetRefusedError,
    WarehouseUnavailableError,
    WatermarkConflictError,
)
from floodmark.core.naming import quote, quote_table
from floodmark.quality.suites import BATCH, Batch, Check, NoneMeets, NoRows, NotNull, RowCount, Unique

_BATCHES = 50
"""The number of batches that one statement checks."""
LOCK_TIMEOUT_SECONDS = 30
"""The time that a check waits for a lock, such as that of an ALTER TABLE whose transaction is open."""
# As for the merge: a few changes of a large target are found by its key, not by reading all of it. A check of a large
# window takes longer than the limit that a role may have for its statements.
_SETTINGS = "SET random_page_cost = 1.1; SET statement_timeout = 0"
_CONNECTION_LOST = ("08", "57P")
_LOCK_NOT_AVAILABLE = "55P03"
_NO_SUCH_TABLE = "42P01"
# The warehouse ended the statement, for reasons other than its text: no resources, canceled, a file that is damaged.
_ENDED = ("53", "57", "58", "XX")


@dataclass(frozen=True, slots=True)
class FailedCheck:
    """A check that failed."""

    batch: Batch
    check: Check
    seen: str
    """The result, as a text for a message."""

    def __str__(self) -> str:
        return f"{self.batch.table}: {self.check.name}: expected that {self.check.description}; found {self.seen}"


@dataclass(frozen=True, slots=True)
class UnansweredCheck:
    """A check that could not be evaluated."""

    batch: Batch
    error: FloodmarkError


def find_failed(url: URL, batches: Sequence[Batch]) -> list[FailedCheck | UnansweredCheck]:
    """Return the checks that failed or could not be evaluated.

    Raises WarehouseUnavailableError if the connection is lost, WatermarkConflictError if another run has finished the
    window.
    """
    engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            # Without parameters the driver sends a query as it is.
            plain = connection.execution_options(no_parameters=True)
            plain.exec_driver_sql(f"{_SETTINGS}; SET lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'")
            return [] if _all_pass(plain, batches) else list(_ask_each(plain, batches))
    except SQLAlchemyError as error:
        words = " ".join(str(error).partition("\n")[0].split())
        raise WarehouseUnavailableError(
            "warehouse", "the connection was lost during the checks.", "It is retried automatically.", words
        ) from error


def _all_pass(connection: Connection, batches: Sequence[Batch]) -> bool:
    """Return whether every check passes. False where one cannot be evaluated."""
    groups = [batches[first : first + _BATCHES] for first in range(0, len(batches), _BATCHES)]
    try:
        return not any(connection.exec_driver_sql(select_failed(some)).first() for some in groups)
    except DBAPIError as error:
        if _is_lost(error):
            raise
        return False


def _ask_each(connection: Connection, batches: Sequence[Batch]) -> Iterator[FailedCheck | UnansweredCheck]:
    """Ask each check alone. A table with a locked target is asked once: each of its checks would wait again."""
    locked = set()
    for batch in batches:
        for check in batch.checks:
            if batch.source in locked:
                continue
            try:
                found = int(connection.exec_driver_sql(_count(check, batch)).scalar_one())
            except DBAPIError as error:
                if _is_lost(error):
                    raise
                if _sqlstate(error) == _LOCK_NOT_AVAILABLE:
                    locked.add(batch.source)
                yield UnansweredCheck(batch, _unanswered(connection, batch, check, error))
            else:
                if found != (check.what.rows if isinstance(check.what, RowCount) else 0):
                    against = "" if isinstance(check.what, RowCount) else " against it"
                    yield FailedCheck(batch, check, f"{found} {'row' if found == 1 else 'rows'}{against}")


def _count(check: Check, batch: Batch) -> str:
    rows = batch.sql if isinstance(check.what, RowCount) else _rows_of(check.what.rows, batch)
    return f"SELECT count(*) FROM ({rows}) AS found"  # noqa: S608  (names are quoted)


def _unanswered(connection: Connection, batch: Batch, check: Check, error: DBAPIError) -> FloodmarkError:
    """Return the error about a check without an answer. Raises the one that concerns all tables."""
    source, state = str(batch.source), _sqlstate(error)
    detail = " ".join(str(error.orig).partition("\n")[0].split())
    if state == _NO_SUCH_TABLE and batch.staged and not _exists(connection, quote_table(batch.staged)):
        raise WatermarkConflictError(source, "another run has finished the window meanwhile.", "Run again.")
    if state == _LOCK_NOT_AVAILABLE:
        return TargetRefusedError(
            source,
            f"check {check.name} waited {LOCK_TIMEOUT_SECONDS} s for a lock on {batch.table}.",
            "Another session holds a lock that no reader passes, such as that of ALTER TABLE: end its transaction. The "
            "next run checks the table again.",
        )
    if state.startswith(_ENDED):
        return TargetRefusedError(
            source,
            f"the warehouse ended check {check.name} ({state}).",
            "The log has its message. The next run checks the table again.",
            detail,
        )
    if check.declared:
        return ConfigError(source, f"rule {check.name} cannot be evaluated.", "Correct its sql.", detail)
    return FloodmarkBugError(source, f"check {check.name} cannot be evaluated ({state}).", "", detail)


def _exists(connection: Connection, relation: str) -> bool:
    literal = relation.replace("'", "''")
    return bool(connection.exec_driver_sql(f"SELECT to_regclass('{literal}') IS NOT NULL").scalar_one())


def _sqlstate(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")


def _is_lost(error: DBAPIError) -> bool:
    return error.connection_invalidated or not _sqlstate(error) or _sqlstate(error).startswith(_CONNECTION_LOST)


def select_failed(batches: Sequence[Batch]) -> str:
    """Return the query that has a row where a check of a batch does not pass."""
    return f"{' UNION ALL '.join(f'SELECT 1 WHERE {_fails(batch)}' for batch in batches)} LIMIT 1"


def _fails(batch: Batch) -> str:
    """Return the condition that a check of a batch does not pass. Counts of the same rows share one scan.

    Failed rows are counted: for EXISTS, PostgreSQL plans to find one row soon, and takes minutes to find none.
    """
    counted = [fails for check in batch.checks if (fails := _fails_by_count(check))]
    conditions = [
        f"(SELECT count(*) > 0 FROM ({_rows_of(check.what, batch)}) AS failed)"  # noqa: S608
        for check in batch.checks
        if isinstance(check.what, NoRows)
    ]
    if counted:
        conditions.insert(0, f"(SELECT {' OR '.join(counted)} FROM ({batch.sql}) AS batch)")  # noqa: S608
    return f"({' OR '.join(conditions)}) IS NOT FALSE"


def _fails_by_count(check: Check) -> str:
    match check.what:
        case NotNull(column):
            return f"count(*) FILTER (WHERE {quote(column)} IS NULL) > 0"
        case Unique(columns):
            return f"count(*) <> count(DISTINCT ({', '.join(map(quote, columns))}))"
        case RowCount(rows):
            return f"count(*) <> {rows:d}"
        case NoneMeets(condition):
            return f"count(*) FILTER (WHERE {condition}) > 0"
        case NoRows():
            return ""


def _rows_of(what: NoRows, batch: Batch) -> str:
    return what.sql.replace(BATCH, f"({batch.sql}) AS batch")
