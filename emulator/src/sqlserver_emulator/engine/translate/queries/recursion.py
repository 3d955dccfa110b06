"""Recursive common table expressions, and the limit of their recursion.

A hidden column counts how many recursions made a row; a row beyond the limit ends the statement. The limit is a setting
of the session, because OPTION (MAXRECURSION) holds for the views and functions that a statement reads, too.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.clauses import column_list, renamed, select_from
from sqlserver_emulator.engine.translate.expressions.emission import Emission
from sqlserver_emulator.engine.translate.expressions.interfaces import Queries
from sqlserver_emulator.engine.translate.expressions.rows import Query
from sqlserver_emulator.engine.translate.expressions.scope import DEPTH, CommonTable, Scope, SourceColumn
from sqlserver_emulator.engine.translate.values.type_rules import family, storage_type
from sqlserver_emulator.errors import SqlServerError

_HIGHEST_LIMIT: Final = 32767
# The error is raised by a function, because no expression of PostgreSQL raises one.
_DEEPER: Final = (
    f"CASE WHEN r.{DEPTH} < (SELECT tsql.max_recursion()) THEN r.{DEPTH} + 1 ELSE tsql.recursion_exhausted() END"
)


def max_recursion(tree: exp.Expression, emission: Emission) -> int | None:
    """The limit that a statement's OPTION sets, 0 for none. Raises 310 for one that is too high."""
    for option in tree.find_all(exp.QueryOption):
        if str(option.this).upper() == "MAXRECURSION":
            limit = int(emission.constant(option.expression))
            if limit > _HIGHEST_LIMIT:
                message = (
                    f"The value {limit} specified for the MAXRECURSION option exceeds the allowed maximum of 32767."
                )
                raise SqlServerError(310, message, severity=15)
            return limit
    return None


def is_recursive(cte: exp.CTE) -> bool:
    """Return whether the common table expression refers to itself."""
    return isinstance(cte.this, exp.Union) and bool(_references(cte.this.expression, cte.alias))


def recursive_table(queries: Queries, cte: exp.CTE, sql_name: str, scope: Scope) -> str:
    """The anchor gives the columns their types; PostgreSQL wants the recursive part to have exactly those."""
    name = cte.alias
    body, members = _members(cte)
    for member in members:
        _check_member(member, name)
    anchor = queries.subquery(body, scope)
    columns = renamed(anchor.columns, [column.name for column in cte.args["alias"].columns], name)
    # The recursive part sees the hidden column, the query outside does not.
    offered = tuple(
        SourceColumn(column.name, column.sql, column.type, mask=column.mask, collated=column.collated)
        for column in columns
    )
    step = _step(queries, members, CommonTable(name, sql_name, offered, DEPTH), scope)
    scope.ctes[name.lower()] = CommonTable(name, sql_name, offered)
    listed, casts = column_list(columns), ", ".join(_cast_to(column) for column in columns)
    first = select_from(f"{casts}, 0", f"({anchor.sql}) AS r({listed})")
    further = select_from(f"{casts}, {_DEEPER}", f"({step}) AS r({listed}, {DEPTH})")
    return f"{sql_name}({listed}, {DEPTH}) AS ({first} UNION ALL {further})"


def _step(queries: Queries, members: list[exp.Expression], table: CommonTable, scope: Scope) -> str:
    """PostgreSQL takes one recursive reference only: several members work on each row of one."""
    if len(members) == 1:
        return _member(queries, members[0], table, scope).sql
    row = queries.emission.new_name()
    # The name means one row of the table in each member, which PostgreSQL accepts as the single reference.
    of_row = CommonTable(table.name, f"(SELECT {row}.*)", table.columns, DEPTH)
    parts = " UNION ALL ".join(f"({_member(queries, member, of_row, scope).sql})" for member in members)
    return select_from("m.*", f"{table.sql_name} AS {row} CROSS JOIN LATERAL ({parts}) AS m")


def _member(queries: Queries, member: exp.Expression, table: CommonTable, scope: Scope) -> Query:
    scope.ctes[table.name.lower()] = table
    query = queries.subquery(member, scope)
    if len(query.columns) != len(table.columns or ()):
        raise SqlServerError(
            205,
            "All queries combined using a UNION, INTERSECT or EXCEPT operator must have an equal number of expressions"
            " in their target lists.",
        )
    return query


def _members(cte: exp.CTE) -> tuple[exp.Expression, list[exp.Expression]]:
    """The anchor and the recursive members. Raises 252 unless UNION ALL joins them."""
    body = cte.this
    members: list[exp.Expression] = []
    while isinstance(body, exp.Union) and _references(body.expression, cte.alias):
        if body.args.get("distinct"):
            message = (
                f"Recursive common table expression '{cte.alias}' does not contain a top-level UNION ALL operator."
            )
            raise SqlServerError(252, message)
        # The tree of a UNION ALL leans to the left, so the last member is met first.
        members.insert(0, body.expression)
        body = body.this
    return body, members


def _check_member(member: exp.Expression, name: str) -> None:
    """Raises 253, 460, 461, 465 or 467 for what a recursive member may not hold."""
    references = _references(member, name)
    if len(references) > 1:
        message = f"Recursive member of a common table expression '{name}' has multiple recursive references."
        raise SqlServerError(253, message)
    if any(_is_in_expression(reference, member) for reference in references):
        raise SqlServerError(465, "Recursive references are not allowed in subqueries.")
    for clauses, number, what in (
        (("distinct",), 460, "DISTINCT operator is"),
        (("limit", "offset"), 461, "The TOP or OFFSET operator is"),
        (("group", "having"), 467, "GROUP BY, HAVING, or aggregate functions are"),
    ):
        if isinstance(member, exp.Select) and any(member.args.get(clause) for clause in clauses):
            message = f"{what} not allowed in the recursive part of a recursive common table expression '{name}'."
            raise SqlServerError(number, message)


def _is_in_expression(reference: exp.Expression, member: exp.Expression) -> bool:
    """Whether the reference is in a subquery of an expression, not of the FROM clause."""
    node = reference
    while node is not member:
        parent = node.parent
        if isinstance(parent, exp.Select) and node.arg_key not in ("from_", "joins", "laterals", "with_"):
            return True
        node = parent
    return False


def _references(node: exp.Expression, name: str) -> list[exp.Expression]:
    return [
        table for table in node.find_all(exp.Table) if table.name.lower() == name.lower() and not table.args.get("db")
    ]


def _cast_to(column: SourceColumn) -> str:
    if column.type is None:
        return column.sql
    # Text, without a length: the recursive part's string may be longer than the anchor's.
    cast = "text" if family(column.type) == "text" else storage_type(column.type)
    return f"{column.sql}::{cast}"
