"""Conversions between T-SQL types: CAST and CONVERT, implicit ones next to an operator, and those of an assignment.

PostgreSQL's own casts are used where they mean the same; the rest are functions of schema tsql (functions.sql), which
also raise the server's own errors (245, 8114, 241, 8115 …).
"""

from __future__ import annotations

from sqlserver_emulator.engine.translate.lexical import lexemes
from sqlserver_emulator.engine.translate.values.type_rules import (
    BINARY,
    DECIMAL,
    FLOAT,
    GUID,
    INTEGER,
    TEMPORAL,
    TEXT,
    VARIANT,
    as_decimal,
    counts_from_1900,
    family,
    has_no_length,
    has_offset,
    is_fixed_text,
    is_money,
    is_national,
    storage_type,
)
from sqlserver_emulator.engine.translate.values.value import LiteralValue, Value, exact_type, suggest
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.system_types import SYSTEM_TYPES
from sqlserver_emulator.system_types.others import VARIANT_VALUES
from sqlserver_emulator.types import NVARCHAR_4000, SEVEN_DIGITS, TsqlType

EXPLICIT = "explicit"
"""CAST and CONVERT: strings are cut to the length."""
IMPLICIT = "implicit"
"""Next to an operator or as an argument: lengths do not matter."""
ASSIGN = "assign"
"""Into a column: too long is an error, which PostgreSQL's assignment raises."""
TRY = "try"
"""TRY_CAST and TRY_CONVERT: NULL instead of an error."""

# The integers that PostgreSQL has too: its cast has the server's range.
_INTEGER_STORAGE = {"smallint": "int2", "int": "int4", "bigint": "int8"}
# Bytes of a binary that becomes an integer: the size of the type decides which ones count.
_INTEGER_BYTES = {type.name: type.wire.size for type in SYSTEM_TYPES if type.family == INTEGER}


def convert(value: Value, to: TsqlType, mode: str = EXPLICIT, style: str | None = None) -> Value:
    """``value`` as type ``to``. ``style``: SQL of the style number, of CONVERT."""
    if value.is_null:
        suggest(value, to)
        return Value(f"NULL::{storage_type(to)}", to)
    if value.kind is None:
        # The type is not known: PostgreSQL's own conversion is all there is.
        return Value(f"{value.sql}::{storage_type(to)}", to)
    _refuse_large_types(value, to, mode)
    sql = _CONVERTERS[family(to)](value, to, mode, style)
    units_of = as_text(value) if to.name == "varbinary" and _is_units(value, mode, style) else ""
    return Value(sql, to, nullable=value.nullable or mode == TRY, units_of=units_of)


def _refuse_large_types(value: Value, to: TsqlType, mode: str) -> None:
    """xml, text and ntext are made of strings and binaries only, and nothing else is made of them."""
    explicit = mode in (EXPLICIT, TRY)
    if has_no_length(to) and value.kind in (INTEGER, DECIMAL, FLOAT, TEMPORAL, GUID):
        raise _refuse(value, to, explicit=True) if explicit else _clash(value, to)
    # A literal is never of these types, and to ask for its own would tie the translation to its length.
    if not explicit or isinstance(value, LiteralValue) or family(to) in (TEXT, BINARY, VARIANT):
        return
    if value.type is not None and has_no_length(value.type):
        raise _refuse(value, to, explicit=True)


def as_text(value: Value) -> str:
    """The value as text with the blanks of char(n), for functions and concatenation."""
    if value.kind is None or value.is_null:
        suggest(value, NVARCHAR_4000)
        return f"{value.sql}::text"
    if value.kind != TEXT:
        return _to_text(value, TsqlType("nvarchar", 4000), IMPLICIT, None)
    if isinstance(value, LiteralValue):
        return value.sql
    type = value.type
    if type is not None and is_fixed_text(type):
        # bpchar loses its blanks when it is cast to text; char(n) has them in T-SQL.
        return f"tsql.padded({value.sql}::text, {type.length})"
    return value.sql


def _text_name(value: Value) -> str:
    """The type's name as conversion errors say it."""
    if isinstance(value, LiteralValue):
        return "nvarchar" if value.is_national else "varchar"
    type = value.type
    # sysname and sql_variant are reported as nvarchar.
    return type.name if type is not None and type.name not in ("sysname", "sql_variant") else "nvarchar"


def _from_text(value: Value, to: str, mode: str, *facets: object) -> str:
    arguments = [as_text(value) if value.kind == TEXT else f"{value.sql}::text", *map(str, facets)]
    if mode == TRY:
        return f"tsql.try_to_{to}({', '.join(arguments)})"
    return f"tsql.to_{to}({', '.join([*arguments, repr(_text_name(value))])})"


def _is_textual(value: Value) -> bool:
    return value.kind in (TEXT, VARIANT)


def _refuse(value: Value, to: TsqlType, explicit: bool = False) -> SqlServerError:
    source = exact_type(value).name if value.kind is not None else "sql_variant"
    if explicit:
        return SqlServerError(529, f"Explicit conversion from data type {source} to {to.name} is not allowed.")
    return SqlServerError(
        257,
        f"Implicit conversion from data type {source} to {to} is not allowed."
        " Use the CONVERT function to run this query.",
    )


def _clash(value: Value, to: TsqlType) -> SqlServerError:
    source = exact_type(value).name if value.kind is not None else "sql_variant"
    return SqlServerError(206, f"Operand type clash: {source} is incompatible with {to.name}", state=2)


def _to_integer(value: Value, to: TsqlType, mode: str, _style: str | None) -> str:
    # The literal is bound as int4, which serves as a bigint, too.
    if isinstance(value, LiteralValue) and value.literal.kind == lexemes.INT and to.name in ("int", "bigint"):
        return value.sql
    if _is_textual(value):
        return _from_text(value, to.name, mode)
    if value.kind == INTEGER and exact_type(value).name == to.name:
        return value.sql
    return _number_to_integer(value, to, mode)


def _number_to_integer(value: Value, to: TsqlType, mode: str) -> str:
    sql = _whole_number(value, to)
    if mode == TRY:
        # By way of text: the function that gives NULL instead of an error reads text.
        return f"tsql.try_to_{to.name}({sql}::numeric::text)"
    if value.kind == FLOAT and to.name != "bit":
        return f"tsql.float_to_{to.name}({sql})"
    # PostgreSQL's own error has no place for the value, which error 220 quotes.
    if value.kind == INTEGER and to.name == "smallint" and exact_type(value).name in ("int", "bigint"):
        return f"tsql.smallint({sql})"
    storage = _INTEGER_STORAGE.get(to.name)
    return f"{sql}::{storage}" if storage else f"tsql.{to.name}({sql})"


def _whole_number(value: Value, to: TsqlType) -> str:
    """A value that is no string as a number without a fraction."""
    if value.kind == BINARY:
        return f"tsql.binary_to_integer({value.sql}, {_INTEGER_BYTES[to.name]})"
    if value.kind in (DECIMAL, FLOAT):
        # A bit is 1 for any number but zero, so 0.5 must not be cut to 0.
        return value.sql if to.name == "bit" else f"trunc({value.sql})"
    if value.kind == TEMPORAL:
        # Days since 1900, rounded.
        return f"round(tsql.datetime_to_float({_to_temporal(value, TsqlType('datetime'), IMPLICIT, None)}))"
    if value.kind == GUID:
        raise _refuse(value, to, explicit=True)
    return value.sql


def _to_decimal(value: Value, to: TsqlType, mode: str, _style: str | None) -> str:
    storage = storage_type(to)
    if _is_textual(value):
        if is_money(to):
            return f"tsql.{to.name}({_from_text(value, 'money', mode)})"
        return _from_text(value, "numeric", mode, to.precision, to.scale)
    sql = value.sql
    if value.kind == BINARY:
        sql = f"tsql.binary_to_integer({sql}, 8)"
    elif value.kind == TEMPORAL:
        sql = f"tsql.datetime_to_float({_to_temporal(value, TsqlType('datetime'), IMPLICIT, None)})"
    elif value.kind == GUID:
        raise _refuse(value, to, explicit=True)
    elif value.kind == FLOAT:
        sql = f"({sql})::float8::text::numeric"  # Seventeen digits; PostgreSQL's own cast keeps fifteen.
    # Next to another number the value keeps its own precision.
    if mode == IMPLICIT and value.kind in (INTEGER, DECIMAL):
        return sql
    if mode == TRY:
        return f"tsql.try_to_numeric({sql}::numeric::text, {as_decimal(to).precision}, {as_decimal(to).scale})"
    return f"tsql.{to.name}({sql}::numeric)" if is_money(to) else f"{sql}::{storage}"


def _to_float(value: Value, to: TsqlType, mode: str, _style: str | None) -> str:
    if _is_textual(value):
        return _from_text(value, to.name, mode)
    sql = value.sql
    if value.kind == TEMPORAL:
        sql = f"tsql.datetime_to_float({_to_temporal(value, TsqlType('datetime'), IMPLICIT, None)})"
    elif value.kind in (BINARY, GUID):
        raise _refuse(value, to, explicit=True)
    if value.kind == FLOAT and value.type is not None and value.type.name == to.name:
        return sql
    return f"{sql}::{storage_type(to)}"


def _to_text(value: Value, to: TsqlType, mode: str, style: str | None) -> str:
    sql = _text_of(value, to, mode, style)
    # A longer target cannot be too short for the value.
    if mode != IMPLICIT and 0 < to.length < _LONGEST_TEXTS.get(value.kind or "", 0):
        sql = _checked_text(value, sql, to, mode)
    return _fit_text(sql, to, mode)


_LONGEST_TEXTS = {INTEGER: 20, DECIMAL: 41, FLOAT: 24, GUID: 36}
"""Characters a value can need. A number that does not fit is not cut, as a string is: it is refused or shown as *."""


def _checked_text(value: Value, sql: str, to: TsqlType, mode: str) -> str:
    kind = value.kind or ""
    if kind == INTEGER and value.type is not None and value.type.name == "bigint":
        kind = "bigint"
    if kind == DECIMAL and _is_money_value(value):
        kind = "money"
    return f"tsql.whole_text({sql}, {to.length}, {kind!r}, {to.name!r}, {str(mode == TRY).lower()})"


def _text_of(value: Value, to: TsqlType, mode: str, style: str | None) -> str:
    if value.kind == TEXT:
        is_cut = mode != IMPLICIT and _is_national_text(value) and not is_national(to)
        return f"tsql.in_code_page({as_text(value)})" if is_cut else as_text(value)
    if value.kind == TEMPORAL:
        return _temporal_text(value, style)
    if value.kind == BINARY:
        return f"tsql.binary_to_text({value.sql}, {style or 0}, {str(is_national(to)).lower()})"
    if value.kind == FLOAT:
        return f"tsql.float_to_text({value.sql}, {style or 0})"
    if value.kind == DECIMAL and _is_money_value(value):
        return f"tsql.money_to_text({value.sql}, {style or 0})"
    return f"upper({value.sql}::text)" if value.kind == GUID else f"{value.sql}::text"


def _is_money_value(value: Value) -> bool:
    if isinstance(value, LiteralValue):
        return value.literal.kind == lexemes.MONEY
    return value.type is not None and is_money(value.type)


def _temporal_text(value: Value, style: str | None) -> str:
    type = exact_type(value)
    name, scale = type.name, type.scale
    if style is None and counts_from_1900(type):
        # Style 0 is the default of datetime; the newer types have 121.
        style = "0"
    if has_offset(type):
        return f"tsql.datetimeoffset_to_text({value.sql}, {style or 121}, {scale})"
    if name == "time":
        return f"tsql.time_to_text({value.sql}, {style or 121}, {scale})"
    if name == "date":
        return f"tsql.date_to_text({value.sql}, {style or 121})"
    if counts_from_1900(type):
        return f"tsql.datetime_to_text({value.sql}, {style})"
    return f"tsql.timestamp_to_text({value.sql}, {style or 121}, {scale})"


def _fit_text(sql: str, to: TsqlType, mode: str) -> str:
    if mode in (ASSIGN, IMPLICIT) or to.is_max:
        # IMPLICIT and ASSIGN leave the length alone: the column's type checks it.
        return sql if not to.is_max or sql.endswith("::text") else f"{sql}::text"
    return f"{sql}::{storage_type(to)}"


def _to_binary(value: Value, to: TsqlType, mode: str, style: str | None) -> str:
    if value.kind == BINARY:
        sql = value.sql
    elif _is_textual(value):
        sql = _text_to_binary(value, to, mode, style)
    elif value.kind == INTEGER:
        size = _INTEGER_BYTES[value.type.name] if value.type is not None else 4
        return f"tsql.integer_to_binary({value.sql}::int8, {size}, {_binary_length(to)}, {_is_fixed(to)})"
    elif value.kind == GUID:
        sql = f"tsql.guid_to_binary({value.sql})"
    elif value.kind is not None and value.type is not None and value.type.name in _BYTES_OF and mode != IMPLICIT:
        size, function = _BYTES_OF[value.type.name]
        return f"tsql.keep_right({function}({value.sql}), {size}, {_binary_length(to)}, {_is_fixed(to)})"
    elif mode in (EXPLICIT, TRY):
        raise NotSupportedByEmulatorError(f"a conversion from {exact_type(value).name} to {to.name}")
    else:
        raise _refuse(value, to)
    if mode == IMPLICIT or (to.is_max and to.name == "varbinary") or to.name in ("image", "rowversion"):
        return sql
    # An assignment raises an error where CAST and CONVERT cut.
    strict = "tsql.assign_binary" if mode == ASSIGN else "tsql.fit_binary"
    return f"{strict}({sql}, {_binary_length(to)}, {_is_fixed(to)})"


_BYTES_OF = {
    "float": (8, "float8send"),
    "real": (4, "float4send"),
    "money": (8, "tsql.money_bytes"),
    "smallmoney": (4, "tsql.smallmoney_bytes"),
    "datetime": (8, "tsql.datetime_bytes"),
}
"""Types whose bytes are shown as a number's: the rightmost are kept."""


def _text_to_binary(value: Value, to: TsqlType, mode: str, style: str | None) -> str:
    if _is_units(value, mode, style):
        return f"tsql.to_utf16({as_text(value)})"
    if mode in (EXPLICIT, TRY):
        function = "tsql.try_text_to_binary" if mode == TRY else "tsql.text_to_binary"
        return f"{function}({as_text(value)}, {style or 0}, {str(_is_national_text(value)).lower()})"
    if isinstance(value, LiteralValue):
        raise _refuse(value, to)
    # Drivers bind a NULL of unknown type as varchar(1): the value decides.
    return f"tsql.refuse_text_to_binary({value.sql}, {_text_name(value)!r}, {str(to)!r})"


def _is_units(value: Value, mode: str, style: str | None) -> bool:
    """Whether the value becomes the code units of a string."""
    return mode in (EXPLICIT, TRY) and not style and _is_textual(value) and _is_national_text(value)


def _is_national_text(value: Value) -> bool:
    return _text_name(value)[0] == "n"


def _binary_length(to: TsqlType) -> int:
    return 2147483647 if to.is_max or not to.length else to.length


def _is_fixed(to: TsqlType) -> str:
    return "true" if to.name == "binary" else "false"


def _to_temporal(value: Value, to: TsqlType, mode: str, style: str | None) -> str:
    if _is_textual(value):
        return _text_to_temporal(value, to, mode, style)
    if value.kind in (INTEGER, DECIMAL, FLOAT) and counts_from_1900(to):
        return _round_temporal(f"tsql.float_to_datetime({value.sql}::float8)", to)
    if value.kind == BINARY and to.name == "datetime":
        return f"tsql.binary_to_datetime({value.sql})"
    if value.kind != TEMPORAL:
        raise _refuse(value, to, explicit=True) if mode in (EXPLICIT, TRY) else _clash(value, to)
    source = exact_type(value)
    if source == to or (mode == IMPLICIT and source.name == to.name and source.has_ticks == to.has_ticks):
        return value.sql
    sql = _between_temporals(value.sql, source, to)
    if mode != IMPLICIT and counts_from_1900(to) and source.name not in ("time", "smalldatetime"):
        return f"tsql.checked_{to.name}({sql}, {source.name!r}, {str(mode == TRY).lower()})"
    return sql


def _text_to_temporal(value: Value, to: TsqlType, mode: str, style: str | None) -> str:
    prefix = "tsql.try_to_" if mode == TRY else "tsql.to_"
    arguments = f"{as_text(value)}, {style or 0}"
    if to.name in ("time", "datetime2"):
        sql = f"{prefix}{to.name}({arguments})"
        return sql if to.has_ticks else f"{sql}::{storage_type(to)}"
    sql = f"{prefix}{to.name}({arguments})"
    return f"tsql.round_datetimeoffset({sql}, {to.scale})" if has_offset(to) and to.scale < SEVEN_DIGITS else sql


def _between_temporals(sql: str, source: TsqlType, to: TsqlType) -> str:
    if has_offset(source):
        if has_offset(to):
            return f"tsql.round_datetimeoffset({sql}, {to.scale})" if to.scale < source.scale else sql
        sql, source = f"tsql.local_time({sql})", TsqlType("datetime2", scale=SEVEN_DIGITS)
    if has_offset(to):
        return f"tsql.datetimeoffset({_as_timestamp(sql, source)}, 0)"
    if to.name == "time":
        if source.name == "date":
            raise SqlServerError(529, "Explicit conversion from data type date to time is not allowed.")
        return f"{sql}::{storage_type(to)}"
    if to.name == "date":
        if source.name == "time":
            raise SqlServerError(529, "Explicit conversion from data type time to date is not allowed.")
        return f"{sql}::date"
    return _round_temporal(_as_timestamp(sql, source), to)


def _as_timestamp(sql: str, source: TsqlType) -> str:
    if source.name == "time":
        return f"tsql.in_1900({sql})"
    return f"{sql}::timestamp" if source.name == "date" else sql


def _round_temporal(sql: str, to: TsqlType) -> str:
    if to.name == "datetime":
        return f"tsql.round_datetime({sql})"
    if to.name == "smalldatetime":
        return f"tsql.round_smalldatetime({sql})"
    return f"{sql}::{storage_type(to)}"


def _to_guid(value: Value, to: TsqlType, mode: str, _style: str | None) -> str:
    if value.kind == GUID:
        return value.sql
    if _is_textual(value):
        return _from_text(value, "uniqueidentifier", mode)
    if value.kind == BINARY:
        return f"tsql.binary_to_guid({value.sql})"
    raise _refuse(value, to, explicit=mode in (EXPLICIT, TRY))


def _to_variant(_value: Value, _to: TsqlType, _mode: str, _style: str | None) -> str:
    # Its base type would be lost: the storage is a string.
    raise NotSupportedByEmulatorError(VARIANT_VALUES)


_CONVERTERS = {
    INTEGER: _to_integer,
    DECIMAL: _to_decimal,
    FLOAT: _to_float,
    TEXT: _to_text,
    BINARY: _to_binary,
    TEMPORAL: _to_temporal,
    GUID: _to_guid,
    VARIANT: _to_variant,
}
