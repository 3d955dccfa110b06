"""The metadata tables of schema cdc (docs/reference/sqlserver_cdc.md, "Metadata tables") and how CDC's relations enter
the emulator's catalog.

Owns their columns, in order and exactly typed. Who fills them: ``enable`` (change_tables, captured_columns,
index_columns), ``capture`` (lsn_time_mapping, ddl_history).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlserver_emulator.engine.names import postgres_name, qualified, quote
from sqlserver_emulator.types import BIT, DATETIME, INT, LSN, NVARCHAR_MAX, SYSNAME, TsqlType

Run = Callable[[str, Sequence[object]], list[tuple[Any, ...]]]
"""Run one PostgreSQL statement with $1..$n (each cast in the text) and return its rows: ``EngineSession.fetch_all`` or
a psycopg connection's."""

CDC_SCHEMA = "cdc"


@dataclass(frozen=True, slots=True)
class Declared:
    """A column as T-SQL declares it and as PostgreSQL stores it."""

    name: str
    type: TsqlType
    storage: str
    nullable: bool = True
    collation: str | None = None
    """Of a string; None: the database's."""

    @property
    def postgres_name(self) -> str:
        return postgres_name(self.name)


def _sysname(name: str, *, nullable: bool = True) -> Declared:
    return Declared(name, SYSNAME, "varchar(128)", nullable)


def _lsn(name: str, *, nullable: bool = True) -> Declared:
    return Declared(name, LSN, "bytea", nullable)


def _int(name: str, *, nullable: bool = True) -> Declared:
    return Declared(name, INT, "int", nullable)


def _bit(name: str) -> Declared:
    return Declared(name, BIT, "smallint")


def _datetime(name: str) -> Declared:
    return Declared(name, DATETIME, "timestamp(3)")


_MASK = TsqlType("varbinary", 128)

TABLES: dict[str, tuple[tuple[Declared, ...], str]] = {
    "change_tables": (
        (
            _int("object_id", nullable=False),
            _int("version"),
            _int("source_object_id"),
            _sysname("capture_instance"),
            _lsn("start_lsn"),
            _lsn("end_lsn"),
            _bit("supports_net_changes"),
            _bit("has_drop_pending"),
            _sysname("role_name"),
            _sysname("index_name"),
            _sysname("filegroup_name"),
            _datetime("create_date"),
            _bit("partition_switch"),
        ),
        "object_id",
    ),
    "captured_columns": (
        (
            _int("object_id", nullable=False),
            _sysname("column_name"),
            _int("column_id"),
            _sysname("column_type"),
            _int("column_ordinal", nullable=False),
            _bit("is_computed"),
            Declared("masking_function", TsqlType("nvarchar", 4000), "varchar(4000)"),
        ),
        "object_id, column_ordinal",
    ),
    "index_columns": (
        (
            _int("object_id", nullable=False),
            _sysname("column_name"),
            Declared("index_ordinal", TsqlType("tinyint"), "smallint", nullable=False),
            _int("column_id"),
        ),
        "object_id, index_ordinal",
    ),
    "ddl_history": (
        (
            _int("source_object_id"),
            _int("object_id", nullable=False),
            _bit("required_column_update"),
            Declared("ddl_command", NVARCHAR_MAX, "text"),
            _lsn("ddl_lsn", nullable=False),
            _datetime("ddl_time"),
        ),
        "",  # two statements of one transaction share ddl_lsn
    ),
    "lsn_time_mapping": (
        (
            _lsn("start_lsn", nullable=False),
            _datetime("tran_begin_time"),
            _datetime("tran_end_time"),
            Declared("tran_id", TsqlType("varbinary", 10), "bytea"),
            _lsn("tran_begin_lsn"),
        ),
        "start_lsn",
    ),
}
"""Table name -> columns in order, primary key."""

CHANGE_TABLE_START = (
    _lsn("__$start_lsn", nullable=False),
    _lsn("__$end_lsn"),
    _lsn("__$seqval", nullable=False),
    _int("__$operation", nullable=False),
    Declared("__$update_mask", _MASK, "bytea"),
)
# docs/reference/sqlserver_cdc.md, "Metadata tables": `__$command_id` is the last column.
CHANGE_TABLE_END = (_int("__$command_id"),)
# docs/reference/sqlserver_cdc.md, "Order of changes".
CHANGE_ORDER = ("__$start_lsn", "__$command_id", "__$seqval", "__$operation")
"""Columns of the clustered index of a change table."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where a relation belongs: a schema of a T-SQL database."""

    database_id: int
    schema: str
    postgres_schema: str


def create_table(run: Run, home: Home, name: str, columns: Sequence[Declared], primary_key: str = "") -> int:
    """Create a table and enter it into the catalog; return its object id."""
    relation = qualified(home.postgres_schema, postgres_name(name))
    lines = [f"{quote(c.postgres_name)} {c.storage}{'' if c.nullable else ' NOT NULL'}" for c in columns]
    if primary_key:
        lines.append(f"PRIMARY KEY ({primary_key})")
    run(f"CREATE TABLE {relation} ({', '.join(lines)})", ())
    values = (relation, home.database_id, home.schema, name, postgres_name(name))
    ((object_id,),) = run(_REGISTER_TABLE, values)
    run(_DECLARE_COLUMNS, (object_id, json.dumps([_declaration(column) for column in columns])))
    return int(object_id)


def register_clustered_index(run: Run, object_id: int, name: str, relation: str, columns: Sequence[str]) -> None:
    """Create a change table's unique index and enter it into the catalog as its clustered one."""
    keys = ", ".join(quote(column) for column in columns)
    index = postgres_name(name)
    run(f"CREATE UNIQUE INDEX {quote(index)} ON {relation} ({keys})", ())
    run(_REGISTER_INDEX, (object_id, name, index))
    run(_REGISTER_INDEX_COLUMNS, (object_id, json.dumps(list(columns))))


def _declaration(column: Declared) -> dict[str, object]:
    return {
        "name": column.name,
        "postgres_name": column.postgres_name,
        "type_name": column.type.name,
        "length": column.type.length,
        "precision": column.type.precision,
        "scale": column.type.scale,
        "is_nullable": column.nullable,
        "collation_name": column.collation,
    }


_REGISTER_TABLE = """
INSERT INTO emulator.objects (object_id, database_id, schema_id, name, type, postgres_name, is_ms_shipped)
SELECT $1::regclass::oid::int, $2::int, s.schema_id, $4::varchar, 'U', $5::text, true
FROM emulator.schemas s WHERE s.database_id = $2::int AND s.name = $3::varchar
RETURNING object_id
"""
_REGISTER_INDEX = """
INSERT INTO emulator.indexes (object_id, index_id, name, postgres_name, is_clustered, is_unique)
VALUES ($1::int, 1, $2::varchar, $3::text, true, true)
"""
_REGISTER_INDEX_COLUMNS = """
INSERT INTO emulator.index_columns (object_id, index_id, index_column_id, column_id, key_ordinal)
SELECT $1::int, 1, k.place, c.column_id, k.place
FROM jsonb_array_elements_text($2::jsonb) WITH ORDINALITY AS k(name, place)
JOIN emulator.columns c ON c.object_id = $1::int AND c.name = k.name
"""
_DECLARE_COLUMNS = """
INSERT INTO emulator.columns (object_id, column_id, name, postgres_name, attnum, type_name, length, precision, scale,
    is_nullable, collation_name)
SELECT $1::int, a.attnum, d.name, a.attname, a.attnum, d.type_name, d.length, d.precision, d.scale, d.is_nullable,
    d.collation_name
FROM jsonb_to_recordset($2::jsonb) AS d(name text, postgres_name text, type_name text, length int, precision smallint,
    scale smallint, is_nullable boolean, collation_name text)
JOIN pg_attribute a ON a.attrelid = $1::int::oid AND a.attname = d.postgres_name AND NOT a.attisdropped
"""
