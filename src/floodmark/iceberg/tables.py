"""The Spark SQL of a lake: the tables, and the statements of the merge and the checks, which are rendered for Spark."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlglot import exp

from floodmark.core.errors import TargetRefusedError, command_line
from floodmark.core.plan import TablePlan, value_columns
from floodmark.core.schema import (
    CHANGED_COLUMN,
    COMMAND_COLUMN,
    COMMITTED_COLUMN,
    DELETED_COLUMN,
    KEPT_COLUMN,
    LOAD_COLUMN,
    LOADED_AT_COLUMN,
    NEXT_LOAD_COLUMN,
    NEXT_POSITION_COLUMN,
    OPERATION_COLUMN,
    POSITION_COLUMN,
    SEQUENCE_COLUMN,
    STAGING_SCHEMA,
    VALID_FROM_COLUMN,
    VALID_TO_COLUMN,
    WINDOW_COLUMN,
    TableName,
)
from floodmark.core.settings import Deletes
from floodmark.core.types import Kind, WarehouseType
from floodmark.iceberg.lake import PUBLISHED, UNPUBLISHED
from floodmark.iceberg.limits import HARD
from floodmark.postgres.warehouse.merge import DELETE_OPERATION, Merge, build_insert, same_key, table, target
from floodmark.postgres.warehouse.targets import floodmark_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
ASIDE_COLUMN = "__aside"
"""A column of a view of staged rows: true for those that broke a rule."""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_DIGITS = 8
_OWN_FOLDER = re.compile(rf".+-[0-9a-f]{{{_DIGITS}}}")
_SPARK_TYPES = {
    Kind.BOOLEAN: "boolean",
    Kind.INT16: "int",  # Iceberg has none of 16 bits
    Kind.INT32: "int",
    Kind.INT64: "bigint",
    Kind.FLOAT32: "float",
    Kind.FLOAT64: "double",
    Kind.TEXT: "string",
    Kind.DATE: "date",
    Kind.TIME: "string",
    Kind.TIMESTAMP: "timestamp_ntz",
    Kind.TIMESTAMP_TZ: "timestamp",
    Kind.UUID: "string",
    Kind.BYTES: "binary",
}
_OWN_TYPES = {
    LOAD_COLUMN: "bigint",
    POSITION_COLUMN: "binary",
    COMMAND_COLUMN: "int",
    SEQUENCE_COLUMN: "binary",
    CHANGED_COLUMN: "array<string>",
    COMMITTED_COLUMN: "timestamp",
    OPERATION_COLUMN: "int",
    WINDOW_COLUMN: "bigint",
    LOADED_AT_COLUMN: "timestamp",
    DELETED_COLUMN: "boolean",
    KEPT_COLUMN: "array<string>",
    VALID_FROM_COLUMN: "timestamp",
    NEXT_LOAD_COLUMN: "bigint",
    NEXT_POSITION_COLUMN: "binary",
    VALID_TO_COLUMN: "timestamp",
}
_MARKS = (
    (NEXT_POSITION_COLUMN, "the ended versions of a history"),
    (KEPT_COLUMN, "a history"),
    (COMMAND_COLUMN, "a log"),
    (SEQUENCE_COLUMN, "a snapshot"),
)
_PROPERTIES = {
    "format-version": "2",
    # Changes are a small part of a table: position deletes write 1/47 of the bytes of copy-on-write.
    "write.merge.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.delete.mode": "merge-on-read",
    # The metadata that readers see is one of the previous ones of what is being merged.
    "write.metadata.delete-after-commit.enabled": "false",
}


def lake_type(of: WarehouseType) -> str:
    """Return Spark's name of a type. A time of day and a UUID are text."""
    return f"decimal({of.precision},{of.scale})" if of.kind is Kind.DECIMAL else _SPARK_TYPES[of.kind]


def lake_columns(table: TablePlan) -> Mapping[str, str]:
    """Return the columns of a target with Spark's names of their types, in order."""
    values = value_columns(table.in_target, table.settings.temporal)
    own = {name: _OWN_TYPES[name] for name in floodmark_columns(table)}
    return {column.name: lake_type(column.type) for column in values} | own


def spark_name(*parts: str) -> str:
    """Return a name of several parts, quoted for Spark."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


def lake_name(target: TableName, catalog: str = UNPUBLISHED) -> str:
    """Return the name of a target in a catalog: by default the one in which a window is merged and checked."""
    return spark_name(catalog, target.schema, target.name)


def as_timestamp(at: datetime) -> str:
    """Return a moment as a literal of Spark."""
    return f"TIMESTAMP '{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}+00:00'"


def create_table(table: TablePlan, folder: str) -> str:
    """Return the statement that creates an empty target.

    folder: the location of all tables. Each table gets a folder that no other one ever has, also of the same name:
    upkeep removes the files of a folder that its table does not know.
    """
    location = f"{folder}/{table.target.schema}/{table.target.name}-{secrets.token_hex(_DIGITS // 2)}"
    path = location.replace("\\", "\\\\").replace("'", "\\'")
    columns = ", ".join(f"{spark_name(name)} {kind}" for name, kind in lake_columns(table).items())
    properties = ", ".join(f"'{name}'='{value}'" for name, value in _PROPERTIES.items())
    name = lake_name(table.target)
    return f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING iceberg LOCATION '{path}' TBLPROPERTIES ({properties})"


def has_own_folder(folder: str) -> bool:
    """Return whether a table's folder has a name that ``create_table`` has made."""
    return bool(_OWN_FOLDER.fullmatch(folder.rpartition("/")[2]))


def _add_columns(name: str, table: TablePlan, names: Sequence[str]) -> str:
    """Return the statement that adds columns at the end of a target."""
    types = lake_columns(table)
    columns = ", ".join(f"{spark_name(name)} {types[name]}" for name in names)
    return f"ALTER TABLE {name} ADD COLUMNS ({columns})"


def can_hold(wide: str, narrow: str) -> bool:
    """Return whether a column of a type can be widened to another one, or is of it: what Iceberg can do in place."""
    if wide == narrow or (narrow, wide) in {("int", "bigint"), ("float", "double")}:
        return True
    before, after = (_DECIMAL.fullmatch(each) for each in (narrow, wide))
    return bool(before and after and before[2] == after[2] and int(before[1]) <= int(after[1]))


def evolve_table(session: SparkSession, table: TablePlan, catalog: str = UNPUBLISHED) -> None:
    """Rename, widen and add columns, so that a target can hold the rows of a plan.

    Raises TargetRefusedError where a type cannot be widened to the one of the plan.
    """
    name, wanted = lake_name(table.target, catalog), lake_columns(table)
    found = _read_types(session, name)
    if table.settings.deletes is Deletes.HARD and not session.sql(f"SHOW TBLPROPERTIES {name} ('{HARD}')").collect()[0][
        1
    ].startswith("true"):
        session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('{HARD}'='true')")
    refuse_other_style(table, found)
    # A column may have to give up its name before another one gets it.
    while free := [each for each in table.columns if each.was in found and each.target not in found]:
        session.sql(f"ALTER TABLE {name} RENAME COLUMN {spark_name(free[0].was)} TO {spark_name(free[0].target)}")
        _LOG.info("%s: column %s of %s is %s now.", table.source, free[0].was, table.target, free[0].target)
        found = _read_types(session, name)
    for each in find_narrow(table, found):
        session.sql(f"ALTER TABLE {name} ALTER COLUMN {spark_name(each)} TYPE {wanted[each]}")
        _LOG.info("%s: widened %s of %s to %s.", table.source, each, table.target, wanted[each])
    if new := [each for each in wanted if each not in found]:
        session.sql(_add_columns(name, table, new))
        _LOG.info("%s: added %s to the table %s of the lake.", table.source, ", ".join(new), table.target)


def refuse_other_style(table: TablePlan, found: Collection[str]) -> None:
    """Raise TargetRefusedError for a table whose columns are those of another style. found: its columns."""
    is_, wanted = _style_of(found), _style_of(floodmark_columns(table))
    if is_ != wanted:
        raise TargetRefusedError(
            str(table.source),
            f"the table {table.target} of the lake is {is_ or f'not {wanted}'}.",
            f"Restore its style. Or: {how_to_make_again(table)}",
        )


def _style_of(columns: Collection[str]) -> str:
    """Return the style of a table by a column that no style above has; "" for the newest rows of a table."""
    return next((style for column, style in _MARKS if column in columns), "")


def find_narrow(table: TablePlan, found: Mapping[str, str]) -> list[str]:
    """Return the columns of a target that are to be widened, as a plan needs them.

    found: Spark's names of their types, by their names of now. Raises TargetRefusedError where a type cannot be
    widened to the one of the plan.
    """
    wanted = lake_columns(table)
    if COMMITTED_COLUMN in found and COMMITTED_COLUMN not in wanted:
        raise TargetRefusedError(
            str(table.source),
            f"the table {table.target} of the lake has {COMMITTED_COLUMN}, and pipelines.yaml has commit_times: false: "
            "rows would keep the time of a change before.",
            f"Restore commit_times: true. Or: {how_to_make_again(table)}",
        )
    other = {each: found[each] for each, kind in wanted.items() if each in found and not can_hold(found[each], kind)}
    if refused := {each: kind for each, kind in other.items() if not can_hold(wanted[each], kind)}:
        listed = ", ".join(f"{each} is {kind} and would be {wanted[each]}" for each, kind in refused.items())
        raise TargetRefusedError(
            str(table.source),
            f"the table {table.target} of the lake has other types: {listed}.",
            how_to_make_again(table),
        )
    return list(other)


def how_to_make_again(table: TablePlan) -> str:
    """Return what to do about a target that can never get the rows of a plan."""
    return (
        f"Rename the table in both catalogs (ALTER TABLE {PUBLISHED}.… and {UNPUBLISHED}.… RENAME TO), and reload it, "
        f"which creates it again: {command_line('reload', 'PIPELINE', table.source)}."
    )


def _read_types(session: SparkSession, name: str) -> Mapping[str, str]:
    return {field.name: field.dataType.simpleString() for field in session.table(name).schema}


def build_swept(merge: Merge) -> exp.Select:
    """Return the query for the number of living rows of a target that a load of the whole table did not find."""
    is_read = exp.select(exp.Literal.number(1)).from_(table(merge.staging, "s")).where(same_key(merge))
    living = exp.and_(exp.not_(target(DELETED_COLUMN)), exp.not_(exp.Exists(this=is_read)))
    return exp.select(exp.Count(this=exp.Star())).from_(table(merge.target, "t")).where(living)


def build_known(merge: Merge, load: int, first: bytes, last: bytes) -> exp.Select:
    """Return the query for the rows of a log that staged ones may be, by which Iceberg leaves files out.

    load, first, last: the load that the staged rows have, and the ends of their positions.
    """
    at, ends = target(POSITION_COLUMN), [exp.HexString(this=end.hex()) for end in (first, last)]
    is_of_load = exp.EQ(this=target(LOAD_COLUMN), expression=exp.Literal.number(load))
    return exp.select("1").from_(table(merge.target, "t")).where(is_of_load, at >= ends[0], at.copy() <= ends[1])


def build_log_append(merge: Merge, known: exp.Select | None) -> exp.Insert:
    """Return the statement that adds the staged rows of a log, without those that ``known`` has."""
    insert = build_insert(merge)
    if known is not None:
        is_known = exp.Exists(this=known.where(same_key(merge)))
        insert.set("expression", insert.expression.where(exp.not_(is_known)))
    return insert


def build_last_commit(merge: Merge) -> exp.Select:
    """Return the query for the newest time of a commit in staging, in microseconds of the epoch."""
    micros = exp.func("UNIX_MICROS", exp.Max(this=exp.column(COMMITTED_COLUMN, quoted=True)))
    return exp.select(micros).from_(table(merge.staging, "s"))


def add_sweep(statement: exp.Merge, merge: Merge, *, keeps_unread: bool, last_commit: int | None = None) -> exp.Merge:
    """Return the merge of a load of the whole table, which deletes the rows that it did not find.

    last_commit: the result of ``build_last_commit``: a row that is deleted gets the time of the load's position.
    keeps_unread: they may be at the source. Where no row is deleted, and for rows that were deleted before, a position
    above that of the load is lowered: it is of a past that the source no longer has, and would win over its changes.
    """
    at = exp.HexString(this=merge.rows_at.hex())
    found = []
    if not keeps_unread:
        columns = _swept_columns(merge, at)
        if merge.has_commit_times:
            known = exp.null() if last_commit is None else exp.func("TIMESTAMP_MICROS", exp.convert(last_commit))
            columns[COMMITTED_COLUMN] = known
        gone = exp.Update(expressions=[_assign(name, value) for name, value in columns.items()])
        is_hard = merge.deletes is Deletes.HARD
        condition = None if is_hard else exp.not_(target(DELETED_COLUMN))
        found.append((condition, exp.var("DELETE") if is_hard else gone))
    if keeps_unread or merge.deletes is Deletes.SOFT:
        above = exp.GT(this=target(POSITION_COLUMN), expression=at)
        found.append((above, exp.Update(expressions=[_assign(POSITION_COLUMN, at)])))
    whens = [exp.When(matched=False, source=True, condition=condition, then=then) for condition, then in found]
    statement.set("whens", exp.Whens(expressions=[*statement.args["whens"].expressions, *whens]))
    return statement


def pass_over_aside(statement: exp.Merge) -> exp.Merge:
    """Return the merge without the rows that broke a rule. Those of the target with their keys are not swept."""
    is_read = exp.not_(exp.column(ASIDE_COLUMN, "s", quoted=True))
    for when in statement.args["whens"].expressions:
        if not when.args.get("source"):
            found = when.args.get("condition")
            when.set("condition", exp.and_(found, is_read.copy()) if found else is_read.copy())
    return statement


def _swept_columns(merge: Merge, at: exp.Expression) -> dict[str, exp.Expression]:
    return {
        POSITION_COLUMN: at,
        OPERATION_COLUMN: exp.Literal.number(DELETE_OPERATION),
        WINDOW_COLUMN: exp.Literal.number(merge.window_id),
        LOADED_AT_COLUMN: exp.CurrentTimestamp(),
        DELETED_COLUMN: exp.true(),
    }


def _assign(name: str, value: exp.Expression) -> exp.Expression:
    return exp.EQ(this=exp.column(name, quoted=True), expression=value.copy())


def in_spark(tree: exp.Expression, catalog: str = UNPUBLISHED) -> str:
    """Return a statement over targets and staging tables in Spark's SQL.

    catalog: of the targets. A staging table is a view of the session with its name.
    """
    tree = tree.copy()
    for named in tree.find_all(exp.Table):
        if named.db == STAGING_SCHEMA:
            named.set("db", None)
        elif named.db:
            named.set("catalog", exp.to_identifier(catalog, quoted=True))
    return str(tree.sql(dialect="spark"))
