"""Tables, columns and changes of a source, and the names of what holds them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from ipaddress import ip_address

# --------------------------------------------------------------------------------------------------------------------
# Tables and columns of the source, as the capture instance sees them.


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
    could not be parsed without them, or would be a pattern (``core.patterns``).
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
    if _BARE.fullmatch(part) and "*" not in part:
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
class MappedColumn:
    """A column of the source and its name in the target (``core.naming``)."""

    source: str
    target: str
    was: str = ""
    """The name that the target has for it until the load is merged; "" for the same."""


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


# --------------------------------------------------------------------------------------------------------------------
# Change rows: their operation, and the columns that they changed.


class Operation(IntEnum):
    """The values of ``__$operation``, ``LOADED`` and ``MOVED``."""

    LOADED = 0
    """Floodmark's own, in a log: a row of a load of the whole table, which is no change."""
    DELETE = 1
    INSERT = 2
    BEFORE_UPDATE = 3
    UPDATE = 4
    MERGE = 5
    """Only in net changes with ``all with merge``: an insert or an update."""
    MOVED = 6
    """Floodmark's own: an UPDATE that gave the row another key. The server writes 4 for it (``spark.net``)."""


OLD_IMAGES = (Operation.DELETE.value, Operation.BEFORE_UPDATE.value)
"""The operations of rows with the values before a change, which no rule judges: what was, cannot be corrected."""


def bits_by_byte(ordinals: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return the bytes of an update mask, and their bits, that show whether one of the ordinals is set.

    Each pair is the position of a byte, 0 for the last one, and its bits.
    """
    bits: dict[int, int] = {}
    for ordinal in ordinals:
        byte, bit = divmod(ordinal - 1, 8)
        bits[byte] = bits.get(byte, 0) | 1 << bit
    return tuple(sorted(bits.items()))


def is_changed(mask: bytes, ordinal: int) -> bool:
    """Return whether the bit of a column is set in an update mask.

    ordinal: 1-based, of the capture instance. The bits are counted from the right: ordinal 1 is the lowest bit of the
    last byte (docs/reference/sqlserver_cdc.md, "Update mask"). An ordinal beyond the mask is not set.
    """
    byte, bit = divmod(ordinal - 1, 8)
    return byte < len(mask) and bool(mask[len(mask) - 1 - byte] >> bit & 1)


def changed_ordinals(mask: bytes) -> Iterator[int]:
    """Return the ordinals that are set in an update mask, ascending."""
    bits = int.from_bytes(mask)
    return (ordinal for ordinal in range(1, len(mask) * 8 + 1) if bits >> (ordinal - 1) & 1)


# --------------------------------------------------------------------------------------------------------------------
# ``Dataset``: what rows are read from or written to, named as OpenLineage's naming rules want it.
#
# A namespace has hosts and ports, never a login.


_LOCAL_FOLDER = ("/", "@")
"""What the host of a Unix socket begins with."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table, a topic or a file."""

    namespace: str
    name: str
    """The name within the namespace."""
    is_table: bool = False
    """Whether it is one table. A topic and a file have the rows of several."""


def table_dataset(scheme: str, host: str, port: int | str, database: str, table: TableName) -> Dataset:
    """Return a table of a server: ``<scheme>://<host>:<port>``, ``<database>.<schema>.<table>``.

    port: or the name of an instance: ``<scheme>://<host>/<instance>``.
    """
    named = "localhost" if host.startswith(_LOCAL_FOLDER) else host
    in_uri = f"[{named}]" if ":" in named else named
    return Dataset(
        f"{scheme}://{in_uri}{':' if isinstance(port, int) else '/'}{port}",
        f"{database}.{table.schema}.{table.name}",
        is_table=True,
    )


def topic_dataset(servers: str, topic: str) -> Dataset:
    """Return a topic of a Kafka cluster, named by the first of its servers."""
    return Dataset(f"kafka://{servers.partition(',')[0].strip()}", topic)


def file_dataset(path: str) -> Dataset:
    """Return a file, a folder, or a pattern of files. path: in an object store with the store, as in s3://bucket/a."""
    store, _, bucket = path.partition("://")
    if not bucket:
        return Dataset("file", path)
    name, _, key = bucket.partition("/")
    return Dataset(f"{store}://{name}", key)


# --------------------------------------------------------------------------------------------------------------------
# Host names and addresses: which of them mean the machine that uses them.


def is_loopback(host: str) -> bool:
    """Return whether a name or an address leads each machine to itself."""
    if host.casefold() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


# --------------------------------------------------------------------------------------------------------------------
# Names that the Spark writer, the merge and the checks share: Floodmark's columns and its staging tables.


LEDGER_SCHEMA = "floodmark"
STAGING_SCHEMA = "floodmark_staging"

POSITION_COLUMN = "__lsn"
OPERATION_COLUMN = "__op"
WINDOW_COLUMN = "__window_id"
LOADED_AT_COLUMN = "__loaded_at"
DELETED_COLUMN = "__deleted"
PART_COLUMN = "__part"
"""A column of staging only: the Spark partition that wrote the row."""

UNSTORABLE_COLUMN = "__unstorable"
"""A column of staging only: a JSON object with the reason for each column whose text the warehouse cannot store."""

LOAD_COLUMN = "__load"
"""A column of logs and histories: the window of the newest load of the whole table when the row came."""
COMMAND_COLUMN = "__command_id"
SEQUENCE_COLUMN = "__seq"
CHANGED_COLUMN = "__changed"
COMMITTED_COLUMN = "__committed_at"
KEPT_COLUMN = "__kept"
"""A column of a history: the columns that a change left out, whose values are those of the version before it."""
VALID_FROM_COLUMN, VALID_TO_COLUMN = "__valid_from", "__valid_to"
NEXT_LOAD_COLUMN, NEXT_POSITION_COLUMN = "__next_load", "__next_lsn"

TARGET_COLUMNS = (POSITION_COLUMN, OPERATION_COLUMN, WINDOW_COLUMN, LOADED_AT_COLUMN, DELETED_COLUMN)
LOG_KEY = (LOAD_COLUMN, POSITION_COLUMN, COMMAND_COLUMN, SEQUENCE_COLUMN, OPERATION_COLUMN)
"""The primary key of a log: behind the load, that of the change table. A restore of the source lowers its positions."""
LOG_COLUMNS = (*LOG_KEY, CHANGED_COLUMN, COMMITTED_COLUMN, WINDOW_COLUMN, LOADED_AT_COLUMN)
SNAPSHOT_COLUMNS = (SEQUENCE_COLUMN, POSITION_COLUMN, WINDOW_COLUMN, LOADED_AT_COLUMN)
"""The columns of a snapshot of a table. The first is its key: the number of the row in the read."""
HISTORY_COLUMNS = (
    LOAD_COLUMN,
    POSITION_COLUMN,
    OPERATION_COLUMN,
    DELETED_COLUMN,
    COMMITTED_COLUMN,
    KEPT_COLUMN,
    VALID_FROM_COLUMN,
    WINDOW_COLUMN,
    LOADED_AT_COLUMN,
)
ENDED_COLUMNS = (NEXT_LOAD_COLUMN, NEXT_POSITION_COLUMN, VALID_TO_COLUMN)
"""The columns that only versions with a later one have: the version that follows, and when it begins."""
TRACKED_COLUMN = "__tracked"
"""Only in the view of a history: whether a version differs from the one before in a column of ``track``."""
IDENTIFIER_MAX_BYTES = 63
KEEP_PREFIX = "__keep_"
"""A prefix of columns of staging only: see ``keep_column``."""


def keep_column(column: str) -> str:
    """Return the staging column that is true where the change row omits a value and that of the target stays."""
    name = KEEP_PREFIX + column
    if len(name.encode()) <= IDENTIFIER_MAX_BYTES:
        return name
    return KEEP_PREFIX + hashlib.sha256(column.encode()).hexdigest()[:32]


def optional_columns(table: SourceTable) -> tuple[str, ...]:
    """Return the stored columns that have a keep column in staging, in order."""
    return tuple(column.name for column in table.stored_columns if table.may_leave_out(column))


def quote(identifier: str) -> str:
    """Return a quoted identifier of standard SQL (PostgreSQL's, never T-SQL's brackets)."""
    return '"' + identifier.replace('"', '""') + '"'


def quote_table(name: TableName) -> str:
    """Return the quoted two-part name."""
    return f"{quote(name.schema)}.{quote(name.name)}"
