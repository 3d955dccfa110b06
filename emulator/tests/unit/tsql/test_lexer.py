from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.syntax import lexer
from sqlserver_emulator.syntax.lexer import Token, tokenize

PIECES = [
    "SELECT", "x_1", "[a]]b]", '"q""r"', "'it''s'", "N'é'", "0xFF", "0x", "12", "1.5", ".5", "1e5", "2E-3", "@v",
    "@@ROWCOUNT", "#tmp", "##g", "(", ")", ",", ";", ".", "+=", "<>", "!=", ">=", "!<", "::", "*", "%", "$12.5",
    "$action", "~",
    "|=", "/* c /* n */ */", "-- line\n", " ", "\n", "\t", "\r\n",
]  # fmt: skip


def kinds(text: str) -> list[tuple[str, str]]:
    return [(token.kind, token.text) for token in tokenize(text)]


def is_blank(gap: str) -> bool:
    """Whether only white space and comments stand in ``gap`` (checked without the lexer's own pattern)."""
    while gap := gap.lstrip(" \n\t\r"):
        if gap.startswith("--"):
            gap = gap.partition("\n")[2]
        elif gap.startswith("/*"):
            depth, at = 1, 2
            while depth:
                depth += {"/*": 1, "*/": -1}.get(gap[at : at + 2], 0)
                at += 2 if gap[at : at + 2] in ("/*", "*/") else 1
            gap = gap[at:]
        else:
            return False
    return True


@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_tokens_and_the_gaps_between_them_give_the_text_back(pieces: list[str]) -> None:
    text = " ".join(pieces)
    at = 0
    for token in tokenize(text):
        assert is_blank(text[at : token.start])
        assert text[token.start : token.end] == token.text
        assert token.line == text.count("\n", 0, token.start) + 1
        at = token.end
    assert is_blank(text[at:])


@given(st.lists(st.sampled_from([piece for piece in PIECES if piece.strip() and piece[:2] not in ("--", "/*")])))
def test_every_piece_set_apart_by_blanks_is_one_token(pieces: list[str]) -> None:
    assert [token.text for token in tokenize("\n".join(pieces))] == pieces


@given(st.text(max_size=40))
def test_any_text_is_lexed_or_refused_with_a_numbered_error(text: str) -> None:
    try:
        tokens = tokenize(text)
    except SqlServerError as error:
        assert error.number in (102, 105, 113)
    else:
        assert all(text[token.start : token.end] == token.text for token in tokens)


@given(st.text(max_size=40))
def test_strings_and_names_survive_quoting(value: str) -> None:
    (string,) = tokenize(lexer.quote_string(value))
    assert lexer.string_value(string) == value
    (name,) = tokenize(lexer.quote_identifier(value))
    assert lexer.identifier_value(name) == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("abc", lexer.NAME), ("__$start_lsn", lexer.NAME), ("été", lexer.NAME), ("#t", lexer.NAME), ("##t", lexer.NAME),
        ("$action", lexer.NAME), ("[x y]", lexer.BRACKETED), ('"x y"', lexer.QUOTED), ("''", lexer.STRING),
        ("n'x'", lexer.NSTRING), ("0xAb", lexer.HEX), ("0x", lexer.HEX), ("7", lexer.INTEGER), ("1.", lexer.DECIMAL),
        (".5", lexer.DECIMAL),
        ("1e5", lexer.FLOAT), ("1.5E-3", lexer.FLOAT), ("1e", lexer.FLOAT), ("$1.5", lexer.MONEY),
        ("€", lexer.MONEY),
        ("@a$#", lexer.VARIABLE), ("@@SPID", lexer.GLOBAL), ("+=", lexer.OPERATOR), ("::", lexer.OPERATOR),
    ],
)  # fmt: skip
def test_token_has_the_kind_of_its_first_character(text: str, kind: str) -> None:
    assert kinds(text) == [(kind, text)]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("db..t", ["db", ".", ".", "t"]),
        ("a=-.5", ["a", "=", "-", ".5"]),
        ("1else", ["1", "else"]),
        ("'a''b'N'c'", ["'a''b'", "N'c'"]),
        ("a<>b!<c", ["a", "<>", "b", "!<", "c"]),
        ("@x+=1", ["@x", "+=", "1"]),
        ("a--b\nc", ["a", "c"]),
        ("a/* /* */ ' */b", ["a", "b"]),
        ("'/*'x", ["'/*'", "x"]),
        ("\ufeffSELECT", ["SELECT"]),
    ],
)
def test_text_is_cut_where_t_sql_cuts_it(text: str, pieces: list[str]) -> None:
    assert [token.text for token in tokenize(text)] == pieces


def test_word_is_upper_case_for_names_and_the_text_for_all_else() -> None:
    words = [token.word for token in tokenize("select [select] 'select' @select")]
    assert words == ["SELECT", "[select]", "'select'", "@select"]


@pytest.mark.parametrize(
    ("text", "number", "line"),
    [("\nSELECT 'abc", 105, 2), ("[abc", 105, 1), ('"abc', 105, 1), ("/* /* */", 113, 1), ("SELECT §", 102, 1)],
)
def test_unfinished_text_is_refused_by_number_and_line(text: str, number: int, line: int) -> None:
    with pytest.raises(SqlServerError) as caught:
        tokenize(text)
    assert (caught.value.number, caught.value.line) == (number, line)


def test_line_counts_inside_multi_line_tokens() -> None:
    tokens: list[Token] = tokenize("a 'x\ny' b\n/* \n */ c")
    assert [(token.text, token.line) for token in tokens] == [("a", 1), ("'x\ny'", 1), ("b", 2), ("c", 4)]
