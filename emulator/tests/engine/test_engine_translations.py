"""Translations are kept while the catalog changes elsewhere, and made again where it changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from engine_client import Client
from sqlserver_emulator.engine.translate import statements
from sqlserver_emulator.engine.translate.expressions.emission import Emission
from sqlserver_emulator.engine.translation import Translated

PASSWORD = "R3ader!"
Connect = Callable[..., Client]


@pytest.fixture
def translated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that were translated."""
    seen: list[str] = []
    translate = statements.translate_statement

    def noting(text: str, emission: Emission) -> Translated:
        seen.append(text)
        return translate(text, emission)

    monkeypatch.setattr(statements, "translate_statement", noting)
    return seen


@pytest.fixture
def goods(module_client: Client) -> Iterator[Client]:
    module_client.run("CREATE TABLE dbo.goods (id int NOT NULL PRIMARY KEY, name nvarchar(20))")
    module_client.run("INSERT INTO dbo.goods VALUES (1, N'bread')")
    yield module_client
    module_client.run("DROP TABLE IF EXISTS dbo.goods")


@pytest.mark.parametrize(
    "elsewhere",
    [
        "CREATE TABLE dbo.elsewhere (a int); DROP TABLE dbo.elsewhere",
        "CREATE DATABASE translations_elsewhere; DROP DATABASE translations_elsewhere",
        "BEGIN TRAN; CREATE TABLE dbo.elsewhere (a int); SELECT * FROM dbo.goods; ROLLBACK",
        "DECLARE @v TABLE (a int); INSERT INTO @v VALUES (1)",
    ],
)
def test_statement_is_not_translated_again_after_a_change_elsewhere(
    goods: Client, connect: Connect, translated: list[str], elsewhere: str
) -> None:
    goods.rows("SELECT * FROM dbo.goods")
    translated.clear()
    connect().run(elsewhere)
    assert goods.rows("SELECT * FROM dbo.goods") == [(1, "bread")]
    assert connect().rows("SELECT * FROM dbo.goods") == [(1, "bread")]
    assert "SELECT * FROM dbo.goods" not in translated


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("ALTER TABLE dbo.goods ADD price int", [(1, "bread", None)]),
        ("ALTER TABLE dbo.goods DROP COLUMN name", [(1,)]),
        ("EXEC sp_rename 'dbo.goods.name', 'title', 'COLUMN'", [(1, "bread")]),
        ("DROP TABLE dbo.goods; CREATE TABLE dbo.goods (name int); INSERT INTO dbo.goods VALUES (7)", [(7,)]),
        (
            "DROP TABLE dbo.goods; CREATE TABLE dbo.goods (id int NOT NULL PRIMARY KEY, name nvarchar(20))",
            [],
        ),
    ],
)
def test_statement_is_translated_again_after_a_change_of_its_table(
    goods: Client, connect: Connect, translated: list[str], change: str, expected: list[tuple[object, ...]]
) -> None:
    other = connect()
    for client in (goods, other):
        client.rows("SELECT * FROM dbo.goods")
    translated.clear()
    connect().run(change)
    for client in (goods, other):
        assert client.rows("SELECT * FROM dbo.goods") == expected
    assert translated.count("SELECT * FROM dbo.goods") == 1, "once for both"


def test_name_is_resolved_again_when_a_synonym_or_a_table_gets_it(goods: Client, connect: Connect) -> None:
    other = connect()
    for client in (goods, other):
        assert client.error("SELECT * FROM bread_list").number == 208
    connect().run("CREATE SYNONYM dbo.bread_list FOR dbo.goods")
    for client in (goods, other):
        assert client.rows("SELECT * FROM bread_list") == [(1, "bread")]
    connect().run("DROP SYNONYM dbo.bread_list; CREATE TABLE dbo.bread_list (x int)")
    for client in (goods, other):
        assert client.rows("SELECT * FROM bread_list") == []
    connect().run("DROP TABLE dbo.bread_list")
    for client in (goods, other):
        assert client.error("SELECT * FROM bread_list").number == 208


def test_function_that_is_replaced_is_expanded_again(goods: Client, connect: Connect) -> None:
    other = connect()
    goods.run("CREATE FUNCTION dbo.listed() RETURNS TABLE AS RETURN SELECT id FROM dbo.goods")
    assert other.rows("SELECT * FROM dbo.listed()") == [(1,)]
    goods.run("ALTER FUNCTION dbo.listed() RETURNS TABLE AS RETURN SELECT id + 1 AS id, name FROM dbo.goods")
    assert other.rows("SELECT * FROM dbo.listed()") == [(2, "bread")]
    goods.run("DROP FUNCTION dbo.listed")
    assert other.error("SELECT * FROM dbo.listed()").number == 208


def test_mask_is_seen_by_the_login_that_it_is_for_only(goods: Client, connect: Connect) -> None:
    goods.run(f"CREATE LOGIN blind WITH PASSWORD = '{PASSWORD}'; CREATE USER blind FOR LOGIN blind")
    goods.run("ALTER ROLE db_datareader ADD MEMBER blind")
    blind, query = connect("blind", PASSWORD), "SELECT name FROM dbo.goods"
    assert (goods.value(query), blind.value(query)) == ("bread", "bread")
    goods.run("ALTER TABLE dbo.goods ALTER COLUMN name ADD MASKED WITH (FUNCTION = 'default()')")
    assert (goods.value(query), blind.value(query)) == ("bread", "xxxx")
    goods.run("GRANT UNMASK TO blind")
    assert (goods.value(query), blind.value(query)) == ("bread", "bread")


def test_row_filter_holds_from_when_its_policy_is_on(goods: Client, connect: Connect) -> None:
    other, query = connect(), "SELECT id FROM dbo.goods"
    goods.run(
        "CREATE FUNCTION dbo.nobody(@id int) RETURNS TABLE WITH SCHEMABINDING AS RETURN SELECT 1 AS x WHERE @id = 0"
    )
    goods.run("CREATE SECURITY POLICY hide ADD FILTER PREDICATE dbo.nobody(id) ON dbo.goods WITH (STATE = OFF)")
    assert other.rows(query) == [(1,)]
    goods.run("ALTER SECURITY POLICY hide WITH (STATE = ON)")
    assert other.rows(query) == []
    goods.run("ALTER SECURITY POLICY hide WITH (STATE = OFF)")
    assert other.rows(query) == [(1,)]
    goods.run("DROP SECURITY POLICY hide; DROP FUNCTION dbo.nobody")


def test_columns_of_an_update_are_tracked_from_when_tracking_is_on(goods: Client, connect: Connect) -> None:
    other, update = connect(), "UPDATE dbo.goods SET name = N'roll'"
    goods.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON")
    other.run(update)
    goods.run("ALTER TABLE dbo.goods ENABLE CHANGE_TRACKING WITH (TRACK_COLUMNS_UPDATED = ON)")
    other.run(update)
    changed = (
        "SELECT CHANGE_TRACKING_IS_COLUMN_IN_MASK(COLUMNPROPERTY(OBJECT_ID('dbo.goods'), 'name', 'ColumnId'),"
        " SYS_CHANGE_COLUMNS) FROM CHANGETABLE(CHANGES dbo.goods, 0) AS c"
    )
    assert other.rows(changed) == [(1,)]
    goods.run("ALTER TABLE dbo.goods DISABLE CHANGE_TRACKING; ALTER DATABASE CURRENT SET CHANGE_TRACKING = OFF")


def test_trigger_fires_from_when_it_is_enabled_and_sees_the_rows_of_its_own_table(
    goods: Client, connect: Connect
) -> None:
    other, insert = connect(), "INSERT INTO dbo.goods VALUES (2, N'salt')"
    goods.run("CREATE TABLE dbo.wares (a int, b int, c int)")
    for table in ("goods", "wares"):
        goods.run(f"CREATE TRIGGER dbo.on_{table} ON dbo.{table} AFTER INSERT AS SELECT * FROM inserted")
        goods.run(f"DISABLE TRIGGER dbo.on_{table} ON dbo.{table}")
    assert other.run(insert).results == []
    goods.run("DELETE FROM dbo.goods WHERE id = 2; ENABLE TRIGGER dbo.on_goods ON dbo.goods")
    goods.run("ENABLE TRIGGER dbo.on_wares ON dbo.wares")
    for _ in range(2):
        assert other.rows(insert) == [(2, "salt")]
        assert other.rows("INSERT INTO dbo.wares VALUES (1, 2, 3)") == [(1, 2, 3)]
        goods.run("DELETE FROM dbo.goods WHERE id = 2")
    goods.run("DROP TABLE dbo.wares")


def test_uncommitted_change_is_seen_by_its_session_only_and_a_rolled_back_one_by_none(
    goods: Client, connect: Connect
) -> None:
    other, query = connect(), "SELECT * FROM dbo.current_goods"
    goods.run("CREATE TABLE dbo.new_goods (code char(2)); INSERT INTO dbo.new_goods VALUES ('ab')")
    goods.run("CREATE SYNONYM dbo.current_goods FOR dbo.goods")
    changes = "DROP SYNONYM dbo.current_goods; CREATE SYNONYM dbo.current_goods FOR dbo.new_goods"
    goods.run(f"BEGIN TRAN; {changes}; CREATE TABLE dbo.uncommitted (a int)")
    for _ in range(2):
        assert goods.rows(query) == [("ab",)]
        assert goods.rows("SELECT * FROM dbo.uncommitted") == []
        assert other.rows(query) == [(1, "bread")]
        assert other.error("SELECT * FROM dbo.uncommitted").number == 208
    goods.run("ROLLBACK")
    for client in (goods, other):
        assert client.rows(query) == [(1, "bread")]
        assert client.error("SELECT * FROM dbo.uncommitted").number == 208
    goods.run(f"BEGIN TRAN; SAVE TRAN here; {changes}")
    assert goods.rows(query) == [("ab",)]
    goods.run("ROLLBACK TRAN here")
    assert goods.rows(query) == [(1, "bread")]
    goods.run(f"{changes}; COMMIT")
    for client in (goods, other):
        assert client.rows(query) == [("ab",)]
    goods.run("DROP SYNONYM dbo.current_goods; DROP TABLE dbo.new_goods")


def test_table_variable_of_the_same_shape_in_another_session_is_not_translated_again(
    connect: Connect, translated: list[str]
) -> None:
    insert, query = "INSERT INTO @found (id) VALUES (3)", "SELECT * FROM @found"
    batch = f"DECLARE @found TABLE (id int NOT NULL PRIMARY KEY); {insert}; {query}"
    assert connect().rows(batch) == [(3,)]
    assert {insert, query} <= set(translated)
    translated.clear()
    assert connect().rows(batch) == [(3,)]
    assert translated == []
    other_shape = batch.replace("PRIMARY KEY", "PRIMARY KEY, more int")
    assert connect().rows(other_shape) == [(3, None)]
    assert {insert, query} <= set(translated)


def test_identity_of_a_temp_table_is_that_of_its_own_session(connect: Connect) -> None:
    batch = "CREATE TABLE #numbered (id int IDENTITY(5, 1), a int); INSERT INTO #numbered (a) VALUES (1)"
    for client in (connect(), connect()):
        client.run(batch)
        assert client.value("SELECT SCOPE_IDENTITY()") == 5
        client.run("INSERT INTO #numbered (a) VALUES (1)")
        assert client.value("SELECT @@IDENTITY") == 6
