"""T-SQL's type rules: precedence, the type of an operator's result, and where each type is stored in PostgreSQL.

Pure. What the rules are: https://learn.microsoft.com/sql/t-sql/data-types/data-type-precedence-transact-sql and
…/precision-scale-and-length-transact-sql. Conversions between the types are `conversion`'s.
"""

from __future__ import annotations

from typing import Final

from sqlserver_emulator.types import MAX_LENGTH, NVARCHAR_MAX, TsqlType

INTEGER = "integer"
DECIMAL = "decimal"
FLOAT = "float"
TEXT = "text"
BINARY = "binary"
TEMPORAL = "temporal"
GUID = "guid"
VARIANT = "variant"
NUMBERS = (INTEGER, DECIMAL, FLOAT)

_FAMILIES: Final = {
    INTEGER: ("bit", "tinyint", "smallint", "int", "bigint"),
    DECIMAL: ("decimal", "numeric", "money", "smallmoney"),
    FLOAT: ("real", "float"),
    TEXT: ("char", "varchar", "text", "nchar", "nvarchar", "ntext", "sysname", "xml"),
    BINARY: ("binary", "varbinary", "image", "rowversion"),
    TEMPORAL: ("date", "time", "smalldatetime", "datetime", "datetime2", "datetimeoffset"),
    GUID: ("uniqueidentifier",),
    VARIANT: ("sql_variant",),
}
_FAMILY_OF: Final = {name: family for family, names in _FAMILIES.items() for name in names}

_PRECEDENCE: Final = {
    name: rank
    for rank, name in enumerate(
        (
            "binary", "varbinary", "char", "varchar", "nchar", "sysname", "nvarchar", "uniqueidentifier", "rowversion",
            "image", "text", "ntext", "bit", "tinyint", "smallint", "int", "bigint", "smallmoney", "money", "numeric",
            "decimal", "real", "float", "time", "date", "smalldatetime", "datetime", "datetime2", "datetimeoffset",
            "xml", "sql_variant",
        )
    )
}  # fmt: skip

_NATIONAL: Final = frozenset(("nchar", "nvarchar", "ntext", "sysname", "xml"))
_INTEGER_DIGITS: Final = {"bit": 1, "tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_MAX_PRECISION: Final = 38

MONEY: Final = TsqlType("money", precision=19, scale=4)
FLOAT_TYPE: Final = TsqlType("float", precision=53)
VARCHAR_MAX: Final = TsqlType("varchar", MAX_LENGTH)
VARBINARY_MAX: Final = TsqlType("varbinary", MAX_LENGTH)
UNIQUEIDENTIFIER: Final = TsqlType("uniqueidentifier")


def family(type: TsqlType) -> str:
    return _FAMILY_OF[type.name]


def is_text(type: TsqlType | None) -> bool:
    return type is not None and _FAMILY_OF[type.name] == TEXT


def is_national(type: TsqlType) -> bool:
    return type.name in _NATIONAL


def is_fixed_text(type: TsqlType | None) -> bool:
    return type is not None and type.name in ("char", "nchar")


def is_money(type: TsqlType) -> bool:
    return type.name in ("money", "smallmoney")


def varchar(length: int, national: bool = False) -> TsqlType:
    """varchar(n) or nvarchar(n); max where n is beyond what the type can declare."""
    limit = 4000 if national else 8000
    name = "nvarchar" if national else "varchar"
    return TsqlType(name, MAX_LENGTH if length == MAX_LENGTH or length > limit else max(1, length))


def decimal(precision: int, scale: int) -> TsqlType:
    """decimal(p,s) as the server fits it into 38 digits: the scale gives way, down to 6."""
    if precision > _MAX_PRECISION:
        scale = max(min(scale, 6), scale - (precision - _MAX_PRECISION))
        precision = _MAX_PRECISION
    return TsqlType("decimal", precision=precision, scale=scale)


def as_decimal(type: TsqlType) -> TsqlType:
    """The decimal that an exact number is converted to beside a decimal."""
    if type.name in _INTEGER_DIGITS:
        return TsqlType("decimal", precision=_INTEGER_DIGITS[type.name])
    if type.name == "money":
        return TsqlType("decimal", precision=19, scale=4)
    if type.name == "smallmoney":
        return TsqlType("decimal", precision=10, scale=4)
    return type


_WIDEST: Final = {
    "char": TsqlType("varchar", 8000), "nchar": TsqlType("nvarchar", 4000), "sysname": TsqlType("nvarchar", 4000),
    "binary": TsqlType("varbinary", 8000), "rowversion": TsqlType("varbinary", 8000),
    "decimal": TsqlType("numeric", precision=38, scale=19), "numeric": TsqlType("numeric", precision=38, scale=19),
    "text": VARCHAR_MAX, "ntext": NVARCHAR_MAX, "image": VARBINARY_MAX,
}  # fmt: skip
_LONGEST: Final = {"varchar": 8000, "nvarchar": 4000, "varbinary": 8000}
_FINEST_SCALE: Final = 7


def widest(type: TsqlType) -> TsqlType:
    """The type that a parameter without one is given beside a value of this type, where its length does not matter."""
    if type.name in _WIDEST:
        return _WIDEST[type.name]
    if type.name in _LONGEST:
        return type if type.is_max else TsqlType(type.name, _LONGEST[type.name])
    return TsqlType(type.name, scale=_FINEST_SCALE) if type.name in ("time", "datetime2", "datetimeoffset") else type


def higher(left: TsqlType, right: TsqlType) -> TsqlType:
    """The one of higher precedence; facets as they are."""
    return left if _PRECEDENCE[left.name] >= _PRECEDENCE[right.name] else right


def unify(left: TsqlType | None, right: TsqlType | None) -> TsqlType | None:  # noqa: PLR0911  (one a family)
    """The type of CASE, COALESCE, UNION and VALUES over both; None (unknown) gives way to the other."""
    if left is None or right is None:
        return left or right
    if left == right:
        return left
    winner, loser = (left, right) if higher(left, right) is left else (right, left)
    kind = family(winner)
    if kind == DECIMAL and not is_money(winner) and family(loser) in (INTEGER, DECIMAL):
        return _wide_enough(winner, as_decimal(loser), carry=0)
    if kind == TEXT and winner.name not in ("xml", "text", "ntext") and family(loser) in (TEXT, GUID):
        return _unify_text(winner, loser)
    if kind == BINARY and family(loser) == BINARY and winner.name in ("binary", "varbinary"):
        return TsqlType("varbinary", _longer(winner.length, loser.length))
    if kind == TEMPORAL and winner.name in ("datetime2", "datetimeoffset"):
        return TsqlType(winner.name, scale=max(winner.scale, _fraction_digits(loser)))
    return winner


def _unify_text(winner: TsqlType, loser: TsqlType) -> TsqlType:
    if family(loser) == GUID:
        return varchar(_longer(winner.length, 36), is_national(winner))
    national = is_national(winner) or is_national(loser)
    fixed = is_fixed_text(winner) and is_fixed_text(loser)
    length = _longer(winner.length, loser.length)
    if fixed:
        return TsqlType("nchar" if national else "char", length)
    return varchar(length, national)


def _longer(left: int, right: int) -> int:
    return MAX_LENGTH if MAX_LENGTH in (left, right) else max(left, right)


def _fraction_digits(type: TsqlType) -> int:
    return {"datetime": 3, "datetime2": type.scale, "time": type.scale, "datetimeoffset": type.scale}.get(type.name, 0)


def concatenated(left: TsqlType, right: TsqlType) -> TsqlType:
    """The type of `left + right` for strings."""
    national = is_national(left) or is_national(right)
    if MAX_LENGTH in (left.length, right.length) or left.name in ("text", "ntext", "xml"):
        return NVARCHAR_MAX if national else VARCHAR_MAX
    # A sum beyond the limit is cut by the server to the limit, it does not become max.
    return TsqlType("nvarchar" if national else "varchar", min(left.length + right.length, 4000 if national else 8000))


def arithmetic(operator: str, left: TsqlType, right: TsqlType) -> TsqlType | None:
    """The type of `+ - * / %` over numbers; None when one side is not a number."""
    kinds = {family(left), family(right)}
    if not kinds <= {INTEGER, DECIMAL, FLOAT}:
        return None
    winner = higher(left, right)
    if FLOAT in kinds:
        return winner if left.name == right.name else FLOAT_TYPE
    if kinds == {INTEGER}:
        return winner
    if is_money(winner):
        return winner
    return _decimal_result(operator, as_decimal(left), as_decimal(right))


def _decimal_result(operator: str, left: TsqlType, right: TsqlType) -> TsqlType:
    p1, s1, p2, s2 = left.precision, left.scale, right.precision, right.scale
    if operator == "*":
        return decimal(p1 + p2 + 1, s1 + s2)
    if operator == "/":
        scale = max(6, s1 + p2 + 1)
        return decimal(p1 - s1 + s2 + scale, scale)
    if operator == "%":
        scale = max(s1, s2)
        return decimal(min(p1 - s1, p2 - s2) + scale, scale)
    return _wide_enough(left, right, carry=1)


def _wide_enough(left: TsqlType, right: TsqlType, *, carry: int) -> TsqlType:
    """The decimal that holds both; beyond 38 digits the scale gives way to the whole digits."""
    whole = max(left.precision - left.scale, right.precision - right.scale)
    scale = max(left.scale, right.scale)
    if whole + scale + carry <= _MAX_PRECISION:
        return TsqlType("decimal", precision=whole + scale + carry, scale=scale)
    return TsqlType("decimal", precision=_MAX_PRECISION, scale=min(scale, _MAX_PRECISION - whole))


def summed(type: TsqlType) -> TsqlType:
    """The type of SUM."""
    kind = family(type)
    if kind == INTEGER:
        return type if type.name == "bigint" else TsqlType("int")
    if kind == DECIMAL:
        return MONEY if is_money(type) else TsqlType("decimal", precision=_MAX_PRECISION, scale=type.scale)
    return FLOAT_TYPE


def averaged(type: TsqlType) -> TsqlType:
    """The type of AVG."""
    kind = family(type)
    if kind == DECIMAL and not is_money(type):
        return TsqlType("decimal", precision=_MAX_PRECISION, scale=max(type.scale, 6))
    return summed(type)


_STORAGE: Final = {
    "bit": "smallint", "tinyint": "smallint", "smallint": "smallint", "int": "integer", "bigint": "bigint",
    "money": "numeric(19,4)", "smallmoney": "numeric(10,4)", "real": "real", "float": "double precision",
    "date": "date", "datetime": "timestamp(3)", "smalldatetime": "timestamp(0)", "uniqueidentifier": "uuid",
    "binary": "bytea", "varbinary": "bytea", "image": "bytea", "rowversion": "bytea", "text": "text", "ntext": "text",
    "xml": "text", "sysname": "varchar(128)", "sql_variant": "text",
}  # fmt: skip
_MICROSECOND_DIGITS: Final = 6


def storage_type(type: TsqlType) -> str:  # noqa: PLR0911  (one return a kind of type)
    """Where a value of this type is stored."""
    if type.name in ("decimal", "numeric"):
        return f"numeric({type.precision},{type.scale})"
    if type.name in ("varchar", "nvarchar"):
        return "text" if type.is_max else f"varchar({type.length})"
    if type.name in ("char", "nchar"):
        return f"char({type.length})"
    if type.name == "time":
        return f"time({min(type.scale, _MICROSECOND_DIGITS)})"
    if type.name == "datetime2":
        return f"timestamp({min(type.scale, _MICROSECOND_DIGITS)})"
    if type.name == "datetimeoffset":
        return "tsql.datetimeoffset"
    if type.name == "float" and type.precision and type.precision <= 24:
        return "real"
    return _STORAGE[type.name]
