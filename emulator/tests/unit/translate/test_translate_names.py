from __future__ import annotations

import pytest

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Command
from translate_statement import translate


@pytest.mark.parametrize(
    ("source", "relation"),
    [
        ("orders", '"Shop.dbo"."Orders"'),
        ("[dbo].[ORDERS]", '"Shop.dbo"."Orders"'),
        ("sales.Orders", '"Shop.sales"."Orders"'),
        ("other.dbo.orders", '"Other.dbo"."Orders"'),
        ("other..orders", '"Other.dbo"."Orders"'),
        ('"Orders"', '"Shop.dbo"."Orders"'),
        ("sys.objects", '"Shop.sys"."objects"'),
        ("objects", '"Shop.sys"."objects"'),
    ],
)
def test_table_name_leads_to_its_relation(source: str, relation: str) -> None:
    assert f"FROM {relation} AS" in translate(f"SELECT 1 AS x FROM {source}").sql


def test_column_is_found_without_regard_to_case_and_named_as_written() -> None:
    translated = translate("SELECT o.NOTE, amount FROM Orders AS o")
    assert translated.sql.startswith('SELECT "o"."Note" AS "NOTE", "o"."Amount" AS "amount" FROM')
    assert translated.column_names == ("NOTE", "amount")


def test_star_is_expanded_in_the_catalogs_order() -> None:
    assert translate("SELECT * FROM Customers").column_names == ("CustomerID", "Name", "City")
    names = translate(
        "SELECT c.*, o.OrderID FROM Customers c JOIN Orders o ON o.CustomerID = c.CustomerID"
    ).column_names
    assert names == ("CustomerID", "Name", "City", "OrderID")


def test_table_without_alias_answers_to_its_qualified_name() -> None:
    sql = translate(
        "SELECT sys.objects.name FROM sys.objects JOIN sys.schemas ON sys.objects.schema_id = sys.schemas.schema_id"
    ).sql
    assert sql.startswith('SELECT "objects"."name" AS "name" FROM "Shop.sys"."objects" AS "objects" INNER JOIN')


def test_tables_of_one_name_get_two_aliases() -> None:
    sql = translate("SELECT dbo.Orders.Note, sales.Orders.Region FROM dbo.Orders, sales.Orders").sql
    assert sql.count('AS "Orders"') == 1
    assert '"Orders"."Note"' in sql
    assert '."Region"' in sql


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ("a", "a"),
        ("a AS [x y]", "x y"),
        ("x = a", "x"),
        ("'x' = a", "x"),
        ("a 'x'", "x"),
        ("a + 1", ""),
        ("COUNT(*)", ""),
        ("'a' 'b'", "b"),
        ("SYSTEM_USER", ""),
    ],
)
def test_result_column_has_the_name_the_server_gives(item: str, name: str) -> None:
    assert translate(f"SELECT {item} FROM t GROUP BY a").column_names == (name,)


def test_same_name_twice_is_no_ambiguity_for_the_client() -> None:
    translated = translate("SELECT a, a FROM t")
    assert translated.column_names == ("a", "a")
    assert translated.sql.count('AS "a"') == 1


@pytest.mark.parametrize(
    ("sql", "number"),
    [
        ("SELECT * FROM nope", 208),
        ("SELECT * FROM nope.dbo.Orders", 208),
        ("SELECT * FROM cdc.fn_nope(1)", 208),
        ("SELECT nope FROM t", 207),
        ("SELECT x.nope FROM t", 4104),
        ("SELECT a FROM t AS x, t AS y", 209),
        ("SELECT x.* FROM t", 107),
        ("SELECT *", 263),
        ("SELECT @nope", 137),
        ("SELECT nope(1)", 195),
        ("SELECT dbo.nope(1)", 4121),
        ("SELECT LEN()", 174),
        ("SELECT CAST(1 AS nope)", 243),
        ("SELECT DATEPART(nope, GETDATE())", 155),
        ("SELECT a FROM t ORDER BY 2", 108),
        ("SELECT * FROM (SELECT 1) AS x", 8155),
        ("SELECT * FROM (SELECT a, a FROM t) AS x", 8156),
        ("SELECT 1 UNION SELECT 1, 2", 205),
        ("SELECT (SELECT 1, 2)", 116),
        ("SELECT SUM(b) FROM t", 8117),
        ("SELECT ROW_NUMBER() FROM t", 10753),
        ("SELECT 1 WHERE a", 4145),
        ("SELECT @a = 1, a FROM t", 141),
        ("UPDATE t SET a = 1, @@rowcount = 2", 102),
        ("INSERT INTO Customers VALUES (1)", 213),
        ("INSERT INTO t (a) VALUES (1, 2)", 110),
        ("INSERT INTO t (a, b) VALUES (1)", 109),
        ("INSERT INTO t (a, b) SELECT 1", 120),
        ("INSERT INTO t (a, a) VALUES (1, 2)", 264),
        ("INSERT INTO types (vb) VALUES ('x')", 257),
        ("INSERT INTO Orders (Ver) VALUES (0x01)", 273),
        ("UPDATE Orders SET Ver = 0x01", 272),
        ("UPDATE Orders SET OrderID = 1", 8102),
        ("UPDATE sys.objects SET name = 'x'", 259),
        ("SELECT FROM t", 156),
        ("SELECT a FROM", 102),
        ("sp_helpdb", 102),
        ("PRINT 'x'", 102),
    ],
)
def test_fault_is_reported_by_the_servers_number(sql: str, number: int) -> None:
    with pytest.raises(SqlServerError) as raised:
        translate(sql, a="int")
    assert raised.value.number == number


def test_order_by_an_alias_goes_by_position() -> None:
    assert translate("SELECT a AS x FROM t ORDER BY x DESC, 1").sql.endswith(
        " ORDER BY 1 DESC NULLS LAST, 1 NULLS FIRST"
    )


def test_order_by_a_column_that_is_never_null_can_use_an_index() -> None:
    assert translate("SELECT TOP (5) Note FROM Orders ORDER BY OrderID").sql.endswith(
        ' ORDER BY "Orders"."OrderID" LIMIT ($1::int4)'
    )
    outer = translate("SELECT c.Name FROM t LEFT JOIN Customers c ON c.CustomerID = t.a ORDER BY c.CustomerID").sql
    assert outer.endswith('ORDER BY "c"."CustomerID" NULLS FIRST')


def test_insert_names_the_table_whose_identity_it_may_advance() -> None:
    translated = translate("INSERT INTO Orders (CustomerID, Placed, Paid) VALUES (1, GETDATE(), 1)")
    assert translated.command is Command.INSERT
    assert translated.identity_of is not None
    assert translated.identity_of.name == "Orders"
    assert "OVERRIDING" not in translated.sql
    assert "OVERRIDING SYSTEM VALUE" in translate("INSERT INTO Orders (OrderID) VALUES (1)").sql


def test_update_of_a_key_column_is_a_deferred_update() -> None:
    translated = translate("UPDATE Customers SET CustomerID = CustomerID + 1")
    assert translated.deferred_update_of is not None
    assert translate("UPDATE Customers SET Name = 'x'").deferred_update_of is None


def test_columns_of_a_change_function_have_their_types() -> None:
    source = "cdc.fn_cdc_get_all_changes_dbo_Orders(@from, @to, N'all')"
    lsn = {"from": "binary(10)", "to": "binary(10)"}
    sql = translate(f"SELECT CONVERT(varchar(22), __$start_lsn, 1) FROM {source}", **lsn).sql
    assert "tsql.binary_to_text(" in sql
    types = translate(f"SELECT Amount * 2, __$operation FROM {source}", **lsn).column_types
    assert {i: str(type) for i, type in types.items()} == {0: "decimal(20,2)"}


def test_lsn_given_to_a_system_function_is_filled_to_its_length() -> None:
    sql = translate("SELECT sys.fn_cdc_increment_lsn(0x01)").sql
    assert '"Shop.sys"."fn_cdc_increment_lsn"(tsql.assign_binary($1::bytea, 10, true))' in sql
    with pytest.raises(SqlServerError) as raised:
        translate("SELECT sys.fn_cdc_increment_lsn()")
    assert raised.value.number == 313


def test_ddl_is_handed_over_as_a_tree() -> None:
    translated = translate("CREATE TABLE dbo.x (a int)")
    assert translated.ddl is not None
    assert translated.sql == ""
