"""CREATE TRIGGER, and what UPDATE(column) and COLUMNS_UPDATED() mean in a trigger's body.

Which columns the statement assigned is known when the trigger fires; then the two functions are put into the text as
what they are, so that the rest of the interpreter need not know them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.syntax.lexer import IDENTIFIERS, identifier_value, tokenize
from sqlserver_emulator.syntax.parsing.cursor import Cursor, TakeBatch
from sqlserver_emulator.syntax.parsing.execute import take_name
from sqlserver_emulator.syntax.statements import Trigger

_EVENTS: Final = ("INSERT", "UPDATE", "DELETE")
_BYTE: Final = 8


@lru_cache(512)
def read_trigger(
    source: str,
    take_batch: TakeBatch,
    updated: frozenset[str] | None = None,
    columns: tuple[tuple[str, int], ...] = (),
) -> Trigger:
    """Return the parsed text of a trigger, whose body ``take_batch`` takes.

    ``updated``: lower-case names of the columns that the statement assigned, None for all (INSERT). ``columns``: lower-
    case name and id of each column of the table.
    """
    return _take_trigger(Cursor(_with_answers(source, updated, dict(columns))), take_batch)


def _take_trigger(cursor: Cursor, take_batch: TakeBatch) -> Trigger:
    if cursor.expect_one_of(("CREATE", "ALTER")) == "CREATE":
        cursor.accept("OR", "ALTER")
    cursor.expect("TRIGGER")
    name = take_name(cursor)
    cursor.expect("ON")
    if cursor.word == "DATABASE" or (cursor.word == "ALL" and cursor.word_after() == "SERVER"):
        raise NotSupportedByEmulatorError(f"triggers ON {cursor.word}")
    table = take_name(cursor)
    if cursor.accept("WITH"):
        _skip_options(cursor)
    instead_of = cursor.accept("INSTEAD", "OF")
    if not instead_of:
        cursor.expect_one_of(("AFTER", "FOR"))
    events = [cursor.expect_one_of(_EVENTS)]
    while cursor.accept(","):
        events.append(cursor.expect_one_of(_EVENTS))
    cursor.accept("NOT", "FOR", "REPLICATION")
    cursor.expect("AS")
    if cursor.at_end:
        raise cursor.syntax_error()
    return Trigger(name, table, frozenset(events), instead_of, take_batch(cursor))


def _skip_options(cursor: Cursor) -> None:
    while True:
        if cursor.accept("EXECUTE", "AS"):
            if cursor.take().word not in ("CALLER", "OWNER", "SELF"):
                raise NotSupportedByEmulatorError("triggers WITH EXECUTE AS a user")
        elif not cursor.accept("ENCRYPTION"):
            raise NotSupportedByEmulatorError(f"triggers WITH {cursor.word}")
        if not cursor.accept(","):
            return


def _with_answers(source: str, updated: frozenset[str] | None, columns: Mapping[str, int]) -> str:
    tokens = tokenize(source)
    pieces: list[str] = []
    position = 0
    for i, token in enumerate(tokens[:-2]):
        if token.word == "UPDATE" and tokens[i + 1].word == "(" and tokens[i + 2].kind in IDENTIFIERS:
            column = identifier_value(tokens[i + 2]).lower()
            answer = "(1=1)" if updated is None or column in updated else "(1=0)"
            end = tokens[i + 3].end
        elif token.word == "COLUMNS_UPDATED" and tokens[i + 1].word == "(":
            answer = _mask(
                columns.values() if updated is None else [columns[name] for name in updated & columns.keys()]
            )
            end = tokens[i + 2].end
        else:
            continue
        pieces += [source[position : token.start], answer]
        position = end
    return "".join(pieces) + source[position:]


def _mask(column_ids: Iterable[int]) -> str:
    """COLUMNS_UPDATED(): one bit a column, the first column in the lowest bit of the first byte."""
    mask = bytearray(max([*column_ids, 1]) // _BYTE + 1)
    for column_id in column_ids:
        mask[(column_id - 1) // _BYTE] |= 1 << (column_id - 1) % _BYTE
    return f"0x{mask.hex()}"
