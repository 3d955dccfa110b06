"""Hints in the tokens of a statement, before sqlglot's parser, which knows few of them.

A hint changes how SQL Server runs a statement and not its result, so those that T-SQL has are taken away. Only
MAXRECURSION stays, which is a limit that a statement may meet.
"""

from __future__ import annotations

from typing import Final

from sqlglot.tokens import Token, TokenType

_QUERY_HINTS: Final = frozenset(
    ("USE", "RECOMPILE", "OPTIMIZE", "MAXDOP", "FORCE", "HASH", "MERGE", "LOOP", "CONCAT", "FAST", "KEEP", "KEEPFIXED",
     "EXPAND", "LABEL", "ORDER", "PARAMETERIZATION", "QUERYTRACEON", "ROBUST", "TABLE", "DISABLE",
     "IGNORE_NONCLUSTERED_COLUMNSTORE_INDEX",
     "MAX_GRANT_PERCENT", "MIN_GRANT_PERCENT", "NO_PERFORMANCE_SPOOL")
)  # fmt: skip


_BEFORE_A_SOURCE: Final = frozenset((TokenType.FROM, TokenType.JOIN, TokenType.COMMA))


def without_hints(tokens: list[Token]) -> list[Token]:
    """Take away the hints of OPTION and those behind the target of INSERT; write `INDEX = i` as `INDEX (i)`."""
    kept: list[Token] = []
    position = 0
    while position < len(tokens):
        token = tokens[position]
        following = tokens[position + 1] if position + 1 < len(tokens) else token
        if token.token_type == TokenType.OPTION and following.token_type == TokenType.L_PAREN:
            end = _closing(tokens, position + 1)
            options = _limits(tokens[position + 2 : end])
            if options:
                kept += [token, following, *options, tokens[end]]
            position = end + 1
        elif token.token_type == TokenType.WITH and following.token_type == TokenType.L_PAREN and _after_insert(kept):
            position = _closing(tokens, position + 1) + 1
        elif token.text.upper() == "INDEX" and following.token_type == TokenType.EQ and position + 2 < len(tokens):
            kept += [token, _like(following, "("), tokens[position + 2], _like(following, ")")]
            position += 3
        elif token.token_type == TokenType.DCOLON and kept and kept[-1].token_type in _BEFORE_A_SOURCE:
            # `FROM ::fn_listextendedproperty(…)`: system functions as they were written before SQL Server 2005.
            position += 1
        else:
            kept.append(token)
            position += 1
    return kept


def _limits(options: list[Token]) -> list[Token]:
    """The options that are not hints, with the commas between them."""
    kept: list[Token] = []
    item: list[Token] = []
    depth = 0
    for token in [*options, None]:
        if token is None or (token.token_type == TokenType.COMMA and depth == 0):
            if item and item[0].text.upper() not in _QUERY_HINTS:
                kept += [_like(item[0], ","), *item] if kept else item
            item = []
            continue
        depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
        item.append(token)
    return kept


def _after_insert(before: list[Token]) -> bool:
    """Whether the tokens end with `INSERT [INTO] name`."""
    at = len(before) - 1
    while at > 0 and before[at].token_type not in (TokenType.INSERT, TokenType.INTO, TokenType.R_PAREN, TokenType.FROM):
        at -= 1
    if at < 0 or len(before) - at > 8:
        return False
    is_into = before[at].token_type == TokenType.INTO
    return before[at].token_type == TokenType.INSERT or (
        is_into and any(token.token_type == TokenType.INSERT for token in before[max(at - 5, 0) : at])
    )


def _closing(tokens: list[Token], opening: int) -> int:
    depth = 0
    for position in range(opening, len(tokens)):
        depth += (tokens[position].token_type == TokenType.L_PAREN) - (tokens[position].token_type == TokenType.R_PAREN)
        if depth == 0:
            return position
    return len(tokens) - 1


def _like(token: Token, text: str) -> Token:
    kinds = {"(": TokenType.L_PAREN, ")": TokenType.R_PAREN, ",": TokenType.COMMA}
    return Token(kinds[text], text, token.line, token.col, token.start, token.end)
