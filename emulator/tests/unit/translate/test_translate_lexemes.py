from __future__ import annotations

import pytest

from sqlserver_emulator.engine.translate.lexical.lexemes import array_text, cut, text_of


def test_cut_finds_every_kind_of_literal() -> None:
    cut_text = cut("SELECT 1, 2147483648, 1.5, .5, 1e3, $12.5, 0xAB, 'it''s', N'é'")
    assert list(cut_text.kinds) == ["i", "d", "d", "d", "f", "m", "x", "s", "n"]
    texts = [text_of(kind, lexeme) for kind, lexeme in zip(cut_text.kinds, cut_text.lexemes, strict=True)]
    assert texts == ["1", "2147483648", "1.5", ".5", "1e3", "12.5", "\\xAB", "it's", "é"]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT [5], \"6\", x7, @p8, #t9, t.c10 -- 11 'x'\n",
        "SELECT /* 1 'a' */ a",
        "SELECT [a'b], [c]]1]",
        'SELECT "a""1"',
    ],
)
def test_cut_takes_no_literal_from_names_and_comments(text: str) -> None:
    assert list(cut(text).lexemes) == []


def test_cut_gives_one_shape_to_texts_that_differ_in_literals_only() -> None:
    assert cut("SELECT 1, 'a' FROM t -- x").shape == cut("SELECT 22, 'it''s' FROM t -- y").shape
    assert cut("SELECT 1").shape != cut("SELECT 1.0").shape
    assert cut("SELECT 'a'").shape != cut("SELECT N'a'").shape


def test_cut_knows_where_the_literals_of_the_sample_stand() -> None:
    text = "SELECT a + 5, 'x' FROM t WHERE [b 1] = 0x1"
    found = cut(text).literals_by_offset()
    assert {offset: literal.lexeme for offset, literal in found.items()} == {11: "5", 14: "'x'", 39: "0x1"}


def test_cut_folds_rows_of_one_form() -> None:
    folded = cut("INSERT INTO t (a, b, c) VALUES (1, N'x', NULL), (NULL, N'it''s', NULL), (-3, N'', NULL);")
    assert folded.columns == (["1", "NULL", "-3"], ["N'x'", "N'it''s'", "N''"])
    assert folded.sample == "INSERT INTO t (a, b, c) VALUES (1, N'x', NULL);"
    assert [array_text(k, c) for k, c in zip(folded.kinds, folded.columns, strict=True)] == [
        "{1,NULL,-3}",
        '{"x","it\'s",""}',
    ]


def test_cut_gives_folded_inserts_one_shape_whatever_the_number_of_rows() -> None:
    two, three = (f"INSERT INTO t VALUES {', '.join(['(1, 2.5)'] * n)}" for n in (2, 3))
    assert cut(two).shape == cut(three).shape
    assert cut(two).shape != cut("INSERT INTO t VALUES (1, 2.5)").shape


def test_cut_widens_the_kinds_of_a_folded_column() -> None:
    assert list(cut("INSERT INTO t VALUES (1, 'a'), (2.5, N'b')").kinds) == ["d", "n"]


@pytest.mark.parametrize(
    "rows",
    [
        "(1), (f(2))",
        "(1), (2 + 1)",
        "(1), (DEFAULT)",
        "(1), (@p)",
        "(1), ('a')",
        "(1, 2), (3)",
        "(1), (2) OPTION (MAXDOP 1)",
        "(1), (2) -- 3",
        "(DEFAULT), (1)",
    ],
)
def test_cut_does_not_fold_rows_of_other_forms(rows: str) -> None:
    assert cut(f"INSERT INTO t VALUES {rows}").columns is None


def test_array_text_quotes_what_arrays_need_quoted() -> None:
    assert array_text("s", ["'a\\b'", "'c\"d'", "NULL", "'{,}'"]) == '{"a\\\\b","c\\"d",NULL,"{,}"}'
    assert array_text("x", ["0x0102"]) == '{"\\\\x0102"}'
    assert array_text("m", ["$1.5", "-$2"]) == "{1.5,-2}"
