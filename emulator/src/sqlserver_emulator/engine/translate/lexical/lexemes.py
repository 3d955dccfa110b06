"""The literals of a statement's text, and what is left without them: the shape that the cache knows.

Drivers without parameters (pymssql) send a new text for every row; the shape of those texts is one and the same. This
module only cuts text by one regular expression; it does not know the grammar. A multi-row `INSERT … VALUES` whose
rows are alike is folded to its first row, with the literals of each column side by side.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlserver_emulator.code_units import in_code_page
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.syntax.lexer import literal_text

# The lookbehind keeps an N that ends a name from being read as the prefix of a national string.
_STRING = r"(?:(?<![\w@#$])[nN])?'[^']*(?:''[^']*)*'"
_NUMBER = (
    r"(?<![\w@#$])0[xX][0-9a-fA-F]*"
    r"|(?<![\w@#$])\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"
    r'|(?<![\w@#$\]"])\.\d+(?:[eE][+-]?\d+)?'
    r"|(?<![\w@#$])[$£€¥]\d+(?:\.\d*)?"
)
# Comments and quoted names are matched so that a quote or a digit inside them is no literal.
_SKIPPED = r"--[^\n]*|/\*.*?\*/|\[[^\]]*(?:\]\][^\]]*)*\]|\"[^\"]*(?:\"\"[^\"]*)*\""

_LITERALS: Final = re.compile(f"({_SKIPPED}|{_STRING}|{_NUMBER})", re.DOTALL)
_ROW_ITEMS: Final = re.compile(
    rf"({_SKIPPED}|{_STRING}|(?:(?<=[\s,(])-)?(?:{_NUMBER})|(?<![\w@#$])[nN][uU][lL][lL](?![\w@#$]))", re.DOTALL
)
_MULTI_ROW_INSERT: Final = re.compile(r"\s*insert\b.*?\bvalues\s*\(", re.IGNORECASE | re.DOTALL)
_BEFORE_FIRST_ROW: Final = re.compile(r"\bvalues\s*\(\s*$", re.IGNORECASE)
_BETWEEN_ROWS: Final = re.compile(r"\s*\)\s*,\s*\(\s*$")
_SIGN: Final = re.compile("[$£€¥]")
_ROW_BREAK: Final = re.compile(r"\)\s*,\s*\(")
_AFTER_LAST_ROW: Final = re.compile(r"\s*\)\s*;?\s*$")
_BETWEEN_ITEMS: Final = re.compile(r"\s*,\s*$")

INT = "i"
DECIMAL = "d"
FLOAT = "f"
MONEY = "m"
STRING = "s"
NATIONAL = "n"
BINARY = "x"
NULL = "0"

_MARKS = {kind: f"\x01{kind}" for kind in (INT, DECIMAL, FLOAT, MONEY, STRING, NATIONAL, BINARY, NULL)}
_MAX_INT = 2147483647
_MOST_ROWS = 1000
_MAX_PRECISION = 38


def classify(lexeme: str) -> str:  # noqa: PLR0911  (called for every literal: no detours)
    """The class of a literal; '' for a comment, and for a quoted name."""
    first = lexeme[0]
    if first == "'":
        return STRING
    if lexeme.isdigit():
        # A shorter number fits an int for certain, so only ten digits and more are compared.
        return INT if len(lexeme) < 10 or _whole_number(lexeme) <= _MAX_INT else DECIMAL
    if first in "nN":
        return NATIONAL if lexeme[1] == "'" else NULL
    if first in '["-/':
        return ""
    if first in "$£€¥":
        return MONEY
    if lexeme[1:2] in ("x", "X"):
        return BINARY
    if "e" in lexeme or "E" in lexeme:
        return FLOAT
    if len(lexeme) > _MAX_PRECISION:
        _check_precision(lexeme)
    return DECIMAL


def _whole_number(digits: str) -> int:
    _check_precision(digits)
    return int(digits)


def _check_precision(number: str) -> None:
    """Raises 1007 for a number that no decimal holds."""
    if len(number.replace(".", "").lstrip("0")) > _MAX_PRECISION:
        message = f"The number '{number}' is out of the range for numeric representation (maximum precision 38)."
        raise SqlServerError(1007, message, severity=15)


def text_of(kind: str, lexeme: str) -> str | None:
    """The literal's value as PostgreSQL's input functions read it."""
    return _TEXT_OF[kind](lexeme)


def _binary_text(lexeme: str) -> str:
    digits = lexeme[2:]
    # SQL Server accepts an odd number of digits and puts a zero in front.
    return "\\x" + (digits if len(digits) % 2 == 0 else "0" + digits)


_TEXT_OF: Final[dict[str, Callable[[str], str | None]]] = {
    INT: lambda lexeme: lexeme,
    DECIMAL: lambda lexeme: lexeme,
    FLOAT: lambda lexeme: lexeme,
    MONEY: lambda lexeme: lexeme[1:],
    STRING: lambda lexeme: in_code_page(literal_text(lexeme[1:-1])),
    NATIONAL: lambda lexeme: literal_text(lexeme[2:-1]),
    BINARY: _binary_text,
    NULL: lambda _: None,
}


@dataclass(frozen=True, slots=True)
class Literal:
    """One literal of the text: its class and how it was written. In a folded insert, of the first row."""

    ordinal: int
    kind: str
    lexeme: str

    @property
    def text(self) -> str | None:
        return text_of(self.kind, self.lexeme)


@dataclass(frozen=True, slots=True)
class Lexemes:
    """A statement cut into shape and literals.

    kinds, lexemes: of each literal of ``sample``. columns: for a folded multi-row insert, the lexemes of each literal
    of the row, over all rows; else None. sample: the text to parse: the statement itself, or for a folded insert the
    statement with its first row only (a NULL there replaced by a value of the same column).
    """

    shape: str
    kinds: Sequence[str]
    lexemes: Sequence[str]
    parts: Sequence[str]
    columns: tuple[Sequence[str], ...] | None = None

    @property
    def sample(self) -> str:
        return "".join(self.parts)

    def literals_by_offset(self) -> dict[int, Literal]:
        found: dict[int, Literal] = {}
        offset = ordinal = 0
        for index, part in enumerate(self.parts):
            # The split yields text and matches in turn: matches are at the odd indices.
            if index % 2 and classify(part):
                found[offset] = Literal(ordinal, self.kinds[ordinal], part)
                ordinal += 1
            offset += len(part)
        return found


def cut(text: str) -> Lexemes:
    """Cut a statement's text. Cost: about 0.3 microseconds a literal."""
    # Cheap tests first: most statements are no inserts of several rows.
    if _ROW_BREAK.search(text) and _MULTI_ROW_INSERT.match(text):
        folded = _fold_rows(text)
        if folded is not None:
            return folded
    parts = _LITERALS.split(text)
    kinds: list[str] = []
    lexemes: list[str] = []
    shape: list[str] = []
    for index in range(0, len(parts) - 1, 2):
        part = parts[index + 1]
        kind = classify(part)
        shape.append(parts[index])
        if kind:
            kinds.append(kind)
            lexemes.append(part)
            shape.append(_MARKS[kind])
        else:
            # A quoted name stays in the shape, as it decides what is meant; a comment becomes a blank.
            shape.append(part if part[0] in '["' else " ")
    shape.append(parts[-1])
    return Lexemes("".join(shape), kinds, lexemes, parts)


def check_row_count(count: int) -> None:
    """Raise 10738 for an INSERT with more rows than VALUES may have there."""
    if count > _MOST_ROWS:
        message = "The number of row value expressions in the INSERT statement exceeds the maximum allowed number of"
        raise SqlServerError(10738, f"{message} {_MOST_ROWS} row values.", severity=15)


def _fold_rows(text: str) -> Lexemes | None:
    """The folded form of `INSERT … VALUES (…), (…)` with rows of one form; None when it is not that."""
    parts = _ROW_ITEMS.split(text)
    first = next((i for i in range(1, len(parts), 2) if _is_item(parts[i])), None)
    if first is None or not _BEFORE_FIRST_ROW.search(parts[first - 1]):
        return None
    gaps, literals = parts[first + 1 :: 2], parts[first::2]
    width = next((i for i, gap in enumerate(gaps, 1) if _BETWEEN_ROWS.match(gap)), 0)
    # Every row has the same number of items; a partial last row means another form.
    if not width or len(literals) % width or not all(_BETWEEN_ITEMS.match(gap) for gap in gaps[: width - 1]):
        return None
    # Whatever else follows (a row of another form) must not be taken for the end of the statement.
    if not _AFTER_LAST_ROW.match(gaps[-1]):
        return None
    inner = gaps[:-1]
    if any(gap != inner[i % width] for i, gap in enumerate(inner)):
        return None
    check_row_count(len(literals) // width)
    return _folded(parts[:first], [literals[i::width] for i in range(width)], gaps, width)


def _folded(head: list[str], columns: list[list[str]], gaps: list[str], width: int) -> Lexemes | None:
    parts = head
    kinds: list[str] = []
    lexemes: list[str] = []
    literal_columns: list[list[str]] = []
    shape = [part if i % 2 == 0 or part[0] in '["' else " " for i, part in enumerate(head)]
    for i, column in enumerate(columns):
        gap = gaps[i] if i < width - 1 else gaps[-1]
        kind = _column_kind(column)
        if kind is None:
            return None
        if kind == NULL:
            # A column of NULLs only stays in the text: it has no class that a parameter could have.
            parts[-1] += "NULL" + gap
        else:
            sample = next(item for item in column if classify(item.lstrip("-")) != NULL).lstrip("-")
            kinds.append(kind)
            lexemes.append(sample)
            literal_columns.append(column)
            parts += [sample, gap]
        shape += [_MARKS[kind], gap]
    if not literal_columns:
        return None
    # \x02 keeps a folded shape apart from that of a plain insert of one row.
    return Lexemes("\x02" + "".join(shape), kinds, lexemes, parts, tuple(literal_columns))


def _is_item(part: str) -> bool:
    return part[0] not in '["/' and not part.startswith("--")


def _column_kind(column: list[str]) -> str | None:
    """The one class of a column's literals, numbers widened; None when they do not go together."""
    # A minus before a number belongs to the item, so that -1 and 1 are of one class.
    kinds = {classify(item[1:] if item[0] == "-" and item[1] != "-" else item) for item in column}
    if len(kinds) > 1:
        kinds.discard(NULL)
    if kinds <= {INT, DECIMAL}:
        return DECIMAL if DECIMAL in kinds else INT
    if kinds <= {STRING, NATIONAL}:
        # One national string makes the column national, as the server's common type would.
        return NATIONAL if NATIONAL in kinds else STRING
    return kinds.pop() if len(kinds) == 1 and "" not in kinds else None


def array_text(kind: str, lexemes: Sequence[str]) -> str:
    """A column of literals as the text of a PostgreSQL array."""
    if kind in (INT, DECIMAL, FLOAT):
        return "{" + ",".join(lexemes) + "}"
    if kind == MONEY:
        return "{" + ",".join([_SIGN.sub("", lexeme) for lexeme in lexemes]) + "}"
    return "{" + ",".join([_element_text(lexeme) for lexeme in lexemes]) + "}"


def _element_text(lexeme: str) -> str:
    text = text_of(classify(lexeme), lexeme)
    if text is None:
        return "NULL"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
