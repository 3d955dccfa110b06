"""A position in the tokens of a batch, and the syntax errors that belong to a position."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.syntax.lexer import IDENTIFIERS, NAME, VARIABLE, Token, identifier_value, tokenize
from sqlserver_emulator.syntax.parsing.keywords import RESERVED
from sqlserver_emulator.syntax.statements import Batch, Declaration

END: str = "end"
"""Kind of the token after the last one; its word is empty, so no comparison ever meets it."""


class Cursor:
    """``tokens`` ends with a token of kind END, so that peeking one ahead is always possible.

    ``declarations``: the scalar variables declared so far; ``known``: those, the table variables and the parameters.
    ``loops``, ``catches``: how many WHILE and CATCH are open around the cursor.
    """

    __slots__ = ("at", "catches", "cursor_variables", "declarations", "known", "loops", "text", "tokens")

    def __init__(self, text: str, known: Iterable[str] = ()) -> None:
        self.text = text
        self.known = set(known)
        self.cursor_variables: set[str] = set()
        self.declarations: list[Declaration] = []
        self.loops = self.catches = 0
        self.tokens = tokenize(text)
        last_line = self.tokens[-1].line if self.tokens else 1
        self.tokens.append(Token(END, "", "", len(text), len(text), last_line))
        self.at = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    @property
    def word(self) -> str:
        return self.tokens[self.at].word

    @property
    def line(self) -> int:
        return self.tokens[self.at].line

    @property
    def at_end(self) -> bool:
        return self.tokens[self.at].kind == END

    def word_after(self, distance: int = 1) -> str:
        index = self.at + distance
        return self.tokens[index].word if index < len(self.tokens) else ""

    def take(self) -> Token:
        token = self.tokens[self.at]
        if token.kind == END:
            raise self.syntax_error()
        self.at += 1
        return token

    def accept(self, *words: str) -> bool:
        """Step over the words if they come next, all of them."""
        for distance, word in enumerate(words):
            if self.word_after(distance) != word:
                return False
        self.at += len(words)
        return True

    def expect(self, *words: str) -> None:
        for word in words:
            if self.word != word:
                raise self.syntax_error()
            self.at += 1

    def expect_one_of(self, words: Container[str]) -> str:
        word = self.word
        if word not in words:
            raise self.syntax_error()
        self.at += 1
        return word

    def at_identifier(self) -> bool:
        """Whether an identifier comes next that is no reserved word."""
        token = self.token
        return token.kind in IDENTIFIERS and not (token.kind == NAME and token.word in RESERVED)

    def take_identifier(self) -> str:
        if not self.at_identifier():
            raise self.syntax_error()
        return identifier_value(self.take())

    def between(self, start: int, end: int) -> str:
        """The text from the token at ``start`` to the one before ``end``."""
        if end <= start:
            return ""
        return self.text[self.tokens[start].start : self.tokens[end - 1].end]

    def check_variables(self, start: int, end: int) -> None:
        """Raises 137 or 1087 when a variable between the two tokens is not declared before them."""
        for index in range(start, end):
            token = self.tokens[index]
            if token.kind == VARIABLE and token.text.lower() not in self.known:
                raise undeclared(token, self.tokens[index - 1].word if index else "")

    def syntax_error(self, at: int | None = None) -> SqlServerError:
        """102, or 156 near a reserved word. At the end of the text SQL Server names the last token."""
        token = self.tokens[self.at if at is None else at]
        if token.kind == END:
            token = self.tokens[-2] if len(self.tokens) > 1 else token
        elif token.kind == NAME and token.word in RESERVED:
            message = f"Incorrect syntax near the keyword '{token.text}'."
            return SqlServerError(156, message, severity=15, line=token.line)
        return SqlServerError(102, f"Incorrect syntax near '{token.text}'.", severity=15, line=token.line)


_TABLE_PLACES = frozenset(("INTO", "FROM", "JOIN", "UPDATE", "DELETE", "USING"))


def undeclared(token: Token, previous: str) -> SqlServerError:
    if previous in _TABLE_PLACES:
        message = f'Must declare the table variable "{token.text}".'
        return SqlServerError(1087, message, severity=15, state=2, line=token.line)
    message = f'Must declare the scalar variable "{token.text}".'
    return SqlServerError(137, message, severity=15, state=2, line=token.line)


TakeBatch = Callable[[Cursor], Batch]
"""``batch.take_batch``, passed to the parsers of modules: their bodies are batches, and a batch may hold a module."""
