"""T-SQL data types as declared: what a column or variable was said to be, independent of how it is stored or sent."""

from __future__ import annotations

from dataclasses import dataclass

from sqlserver_emulator.system_types import BY_NAME
from sqlserver_emulator.system_types.record import FLOAT, Declared

SEVEN_DIGITS = 7
"""The most digits of a second, and those of a type that is declared without a number of them."""
MAX_LENGTH = -1
"""``length`` of nvarchar(max), varchar(max), varbinary(max)."""


@dataclass(frozen=True, slots=True)
class TsqlType:
    """One T-SQL system type with its facets.

    Only the facets that are declared are set (``system_types.record.Declared``).
    """

    name: str
    """That of a record in ``system_types``. (``timestamp`` is spelled rowversion; alias types are resolved before.)"""
    length: int = 0
    """Characters, or bytes for (var)binary; MAX_LENGTH for max; 0 where there is none."""
    precision: int = 0
    """Digits of decimal and numeric, bits of float."""
    scale: int = 0
    """Digits after the point; of the date and time types with a fraction too."""

    @property
    def is_max(self) -> bool:
        return self.length == MAX_LENGTH

    @property
    def has_ticks(self) -> bool:
        """Whether its values have a seventh digit of a second, which PostgreSQL's own types have no room for."""
        return self.scale == SEVEN_DIGITS and self.name in BY_NAME and bool(BY_NAME[self.name].storage_of_ticks)

    def __str__(self) -> str:
        # A name that is no system type's is a user's, which is not resolved yet.
        declared = BY_NAME[self.name].declared if self.name in BY_NAME else Declared.PLAIN
        if declared is Declared.LENGTH:
            return f"{self.name}({'max' if self.is_max else self.length})"
        if declared is Declared.PRECISION_SCALE:
            return f"{self.name}({self.precision},{self.scale})"
        return f"{self.name}({self.scale})" if declared is Declared.SCALE else self.name


INT = TsqlType("int")
BIGINT = TsqlType("bigint")
SMALLINT = TsqlType("smallint")
BIT = TsqlType("bit")
NVARCHAR_MAX = TsqlType("nvarchar", MAX_LENGTH)
NVARCHAR_4000 = TsqlType("nvarchar", 4000)
SYSNAME = TsqlType("sysname", 128)
DATETIME = TsqlType("datetime")
LSN = TsqlType("binary", 10)


def plain_type(name: str) -> TsqlType:
    """Return the type that the name alone declares, where nothing may follow the name."""
    record = BY_NAME[name]
    if record.own_user_type_id is not None:
        return SYSNAME
    return TsqlType(name, precision=record.facets.precision if record.family == FLOAT else 0)
