"""SELECT and set operations: WITH, the select list, WHERE, GROUP BY, HAVING, ORDER BY, TOP and OFFSET/FETCH.

The FROM clause is `sources`'. Clauses that are not known here are refused by name: none is dropped, except hints, which
change no result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from sqlserver_emulator.collations import as_column
from sqlserver_emulator.engine.masks import DEFAULT_MASK
from sqlserver_emulator.engine.translate.expressions.clauses import (
    column_list,
    is_percent,
    named_projection,
    refuse_clauses,
    renamed,
    select_from,
    starred,
    top_with_ties,
)
from sqlserver_emulator.engine.translate.expressions.comparisons import distinct_key, has_blanks_at_end, order_key
from sqlserver_emulator.engine.translate.expressions.emission import Emission
from sqlserver_emulator.engine.translate.expressions.expression_translator import ExpressionTranslator
from sqlserver_emulator.engine.translate.expressions.for_clauses import for_json, for_xml
from sqlserver_emulator.engine.translate.expressions.functions.aggregates import order_item
from sqlserver_emulator.engine.translate.expressions.rows import (
    Query,
    aligned,
    distinct_query,
    ignores_blanks_at_end,
    kept_blanks,
    merged,
    output_columns,
    projected,
)
from sqlserver_emulator.engine.translate.expressions.scope import (
    DEPTH,
    CommonTable,
    OuterGroupError,
    Scope,
    SourceColumn,
)
from sqlserver_emulator.engine.translate.lexical.dialect import keyword_error, syntax_error
from sqlserver_emulator.engine.translate.queries.grouping import GroupKeys, grouping
from sqlserver_emulator.engine.translate.queries.masked_results import masked
from sqlserver_emulator.engine.translate.queries.recursion import is_recursive, recursive_table
from sqlserver_emulator.engine.translate.queries.sources import SourceTranslator
from sqlserver_emulator.engine.translate.values.choices import unified
from sqlserver_emulator.engine.translate.values.collating import grouped_type, merged_collation
from sqlserver_emulator.engine.translate.values.conversion import IMPLICIT, convert
from sqlserver_emulator.engine.translate.values.type_rules import FLOAT_TYPE, VARIANT, family
from sqlserver_emulator.engine.translate.values.value import Value
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.types import BIGINT

_KNOWN_CLAUSES = frozenset(
    (
        "with_",
        "expressions",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "order",
        "limit",
        "offset",
        "distinct",
        "options",
        "into",
        "laterals",
        "for_",
    )
)
_NAME = re.compile(r'(?:"(?:[^"]|"")+"\.)?"(?:[^"]|"")+"')
"""A column: what is computed in the select list shall not be computed once more for its order."""
SetOperation = (exp.Union, exp.Except, exp.Intersect)


class QueryTranslator:
    """Translates the queries of one statement."""

    def __init__(self, emission: Emission) -> None:
        self.emission = emission

    def subquery(self, node: exp.Expression, parent: Scope | None) -> Query:
        """A query inside another statement."""
        while isinstance(node, (exp.Subquery, exp.Paren)):
            if isinstance(node, exp.Subquery):
                refuse_clauses(node, {"this", "alias"}, "a subquery")
            node = node.this
        if isinstance(node, SetOperation):
            return self._set_operation(node, parent)
        if isinstance(node, exp.Select):
            return self.select(node, parent)
        if isinstance(node, exp.Values):
            return self.values(node, parent)
        raise NotSupportedByEmulatorError(f"{type(node).__name__} in place of a query")

    # -- SELECT ------------------------------------------------------------------------------------------------

    def select(self, node: exp.Select, parent: Scope | None) -> Query:
        """Strings are grouped without regard to blanks at their end, unless a subquery needs the plain column."""
        scope = Scope(parent)
        try:
            query = self._select(node, scope, ignores_blanks=True)
        # A subquery inside refers to a grouped string of this query and needs the column itself, not the padded form.
        except OuterGroupError as error:
            if error.owner is not scope:
                raise
            scope = Scope(parent)
            query = self._select(node, scope, ignores_blanks=False)
        clause = node.args.get("for_")
        if clause is None:
            return query
        query = masked(query)
        if str(clause.args.get("kind")).upper() == "JSON":
            return for_json(query, clause, self.emission, len(scope.sources))
        return for_xml(query, clause, self.emission)

    def rows_of(self, node: exp.Select, parent: Scope | None) -> Query:
        """A SELECT without its FOR clause."""
        return self._select(node, Scope(parent), ignores_blanks=False)

    def _select(self, node: exp.Select, scope: Scope, *, ignores_blanks: bool) -> Query:
        # A query around this one sees what is selected, not what is compared.
        with self.emission.unwatched_masks():
            query = self._selected(node, scope, ignores_blanks=ignores_blanks)
        if any(column.mask for column in query.columns):
            self.emission.masks.is_masked = True
        return query

    def _selected(self, node: exp.Select, scope: Scope, *, ignores_blanks: bool) -> Query:
        refuse_clauses(node, _KNOWN_CLAUSES, "SELECT")
        if not node.expressions:
            raise keyword_error("FROM") if node.args.get("from_") else syntax_error("SELECT")
        with_ = self.with_clause(node, scope)
        # FROM comes before the select list, which needs the columns of the sources.
        from_sql = SourceTranslator(self, scope).from_clause(node)
        expressions = ExpressionTranslator(self.emission, scope, self)
        # PostgreSQL compares the select list and ORDER BY with these clauses as expression trees: one parameter equals
        # no other, even if both have the same value.
        compares = bool(node.args.get("group") or node.args.get("distinct"))
        with self.emission.inline_literals(compares):
            group = self._group(node, expressions, ignores_blanks=ignores_blanks)
            names, values = self._projections(node, expressions)
            having = node.args.get("having")
            having_sql = f" HAVING {expressions.condition(having.this)}" if having else ""
        where = node.args.get("where")
        where_sql = f" WHERE {expressions.condition(where.this)}" if where else ""
        is_distinct = bool(node.args.get("distinct"))
        with self.emission.inline_literals(compares):
            order = self._order(node, expressions, names, values, is_distinct=is_distinct)
        columns = output_columns(names, values)
        depth = scope.depth
        # Within a recursion the hidden column that counts the depth is passed on as the last one (``recursion``).
        hidden = f", {depth} AS {DEPTH}" if depth else ""
        rest = f"{hidden}{from_sql}{where_sql}{group}{having_sql}"
        query = self._rows(with_, columns, values, rest, is_distinct=is_distinct)
        # TOP … PERCENT counts the rows of the query as it is without its own limit.
        order += self._limit(node, expressions, query.sql)
        if order:
            query = self._rows(with_, columns, values, rest + order, is_distinct=is_distinct)
        query.has_depth = bool(depth)
        # With GROUP BY and DISTINCT the rest refers to the expressions of the list.
        query.around = None if compares else (with_, rest + order)
        return query

    def _rows(
        self, with_: str, columns: list[SourceColumn], values: list[Value], rest: str, *, is_distinct: bool
    ) -> Query:
        if is_distinct and any(has_blanks_at_end(value) for value in values):
            return distinct_query(with_, columns, values, rest)
        distinct = "DISTINCT " if is_distinct else ""
        return Query(f"{with_}SELECT {distinct}{projected(columns, values)}{rest}", columns, values)

    def with_clause(self, node: exp.Expression, scope: Scope) -> str:
        """The WITH of a statement; its common tables are entered into the scope."""
        with_ = node.args.get("with_")
        if with_ is None:
            return ""
        tables: list[str] = []
        recursive = False
        for cte in with_.expressions:
            sql, is_recursive = self._common_table(cte, scope)
            tables.append(sql)
            recursive = recursive or is_recursive
        return f"WITH {'RECURSIVE ' if recursive else ''}{', '.join(tables)} "

    def _common_table(self, cte: exp.CTE, scope: Scope) -> tuple[str, bool]:
        name = cte.alias
        sql_name = self.emission.new_name()
        if is_recursive(cte):
            return recursive_table(self, cte, sql_name, scope), True
        query = self.subquery(cte.this, scope)
        columns = renamed(query.columns, [column.name for column in cte.args["alias"].columns], name)
        scope.ctes[name.lower()] = CommonTable(name, sql_name, columns)
        return f"{sql_name}({column_list(columns)}) AS ({query.sql})", False

    def _projections(self, node: exp.Select, expressions: ExpressionTranslator) -> tuple[list[str], list[Value]]:
        names: list[str] = []
        values: list[Value] = []
        for item in node.expressions:
            star = starred(item)
            if star is not None:
                for name, value in self.expand_star(star, expressions.scope):
                    names.append(name)
                    values.append(value)
                continue
            name, expression = named_projection(item)
            names.append(expressions.scope.column_name(name))
            with self.emission.watched_masks() as watch:
                value = expressions.value(expression)
            # A column has its own mask; whatever is made of one has the default.
            if watch.is_masked and not value.mask:
                value.mask = DEFAULT_MASK
            values.append(value)
        return names, values

    def expand_star(self, qualifier: tuple[str, ...], scope: Scope) -> list[tuple[str, Value]]:
        # Stars are expanded here: the columns keep their T-SQL types, and the hidden depth column stays out.
        if qualifier:
            source = scope.source(qualifier)
            if source is None:
                message = f"The column prefix '{'.'.join(qualifier)}' does not match with a table name or alias name"
                raise SqlServerError(107, f"{message} used in the query.", severity=15)
            sources = [source]
        else:
            sources = scope.sources
        if not sources:
            raise SqlServerError(263, "Must specify table to select from.")
        expanded: list[tuple[str, Value]] = []
        for source in sources:
            if source.columns is None:
                raise NotSupportedByEmulatorError(f"* over {source.name}, whose columns are not known")
            expanded += [(column.name, source.value(column)) for column in source.columns]
        return expanded

    def _group(self, node: exp.Select, expressions: ExpressionTranslator, *, ignores_blanks: bool) -> str:
        group = node.args.get("group")
        if group is None:
            return ""
        refuse_clauses(group, {"expressions", "rollup", "cube", "grouping_sets"}, "GROUP BY")
        keys = GroupKeys(expressions, ignores_blanks)
        sql = grouping(group, keys)
        expressions.scope.grouped_texts |= keys.texts
        return sql

    def _order(
        self,
        node: exp.Select,
        expressions: ExpressionTranslator,
        names: Sequence[str],
        values: Sequence[Value],
        *,
        is_distinct: bool,
    ) -> str:
        order = node.args.get("order")
        if order is None:
            return ""
        # Where ties do not show, the plain column is used, so that an index can give the order.
        ignores_blanks = _ties_matter(node)
        items: list[str] = []
        for item in order.expressions:
            position = self._position(item.this, names, values)
            value = expressions.value(item.this) if position is None else values[position]
            if position is None:
                sql = distinct_key(value) if is_distinct else _order_sql(value, ties_matter=ignores_blanks)
            elif not is_distinct and has_blanks_at_end(value) and (_by_key(value) or _NAME.fullmatch(value.sql)):
                sql = _order_sql(value, ties_matter=ignores_blanks)
            # The position, not the expression: PostgreSQL would compute an expression a second time.
            else:
                sql = str(position + 1)
                value.units_of = ""  # It is ordered by its bytes.
            items.append(order_item(sql, bool(item.args.get("desc")), nullable=value.nullable))
        return f" ORDER BY {', '.join(items)}"

    def _position(self, node: exp.Expression, names: Sequence[str], values: Sequence[Value]) -> int | None:
        """The select list's item that ORDER BY names by position or by its alias."""
        # T-SQL has no ORDER BY by a constant value; an integer is always a position.
        if isinstance(node, exp.Literal) and not node.is_string:
            position = int(self.emission.constant(node))
            if not 1 <= position <= len(names):
                message = f"The ORDER BY position number {position} is out of range of the number of items"
                raise SqlServerError(108, f"{message} in the select list.")
            return position - 1
        if isinstance(node, exp.Column) and len(node.parts) == 1:
            folded = node.name.lower()
            return next((i for i, name in enumerate(names) if name.lower() == folded), None)
        return None

    def _limit(self, node: exp.Expression, expressions: ExpressionTranslator, rows: str) -> str:
        """``rows``: the query without its limit, of which TOP … PERCENT takes a share."""
        limit, offset = node.args.get("limit"), node.args.get("offset")
        sql = ""
        if offset is not None:
            sql += f" OFFSET {row_count(expressions, offset.expression)}"
        if isinstance(limit, exp.Fetch):
            count = limit.args.get("count")
            return f"{sql} LIMIT {row_count(expressions, count) if count is not None else 1}"
        if limit is None:
            return sql
        ties = top_with_ties(limit)
        if is_percent(limit):
            share = expressions.converted(limit.expression, FLOAT_TYPE)
            count_sql = f"({select_from(f'ceil(count(*) * tsql.percent({share}) / 100)', f'({rows}) AS c')})"
        else:
            count_sql = row_count(expressions, limit.expression)
        if ties and node.args.get("order") is None:
            raise SqlServerError(
                1062, "The TOP N WITH TIES clause is not allowed without a corresponding ORDER BY clause."
            )
        return f"{sql} FETCH FIRST {count_sql} ROWS WITH TIES" if ties else f"{sql} LIMIT {count_sql}"

    # -- set operations, VALUES --------------------------------------------------------------------------------

    def _set_operation(self, node: exp.Expression, parent: Scope | None) -> Query:
        refuse_clauses(
            node, {"with_", "this", "expression", "distinct", "order", "limit", "offset", "options"}, "UNION"
        )
        _refuse_ordered_members(node)
        # The members of a set operation see the WITH of the whole, but none of each other's names.
        scope = Scope(parent)
        with_ = self.with_clause(node, scope)
        left, right = self.subquery(node.this, scope), self.subquery(node.expression, scope)
        if len(left.columns) != len(right.columns):
            raise SqlServerError(
                205,
                "All queries combined using a UNION, INTERSECT or EXCEPT operator must have an equal number of"
                " expressions in their target lists.",
            )
        columns = [merged(a, b) for a, b in zip(left.columns, right.columns, strict=True)]
        word = type(node).__name__.upper() + ("" if node.args.get("distinct", True) else " ALL")
        # Padded strings are also put in the order that takes 'a' and 'a ' for equal.
        is_distinct = not word.endswith(" ALL") or _is_ordered_by_rules(node, columns)
        sql = f"{aligned(left, columns, is_distinct)} {word} {aligned(right, columns, is_distinct)}"
        expressions = ExpressionTranslator(self.emission, Scope(parent), self)
        values = [Value("", column.type, collated=column.collated) for column in columns]
        order = self._set_order(node, columns)
        sql = f"{with_}{sql}{order}{self._limit(node, expressions, sql)}"
        if is_distinct and any(ignores_blanks_at_end(column) for column in columns):
            return kept_blanks(sql, columns, [ignores_blanks_at_end(column) for column in columns])
        return Query(sql, columns, values)

    def _set_order(self, node: exp.Expression, columns: list[SourceColumn]) -> str:
        order = node.args.get("order")
        if order is None:
            return ""
        names = [column.name for column in columns]
        items: list[str] = []
        for item in order.expressions:
            target = item.this
            # ORDER BY of a set operation knows only the names of the first query's columns, so a qualifier is dropped.
            if isinstance(target, exp.Column) and len(target.parts) > 1:
                target = exp.Column(this=target.this)
            position = self._position(target, names, [])
            if position is None:
                raise SqlServerError(
                    104,
                    "ORDER BY items must appear in the select list if the statement contains a UNION, INTERSECT or"
                    " EXCEPT operator.",
                )
            items.append(order_item(str(position + 1), bool(item.args.get("desc")), nullable=True))
        return f" ORDER BY {', '.join(items)}"

    def values(self, node: exp.Values, parent: Scope | None) -> Query:
        """A table of values; columns are unnamed until the alias names them."""
        expressions = ExpressionTranslator(self.emission, Scope(parent), self)
        with self.emission.watched_masks() as watch:
            rows = [[expressions.value(item) for item in row.expressions] for row in node.expressions]
        width = len(rows[0])
        if any(len(row) != width for row in rows):
            raise SqlServerError(
                10709, "The number of columns for each row in a table value constructor must be the same."
            )
        cells: list[list[str]] = [[] for _ in rows]
        columns: list[SourceColumn] = []
        for i in range(width):
            column = [row[i] for row in rows]
            as_they_are, common = unified(column)
            type = common()
            for j, value in enumerate(column):
                is_variant = type is not None and family(type) == VARIANT
                cells[j].append(as_they_are[j] if type is None or is_variant else convert(value, type, IMPLICIT).sql)
            mask = DEFAULT_MASK if watch.is_masked else ""
            columns.append(
                SourceColumn(
                    "",
                    f'"column{i + 1}"',
                    type,
                    any(v.nullable for v in column),
                    mask=mask,
                    collated=as_column(merged_collation(column)),
                    only_nulls=all(value.is_null for value in column),
                )
            )
        sql = "VALUES " + ", ".join(f"({', '.join(row)})" for row in cells)
        return Query(sql, columns)


def _by_key(value: Value) -> bool:
    """Whether it is ordered by the key of a collation; raises 446 for a conflict."""
    return order_key(value) != distinct_key(value)


def _order_sql(value: Value, *, ties_matter: bool) -> str:
    """A key of ORDER BY; the plain column of a binary collation has the order of its index."""
    return order_key(value) if ties_matter or (has_blanks_at_end(value) and _by_key(value)) else value.sql


def row_count(expressions: ExpressionTranslator, node: exp.Expression) -> str:
    """Return the SQL of a number of rows in TOP, OFFSET or FETCH."""
    return f"({expressions.converted(node, BIGINT)})"


def _is_ordered_by_rules(node: exp.Expression, columns: list[SourceColumn]) -> bool:
    """Whether the order of a set operation needs more than the order of the bytes of its strings."""
    if node.args.get("order") is None:
        return False
    return _ties_matter(node) or any(ignores_blanks_at_end(c) and grouped_type(c.collated) != "bpchar" for c in columns)


def _ties_matter(node: exp.Expression) -> bool:
    """Whether it shows which rows the first key of ORDER BY takes for equal; otherwise an index can give the order."""
    limit = node.args.get("limit")
    return len(node.args["order"].expressions) > 1 or (limit is not None and top_with_ties(limit))


def _refuse_ordered_members(node: exp.Expression) -> None:
    """Raise 156: ORDER BY belongs to the whole of a set operation, also where a member has TOP or parentheses."""
    if isinstance(node.this, exp.Select) and node.this.args.get("order"):
        word = type(node).__name__.upper()
    elif any(isinstance(m, exp.Subquery) and m.this.args.get("order") for m in (node.this, node.expression)):
        word = "ORDER"
    else:
        return
    raise SqlServerError(156, f"Incorrect syntax near the keyword '{word}'.", severity=15)
