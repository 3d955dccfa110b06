"""Expressions as the catalog shows them: ``a > 1 AND b IN (1, 2)`` is ``([a]>(1) AND ([b]=(2) OR [b]=(1)))``.

A server keeps a check, a default or a computed column as a tree and writes its text from that: columns in brackets,
numbers in parentheses, functions in lower case, IN and BETWEEN as comparisons. The forms are those of published scripts
that tools made from the catalog. What the reader here does not know stays as it was written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlserver_emulator.syntax.lexer import (
    BRACKETED,
    DECIMAL,
    FLOAT,
    HEX,
    IDENTIFIERS,
    INTEGER,
    MONEY,
    NAME,
    NSTRING,
    STRING,
    Token,
    identifier_value,
    quote_identifier,
    tokenize,
)

_NUMBERS: Final = (INTEGER, DECIMAL, FLOAT, MONEY)
_OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _ATOM = range(1, 8)
_COMPARISONS: Final = frozenset(("=", "<>", "!=", "<", ">", "<=", ">=", "!<", "!>"))
_SUMS, _PRODUCTS = frozenset("+-&|^"), frozenset("*/%")
_OTHER_WORDS: Final = {"!=": "<>", "!<": ">=", "!>": "<="}
_NILADIC: Final = {
    "CURRENT_TIMESTAMP": "getdate()",
    "CURRENT_USER": "user_name()",
    "SESSION_USER": "user_name()",
    "USER": "user_name()",
    "SYSTEM_USER": "suser_sname()",
}
_UNKNOWN_CALLS: Final = frozenset(("PARSE", "TRIM", "IIF", "STRING_AGG", "JSON_OBJECT", "JSON_ARRAY"))
_OF_DATE: Final = {"YEAR": "year", "MONTH": "month", "DAY": "day"}
_WITH_DATE_PART: Final = frozenset(("DATEADD", "DATEDIFF", "DATEDIFF_BIG", "DATENAME", "DATEPART"))
_DATE_PARTS: Final = {
    short: part
    for part, shorts in (
        ("year", "yy yyyy"),
        ("quarter", "qq q"),
        ("month", "mm m"),
        ("dayofyear", "dy y"),
        ("day", "dd d"),
        ("week", "wk ww"),
        ("weekday", "dw w"),
        ("hour", "hh"),
        ("minute", "mi n"),
        ("second", "ss s"),
        ("millisecond", "ms"),
        ("microsecond", "mcs"),
        ("nanosecond", "ns"),
    )
    for short in shorts.split()
}
# Words that begin or divide what is not read here.
_UNKNOWN: Final = frozenset(("SELECT", "EXISTS", "OVER", "WITHIN", "AT", "ANY", "ALL", "SOME", "CONTAINS", "FREETEXT"))


class _UnknownFormError(Exception):
    """The expression has a part that this reader does not know."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of an expression as it is shown. ``level``: how tightly its outermost operator binds."""

    text: str
    level: int = _ATOM


def canonical(text: str, *, keeps_lists: bool = False) -> str:
    """Return an expression or condition in parentheses, as the catalog shows it. ``keeps_lists``: IN stays IN."""
    try:
        reader = _Reader(tokenize(text), keeps_lists=keeps_lists)
        return f"({reader.whole()})"
    except (_UnknownFormError, IndexError):
        return as_written(text)


def as_written(text: str) -> str:
    """Return an expression in parentheses, once."""
    text = text.strip()
    return text if is_parenthesised(text) else f"({text})"


def is_parenthesised(text: str) -> bool:
    """Return whether the first parenthesis is the last one's partner."""
    if not text.startswith("("):
        return False
    depth = 0
    for token in tokenize(text):
        depth += (token.word == "(") - (token.word == ")")
        if depth == 0:
            return token.end == len(text)
    return False


class _Reader:
    """The tokens of an expression, read by descent. IndexError: they end too early."""

    def __init__(self, tokens: list[Token], *, keeps_lists: bool) -> None:
        self._tokens = tokens
        self._at = 0
        self._keeps_lists = keeps_lists

    def whole(self) -> str:
        part = self._condition()
        if self._at != len(self._tokens):
            raise _UnknownFormError
        return part.text

    # -- conditions -------------------------------------------------------------------------------------------------

    def _condition(self) -> _Part:
        part = self._conjunction()
        while self._accept("OR"):
            part = _Part(f"{part.text} OR {_within(self._conjunction(), _OR + 1)}", _OR)
        return part

    def _conjunction(self) -> _Part:
        part = self._negation()
        while self._accept("AND"):
            right = self._negation()
            part = _Part(f"{_within(part, _AND)} AND {_within(right, _AND + 1)}", _AND)
        return part

    def _negation(self) -> _Part:
        if self._accept("NOT"):
            return _Part(f"NOT {_within(self._negation(), _NOT)}", _NOT)
        return self._predicate()

    def _predicate(self) -> _Part:
        left = self._sum()
        if self._accept("IS"):
            return _Part(f"{left.text} IS {'NOT ' if self._accept('NOT') else ''}{self._expect('NULL')}", _COMPARISON)
        word = self._word
        if word in _COMPARISONS:
            self._at += 1
            return _Part(f"{left.text}{_OTHER_WORDS.get(word, word)}{self._sum().text}", _COMPARISON)
        is_negated = self._accept("NOT")
        part = self._range(left)
        if part is None:
            if is_negated:
                raise _UnknownFormError
            return left
        return _Part(f"NOT {_within(part, _NOT)}", _NOT) if is_negated else part

    def _range(self, left: _Part) -> _Part | None:
        """LIKE, BETWEEN or IN behind an expression."""
        if self._accept("LIKE"):
            pattern = self._sum().text
            escape = f" escape {self._sum().text}" if self._accept("ESCAPE") else ""
            return _Part(f"{left.text} like {pattern}{escape}", _COMPARISON)
        if self._accept("BETWEEN"):
            low = self._sum().text
            self._expect("AND")
            return _Part(f"{left.text}>={low} AND {left.text}<={self._sum().text}", _AND)
        if self._accept("IN"):
            self._expect("(")
            values = self._arguments()
            if self._keeps_lists:
                return _Part(f"{left.text} IN ({', '.join(values)})", _COMPARISON)
            return _Part(" OR ".join(f"{left.text}={v}" for v in reversed(values)), _OR if values[1:] else _COMPARISON)
        return None

    # -- values -----------------------------------------------------------------------------------------------------

    def _sum(self) -> _Part:
        part = self._product()
        while self._word in _SUMS:
            operator = self._take().word
            part = _Part(f"{_within(part, _SUM + 1)}{operator}{_within(self._product(), _SUM + 1)}", _SUM)
        return part

    def _product(self) -> _Part:
        part = self._signed()
        while self._word in _PRODUCTS:
            operator = self._take().word
            part = _Part(f"{_within(part, _PRODUCT + 1)}{operator}{_within(self._signed(), _PRODUCT + 1)}", _PRODUCT)
        return part

    def _signed(self) -> _Part:
        if self._word not in ("-", "+", "~"):
            return self._collated()
        sign = self._take().word
        if sign != "~" and self._token.kind in _NUMBERS:
            return _Part(f"({sign.replace('+', '')}{self._take().text})")
        operand = _within(self._signed(), _PRODUCT)
        # A minus before what is no number has a blank before it.
        return _Part(f" -{operand}" if sign == "-" else f"{sign.replace('+', '')}{operand}", _PRODUCT)

    def _collated(self) -> _Part:
        part = self._atom()
        while self._accept("COLLATE"):
            part = _Part(f"({part.text}) collate {self._take().text}")
        return part

    def _atom(self) -> _Part:
        token = self._take()
        if token.kind in _NUMBERS:
            return _Part(f"({token.text})")
        if token.kind in (STRING, NSTRING, HEX):
            return _Part(token.text if token.kind != NSTRING else f"N{token.text[1:]}")
        if token.word == "(":
            return self._parenthesised()
        if token.kind not in IDENTIFIERS or token.word in _UNKNOWN:
            raise _UnknownFormError
        if token.kind == NAME:
            known = self._keyword(token)
            if known is not None:
                return known
        return self._named(token)

    def _parenthesised(self) -> _Part:
        part = self._condition()
        self._expect(")")
        return part

    def _keyword(self, token: Token) -> _Part | None:
        word = token.word
        if word == "NULL":
            return _Part("NULL")
        if word == "CASE":
            return self._case()
        if word in _NILADIC and self._word != "(":
            return _Part(_NILADIC[word])
        if word == "NEXT":
            self._expect("VALUE")
            self._expect("FOR")
            return _Part(f"NEXT VALUE FOR {self._name(self._take())}")
        return None

    def _case(self) -> _Part:
        parts = ["case"]
        if self._word != "WHEN":
            parts.append(self._sum().text)
        while self._accept("WHEN"):
            parts.append(f"when {self._condition().text}")
            self._expect("THEN")
            parts.append(f"then {self._condition().text}")
        if self._accept("ELSE"):
            parts.append(f"else {self._condition().text} end")
        else:
            parts.append(" end")  # after two blanks
        self._expect("END")
        return _Part(" ".join(parts))

    def _named(self, token: Token) -> _Part:
        """A column, or a call of a function."""
        if self._word == "(" and token.kind == NAME:
            self._at += 1
            return _Part(self._call(token.word))
        name = self._name(token)
        if not self._accept("("):
            return _Part(name)
        return _Part(f"{name}({','.join(self._arguments())})")

    def _name(self, token: Token) -> str:
        parts = [self._quoted(token)]
        while self._accept("."):
            parts.append(self._quoted(self._take()))
        return ".".join(parts)

    @staticmethod
    def _quoted(token: Token) -> str:
        if token.kind not in IDENTIFIERS:
            raise _UnknownFormError
        return token.text if token.kind == BRACKETED else quote_identifier(identifier_value(token))

    def _call(self, function: str) -> str:
        if function in ("CONVERT", "CAST"):
            return self._conversion(function)
        if function.startswith("TRY_") or function in _UNKNOWN_CALLS:
            raise _UnknownFormError
        first = []
        if function in _WITH_DATE_PART:
            part = self._take().text.lower()
            first = [_DATE_PARTS.get(part, part)]
            self._expect(",")
        elif function in _OF_DATE:
            first, function = [_OF_DATE[function]], "DATEPART"
        return f"{function.lower()}({','.join([*first, *self._arguments()])})"

    def _conversion(self, function: str) -> str:
        if function == "CAST":
            value = self._condition().text
            self._expect("AS")
            type_ = self._type()
            self._expect(")")
            return f"CONVERT({type_},{value})"
        type_ = self._type()
        self._expect(",")
        return f"CONVERT({','.join([type_, *self._arguments()])})"

    def _type(self) -> str:
        name = self._name(self._take())
        type_ = name.lower() if "." not in name else name
        if not self._accept("("):
            return type_
        sizes = [self._take().text.lower()]
        while self._accept(","):
            sizes.append(self._take().text)
        self._expect(")")
        return f"{type_}({','.join(sizes)})"

    def _arguments(self) -> list[str]:
        """Take what is in parentheses that are open, and the closing one."""
        if self._accept(")"):
            return []
        arguments = [self._condition().text]
        while self._accept(","):
            arguments.append(self._condition().text)
        self._expect(")")
        return arguments

    # -- tokens -----------------------------------------------------------------------------------------------------

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    @property
    def _word(self) -> str:
        return self._tokens[self._at].word if self._at < len(self._tokens) else ""

    def _take(self) -> Token:
        token = self._token
        self._at += 1
        return token

    def _accept(self, word: str) -> bool:
        if self._word != word:
            return False
        self._at += 1
        return True

    def _expect(self, word: str) -> str:
        if not self._accept(word):
            raise _UnknownFormError
        return word


def _within(part: _Part, level: int) -> str:
    """Return the part as an operand of what binds at ``level`` at least."""
    return part.text if part.level >= level else f"({part.text})"
