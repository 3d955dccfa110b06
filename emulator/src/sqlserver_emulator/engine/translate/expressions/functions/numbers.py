"""Mathematical functions, NULL handling, choices, and what has no better home (NEWID, CHECKSUM)."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions import comparisons
from sqlserver_emulator.engine.translate.expressions.functions.registry import (
    ANY_NUMBER,
    Function,
    Handler,
    constant,
    simple,
)
from sqlserver_emulator.engine.translate.expressions.interfaces import Expressions
from sqlserver_emulator.engine.translate.values.choices import choose, common_kind, unified
from sqlserver_emulator.engine.translate.values.conversion import ASSIGN, EXPLICIT, IMPLICIT, as_text, convert
from sqlserver_emulator.engine.translate.values.type_rules import (
    DECIMAL,
    FLOAT,
    FLOAT_TYPE,
    INTEGER,
    TEXT,
    UNIQUEIDENTIFIER,
    VARIANT,
    is_money,
    storage_type,
)
from sqlserver_emulator.engine.translate.values.value import Value, null
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.system_types import BY_NAME
from sqlserver_emulator.types import BIGINT, INT, TsqlType


def _float(name: str) -> Function:
    return simple("f", FLOAT_TYPE, f"{name}({{0}})")


def _numeric(value: Value) -> Value:
    return value if value.kind in (INTEGER, DECIMAL, FLOAT) else convert(value, FLOAT_TYPE, IMPLICIT)


def _same_type(template: str, result: Callable[[TsqlType], TsqlType] | None = None) -> Handler:
    """A function over one number whose result has the number's type."""

    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        # A string argument is converted to float, as SQL Server does for mathematical functions.
        value = _numeric(self.value(nodes[0]))

        def type() -> TsqlType | None:
            own = value.type
            # The smaller integers are computed as int.
            if own is not None and own.name in ("bit", "tinyint", "smallint"):
                own = INT
            return result(own) if own is not None and result is not None else own

        return Value(template.format(value.sql), type, kind=value.kind, nullable=value.nullable)

    return handle


def _whole(type: TsqlType) -> TsqlType:
    return TsqlType("decimal", precision=type.precision) if type.name in ("decimal", "numeric") else type


def _round(self: Expressions, nodes: list[exp.Expression]) -> Value:
    value = _numeric(self.value(nodes[0]))
    digits = self.converted(nodes[1], INT)
    cut = self.converted(nodes[2], INT) if len(nodes) > 2 else "0"
    if value.kind == FLOAT:
        return Value(f"tsql.round({value.sql}::numeric, {digits}, {cut})::float8", FLOAT_TYPE)
    if value.kind == INTEGER:
        type = value.type if value.type is not None and value.type.name == "bigint" else INT
        return Value(f"tsql.round({value.sql}::numeric, {digits}, {cut})::{storage_type(type)}", type)
    return Value(f"tsql.round({value.sql}::numeric, {digits}, {cut})", lambda: value.type, kind=value.kind)


def _power(self: Expressions, nodes: list[exp.Expression]) -> Value:
    value = _numeric(self.value(nodes[0]))
    exponent = self.converted(nodes[1], FLOAT_TYPE)
    if value.kind == FLOAT:
        return Value(f"power({value.sql}, {exponent})", FLOAT_TYPE)
    type = value.type
    if value.kind == INTEGER:
        whole = type if type is not None and type.name == "bigint" else INT
        # The power of an int is an int: the result is cut, and an overflow is an error.
        return Value(f"tsql.float_to_{whole.name}(trunc(power({value.sql}::float8, {exponent})))", whole)
    scale = type.scale if type else 0
    wide = TsqlType("decimal", precision=38, scale=scale) if type is None or not is_money(type) else type
    return Value(f"round(power({value.sql}, {exponent}::numeric), {scale})", wide)


def _log(self: Expressions, nodes: list[exp.Expression]) -> Value:
    number = self.converted(nodes[0], FLOAT_TYPE)
    if len(nodes) == 1:
        return Value(f"ln({number})", FLOAT_TYPE)
    return Value(f"(ln({number}) / ln({self.converted(nodes[1], FLOAT_TYPE)}))", FLOAT_TYPE)


def _rand(self: Expressions, nodes: list[exp.Expression]) -> Value:
    self.emission.read_only = False
    if nodes:
        return Value(f"tsql.rand({self.converted(nodes[0], INT)})", FLOAT_TYPE)
    return Value("random()", FLOAT_TYPE)


def _isnull(self: Expressions, nodes: list[exp.Expression]) -> Value:
    """ISNULL has the type of its first argument, length included: the second is cut to it."""
    first, second = self.value(nodes[0]), self.value(nodes[1])
    # ISNULL(NULL, x) has the type of x.
    if first.is_null:
        return second
    type = first.type
    if type is None:
        return Value(f"coalesce({first.sql}, {second.sql})", None)
    nullable = first.nullable and second.nullable
    if first.kind == VARIANT:
        sql, _ = unified([first, second])
        return Value(f"coalesce({', '.join(sql)})", type, kind=VARIANT, nullable=nullable)
    if first.kind == TEXT:
        replacement = convert(second, type, EXPLICIT)
        return Value(f"coalesce({as_text(first)}, {replacement.sql})", type, nullable=nullable)
    replacement = convert(second, type, ASSIGN if first.kind != DECIMAL else EXPLICIT)
    return Value(f"coalesce({first.sql}, {replacement.sql})", type, kind=first.kind, nullable=nullable)


def _coalesce(self: Expressions, nodes: list[exp.Expression]) -> Value:
    values = [self.value(node) for node in nodes]
    if all(value.is_null for value in values):
        raise SqlServerError(
            4127, "At least one of the arguments to COALESCE must be an expression that is not the NULL constant."
        )
    sql, type = unified(values)
    nullable = all(value.nullable for value in values)
    return Value(f"coalesce({', '.join(sql)})", type, kind=common_kind(values), nullable=nullable)


# NULLIF has the type of its first argument.
def _nullif(self: Expressions, nodes: list[exp.Expression]) -> Value:
    first, second = self.value(nodes[0]), self.value(nodes[1])
    test = comparisons.compare("=", first, second)
    sql = unified([first])[0][0] if first.kind == VARIANT else first.sql
    return Value(f"(CASE WHEN {test} THEN NULL ELSE {sql} END)", lambda: first.type, kind=first.kind)


def _iif(self: Expressions, nodes: list[exp.Expression]) -> Value:
    return choose([self.condition(nodes[0])], [self.value(nodes[1]), self.value(nodes[2])])


def _choose(self: Expressions, nodes: list[exp.Expression]) -> Value:
    index = self.converted(nodes[0], INT)
    tests = [f"{index} = {position}" for position in range(1, len(nodes))]
    # An index outside the list gives NULL.
    return choose(tests, [*(self.value(node) for node in nodes[1:]), null()])


def _checksum(function: str) -> Handler:
    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        texts = [self.text(node) for node in nodes]
        return Value(f"{function}(ARRAY[{', '.join(texts)}])", INT)

    return handle


def _isnumeric(self: Expressions, nodes: list[exp.Expression]) -> Value:
    return Value(f"tsql.isnumeric({self.text(nodes[0])})", INT, nullable=False)


def _isdate(self: Expressions, nodes: list[exp.Expression]) -> Value:
    return Value(f"tsql.isdate({self.text(nodes[0])})", INT, nullable=False)


def _greatest(word: str) -> Handler:
    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        values = [self.value(node) for node in nodes]
        sql, type = unified(values)
        return Value(f"{word}({', '.join(sql)})", type, kind=common_kind(values))

    return handle


def _angle(function: str) -> Handler:
    """DEGREES and RADIANS: whole numbers stay whole, exact ones get eighteen digits behind the point."""

    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        value = _numeric(self.value(nodes[0]))
        type = value.type
        if type is None or value.kind == FLOAT:
            return Value(f"{function}({value.sql}::float8)", FLOAT_TYPE)
        if value.kind == INTEGER:
            whole = type if type.name == "bigint" else INT
            return Value(f"tsql.float_to_{whole.name}(trunc({function}({value.sql}::float8)))", whole)
        exact = type if is_money(type) else TsqlType("decimal", precision=38, scale=max(type.scale, 18))
        return Value(f"({function}({value.sql}::float8)::numeric)::{storage_type(exact)}", exact)

    return handle


def _shift(word: str) -> Handler:
    """LEFT_SHIFT and RIGHT_SHIFT; a negative distance goes the other way."""

    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        value = self.value(nodes[0])
        type = value.type if value.kind == INTEGER and value.type is not None else INT
        # A bit is shifted as an int.
        bits = 8 * BY_NAME[type.name].wire.size if type.name != "bit" else 32
        distance = self.converted(nodes[1], INT)
        sign = "" if word == "left" else "-"
        return Value(f"tsql.shift({value.sql}::int8, {sign}{distance}, {bits})::{storage_type(type)}", type)

    return handle


FUNCTIONS: dict[str, Function] = {
    "bit_count": simple("b", BIGINT, "bit_count({0}::bit(64))"),
    "get_bit": simple("bi", TsqlType("bit"), "(({0} >> {1}) & 1)::int2"),
    "left_shift": Function(_shift("left"), 2, 2),
    "right_shift": Function(_shift("right"), 2, 2),
    "abs": Function(_same_type("abs({0})"), 1, 1),
    "acos": _float("acos"),
    "asin": _float("asin"),
    "atan": _float("atan"),
    "atn2": simple("ff", FLOAT_TYPE, "atan2({0}, {1})"),
    "ceiling": Function(_same_type("ceil({0})", _whole), 1, 1),
    "checksum": Function(_checksum("tsql.checksum"), 1, ANY_NUMBER),
    "binary_checksum": Function(_checksum("tsql.checksum"), 1, ANY_NUMBER),
    "choose": Function(_choose, 2, ANY_NUMBER),
    "coalesce": Function(_coalesce, 2, ANY_NUMBER),
    "cos": _float("cos"),
    "cot": _float("cot"),
    "degrees": Function(_angle("degrees"), 1, 1),
    "exp": _float("exp"),
    "floor": Function(_same_type("floor({0})", _whole), 1, 1),
    "greatest": Function(_greatest("greatest"), 1, ANY_NUMBER),
    "iif": Function(_iif, 3, 3),
    "isdate": Function(_isdate, 1, 1),
    "isnull": Function(_isnull, 2, 2),
    "isnumeric": Function(_isnumeric, 1, 1),
    "least": Function(_greatest("least"), 1, ANY_NUMBER),
    "log": Function(_log, 1, 2),
    "log10": _float("log"),
    "newid": constant("gen_random_uuid()", UNIQUEIDENTIFIER),
    "newsequentialid": constant("gen_random_uuid()", UNIQUEIDENTIFIER),
    "nullif": Function(_nullif, 2, 2),
    "pi": constant("pi()", FLOAT_TYPE),
    "power": Function(_power, 2, 2),
    "radians": Function(_angle("radians"), 1, 1),
    "rand": Function(_rand, 0, 1),
    "round": Function(_round, 2, 3),
    "sign": Function(_same_type("sign({0})"), 1, 1),
    "sin": _float("sin"),
    "sqrt": _float("sqrt"),
    "square": simple("f", FLOAT_TYPE, "power({0}, 2)"),
    "tan": _float("tan"),
}
