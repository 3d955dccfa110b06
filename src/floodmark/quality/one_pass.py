"""The checks of a window without their report: one answer for all of them, by plain SQL over one connection.

Great Expectations takes seconds to import and a tenth of a second for each check, and most windows pass. It runs where
this answer is not a plain yes, and then judges alone. So a check here may be stricter than its expectation, never more
lenient.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import URL, NullPool, create_engine
from sqlalchemy.exc import SQLAlchemyError

from floodmark.core.naming import quote
from floodmark.quality.suites import BATCH, Batch, Check, NoneMeets, NoRows, NotNull, RowCount, Unique

_BATCHES = 50
"""The number of batches that one statement checks."""


def all_pass(url: URL, batches: Sequence[Batch]) -> bool:
    """Return whether every check of the batches passes. False where one cannot be evaluated."""
    engine = create_engine(url, poolclass=NullPool)
    try:
        with engine.connect() as connection:
            groups = [batches[first : first + _BATCHES] for first in range(0, len(batches), _BATCHES)]
            # Without parameters the driver sends a query as it is.
            plain = connection.execution_options(no_parameters=True)
            # As for the merge: a few changes of a large target are found by its key, not by reading all of it.
            plain.exec_driver_sql("SET LOCAL random_page_cost = 1.1")
            return not any(plain.exec_driver_sql(select_failed(some)).first() for some in groups)
    except SQLAlchemyError:
        return False


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
