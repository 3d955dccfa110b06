"""T-SQL's tokens out of those that sqlglot's tokenizer makes, which tears some of them apart."""

from __future__ import annotations

from sqlglot.tokens import Token, TokenType


def merge_tokens(tokens: list[Token], text: str) -> list[Token]:
    """Join what sqlglot's tokenizer tears apart: `.5`, `$1.50`, `#t`, `@@x`, `!<`, and the empty `0x`."""
    merged: list[Token] = []
    position = 0
    while position < len(tokens):
        token, taken = _merged_token(tokens, position, text)
        merged.append(token)
        position += taken
    return merged


def _merged_token(  # noqa: PLR0911  (one return a case)
    tokens: list[Token], position: int, text: str
) -> tuple[Token, int]:
    token = tokens[position]
    following = tokens[position + 1 : position + 3]
    touching = _touching(token, following)
    kind = token.token_type
    if kind == TokenType.HASH and touching:
        count = 2 if following[0].token_type == TokenType.HASH and touching > 1 else 1
        return _joined(TokenType.VAR, token, following[count - 1], text), count + 1
    # `@@x` comes as two parameter signs and a name; the second sign joins the name here.
    before = tokens[position - 1] if position and tokens[position - 1].end + 1 == token.start else None
    if kind == TokenType.PARAMETER and touching and before and before.token_type == TokenType.PARAMETER:
        return _joined(TokenType.VAR, token, following[0], text), 2
    # `t.5` is a qualified name and not t followed by .5.
    starts_number = before is None or before.token_type not in _NAME_ENDS
    if kind == TokenType.DOT and touching and following[0].token_type == TokenType.NUMBER and starts_number:
        return _joined(TokenType.NUMBER, token, following[0], text), 2
    if token.text == "$" and touching > 1 and following[0].token_type == TokenType.DASH:
        # `$-1.5`: a minus before the amount, which keeps its sign of money.
        amount = following[1]
        tokens[position + 2] = Token(
            TokenType.NUMBER, f"${amount.text}", amount.line, amount.col, amount.start, amount.end
        )
        return following[0], 2
    if token.text.startswith("$") and token.text[1:].isdigit() and text[token.start] == "$":
        if touching > 1 and following[0].token_type == TokenType.DOT and following[1].token_type == TokenType.NUMBER:
            return _joined(TokenType.NUMBER, token, following[1], text), 3
        return _joined(TokenType.NUMBER, token, token, text), 1
    if (
        kind == TokenType.NOT
        and token.text == "!"
        and touching
        and following[0].token_type in (TokenType.LT, TokenType.GT)
    ):
        # `!<` is the T-SQL spelling of >=, and `!>` of <=.
        opposite = TokenType.GTE if following[0].token_type == TokenType.LT else TokenType.LTE
        return _joined(opposite, token, following[0], text), 2
    if kind == TokenType.IDENTIFIER and token.text in ("0x", "0X"):
        return Token(TokenType.HEX_STRING, "", token.line, token.col, token.start, token.end), 1
    return token, 1


_NAME_ENDS = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.R_PAREN, TokenType.DOT)


def _touching(token: Token, following: list[Token]) -> int:
    """How many of the following tokens stand directly behind one another without a blank."""
    count = 0
    for after in following:
        if after.start != token.end + 1:
            break
        count, token = count + 1, after
    return count


def _joined(kind: TokenType, first: Token, last: Token, text: str) -> Token:
    return Token(kind, text[first.start : last.end + 1], first.line, first.col, first.start, last.end, first.comments)
