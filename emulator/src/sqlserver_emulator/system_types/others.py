"""Records of the types that are families of their own."""

from __future__ import annotations

from typing import Final

from sqlserver_emulator.system_types.odbc import OdbcType
from sqlserver_emulator.system_types.record import GUID, VARIANT, Facets, SystemType
from sqlserver_emulator.system_types.wire import Form, Packing, Wire

UNIQUEIDENTIFIER: Final = SystemType(
    name="uniqueidentifier",
    family=GUID,
    rank=80,
    type_id=36,
    facets=Facets(16),
    wire=Wire(Form.SIZED, Packing.GUID, 0x24, 16),
    odbc=OdbcType(-11, 36, 16, 37),
    storage="uuid",
)
SQL_VARIANT: Final = SystemType(
    name="sql_variant",
    family=VARIANT,
    rank=310,
    type_id=98,
    facets=Facets(8016),
    wire=Wire(Form.VARIANT, Packing.VARIANT, 0x62, 8009),
    odbc=OdbcType(-150, 8000, 8000, 39),
    storage="text",
)
VARIANT_VALUES: Final = "values of the data type sql_variant"
"""What is refused wherever such a value could come from or go to; columns of the type have NULL only."""

OTHERS: Final = (UNIQUEIDENTIFIER, SQL_VARIANT)
