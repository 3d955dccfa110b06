"""A translated scalar: PostgreSQL text, and the T-SQL type it has where that is known.

A literal is not text yet: how it is written depends on what it meets (a string next to a date is converted by the rules
of dates), so it stays a ``LiteralValue`` until someone asks for its SQL.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlserver_emulator.code_units import unit_count
from sqlserver_emulator.collations import Collated
from sqlserver_emulator.engine.translate.lexical import lexemes
from sqlserver_emulator.engine.translate.lexical.lexemes import Literal
from sqlserver_emulator.engine.translate.values import type_rules
from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.types import INT, TsqlType

TypeOrThunk = TsqlType | None | Callable[[], TsqlType | None]


class Value:
    """``sql`` is atomic: it can be followed by a cast or stand next to any operator.

    The type may be given as a function: it is asked only where the type leaves the statement, because to ask for the
    exact type of a string literal makes its length a part of the cache key.
    direct: a plain column of a table, whose declared type the engine finds by itself. constant: a literal or a
    variable, which PostgreSQL knows before it reads a row. mask: the masking function that the client sees it through.
    collated: the collation of a string; the translator of expressions sets it where it is not that of a column.
    units_of: the text of which a varbinary has the code units, as far as its length goes; '' for other values.
    """

    __slots__ = ("_sql", "_type", "collated", "constant", "direct", "is_null", "kind", "mask", "nullable", "units_of")

    def __init__(
        self,
        sql: str,
        type: TypeOrThunk,
        *,
        kind: str | None = None,
        direct: bool = False,
        is_null: bool = False,
        nullable: bool = True,
        constant: bool = False,
        mask: str = "",
        collated: Collated | None = None,
        units_of: str = "",
    ) -> None:
        self._sql = sql
        self.units_of = units_of
        self.mask = mask
        self._type = type
        # A type that is given as a function says nothing of the family, so callers pass ``kind`` then.
        self.kind = kind if kind is not None else (type_rules.family(type) if isinstance(type, TsqlType) else None)
        self.direct = direct
        self.is_null = is_null
        self.nullable = nullable
        self.constant = constant
        self.collated = collated

    @property
    def sql(self) -> str:
        return self._sql

    @property
    def type(self) -> TsqlType | None:
        if callable(self._type):
            # The answer is kept: asking again would ask for the literal's pin again.
            self._type = self._type()
        return self._type


LITERAL_FAMILY = {
    lexemes.INT: type_rules.INTEGER,
    lexemes.DECIMAL: type_rules.DECIMAL,
    lexemes.FLOAT: type_rules.FLOAT,
    lexemes.MONEY: type_rules.DECIMAL,
    lexemes.STRING: type_rules.TEXT,
    lexemes.NATIONAL: type_rules.TEXT,
    lexemes.BINARY: type_rules.BINARY,
}
# An int literal is bound as int4 and so on: PostgreSQL would otherwise infer the type from what surrounds it.
LITERAL_CAST = {
    lexemes.INT: "int4",
    lexemes.DECIMAL: "numeric",
    lexemes.FLOAT: "float8",
    lexemes.MONEY: "numeric",
    lexemes.STRING: "text",
    lexemes.NATIONAL: "text",
    lexemes.BINARY: "bytea",
}


class LiteralValue(Value):
    """A literal of the text. ``bind`` gives its place among the parameters, or its text where it must stay."""

    __slots__ = ("_bind", "literal")

    def __init__(
        self, literal: Literal, bind: Callable[[Literal, str], str], describe: Callable[[Literal], TsqlType]
    ) -> None:
        super().__init__(
            "", lambda: describe(literal), kind=LITERAL_FAMILY[literal.kind], nullable=False, constant=True
        )
        self.literal = literal
        self._bind = bind

    @property
    def is_national(self) -> bool:
        return self.literal.kind == lexemes.NATIONAL

    @property
    def sql(self) -> str:
        return self._bind(self.literal, LITERAL_CAST[self.literal.kind])


class VariantValue(Value):
    """A sql_variant, carried as text. ``base``: the storage type that it leaves the query with."""

    __slots__ = ("base",)

    def __init__(self, sql: str, base: str) -> None:
        super().__init__(sql, TsqlType("sql_variant"))
        self.base = base


class UndeclaredValue(Value):
    """A parameter without a type, as an untyped NULL. ``learn`` receives the types that it should have."""

    __slots__ = ("learn",)

    def __init__(self, learn: Callable[[TsqlType], None]) -> None:
        super().__init__("NULL", INT, kind="", is_null=True)
        self.learn = learn


def suggest(value: Value, type: TsqlType | None) -> None:
    """Give an undeclared parameter its type: that of what it is assigned to or is equal to."""
    if isinstance(value, UndeclaredValue) and type is not None:
        value.learn(type)


def suggest_general(value: Value, neighbour: Value) -> None:
    """Give an undeclared parameter the widest type of the kind that it is next to."""
    if isinstance(value, UndeclaredValue) and not neighbour.is_null and neighbour.type is not None:
        value.learn(type_rules.widest(neighbour.type))


def exact_type(value: Value) -> TsqlType:
    """The type of a value of a known family; without one no conversion by the rules is possible."""
    type = value.type
    if type is None:
        raise NotSupportedByEmulatorError("a conversion of a value whose type is not known")
    return type


def null() -> Value:
    """An untyped NULL; shown as int where nothing says otherwise, as the server does."""
    return Value("NULL", INT, kind="", is_null=True)


def is_column_of_nulls(value: Value) -> bool:
    """Return whether the value is a column of VALUES that has NULL in each row, and no type yet: no constant NULL."""
    return value.is_null and value.sql != "NULL"


def literal_type(literal: Literal) -> TsqlType:
    """The type of a literal as the server sees it."""
    kind, lexeme = literal.kind, literal.lexeme
    if kind == lexemes.INT:
        return INT
    if kind == lexemes.FLOAT:
        return type_rules.FLOAT_TYPE
    if kind == lexemes.MONEY:
        return type_rules.MONEY
    if kind == lexemes.BINARY:
        # The lexeme is 0x and two digits for each byte, of which the first may be missing.
        return TsqlType("varbinary", max(1, (len(lexeme) - 1) // 2))
    if kind == lexemes.DECIMAL:
        whole, _, fraction = lexeme.partition(".")
        # Leading zeros do not count for the precision of a decimal literal.
        return TsqlType("numeric", precision=max(1, len(whole.lstrip("0")) + len(fraction)), scale=len(fraction))
    length = unit_count(literal.text or "")
    return type_rules.varchar(length, kind == lexemes.NATIONAL)
