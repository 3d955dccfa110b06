"""Where a statement or an expression ends: T-SQL batches have no semicolons as a rule.

A statement ends at a semicolon, at the end of the batch, at END or ELSE of an enclosing block, or where a word that
starts a statement is outside parentheses and CASE, unless the grammar of the running statement wants that word
there (`UNION SELECT`, `WHEN MATCHED THEN UPDATE SET`, `ON DELETE CASCADE`, `ALTER TABLE … DROP`, `GRANT SELECT ON`, …).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlserver_emulator.syntax.lexer import Token
from sqlserver_emulator.syntax.parsing.keywords import STARTERS

DML: Final = frozenset(("SELECT", "INSERT", "UPDATE", "DELETE", "MERGE"))
SET_OPERATORS: Final = frozenset(("UNION", "ALL", "EXCEPT", "INTERSECT"))
MODULES: Final = frozenset(("PROCEDURE", "PROC", "FUNCTION", "TRIGGER", "VIEW", "RULE", "DEFAULT"))
"""What CREATE or ALTER of must be alone in its batch: the statement reaches to the end of the text."""

_STOPS = STARTERS | {"(", ")", ";", "", "CASE"}
_CLOSING = frozenset(("(", ")", ""))


def skip_parentheses(tokens: list[Token], at: int) -> int:
    """The index after the ")" that closes the "(" at ``at``; the end token's index when nothing closes it."""
    depth = 0
    while True:
        word = tokens[at].word
        if word in _CLOSING:
            if word == "":
                return at
            depth += 1 if word == "(" else -1
            if depth == 0:
                return at + 1
        at += 1


def expression_end(tokens: list[Token], at: int, stops: frozenset[str] = frozenset()) -> int:
    """The index after the expression at ``at``: at a word of ``stops``, a start of statement, ";", ")" or the end."""
    cases = 0
    while True:
        word = tokens[at].word
        if word in stops and not cases:
            return at
        if word in _STOPS:
            if word == "(":
                at = skip_parentheses(tokens, at)
                continue
            if word == "CASE":
                cases += 1
            elif word in ("ELSE", "END") and cases:
                cases -= word == "END"
            elif not _is_member(tokens, at) and not (word == "UPDATE" and tokens[at + 1].word == "("):
                return at
        at += 1


def _is_member(tokens: list[Token], at: int) -> bool:
    """Whether the word is the part of a dotted name (`t.end`)."""
    return tokens[at].word != "" and at > 0 and tokens[at - 1].word == "."


class SqlScan:
    """Finds the end of one statement for the engine, and learns what it is on the way.

    ``verb``: its first word; after WITH … the SELECT, INSERT, UPDATE, DELETE or MERGE that the CTEs serve.
    ``has_source``: an INSERT has met its VALUES, SELECT or DEFAULT VALUES (if not, EXEC may follow).
    """

    __slots__ = ("_action_at", "_cases", "_granted", "_set_seen", "at", "has_source", "start", "tokens", "verb")

    def __init__(self, tokens: list[Token], start: int) -> None:
        self.tokens = tokens
        self.start = self.at = start
        self.verb = "SELECT" if tokens[start].word == "(" else tokens[start].word
        self.has_source = False
        self._set_seen = tokens[start].word == "UPDATE" and tokens[start + 1].word == "STATISTICS"
        self._granted = False
        self._cases = 0
        self._action_at = _alter_action(tokens, start) if self.verb == "ALTER" else -1

    def end(self) -> int:
        tokens, at = self.tokens, self.start
        if tokens[at].word != "(":
            at += 1
        if self.verb in ("CREATE", "ALTER") and is_module(tokens, self.start):
            return len(tokens) - 1
        while True:
            word = tokens[at].word
            if word in _STOPS:
                if word == "(":
                    self._check_inside(at)
                    at = skip_parentheses(tokens, at)
                    continue
                if not self._belongs(word, at):
                    self.at = at
                    return at
            elif word == "VALUES":
                self.has_source = True
            at += 1

    def _check_inside(self, at: int) -> None:
        if self.verb == "INSERT" and not self.has_source and self.tokens[at + 1].word in ("SELECT", "WITH", "("):
            self.has_source = True

    def _belongs(self, word: str, at: int) -> bool:
        tokens = self.tokens
        if word == "CASE":
            self._cases += 1
            return True
        if word in ("", ";", ")"):
            return False
        if word in ("ELSE", "END") and self._cases:
            self._cases -= word == "END"
            return True
        previous = tokens[at - 1].word
        if previous == "." or word == "WITH" or at == self._action_at:
            return True
        return self._common(word, previous, at) or _RULES.get(self.verb, _never)(self, word, previous, at)

    def _common(self, word: str, previous: str, at: int) -> bool:
        following = self.tokens[at + 1].word
        if word == "SELECT":
            return previous in SET_OPERATORS
        if word == "FETCH":
            return previous in ("ROW", "ROWS")
        if word == "MERGE":
            return following in ("JOIN", "RANGE")
        if word in ("UPDATE", "DELETE"):
            return previous == "ON" and following in ("CASCADE", "NO", "SET")
        if word == "SET":
            on_action = previous in ("UPDATE", "DELETE") and self.tokens[at - 2].word == "ON"
            return on_action or following == "("
        return False

    def _with(self, word: str, previous: str, at: int) -> bool:
        if word not in DML:
            return False
        self.verb = word
        return True

    def _insert(self, word: str, previous: str, at: int) -> bool:
        if word == "BULK" and at == self.start + 1:
            self.has_source = True
            return True
        if word == "SELECT" and not self.has_source:
            self.has_source = True
            return True
        return False

    def _update(self, word: str, previous: str, at: int) -> bool:
        if word == "SET" and not self._set_seen:
            self._set_seen = True
            return True
        return False

    def _merge(self, word: str, previous: str, at: int) -> bool:
        return (word in DML and previous == "THEN") or (word == "SET" and previous == "UPDATE")

    def _grant(self, word: str, previous: str, at: int) -> bool:
        """Everything up to TO or FROM names permissions."""
        if not self._granted:
            self._granted = any(token.word in ("TO", "FROM") for token in self.tokens[self.start : at])
        return not self._granted or (word == "GRANT" and previous == "WITH")

    def _drop(self, word: str, previous: str, at: int) -> bool:
        return word == "IF" and self._if_exists(at)

    def _alter(self, word: str, previous: str, at: int) -> bool:
        following = self.tokens[at + 1].word
        if word == "ALTER":
            return following == "COLUMN"
        if word == "DROP":
            return previous == "," or following in _DROPPED_BY_ALTER
        # ALTER DATABASE … SET … WITH ROLLBACK IMMEDIATE
        if word == "ROLLBACK":
            return previous == "WITH"
        # ALTER TABLE … ADD c datetime2 GENERATED ALWAYS AS ROW END
        if word == "END":
            return previous == "ROW"
        return word == "IF" and self._if_exists(at)

    def _if_exists(self, at: int) -> bool:
        """IF EXISTS of DROP; the IF of control flow goes on with EXISTS (."""
        return self.tokens[at + 1].word == "EXISTS" and self.tokens[at + 2].word != "("

    def _create(self, word: str, previous: str, at: int) -> bool:
        """CREATE SCHEMA s CREATE TABLE … GRANT … is one statement: its parts would mean something else alone."""
        parts = ("CREATE", "GRANT", "DENY", "REVOKE")
        return self.tokens[self.start + 1].word == "SCHEMA" and (word in parts or previous in parts)

    def _bulk(self, word: str, previous: str, at: int) -> bool:
        return word == "INSERT" and previous == "BULK"

    def _cursor(self, word: str, previous: str, at: int) -> bool:
        """DECLARE c CURSOR FOR SELECT … FOR UPDATE."""
        return word in ("SELECT", "UPDATE") and previous == "FOR"


_DROPPED_BY_ALTER: Final = frozenset(
    ("COLUMN", "CONSTRAINT", "PERIOD", "MEMBER", "NOT", "PERSISTED", "MASKED", "ROWGUIDCOL", "SPARSE", "HIDDEN")
) | {"FILTER", "BLOCK"}


def _never(scan: SqlScan, word: str, previous: str, at: int) -> bool:
    return False


_RULES: Final[dict[str, Callable[[SqlScan, str, str, int], bool]]] = {
    "WITH": SqlScan._with,
    "INSERT": SqlScan._insert,
    "UPDATE": SqlScan._update,
    "MERGE": SqlScan._merge,
    "GRANT": SqlScan._grant,
    "DENY": SqlScan._grant,
    "REVOKE": SqlScan._grant,
    "DROP": SqlScan._drop,
    "ALTER": SqlScan._alter,
    "CREATE": SqlScan._create,
    "BULK": SqlScan._bulk,
    "DECLARE": SqlScan._cursor,
}


def is_module(tokens: list[Token], start: int) -> bool:
    """CREATE [OR ALTER] PROCEDURE and the like."""
    if tokens[start + 1].word == "OR":
        return tokens[start + 2].word == "ALTER" and tokens[start + 3].word in MODULES
    return tokens[start + 1].word in MODULES


def _alter_action(tokens: list[Token], start: int) -> int:
    """The index of the word after the name in ALTER TABLE name …: what is done, never the start of a statement."""
    at = start + 2
    while at + 1 < len(tokens) and tokens[at + 1].word == ".":
        at += 2
    return at + 1
