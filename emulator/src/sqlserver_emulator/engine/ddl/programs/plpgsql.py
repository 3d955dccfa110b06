"""The body of a T-SQL function as PL/pgSQL: functions run once a row, inside PostgreSQL.

Every expression and statement goes through the translator, whose parameters become PL/pgSQL variables of the same name.
A table variable is a temporary table made like a template that is kept in schema emulator. Owns nothing of the catalog.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from sqlserver_emulator.engine.catalog.cache import Relation
from sqlserver_emulator.engine.ddl.reading.declarations import ObjectName
from sqlserver_emulator.engine.ddl.reading.read_table import read_create_table
from sqlserver_emulator.engine.ddl.scope import TEMPORARY, DdlScope
from sqlserver_emulator.engine.ddl.tables import tables
from sqlserver_emulator.engine.names import postgres_name, qualified, quote
from sqlserver_emulator.engine.translation import CatalogObject, LiteralParameter, Translated
from sqlserver_emulator.engine.values.bind import to_literal
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Command
from sqlserver_emulator.syntax import statements as nodes
from sqlserver_emulator.syntax.parsing.cursor import Cursor
from sqlserver_emulator.types import INT, SMALLINT, TsqlType

# Quoted parts are matched first, so a $1 within them stays.
_PLACE: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(\d+)""")
_ROW: Final = '"~row"'
_RESULT: Final = '"~result"'
_SYSTEM_VARIABLES: Final[Mapping[str, TsqlType]] = {
    "@@rowcount": INT,
    "@@error": INT,
    "@@trancount": INT,
    "@@spid": SMALLINT,
}
_FIRST_VALUES: Final = {
    "@@rowcount": "0",
    "@@error": "0",
    "@@trancount": "0",
    "@@spid": "current_setting('emulator.session_id')::int2",
}


def with_variables(translated: Translated, place_of: Callable[[str], str]) -> str:
    """The SQL with its literals put back and its variables by the names that ``place_of`` gives."""

    def replace(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0]
        source = translated.parameters[int(found[1]) - 1]
        return to_literal(source.value) if isinstance(source, LiteralParameter) else place_of(source.name)

    return _PLACE.sub(replace, translated.sql)


class FunctionCompiler:
    """``types``: the parameters' types. ``returns`` None: the function gives the rows of ``table``."""

    def __init__(
        self,
        scope: DdlScope,
        object_id: int,
        types: Mapping[str, TsqlType],
        returns: TsqlType | None,
        table: nodes.DeclareTable | None,
    ) -> None:
        self._scope = scope
        self._object_id = object_id
        self._types: dict[str, TsqlType] = {**_SYSTEM_VARIABLES, **types}
        self._returns = returns
        self._table = table
        self._locals: dict[str, TsqlType] = {}
        self._used: set[str] = set()
        self._temporary: list[CatalogObject] = []
        self._lines: list[str] = []
        self.reads_tables = False

    @property
    def table_variables(self) -> Sequence[CatalogObject]:
        return self._temporary

    def compile(self, body: nodes.Batch) -> str:
        """The whole body, from DECLARE to END. Table variables are known to the session's catalog afterwards."""
        if self._table is not None:
            self._declare_table(self._table)
        for declaration in body.declarations:
            self._types[declaration.name] = self._locals[declaration.name] = self._scope.real_type(declaration.type)
        for statement in body.statements:
            self._statement(statement)
        if self._table is not None:
            self._return(nodes.Return(0))
        begin = [self._create_temporary(table) for table in self._temporary]
        declared = [f"{quote(name)} {self._scope.postgres_type(type)};" for name, type in self._locals.items()]
        declared += [
            f"{quote(name)} {self._scope.postgres_type(_SYSTEM_VARIABLES[name])} := {_FIRST_VALUES[name]};"
            for name in sorted(self._used)
        ]
        if self._returns is not None:
            declared.append(f"{_RESULT} {self._scope.postgres_type(self._returns)};")
        declared.append(f"{_ROW} record;")
        # use_column: the columns of RETURNS TABLE are PL/pgSQL variables, and a query means its own column.
        return "\n".join(["#variable_conflict use_column", "DECLARE", *declared, "BEGIN", *begin, *self._lines, "END"])

    # -- statements -------------------------------------------------------------------------------------------------

    def _statement(self, statement: nodes.Statement) -> None:
        handler = _STATEMENTS.get(type(statement))
        if handler is None:
            what = statement.what if isinstance(statement, nodes.Unsupported) else type(statement).__name__
            raise NotSupportedByEmulatorError(f"{what} in a function")
        handler(self, statement)

    def _block(self, statement: nodes.Block) -> None:
        for inner in statement.statements:
            self._statement(inner)

    def _if(self, statement: nodes.If) -> None:
        self._lines.append(f"IF {self._condition(statement.condition.text)} THEN")
        self._statement(statement.then)
        if statement.otherwise is not None:
            self._lines.append("ELSE")
            self._statement(statement.otherwise)
        self._lines.append("END IF;")

    def _while(self, statement: nodes.While) -> None:
        self._lines.append(f"WHILE {self._condition(statement.condition.text)} LOOP")
        self._statement(statement.body)
        self._lines.append("END LOOP;")

    def _break(self, statement: nodes.Break) -> None:
        self._lines.append("EXIT;")

    def _continue(self, statement: nodes.Continue) -> None:
        self._lines.append("CONTINUE;")

    def _declare(self, statement: nodes.Declare) -> None:
        for declaration in statement.declarations:
            if declaration.default is not None:
                self._assign_one(declaration.name, declaration.default.text)
        self._lines.append("NULL;")

    def _declare_table(self, statement: nodes.DeclareTable) -> None:
        """A template next to the emulator's own tables, and a name of the function's own for the copy it works on."""
        scope = self._scope
        cursor = Cursor(statement.text)
        cursor.expect("CREATE", "TABLE")
        tables.create_table(scope, read_create_table(cursor, scope.read_type))
        made = scope.table(ObjectName(statement.name))
        if made is None:
            raise SqlServerError(1087, f'Must declare the table variable "{statement.name}".', severity=15)
        name = postgres_name(f"{self._object_id}~{statement.name}")
        # The template is a plain table: the function may run in any session, each of which makes its own copy.
        source = qualified(made.postgres_schema, made.postgres_name)
        scope.run(f"CREATE TABLE {qualified('emulator', name)} (LIKE {source} INCLUDING ALL)")
        scope.run(f"DROP TABLE {source}")
        catalog = scope.access.catalog
        catalog.drop_temporary(statement.name)
        own = CatalogObject(
            made.object_id,
            made.database,
            made.schema,
            made.name,
            made.kind,
            TEMPORARY,
            name,
            made.columns,
            made.key_columns,
        )
        catalog.add_temporary(Relation(own, {}))
        self._temporary.append(own)

    @staticmethod
    def _create_temporary(table: CatalogObject) -> str:
        like = qualified("emulator", table.postgres_name)
        # ON COMMIT DROP only cleans up after an error: a call that ends drops its tables itself.
        return f"CREATE TEMPORARY TABLE {quote(table.postgres_name)} (LIKE {like} INCLUDING ALL) ON COMMIT DROP;"

    def _set(self, statement: nodes.SetVariable) -> None:
        self._assign_one(statement.name, statement.expression.text)

    def _assign(self, statement: nodes.Assign) -> None:
        for assignment in statement.assignments:
            self._assign_one(assignment.name, assignment.expression.text)

    def _assign_one(self, name: str, expression: str) -> None:
        self._lines.append(f"{quote(name)} := ({self._scalar(expression, self._types[name])});")

    def _sql(self, statement: nodes.Sql) -> None:
        translated = self._scope.translate(statement.text, self._types)
        sql = self._with_variables(translated)
        if translated.assigned_variables:
            self._assign_row(sql, translated.assigned_variables)
        elif translated.command is Command.SELECT:
            message = "Select statements included within a function cannot return data to a client."
            raise SqlServerError(444, message, state=2, line=statement.line)
        elif not self._changes_table_variable(statement):
            message = f"Invalid use of a side-effecting operator '{statement.verb}' within a function."
            raise SqlServerError(443, message, state=15, line=statement.line)
        else:
            self._lines += [f"{sql};", 'GET DIAGNOSTICS "@@rowcount" = ROW_COUNT;']
            # @@ROWCOUNT is only kept where the body uses it, or changes rows.
            self._used.add("@@rowcount")

    def _assign_row(self, sql: str, names: Sequence[str]) -> None:
        """The last row counts; without a row the variables stay as they are."""
        # The columns get names of their own: T-SQL allows several without a name.
        columns = ", ".join(f'"c{i}"' for i in range(len(names)))
        taken = [f'{quote(name)} := {_ROW}."c{i}";' for i, name in enumerate(names)]
        rows = f"SELECT * FROM ({sql}) AS q({columns})"  # noqa: S608  (translated SQL)
        self._lines += [f"FOR {_ROW} IN {rows} LOOP", *taken, "END LOOP;"]

    def _changes_table_variable(self, statement: nodes.Sql) -> bool:
        known = {table.name.lower() for table in self._temporary}
        written = ("INTO", statement.verb, "FROM", ")")
        tokens = statement.tokens
        return any(
            token.text.lower() in known and (i and tokens[i - 1].word in written) for i, token in enumerate(tokens)
        )

    def _return(self, statement: nodes.Return) -> None:
        # The result is computed before the drop, as it may read the tables.
        drops = [f"DROP TABLE {qualified(TEMPORARY, table.postgres_name)};" for table in self._temporary]
        if self._returns is not None:
            value = "NULL" if statement.value is None else self._scalar(statement.value.text, self._returns)
            self._lines += [f"{_RESULT} := ({value});", *drops, f"RETURN {_RESULT};"]
            return
        result = self._temporary[0]
        columns = ", ".join(f"q.{quote(column.postgres_name)}" for column in result.columns)
        source = qualified(TEMPORARY, result.postgres_name)
        query = f"RETURN QUERY SELECT {columns} FROM {source} AS q;"  # noqa: S608  (names are quoted)
        self._lines += [query, *drops, "RETURN;"]

    # -- expressions ------------------------------------------------------------------------------------------------

    def _scalar(self, expression: str, type: TsqlType) -> str:
        return self._with_variables(self._scope.expression(expression, self._types, as_type=type))

    def _condition(self, condition: str) -> str:
        return f"({self._with_variables(self._scope.expression(condition, self._types, condition=True))}) = 1"

    def _with_variables(self, translated: Translated) -> str:
        # Whether a table is read decides how PostgreSQL may treat the function (``functions``).
        self.reads_tables = self.reads_tables or " FROM " in translated.sql
        return with_variables(translated, self._place)

    def _place(self, name: str) -> str:
        if name in _SYSTEM_VARIABLES:
            self._used.add(name)
        elif name not in self._types:
            raise NotSupportedByEmulatorError(f"{name} in a function")
        return quote(name)


_STATEMENTS: Final = cast(
    "Mapping[type[nodes.Statement], Callable[[FunctionCompiler, Any], None]]",
    {
        nodes.Block: FunctionCompiler._block,
        nodes.If: FunctionCompiler._if,
        nodes.While: FunctionCompiler._while,
        nodes.Break: FunctionCompiler._break,
        nodes.Continue: FunctionCompiler._continue,
        nodes.Declare: FunctionCompiler._declare,
        nodes.DeclareTable: FunctionCompiler._declare_table,
        nodes.SetVariable: FunctionCompiler._set,
        nodes.Assign: FunctionCompiler._assign,
        nodes.Sql: FunctionCompiler._sql,
        nodes.Return: FunctionCompiler._return,
    },
)
