"""Target tables: read, created, widened, or refused by column, never changed in a way that could lose a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import psycopg

from floodmark.core.drift.supported import why_not_named
from floodmark.core.errors import ConfigError, TargetLostError, TargetRefusedError
from floodmark.core.naming import (
    DELETED_COLUMN,
    LOADED_AT_COLUMN,
    LSN_COLUMN,
    OPERATION_COLUMN,
    TARGET_COLUMNS,
    WINDOW_COLUMN,
    quote,
    quote_table,
)
from floodmark.core.schema import TableName
from floodmark.core.types import warehouse_type
from floodmark.core.window.plan import LoadKind, TablePlan
from floodmark.postgres.session import Reachable, open_transaction
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.types import is_moment, postgres_type, type_holds

OWN_TYPES = {
    LSN_COLUMN: "bytea",
    OPERATION_COLUMN: "smallint",
    WINDOW_COLUMN: "bigint",
    LOADED_AT_COLUMN: "timestamp with time zone",
    DELETED_COLUMN: "boolean",
}
FILLED = 80
"""The share of a page of a new target that inserts fill, in percent.

PostgreSQL writes a new version of each updated row. Where it finds room on the same page, no index gets an entry, and
the next update takes the place of the old version (a HOT update).
"""
LOCK_SECONDS = 10.0
"""The lock timeout of ALTER TABLE. A waiting ALTER blocks every later reader of the target, so it gives up."""


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of an existing target."""

    type_name: str
    """The type as ``format_type`` prints it."""
    filled_by_itself: bool
    """The column may be left out of an INSERT."""
    in_key: bool
    """The column is part of the primary key."""


class PostgresTargets:
    """``sync.ports.switch.Targets``. It holds no session."""

    def __init__(self, connection: Reachable) -> None:
        self._at = connection

    def check_target(self, plan: TablePlan) -> frozenset[str]:
        wanted = column_types(plan)
        with open_transaction(self._at, str(plan.source)) as session:
            found = read_columns(session, [plan.target]).get(plan.target, {})
        if found:
            _check_shape(plan, wanted, found)
        return frozenset(found)


def ensure_target(session: psycopg.Connection, table: TablePlan, found: Mapping[str, TargetColumn]) -> list[str]:
    """Create or widen the target. Return the changes, for the log. Raises ConfigError naming the column.

    found: the columns that the target has; none where it does not exist. Raises TargetLostError where a load of the
    whole table has to make it again.
    """
    wanted = column_types(table)
    if not found:
        if table.where or (table.kind is LoadKind.CHANGES and table.watermark is not None):
            raise TargetLostError(
                str(table.source),
                f"the target {table.target} does not exist, and was loaded before.",
                f"Nothing was merged. Reload the table: floodmark reload PIPELINE {table.source}",
            )
        _ensure_schema(session, table.target.schema)
        session.execute(create_target(table))
        return [f"{table.target} created with {len(wanted)} columns"]
    _check_shape(table, wanted, found)
    done = []
    for name, type_name in wanted.items():
        if name not in found:
            session.execute(f"ALTER TABLE {quote_table(table.target)} ADD COLUMN {quote(name)} {type_name}")
            done.append(f"{table.target}: column {name} {type_name} added")
        elif not type_holds(found[name].type_name, type_name):
            _widen(session, table, name, type_name)
            done.append(f"{table.target}: column {name} widened from {found[name].type_name} to {type_name}")
    return done


def _widen(session: psycopg.Connection, table: TablePlan, column: str, type_name: str) -> None:
    try:
        with session.transaction():  # a savepoint: the catalogue is queried after an error
            session.execute(f"ALTER TABLE {quote_table(table.target)} ALTER COLUMN {quote(column)} TYPE {type_name}")
    except psycopg.errors.FeatureNotSupported as error:
        named = {"schema": table.target.schema, "name": table.target.name, "column": column}
        views = [view for (view,) in session.execute(read_sql("list_views_of_column"), named).fetchall()]
        obstacle = f"views use it: {', '.join(views)}" if views else str(error.diag.message_primary)
        raise TargetRefusedError(
            str(table.source),
            f"column {column} of {table.target} cannot become {type_name}: {obstacle}.",
            "Drop the objects that use the column, run the pipeline, and create them again; no row is lost meanwhile.",
        ) from error


def column_types(table: TablePlan) -> dict[str, str]:
    """Return the columns with their PostgreSQL types. Raises ConfigError for one that PostgreSQL cannot have."""
    source = table.feed.table
    types = {}
    for column in source.stored_columns:
        if why := why_not_named(column.name):
            raise _refused(table, column.name, why)
        types[column.name] = postgres_type(warehouse_type(source, column, table.temporal))
    return types


def create_target(table: TablePlan) -> str:
    """Return the CREATE TABLE statement of a target."""
    columns = [f"{quote(name)} {type_name}" for name, type_name in column_types(table).items()]
    columns += [f"{quote(name)} {type_name} NOT NULL" for name, type_name in OWN_TYPES.items()]
    columns.append(f"PRIMARY KEY ({', '.join(quote(name) for name in table.feed.table.key)})")
    return (
        f"CREATE TABLE {quote_table(table.target)} (\n  " + ",\n  ".join(columns) + f"\n) WITH (fillfactor = {FILLED})"
    )


def _ensure_schema(session: psycopg.Connection, schema: str) -> None:
    """Create the schema where it is missing.

    The catalogue is checked first: CREATE SCHEMA IF NOT EXISTS needs its privilege even where the schema exists.
    """
    found = session.execute("SELECT to_regnamespace(%s) IS NOT NULL", [quote(schema)]).fetchone()
    if not found or not found[0]:
        # Another pipeline may create it at the same time.
        session.execute(f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}")


def read_columns(
    session: psycopg.Connection, targets: Sequence[TableName]
) -> Mapping[TableName, Mapping[str, TargetColumn]]:
    """Return the columns of those targets that exist."""
    wanted = {"schemas": [target.schema for target in targets], "names": [target.name for target in targets]}
    found: dict[TableName, dict[str, TargetColumn]] = {}
    for schema, table, name, type_name, filled, in_key in session.execute(read_sql("read_columns"), wanted).fetchall():
        found.setdefault(TableName(schema, table), {})[name] = TargetColumn(type_name, filled, in_key)
    return found


def _check_shape(table: TablePlan, wanted: dict[str, str], found: Mapping[str, TargetColumn]) -> None:
    for name in TARGET_COLUMNS:
        if name not in found or found[name].type_name != OWN_TYPES[name]:
            raise _other_shape(
                table, name, f"is missing or not {OWN_TYPES[name]}, so Floodmark did not create the table"
            )
    key = {name for name, column in found.items() if column.in_key}
    if key != set(table.feed.table.key):
        raise _other_shape(
            table,
            ", ".join(sorted(key ^ set(table.feed.table.key))),
            f"is not in both keys: the table's is ({', '.join(sorted(key))}), "
            f"the source's ({', '.join(sorted(table.feed.table.key))})",
        )
    if cut := [name for name in sorted(key) if wanted[name] == "text" and is_moment(found[name].type_name)]:
        raise _cut_key(table, cut)
    for name, column in found.items():
        if name not in wanted and name not in OWN_TYPES and not column.filled_by_itself:
            raise _other_shape(table, name, "is NOT NULL, has no default, and does not come from the source")
        if name in wanted and not (
            type_holds(column.type_name, wanted[name]) or type_holds(wanted[name], column.type_name)
        ):
            raise _other_shape(table, name, f"has type {column.type_name}, which cannot become {wanted[name]}")


def _cut_key(table: TablePlan, columns: list[str]) -> ConfigError:
    """Return the error about a target whose key was cut to microseconds, so that different rows may have become one."""
    return ConfigError(
        str(table.source),
        f"the target {table.target} has the key {', '.join(columns)} cut to microseconds, and the source's is finer: "
        "rows that differ in it alone have become one.",
        "Rename or drop the target, and reload the table, which creates it with the exact key as text: "
        f"floodmark reload PIPELINE {table.source}",
    )


def _other_shape(table: TablePlan, column: str, problem: str) -> ConfigError:
    return ConfigError(
        str(table.source),
        f"the target {table.target} exists with another shape: column {column} {problem}.",
        "Choose another target, or rename the table.",
    )


def _refused(table: TablePlan, column: str, problem: str) -> ConfigError:
    return ConfigError(
        str(table.source),
        f"column {column} {problem}.",
        "Leave it out of the capture instance (@captured_column_list).",
    )
