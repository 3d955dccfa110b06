"""Records of the date and time types.

PostgreSQL counts microseconds: what is declared with a seventh digit has a storage of its own (ADR 49).
"""

from __future__ import annotations

from typing import Final

from sqlserver_emulator.system_types.odbc import OdbcType
from sqlserver_emulator.system_types.record import TEMPORAL, Declared, Facets, Moment, SystemType
from sqlserver_emulator.system_types.wire import Form, Packing, Wire

_DATETIMEN: Final = 0x6F
_WIDE_TEXT: Final = -9
"""ODBC 2 knows none of the types that came with SQL Server 2008: to it they are nvarchar."""
_ODBC_2_TIMESTAMP: Final = 11

TIME: Final = SystemType(
    name="time",
    family=TEMPORAL,
    rank=240,
    type_id=41,
    facets=Facets(5, 16, 7),
    wire=Wire(Form.SCALED, Packing.TIME, 0x29),
    odbc=OdbcType(-154, 16, 32, 0, scale=7, code_before_3=_WIDE_TEXT),
    storage="time({scale})",
    storage_of_ticks="tsql.time",
    declared=Declared.SCALE,
    moment=Moment(text_width=8),
)
DATE: Final = SystemType(
    name="date",
    family=TEMPORAL,
    rank=250,
    type_id=40,
    facets=Facets(3, 10),
    wire=Wire(Form.BARE, Packing.DATE, 0x28),
    odbc=OdbcType(91, 10, 20, 0, scale=0, subtype=1, code_before_3=_WIDE_TEXT),
    storage="date",
)
SMALLDATETIME: Final = SystemType(
    name="smalldatetime",
    family=TEMPORAL,
    rank=260,
    type_id=58,
    facets=Facets(4, 16),
    wire=Wire(Form.SIZED, Packing.MINUTES, _DATETIMEN, 4, fixed_token=0x3A),
    odbc=OdbcType(93, 16, 16, 111, scale=0, subtype=3, ss_fixed=58, code_before_3=_ODBC_2_TIMESTAMP),
    storage="timestamp(0)",
    user_type=22,
)
DATETIME: Final = SystemType(
    name="datetime",
    family=TEMPORAL,
    rank=270,
    type_id=61,
    facets=Facets(8, 23, 3),
    wire=Wire(Form.SIZED, Packing.TICKS, _DATETIMEN, 8, fixed_token=0x3D),
    odbc=OdbcType(93, 23, 16, 111, scale=3, subtype=3, ss_fixed=61, code_before_3=_ODBC_2_TIMESTAMP),
    storage="timestamp(3)",
    user_type=12,
)
DATETIME2: Final = SystemType(
    name="datetime2",
    family=TEMPORAL,
    rank=280,
    type_id=42,
    facets=Facets(8, 27, 7),
    wire=Wire(Form.SCALED, Packing.DATE_TIME, 0x2A),
    odbc=OdbcType(93, 27, 54, 0, scale=7, subtype=3, code_before_3=_WIDE_TEXT),
    storage="timestamp({scale})",
    storage_of_ticks="tsql.datetime2",
    declared=Declared.SCALE,
    moment=Moment(text_width=19, more_bytes=3),
)
DATETIMEOFFSET: Final = SystemType(
    name="datetimeoffset",
    family=TEMPORAL,
    rank=290,
    type_id=43,
    facets=Facets(10, 34, 7),
    wire=Wire(Form.SCALED, Packing.DATE_TIME_OFFSET, 0x2B),
    odbc=OdbcType(-155, 34, 68, 0, scale=7, code_before_3=_WIDE_TEXT),
    # timestamptz would lose the offset.
    storage="tsql.datetimeoffset",
    declared=Declared.SCALE,
    moment=Moment(text_width=26, more_bytes=5),
)
MOMENTS: Final = (TIME, DATE, SMALLDATETIME, DATETIME, DATETIME2, DATETIMEOFFSET)
