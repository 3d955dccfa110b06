"""Records of the binary types, rowversion among them."""

from __future__ import annotations

from typing import Final

from sqlserver_emulator.system_types.odbc import INT_MAX, OdbcType
from sqlserver_emulator.system_types.record import BINARY, Declared, Facets, Length, SystemType
from sqlserver_emulator.system_types.wire import Form, Packing, Wire

BINARY_TYPE: Final = SystemType(
    name="binary",
    family=BINARY,
    rank=10,
    type_id=173,
    facets=Facets(8000),
    wire=Wire(Form.SHORT, Packing.BYTES, 0xAD, older_tokens=(0x2D,)),
    odbc=OdbcType(-2, 8000, 8000, 37),
    storage="bytea",
    declared=Declared.LENGTH,
    length=Length(8000, is_fixed=True),
    varying="varbinary",
    user_type=3,
)
VARBINARY: Final = SystemType(
    name="varbinary",
    family=BINARY,
    rank=20,
    type_id=165,
    facets=Facets(8000),
    wire=Wire(Form.SHORT, Packing.BYTES, 0xA5, older_tokens=(0x25,)),
    odbc=OdbcType(-3, 8000, 8000, 37),
    storage="bytea",
    declared=Declared.LENGTH,
    length=Length(8000, may_be_max=True),
    user_type=4,
)
ROWVERSION: Final = SystemType(
    name="rowversion",
    family=BINARY,
    rank=90,
    type_id=189,
    facets=Facets(8),
    wire=Wire(Form.SHORT, Packing.BYTES, 0xAD, announced_as="binary"),
    odbc=OdbcType(-2, 8, 8, 45),
    storage="bytea",
    varying="varbinary",
    # The documentation's name is rowversion, but everything that the server shows still says timestamp.
    shown="timestamp",
    user_type=80,
    synonyms=("timestamp",),
)
IMAGE: Final = SystemType(
    name="image",
    family=BINARY,
    rank=100,
    type_id=34,
    facets=Facets(16),
    wire=Wire(Form.LONG, Packing.BYTES, 0x22, 0x7FFFFFFF),
    odbc=OdbcType(-4, INT_MAX, INT_MAX, 34),
    storage="bytea",
    varying="varbinary",
    user_type=20,
)
BINARIES: Final = (BINARY_TYPE, VARBINARY, ROWVERSION, IMAGE)
