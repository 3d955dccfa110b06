"""The events of a running batch or procedure, in order: the contract between the interpreter and the wire.

``Session.run_*`` yields these lazily; the connection encodes each as it comes, so that results stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from sqlserver_emulator.collations import Collation
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.types import TsqlType


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a result set, as COLMETADATA describes it."""

    name: str
    type: TsqlType
    nullable: bool = True
    identity: bool = False
    computed: bool = False
    hidden: bool = False
    """Not of the query: the driver keeps it to itself."""
    collation: Collation | None = None
    """Of a string; None: the server's."""


@dataclass(frozen=True, slots=True)
class ResultStart:
    """A result set begins. Rows and RowsArrow events follow until the StatementDone that ends it."""

    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows as Python values; None is NULL.

    bit bool|int · tinyint..bigint int · decimal/numeric/money/smallmoney Decimal · real/float float · character types,
    xml and sysname str · binary types, rowversion bytes · uniqueidentifier uuid.UUID · date date · time time ·
    datetime2/datetime/smalldatetime naive datetime · datetimeoffset aware datetime; with seven digits those of
    ``precise``.
    """

    rows: Sequence[tuple[object, ...]]


class ArrowBatch(Protocol):
    """The part of pyarrow.RecordBatch that is used."""

    @property
    def num_rows(self) -> int: ...

    def column(self, i: int) -> object: ...

    def slice(self, offset: int, length: int) -> ArrowBatch: ...


@dataclass(frozen=True, slots=True)
class RowsArrow:
    """Some rows as a pyarrow.RecordBatch, for large results (the column order is that of ResultStart).

    Arrow types: bool_|int16 for bit; int16 for tinyint and smallint; int32; int64; float32/64; string; binary;
    decimal128 or string (canonical decimal text) for decimal and money; date32; time64[us]; timestamp[us]; int64 of
    ticks for time(7) and datetime2(7) (``precise``); for datetimeoffset a struct of ``utc``, the int64 of ticks, and
    ``minutes``, the int16 of its offset;
    uniqueidentifier: fixed_size_binary(16) or string.
    """

    batch: ArrowBatch


class Command(Enum):
    """The CurCmd of a DONE token; the value is the number on the wire."""

    NONE = 0
    SELECT = 0xC1
    INSERT = 0xC3
    DELETE = 0xC4
    UPDATE = 0xC5
    MERGE = 0x117
    CREATE_TABLE = 0xC6
    BEGIN_TRANSACTION = 0xD4
    COMMIT_TRANSACTION = 0xD5
    ROLLBACK_TRANSACTION = 0xD2
    EXECUTE = 0xE0
    SET = 0xF9


@dataclass(frozen=True, slots=True)
class StatementDone:
    """A statement ended. ``row_count`` None: no count (SET NOCOUNT ON, DDL, control flow)."""

    command: Command = Command.NONE
    row_count: int | None = None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Info:
    """PRINT, RAISERROR below 11, 5701/5703 and the like."""

    number: int
    message: str
    severity: int = 0
    state: int = 1
    procedure: str = ""
    line: int = 1


@dataclass(frozen=True, slots=True)
class ErrorRaised:
    """An error that reached the client (not caught by TRY/CATCH). A StatementDone(failed=True) follows."""

    error: SqlServerError


@dataclass(frozen=True, slots=True)
class ReturnStatus:
    """The return code of a procedure."""

    value: int


@dataclass(frozen=True, slots=True)
class ReturnValue:
    """An OUTPUT parameter of a procedure called by RPC."""

    ordinal: int
    name: str
    type: TsqlType
    value: object


@dataclass(frozen=True, slots=True)
class DatabaseChanged:
    """USE, or the login's database."""

    old: str
    new: str
    collation: Collation | None = None
    """Of the new one."""


class TransactionAction(Enum):
    """ENVCHANGE numbers."""

    BEGUN = 8
    COMMITTED = 9
    ROLLED_BACK = 10


@dataclass(frozen=True, slots=True)
class TransactionChanged:
    """The outermost transaction began or ended. ``descriptor`` is never 0."""

    action: TransactionAction
    descriptor: int


Event = (
    ResultStart
    | Rows
    | RowsArrow
    | StatementDone
    | Info
    | ErrorRaised
    | ReturnStatus
    | ReturnValue
    | DatabaseChanged
    | TransactionChanged
)
