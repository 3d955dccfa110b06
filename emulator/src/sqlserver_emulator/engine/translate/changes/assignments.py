"""`SELECT @a = x, @b = y FROM …`: one result column a variable; the engine takes the last row.

An assignment that reads a variable it assigns (`SELECT @list = @list + name FROM …`) builds its value row after row.
That is a recursive query over the numbered rows, in whose step each item sees the values of those before it.
"""

from __future__ import annotations

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.clauses import select_from
from sqlserver_emulator.engine.translate.expressions.emission import Emission
from sqlserver_emulator.engine.translate.expressions.expression_translator import ExpressionTranslator, variable_name
from sqlserver_emulator.engine.translate.expressions.scope import Scope, Source, SourceColumn, quote
from sqlserver_emulator.engine.translate.lexical.dialect import ASSIGN
from sqlserver_emulator.engine.translate.queries.masked_results import masked
from sqlserver_emulator.engine.translate.queries.query_translator import QueryTranslator
from sqlserver_emulator.engine.translate.values.conversion import EXPLICIT, convert
from sqlserver_emulator.engine.translate.values.type_rules import storage_type
from sqlserver_emulator.engine.translation import Translated
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Command
from sqlserver_emulator.types import TsqlType

_OPERATIONS: dict[str, type[exp.Expression]] = {
    "+": exp.Add,
    "-": exp.Sub,
    "*": exp.Mul,
    "/": exp.Div,
    "%": exp.Mod,
    "&": exp.BitwiseAnd,
    "|": exp.BitwiseOr,
    "^": exp.BitwiseXor,
}
_ROW = "row"
_STATE = "state"


def assigns_variables(tree: exp.Select) -> bool:
    """Return whether a select list assigns variables."""
    return any(isinstance(item, exp.EQ) and isinstance(item.this, exp.Parameter) for item in tree.expressions)


def translate_assignment(tree: exp.Select, queries: QueryTranslator) -> Translated:
    """Raises 141 when the select list also returns something."""
    targets: list[tuple[str, exp.Expression]] = []
    for item in tree.expressions:
        if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Parameter):
            raise SqlServerError(
                141,
                "A SELECT statement that assigns a value to a variable must not be combined with data-retrieval"
                " operations.",
            )
        value = item.expression
        if operator := item.meta.get(ASSIGN):
            # `@x += y` is `@x = @x + (y)`: the parentheses keep the right side together.
            value = _OPERATIONS[operator](this=item.this.copy(), expression=exp.Paren(this=value))
        targets.append((variable_name(item.this), value))
    types = [assigned_type(queries.emission, name) for name, _ in targets]
    # Without a reference to itself the last row's value is the result, and no recursion is needed.
    if _reads_own_result(targets):
        sql = _row_after_row(tree, queries, targets, types)
    else:
        sql = _last_row(tree, queries, targets)
    names = tuple(name for name, _ in targets)
    return Translated(
        Command.SELECT,
        sql,
        returns_rows=True,
        assigned_variables=names,
        column_types=dict(enumerate(types)),
        column_names=names,
        max_recursion=queries.emission.max_recursion,
    )


def assigned_type(emission: Emission, name: str) -> TsqlType:
    """The type of a variable that is assigned to. Raises 137; 102 for a system variable."""
    if name.startswith("@@"):
        raise SqlServerError(102, f"Incorrect syntax near '{name}'.", severity=15)
    type = emission.variable_types.get(name)
    if type is None:
        raise SqlServerError(137, f'Must declare the scalar variable "{name}".', severity=15)
    emission.variables.add(name)
    return type


def _last_row(tree: exp.Select, queries: QueryTranslator, targets: list[tuple[str, exp.Expression]]) -> str:
    tree.set(
        "expressions", [exp.Alias(this=value, alias=exp.to_identifier(name, quoted=True)) for name, value in targets]
    )
    return masked(queries.subquery(tree, None)).sql


def _reads_own_result(targets: list[tuple[str, exp.Expression]]) -> bool:
    names = {name for name, _ in targets}
    return any(variable_name(read) in names for _, value in targets for read in value.find_all(exp.Parameter))


def _row_after_row(
    tree: exp.Select, queries: QueryTranslator, targets: list[tuple[str, exp.Expression]], types: list[TsqlType]
) -> str:
    if any(value.find(exp.Select) for _, value in targets) or tree.args.get("group") or tree.args.get("distinct"):
        raise NotSupportedByEmulatorError("assigning a variable from itself with a subquery, GROUP BY or DISTINCT")
    read: list[exp.Column] = []
    names = [name for name, _ in targets]
    if len(set(names)) < len(names):
        raise NotSupportedByEmulatorError("assigning a variable twice in one SELECT ... FROM")
    # Columns are taken out of the expressions into the query; the expressions are then translated over its rows.
    values = [_over_rows(value, names, i, read) for i, (_, value) in enumerate(targets)]
    columns = [exp.Alias(this=column, alias=exp.to_identifier(f"c{i}")) for i, column in enumerate(read)]
    tree.set("expressions", columns or [exp.Alias(this=exp.Literal.number(1), alias=exp.to_identifier("c0"))])
    query = masked(queries.subquery(tree, None))
    state = tuple(SourceColumn(name, quote(name), type) for name, type in zip(names, types, strict=True))
    sources = [Source(quote(_ROW), _ROW, tuple(query.columns)), Source(quote(_STATE), _STATE, state)]
    assigned = [Source(quote(_new(i)), _new(i), (column,)) for i, column in enumerate(state)]
    scope = Scope(sources=[*sources, *assigned])
    expressions = ExpressionTranslator(queries.emission, scope, queries)
    start = [f"{queries.emission.variable(name).sql}::{_cast(type)}" for name, type in zip(names, types, strict=True)]
    steps = [
        f"LATERAL (SELECT {convert(expressions.value(value), type, EXPLICIT).sql}::{_cast(type)} AS {column.sql})"
        f" AS {source.alias}"
        for value, type, column, source in zip(values, types, state, assigned, strict=True)
    ]
    # The order of the query is that of the numbering: row_number() OVER () counts rows as they come.
    rows = select_from("row_number() OVER () AS n, q.*", f"({query.sql}) AS q")
    news = [f"{source.alias}.{column.sql}" for source, column in zip(assigned, state, strict=True)]
    joined = 'states AS "state" JOIN numbered AS "row" ON "row".n = "state".n + 1'
    step = select_from(", ".join(['"row".n', *news]), ", ".join([joined, *steps]))
    listed = ", ".join(column.sql for column in state)
    recursion = f"states(n, {listed}) AS (SELECT 0::bigint, {', '.join(start)} UNION ALL {step})"
    # State 0 is the variables before the first row; without rows they stay as they are.
    return f"WITH RECURSIVE numbered AS ({rows}), {recursion} " + select_from(listed, "states WHERE n > 0 ORDER BY n")


def _cast(type: TsqlType) -> str:
    """The columns of a recursive query keep one type; a string's length does not matter here."""
    storage = storage_type(type)
    return "text" if storage.startswith(("varchar", "char")) else storage


def _new(item: int) -> str:
    """The source of what an item of the select list assigns in this row."""
    return f"new{item}"


def _over_rows(value: exp.Expression, names: list[str], item: int, read: list[exp.Column]) -> exp.Expression:
    """The expression with the row's columns and the variables' states in place of columns and variables."""

    def replaced(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Column):
            read.append(node.copy())
            return exp.column(f"c{len(read) - 1}", table=_ROW, quoted=True)
        if isinstance(node, exp.Parameter) and (name := variable_name(node)) in names:
            place = names.index(name)
            # A variable that an earlier item of this row assigned has its new value already.
            return exp.column(name, table=_new(place) if place < item else _STATE, quoted=True)
        return node

    # The functions' bare-word arguments (DATEPART's part) have the form of columns; they are left alone.
    for call in value.find_all(exp.Anonymous):
        if call.name.lower().startswith("date") and call.expressions:
            raise NotSupportedByEmulatorError("a date function in an assignment of a variable from itself")
    return value.copy().transform(replaced)
