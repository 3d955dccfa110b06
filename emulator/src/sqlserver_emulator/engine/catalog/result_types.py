"""The T-SQL types of a result's columns.

In order: what the translator says, what the catalog says of the table column the value comes from (libpq reports table
and column of plain references, also through subqueries), and what PostgreSQL says of the expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from psycopg.pq.abc import PGresult

from sqlserver_emulator.engine.catalog.session_catalog import SessionCatalog
from sqlserver_emulator.engine.translation import CatalogColumn, Translated
from sqlserver_emulator.engine.values.rows import Row
from sqlserver_emulator.events import Column
from sqlserver_emulator.types import BIGINT, BIT, INT, MAX_LENGTH, NVARCHAR_4000, NVARCHAR_MAX, SMALLINT, TsqlType

# OIDs of PostgreSQL's built-in types are fixed; those of the emulator's own types are not and are passed in.
_NUMERIC_OID = 1700
_NVARCHAR_LONGEST = 4000
_FIXED = {
    16: BIT,
    21: SMALLINT,
    23: INT,
    20: BIGINT,
    700: TsqlType("real"),
    701: TsqlType("float", precision=53),
    25: NVARCHAR_MAX,
    705: NVARCHAR_4000,
    19: TsqlType("sysname", 128),
    17: TsqlType("varbinary", MAX_LENGTH),
    1082: TsqlType("date"),
    2950: TsqlType("uniqueidentifier"),
    26: BIGINT,
    142: TsqlType("xml"),
    2205: NVARCHAR_4000,
    2206: NVARCHAR_4000,
    3802: NVARCHAR_MAX,
    114: NVARCHAR_MAX,
    18: TsqlType("nchar", 1),
    2278: INT,
}
_UNKNOWN_NUMERIC_PRECISION = 38


def result_columns(
    result: PGresult, translated: Translated, catalog: SessionCatalog, own_types: Mapping[int, TsqlType]
) -> tuple[Column, ...]:
    """Column types of a result; of a numeric of unknown scale the scale is 0 until ``with_scales``."""
    names = translated.column_names
    columns = []
    for i in range(result.nfields):
        # The bytes of a text are no column of a table, also where the text is.
        origin = None if i in translated.unit_columns else _origin(result, i, catalog)
        # The translator comes first: a plain column under a CAST still has an origin.
        type_ = translated.column_types.get(i) or (origin.type if origin else None)
        columns.append(
            Column(
                name=names[i] if names else (result.fname(i) or b"").decode(),
                type=type_ or _postgres_type(result.ftype(i), result.fmod(i), own_types),
                nullable=origin.nullable if origin else True,
                identity=origin.identity if origin else False,
                computed=origin.computed if origin else False,
                collation=translated.column_collations.get(i),
            )
        )
    return tuple(columns)


def unscaled_columns(result: PGresult, columns: Sequence[Column]) -> list[int]:
    """The columns whose scale only the values show."""
    # A modifier below zero says that PostgreSQL does not know precision and scale.
    return [
        i
        for i, column in enumerate(columns)
        if result.ftype(i) == _NUMERIC_OID and column.type == _UNSCALED and result.fmod(i) < 0
    ]


def with_scales(columns: tuple[Column, ...], unscaled: Sequence[int], rows: Sequence[Row]) -> tuple[Column, ...]:
    """Give the unscaled columns the largest scale among the rows."""
    typed = list(columns)
    for i in unscaled:
        scale = max((_scale(row[i]) for row in rows), default=0)
        old = typed[i]
        # 38 is the largest precision of both systems' shared range.
        new_type = TsqlType("decimal", precision=_UNKNOWN_NUMERIC_PRECISION, scale=min(scale, 38))
        typed[i] = replace(old, type=new_type)
    return tuple(typed)


_UNSCALED = TsqlType("decimal", precision=_UNKNOWN_NUMERIC_PRECISION, scale=0)


def _scale(value: object) -> int:
    if not isinstance(value, Decimal):
        return 0
    exponent = value.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _origin(result: PGresult, column: int, catalog: SessionCatalog) -> CatalogColumn | None:
    table = result.ftable(column)
    return catalog.origin(table, result.ftablecol(column)) if table else None


def _postgres_type(oid: int, modifier: int, own_types: Mapping[int, TsqlType]) -> TsqlType:
    if oid in own_types:
        return own_types[oid]
    if oid in _WITH_MODIFIER:
        return _WITH_MODIFIER[oid](modifier)
    return _FIXED.get(oid, NVARCHAR_MAX)


def _numeric(modifier: int) -> TsqlType:
    if modifier < 0:
        return _UNSCALED
    # numeric's modifier is (precision << 16 | scale) + 4, where the scale has 11 bits.
    packed = modifier - 4
    return TsqlType("decimal", precision=packed >> 16 & 0xFFFF, scale=packed & 0x7FF)


def _varchar(modifier: int) -> TsqlType:
    # The modifier of varchar and bpchar is the length + 4.
    length = modifier - 4
    return TsqlType("nvarchar", length if 0 < length <= _NVARCHAR_LONGEST else MAX_LENGTH)


def _bpchar(modifier: int) -> TsqlType:
    return TsqlType("nchar", min(max(modifier - 4, 1), _NVARCHAR_LONGEST))


_WITH_MODIFIER: dict[int, Callable[[int], TsqlType]] = {
    _NUMERIC_OID: _numeric,
    1043: _varchar,
    1042: _bpchar,
    1083: lambda modifier: TsqlType("time", scale=modifier if modifier >= 0 else 6),
    1114: lambda modifier: TsqlType("datetime2", scale=modifier if modifier >= 0 else 6),
}
