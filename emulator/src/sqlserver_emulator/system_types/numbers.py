"""Records of the numbers: bit, integers, decimals, money and floats."""

from __future__ import annotations

from typing import Final

from sqlserver_emulator.system_types.odbc import OdbcType
from sqlserver_emulator.system_types.record import DECIMAL, FLOAT, INTEGER, Declared, Facets, SystemType
from sqlserver_emulator.system_types.wire import Form, Packing, Wire

# Nullable numbers of a kind share one token; the size, which follows it, says which type is meant.
_INTN: Final = 0x26
_FLTN: Final = 0x6D
_MONEYN: Final = 0x6E


def _integer_wire(size: int, number_format: str, fixed_token: int) -> Wire:
    return Wire(Form.SIZED, Packing.INTEGER, _INTN, size, number_format, fixed_token)


def _exact(code: int, precision: int, length: int, ss: int, *, fixed: int | None = None, scale: int = 0) -> OdbcType:
    return OdbcType(code, precision, length, ss, scale, 10, ss_fixed=fixed)


BIT: Final = SystemType(
    name="bit",
    family=INTEGER,
    rank=130,
    type_id=104,
    facets=Facets(1, 1),
    wire=Wire(Form.SIZED, Packing.BIT, 0x68, 1, "B", 0x32),
    odbc=OdbcType(-7, 1, 1, 50, ss_fixed=50),
    # PostgreSQL's boolean has no arithmetic and no order with numbers.
    storage="smallint",
    user_type=16,
)
TINYINT: Final = SystemType(
    name="tinyint",
    family=INTEGER,
    rank=140,
    type_id=48,
    facets=Facets(1, 3),
    wire=_integer_wire(1, "B", 0x30),
    odbc=_exact(-6, 3, 1, 38, fixed=48),
    # The smallest that PostgreSQL has; a check keeps the range.
    storage="smallint",
    user_type=5,
)
SMALLINT: Final = SystemType(
    name="smallint",
    family=INTEGER,
    rank=150,
    type_id=52,
    facets=Facets(2, 5),
    wire=_integer_wire(2, "h", 0x34),
    odbc=_exact(5, 5, 2, 38, fixed=52),
    storage="smallint",
    user_type=6,
)
INT: Final = SystemType(
    name="int",
    family=INTEGER,
    rank=160,
    type_id=56,
    facets=Facets(4, 10),
    wire=_integer_wire(4, "i", 0x38),
    odbc=_exact(4, 10, 4, 38, fixed=56),
    storage="integer",
    user_type=7,
    synonyms=("integer",),
)
BIGINT: Final = SystemType(
    name="bigint",
    family=INTEGER,
    rank=170,
    type_id=127,
    facets=Facets(8, 19),
    wire=_integer_wire(8, "q", 0x7F),
    odbc=_exact(-5, 19, 8, 108, fixed=63),
    storage="bigint",
)
SMALLMONEY: Final = SystemType(
    name="smallmoney",
    family=DECIMAL,
    rank=180,
    type_id=122,
    facets=Facets(4, 10, 4),
    wire=Wire(Form.SIZED, Packing.MONEY, _MONEYN, 4, fixed_token=0x7A),
    odbc=_exact(3, 10, 12, 110, fixed=122, scale=4),
    storage="numeric(10,4)",
    user_type=21,
)
MONEY: Final = SystemType(
    name="money",
    family=DECIMAL,
    rank=190,
    type_id=60,
    facets=Facets(8, 19, 4),
    wire=Wire(Form.SIZED, Packing.MONEY, _MONEYN, 8, fixed_token=0x3C),
    odbc=_exact(3, 19, 21, 110, fixed=60, scale=4),
    storage="numeric(19,4)",
    user_type=11,
)
NUMERIC_TYPE: Final = SystemType(
    name="numeric",
    family=DECIMAL,
    rank=200,
    type_id=108,
    facets=Facets(17, 38, 38),
    wire=Wire(Form.DECIMAL, Packing.DECIMAL, 0x6C, older_tokens=(0x3F,)),
    odbc=_exact(2, 38, 40, 108),
    storage="numeric({precision},{scale})",
    declared=Declared.PRECISION_SCALE,
    user_type=10,
)
DECIMAL_TYPE: Final = SystemType(
    name="decimal",
    family=DECIMAL,
    rank=210,
    type_id=106,
    facets=Facets(17, 38, 38),
    wire=Wire(Form.DECIMAL, Packing.DECIMAL, 0x6A, older_tokens=(0x37,)),
    odbc=_exact(3, 38, 40, 106),
    storage="numeric({precision},{scale})",
    declared=Declared.PRECISION_SCALE,
    user_type=24,
    synonyms=("dec",),
)
REAL: Final = SystemType(
    name="real",
    family=FLOAT,
    rank=220,
    type_id=59,
    facets=Facets(4, 24),
    wire=Wire(Form.SIZED, Packing.FLOAT, _FLTN, 4, "f", 0x3B),
    odbc=OdbcType(7, 24, 4, 109, radix=2, ss_fixed=59),
    storage="real",
    user_type=23,
)
FLOAT_TYPE: Final = SystemType(
    name="float",
    family=FLOAT,
    rank=230,
    type_id=62,
    facets=Facets(8, 53),
    wire=Wire(Form.SIZED, Packing.FLOAT, _FLTN, 8, "d", 0x3E),
    odbc=OdbcType(6, 53, 8, 109, radix=2, ss_fixed=62),
    storage="double precision",
    declared=Declared.BITS,
    user_type=8,
)
NUMBERS: Final = (
    BIT,
    TINYINT,
    SMALLINT,
    INT,
    BIGINT,
    SMALLMONEY,
    MONEY,
    NUMERIC_TYPE,
    DECIMAL_TYPE,
    REAL,
    FLOAT_TYPE,
)
