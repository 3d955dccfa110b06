"""The facts of a data type in describing procedures: number, name, length, precision, scale, as in sys.types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlserver_emulator.collations import Collation
from sqlserver_emulator.system_types import BY_NAME, SYSTEM_TYPES
from sqlserver_emulator.system_types.record import Declared
from sqlserver_emulator.system_types.sizes import decimal_bytes, time_bytes
from sqlserver_emulator.system_types.texts import SYSNAME
from sqlserver_emulator.tds.type_info import PLP_LENGTH, encode_type_info, is_character, is_plp
from sqlserver_emulator.types import TsqlType

SYSNAME_TYPE_ID: Final = SYSNAME.user_type_id
SYSTEM_TYPE_IDS: Final = {type.name: type.type_id for type in SYSTEM_TYPES}


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """The facts of one type. ``name`` has its facets: nvarchar(20)."""

    system_type_id: int
    name: str
    max_length: int
    precision: int
    scale: int

    @classmethod
    def of(cls, type: TsqlType) -> TypeFacts:
        """Return the facts of a type."""
        record = BY_NAME[type.name]
        # A sysname is described as the type that it is an alias of.
        shown = "nvarchar(128)" if record is SYSNAME else record.shown or str(type)
        return cls(record.type_id, shown, *_facets(type))


def _facets(type: TsqlType) -> tuple[int, int, int]:
    """Return max_length, precision and scale: those of the declaration where it has any, else the type's."""
    record = BY_NAME[type.name]
    if record.declared is Declared.PRECISION_SCALE:
        return decimal_bytes(type.precision), type.precision, type.scale
    # The precision of a date or time is the width of its text; a fraction adds its digits and the point.
    if record.moment is not None:
        width = record.moment.text_width + (type.scale + 1 if type.scale else 0)
        return time_bytes(type.scale) + record.moment.more_bytes, width, type.scale
    if record.declared is Declared.LENGTH:
        return -1 if type.is_max else type.length * record.unit_bytes, 0, 0
    return record.facets.max_length, record.facets.precision, record.facets.scale


def wire_type(type: TsqlType) -> tuple[int, int]:
    """Return tds_type_id and tds_length: the token of the nullable type, and the length that goes with it."""
    length = PLP_LENGTH if is_plp(type) else TypeFacts.of(type).max_length
    return encode_type_info(type)[0], length


def wire_collation(type: TsqlType, collation: Collation) -> tuple[int | None, int | None]:
    """Return tds_collation_id and tds_collation_sort_id; NULL for what is no character type."""
    if not is_character(type):
        return None, None
    return int.from_bytes(collation.wire[:4], "little"), collation.wire[4]
