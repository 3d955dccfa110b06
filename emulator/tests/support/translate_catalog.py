"""A small catalog for the translator's tests: tables of databases Shop and Other as the engine would describe them."""

from __future__ import annotations

import itertools

from sqlserver_emulator.collations import DEFAULT_COLLATION, Collation
from sqlserver_emulator.engine.translate.values.type_rules import storage_type
from sqlserver_emulator.engine.translation import (
    CatalogColumn,
    CatalogObject,
    InlineFunction,
    ScalarFunction,
    SequenceObject,
    Synonym,
)
from sqlserver_emulator.types import LSN, MAX_LENGTH, TsqlType

_SIZED = ("char", "varchar", "nchar", "nvarchar", "binary", "varbinary")


def tsql_type(text: str) -> TsqlType:
    """`nvarchar(20)` as a type."""
    name, _, rest = text.partition("(")
    facets = [MAX_LENGTH if f.strip() == "max" else int(f) for f in rest.rstrip(")").split(",")] if rest else []
    if name in _SIZED:
        return TsqlType(name, facets[0] if facets else 1)
    if name in ("decimal", "numeric"):
        return TsqlType(name, precision=facets[0], scale=facets[1])
    if name in ("datetime2", "time", "datetimeoffset"):
        return TsqlType(name, scale=facets[0] if facets else 7)
    if name == "sysname":
        return TsqlType(name, 128)
    return TsqlType(name)


def table(object_id: int, full_name: str, columns: str, key: tuple[str, ...] = ()) -> CatalogObject:
    """``columns``: `name type[!] [identity|computed|default]`, separated by `;`. `!` is NOT NULL."""
    database, schema, name = full_name.split(".")
    kind = "S" if schema in ("sys", "INFORMATION_SCHEMA") else "U"
    made = tuple(_column(i, text.split()) for i, text in enumerate(columns.split(";"), 1))
    return CatalogObject(object_id, database, schema, name, kind, f"{database}.{schema}", name, made, key)


def _column(column_id: int, words: list[str]) -> CatalogColumn:
    return CatalogColumn(
        name=words[0],
        column_id=column_id,
        type=tsql_type(words[1].rstrip("!")),
        nullable=not words[1].endswith("!"),
        identity="identity" in words,
        computed="computed" in words,
        has_default="default" in words,
        postgres_name=words[0],
    )


_ORDERS = """OrderID int! identity; CustomerID int!; Amount decimal(18,2); Note nvarchar(50); Placed datetime2(7)!;
    Paid bit!; Code char(5); Price money; Blob varbinary(max); Guid uniqueidentifier; Stamp datetime; Ver rowversion!"""
_TYPES = """i int!; bi bigint; si smallint; ti tinyint; bt bit; de decimal(10,4); mo money; fl float; re real; da date;
    tm time(7); d2 datetime2(7); dt datetime; sd smalldatetime; dto datetimeoffset(7); vc varchar(20); nv nvarchar(20);
    nm nvarchar(max); ch char(6); bn binary(4); vb varbinary(10); ug uniqueidentifier"""
_CHANGES = """__$start_lsn binary(10)!; __$end_lsn binary(10); __$seqval binary(10)!; __$operation int!;
    __$update_mask varbinary(128); OrderID int; Amount decimal(18,2); __$command_id int"""
_CHANGE_TABLES = """object_id int!; version int; source_object_id int; capture_instance sysname!; start_lsn binary(10);
    create_date datetime"""
_COLUMNS = "object_id int!; name sysname; column_id int!; system_type_id tinyint!; is_identity bit!"
_TIMELINE = """start_lsn binary(10)!; tran_begin_time datetime; tran_end_time datetime; tran_id varbinary(10);
    tran_begin_lsn binary(10)"""

TABLES = (
    table(1001, "Shop.dbo.Orders", _ORDERS, ("OrderID",)),
    table(1002, "Shop.dbo.Customers", "CustomerID int!; Name nvarchar(100)!; City varchar(30)", ("CustomerID",)),
    table(1003, "Shop.dbo.t", "a int; b nvarchar(10); c decimal(9,3); d date; e bigint"),
    table(1004, "Shop.dbo.types", _TYPES, ("i",)),
    table(1005, "Other.dbo.Orders", "OrderID int!; Label varchar(10)", ("OrderID",)),
    table(1006, "Shop.sales.Orders", "OrderID int!; Region varchar(10)", ("OrderID",)),
    table(2001, "Shop.sys.objects", "name sysname!; object_id int!; schema_id int!; type char(2)"),
    table(2002, "Shop.sys.schemas", "name sysname!; schema_id int!"),
    table(
        2003,
        "Shop.sys.columns",
        _COLUMNS,
    ),
    table(2004, "Shop.sys.databases", "name sysname!; database_id int!; is_cdc_enabled bit!"),
    table(
        2005,
        "Shop.INFORMATION_SCHEMA.TABLES",
        "TABLE_SCHEMA nvarchar(128); TABLE_NAME sysname!; TABLE_TYPE varchar(10)",
    ),
    table(3001, "Shop.cdc.change_tables", _CHANGE_TABLES),
    table(3002, "Shop.cdc.lsn_time_mapping", _TIMELINE),
    table(3003, "Shop.cdc.dbo_Orders_CT", _CHANGES),
    table(3004, "Shop.cdc.captured_columns", "object_id int!; column_name sysname!; column_id int"),
)


_VERSIONS = itertools.count(1)


class FakeCatalog:
    """Implements ``translation.CatalogReader`` over TABLES and what a test adds."""

    def __init__(self, *more: CatalogObject) -> None:
        self.tables = [*TABLES, *more]
        self.version = next(_VERSIONS)
        self.databases = ("Shop", "Other", "master")

    def changed(self) -> None:
        self.version = next(_VERSIONS)

    def database(self, name: str) -> str | None:
        return next((d for d in self.databases if d.lower() == name.lower()), None)

    def collation(self, database: str) -> Collation:
        return DEFAULT_COLLATION

    def table(self, database: str, schema: str | None, name: str) -> CatalogObject | None:
        schemas = [schema] if schema else ["dbo", "sys"]
        for wanted in schemas:
            for candidate in self.tables:
                place = (candidate.database, candidate.schema.lower(), candidate.name.lower())
                if place == (database, wanted.lower(), name.lower()):
                    return candidate
        return None

    def inline_function(self, database: str, schema: str, name: str) -> InlineFunction | None:
        if (schema.lower(), name.lower()) != ("cdc", "fn_cdc_get_all_changes_dbo_orders"):
            return None
        body = (
            'SELECT t."__$start_lsn", t."__$seqval", t."__$operation", t."OrderID", t."Amount" '
            'FROM "Shop.cdc"."dbo_Orders_CT" AS t '
            "WHERE t.\"__$start_lsn\" BETWEEN $1 AND $2 AND $3 = 'all'"
        )
        parameters = (("@from_lsn", LSN), ("@to_lsn", LSN), ("@row_filter_option", TsqlType("nvarchar", 30)))
        return InlineFunction(database, "cdc", "fn_cdc_get_all_changes_dbo_Orders", parameters, body)

    def sequence(self, database: str, schema: str | None, name: str) -> SequenceObject | None:
        return None

    def user_function(self, database: str, schema: str, name: str) -> ScalarFunction | None:
        return None

    def scalar_function(self, database: str, schema: str, name: str) -> str | None:
        known = ("fn_cdc_get_max_lsn", "fn_cdc_increment_lsn", "fn_cdc_map_lsn_to_time", "fn_cdc_get_min_lsn")
        return f'"{database}.sys"."{name.lower()}"' if schema.lower() == "sys" and name.lower() in known else None

    def user_type(self, database: str, schema: str | None, name: str) -> TsqlType | None:
        return TsqlType("nvarchar", 50) if name.lower() == "name" else None

    def synonym(self, database: str, schema: str | None, name: str) -> Synonym | None:
        return None


def create_tables_sql(tables: tuple[CatalogObject, ...] = TABLES) -> str:
    """The tables in PostgreSQL."""
    statements = [f'CREATE SCHEMA "{schema}";' for schema in dict.fromkeys(t.postgres_schema for t in tables)]
    for made in tables:
        columns = []
        for column in made.columns:
            options = " GENERATED ALWAYS AS IDENTITY" if column.identity else "" if column.nullable else " NOT NULL"
            if column.type.name == "rowversion":
                options = " NOT NULL DEFAULT '\\x0000000000000001'"
            columns.append(f'"{column.name}" {storage_type(column.type)}{options}')
        statements.append(f'CREATE TABLE "{made.postgres_schema}"."{made.name}" ({", ".join(columns)});')
    return "\n".join(statements)
