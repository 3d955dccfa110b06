"""T-SQL data types as declared: what a column or variable was said to be, independent of how it is stored or sent."""

from __future__ import annotations

from dataclasses import dataclass

MAX_LENGTH = -1
"""``length`` of nvarchar(max), varchar(max), varbinary(max)."""


@dataclass(frozen=True, slots=True)
class TsqlType:
    """One T-SQL system type with its facets.

    name: lower-case system type name: bit tinyint smallint int bigint decimal numeric money smallmoney real float date
        time datetime2 datetimeoffset datetime smalldatetime char varchar nchar nvarchar text ntext binary varbinary
        image uniqueidentifier rowversion xml sysname sql_variant. (``timestamp`` is spelled rowversion; alias types
        are resolved before.)
    length: characters for (n)char/(n)varchar/sysname, bytes for (var)binary; MAX_LENGTH for max; 0 where there is none.
    precision, scale: of decimal/numeric; ``scale`` also of time, datetime2, datetimeoffset; ``precision`` of float.
    """

    name: str
    length: int = 0
    precision: int = 0
    scale: int = 0

    @property
    def is_max(self) -> bool:
        return self.length == MAX_LENGTH

    def __str__(self) -> str:
        if self.name in ("char", "varchar", "nchar", "nvarchar", "binary", "varbinary"):
            return f"{self.name}({'max' if self.is_max else self.length})"
        if self.name in ("decimal", "numeric"):
            return f"{self.name}({self.precision},{self.scale})"
        if self.name in ("time", "datetime2", "datetimeoffset"):
            return f"{self.name}({self.scale})"
        return self.name


INT = TsqlType("int")
BIGINT = TsqlType("bigint")
SMALLINT = TsqlType("smallint")
BIT = TsqlType("bit")
NVARCHAR_MAX = TsqlType("nvarchar", MAX_LENGTH)
NVARCHAR_4000 = TsqlType("nvarchar", 4000)
SYSNAME = TsqlType("sysname", 128)
DATETIME = TsqlType("datetime")
LSN = TsqlType("binary", 10)
