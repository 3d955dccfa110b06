"""T-SQL text to tokens. Owns what a token is; keywords are plain names here, their meaning belongs to the parser.

``tokenize(text)`` returns the tokens in order, without white space and comments; ``text[t.start:t.end] == t.text``.
Cost is about one microsecond a token, because clients that inline their literals (pymssql) send a new text each time.

Everyone compares ``Token.word``: for a NAME it is the upper-cased text, for every other kind the text itself. A
bracketed, quoted or string token keeps its delimiters in ``word``, so ``token.word == "SELECT"`` and
``token.word == "("`` need no check of the kind. ``"..."`` is an identifier
(QUOTED_IDENTIFIER ON is the only mode; the interpreter refuses OFF).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from sqlserver_emulator.code_units import in_code_page
from sqlserver_emulator.errors import SqlServerError

NAME: Final = "name"
"""An unquoted identifier or keyword, #temp and ##temp names, $action, $identity, $partition, $rowguid."""
BRACKETED: Final = "bracketed"
"""[name], with ]] for ]."""
QUOTED: Final = "quoted"
"""\"name\", with \"\" for \"."""
STRING: Final = "string"
"""'text', with '' for '."""
NSTRING: Final = "nstring"
"""N'text'."""
HEX: Final = "hex"
"""0x1F; 0x alone is the empty binary."""
INTEGER: Final = "integer"
DECIMAL: Final = "decimal"
"""1.5, 1., .5"""
FLOAT: Final = "float"
"""1e5, .5E-3, 1e"""
MONEY: Final = "money"
"""$12.50, £3, € (zero)."""
VARIABLE: Final = "variable"
"""@name"""
GLOBAL: Final = "global"
"""@@name"""
OPERATOR: Final = "operator"
"""Operators, compound assignments and punctuation: + - * / % = <> != += :: ( ) , . ; and the like."""

MOST_TOKENS: Final = 2_000_000
"""Of one batch: they take a quarter of a kilobyte each."""
_OUT_OF_MEMORY: Final = "There is insufficient system memory in resource pool 'default' to run this query."

LITERALS: Final = frozenset((STRING, NSTRING, HEX, INTEGER, DECIMAL, FLOAT, MONEY))
IDENTIFIERS: Final = frozenset((NAME, BRACKETED, QUOTED))


class Token(NamedTuple):
    """One token. ``start`` and ``end`` are offsets into the text, ``line`` counts from 1.

    A named tuple, because it is by far the cheapest immutable object to make.
    """

    kind: str
    text: str
    word: str
    start: int
    end: int
    line: int


_BLANKS = r"(?:[\s\x00-\x20\ufeff\U0010f800]++|--[^\n]*+)*+"
_PATTERN = re.compile(
    _BLANKS
    + r"""(?:
      (?P<nstring>[Nn]'[^']*+(?:''[^']*+)*+')
    | (?P<name>[^\W\d][\w@$#]*+ | \#{1,2}[\w@$#]*+ | \$[^\W\d][\w@$#]*+)
    | (?P<comment>/\*)
    | (?P<operator>[(),;] | [<>!+\-*/%&^|]= | <> | ![<>] | :: | \|\| | \.(?!\d) | [-+*/%=<>!&|^~:{}?])
    | (?P<hex>0[xX][0-9a-fA-F]*+)
    | (?P<float>(?:\d++(?:\.\d*+)?|\.\d++)[eE](?:[+-]?\d++)?+(?![^\W\d]))
    | (?P<decimal>\d++\.\d*+|\.\d++)
    | (?P<integer>\d++)
    | (?P<global>@@[\w@$#]++)
    | (?P<variable>@[\w@$#]*+)
    | (?P<string>'[^']*+(?:''[^']*+)*+')
    | (?P<bracketed>\[[^\]]*+(?:\]\][^\]]*+)*+\])
    | (?P<quoted>"[^"]*+(?:""[^"]*+)*+")
    | (?P<money>[$£€¥](?:\d++(?:\.\d*+)?|\.\d++)?)
    | (?P<end>\Z)
    | (?P<invalid>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_CONTINUATION = re.compile(r"\\(\r?\n)")
_COMMENT_EDGE = re.compile(r"/\*|\*/")


def tokenize(text: str) -> list[Token]:
    """All tokens of ``text``.

    Raises SqlServerError 105 (unclosed quotation mark), 113 (unclosed comment), 102, or 701 for too many of them.
    """
    tokens: list[Token] = []
    append, make, match = tokens.append, Token._make, _PATTERN.match
    newlines = _newline_offsets(text)
    next_newline = newlines.pop()
    line, position = 1, 0
    while found := match(text, position):
        kind = found.lastgroup or ""
        word = piece = found[kind]
        position = found.end()
        if kind == "name":
            word = piece.upper()
        elif kind in _SPECIAL:
            if kind == "end":
                break
            if kind == "comment":
                position = _end_of_comment(text, position)
                continue
            raise _invalid(text, position - 1)
        start = position - len(piece)
        if len(piece) > _LONGEST_NAME and kind in _NAMES:
            _check_length(make((kind, piece, word, start, position, line)))
        if len(tokens) == MOST_TOKENS:
            raise SqlServerError(701, _OUT_OF_MEMORY, severity=17, line=line)
        while next_newline < start:
            line += 1
            next_newline = newlines.pop()
        append(make((kind, piece, word, start, position, line)))
    return tokens


_SPECIAL: Final = frozenset(("end", "comment", "invalid"))
_NAMES: Final = frozenset((NAME, BRACKETED, QUOTED, VARIABLE))
_LONGEST_NAME: Final = 128


def _check_length(token: Token) -> None:
    name = identifier_value(token)
    if len(name) > _LONGEST_NAME:
        message = f"The identifier that starts with '{name[:_LONGEST_NAME]}' is too long. Maximum length is 128."
        raise SqlServerError(103, message, severity=15, state=4, line=token.line)


def _newline_offsets(text: str) -> list[int]:
    """Offsets of line feeds, the first one last (so that pop gives them in order), after a sentinel beyond the text."""
    beyond = len(text) + 1
    if "\n" not in text:
        return [beyond, beyond]
    offsets = [found.start() for found in re.finditer("\n", text)]
    offsets.append(beyond)
    offsets.reverse()
    return offsets


def _end_of_comment(text: str, position: int) -> int:
    """The offset after the comment whose opening ended at ``position``; comments nest in T-SQL."""
    depth = 1
    while depth:
        edge = _COMMENT_EDGE.search(text, position)
        if edge is None:
            raise SqlServerError(113, "Missing end comment mark '*/'.", severity=15, line=line_of(text, position))
        depth += 1 if edge[0] == "/*" else -1
        position = edge.end()
    return position


def _invalid(text: str, start: int) -> SqlServerError:
    line = line_of(text, start)
    if text[start] in "'\"[":
        rest = text[start + 1 :]
        return SqlServerError(
            105, f"Unclosed quotation mark after the character string '{rest}'.", severity=15, line=line
        )
    return SqlServerError(102, f"Incorrect syntax near '{text[start]}'.", severity=15, line=line)


def line_of(text: str, offset: int) -> int:
    """The line, from 1, on which the character at ``offset`` is."""
    return text.count("\n", 0, offset) + 1


def identifier_value(token: Token) -> str:
    """The name that an identifier token represents, without its delimiters."""
    if token.kind == BRACKETED:
        return token.text[1:-1].replace("]]", "]")
    if token.kind == QUOTED:
        return token.text[1:-1].replace('""', '"')
    return token.text


def string_value(token: Token) -> str:
    """The characters of a STRING or NSTRING token."""
    if token.kind == NSTRING:
        return literal_text(token.text[2:-1])
    return in_code_page(literal_text(token.text[1:-1]))


def literal_text(written: str) -> str:
    """The characters of a string literal, of which ``written`` is what is between its quotation marks."""
    text = written.replace("''", "'")
    # A backslash at the end of a line continues the literal on the next one: both vanish.
    return _CONTINUATION.sub("", text) if "\\" in text else text


def quote_identifier(name: str) -> str:
    return "[" + name.replace("]", "]]") + "]"


def quote_string(value: str) -> str:
    """``value`` as a literal. A backslash at the end of a line is written so that it is kept."""
    kept = _CONTINUATION.sub(r"\\\g<0>\1", value) if "\\" in value else value
    return "N'" + kept.replace("'", "''") + "'"
