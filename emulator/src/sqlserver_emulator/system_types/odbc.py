"""How ODBC describes a type: the numbers of its SQL type codes and of Microsoft's documentation of sp_columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

INT_MAX: Final = 2147483647


@dataclass(frozen=True, slots=True)
class OdbcType:
    """A column, or a type at its largest."""

    code: int
    """DATA_TYPE: ODBC's SQL type code."""
    precision: int
    length: int
    ss: int
    """SS_DATA_TYPE of a nullable column."""
    scale: int | None = None
    radix: int | None = None
    subtype: int | None = None
    """SQL_DATETIME_SUB, of the date and time types that ODBC has itself."""
    octets: int | None = None
    ss_fixed: int | None = None
    """SS_DATA_TYPE of a column that cannot be NULL, where it is another one."""
    code_before_3: int | None = None
    """DATA_TYPE for ODBC 2, where it is another one."""

    @property
    def verbose_code(self) -> int:
        """SQL_DATA_TYPE: 9 for all date and time types of ODBC, which the subtype distinguishes."""
        return 9 if self.subtype is not None else self.code
