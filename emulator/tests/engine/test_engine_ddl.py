"""DDL: what it leaves in the tables, in the catalog views and in the log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest

from engine_client import Client
from sqlserver_emulator.assembly.factory import Engine
from sqlserver_emulator.types import TsqlType

_SLOT = "test_engine_ddl"


@pytest.fixture
def logged(engine: Engine, database: str) -> Iterator[Callable[[str], list[dict[str, object]]]]:
    """Logical messages of a kind that were committed since the test began."""
    session = engine.engine_session(database)
    session.fetch_all("SELECT pg_create_logical_replication_slot($1, 'pgoutput')", [_SLOT])
    session.fetch_all(f"CREATE PUBLICATION {_SLOT}")

    def read(prefix: str) -> list[dict[str, object]]:
        changes = session.fetch_all(
            f"SELECT data FROM pg_logical_slot_peek_binary_changes('{_SLOT}', NULL, NULL, 'proto_version', '1',"
            f" 'publication_names', '{_SLOT}', 'messages', 'true') WHERE get_byte(data, 0) = ascii('M')"
        )
        found = [re.search(rb"(?s)%s\0.{4}(\{.*\})$" % prefix.encode(), bytes(data)) for (data,) in changes]  # type: ignore[call-overload]
        return [json.loads(match[1]) for match in found if match]

    yield read
    session.fetch_all("SELECT pg_drop_replication_slot($1)", [_SLOT])
    session.fetch_all(f"DROP PUBLICATION {_SLOT}")
    session.close()


def test_create_table_reads_everything_a_declaration_may_say(client: Client) -> None:
    client.run(
        """
        CREATE TABLE [dbo].[Order Lines] (
            [OrderID] int NOT NULL,
            LineNumber smallint NOT NULL CONSTRAINT DF_Line DEFAULT ((1)),
            Amount decimal(18, 2) NULL DEFAULT 0,
            Twice AS (Amount * 2) PERSISTED,
            Label AS CONCAT(N'#', LineNumber),
            RowGuid uniqueidentifier ROWGUIDCOL NOT NULL CONSTRAINT DF_Guid DEFAULT (newid()),
            Changed datetime NOT NULL DEFAULT getdate(),
            Version rowversion,
            CONSTRAINT [PK_Order Lines] PRIMARY KEY CLUSTERED ([OrderID] ASC, LineNumber DESC)
                WITH (PAD_INDEX = OFF, FILLFACTOR = 90) ON [PRIMARY],
            CONSTRAINT UQ_Guid UNIQUE NONCLUSTERED (RowGuid),
            CONSTRAINT CK_Amount CHECK (([Amount] >= (0))),
            INDEX IX_Changed NONCLUSTERED (Changed) INCLUDE (Amount)
        ) ON [PRIMARY] TEXTIMAGE_ON [PRIMARY]
        """
    )
    client.run("INSERT INTO [Order Lines] (OrderID, Amount) VALUES (7, 1.5)")
    (row,) = client.rows("SELECT LineNumber, Amount, Twice, Label FROM dbo.[order lines]")
    assert [str(value) for value in row] == ["1", "1.50", "3.00", "#1"]
    table = "OBJECT_ID(N'dbo.[Order Lines]')"
    assert client.rows(
        f"SELECT name, type_desc, is_primary_key, is_unique FROM sys.indexes WHERE object_id = {table} "
        "ORDER BY index_id"
    ) == [
        ("PK_Order Lines", "CLUSTERED", 1, 1),
        ("UQ_Guid", "NONCLUSTERED", 0, 1),
        ("IX_Changed", "NONCLUSTERED", 0, 0),
    ]
    assert client.rows(f"SELECT definition FROM sys.check_constraints WHERE parent_object_id = {table}") == [
        ("([Amount]>=(0))",)
    ]
    assert client.rows(
        "SELECT c.name, d.name, d.definition FROM sys.default_constraints d JOIN sys.columns c ON "
        "c.object_id = d.parent_object_id"
        f" AND c.column_id = d.parent_column_id WHERE d.parent_object_id = {table} AND d.is_system_named = "
        "0 ORDER BY c.column_id"
    ) == [("LineNumber", "DF_Line", "((1))"), ("RowGuid", "DF_Guid", "(newid())")]
    assert client.rows(
        "SELECT c.name, ic.key_ordinal, ic.is_descending_key, ic.is_included_column FROM "
        "sys.index_columns ic JOIN sys.columns c"
        f" ON c.object_id = ic.object_id AND c.column_id = ic.column_id WHERE ic.object_id = {table} ORDER "
        "BY ic.index_id, ic.index_column_id"
    ) == [
        ("OrderID", 1, 0, 0),
        ("LineNumber", 2, 1, 0),
        ("RowGuid", 1, 0, 0),
        ("Changed", 1, 0, 0),
        ("Amount", 0, 0, 1),
    ]


def test_computed_columns_take_the_type_of_their_expression(client: Client) -> None:
    client.run(
        "CREATE TABLE dbo.computed (a nvarchar(7), b AS a, c AS UPPER(a) + N'!',"
        " d AS (CASE WHEN a IS NULL THEN 0 ELSE 1 END))"
    )
    client.run("INSERT INTO dbo.computed VALUES (N'x')")
    assert client.rows("SELECT * FROM dbo.computed") == [("x", "x", "X!", 1)]
    assert client.types("SELECT b, d FROM dbo.computed") == {"b": TsqlType("nvarchar", 7), "d": TsqlType("int")}
    assert client.error("UPDATE dbo.computed SET b = N'y'").number in (271, 8102)


def test_a_name_that_is_taken_is_refused(client: Client) -> None:
    client.run("CREATE TABLE dbo.taken (a int)")
    assert client.error("CREATE TABLE dbo.Taken (b int)").number == 2714
    assert client.error("CREATE TABLE nowhere.taken (b int)").number == 2760
    assert client.error("CREATE TABLE dbo.twice (b int, B int)").number == 2705


def test_names_longer_than_postgresqls_stay_apart(client: Client) -> None:
    names = [f"{'very_' * 20}long_{end}" for end in ("first", "second")]
    for name in names:
        client.run(f"CREATE TABLE dbo.{name} ({name}_column int CONSTRAINT pk_{name} PRIMARY KEY)")
        client.run(f"INSERT INTO dbo.{name} ({name}_column) VALUES ({len(name)})")
    assert [client.types(f"SELECT * FROM {name}") for name in names] == [
        {f"{name}_column": TsqlType("int")} for name in names
    ]
    assert client.rows("SELECT name FROM sys.tables WHERE name LIKE 'very%' ORDER BY name") == [
        (name,) for name in names
    ]
    assert names[0] in client.error(f"INSERT INTO dbo.{names[0]} VALUES ({len(names[0])})").message


def test_failed_ddl_leaves_nothing(client: Client) -> None:
    assert client.attempt(
        "CREATE TABLE dbo.nothing (a int, CONSTRAINT fk FOREIGN KEY (a) REFERENCES dbo.missing (a))"
    ).errors
    assert client.value("SELECT COUNT(*) FROM sys.objects WHERE name IN ('nothing', 'fk')") == 0
    client.run("CREATE TABLE dbo.nothing (a int)")


def test_ddl_is_part_of_the_transaction(client: Client, connect: Callable[..., Client]) -> None:
    client.run("BEGIN TRAN; CREATE TABLE dbo.maybe (a int); INSERT INTO dbo.maybe VALUES (1)")
    assert client.rows("SELECT a FROM dbo.maybe") == [(1,)]
    assert connect().error("SELECT a FROM dbo.maybe").number == 208
    client.run("ROLLBACK")
    assert client.error("SELECT a FROM dbo.maybe").number == 208


def test_other_sessions_see_ddl_as_soon_as_it_is_committed(client: Client, connect: Callable[..., Client]) -> None:
    other = connect()
    client.run("CREATE TABLE dbo.seen (a int); INSERT INTO dbo.seen VALUES (1)")
    assert other.types("SELECT * FROM dbo.seen") == {"a": TsqlType("int")}
    client.run("ALTER TABLE dbo.seen ALTER COLUMN a nvarchar(10)")
    assert other.types("SELECT * FROM dbo.seen") == {"a": TsqlType("nvarchar", 10)}
    assert other.rows("SELECT * FROM dbo.seen") == [("1",)]


def test_added_columns_with_a_default_fill_rows_only_where_t_sql_says_so(client: Client) -> None:
    client.run("CREATE TABLE dbo.grown (a int); INSERT INTO dbo.grown VALUES (1)")
    client.run(
        "ALTER TABLE dbo.grown ADD b int NULL DEFAULT (5), c int NOT NULL DEFAULT (6), d int NULL DEFAULT "
        "(7) WITH VALUES"
    )
    assert client.rows("SELECT a, b, c, d FROM dbo.grown") == [(1, None, 6, 7)]
    assert client.error("ALTER TABLE dbo.grown ADD e int NOT NULL").number == 4901


def test_column_ids_of_dropped_columns_are_not_used_again(client: Client) -> None:
    client.run("CREATE TABLE dbo.ids (a int, b int); ALTER TABLE dbo.ids DROP COLUMN b; ALTER TABLE dbo.ids ADD b int")
    assert client.rows("SELECT name, column_id FROM sys.columns WHERE object_id = OBJECT_ID('dbo.ids')") == [
        ("a", 1),
        ("b", 3),
    ]


def test_a_column_in_use_cannot_be_dropped(client: Client) -> None:
    client.run(
        "CREATE TABLE dbo.bound (a int CONSTRAINT df_a DEFAULT 1, b int, c AS b + 1, d int); CREATE INDEX "
        "ix_d ON dbo.bound (d)"
    )
    assert [client.error(f"ALTER TABLE dbo.bound DROP COLUMN {column}").message for column in "abd"] == [
        "The object 'df_a' is dependent on column 'a'.",
        "The object 'c' is dependent on column 'b'.",
        "The object 'ix_d' is dependent on column 'd'.",
    ]
    client.run(
        "ALTER TABLE dbo.bound DROP CONSTRAINT df_a; ALTER TABLE dbo.bound DROP COLUMN c, a, b; DROP "
        "INDEX ix_d ON dbo.bound"
    )
    assert client.types("SELECT * FROM dbo.bound") == {"d": TsqlType("int")}


def test_alter_column_converts_rows_or_refuses(client: Client) -> None:
    client.run(
        "CREATE TABLE dbo.retyped (a nvarchar(10), b int DEFAULT 3); INSERT INTO dbo.retyped VALUES (N'123456', 5)"
    )
    assert client.attempt("ALTER TABLE dbo.retyped ALTER COLUMN a nvarchar(3)").errors[0].number in (2628, 8152)
    client.run(
        "ALTER TABLE dbo.retyped ALTER COLUMN a int; ALTER TABLE dbo.retyped ALTER COLUMN b decimal(9, 2) NOT NULL"
    )
    client.run("INSERT INTO dbo.retyped (a) VALUES (7)")
    assert [[str(v) for v in row] for row in client.rows("SELECT a, b FROM dbo.retyped")] == [
        ["123456", "5.00"],
        ["7", "3.00"],
    ]
    assert client.error("ALTER TABLE dbo.retyped ALTER COLUMN nope int").number == 4924


def test_alter_column_to_not_null_needs_rows_without_nulls(client: Client) -> None:
    client.run("CREATE TABLE dbo.nullable (a int); INSERT INTO dbo.nullable VALUES (NULL)")
    assert client.error("ALTER TABLE dbo.nullable ALTER COLUMN a int NOT NULL").number == 515
    client.run("UPDATE dbo.nullable SET a = 1; ALTER TABLE dbo.nullable ALTER COLUMN a int NOT NULL")
    assert client.error("INSERT INTO dbo.nullable VALUES (NULL)").number == 515


def test_drop_table_minds_foreign_keys(client: Client) -> None:
    client.run("CREATE TABLE dbo.owner (id int PRIMARY KEY); CREATE TABLE dbo.owned (id int REFERENCES dbo.owner (id))")
    assert client.error("DROP TABLE dbo.owner").number == 3726
    assert client.error("TRUNCATE TABLE dbo.owner").number == 4712
    client.run("DROP TABLE dbo.owned, dbo.owner; DROP TABLE IF EXISTS dbo.owner")
    assert client.error("DROP TABLE dbo.owner").number == 3701
    assert client.value("SELECT COUNT(*) FROM sys.objects WHERE name LIKE '[PF]K__own%'") == 0


def test_truncate_restarts_the_identity(client: Client) -> None:
    client.run("CREATE TABLE dbo.emptied (id int IDENTITY(5, 1), x int); INSERT INTO dbo.emptied (x) VALUES (1), (2)")
    client.run("TRUNCATE TABLE dbo.emptied; INSERT INTO dbo.emptied (x) VALUES (3)")
    assert client.rows("SELECT id FROM dbo.emptied") == [(5,)]


def test_a_view_keeps_types_and_survives_changes_of_its_table(client: Client) -> None:
    client.run("CREATE TABLE dbo.base (a nvarchar(9), b int); INSERT INTO dbo.base VALUES (N'x', 1)")
    client.run("CREATE VIEW dbo.seen_through AS SELECT a, b * 2 AS c FROM dbo.base WHERE b > 0")
    assert client.types("SELECT * FROM dbo.seen_through") == {"a": TsqlType("nvarchar", 9), "c": TsqlType("int")}
    client.run("ALTER TABLE dbo.base ALTER COLUMN b bigint; ALTER TABLE dbo.base ADD d int")
    assert client.rows("SELECT a, c FROM dbo.seen_through") == [("x", 2)]
    client.run("DROP TABLE dbo.base")
    assert client.error("SELECT * FROM dbo.seen_through").number == 208
    client.run("CREATE TABLE dbo.base (a nvarchar(9), b int)")
    assert client.rows("SELECT * FROM dbo.seen_through") == []
    client.run("DROP VIEW dbo.seen_through")


def test_alter_view_replaces_the_query(client: Client) -> None:
    client.run("CREATE VIEW dbo.changing AS SELECT 1 AS a")
    client.run("ALTER VIEW dbo.changing (b) AS SELECT N'x'")
    assert client.rows("SELECT b FROM dbo.changing") == [("x",)]
    assert client.error("ALTER VIEW dbo.no_such AS SELECT 1 AS a").number == 208


def test_procedures_are_kept_changed_and_dropped(client: Client) -> None:
    client.run("CREATE PROCEDURE dbo.add_one @n int AS SELECT @n + 1 AS n")
    assert client.rows("EXEC dbo.add_one 1") == [(2,)]
    client.run("ALTER PROCEDURE dbo.add_one @n int AS SELECT @n + 10 AS n")
    assert client.rows("EXEC dbo.add_one @n = 1") == [(11,)]
    assert client.error("CREATE PROC dbo.add_one AS SELECT 1").number == 2714
    client.run("DROP PROCEDURE dbo.add_one")
    assert client.error("EXEC dbo.add_one 1").number == 2812


def test_alias_types_stand_for_their_system_type(client: Client) -> None:
    client.run("CREATE TYPE dbo.Name FROM nvarchar(50) NOT NULL")
    client.run("CREATE TABLE dbo.named (n dbo.Name, m [Name] NULL)")
    assert client.types("SELECT n FROM dbo.named") == {"n": TsqlType("nvarchar", 50)}
    assert client.rows(
        "SELECT c.name, t.name, c.is_nullable FROM sys.columns c JOIN sys.types t ON t.user_type_id = c.user_type_id"
        " WHERE c.object_id = OBJECT_ID('dbo.named') ORDER BY c.column_id"
    ) == [("n", "Name", 0), ("m", "Name", 1)]
    assert client.error("DROP TYPE dbo.Name").number == 3732


def test_schemas_and_databases_keep_names_apart(client: Client) -> None:
    client.run("CREATE SCHEMA sales")
    client.run("CREATE TABLE sales.t (a int); CREATE TABLE dbo.t (a nvarchar(3)); INSERT INTO sales.t VALUES (1)")
    client.run("CREATE DATABASE ddl_other")
    client.run("USE ddl_other; CREATE TABLE dbo.t (a date); INSERT INTO dbo.t VALUES ('2024-01-01')")
    client.run("USE ddl")
    assert [str(client.value(f"SELECT a FROM {name}")) for name in ("sales.t", "ddl_other.dbo.t")] == [
        "1",
        "2024-01-01",
    ]
    assert client.error("DROP SCHEMA sales").number == 3729
    assert client.error("CREATE DATABASE DDL_Other").number == 1801
    client.run("DROP TABLE sales.t; DROP SCHEMA sales; DROP DATABASE ddl_other")
    assert client.error("SELECT * FROM ddl_other.dbo.t").number in (208, 911)
    assert client.error("USE ddl_other").number == 911


def test_new_database_takes_the_system_views_of_a_dropped_one_and_nothing_else_of_it(client: Client) -> None:
    def make(name: str) -> tuple[object, ...]:
        """Return its number, and its views but those that CDC makes for each database."""
        client.run(f"CREATE DATABASE {name}")
        views = (
            f"SELECT object_id, name FROM {name}.sys.all_views WHERE name NOT LIKE 'dm[_]cdc%' ORDER BY schema_id, name"
        )
        return client.value(f"SELECT DB_ID('{name}')"), *client.rows(views)

    def count_columns(name: str) -> object:
        return client.value(
            f"SELECT COUNT(*) FROM {name}.sys.all_columns AS c JOIN {name}.sys.all_objects AS o"
            " ON o.object_id = c.object_id WHERE o.schema_id = SCHEMA_ID('sys')"
        )

    first = make("spare_first")
    count = count_columns("spare_first")
    created = client.value("SELECT MAX(create_date) FROM spare_first.sys.all_objects")
    client.run("USE spare_first; CREATE TABLE dbo.t (a int); CREATE USER guest_of_it WITHOUT LOGIN; USE ddl")
    client.run("DROP DATABASE spare_first")
    assert make("spare_second") == first
    assert count_columns("spare_second") == count
    assert client.value("SELECT MIN(create_date) FROM spare_second.sys.all_objects") > created
    assert client.rows("SELECT name FROM spare_second.sys.tables") == []
    assert client.rows("SELECT name FROM spare_second.sys.database_principals WHERE name = 'guest_of_it'") == []
    assert client.value("SELECT COUNT(*) FROM spare_second.INFORMATION_SCHEMA.TABLES") == 0
    client.run("USE spare_second; CREATE USER reader_of_it WITHOUT LOGIN; GRANT SELECT ON sys.tables TO reader_of_it")
    client.run("USE ddl; DROP DATABASE spare_second")
    number, *others = make("spare_third")
    assert number == first[0]
    assert [name for _, name in others] == [name for _, name in first[1:]]
    client.run("DROP DATABASE spare_third")


def test_database_options_show_in_sys_databases(client: Client) -> None:
    client.run(
        "ALTER DATABASE ddl SET ALLOW_SNAPSHOT_ISOLATION ON; ALTER DATABASE ddl SET RECOVERY SIMPLE WITH NO_WAIT"
    )
    assert client.rows(
        "SELECT snapshot_isolation_state_desc, recovery_model_desc FROM sys.databases WHERE name = 'ddl'"
    ) == [("ON", "SIMPLE")]
    assert "SET ENCRYPTION" in client.error("ALTER DATABASE ddl SET ENCRYPTION ON").message


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE ASSEMBLY a FROM 0x00",
        "CREATE FULLTEXT CATALOG c",
        "CREATE CERTIFICATE c WITH SUBJECT = 'x'",
    ],
)
def test_ddl_that_is_not_there_is_refused_by_name(client: Client, statement: str) -> None:
    assert " ".join(statement.split()[:2]) in client.error(statement).message


def test_sp_rename_renames_tables_columns_and_keys(client: Client) -> None:
    client.run(
        "CREATE TABLE dbo.before (id int CONSTRAINT pk_before PRIMARY KEY, x int); INSERT INTO dbo.before VALUES (1, 2)"
    )
    client.run(
        "EXEC sp_rename 'dbo.before.x', 'y', 'COLUMN'; EXEC sp_rename 'dbo.before', 'after'; EXEC "
        "sp_rename 'pk_before', 'pk_after'"
    )
    assert client.rows("SELECT id, y FROM dbo.after") == [(1, 2)]
    assert "'pk_after'" in client.error("INSERT INTO dbo.after VALUES (1, 3)").message
    assert client.error("EXEC sp_rename 'dbo.before', 'x'").number == 15225


def test_ddl_on_tables_enters_the_log_with_the_users_text(
    client: Client, logged: Callable[[str], list[dict[str, object]]]
) -> None:
    client.run("CREATE TABLE dbo.logged (id int)")
    client.run("ALTER TABLE dbo.logged  ADD x int NULL")
    client.run("ALTER TABLE dbo.logged ALTER COLUMN x bigint")
    client.run("ALTER TABLE dbo.logged DROP COLUMN x")
    client.run("BEGIN TRAN; ALTER TABLE dbo.logged ADD undone int; ROLLBACK")
    messages = [m for m in logged("ddl") if m["table"] == "logged"]
    assert [(m["kind"], m["column_id"], m["required_column_update"]) for m in messages] == [
        ("add_column", 2, False),
        ("alter_column", 2, True),
        ("drop_column", 2, False),
    ]
    assert messages[0]["ddl"] == "ALTER TABLE dbo.logged  ADD x int NULL"
    assert (messages[0]["database"], messages[0]["schema"]) == ("ddl", "dbo")


def test_an_update_of_a_key_column_says_so_in_the_log(
    client: Client, logged: Callable[[str], list[dict[str, object]]]
) -> None:
    client.run("CREATE TABLE dbo.rekeyed (id int PRIMARY KEY, x int); INSERT INTO dbo.rekeyed VALUES (1, 1)")
    client.run("UPDATE dbo.rekeyed SET x = 2; UPDATE dbo.rekeyed SET id = id + 1")
    client.run("BEGIN TRAN; UPDATE dbo.rekeyed SET id = id + 1; UPDATE dbo.rekeyed SET x = 3; COMMIT")
    table = client.value("SELECT OBJECT_ID('dbo.rekeyed')")
    update = {"object_id": table, "statement": "UPDATE"}
    assert logged("deferred") == [update, update, {"object_id": 0}]
