"""Functions, triggers and cursors as the parser reads them."""

from __future__ import annotations

import pytest

from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.syntax.parsing.batch import parse_batch
from sqlserver_emulator.syntax.parsing.modules import parse_function, parse_trigger
from sqlserver_emulator.syntax.statements import DeclareCursor, FetchCursor, If, Sql
from sqlserver_emulator.types import INT, TsqlType


def test_a_scalar_function_has_parameters_a_type_and_a_body() -> None:
    function = parse_function(
        "CREATE FUNCTION dbo.f (@a int, @b nvarchar(5) = N'x') RETURNS decimal(9,2) WITH SCHEMABINDING, "
        "RETURNS NULL ON NULL INPUT AS BEGIN DECLARE @c int = @a RETURN @c END"
    )
    assert [parameter.name for parameter in function.parameters] == ["@a", "@b"]
    assert function.returns == TsqlType("decimal", precision=9, scale=2)
    assert (function.is_schema_bound, function.is_strict) == (True, True)
    assert function.body is not None
    assert [declaration.type for declaration in function.body.declarations] == [INT]


@pytest.mark.parametrize("query", ["(SELECT @a AS x)", "SELECT @a AS x", "(SELECT @a AS x);"])
def test_an_inline_function_is_its_query(query: str) -> None:
    function = parse_function(f"CREATE FUNCTION f (@a int) RETURNS TABLE AS RETURN {query}")
    assert function.query == "SELECT @a AS x"
    assert function.body is None


def test_a_function_with_statements_returns_its_table_variable() -> None:
    function = parse_function("ALTER FUNCTION f () RETURNS @t TABLE (a int) AS BEGIN INSERT @t VALUES (1) RETURN END")
    assert function.table is not None
    assert function.table.name == "@t"


@pytest.mark.parametrize(
    ("body", "number"),
    [
        ("IF 1 = 1 PRINT 'x' RETURN 1", 443),
        ("WHILE 1 = 1 EXEC p RETURN 1", 557),
        ("BEGIN TRY RETURN 1 END TRY BEGIN CATCH RETURN 2 END CATCH RETURN 3", 443),
        ("SELECT @x = 1", 455),
        ("RETURN @undeclared", 137),
    ],
)
def test_a_function_that_does_what_it_must_not_is_refused(body: str, number: int) -> None:
    with pytest.raises(SqlServerError) as raised:
        parse_function(f"CREATE FUNCTION f (@x int) RETURNS int AS BEGIN {body} END")
    assert raised.value.number == number


_TRIGGER = """CREATE OR ALTER TRIGGER s.tr ON s.t AFTER INSERT, UPDATE AS
IF UPDATE([A b]) AND COLUMNS_UPDATED() > 0
    UPDATE t SET c = 1"""


def test_a_trigger_knows_its_table_and_events() -> None:
    trigger = parse_trigger(_TRIGGER)
    assert (str(trigger.table), trigger.events, trigger.is_instead_of) == ("s.t", {"INSERT", "UPDATE"}, False)
    assert parse_trigger("CREATE TRIGGER tr ON t INSTEAD OF DELETE AS SELECT 1").is_instead_of


@pytest.mark.parametrize(
    ("updated", "condition"),
    [
        (None, "(1=1) AND 0x03 > 0"),
        (frozenset({"a b"}), "(1=1) AND 0x02 > 0"),
        (frozenset({"c"}), "(1=0) AND 0x01 > 0"),
        (frozenset(), "(1=0) AND 0x00 > 0"),
    ],
)
def test_the_assigned_columns_are_put_into_a_triggers_text(updated: frozenset[str] | None, condition: str) -> None:
    (statement,) = parse_trigger(_TRIGGER, updated, (("c", 1), ("a b", 2))).body.statements
    assert isinstance(statement, If)
    assert statement.condition.text == condition
    assert statement.line == 2
    assert isinstance(statement.then, Sql)
    assert statement.then.text == "UPDATE t SET c = 1"


def test_a_trigger_on_the_database_is_refused_by_name() -> None:
    with pytest.raises(NotSupportedByEmulatorError, match="ON DATABASE"):
        parse_trigger("CREATE TRIGGER tr ON DATABASE FOR CREATE_TABLE AS SELECT 1")


@pytest.mark.parametrize(
    ("text", "query", "is_local", "scrolls"),
    [
        ("DECLARE c CURSOR FOR SELECT 1", "SELECT 1", False, False),
        ("DECLARE c INSENSITIVE SCROLL CURSOR FOR SELECT 1 FOR READ ONLY", "SELECT 1", False, True),
        (
            "DECLARE c CURSOR LOCAL STATIC FOR WITH x AS (SELECT 1 AS a) SELECT a FROM x",
            "WITH x AS (SELECT 1 AS a) SELECT a FROM x",
            True,
            True,
        ),
        ("DECLARE c CURSOR LOCAL FAST_FORWARD FOR SELECT a FROM t FOR UPDATE OF a", "SELECT a FROM t", True, False),
    ],
)
def test_a_cursor_is_declared_over_its_query(text: str, query: str, is_local: bool, scrolls: bool) -> None:
    statement, after = parse_batch(f"{text} PRINT 'x'").statements
    assert isinstance(statement, DeclareCursor)
    assert (statement.query, statement.is_local, statement.scrolls) == (query, is_local, scrolls)
    assert after.line == 1


def test_a_fetch_says_where_to_and_into_what() -> None:
    batch = parse_batch("DECLARE @a int, @b int FETCH RELATIVE -2 FROM c INTO @a, @b FETCH c")
    _, first, second = batch.statements
    assert isinstance(first, FetchCursor)
    assert isinstance(second, FetchCursor)
    assert (first.direction, first.into) == ("RELATIVE", ("@a", "@b"))
    assert first.count is not None
    assert first.count.text == "-2"
    assert (second.direction, second.name, second.into) == ("NEXT", "c", ())
