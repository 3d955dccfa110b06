"""How ODBC describes T-SQL types: the constants of sp_columns and sp_datatype_info.

The numbers are those of ODBC's SQL type codes and of Microsoft's documentation of the two procedures.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sqlserver_emulator.system_types import BY_NAME, SYSTEM_TYPES
from sqlserver_emulator.system_types.odbc import INT_MAX, OdbcType
from sqlserver_emulator.system_types.record import Declared, SystemType
from sqlserver_emulator.types import TsqlType

BY_CATALOG_NAME: Final = {type.catalog_name: type for type in SYSTEM_TYPES}


def describe_column(name: str, max_length: int, precision: int, scale: int) -> OdbcType:
    """Return the description of a column of system type ``name``, with the facets that sys.columns shows."""
    record = BY_CATALOG_NAME[name]
    base = record.odbc
    if record.varies_in_length:
        return _sized_column(record, max_length)
    if record.declared is Declared.PRECISION_SCALE:
        # Two more characters: the sign and the point.
        return replace(base, precision=precision, length=precision + 2, scale=scale)
    if record.moment is not None:
        return replace(base, precision=record.moment.text_width + (scale + 1 if scale else 0), scale=scale)
    if record.is_legacy_lob:
        return replace(base, octets=base.length)
    return base


def describe_type(type: TsqlType) -> tuple[str, OdbcType]:
    """Return the name that is shown of a declared type, and the description of a column of it."""
    record = BY_NAME[type.name]
    unit = 1 if type.is_max else record.unit_bytes
    name = record.catalog_name
    return name, describe_column(name, type.length * unit, type.precision, type.scale)


def _sized_column(record: SystemType, max_length: int) -> OdbcType:
    unit = record.unit_bytes
    if max_length == -1:
        # For a national type, the largest even number of bytes.
        bytes_ = INT_MAX // unit * unit
        return replace(record.odbc, precision=INT_MAX // unit, length=bytes_, octets=bytes_)
    return replace(record.odbc, precision=max_length // unit, length=max_length, octets=max_length)
