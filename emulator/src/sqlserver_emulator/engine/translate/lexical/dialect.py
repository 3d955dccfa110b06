"""The T-SQL grammar for queries and DML: sqlglot's `tsql`, without what it changes or loses on the way.

sqlglot's own dialect renames functions while it parses (GETDATE becomes CURRENT_TIMESTAMP, ISNULL becomes COALESCE,
LEN casts its argument) and drops or misreads DELETE TOP, UPDATE TOP, `+=`, OUTPUT with several targets. Here every
function stays a call by the name it was written with, literals remember where they stood in the text (so that they
can be bound as parameters), and the missing clauses are parsed. What a tree means is the business of the other modules.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.tsql import TSQL
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.tsql import TSQLParser
from sqlglot.tokens import Token, TokenType

from sqlserver_emulator.engine.translate.lexical.hint_tokens import without_hints
from sqlserver_emulator.engine.translate.lexical.refused_clauses import refuse_unknown_clause
from sqlserver_emulator.engine.translate.lexical.token_merging import merge_tokens
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.syntax.parsing.keywords import RESERVED

START = "start"
"""Meta key: offset of a literal's first character in the statement text."""

MONEY = "money"
"""Meta key on a number: it was written with a currency sign."""

ASSIGN = "assign"
"""Meta key on an exp.EQ that assigns: the compound operator ('+' for `+=`), absent for plain `=`."""

WRITE = "WRITE"
"""The method of a large value's column that replaces a part of it."""

_FOREIGN_KEYWORDS = (
    "ANTI", "ASOF", "CACHE", "CLUSTER BY", "DISTRIBUTE BY", "FINAL", "GLOB", "ILIKE", "IRLIKE", "ISNULL", "LATERAL",
    "LIMIT", "MAP", "MATCH_RECOGNIZE", "NOTNULL", "OVERLAPS", "OVERWRITE", "QUALIFY", "REGEXP", "RETURNING", "RLIKE",
    "SEMI", "SETTINGS", "SIMILAR TO", "SORT BY", "STRAIGHT_JOIN", "STRUCT", "UNCACHE", "UNNEST", "XOR", "DIV",
    "ARRAY", "CONNECT BY", "START WITH", "OBJECT", "NULLABLE", "ENUM", "NESTED", "VARIANT", "INET", "SUPER",
    "INTERVAL",
)  # fmt: skip
"""Words that other dialects reserve. In T-SQL they are ordinary names."""

_COMPOUND_OPERATORS = {
    TokenType.PLUS: "+",
    TokenType.DASH: "-",
    TokenType.STAR: "*",
    TokenType.SLASH: "/",
    TokenType.MOD: "%",
    TokenType.AMP: "&",
    TokenType.PIPE: "|",
    TokenType.CARET: "^",
}

_KEPT_MAX = 200
_KEPT_LENGTH_MAX = 10_000

_KEPT_FUNCTION_PARSERS = ("CAST", "CONVERT", "TRY_CAST", "TRY_CONVERT")


def _positioned(build: Any) -> Any:
    """A primary parser that notes where the token stood."""

    def parse(self: Any, token: Token) -> exp.Expression:
        node: exp.Expression = build(self, token)
        node.meta[START] = token.start
        # $1.50 and $1,000: the sign and the commas are not part of the number.
        if token.text.startswith("$"):
            node.set("this", token.text[1:].replace(",", ""))
            node.meta[MONEY] = True
        return node

    return parse


_LITERALS = {
    kind: _positioned(TSQLParser.PRIMARY_PARSERS[kind])
    for kind in (TokenType.STRING, TokenType.NATIONAL_STRING, TokenType.NUMBER, TokenType.HEX_STRING)
}


def _with_positions(parsers: dict[Any, Any]) -> dict[Any, Any]:
    return {kind: _LITERALS.get(kind, build) for kind, build in parsers.items()}


class ChangeTable(exp.Expression, exp.Func):  # type: ignore[misc]
    """CHANGETABLE(CHANGES this, after) and CHANGETABLE(VERSION this, (versions), (values)).

    ``after`` is set for CHANGES, ``versions`` (names of columns) and ``values`` for VERSION.
    """

    arg_types: ClassVar = {"this": True, "after": False, "versions": False, "values": False}


_TABLE_PARTS = 3


def _table_names(node: exp.Expression | None) -> list[exp.Expression | str]:
    """Return the parts of a table's name behind APPLY ('' for an empty one within); none for anything else."""
    names: list[exp.Expression | str] = []
    while isinstance(node, exp.Dot):
        names.insert(0, node.args.get("expression") or "")
        node = node.this
    if node is not None:
        names.insert(0, node)
    while names and not names[0]:
        del names[0]
    is_table = all(not name or isinstance(name, exp.Identifier) for name in names)
    return names if is_table and len(names) <= _TABLE_PARTS else []


def _require_name(name: exp.Expression | None) -> None:
    """Raise 156 for a reserved word without brackets: sqlglot takes many that T-SQL does not."""
    if isinstance(name, exp.Identifier) and not name.args.get("quoted") and name.name.upper() in RESERVED:
        raise keyword_error(name.name)


class QueryParser(TSQLParser):  # type: ignore[misc]
    """TSQLParser with functions left alone and T-SQL's DML clauses added."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    FUNCTION_PARSERS: ClassVar = {
        **{name: TSQLParser.FUNCTION_PARSERS[name] for name in _KEPT_FUNCTION_PARSERS},
        "PARSE": lambda self: self._parse_parse(safe=False),
        "TRY_PARSE": lambda self: self._parse_parse(safe=True),
        "OPENJSON": lambda self: self._parse_openjson(),
        "CHANGETABLE": lambda self: self._parse_changetable(),
        "TRIM": lambda self: self._parse_trimmed(),
        "JSON_OBJECT": lambda self: self._parse_json_constructor("JSON_OBJECT", self._parse_json_member),
        "JSON_ARRAY": lambda self: self._parse_json_constructor("JSON_ARRAY", self._parse_disjunction),
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {
        "ANY": TSQLParser.NO_PAREN_FUNCTION_PARSERS["ANY"],
        "CASE": TSQLParser.NO_PAREN_FUNCTION_PARSERS["CASE"],
        "NEXT": TSQLParser.NO_PAREN_FUNCTION_PARSERS["NEXT"],
    }
    PRIMARY_PARSERS: ClassVar = _with_positions(TSQLParser.PRIMARY_PARSERS)
    STRING_PARSERS: ClassVar = _with_positions(TSQLParser.STRING_PARSERS)
    NUMERIC_PARSERS: ClassVar = _with_positions(TSQLParser.NUMERIC_PARSERS)

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.Expression | None:
        node = super()._parse_table_alias(alias_tokens)
        if node is not None:
            _require_name(node.this)
        return node

    def _parse_primary(self) -> exp.Expression | None:
        # 'a' 'b' is a string with an alias in T-SQL; sqlglot would concatenate.
        if self._curr and self._curr.token_type == TokenType.STRING:
            token = self._curr
            self._advance()
            node: exp.Expression = self.PRIMARY_PARSERS[TokenType.STRING](self, token)
            return node
        return super()._parse_primary()

    def _parse_types(
        self,
        check_func: bool = False,
        schema: bool = False,
        allow_identifiers: bool = True,
        with_collation: bool = False,
    ) -> exp.Expression | None:
        """A type's name and facets as they are written: sqlglot's own reading loses real, ntext and sysname."""
        if check_func:
            return None  # `DATE 'x'` and the like are not T-SQL
        # Multi-part names: the schema of an alias type is read over, the last part is the type.
        name = self._parse_id_var()
        while name and self._match(TokenType.DOT):
            name = self._parse_id_var()
        if name is None:
            return None
        # `double precision` is a name of float.
        if name.name.lower() == "double" and self._match_text_seq("PRECISION"):
            name = exp.to_identifier("float")
        facets = self._parse_wrapped_csv(self._parse_facet) if self._match(TokenType.L_PAREN, advance=False) else []
        return self.expression(exp.DataType(this=exp.DType.USERDEFINED, kind=name.name, expressions=facets))

    def _parse_facet(self) -> exp.Expression | None:
        return exp.Var(this="max") if self._match_text_seq("MAX") else self._parse_number()

    def _parse_parse(self, safe: bool) -> exp.Expression:
        """PARSE and TRY_PARSE (string AS type [USING culture])."""
        this = self._parse_disjunction()
        # TokenType.ALIAS is the keyword AS.
        self._match(TokenType.ALIAS)
        to = self._parse_types()
        if self._match(TokenType.USING):
            raise NotSupportedByEmulatorError("PARSE ... USING a culture")
        return self.expression((exp.TryCast if safe else exp.Cast)(this=this, to=to))

    def _parse_column_ops(self, this: exp.Expression | None) -> exp.Expression | None:
        """`(SELECT … FOR XML …).value(…)`: sqlglot would take the columns of the subquery for parts of a name."""
        if isinstance(this, exp.Subquery) and self._match(TokenType.DOT):
            call = self._parse_function(anonymous=True) or self._parse_id_var()
            this = self.expression(exp.Dot(this=this, expression=call))
        return super()._parse_column_ops(this)

    def _parse_json_constructor(self, name: str, parse_item: Any) -> exp.Expression:
        """JSON_OBJECT(name : value, …) and JSON_ARRAY(value, …) [NULL ON NULL | ABSENT ON NULL].

        A call whose arguments are the names and values in turn; what its clause says is behind its name.
        """
        is_empty = self._match(TokenType.R_PAREN, advance=False) or self._at_json_nulls()
        items = [] if is_empty else self._parse_csv(parse_item)
        nulls = self._at_json_nulls()
        if nulls:
            self._advance(3)
        # The list may hold pairs (JSON_OBJECT) or single values (JSON_ARRAY); a call has one flat list.
        members = [part for item in items for part in (item if isinstance(item, list) else [item]) if part is not None]
        return self.expression(exp.Anonymous(this=f"{name} {nulls}".rstrip(), expressions=members))

    def _at_json_nulls(self) -> str:
        words = [token.text.upper() for token in self._tokens[self._index : self._index + 3]]
        return words[0] if words[1:] == ["ON", "NULL"] and words[0] in ("NULL", "ABSENT") else ""

    def _parse_json_member(self) -> Any:
        name = self._parse_bitwise()
        if not self._match(TokenType.COLON):
            self.raise_error("Expected :")
        return [name, self._parse_disjunction()]

    def _parse_trimmed(self) -> exp.Expression:
        """TRIM([LEADING | TRAILING | BOTH] [characters FROM] string), as TRIM, LTRIM or RTRIM(string[, characters])."""
        side = next((word for word in ("LEADING", "TRAILING", "BOTH") if self._match_text_seq(word)), "BOTH")
        first = self._parse_disjunction()
        arguments = [first]
        if self._match(TokenType.FROM):
            arguments = [self._parse_disjunction(), first]
        name = {"LEADING": "LTRIM", "TRAILING": "RTRIM", "BOTH": "TRIM"}[side]
        return self.expression(exp.Anonymous(this=name, expressions=arguments))

    def _parse_openjson(self) -> exp.Expression:
        """OPENJSON(json[, path]) [WITH (name type [path] [AS JSON], …)]; leaves the last parenthesis."""
        arguments = self._parse_csv(self._parse_disjunction)
        columns = None
        if self._match_pair(TokenType.R_PAREN, TokenType.WITH):
            self._match_l_paren()
            columns = self._parse_csv(self._parse_openjson_column)
        path = arguments[1] if len(arguments) > 1 else None
        return self.expression(exp.OpenJSON(this=arguments[0], path=path, expressions=columns))

    def _parse_changetable(self) -> exp.Expression:
        """CHANGETABLE(CHANGES table, version [, FORCESEEK]) and (VERSION table, (columns), (values) [, FORCESEEK])."""
        after, names, values = None, None, None
        if self._match_text_seq("CHANGES"):
            table = self._parse_table_parts()
            self._match(TokenType.COMMA) or self.raise_error("Expected ,")
            after = self._parse_unary()
        elif self._match_text_seq("VERSION"):
            table = self._parse_table_parts()
            self._match(TokenType.COMMA) or self.raise_error("Expected ,")
            names = self._parse_wrapped_csv(self._parse_id_var)
            self._match(TokenType.COMMA) or self.raise_error("Expected ,")
            values = self._parse_wrapped_csv(self._parse_disjunction)
        else:
            self.raise_error("Expected CHANGES or VERSION")
        if self._match(TokenType.COMMA) and not self._match_text_seq("FORCESEEK"):
            self.raise_error("Expected FORCESEEK")
        return self.expression(ChangeTable(this=table, after=after, versions=names, values=values))

    def _parse_openjson_column(self) -> exp.Expression:
        name = self._parse_id_var()
        kind = self._parse_types()
        path = self._parse_string()
        as_json = self._match(TokenType.ALIAS) and self._match_text_seq("JSON")
        return self.expression(exp.OpenJSONColumnDef(this=name, kind=kind, path=path, as_json=bool(as_json)))

    def _parse_query_limit(self) -> exp.Expression | None:
        return self._parse_limit(top=True)

    def _parse_limit(
        self, this: exp.Expression | None = None, top: bool = False, skip_limit_token: bool = False
    ) -> exp.Expression | None:
        # FETCH takes any expression; sqlglot would read its first operand only.
        if top or skip_limit_token or not self._match(TokenType.FETCH):
            return super()._parse_limit(this, top, skip_limit_token)
        self._match_set((TokenType.FIRST, TokenType.NEXT))
        count = None if self._match_texts(("ROW", "ROWS"), advance=False) else self._parse_term()
        return self.expression(exp.Fetch(direction="FIRST", count=count, limit_options=self._parse_limit_options()))

    def _parse_insert(self) -> exp.Expression:
        # sqlglot's own INSERT has no place for TOP.
        top = self._parse_query_limit()
        insert: exp.Expression = super()._parse_insert()
        insert.set("limit", top)
        return insert

    def _parse_alias(self, this: exp.Expression | None, explicit: bool = False) -> exp.Expression | None:
        # OUTPUT inserted.a DEFAULT VALUES: sqlglot would take DEFAULT for a name.
        if self._curr and self._curr.token_type == TokenType.DEFAULT:
            return this
        node = super()._parse_alias(this, explicit)
        if isinstance(node, exp.Alias):
            _require_name(node.args.get("alias"))
        return node

    def _parse_lateral(self) -> exp.Lateral | None:
        lateral: exp.Lateral | None = super()._parse_lateral()
        if lateral is not None and (parts := _table_names(lateral.this)):
            named = dict(zip(("this", "db", "catalog"), reversed(parts), strict=False))
            lateral.set("this", exp.Table(**named, alias=lateral.args.get("alias")))
        return lateral

    def _parse_delete(self) -> exp.Delete:
        top = self._parse_query_limit()
        self._match(TokenType.FROM)
        target = self._parse_table()
        # OUTPUT comes before FROM and WHERE in T-SQL.
        returning = self._parse_returning()
        from_ = self._parse_from(joins=True)
        delete = self.expression(exp.Delete(this=target, where=self._parse_where(), returning=returning))
        delete.set("limit", top)
        delete.set("using", from_)
        delete.set("options", self._parse_options())
        return delete

    def _parse_update(self) -> exp.Update:
        # sqlglot's own UPDATE has no place for TOP.
        top = self._parse_query_limit()
        target = self._parse_table(alias_tokens=self.UPDATE_ALIAS_TOKENS)
        if not self._match(TokenType.SET):
            self.raise_error("Expected SET")
        update = self.expression(exp.Update(this=target, expressions=self._parse_csv(self._parse_update_assignment)))
        update.set("limit", top)
        update.set("returning", self._parse_returning())
        update.set("from_", self._parse_from(joins=True))
        update.set("where", self._parse_where())
        update.set("options", self._parse_options())
        return update

    def _parse_update_assignment(self) -> exp.Expression | None:
        target = self._parse_column() or self._parse_placeholder()
        operator = None
        if isinstance(target, exp.Dot) and target.expression.name.upper() == WRITE:
            return self.expression(exp.EQ(this=exp.Column(this=target.this), expression=target.expression))
        if self._curr and self._next and self._next.token_type == TokenType.EQ:
            operator = _COMPOUND_OPERATORS.get(self._curr.token_type)
            if operator:
                self._advance()
        if not self._match(TokenType.EQ):
            self.raise_error("Expected =")
        value = self._parse_default_keyword() or self._parse_disjunction()
        assignment = self.expression(exp.EQ(this=target, expression=value))
        if operator:
            assignment.meta[ASSIGN] = operator
        return assignment

    def _parse_expression(self) -> exp.Expression | None:
        if self._curr and self._curr.token_type == TokenType.PARAMETER:
            # The tokens are @, the name, the operator, =: sqlglot would read `@x + (= …)`.
            following = [token.token_type for token in self._tokens[self._index + 2 : self._index + 4]]
            if len(following) == 2 and following[0] in _COMPOUND_OPERATORS and following[1] == TokenType.EQ:
                return self._parse_update_assignment()  # SELECT @x += …
        return super()._parse_expression()

    def _parse_default_keyword(self) -> exp.Expression | None:
        if self._match(TokenType.DEFAULT):
            return exp.Var(this="DEFAULT")
        return None

    def _parse_returning(self) -> exp.Returning | None:
        if not self._match(TokenType.RETURNING):
            return None
        expressions = self._parse_csv(self._parse_expression)
        into = self._parse_table(schema=True) if self._match(TokenType.INTO) else None
        return self.expression(exp.Returning(expressions=expressions, into=into))

    def _parse_merge(self) -> exp.Merge:
        top = self._parse_query_limit()
        merge = super()._parse_merge()
        if top:
            merge.set("limit", top)
        merge.set("options", self._parse_options())
        return merge

    def _parse_value(self, values: bool = True) -> exp.Tuple | None:
        if not self._match(TokenType.L_PAREN):
            # MERGE … INSERT DEFAULT VALUES: sqlglot would take DEFAULT for a column.
            if not values and self._match(TokenType.DEFAULT):
                self._match(TokenType.VALUES)
                return None
            return super()._parse_value(values=values)
        items = self._parse_csv(lambda: self._parse_default_keyword() or self._parse_expression())
        self._match_r_paren()
        return self.expression(exp.Tuple(expressions=items))


class QueryDialect(TSQL):  # type: ignore[misc]
    """Reads T-SQL queries and DML. It is never written with."""

    class Tokenizer(TSQL.Tokenizer):  # type: ignore[misc]
        # In T-SQL double quotes are identifiers (QUOTED_IDENTIFIER is always ON here).
        QUOTES: ClassVar = ["'"]
        KEYWORDS: ClassVar = {k: v for k, v in TSQL.Tokenizer.KEYWORDS.items() if k not in _FOREIGN_KEYWORDS}

    Parser = QueryParser


_DIALECT = QueryDialect()


def syntax_error(near: str) -> SqlServerError:
    """Error 102, as the server words it."""
    return SqlServerError(102, f"Incorrect syntax near '{near}'.", severity=15)


def keyword_error(near: str) -> SqlServerError:
    """Error 156: the text goes on after a reserved word that cannot stand there."""
    return SqlServerError(156, f"Incorrect syntax near the keyword '{near}'.", severity=15)


def parse_query(text: str) -> exp.Expression:
    """The tree of one query or DML statement. Raises SqlServerError 102."""
    if len(text) > _KEPT_LENGTH_MAX:
        return _parsed(text)
    # The translation changes its tree, and a copy costs a quarter of a parse.
    tree: exp.Expression = _kept(text).copy()
    return tree


@lru_cache(maxsize=_KEPT_MAX)
def _kept(text: str) -> exp.Expression:
    """The tree of a text that is translated in one database after the other. Not to be changed."""
    return _parsed(text)


def _parsed(text: str) -> exp.Expression:
    try:
        tokens = without_hints(merge_tokens(_DIALECT.tokenize(text), text))
        parser = _DIALECT.parser()
        trees = parser.parse(tokens, text)
    except TokenError as error:
        raise syntax_error(_last_word(str(error))) from None
    except ParseError as error:
        refuse_unknown_clause(text)
        near = _highlight(error)
        goes_on = bool(error.errors and str(error.errors[0].get("end_context") or "").strip())
        # Error 156 is only raised for a reserved word with more text behind it.
        raise (keyword_error if goes_on and near.upper() in RESERVED else syntax_error)(near) from None
    trees = [tree for tree in trees if tree is not None]
    if len(trees) != 1:
        raise syntax_error(text.strip().split(None, 1)[0] if text.strip() else "")
    return trees[0]


def parse_type(text: str) -> exp.DataType:
    """A data type that a string names."""
    tree = parse_query(f"SELECT CAST(NULL AS {text})")
    cast = tree.find(exp.Cast)
    if cast is None:
        raise syntax_error(text)
    made: exp.DataType = cast.args["to"]
    return made


def parse_ddl(text: str) -> exp.Expression:
    """The tree of a DDL statement as sqlglot's own `tsql` dialect gives it (an exp.Command when it knows no better)."""
    dialect = TSQL()
    try:
        trees = [tree for tree in dialect.parse(text) if tree is not None]
    # sqlglot's message is the only source for the word near which the server would report the error.
    except (ParseError, TokenError) as error:
        raise syntax_error(_highlight(error) if isinstance(error, ParseError) else _last_word(str(error))) from None
    if len(trees) != 1:
        raise syntax_error(text.strip().split(None, 1)[0] if text.strip() else "")
    return trees[0]


def _highlight(error: ParseError) -> str:
    first = error.errors[0] if error.errors else {}
    return str(first.get("highlight") or "").strip() or "end of statement"


def _last_word(message: str) -> str:
    words = message.replace("'", " ").split()
    return words[-1] if words else ""
