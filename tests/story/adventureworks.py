"""Real rows as a source: the 16 AdventureWorks tables next to the repository, loaded and changed through a driver.

Owns the DDL from tables.json, the multi-row inserts, and a seeded stream of changes. Statements are written out with
literals, as an application's migration script would be.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pymssql

from floodmark_laptop.stack import REPOSITORY

DATABASE = "AdventureWorks"
_ROWS_PER_INSERT = 500
_TEXT = ["flood", "mark", "Ünïcode", "水位", "высокая вода", "🌊", "it's", "tab\there", ""]


def data_folder() -> Path | None:
    """Return the folder of the CSV files, or None when this clone has no shared data next to it."""
    named = os.environ.get("FLOODMARK_ADVENTUREWORKS")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data" / "adventureworks"
    return folder if (folder / "tables.json").exists() else None


@dataclass
class Column:
    name: str
    type: str
    nullable: bool
    identity: bool

    @property
    def declared(self) -> str:
        return "varbinary(max)" if self.type == "geography" else self.type

    def literal(self, text: str) -> str:
        """A CSV field as a T-SQL literal; an empty field is NULL where the column takes it."""
        if text == "" and self.nullable:
            return "NULL"
        if self.type == "geography":
            return f"0x{text}"
        if self.type.startswith(("n", "uniqueidentifier", "xml")):
            return "N'" + text.replace("'", "''") + "'"
        return f"'{text}'" if self.type == "datetime" else text


@dataclass
class Table:
    schema: str
    name: str
    key: list[str]
    columns: list[Column]
    rows: list[list[str]]
    keys: list[tuple[str, ...]] = field(default_factory=list)
    row_of: dict[tuple[str, ...], list[str]] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"[{self.schema}].[{self.name}]"

    @property
    def identity(self) -> bool:
        return any(column.identity for column in self.columns)

    def where(self, key: tuple[str, ...]) -> str:
        by_name = {column.name: column for column in self.columns}
        return " AND ".join(f"[{n}] = {by_name[n].literal(v)}" for n, v in zip(self.key, key, strict=True))


def read_tables(folder: Path) -> list[Table]:
    tables = []
    for entry in json.loads((folder / "tables.json").read_text(encoding="utf-8")):
        columns = [Column(c["name"], c["type"], c["nullable"], c["identity"]) for c in entry["columns"]]
        with gzip.open(
            folder / f"{entry['schema']}.{entry['table']}.csv.gz", "rt", encoding="utf-8", newline=""
        ) as lines:
            _, *rows = csv.reader(lines)
        assert len(rows) == entry["rows"]
        table = Table(entry["schema"], entry["table"], entry["primary_key"], columns, rows)
        positions = [[c.name for c in columns].index(name) for name in table.key]
        table.row_of = {tuple(row[i] for i in positions): row for row in rows}
        table.keys = list(table.row_of)
        tables.append(table)
    return tables


def create_tables(connection: pymssql.Connection, tables: list[Table]) -> None:
    cursor = connection.cursor()
    for schema in sorted({table.schema for table in tables}):
        cursor.execute(f"CREATE SCHEMA [{schema}]")
    for table in tables:
        columns = ", ".join(
            f"[{c.name}] {c.declared}{' IDENTITY(1,1)' if c.identity else ''} {'NULL' if c.nullable else 'NOT NULL'}"
            for c in table.columns
        )
        key = ", ".join(f"[{name}]" for name in table.key)
        cursor.execute(f"CREATE TABLE {table.full_name} ({columns}, CONSTRAINT [PK_{table.name}] PRIMARY KEY ({key}))")


def insert_rows(connection: pymssql.Connection, table: Table) -> None:
    cursor = connection.cursor()
    names = ", ".join(f"[{column.name}]" for column in table.columns)
    if table.identity:
        cursor.execute(f"SET IDENTITY_INSERT {table.full_name} ON")
    for begin in range(0, len(table.rows), _ROWS_PER_INSERT):
        values = ",\n".join(_row_literal(table, row) for row in table.rows[begin : begin + _ROWS_PER_INSERT])
        cursor.execute(f"INSERT INTO {table.full_name} ({names}) VALUES {values}")
    if table.identity:
        cursor.execute(f"SET IDENTITY_INSERT {table.full_name} OFF")


def enable_cdc(connection: pymssql.Connection, tables: list[Table]) -> None:
    cursor = connection.cursor()
    cursor.execute("EXEC sys.sp_cdc_enable_db")
    for table in tables:
        cursor.execute(
            "EXEC sys.sp_cdc_enable_table @source_schema = %s, @source_name = %s, @role_name = NULL",
            (table.schema, table.name),
        )


def _row_literal(table: Table, row: list[str]) -> str:
    return "(" + ", ".join(c.literal(v) for c, v in zip(table.columns, row, strict=True)) + ")"


@dataclass
class ChangeStream:
    """Seeded transactions of a few statements each. ``changes`` counts the rows changed so far."""

    tables: list[Table]
    seed: int = 11
    changes: int = 0
    _random: random.Random = field(init=False)
    _deleted: list[tuple[Table, tuple[str, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def transactions(self) -> Iterator[str]:
        """Batches of T-SQL, one transaction each, without an end."""
        weights = [len(table.keys) + 50 for table in self.tables]
        while True:
            statements = []
            for table in self._random.choices(self.tables, weights, k=self._random.randrange(1, 25)):
                statements.append(self._statement(table))
            yield "\n".join(["BEGIN TRANSACTION", *statements, "COMMIT TRANSACTION"])

    def _statement(self, table: Table) -> str:
        kind = self._random.random()
        if kind < 0.06 and len(table.keys) > 50:
            return self._delete(table)
        if kind < 0.10 and self._deleted:
            return self._insert_again()
        return self._update(table)

    def _update(self, table: Table) -> str:
        plain = [c for c in table.columns if c.name not in table.key and not c.identity]
        chosen = self._random.sample(plain, self._random.randrange(1, min(4, len(plain)) + 1))
        settings = ", ".join(f"[{column.name}] = {self._value(column)}" for column in chosen)
        self.changes += 1
        return f"UPDATE {table.full_name} SET {settings} WHERE {table.where(self._random.choice(table.keys))}"

    def _delete(self, table: Table) -> str:
        key = table.keys.pop(self._random.randrange(len(table.keys)))
        self._deleted.append((table, key))
        self.changes += 1
        return f"DELETE FROM {table.full_name} WHERE {table.where(key)}"

    def _insert_again(self) -> str:
        table, key = self._deleted.pop(self._random.randrange(len(self._deleted)))
        names = ", ".join(f"[{column.name}]" for column in table.columns)
        table.keys.append(key)
        self.changes += 1
        insert = f"INSERT INTO {table.full_name} ({names}) VALUES {_row_literal(table, table.row_of[key])}"
        if not table.identity:
            return insert
        return f"SET IDENTITY_INSERT {table.full_name} ON\n{insert}\nSET IDENTITY_INSERT {table.full_name} OFF"

    def _value(self, column: Column) -> str:
        """A new value as a literal."""
        pick = self._random
        if column.nullable and pick.random() < 0.15:
            return "NULL"
        if column.type.startswith(("nvarchar", "nchar")):
            length = int(column.type.partition("(")[2].rstrip(")"))
            text = pick.choice(_TEXT)[:length] if length > 3 else "".join(pick.choices("ABCXYZ", k=length))
            return "N'" + text.replace("'", "''") + "'"
        if column.type == "xml":
            return f"N'<StoreSurvey><AnnualSales>{pick.randrange(10**6)}</AnnualSales><Note>ünï</Note></StoreSurvey>'"
        if column.type == "geography":
            return f"0x{pick.randbytes(22).hex().upper()}"
        if column.type == "uniqueidentifier":
            return f"'{uuid.UUID(int=pick.getrandbits(128))}'"
        if column.type == "datetime":
            moment = datetime(2020, 1, 1) + timedelta(milliseconds=pick.randrange(10**11))
            return f"'{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}'"
        limits = {"bit": 2, "tinyint": 256, "smallint": 32768, "int": 2**31}
        if column.type in limits:
            return str(pick.randrange(limits[column.type]))
        scale = 4 if column.type == "money" else 2
        return f"{pick.randrange(10**8) / 10**scale:.{scale}f}"
