"""Tables and columns of the source, as the capture instance sees them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MAX_LENGTH = -1
_BARE = re.compile(r"[^\s.\[\]](?:[^.\[\]]*[^\s.\[\]])?")
_PART = rf"\s*(?:\[((?:[^\]]|\]\])+)\]|({_BARE.pattern}))\s*"
_TWO_PARTS = re.compile(rf"{_PART}\.{_PART}")
_LOB_WITH_MAX = frozenset({"nvarchar", "varchar", "varbinary"})
_FIXED_TEXT = frozenset({"char", "nchar"})
_PADDED = frozenset({"varchar", "nvarchar", "sysname", "varbinary"})
_BINARY_COLLATION = re.compile(r".*_BIN2?(_UTF8)?", re.IGNORECASE)
EXACT_COLLATION = "BINARY"
"""SQLite's collation, of a name that SQL Server has not: texts are equal where their bytes are."""
_LOB_ALWAYS = frozenset({"text", "ntext", "image", "xml"})


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A two-part name, as ``TableName.parse("dbo.Orders")`` returns it.

    As in T-SQL, ``[my.table]`` is one part and ``[a]]b]`` the name a]b. The text of a name has brackets only where it
    could not be parsed without them.
    """

    schema: str
    name: str

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Return the name that a text spells. Raises ValueError unless it has exactly two non-empty parts."""
        match = _TWO_PARTS.fullmatch(text)
        if not match:
            raise ValueError(f"not a table name: {text!r} (expected schema.table)")
        bracketed_schema, schema, bracketed_name, name = match.groups("")
        return cls(schema or bracketed_schema.replace("]]", "]"), name or bracketed_name.replace("]]", "]"))

    @property
    def folded(self) -> tuple[str, str]:
        """Return a form that is the same for two names that differ in case alone."""
        return self.schema.casefold(), self.name.casefold()

    def __str__(self) -> str:
        return f"{_written(self.schema)}.{_written(self.name)}"


def _written(part: str) -> str:
    if _BARE.fullmatch(part):
        return part
    return "[" + part.replace("]", "]]") + "]"


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A captured column."""

    name: str
    type_name: str
    """SQL Server's system type, lower-case."""
    ordinal: int
    """The 1-based position in the update mask of the capture instance."""
    max_length: int = 0
    """In characters or bytes; -1 for max, 0 where it does not apply."""
    precision: int = 0
    scale: int = 0
    nullable: bool = True
    """Of the source column."""
    is_computed: bool = False
    collation: str = field(default="", compare=False)
    """The collation of a text column in the change table, "" where it was not read. It is no part of a shape."""

    @property
    def is_compared_by_bytes(self) -> bool:
        """Return whether no two different values are equal for the server.

        A comparison pads the shorter text with blanks, the shorter binary value with zeros, whatever the collation is
        (docs/reference/sqlserver_cdc.md, "Net changes").
        """
        if self.collation == EXACT_COLLATION:
            return True
        if self.type_name in _FIXED_TEXT:
            return _BINARY_COLLATION.fullmatch(self.collation) is not None
        return self.type_name not in _PADDED

    @property
    def is_lob(self) -> bool:
        """Return whether a change row may omit the value although it did not change."""
        return self.type_name in _LOB_ALWAYS or (self.type_name in _LOB_WITH_MAX and self.max_length == MAX_LENGTH)

    @property
    def declared_type(self) -> str:
        """Return the type as T-SQL declares it: decimal(18,2), nvarchar(max), datetime2(7)."""
        if self.type_name in ("decimal", "numeric"):
            return f"{self.type_name}({self.precision},{self.scale})"
        if self.type_name in ("datetime2", "time", "datetimeoffset"):
            return f"{self.type_name}({self.scale})"
        if self.type_name in ("char", "varchar", "nchar", "nvarchar", "binary", "varbinary") and self.max_length:
            return f"{self.type_name}({'max' if self.max_length == MAX_LENGTH else self.max_length})"
        return self.type_name


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A tracked table: its captured columns in mask order, and its key columns in key order."""

    name: TableName
    columns: tuple[SourceColumn, ...]
    key: tuple[str, ...]
    is_partial: bool = False
    """Whether changes may leave out any column but those of the key."""

    def may_leave_out(self, column: SourceColumn) -> bool:
        """Return whether a change row may leave out the value of a column."""
        return column.is_lob or (self.is_partial and column.name not in self.key)

    @property
    def stored_columns(self) -> tuple[SourceColumn, ...]:
        """Return the columns that reach the target: all but computed ones, which are NULL in a change table."""
        return tuple(column for column in self.columns if not column.is_computed)

    def column(self, name: str) -> SourceColumn:
        """Return the column of a name. Raises KeyError."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)
