"""T-SQL's type rules: precedence, the type of an operator's result, and where each type is stored in PostgreSQL.

Pure. What the rules are: https://learn.microsoft.com/sql/t-sql/data-types/data-type-precedence-transact-sql and
…/precision-scale-and-length-transact-sql. Conversions between the types are `conversion`'s.
"""

from __future__ import annotations

from typing import Final

from sqlserver_emulator.system_types import BY_NAME, SYSTEM_TYPES, names_where
from sqlserver_emulator.system_types import record as records
from sqlserver_emulator.system_types.numbers import NUMERIC_TYPE, REAL
from sqlserver_emulator.system_types.record import Declared
from sqlserver_emulator.system_types.wire import Form, Packing
from sqlserver_emulator.types import MAX_LENGTH, NVARCHAR_MAX, TsqlType

INTEGER = records.INTEGER
DECIMAL = records.DECIMAL
FLOAT = records.FLOAT
TEXT = records.TEXT
BINARY = records.BINARY
TEMPORAL = records.TEMPORAL
GUID = records.GUID
VARIANT = records.VARIANT
NUMBERS = (INTEGER, DECIMAL, FLOAT)

# Dictionaries and sets by name, not the records: an expression asks many times.
_FAMILY_OF: Final = {type.name: type.family for type in SYSTEM_TYPES}
_RANK: Final = {type.name: type.rank for type in SYSTEM_TYPES}
_NATIONAL: Final = names_where(lambda type: type.is_national)
_FIXED_TEXT: Final = names_where(lambda type: type.family == TEXT and type.length is not None and type.length.is_fixed)
_MONEY: Final = names_where(lambda type: type.wire.packing is Packing.MONEY)
_DECLARED_SCALE: Final = names_where(lambda type: type.declared is Declared.SCALE)
_DATES_WITH_FRACTION: Final = names_where(lambda type: type.moment is not None and type.moment.more_bytes > 0)
_SINCE_1900: Final = names_where(lambda type: type.counts_from_1900)
_WITH_OFFSET: Final = names_where(lambda type: type.wire.packing is Packing.DATE_TIME_OFFSET)
_COMPOSITE: Final = names_where(lambda type: type.is_composite)
_WITHOUT_LENGTH: Final = names_where(lambda type: type.family == TEXT and type.wire.form in (Form.LONG, Form.XML))
_MAX_PRECISION: Final = 38

MONEY: Final = TsqlType("money", precision=19, scale=4)
FLOAT_TYPE: Final = TsqlType("float", precision=53)
VARCHAR_MAX: Final = TsqlType("varchar", MAX_LENGTH)
VARBINARY_MAX: Final = TsqlType("varbinary", MAX_LENGTH)
UNIQUEIDENTIFIER: Final = TsqlType("uniqueidentifier")


def family(type: TsqlType) -> str:
    """Return the family of a type."""
    return _FAMILY_OF[type.name]


def is_text(type: TsqlType | None) -> bool:
    """Return whether it is a character type."""
    return type is not None and _FAMILY_OF[type.name] == TEXT


def is_national(type: TsqlType) -> bool:
    """Return whether it is a Unicode character type."""
    return type.name in _NATIONAL


def is_fixed_text(type: TsqlType | None) -> bool:
    """Return whether it is char or nchar."""
    return type is not None and type.name in _FIXED_TEXT


def is_money(type: TsqlType) -> bool:
    """Return whether it is money or smallmoney."""
    return type.name in _MONEY


def has_no_length(type: TsqlType) -> bool:
    """Return whether it is a character type without a length: text, ntext or xml."""
    return type.name in _WITHOUT_LENGTH


def counts_from_1900(type: TsqlType) -> bool:
    """Return whether it is datetime or smalldatetime, to which numbers convert as days."""
    return type.name in _SINCE_1900


def has_offset(type: TsqlType) -> bool:
    """Return whether its values carry the offset of their time zone."""
    return type.name in _WITH_OFFSET


def is_composite(type: TsqlType) -> bool:
    """Return whether its values are PostgreSQL rows, with operators and aggregates of schema tsql."""
    return type.name in _COMPOSITE


def varchar(length: int, national: bool = False) -> TsqlType:
    """varchar(n) or nvarchar(n); max where n is beyond what the type can declare."""
    name = "nvarchar" if national else "varchar"
    return TsqlType(name, MAX_LENGTH if length == MAX_LENGTH or length > _longest(name) else max(1, length))


def _longest(name: str) -> int:
    length = BY_NAME[name].length
    return length.longest if length is not None else 0


def decimal(precision: int, scale: int) -> TsqlType:
    """decimal(p,s) as the server fits it into 38 digits: the scale gives way, down to 6."""
    # The integral digits are kept and the scale is cut, but not below 6 (…/precision-scale-and-length-transact-sql).
    if precision > _MAX_PRECISION:
        scale = max(min(scale, 6), scale - (precision - _MAX_PRECISION))
        precision = _MAX_PRECISION
    return TsqlType("decimal", precision=precision, scale=scale)


def as_decimal(type: TsqlType) -> TsqlType:
    """The decimal that an exact number is converted to next to a decimal."""
    if family(type) == INTEGER or is_money(type):
        facets = BY_NAME[type.name].facets
        return TsqlType("decimal", precision=facets.precision, scale=facets.scale)
    return type


def widest(type: TsqlType) -> TsqlType:
    """The type that a parameter without one is given next to a value of this type, where its length does not matter."""
    record = BY_NAME[type.name]
    if record.varying:
        return TsqlType(record.varying, MAX_LENGTH if record.is_legacy_lob else _longest(record.varying))
    if record.declared is Declared.PRECISION_SCALE:
        return TsqlType(NUMERIC_TYPE.name, precision=_MAX_PRECISION, scale=_MAX_PRECISION // 2)
    if record.declared is Declared.LENGTH:
        return type if type.is_max else TsqlType(type.name, _longest(type.name))
    return TsqlType(type.name, scale=record.facets.scale) if record.declared is Declared.SCALE else type


def higher(left: TsqlType, right: TsqlType) -> TsqlType:
    """The one of higher precedence; facets as they are."""
    return left if _RANK[left.name] >= _RANK[right.name] else right


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
    if kind == TEXT and not has_no_length(winner) and family(loser) in (TEXT, GUID):
        return _unify_text(winner, loser)
    if kind == BINARY and family(loser) == BINARY and BY_NAME[winner.name].length is not None:
        return TsqlType("varbinary", _longer(winner.length, loser.length))
    if kind == TEMPORAL and winner.name in _DATES_WITH_FRACTION:
        return TsqlType(winner.name, scale=max(winner.scale, _fraction_digits(loser)))
    return winner


def _unify_text(winner: TsqlType, loser: TsqlType) -> TsqlType:
    if family(loser) == GUID:
        # A uniqueidentifier as text has 36 characters.
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
    if type.name in _DECLARED_SCALE:
        return type.scale
    return BY_NAME[type.name].facets.scale if family(type) == TEMPORAL else 0


def concatenated(left: TsqlType, right: TsqlType) -> TsqlType:
    """The type of `left + right` for strings."""
    national = is_national(left) or is_national(right)
    if MAX_LENGTH in (left.length, right.length) or has_no_length(left):
        return NVARCHAR_MAX if national else VARCHAR_MAX
    # A sum beyond the limit is cut by the server to the limit, it does not become max.
    name = "nvarchar" if national else "varchar"
    return TsqlType(name, min(left.length + right.length, _longest(name)))


def arithmetic(operator: str, left: TsqlType, right: TsqlType) -> TsqlType | None:
    """The type of `+ - * / %` over numbers; None when one side is not a number."""
    kinds = {family(left), family(right)}
    if not kinds <= {INTEGER, DECIMAL, FLOAT}:
        return None
    winner = higher(left, right)
    if FLOAT in kinds:
        # real with real stays real; every other mix is a float.
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
        # The formulas are those of …/precision-scale-and-length-transact-sql.
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
        # SUM of the smaller integers is an int.
        return type if type.name == "bigint" else TsqlType("int")
    if kind == DECIMAL:
        return MONEY if is_money(type) else TsqlType("decimal", precision=_MAX_PRECISION, scale=type.scale)
    return FLOAT_TYPE


def averaged(type: TsqlType) -> TsqlType:
    """The type of AVG."""
    kind = family(type)
    if kind == DECIMAL and not is_money(type):
        # AVG of a decimal has 38 digits and a scale of at least 6.
        return TsqlType("decimal", precision=_MAX_PRECISION, scale=max(type.scale, 6))
    return summed(type)


def storage_type(type: TsqlType) -> str:
    """Where a value of this type is stored."""
    record = BY_NAME[type.name]
    if type.is_max and record.storage_of_max:
        return record.storage_of_max
    if type.has_ticks:
        return record.storage_of_ticks
    # float(1) to float(24) is a real.
    if record.declared is Declared.BITS and 0 < type.precision <= _REAL_BITS:
        return REAL.storage
    return record.storage.format(length=type.length, precision=type.precision, scale=type.scale)


_REAL_BITS: Final = REAL.facets.precision
