"""The FROM clause: tables by their T-SQL names, joins, APPLY, derived tables, table-valued functions.

Every source gets an explicit alias, and columns are always written with it, so that PostgreSQL never resolves a name by
rules of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from sqlserver_emulator.collations import Collated, implicit
from sqlserver_emulator.engine.masks import DEFAULT_MASK
from sqlserver_emulator.engine.translate.expressions.clauses import column_list, refuse_clauses, renamed, select_from
from sqlserver_emulator.engine.translate.expressions.expression_translator import ExpressionTranslator
from sqlserver_emulator.engine.translate.expressions.functions.metadata import user_arguments
from sqlserver_emulator.engine.translate.expressions.functions.registry import REFUSED, argument
from sqlserver_emulator.engine.translate.expressions.interfaces import Queries
from sqlserver_emulator.engine.translate.expressions.scope import (
    DEPTH,
    Scope,
    Source,
    SourceColumn,
    invalid_object,
    quote,
)
from sqlserver_emulator.engine.translate.lexical.dialect import ChangeTable
from sqlserver_emulator.engine.translate.queries.changetable import changetable_rows
from sqlserver_emulator.engine.translate.queries.inline_functions import function_columns
from sqlserver_emulator.engine.translate.queries.openjson import OPENJSON_COLUMNS, openjson_rows
from sqlserver_emulator.engine.translate.queries.pivots import pivoted, tablesample
from sqlserver_emulator.engine.translate.values import type_rules
from sqlserver_emulator.engine.translate.values.conversion import ASSIGN, convert
from sqlserver_emulator.engine.translate.values.type_rules import storage_type
from sqlserver_emulator.engine.translate.values.value import LiteralValue, Value, null
from sqlserver_emulator.engine.translation import (
    FILTERED_ROW,
    SYSTEM,
    CatalogColumn,
    CatalogObject,
    CatalogReader,
    InlineFunction,
)
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.syntax.known_names import FUNCTIONS, VIEWS
from sqlserver_emulator.types import TsqlType

_PLACEHOLDER = re.compile(r"\$(\d+)|('[^']*(?:''[^']*)*')")


class SourceTranslator:
    """Translates FROM items into ``scope``, which then knows their columns."""

    def __init__(self, queries: Queries, scope: Scope) -> None:
        self.queries = queries
        self.emission = queries.emission
        self.scope = scope

    def from_clause(self, node: exp.Expression) -> str:
        """` FROM …` of a SELECT, or nothing."""
        from_ = node.args.get("from_")
        if from_ is None:
            return ""
        return " FROM " + self.joined(from_.this, node.args.get("joins") or [])

    def joined(self, first: exp.Expression, joins: list[exp.Expression]) -> str:
        sql = self.item(first)
        for join in [*(first.args.get("joins") or []), *joins]:
            sql += self._join(join)
        return sql

    def _join(self, join: exp.Expression) -> str:
        refuse_clauses(join, {"this", "on", "side", "kind", "method", "hint"}, "JOIN")
        side = (join.args.get("side") or "").upper()
        if join.args.get("method"):
            raise NotSupportedByEmulatorError(f"{join.args['method']} JOIN")
        # Rows on the left may have no partner, so their columns can be NULL in the result.
        if side in ("RIGHT", "FULL"):
            for source in self.scope.sources:
                source.optional = True
        before = len(self.scope.sources)
        right = self.item(join.this)
        if isinstance(join.this, exp.Lateral):
            if not join.this.args.get("cross_apply"):
                self._make_optional(before)
                # OUTER APPLY.
                return f" LEFT JOIN {right} ON TRUE"
            return f" CROSS JOIN {right}"
        if side in ("LEFT", "FULL"):
            self._make_optional(before)
        on = join.args.get("on")
        nested = join.this.args.get("joins")
        # `a JOIN (b JOIN c ON …) ON …`: the inner joins come between the table and this join's own condition.
        if nested:
            for inner in nested:
                right += self._join(inner)
            right = f"({right})"
        if on is None:
            return f" CROSS JOIN {right}"
        condition = ExpressionTranslator(self.emission, self.scope, self.queries).condition(on)
        return f" {side or 'INNER'} JOIN {right} ON {condition}"

    def _make_optional(self, since: int) -> None:
        for source in self.scope.sources[since:]:
            source.optional = True

    def item(self, node: exp.Expression) -> str:
        if isinstance(node, exp.Table):
            return self._table(node)
        if isinstance(node, exp.Subquery):
            return self._derived(node)
        if isinstance(node, exp.Values):
            return self._values(node)
        if isinstance(node, exp.Lateral):
            return self._apply(node)
        if isinstance(node, exp.Paren):
            return f"({self.item(node.this)})"
        raise NotSupportedByEmulatorError(f"{type(node).__name__} in FROM")

    # -- tables ------------------------------------------------------------------------------------------------

    def _table(self, node: exp.Table) -> str:
        if node.args.get("pivots"):
            return self._pivoted(node)
        refuse_clauses(node, {"this", "db", "catalog", "alias", "hints", "joins", "sample"}, "FROM")
        if isinstance(node.this, (exp.OpenJSON, ChangeTable, exp.Anonymous, exp.Dot)):
            return self._masked_by_arguments(lambda: self._call(node, node.this))
        parts = table_parts(node)
        alias_node = node.args.get("alias")
        alias = alias_node.name if alias_node is not None else ""
        # A name of one part is a common table expression before it is a table.
        cte = self.scope.cte(parts[0]) if len(parts) == 1 else None
        if cte is not None:
            source = self._add(alias or cte.name, cte.columns)
            source.has_depth = bool(cte.depth)
            return f"{cte.sql_name} AS {source.alias}"
        table = resolve_table(self.queries, parts)
        source = self._add(alias or table.name, table_columns(table))
        source.table = table
        # A source with an alias is not known by its schema and table name any longer.
        if not alias:
            source.schema, source.database = table.schema, table.database
        sample = tablesample(node, self.emission)
        relation = f"{quote(table.postgres_schema)}.{quote(table.postgres_name)}"
        if table.filters:
            if sample:
                raise NotSupportedByEmulatorError("TABLESAMPLE of a table with a filter predicate")
            passing = select_from(
                f"{FILTERED_ROW}.*", f"{relation} AS {FILTERED_ROW} WHERE {' AND '.join(table.filters)}"
            )
            return f"({passing}) AS {source.alias}"
        return f"{relation} AS {source.alias}{sample}"

    def _add(self, name: str, columns: tuple[SourceColumn, ...] | None, *, alias: str | None = None) -> Source:
        """Enter a source. Two tables of one name (of two schemas) get two PostgreSQL aliases."""
        taken = {source.alias for source in self.scope.sources}
        sql_alias = alias or quote(name)
        if sql_alias in taken:
            sql_alias = self.emission.new_name()
        source = Source(sql_alias, name, columns)
        self.scope.sources.append(source)
        return source

    # -- derived tables ----------------------------------------------------------------------------------------

    def _derived(self, node: exp.Subquery, *, lateral: bool = False, alias: exp.Expression | None = None) -> str:
        if node.args.get("pivots"):
            return self._pivoted(node)
        refuse_clauses(node, {"this", "alias", "joins"}, "FROM")
        alias = alias or node.args.get("alias")
        # Parentheses around a join, not a derived table; these have no alias.
        if alias is None and isinstance(node.this, (exp.Table, exp.Subquery)):
            # The joins behind the parenthesis are the caller's.
            return f"({self.joined(node.this, [])})"
        if alias is None:
            raise SqlServerError(102, "Incorrect syntax near ')'.", severity=15)
        query = self.queries.subquery(node.this, self.scope if lateral else self._outer())
        columns = renamed(query.columns, [column.name for column in alias.columns], alias.name)
        source = self._add(alias.name, columns)
        source.has_depth = query.has_depth
        hidden = f", {DEPTH}" if query.has_depth else ""
        return f"({query.sql}) AS {source.alias}({column_list(columns)}{hidden})"

    def _outer(self) -> Scope:
        """A derived table sees the CTEs and the queries around, not its neighbours in FROM."""
        return Scope(self.scope.parent, ctes=self.scope.ctes)

    def _values(self, node: exp.Values) -> str:
        alias = node.args.get("alias")
        if alias is None:
            raise SqlServerError(102, "Incorrect syntax near ')'.", severity=15)
        query = self.queries.values(node, self._outer())
        columns = renamed(query.columns, [column.name for column in alias.columns], alias.name)
        source = self._add(alias.name, columns)
        return f"({query.sql}) AS {source.alias}({column_list(columns)})"

    def _apply(self, node: exp.Lateral) -> str:
        alias = node.args.get("alias")
        if isinstance(node.this, exp.Table):
            return self._table(node.this)
        if isinstance(node.this, exp.Subquery):
            return "LATERAL " + self._derived(node.this, lateral=True, alias=alias)
        table = exp.Table(this=node.this, alias=alias)
        return self._masked_by_arguments(lambda: self._call(table, node.this))

    def _masked_by_arguments(self, build: Callable[[], str]) -> str:
        """Add a source that is computed from arguments: it is masked where these read a masked column."""
        with self.emission.watched_masks() as watch:
            sql = build()
        if watch.is_masked:
            source = self.scope.sources[-1]
            if source.columns is None:
                raise NotSupportedByEmulatorError(f"{source.name} over masked columns")
            source.columns = tuple(replace(column, mask=DEFAULT_MASK, direct=False) for column in source.columns)
        return sql

    # -- functions ---------------------------------------------------------------------------------------------

    def _call(self, node: exp.Table, call: exp.Expression) -> str:
        if isinstance(call, exp.OpenJSON):
            return self._openjson(node, call)
        return self._changetable(node, call) if isinstance(call, ChangeTable) else self._function(node, call)

    def _function(self, node: exp.Table, call: exp.Expression) -> str:
        """A table-valued function, expanded in place."""
        given = (node.args.get("catalog"), node.args.get("db"))
        # An empty part (`srv...t`) is a str in sqlglot's tree.
        names = [part.name if isinstance(part, exp.Expression) else "" for part in given if part is not None]
        while isinstance(call, exp.Dot):
            before = list(call.this.flatten()) if isinstance(call.this, exp.Dot) else [call.this]
            names += [part.name if isinstance(part, exp.Expression) else "" for part in before]
            call = call.expression
        if not isinstance(call, exp.Anonymous):
            raise NotSupportedByEmulatorError("names of four parts (linked servers)")
        # A user's function of such a name has a schema, so only unqualified names are refused.
        if not names and call.name.lower() in REFUSED:
            raise NotSupportedByEmulatorError(f"the function {call.name.upper()}")
        alias = node.args.get("alias")
        name = alias.name if alias is not None else call.name
        aliases = [column.name for column in alias.columns] if alias is not None else []
        expressions = ExpressionTranslator(self.emission, self.scope, self.queries)
        if [part.lower() for part in names] in ([], ["sys"]) and call.name.lower() == "fn_helpcollations":
            return self._collations(name, aliases)
        if not names and call.name.lower() in _SET_FUNCTIONS:
            return self._set_function(call, name, aliases, expressions)
        function = self._inline_function(names, call.name)
        body, columns = self._expand(function, call, expressions)
        columns = renamed(columns, aliases, name) if columns is not None and aliases else columns
        source = self._add(name, columns)
        listed = f"({', '.join(c.sql for c in columns)})" if columns is not None and aliases else ""
        return f"LATERAL ({body}) AS {source.alias}{listed}"

    def _inline_function(self, names: list[str], name: str) -> InlineFunction:
        catalog = self.emission.catalog
        database = catalog.database(names[0] if len(names) > 1 else self.emission.database)
        # System functions are found without a schema; an empty part (`db..f`) searches the same two.
        schemas = [names[-1]] if names and names[-1] else ["sys", "dbo"]
        for schema in schemas:
            found = catalog.inline_function(database, schema, name) if database else None
            if found is not None:
                return found
        if name.lower() in _XML_ROWS and names:
            raise NotSupportedByEmulatorError(f"the xml method {name}()")
        if schemas[0].lower() == "sys" and (name.lower() in VIEWS or name.lower() in FUNCTIONS):
            raise NotSupportedByEmulatorError(f"the function {'.'.join([*names, name])}")
        raise invalid_object(".".join([*names, name]))

    def _expand(
        self, function: InlineFunction, call: exp.Anonymous, expressions: ExpressionTranslator
    ) -> tuple[str, tuple[SourceColumn, ...] | None]:
        if function.columns:
            name = f"{function.schema}.{function.name}"
            given = user_arguments(expressions, name, function.parameters, function.defaults, call.expressions)
            self.emission.read_only = False
            declared = tuple(
                SourceColumn(
                    column.name,
                    quote(column.postgres_name),
                    column.type,
                    column.nullable,
                    collated=implicit(column.collation),
                )
                for column in function.columns
            )
            return _with_all_arguments(function, given), declared
        if len(call.expressions) < len(function.parameters):
            message = "An insufficient number of arguments were supplied for the procedure or function"
            raise SqlServerError(313, f"{message} {function.schema}.{function.name}.")
        if len(call.expressions) > len(function.parameters):
            raise SqlServerError(
                8144, f"Procedure or function {function.schema}.{function.name} has too many arguments specified."
            )
        arguments: list[str] = []
        for node, (_, type) in zip(call.expressions, function.parameters, strict=True):
            is_default = isinstance(node, exp.Column) and node.name.lower() == "default" and not node.this.quoted
            value = null() if is_default else expressions.value(node)
            arguments.append(f"({convert(value, type, ASSIGN).sql})::{storage_type(type)}")
        self.emission.read_only = False

        def substitute(match: re.Match[str]) -> str:
            return arguments[int(match[1]) - 1] if match[1] else match[2]

        # NULL replaces each argument while the columns' names and types are read from the body.
        plain = _PLACEHOLDER.sub(lambda match: match[2] or "NULL", function.body)
        columns = function_columns(self.emission.catalog, function, plain)
        return _PLACEHOLDER.sub(substitute, function.body), columns

    def _pivoted(self, node: exp.Expression) -> str:
        """A source with PIVOT or UNPIVOT behind it, as a derived table."""
        pivots = node.args["pivots"]
        if len(pivots) > 1:
            raise NotSupportedByEmulatorError("more than one PIVOT of a table")
        plain = node.copy()
        plain.set("pivots", None)
        alias = pivots[0].args.get("alias")
        if alias is None:
            raise SqlServerError(102, "Incorrect syntax near ')'.", severity=15)
        # The source inside gets a scope of its own: only the pivoted columns are visible outside.
        inner = Scope(self.scope.parent, ctes=self.scope.ctes)
        from_sql = SourceTranslator(self.queries, inner).item(plain)
        if any(column.mask for source in inner.sources for column in source.columns or ()):
            raise NotSupportedByEmulatorError("PIVOT over masked columns")
        expressions = ExpressionTranslator(self.emission, inner, self.queries)
        body, columns = pivoted(pivots[0], from_sql, inner.sources, expressions)
        source = self._add(alias.name, renamed(columns, [], alias.name))
        return f"({body}) AS {source.alias}({column_list(columns)})"

    def _openjson(self, node: exp.Table, call: exp.OpenJSON) -> str:
        """OPENJSON: key, value and type of each member, or the columns of its WITH."""
        alias = node.args.get("alias")
        name = alias.name if alias is not None else "openjson"
        expressions = ExpressionTranslator(self.emission, self.scope, self.queries)
        path = call.args.get("path")
        arguments = ", ".join(expressions.text(item) for item in (call.this, path) if item is not None)
        if call.expressions:
            body, columns = openjson_rows(expressions, arguments, call.expressions)
        else:
            body, columns = f"tsql.openjson({arguments})", OPENJSON_COLUMNS
        columns = renamed(columns, [column.name for column in alias.columns] if alias is not None else [], name)
        source = self._add(name, columns)
        return f"LATERAL {body} AS {source.alias}({column_list(columns)})"

    def _changetable(self, node: exp.Table, call: ChangeTable) -> str:
        """CHANGETABLE. Raises 22104 without an alias."""
        alias = node.args.get("alias")
        if alias is None:
            raise SqlServerError(22104, "A table returned by the CHANGETABLE function must be aliased.")
        expressions = ExpressionTranslator(self.emission, self.scope, self.queries)
        parts = table_parts(call.this)
        table = resolve_table(self.queries, parts)
        body, columns = changetable_rows(expressions, call, table, ".".join(parts))
        columns = renamed(columns, [column.name for column in alias.columns], alias.name)
        source = self._add(alias.name, columns)
        return f"LATERAL {body} AS {source.alias}({column_list(columns)})"

    def _collations(self, name: str, aliases: list[str]) -> str:
        """fn_helpcollations(): the collations that the emulator has."""
        columns = (
            SourceColumn("name", '"name"', TsqlType("sysname", 128), collated=Collated(self.emission.collation)),
            SourceColumn(
                "description", '"description"', TsqlType("nvarchar", 1000), collated=Collated(self.emission.collation)
            ),
        )
        source = self._add(name, renamed(columns, aliases, name) if aliases else columns)
        listed = column_list(source.columns or ())
        rows = select_from("name, description", "emulator.collations()")
        return f"({rows}) AS {source.alias}({listed})"

    def _set_function(
        self, call: exp.Anonymous, name: str, aliases: list[str], expressions: ExpressionTranslator
    ) -> str:
        function, kinds, columns = _SET_FUNCTIONS[call.name.lower()]
        arguments = [argument(expressions, node, kind) for node, kind in zip(call.expressions, kinds, strict=False)]
        values = [expressions.value(node) for node in call.expressions]
        columns = _typed_columns(call.name.lower(), columns, values)
        named = tuple(
            SourceColumn(
                aliases[i] if aliases else column.name, column.sql, column.type, collated=_of_argument(column, values)
            )
            for i, column in enumerate(columns)
        )
        source = self._add(name, named)
        listed = ", ".join(column.sql for column in named)
        if call.name.lower() == "generate_series":
            storage = storage_type(columns[0].type) if columns[0].type is not None else "bigint"
            rows = f"{function}({', '.join(arguments)}) AS r(value)"
            return f"LATERAL ({select_from(f'value::{storage}', rows)}) AS {source.alias}({listed})"
        return f"LATERAL {function}({', '.join(arguments)}) AS {source.alias}({listed})"


def _with_all_arguments(function: InlineFunction, given: Sequence[str]) -> str:
    """The body with its arguments. Those that it does not use are read next to it: each bound value needs a place."""
    used = {int(match[1]) for match in _PLACEHOLDER.finditer(function.body) if match[1]}
    body = _PLACEHOLDER.sub(lambda m: given[int(m[1]) - 1] if m[1] else m[2], function.body)
    unused = [argument for i, argument in enumerate(given, 1) if i not in used]
    if not unused:
        return body
    return select_from("b.*", f"({body}) AS b CROSS JOIN (SELECT {', '.join(unused)}) AS unused")


_XML_ROWS = ("nodes", "query", "value")
_SET_FUNCTIONS = {
    "string_split": (
        "tsql.string_split",
        "tti",
        (
            SourceColumn("value", '"value"', TsqlType("nvarchar", 4000)),
            SourceColumn("ordinal", '"ordinal"', TsqlType("bigint")),
        ),
    ),
    "generate_series": ("tsql.generate_series", "bbb", (SourceColumn("value", '"value"', TsqlType("bigint")),)),
}


def _of_argument(column: SourceColumn, values: list[Value]) -> Collated | None:
    """STRING_SPLIT's strings have the collation of its argument."""
    return values[0].collated if column.type is not None and type_rules.is_text(column.type) else None


def _typed_columns(function: str, columns: tuple[SourceColumn, ...], values: list[Value]) -> tuple[SourceColumn, ...]:
    """STRING_SPLIT has an ordinal when it is asked for and gives strings of its argument's kind; GENERATE_SERIES
    gives numbers of its arguments' type."""
    first, *rest = columns
    if function == "generate_series":
        return (replace(first, type=values[0].type if values[0].kind == "integer" else first.type),)
    is_national = (
        values[0].is_national
        if isinstance(values[0], LiteralValue)
        else values[0].kind != "text" or (values[0].type is None or type_rules.is_national(values[0].type))
    )
    limit = 4000 if is_national else 8000
    first = replace(first, type=TsqlType("nvarchar" if is_national else "varchar", limit))
    return (first, *rest) if len(values) > 2 else (first,)


def table_parts(node: exp.Table) -> tuple[str, ...]:
    """A table's name parts; #temp and @variable names have their sign; an empty schema (`db..t`) is ''."""
    if isinstance(node.this, exp.Parameter):
        return ("@" + node.this.name,)
    if isinstance(node.this, exp.Dot):
        raise NotSupportedByEmulatorError("names of four parts (linked servers)")
    name = node.name
    if node.this.args.get("temporary"):
        name = "#" + name
    if node.this.args.get("global_"):
        name = "##" + name
    parts = [
        part.name if isinstance(part, exp.Identifier) else "" for part in (node.args.get("db"),) if part is not None
    ]
    if node.args.get("catalog") is not None:
        parts.insert(0, node.args["catalog"].name)
        # `db..t`: the default schema of that database, which an empty part means.
        parts = [*parts, ""] if len(parts) == 1 else parts
    return (*parts, name)


_OLD_VIEWS = frozenset(
    ("sysobjects", "syscolumns", "sysindexes", "sysindexkeys", "sysusers", "sysmembers", "syscomments", "systypes",
     "sysforeignkeys", "sysconstraints", "sysdatabases", "syslogins", "sysfiles", "sysfilegroups", "sysservers",
     "sysprocesses")
)  # fmt: skip
"""Views of schema sys that are found without a schema and in dbo, too, as the tables that they once were."""


_VIEW_PLACES = frozenset(("sys", "information_schema"))


def _is_known_view(parts: tuple[str, ...]) -> bool:
    """Whether SQL Server has a view of that name, which the emulator has not."""
    schema = parts[-2].lower() if len(parts) > 1 else ""
    in_old_place = schema in ("", "dbo") and (parts[-1].lower().startswith("sys") or len(parts) == 3)
    return parts[-1].lower() in VIEWS and (schema in _VIEW_PLACES or in_old_place)


def resolve_table(queries: Queries, parts: tuple[str, ...]) -> CatalogObject:
    """The table or view of a name. Raises 208, and 1087 for a table variable."""
    emission = queries.emission
    name = parts[-1]
    if name.startswith(("#", "@")):
        # The second connection of a session does not see its temp tables.
        emission.read_only = False
        found = emission.catalog.table(emission.database, None, name)
        if found is None and name.startswith("@"):
            raise SqlServerError(1087, f'Must declare the table variable "{name}".', severity=15)
    else:
        database = emission.catalog.database(parts[0]) if len(parts) == 3 else emission.database
        schema = parts[-2] if len(parts) > 1 and parts[-2] else None
        found = emission.catalog.table(database, schema, name) if database else None
        if found is None and database:
            found = _through_synonym(emission.catalog, database, schema, name)
        if found is None and database and name.lower() in _OLD_VIEWS and (schema or "dbo").lower() == "dbo":
            found = emission.catalog.table(database, "sys", name)
    if found is None and _is_known_view(parts):
        raise NotSupportedByEmulatorError(f"the system view {'.'.join(parts)}")
    if found is None:
        raise invalid_object(".".join(parts))
    emission.table_kinds.add(found.kind)
    if found.kind != SYSTEM and not name.startswith(("#", "@")):
        emission.databases.add(found.database)
    return found


def _through_synonym(catalog: CatalogReader, database: str, schema: str | None, name: str) -> CatalogObject | None:
    """The table that a synonym represents, under the synonym's name. Raises 5313 when there is none."""
    synonym = catalog.synonym(database, schema, name)
    if synonym is None:
        return None
    base_database = catalog.database(synonym.base_database)
    base = catalog.table(base_database, synonym.base_schema or None, synonym.base_name) if base_database else None
    if base is None:
        raise SqlServerError(5313, f"Synonym '{'.'.join(filter(None, (schema, name)))}' refers to an invalid object.")
    return replace(base, database=synonym.database, schema=synonym.schema, name=synonym.name)


def table_columns(table: CatalogObject) -> tuple[SourceColumn, ...]:
    """Return the columns that a table offers as a source."""
    return tuple(source_column(column) for column in table.columns)


def source_column(column: CatalogColumn) -> SourceColumn:
    """Return a table's column as a source offers it."""
    return SourceColumn(
        column.name,
        quote(column.postgres_name or column.name),
        column.type,
        column.nullable,
        True,
        column.identity,
        mask=column.mask,
        collated=implicit(column.collation),
        rowguidcol=column.rowguidcol,
    )
