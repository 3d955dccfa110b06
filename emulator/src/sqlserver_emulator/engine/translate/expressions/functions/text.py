"""String functions."""

from __future__ import annotations

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.functions.registry import ANY_NUMBER, Function, Handler, simple
from sqlserver_emulator.engine.translate.expressions.interfaces import Expressions
from sqlserver_emulator.engine.translate.values.collating import collation_of, facets, folded, in_place
from sqlserver_emulator.engine.translate.values.conversion import IMPLICIT, as_text, convert
from sqlserver_emulator.engine.translate.values.type_rules import (
    BINARY,
    INTEGER,
    NUMBERS,
    TEMPORAL,
    TEXT,
    concatenated,
    family,
    has_no_length,
    is_national,
    is_text,
    varchar,
)
from sqlserver_emulator.engine.translate.values.value import LiteralValue, Value
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.system_types import BY_NAME
from sqlserver_emulator.system_types.record import VARIANT, Declared
from sqlserver_emulator.system_types.sizes import decimal_bytes, time_bytes
from sqlserver_emulator.types import BIGINT, INT, MAX_LENGTH, NVARCHAR_4000, NVARCHAR_MAX, TsqlType

_NVARCHAR_258 = TsqlType("nvarchar", 258)
_VARCHAR_8000 = TsqlType("varchar", 8000)


def _text_type(value: Value, *, length: int | None = None) -> TsqlType:
    """The type of a string function's result over ``value``: as wide as the argument, or ``length``."""
    type = value.type
    if type is None or not is_text(type):
        return _VARCHAR_8000
    if has_no_length(type):
        return varchar(MAX_LENGTH, is_national(type))
    return varchar(type.length if length is None or type.is_max else length, is_national(type))


def _same_width(template: str, kinds: str = "") -> Function:
    """A function whose result is a string of its first argument's type."""

    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        first = self.value(nodes[0])
        rest = [
            self.converted(node, INT) if kind == "i" else self.text(node)
            for node, kind in zip(nodes[1:], kinds, strict=True)
        ]
        return Value(template.format(as_text(first), *rest), lambda: _text_type(first), kind=TEXT)

    return Function(handle, 1 + len(kinds), 1 + len(kinds))


def _widest(function: str, kinds: str, *, is_collated: bool = False) -> Function:
    """A function whose result can be longer than its argument: (n)varchar of the greatest length, max of max.

    ``kinds`` of the further arguments: t a string, i a number, c a count of characters or strings to be made.
    ``is_collated``: it finds strings in the first one, by their collation.
    """

    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        first = self.value(nodes[0])
        rest = [
            self.converted(node, INT) if kind in "ic" else self.text(node)
            for node, kind in zip(nodes[1:], kinds, strict=True)
        ]
        if not _text_type(first).is_max:
            # A count from the client could ask for gigabytes; what is longer is cut below anyway.
            rest = [f"least({sql}, 8000)" if kind == "c" else sql for sql, kind in zip(rest, kinds, strict=True)]

        def type() -> TsqlType:
            own = _text_type(first)
            return own if own.is_max else varchar(4000 if is_national(own) else 8000, is_national(own))

        sql = f"{function}({', '.join([as_text(first), *rest])})"
        if is_collated:
            sql = _by_collation(function, [first, *(self.value(node) for node in nodes[1:])], sql)
        # What is beyond the greatest length is cut off, unless the argument is a max.
        if isinstance(first, LiteralValue):
            sql = f"tsql.left({sql}, {4000 if first.is_national else 8000})"
        elif not type().is_max:
            sql = f"tsql.left({sql}, {type().length})"
        return Value(sql, type, kind=TEXT)

    return Function(handle, 1 + len(kinds), 1 + len(kinds))


def _by_collation(function: str, values: list[Value], sql: str) -> str:
    """The call that finds strings by their collation; ``sql`` is that of a binary one."""
    name = function.rpartition(".")[2]
    collation = collation_of(*values, operation=name)
    if collation.is_binary:
        return sql
    texts = ", ".join(as_text(value) if not value.is_null else "NULL::text" for value in values)
    return f"tsql.{name}_folded({texts}, {facets(collation)})"


def _substring(self: Expressions, nodes: list[exp.Expression]) -> Value:
    value = self.value(nodes[0])
    start, length = self.converted(nodes[1], INT), self.converted(nodes[2], INT)
    if value.kind == BINARY:
        return Value(f"tsql.substring_binary({value.sql}, {start}, {length})", TsqlType("varbinary", 8000))
    return Value(f"tsql.substring({as_text(value)}, {start}, {length})", lambda: _text_type(value), kind=TEXT)


def _datalength(self: Expressions, nodes: list[exp.Expression]) -> Value:
    value = self.value(nodes[0])
    type = value.type
    # DATALENGTH of a max type is a bigint.
    result = BIGINT if type is not None and type.is_max else INT
    if value.kind == BINARY:
        return Value(f"octet_length({value.sql})", result)
    if value.kind == TEXT and type is not None:
        # Two bytes for each UTF-16 unit of a national string, one for each character of another one.
        width = 2 if is_national(type) else 1
        return Value(f"(tsql.utf16_length({as_text(value)}) * {width})", result)
    size = 8 if type is None else _value_bytes(type)
    # The size does not depend on the value, but NULL has none.
    return Value(f"(CASE WHEN {value.sql} IS NOT NULL THEN {size} END)", result)


def _value_bytes(type: TsqlType) -> int:
    """Return the bytes that the server has for any value of a type that is neither text nor binary."""
    record = BY_NAME[type.name]
    if record.declared is Declared.PRECISION_SCALE:
        return decimal_bytes(type.precision)
    if record.moment is not None:
        return time_bytes(type.scale) + record.moment.more_bytes
    # The base type of a variant is not known here.
    return 8 if record.family == VARIANT else record.facets.max_length


def _position(function: str, text: int) -> Handler:
    """CHARINDEX and PATINDEX: a bigint in a max. ``text``: which argument is searched."""

    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        values = [self.value(node) for node in nodes[:2]]
        collation = collation_of(*values, operation=function.partition(".")[2])
        arguments = [folded(as_text(value), collation) for value in values]
        arguments[text] = in_place(as_text(values[text]), collation)
        arguments += [self.converted(node, INT) for node in nodes[2:]]
        return _wide_count(values[text], f"{function}({', '.join(arguments)})")

    return handle


def _wide_count(text: Value, sql: str) -> Value:
    is_max = not isinstance(text, LiteralValue) and text.type is not None and text.type.is_max
    return Value(f"{sql}::int8" if is_max else sql, BIGINT if is_max else INT)


def _len(self: Expressions, nodes: list[exp.Expression]) -> Value:
    value = self.value(nodes[0])
    if value.kind == BINARY:
        return _wide_count(value, f"octet_length({value.sql})")
    return _wide_count(value, f"tsql.len({as_text(value)})")


def _concat(self: Expressions, nodes: list[exp.Expression]) -> Value:
    values = [self.value(node) for node in nodes]
    # CONCAT takes NULL for an empty string.
    texts = [f"coalesce({_display(value)}, '')" for value in values]
    return Value(f"({' || '.join(texts)})", lambda: _concat_type(values), kind=TEXT, nullable=False)


def _concat_ws(self: Expressions, nodes: list[exp.Expression]) -> Value:
    separator = self.text(nodes[0])
    values = [self.value(node) for node in nodes[1:]]
    texts = ", ".join(_display(value) for value in values)
    # concat_ws of PostgreSQL is NULL where the separator is; here it counts as empty.
    return Value(f"concat_ws(coalesce({separator}, ''), {texts})", lambda: _concat_type(values), kind=TEXT)


def _display(value: Value) -> str:
    return convert(value, TsqlType("nvarchar", 4000), IMPLICIT).sql if not value.is_null else "NULL::text"


def _concat_type(values: list[Value]) -> TsqlType:
    type: TsqlType | None = None
    for value in values:
        # A number or date takes part with the length that its text may need.
        own = value.type if value.type is not None and family(value.type) == TEXT else TsqlType("varchar", 40)
        type = own if type is None else concatenated(type, own)
    return type or _VARCHAR_8000


def _trimmed(function: str) -> Handler:
    """TRIM, LTRIM and RTRIM, of blanks or of the characters of the second argument."""

    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        value = self.value(nodes[0])
        characters = "' '"
        if len(nodes) > 1:
            given = self.value(nodes[1])
            collation = collation_of(value, given, operation="trim")
            characters = as_text(given)
            if not collation.is_binary:
                characters = f"tsql.both_cases({characters}, {facets(collation)})"
        return Value(f"{function}({as_text(value)}, {characters})", lambda: _text_type(value), kind=TEXT)

    return handle


def _char(function: str, type: TsqlType) -> Handler:
    def handle(self: Expressions, nodes: list[exp.Expression]) -> Value:
        return Value(f"{function}({self.converted(nodes[0], INT)})", type)

    return handle


def _str(self: Expressions, nodes: list[exp.Expression]) -> Value:
    number = self.converted(nodes[0], TsqlType("float", precision=53))
    length = self.converted(nodes[1], INT) if len(nodes) > 1 else "10"
    decimals = self.converted(nodes[2], INT) if len(nodes) > 2 else "0"
    return Value(f"tsql.str({number}, {length}, {decimals})", _VARCHAR_8000)


def _hashbytes(self: Expressions, nodes: list[exp.Expression]) -> Value:
    value = self.value(nodes[1])
    if value.kind == BINARY:
        data = value.sql
    else:
        national = str(_is_national_value(value)).lower()
        data = f"tsql.text_to_binary({as_text(value)}, 0, {national})"
    return Value(f"tsql.hashbytes({self.text(nodes[0])}, {data})", TsqlType("varbinary", 8000))


def _is_national_value(value: Value) -> bool:
    if isinstance(value, LiteralValue):
        return value.is_national
    return value.type is not None and is_text(value.type) and is_national(value.type)


_CULTURES = ("en-us", "")


def _format(self: Expressions, nodes: list[exp.Expression]) -> Value:
    """FORMAT in the culture en-US, which is that of the server's language."""
    if len(nodes) > 2 and self.emission.constant(nodes[2]).lower() not in _CULTURES:
        raise NotSupportedByEmulatorError(f"FORMAT with the culture {nodes[2].name}")
    value, pattern = self.value(nodes[0]), self.text(nodes[1])
    if value.kind == TEMPORAL and value.type is not None and value.type.name not in ("time", "datetimeoffset"):
        moment = convert(value, TsqlType("datetime2", scale=7), IMPLICIT)
        return Value(f"tsql.format_date({moment.sql}, {pattern})", NVARCHAR_4000)
    if value.kind not in NUMBERS:
        name = value.type.name if value.type is not None else "sql_variant"
        if value.kind == TEMPORAL:
            raise NotSupportedByEmulatorError(f"FORMAT of a {name}")
        raise SqlServerError(8116, f"Argument data type {name} is invalid for argument 1 of format function.")
    whole = str(value.kind == INTEGER).lower()
    return Value(f"tsql.format_number({value.sql}::numeric, {pattern}, {whole})", NVARCHAR_4000)


FUNCTIONS: dict[str, Function] = {
    "format": Function(_format, 2, 3),
    "ascii": simple("t", INT, "tsql.ascii"),
    "char": Function(_char("tsql.char", TsqlType("char", 1)), 1, 1),
    "charindex": Function(_position("tsql.charindex", 1), 2, 3),
    "concat": Function(_concat, 2, ANY_NUMBER),
    "concat_ws": Function(_concat_ws, 3, ANY_NUMBER),
    "difference": simple("tt", INT, "tsql.difference({0}, {1})"),
    "datalength": Function(_datalength, 1, 1),
    "hashbytes": Function(_hashbytes, 2, 2),
    "left": _same_width("tsql.left({0}, {1})", "i"),
    "len": Function(_len, 1, 1),
    "lower": _same_width("lower({0})"),
    "ltrim": Function(_trimmed("ltrim"), 1, 2),
    "nchar": Function(_char("tsql.nchar", TsqlType("nchar", 1)), 1, 1),
    "parsename": simple("ti", TsqlType("sysname", 128), "tsql.parsename({0}, {1})"),
    "patindex": Function(_position("tsql.patindex", 1), 2, 2),
    "quotename": simple("t?t", _NVARCHAR_258, "tsql.quotename"),
    "replace": _widest("tsql.replace", "tt", is_collated=True),
    "replicate": _widest("tsql.replicate", "c"),
    "reverse": _same_width("tsql.joined(reverse(tsql.spread({0})))"),
    "right": _same_width("tsql.right({0}, {1})", "i"),
    "rtrim": Function(_trimmed("rtrim"), 1, 2),
    "soundex": simple("t", TsqlType("varchar", 5), "tsql.soundex({0})"),
    "space": simple("i", _VARCHAR_8000, "tsql.space(least({0}, 8000))"),
    "str": Function(_str, 1, 3),
    "string_escape": simple("tt", NVARCHAR_MAX, "tsql.string_escape({0}, {1})"),
    "stuff": _widest("tsql.stuff", "iit"),
    "substring": Function(_substring, 3, 3),
    "translate": _widest("tsql.translate", "tt", is_collated=True),
    "trim": Function(_trimmed("btrim"), 1, 2),
    "unicode": simple("t", INT, "tsql.unicode({0})"),
    "upper": _same_width("upper({0})"),
}
