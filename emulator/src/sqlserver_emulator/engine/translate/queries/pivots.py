"""PIVOT, UNPIVOT and TABLESAMPLE: what T-SQL writes behind a source in FROM."""

from __future__ import annotations

import re
from dataclasses import replace

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions import comparisons
from sqlserver_emulator.engine.translate.expressions.clauses import refuse_clauses, select_from
from sqlserver_emulator.engine.translate.expressions.emission import Emission, quote_text
from sqlserver_emulator.engine.translate.expressions.expression_translator import ExpressionTranslator
from sqlserver_emulator.engine.translate.expressions.scope import Source, SourceColumn, invalid_column, named, quote
from sqlserver_emulator.engine.translate.values.conversion import IMPLICIT, convert
from sqlserver_emulator.engine.translate.values.type_rules import TEXT, storage_type, varchar
from sqlserver_emulator.engine.translate.values.value import Value
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.types import TsqlType

_AGGREGATE = re.compile(r"\b(?:avg|sum|min|max|count|stddev_\w+|var_\w+|checksum_agg)\(")
"""PostgreSQL's aggregates, which may be within a function that fits their result (`trunc(avg(…))`)."""


def pivoted(
    pivot: exp.Expression, from_sql: str, sources: list[Source], expressions: ExpressionTranslator
) -> tuple[str, list[SourceColumn]]:
    """The query that a PIVOT or UNPIVOT of one source is, and its columns."""
    (source,) = sources
    if source.columns is None:
        raise NotSupportedByEmulatorError(f"PIVOT of {source.name}, whose columns are not known")
    turn = _unpivot if pivot.args.get("unpivot") else _pivot
    return turn(pivot, from_sql, source, expressions)


def _pivot(
    pivot: exp.Expression, from_sql: str, source: Source, expressions: ExpressionTranslator
) -> tuple[str, list[SourceColumn]]:
    """One column for each value of the FOR column, over groups by all columns that are not named."""
    (aggregate,), (field,) = pivot.expressions, pivot.args["fields"]
    spread = _column_of(source, field.this.name)
    # Every other column of the source groups the result.
    used = {column.name.lower() for column in aggregate.find_all(exp.Column)} | {spread.name.lower()}
    kept = [column for column in source.columns or () if column.name.lower() not in used]
    keys = [comparisons.distinct_key(source.value(column)) for column in kept]
    total = expressions.value(aggregate)
    items: list[str] = []
    columns: list[SourceColumn] = []
    for column, key in zip(kept, keys, strict=True):
        is_padded = key != source.value(column).sql
        items.append(f"{comparisons.unpadded(key) if is_padded else key} AS {column.sql}")
        columns.append(replace(column, direct=column.direct and not is_padded))
    for wanted in field.expressions:
        name = str(wanted.alias_or_name)
        test = comparisons.compare("=", source.value(spread), _as_type(name, spread.type))
        # Each value's column is the aggregate over the rows of that value.
        call = _filtered(total.sql, test)
        storage = f"::{storage_type(total.type)}" if total.type is not None and total.kind != TEXT else ""
        columns.append(SourceColumn(name, quote(name), total.type, collated=total.collated))
        items.append(f"({call}){storage} AS {quote(name)}")
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"{select_from(', '.join(items), from_sql)}{group}", columns


def _filtered(call: str, test: str) -> str:
    """The aggregate over the rows that pass. Its call ends with the first parenthesis that closes it."""
    found = _AGGREGATE.search(call)
    if found is None:
        raise NotSupportedByEmulatorError("PIVOT with this aggregate")
    depth = 0
    for i, mark in enumerate(call[found.start() :], found.start()):
        depth += {"(": 1, ")": -1}.get(mark, 0)
        if mark == ")" and depth == 0:
            return f"{call[: i + 1]} FILTER (WHERE {test}){call[i + 1 :]}"
    raise NotSupportedByEmulatorError("PIVOT with this aggregate")


# The value is written as an identifier in IN (…), so it begins as a string.
def _as_type(name: str, type: TsqlType | None) -> Value:
    text = Value(f"{quote_text(name)}::text", varchar(len(name)), kind=TEXT, constant=True)
    return text if type is None else convert(text, type, IMPLICIT)


def _unpivot(
    pivot: exp.Expression, from_sql: str, source: Source, expressions: ExpressionTranslator
) -> tuple[str, list[SourceColumn]]:
    """One row for each named column that is not NULL: its name and its value."""
    (value_node,), (field,) = pivot.expressions, pivot.args["fields"]
    turned = [_column_of(source, item.name) for item in field.expressions]
    if len({column.type for column in turned}) > 1:
        message = f'The type of column "{turned[1].name}" conflicts with the type of other columns specified in the'
        raise SqlServerError(8167, f"{message} UNPIVOT list.")
    names = {column.name.lower() for column in turned}
    kept = [column for column in source.columns or () if column.name.lower() not in names]
    # Names of columns have at most 128 characters.
    name = SourceColumn(field.this.name, quote(field.this.name), TsqlType("nvarchar", 128), False)
    value = SourceColumn(value_node.name, quote(value_node.name), turned[0].type, False, collated=turned[0].collated)
    rows = ", ".join(f"({quote_text(column.name)}, {source.alias}.{column.sql})" for column in turned)
    items = [f"{source.alias}.{column.sql}" for column in kept]
    listed = ", ".join([*items, f'"~u".{value.sql}', f'"~u".{name.sql}'])
    joined = f'{from_sql} CROSS JOIN LATERAL (VALUES {rows}) AS "~u"({name.sql}, {value.sql})'
    # UNPIVOT leaves NULLs out.
    return f'{select_from(listed, joined)} WHERE "~u".{value.sql} IS NOT NULL', [*kept, value, name]


def _column_of(source: Source, name: str) -> SourceColumn:
    found = named(source.columns or (), name)
    if found is None:
        raise invalid_column(name)
    return found


def tablesample(node: exp.Table, emission: Emission) -> str:
    """` TABLESAMPLE SYSTEM (n)`, or nothing. A number of ROWS is as little exact as in SQL Server, and refused."""
    sample = node.args.get("sample")
    if sample is None:
        return ""
    refuse_clauses(sample, {"percent", "seed", "method"}, "TABLESAMPLE")
    seed = sample.args.get("seed")
    repeatable = f" REPEATABLE ({emission.constant(seed)})" if seed is not None else ""
    return f" TABLESAMPLE SYSTEM ({emission.constant(sample.args['percent'])}){repeatable}"
