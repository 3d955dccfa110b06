"""`TsqlTranslator`: the text of one T-SQL statement to PostgreSQL SQL, through the cache.

What kind of statement it is decides who translates it; a SELECT's variables and result columns are looked after here.
DDL is parsed and handed to the engine as a tree.
"""

from __future__ import annotations

import itertools
import re
import weakref
from collections.abc import Callable, Hashable, Mapping

from sqlglot import exp

from sqlserver_emulator.engine.translate import dialect, lexemes, type_rules
from sqlserver_emulator.engine.translate.conversion import EXPLICIT, convert
from sqlserver_emulator.engine.translate.emission import Emission
from sqlserver_emulator.engine.translate.expressions import ExpressionTranslator, variable_name
from sqlserver_emulator.engine.translate.inserts import translate_insert
from sqlserver_emulator.engine.translate.lexemes import Lexemes
from sqlserver_emulator.engine.translate.merges import translate_merge
from sqlserver_emulator.engine.translate.queries import Query, QueryTranslator, SetOperation, finished
from sqlserver_emulator.engine.translate.scope import Scope
from sqlserver_emulator.engine.translate.statement_cache import StatementCache, Template
from sqlserver_emulator.engine.translate.updates import translate_delete, translate_update
from sqlserver_emulator.engine.translation import CatalogReader, Translated
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.events import Command
from sqlserver_emulator.types import TsqlType

_FIRST_WORD = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/|;|\()*([A-Za-z_]+)", re.DOTALL)
_QUERIES = frozenset(("SELECT", "WITH", "INSERT", "UPDATE", "DELETE", "MERGE", "VALUES"))
_DDL = {
    "CREATE": Command.CREATE_TABLE,
    "ALTER": Command.NONE,
    "DROP": Command.NONE,
    "TRUNCATE": Command.NONE,
    "GRANT": Command.NONE,
    "DENY": Command.NONE,
    "REVOKE": Command.NONE,
    "ENABLE": Command.NONE,
    "DISABLE": Command.NONE,
}
_Modifier = Callable[[QueryTranslator, exp.Expression], "tuple[str, Query | None]"]
_MODIFIERS: dict[type, tuple[Command, _Modifier]] = {
    exp.Insert: (Command.INSERT, translate_insert),  # type: ignore[dict-item]
    exp.Update: (Command.UPDATE, translate_update),  # type: ignore[dict-item]
    exp.Delete: (Command.DELETE, translate_delete),  # type: ignore[dict-item]
    exp.Merge: (Command.MERGE, translate_merge),  # type: ignore[dict-item]
}


class TsqlTranslator:
    """Implements ``translation.StatementTranslator``."""

    def __init__(self) -> None:
        self._cache = StatementCache()
        self._serials: weakref.WeakKeyDictionary[CatalogReader, int] = weakref.WeakKeyDictionary()
        self._next_serial = itertools.count(1)

    def translate(
        self, statement: str, *, catalog: CatalogReader, database: str, variable_types: Mapping[str, TsqlType]
    ) -> Translated:
        return self._through_cache(statement, catalog, database, variable_types, "", _translate_statement)

    def translate_expression(
        self,
        expression: str,
        *,
        catalog: CatalogReader,
        database: str,
        variable_types: Mapping[str, TsqlType],
        condition: bool,
        as_type: TsqlType | None,
    ) -> Translated:
        def translate(text: str, emission: Emission) -> Translated:
            return _translate_expression(text, emission, condition=condition, as_type=as_type)

        kind = ("condition" if condition else "expression", as_type)
        return self._through_cache(expression, catalog, database, variable_types, kind, translate)

    def postgres_type(self, type: TsqlType) -> str:
        return type_rules.storage_type(type)

    def _through_cache(
        self,
        text: str,
        catalog: CatalogReader,
        database: str,
        variable_types: Mapping[str, TsqlType],
        kind: Hashable,
        translate: Callable[[str, Emission], Translated],
    ) -> Translated:
        cut = lexemes.cut(text)
        key = (cut.shape, database, catalog.version, kind)
        # A text that names temp tables or table variables means something else in every session.
        if "#" in cut.shape or "@" in cut.shape:
            bound_key = (*key, self._serial(catalog))
            template = self._cache.find(bound_key, cut, variable_types) or self._cache.find(key, cut, variable_types)
        else:
            bound_key = key
            template = self._cache.find(key, cut, variable_types)
        if template is None:
            template = self._make(cut, catalog, database, variable_types, translate, key, bound_key)
        return template.fill(cut)

    def _make(
        self,
        cut: Lexemes,
        catalog: CatalogReader,
        database: str,
        variable_types: Mapping[str, TsqlType],
        translate: Callable[[str, Emission], Translated],
        key: Hashable,
        bound_key: Hashable,
    ) -> Template:
        emission = Emission(
            cut.literals_by_offset(),
            catalog=catalog,
            database=database,
            variable_types=variable_types,
            folded=cut.columns is not None,
        )
        translated = translate(cut.sample, emission)
        template = Template(translated, tuple(emission.parameters))
        pins = emission.pins | {(ordinal, "value") for ordinal in emission.unlifted(len(cut.kinds))}
        self._cache.store(
            bound_key if emission.session_bound else key,
            cut,
            variable_types,
            template,
            pins=pins,
            variables=emission.variables,
        )
        return template

    def _serial(self, catalog: CatalogReader) -> int:
        serial = self._serials.get(catalog)
        if serial is None:
            serial = self._serials[catalog] = next(self._next_serial)
        return serial


def _translate_statement(text: str, emission: Emission) -> Translated:
    match = _FIRST_WORD.match(text)
    word = match[1].upper() if match else ""
    if word in _DDL:
        emission.session_bound = True
        return Translated(_DDL[word], ddl=dialect.parse_ddl(text))
    if word not in _QUERIES:
        raise dialect.syntax_error(match[1] if match else text.strip()[:20])
    tree = dialect.parse_query(text)
    while isinstance(tree, exp.Subquery) and tree.is_wrapper:
        tree = tree.this
    queries = QueryTranslator(emission)
    modifier = _MODIFIERS.get(type(tree))
    if modifier is not None:
        command, translate = modifier
        sql, output = translate(queries, tree)
        return _translated(command, emission, sql, output, read_only=False)
    if isinstance(tree, exp.Select) and tree.args.get("into"):
        raise NotSupportedByEmulatorError("SELECT ... INTO")
    if isinstance(tree, exp.Select) and _assignments(tree):
        return _translate_assignment(tree, queries)
    if isinstance(tree, (exp.Select, *SetOperation)):
        query = queries.subquery(tree, None)
        return _translated(Command.SELECT, emission, query.sql, query, read_only=emission.read_only)
    raise dialect.syntax_error(word)


def _translated(command: Command, emission: Emission, sql: str, output: Query | None, *, read_only: bool) -> Translated:
    columns = output.columns if output is not None else []
    types = {i: column.type for i, column in enumerate(columns) if column.type is not None and not column.direct}
    return Translated(
        command,
        sql,
        returns_rows=output is not None,
        column_types=types,
        column_names=tuple(column.name for column in columns) if output is not None else None,
        read_only=read_only,
        identity_of=emission.identity_of,
        deferred_update_of=emission.deferred_update_of,
    )


def _assignments(tree: exp.Select) -> bool:
    return any(isinstance(item, exp.EQ) and isinstance(item.this, exp.Parameter) for item in tree.expressions)


def _translate_assignment(tree: exp.Select, queries: QueryTranslator) -> Translated:
    """`SELECT @a = x, @b = y FROM …`: one result column a variable; the engine takes the last row."""
    names: list[str] = []
    for item in list(tree.expressions):
        if not isinstance(item, exp.EQ) or not isinstance(item.this, exp.Parameter):
            raise SqlServerError(
                141, "A SELECT statement that assigns a value to a variable must not be combined with data-retrieval operations."
            )  # fmt: skip
        name = variable_name(item.this)
        type = queries.emission.variable_types.get(name)
        if type is None:
            raise SqlServerError(137, f'Must declare the scalar variable "{name}".', severity=15)
        queries.emission.variables.add(name)
        names.append(name)
        item.replace(exp.Alias(this=item.expression.copy(), alias=exp.to_identifier(name, quoted=True)))
    query = queries.subquery(tree, None)
    types = {i: queries.emission.variable_types[name] for i, name in enumerate(names)}
    return Translated(
        Command.SELECT,
        query.sql,
        returns_rows=True,
        assigned_variables=tuple(names),
        column_types=types,
        column_names=tuple(names),
    )


def _translate_expression(text: str, emission: Emission, *, condition: bool, as_type: TsqlType | None) -> Translated:
    prefix = "SELECT 1 WHERE " if condition else "SELECT "
    tree = dialect.parse_query(prefix + text)
    if not isinstance(tree, exp.Select):
        raise dialect.syntax_error(text.strip().split(None, 1)[0])
    emission.shift_literals(len(prefix))
    expressions = ExpressionTranslator(emission, Scope(), QueryTranslator(emission))
    if condition:
        sql = expressions.condition(tree.args["where"].this)
        return Translated(
            Command.SELECT,
            f"SELECT CASE WHEN {sql} THEN 1 ELSE 0 END",
            returns_rows=True,
            column_names=("",),
            read_only=emission.read_only,
        )
    if len(tree.expressions) != 1 or any(value for key, value in tree.args.items() if key != "expressions"):
        raise dialect.syntax_error(text.strip().split(None, 1)[0])
    value = expressions.value(tree.expressions[0])
    if as_type is not None:
        value = convert(value, as_type, EXPLICIT)
    types = {0: value.type} if value.type is not None else {}
    return Translated(
        Command.SELECT,
        f"SELECT {finished(value)}",
        returns_rows=True,
        column_types=types,
        column_names=("",),
        read_only=emission.read_only,
    )
