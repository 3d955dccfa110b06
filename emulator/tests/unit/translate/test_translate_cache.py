from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from sqlglot import exp

from sqlserver_emulator.collations import Collation, find_collation
from sqlserver_emulator.engine.translate.catalog_reads import RecordedCatalog
from sqlserver_emulator.engine.translate.lexical import dialect
from sqlserver_emulator.engine.translate.translator import TsqlTranslator
from sqlserver_emulator.engine.translation import (
    CatalogObject,
    InlineFunction,
    ScalarFunction,
    SequenceObject,
    Synonym,
    VariableParameter,
)
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError
from sqlserver_emulator.types import BIGINT, INT, TsqlType
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
    catalog.changed()
    assert translate("SELECT * FROM t", translator, catalog).column_names == ("z",)


class _ChangingCatalog(FakeCatalog):
    """A catalog in which a test can change the answer to every question."""

    def __init__(self) -> None:
        super().__init__()
        self.questions = 0
        """How often it was asked for a table."""
        self.binary: Collation | None = None
        self.functions: dict[str, InlineFunction] = {}
        self.scalars: dict[str, str] = {}
        self.user_functions: dict[str, ScalarFunction] = {}
        self.sequences: dict[str, SequenceObject] = {}
        self.types: dict[str, TsqlType] = {"code": INT}
        self.synonyms: dict[str, Synonym] = {}

    def table(self, database: str, schema: str | None, name: str) -> CatalogObject | None:
        self.questions += 1
        return super().table(database, schema, name)

    def collation(self, database: str) -> Collation:
        return self.binary or super().collation(database)

    def inline_function(self, database: str, schema: str, name: str) -> InlineFunction | None:
        return self.functions.get(name)

    def scalar_function(self, database: str, schema: str, name: str) -> str | None:
        return self.scalars.get(name)

    def user_function(self, database: str, schema: str, name: str) -> ScalarFunction | None:
        return self.user_functions.get(name)

    def sequence(self, database: str, schema: str | None, name: str) -> SequenceObject | None:
        return self.sequences.get(name)

    def user_type(self, database: str, schema: str | None, name: str) -> TsqlType | None:
        return self.types.get(name)

    def synonym(self, database: str, schema: str | None, name: str) -> Synonym | None:
        return self.synonyms.get(name)


def _set_table(catalog: _ChangingCatalog, **changed: object) -> None:
    catalog.tables = [replace(t, **changed) if t.object_id == 1003 else t for t in catalog.tables]  # type: ignore[arg-type]


def _mask(catalog: _ChangingCatalog) -> None:
    (found,) = [t for t in catalog.tables if t.object_id == 1003]
    masked = tuple(replace(column, mask="default()") if column.name == "a" else column for column in found.columns)
    _set_table(catalog, columns=masked)


def _set_function(catalog: _ChangingCatalog, body: str) -> None:
    catalog.functions["f"] = InlineFunction("Shop", "dbo", "f", (), body)


def _set_user_function(catalog: _ChangingCatalog, name: str) -> None:
    catalog.user_functions["g"] = ScalarFunction(name, (), (), INT, is_volatile=False)


def _set_sequence(catalog: _ChangingCatalog, type: TsqlType) -> None:
    catalog.sequences["q"] = SequenceObject('"Shop.dbo"."q"', type)


def _set_synonym(catalog: _ChangingCatalog, base: str) -> None:
    catalog.synonyms["s"] = Synonym("Shop", "dbo", base, "Shop", "dbo", "s")


def _add_table(catalog: _ChangingCatalog) -> None:
    catalog.tables.insert(0, table(9, "Shop.dbo.t", "z int"))


def _set_collation(catalog: _ChangingCatalog) -> None:
    catalog.binary = find_collation("Latin1_General_BIN2")


def _rename_database(catalog: _ChangingCatalog) -> None:
    catalog.databases = ("SHOP", "Other")


def _nothing(catalog: _ChangingCatalog) -> None:
    pass


_Change = Callable[[_ChangingCatalog], None]
_CHANGES: dict[str, tuple[str, _Change, _Change]] = {
    "column": ("SELECT * FROM t", _nothing, lambda c: _set_table(c, columns=c.tables[0].columns)),
    "table_made_again": ("SELECT * FROM t", _nothing, lambda c: _set_table(c, object_id=77)),
    "another_table_first": ("SELECT * FROM t", _nothing, _add_table),
    "mask": ("SELECT a FROM t", _nothing, _mask),
    "filter": ("SELECT a FROM t", _nothing, lambda c: _set_table(c, filters=("true",))),
    "key": ("UPDATE t SET a = 1", _nothing, lambda c: _set_table(c, key_columns=("a",))),
    "tracking": ("UPDATE t SET a = 1", _nothing, lambda c: _set_table(c, is_tracked=True)),
    "inline": ("SELECT * FROM dbo.f()", lambda c: _set_function(c, "SELECT 1"), lambda c: _set_function(c, "SELECT 2")),
    "scalar": ("SELECT sys.h()", lambda c: c.scalars.update(h="a.h"), lambda c: c.scalars.update(h="b.h")),
    "user": ("SELECT dbo.g()", lambda c: _set_user_function(c, "a.g"), lambda c: _set_user_function(c, "b.g")),
    "user_first": ("SELECT dbo.g()", lambda c: c.scalars.update(g="a.g"), lambda c: _set_user_function(c, "b.g")),
    "sequence": ("SELECT NEXT VALUE FOR dbo.q", lambda c: _set_sequence(c, INT), lambda c: _set_sequence(c, BIGINT)),
    "alias_type": ("SELECT CAST(1 AS code)", _nothing, lambda c: c.types.update(code=BIGINT)),
    "synonym": ("SELECT * FROM s", lambda c: _set_synonym(c, "t"), lambda c: _set_synonym(c, "types")),
    "synonym_base": ("SELECT * FROM s", lambda c: _set_synonym(c, "t"), lambda c: _set_table(c, object_id=77)),
    "collation": ("SELECT 1 FROM t WHERE 'a' = @p", _nothing, _set_collation),
    "database": ("SELECT * FROM Shop.dbo.t", _nothing, _rename_database),
}
"""A statement, what there is before it, and what changes after it."""


@pytest.mark.parametrize("kind", _CHANGES)
def test_change_of_an_answer_is_translated_again_and_its_undoing_is_not(parsed: list[str], kind: str) -> None:
    sql, prepare, change = _CHANGES[kind]
    translator, before, after = TsqlTranslator(), _ChangingCatalog(), _ChangingCatalog()
    for catalog in (before, after):
        prepare(catalog)
    change(after)
    first = translate(sql, translator, before, p="varchar(5)")
    parsed.clear()
    if kind != "database":
        changed = translate(sql, translator, after, p="varchar(5)")
        assert len(parsed) == 1
        assert changed == translate(sql, TsqlTranslator(), after, p="varchar(5)")
    else:
        with pytest.raises(SqlServerError):
            translate(sql, translator, after, p="varchar(5)")
    parsed.clear()
    assert translate(sql, translator, before, p="varchar(5)") == first
    before.changed()
    assert translate(sql, translator, before, p="varchar(5)") == first
    assert parsed == []


def test_answers_are_compared_once_for_each_version(parsed: list[str]) -> None:
    translator, catalog = TsqlTranslator(), _ChangingCatalog()
    translate("SELECT * FROM t", translator, catalog)
    catalog.changed()
    catalog.questions = 0
    for _ in range(3):
        translate("SELECT * FROM t", translator, catalog)
    assert catalog.questions == 1
    assert len(parsed) == 1


def test_question_that_raises_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    translator, catalog = TsqlTranslator(), _ChangingCatalog()
    translate("SELECT * FROM t", translator, catalog)

    def table(database: str, schema: str | None, name: str) -> CatalogObject | None:
        raise NotSupportedByEmulatorError("a view over masked columns")

    monkeypatch.setattr(catalog, "table", table)
    catalog.changed()
    with pytest.raises(NotSupportedByEmulatorError):
        translate("SELECT * FROM t", translator, catalog)
    recorded = RecordedCatalog(catalog)
    with pytest.raises(NotSupportedByEmulatorError):
        recorded.table("Shop", None, "t")
    assert recorded.reads() is None, "it cannot be compared"


def test_table_variable_of_the_same_shape_is_not_translated_again(parsed: list[str]) -> None:
    translator = TsqlTranslator()
    sql = "INSERT INTO @v (a) SELECT a FROM t"
    one, two = (FakeCatalog(_of_session(i, "a int; b int", ("a",))) for i in (1, 2))
    first, second = (translate(sql, translator, catalog) for catalog in (one, two))
    assert first == second
    assert len(parsed) == 1


@pytest.mark.parametrize(
    ("columns", "key"),
    [("a int; b bigint", ("a",)), ("a int; c int", ("a",)), ("a int; b int; c int", ("a",)), ("a int; b int", ())],
)
def test_table_variable_of_another_shape_is_translated_again(
    parsed: list[str], columns: str, key: tuple[str, ...]
) -> None:
    translator = TsqlTranslator()
    one, two = FakeCatalog(_of_session(1, "a int; b int", ("a",))), FakeCatalog(_of_session(1, columns, key))
    translate("SELECT * FROM @v", translator, one)
    second = translate("SELECT * FROM @v", translator, two)
    assert second == translate("SELECT * FROM @v", TsqlTranslator(), two)
    assert len(parsed) == 3


@pytest.mark.parametrize(
    ("sql", "noted"),
    [("INSERT INTO @v (b) VALUES (1)", "identity_of"), ("UPDATE @v SET b = 1", "deferred_update_of")],
)
def test_translation_that_holds_a_table_of_a_session_is_for_that_table(sql: str, noted: str) -> None:
    translator = TsqlTranslator()
    for i in (1, 2):
        catalog = FakeCatalog(_of_session(i, "a int! identity; b int", ("b",)))
        assert getattr(translate(sql, translator, catalog), noted).object_id == i


def _of_session(object_id: int, columns: str, key: tuple[str, ...]) -> CatalogObject:
    return replace(table(object_id, "Shop.dbo.@v", columns, key), postgres_schema="pg_temp")


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


def test_statement_of_another_database_is_parsed_once_and_its_tree_is_not_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parses: list[str] = []
    parse = dialect.QueryParser.parse

    def noting(self: dialect.QueryParser, tokens: list[object], text: str) -> object:
        parses.append(text)
        return parse(self, tokens, text)

    monkeypatch.setattr(dialect.QueryParser, "parse", noting)
    # Both are translated by changing their tree.
    for sql in ("SELECT @p = a FROM t WHERE b = 'once'", "WITH q AS (SELECT a FROM t) UPDATE q SET a = 98765"):
        parses.clear()
        first = translate(sql, TsqlTranslator(), p="int")
        second = translate(sql, TsqlTranslator(), p="int")
        assert second == first
        assert parses == [sql]
    tree = dialect.parse_query("SELECT a FROM t")
    tree.find(exp.Table).set("this", exp.to_identifier("changed"))
    assert "changed" not in dialect.parse_query("SELECT a FROM t").sql()
