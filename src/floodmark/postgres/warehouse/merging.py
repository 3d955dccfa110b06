"""The execution of the merge of one table: rows that would make it fail are set aside, and its errors are translated.

The statement itself is built by ``warehouse.merge``. Errors are recognised by SQLSTATE and by the names in the
catalogue: PostgreSQL shortens the name of a primary key when the table's name is long. No value of a row reaches a
message, and only values of its key reach the log.
"""

from __future__ import annotations

import logging

import psycopg

from floodmark.core.errors import DataQualityError, DuplicateKeyError, FloodmarkError, TargetRefusedError
from floodmark.core.naming import UNSTORABLE_COLUMN, quote, quote_table
from floodmark.core.policies import OnFailure, Rule
from floodmark.core.schema import TableName
from floodmark.core.types import Kind
from floodmark.core.window.columns import value_columns
from floodmark.core.window.plan import LoadKind, TablePlan
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.empty_target import BULK_ROWS, insert_into_empty
from floodmark.postgres.warehouse.gate import KEY_RULE, TEXT_RULE
from floodmark.postgres.warehouse.merge import DELETE_OPERATION, Merge, build_merge

_LOG = logging.getLogger(__name__)
_NAMES_KEYS = (psycopg.errors.UniqueViolation, psycopg.errors.ForeignKeyViolation, psycopg.errors.ExclusionViolation)
"""The detail of these errors shows the columns concerned; that of the others shows the whole row."""


def run_merge(session: psycopg.Connection, planned: TablePlan, merge: Merge, rows: int) -> None:
    """Merge the staged rows, so many, into the target.

    Raises DuplicateKeyError for a duplicate key in staging, TargetRefusedError for a constraint that Floodmark did not
    create, DataQualityError for a key that is NULL.
    """
    try:
        with session.transaction():  # a savepoint: the catalogue is queried after an error
            is_bulk = planned.kind is LoadKind.FIRST_LOAD and rows >= BULK_ROWS
            if not (is_bulk and insert_into_empty(session, merge)):
                session.execute(build_merge(merge).sql(dialect="postgres"))
    except psycopg.errors.CardinalityViolation as error:
        raise _duplicate_key(planned, error) from error
    except psycopg.errors.NotNullViolation as error:
        raise _null(planned, error) from error
    except psycopg.IntegrityError as error:
        raise _refused(session, planned, error) from error


def key_rules(planned: TablePlan) -> tuple[Rule, ...]:
    """Return the rule for a key that can be NULL: nothing can be merged by NULL, so such rows go to quarantine."""
    nullable = _nullable_key(planned)
    condition = " AND ".join(f"{quote(name)} IS NOT NULL" for name in nullable)
    return (Rule(KEY_RULE, condition, OnFailure.QUARANTINE),) if nullable else ()


def _nullable_key(planned: TablePlan) -> list[str]:
    table = planned.feed.table
    return [name for name in table.key if table.column(name).nullable]


def text_rules(planned: TablePlan) -> tuple[Rule, ...]:
    """Return the rule for rows with a text that cannot be stored (``warehouse.unstorable``)."""
    is_text = any(column.type.kind is Kind.TEXT for column in value_columns(planned.feed.table, planned.temporal))
    return (Rule(TEXT_RULE, f"{quote(UNSTORABLE_COLUMN)} IS NULL", OnFailure.QUARANTINE),) if is_text else ()


def drop_keyless_deletes(session: psycopg.Connection, planned: TablePlan, merge: Merge) -> int:
    """Remove from staging the deletes of rows whose key was NULL or cannot be stored: no target has them.

    Return their number.
    """
    unknown = [f"{quote(name)} IS NULL" for name in _nullable_key(planned)]
    unknown += [f"{quote(UNSTORABLE_COLUMN)} IS NOT NULL"] if text_rules(planned) else []
    if not unknown:
        return 0
    staging = quote_table(merge.staging)
    dropped = session.execute(
        f"DELETE FROM {staging} WHERE __op = {DELETE_OPERATION} AND ({' OR '.join(unknown)})"  # noqa: S608  (quoted)
    ).rowcount
    if dropped:
        _LOG.warning(
            "%s: %s deletes have a key that no row of the target has: it is NULL, or cannot be stored.",
            planned.source,
            dropped,
        )
    return dropped


def refuse_keyless_deletes(session: psycopg.Connection, planned: TablePlan, merge: Merge) -> None:
    """Raise DataQualityError naming the columns of the key that are NULL in staged deletes."""
    nulls = ", ".join(f"bool_or({quote(name)} IS NULL)" for name in merge.key)
    found = session.execute(
        f"SELECT {nulls} FROM {quote_table(merge.staging)} WHERE __op = {DELETE_OPERATION}"  # noqa: S608  (quoted)
    ).fetchone()
    columns = [name for name, is_null in zip(merge.key, found or (), strict=True) if is_null]
    raise DataQualityError(
        str(planned.source),
        f"deletes of the window have no key: {' and '.join(columns)} is NULL in them, but NOT NULL at the source.",
        "Nothing was merged: it is not known which rows were deleted. Reload the table (floodmark reload PIPELINE "
        f"{planned.source}).",
    )


def drop_duplicates(session: psycopg.Connection, staging: TableName, key: tuple[str, ...]) -> int:
    """Keep one row per key in staging, no matter which. Return the number of removed rows."""
    statement = read_sql("drop_duplicates")
    names = ", ".join(quote(name) for name in key)
    return session.execute(statement.format(staging=quote_table(staging), key=names)).rowcount


def _refused(session: psycopg.Connection, planned: TablePlan, error: psycopg.IntegrityError) -> FloodmarkError:
    name = error.diag.constraint_name
    if isinstance(error, psycopg.errors.UniqueViolation) and name == _primary_key(session, planned.target):
        return _duplicate_key(planned, error)
    return TargetRefusedError(
        str(planned.source),
        f"constraint {name} of {planned.target} rejected rows.",
        "Floodmark does not create such constraints: drop it, or exclude such rows with a rule.",
        _detail(error) if isinstance(error, _NAMES_KEYS) else _one_line(error.diag.message_primary or ""),
    )


def _null(planned: TablePlan, error: psycopg.errors.NotNullViolation) -> FloodmarkError:
    column = error.diag.column_name or "of the key"
    if column in planned.feed.table.key:
        return DataQualityError(
            str(planned.source),
            f"column {column} of its key is NULL in rows of the window.",
            "Nothing was merged: rows are merged by their key. Fill the column at the source, and reload the table.",
        )
    return TargetRefusedError(
        str(planned.source),
        f"column {column} of {planned.target} is NOT NULL, but rows of the window have no value for it.",
        "Floodmark does not create such constraints: drop it (DROP NOT NULL), or exclude such rows with a rule.",
    )


def _primary_key(session: psycopg.Connection, target: TableName) -> str | None:
    found = session.execute(read_sql("read_primary_key"), {"schema": target.schema, "name": target.name}).fetchone()
    return found[0] if found else None


def _duplicate_key(planned: TablePlan, error: psycopg.Error) -> DuplicateKeyError:
    return DuplicateKeyError(str(planned.source), "duplicate key in staging.", "", _detail(error))


def _detail(error: psycopg.Error) -> str:
    return _one_line(error.diag.message_detail or error.diag.message_primary or str(error))


def _one_line(words: str) -> str:
    return " ".join(words.split()).rstrip(".")
