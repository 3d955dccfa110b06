from __future__ import annotations

import pytest

from sqlserver_emulator.engine.translate.lexical import dialect
from sqlserver_emulator.engine.translate.translator import TsqlTranslator
from sqlserver_emulator.engine.translation import VariableParameter
from translate_catalog import FakeCatalog, table
from translate_statement import literals, translate


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were parsed."""
    seen: list[str] = []
    parse = dialect.parse_query

    def noting(text: str) -> object:
        seen.append(text)
        return parse(text)

    monkeypatch.setattr(dialect, "parse_query", noting)
    return seen


def test_texts_of_one_shape_are_parsed_once(parsed: list[str]) -> None:
    translator, catalog = TsqlTranslator(), FakeCatalog()
    first = translate("INSERT INTO t (a, b, c) VALUES (1, N'x', 1.5)", translator, catalog)
    second = translate("INSERT INTO t (a, b, c) VALUES (22, N'it''s', 12.75)", translator, catalog)
    assert len(parsed) == 1
    assert second.sql == first.sql
    assert literals(second) == ["22", "it's", "12.75"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("SELECT a FROM t WHERE b = 'x' AND e IN (1, 2)", "SELECT a FROM t WHERE b = 'other ' AND e IN (30, 40)"),
        ("UPDATE t SET b = N'x', c = c + 1.5 WHERE a = 7", "UPDATE t SET b = N'longer', c = c + 2.5 WHERE a = 81"),
        ("DELETE FROM t WHERE d < '2024-01-02'", "DELETE FROM t WHERE d < '2025-11-30 10:00'"),
        (
            "SELECT TOP (5) a FROM t WHERE b LIKE 'x%' ORDER BY a",
            "SELECT TOP (9) a FROM t WHERE b LIKE 'yy%' ORDER BY a",
        ),
    ],
)
def test_statement_that_differs_in_its_literals_is_not_parsed_again(parsed: list[str], first: str, second: str) -> None:
    translator, catalog = TsqlTranslator(), FakeCatalog()
    one, two = translate(first, translator, catalog), translate(second, translator, catalog)
    assert len(parsed) == 1
    assert two.sql == one.sql
    assert literals(two) != literals(one)


def test_inserts_of_any_number_of_rows_are_parsed_once(parsed: list[str]) -> None:
    translator, catalog = TsqlTranslator(), FakeCatalog()
    translate("INSERT INTO t (a, b) VALUES (1, N'x'), (2, N'y')", translator, catalog)
    more = translate("INSERT INTO t (a, b) VALUES (1, N'x'), (NULL, N'y'), (3, NULL)", translator, catalog)
    assert len(parsed) == 1
    assert literals(more) == ["{1,NULL,3}", '{"x","y",NULL}']


def test_exact_type_of_a_literal_in_a_result_is_not_shared(parsed: list[str]) -> None:
    translator, catalog = TsqlTranslator(), FakeCatalog()
    assert str(translate("SELECT 'a'", translator, catalog).column_types[0]) == "varchar(1)"
    assert str(translate("SELECT 'abc'", translator, catalog).column_types[0]) == "varchar(3)"
    assert str(translate("SELECT 1.5", translator, catalog).column_types[0]) == "numeric(2,1)"
    assert str(translate("SELECT 12.75", translator, catalog).column_types[0]) == "numeric(4,2)"
    assert literals(translate("SELECT 'b'", translator, catalog)) == ["b"]
    assert len(parsed) == 4


def test_style_position_and_date_part_are_not_shared() -> None:
    translator, catalog = TsqlTranslator(), FakeCatalog()
    for style in (1, 2):
        sql = translate(f"SELECT CONVERT(varchar(20), 0x01, {style})", translator, catalog).sql
        assert f", {style}, " in sql
    assert translate("SELECT a, b FROM t ORDER BY 1", translator, catalog).sql.endswith("ORDER BY 1 NULLS FIRST")
    assert translate("SELECT a, b FROM t ORDER BY 2", translator, catalog).sql.endswith(
        'ORDER BY tsql.key_ci_as("t"."b") NULLS FIRST'
    )


def test_pattern_with_a_class_is_distinguished_from_one_without() -> None:
    translator, catalog = TsqlTranslator(), FakeCatalog()
    assert " LIKE " in translate("SELECT 1 AS x FROM t WHERE b LIKE 'a%'", translator, catalog).sql
    assert "tsql.like(" in translate("SELECT 1 AS x FROM t WHERE b LIKE '[a]%'", translator, catalog).sql
    assert " LIKE " in translate("SELECT 1 AS x FROM t WHERE b LIKE 'c%'", translator, catalog).sql


def test_literals_of_group_by_stay_in_the_sql() -> None:
    translator, catalog = TsqlTranslator(), FakeCatalog()
    first = translate("SELECT a + 1, COUNT(*) FROM t WHERE e > 5 GROUP BY a + 1", translator, catalog)
    second = translate("SELECT a + 2, COUNT(*) FROM t WHERE e > 6 GROUP BY a + 2", translator, catalog)
    assert first.sql != second.sql
    assert literals(second) == ["6"]


def test_variables_of_other_types_are_translated_again() -> None:
    translator, catalog = TsqlTranslator(), FakeCatalog()
    sql = "SELECT @p + 1"
    assert str(translate(sql, translator, catalog, p="int").column_types[0]) == "int"
    assert str(translate(sql, translator, catalog, p="bigint").column_types[0]) == "bigint"
    again = translate(sql, translator, catalog, p="int")
    assert str(again.column_types[0]) == "int"
    assert again.parameters[0] == VariableParameter("@p")


def test_change_of_the_catalog_is_seen() -> None:
    translator, catalog = TsqlTranslator(), FakeCatalog()
    assert translate("SELECT * FROM t", translator, catalog).column_names == ("a", "b", "c", "d", "e")
    catalog.tables = [table(1, "Shop.dbo.t", "z int")]
    catalog.version += 1
    assert translate("SELECT * FROM t", translator, catalog).column_names == ("z",)


def test_temp_table_of_another_session_is_another_table() -> None:
    translator = TsqlTranslator()
    one, two = (FakeCatalog(table(i, "Shop.dbo.#t", f"c{i} int")) for i in (1, 2))
    assert translate("SELECT * FROM #t", translator, one).column_names == ("c1",)
    assert translate("SELECT * FROM #t", translator, two).column_names == ("c2",)
    assert translate("SELECT * FROM #t", translator, one).column_names == ("c1",)


def test_variable_used_twice_is_bound_once() -> None:
    translated = translate("SELECT @p, @p WHERE @p = 1", p="int")
    assert [p for p in translated.parameters if isinstance(p, VariableParameter)] == [VariableParameter("@p")]


def test_read_only_is_said_of_plain_selects_only() -> None:
    assert translate("SELECT a FROM t").read_only
    assert not translate("SELECT RAND()").read_only
    assert not translate("DELETE FROM t").read_only
    assert not translate("SELECT * FROM #t", catalog=FakeCatalog(table(1, "Shop.dbo.#t", "a int"))).read_only
