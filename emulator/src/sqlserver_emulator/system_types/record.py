"""The record of one system type: what the catalog, the wire, ODBC and the storage in PostgreSQL have to know of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from sqlserver_emulator.system_types.odbc import OdbcType
from sqlserver_emulator.system_types.wire import Form, Packing, Wire

# Families: T-SQL's conversion rules go by them. Plain strings, because translated SQL mentions some of them.
INTEGER: Final = "integer"
DECIMAL: Final = "decimal"
FLOAT: Final = "float"
TEXT: Final = "text"
BINARY: Final = "binary"
TEMPORAL: Final = "temporal"
GUID: Final = "guid"
VARIANT: Final = "variant"


class Declared(Enum):
    """The facets that follow the name of a type in a declaration."""

    PLAIN = auto()
    LENGTH = auto()
    PRECISION_SCALE = auto()
    BITS = auto()
    """float(n), which is a real up to 24."""
    SCALE = auto()
    """Digits of a second's fraction."""


@dataclass(frozen=True, slots=True)
class Facets:
    """The type at its largest, as sys.types shows it."""

    max_length: int
    """In bytes; -1 for max."""
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class Length:
    """The lengths with which a character or binary type can be declared."""

    longest: int
    """In characters, or in bytes for a binary type."""
    may_be_max: bool = False
    is_fixed: bool = False
    """Shorter values are filled up to the length."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A type of a declared fraction: what it has around the time of day."""

    text_width: int
    """Characters of the value as text, without the fraction."""
    more_bytes: int = 0
    """Bytes after those of the time of day: three for the date, two for the offset."""


@dataclass(frozen=True, slots=True)
class SystemType:
    """One system type of SQL Server."""

    name: str
    """The name that ``TsqlType`` has: in lower case, and rowversion where the catalog says timestamp."""
    family: str
    rank: int
    """Data type precedence: of two types the one with the higher rank wins. Steps of ten leave room between them."""
    type_id: int
    """system_type_id. sysname has that of nvarchar."""
    facets: Facets
    wire: Wire
    odbc: OdbcType
    """How ODBC describes a column of the type at its largest."""
    storage: str
    """PostgreSQL's type, with ``{length}``, ``{precision}``, ``{scale}`` for the declared facets."""
    storage_of_max: str = ""
    """PostgreSQL's type of the (max) type, where it is another one."""
    storage_of_ticks: str = ""
    """PostgreSQL's type where all seven digits of a second are declared, if that is another one."""
    declared: Declared = Declared.PLAIN
    length: Length | None = None
    moment: Moment | None = None
    unit_bytes: int = 1
    """Bytes per character: 2 for national types."""
    varying: str = ""
    """The type of varying length that holds all values of this one."""
    shown: str = ""
    """The catalog's name for the type, where it is another one."""
    own_user_type_id: int | None = None
    """user_type_id, where it is not system_type_id."""
    user_type: int = 0
    """The number that the type had before there was sys.types; ODBC's USERTYPE and that of column metadata."""
    synonyms: tuple[str, ...] = ()
    """Other names in a declaration, in lower case."""

    @property
    def catalog_name(self) -> str:
        return self.shown or self.name

    @property
    def user_type_id(self) -> int:
        return self.type_id if self.own_user_type_id is None else self.own_user_type_id

    @property
    def is_number(self) -> bool:
        """Whether it is a number to the catalog, which counts bit apart."""
        return self.family in (INTEGER, DECIMAL, FLOAT) and self.wire.packing is not Packing.BIT

    @property
    def integer_range(self) -> tuple[int, int]:
        """The least and the greatest value of an integer type."""
        bits = 8 * self.wire.size
        is_unsigned = self.wire.number_format.isupper()
        return (0, 2**bits - 1) if is_unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    @property
    def is_national(self) -> bool:
        return self.family == TEXT and self.unit_bytes == 2

    @property
    def varies_in_length(self) -> bool:
        """Whether columns of it differ in length to ODBC, to which an alias type (sysname) is its base type."""
        return self.declared is Declared.LENGTH or self.own_user_type_id is not None

    @property
    def has_collation(self) -> bool:
        """Whether a column of it has a collation: xml is text to the conversion rules, but has none."""
        return self.family == TEXT and self.wire.packing is not Packing.XML

    @property
    def is_legacy_lob(self) -> bool:
        """text, ntext and image, which have a text pointer, no length and many rules of their own."""
        return self.wire.form is Form.LONG

    @property
    def counts_from_1900(self) -> bool:
        """datetime and smalldatetime: numbers convert to them as days since 1900, and rules older than 2008 apply."""
        return self.wire.packing in (Packing.TICKS, Packing.MINUTES)

    @property
    def is_composite(self) -> bool:
        """Whether PostgreSQL stores it as a type of schema tsql, whose operators must be named to be found."""
        return self.storage.startswith("tsql.")
