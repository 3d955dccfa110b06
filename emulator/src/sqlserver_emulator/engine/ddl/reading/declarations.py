"""Declarations of DDL statements, free of text and of PostgreSQL."""

from __future__ import annotations

from dataclasses import dataclass

from sqlserver_emulator.types import TsqlType


@dataclass(frozen=True, slots=True)
class ObjectName:
    """A name of one to three parts as written; '' for a part left out."""

    name: str
    schema: str = ""
    database: str = ""

    def __str__(self) -> str:
        return ".".join(part for part in (self.database, self.schema, self.name) if part)

    @property
    def is_temporary(self) -> bool:
        return self.name.startswith(("#", "@"))


@dataclass(frozen=True, slots=True)
class IndexColumn:
    """A column of a key or index, with its direction."""

    name: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class KeyDeclaration:
    """PRIMARY KEY or UNIQUE. ``clustered`` None: not said (a primary key is clustered where nothing else is)."""

    primary: bool
    columns: tuple[IndexColumn, ...]
    name: str = ""
    clustered: bool | None = None


@dataclass(frozen=True, slots=True)
class CheckDeclaration:
    """A CHECK constraint; ``column`` is '' for one of the table."""

    condition: str
    name: str = ""
    column: str = ""
    validate: bool = True


@dataclass(frozen=True, slots=True)
class ForeignKeyDeclaration:
    """A FOREIGN KEY constraint; ``referenced_columns`` is empty for the primary key."""

    columns: tuple[str, ...]
    references: ObjectName
    referenced_columns: tuple[str, ...]
    name: str = ""
    on_delete: str = "NO ACTION"
    on_update: str = "NO ACTION"
    validate: bool = True


@dataclass(frozen=True, slots=True)
class DefaultDeclaration:
    """A DEFAULT constraint of a column."""

    expression: str
    name: str = ""
    with_values: bool = False
    column: str = ""


@dataclass(frozen=True, slots=True)
class ColumnDeclaration:
    """``type`` None: a computed column. ``alias``: the alias type it was declared with."""

    name: str
    type: TsqlType | None = None
    alias_type_id: int | None = None
    nullable: bool | None = None
    identity: tuple[int, int] | None = None
    default: DefaultDeclaration | None = None
    computed: str = ""
    persisted: bool = False
    rowguidcol: bool = False
    mask: str = ""
    """The masking function; '' for none."""
    collation: str = ""
    """As COLLATE names it; '' for the default."""


Constraint = KeyDeclaration | CheckDeclaration | ForeignKeyDeclaration


@dataclass(frozen=True, slots=True)
class IndexDeclaration:
    """An index that is not a constraint's."""

    name: str
    columns: tuple[IndexColumn, ...]
    included: tuple[str, ...] = ()
    unique: bool = False
    clustered: bool = False
    filter: str = ""
    drop_existing: bool = False


@dataclass(frozen=True, slots=True)
class DataSpace:
    """Where a table or an index is to lie: a filegroup, or a partition scheme with its column."""

    name: str
    is_partitioned: bool


@dataclass(frozen=True, slots=True)
class TableDeclaration:
    """A table with its columns, constraints and indexes."""

    name: ObjectName
    columns: tuple[ColumnDeclaration, ...]
    constraints: tuple[Constraint, ...] = ()
    indexes: tuple[IndexDeclaration, ...] = ()
    data_spaces: tuple[DataSpace, ...] = ()
