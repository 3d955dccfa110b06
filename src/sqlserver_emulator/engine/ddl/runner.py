"""Runs one DDL statement: recognises it by its first words, reads it, and applies it in one transaction."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlserver_emulator.engine.access import SessionAccess
from sqlserver_emulator.engine.contract import StatementResult
from sqlserver_emulator.engine.ddl import tables
from sqlserver_emulator.engine.ddl.read_table import read_create_table
from sqlserver_emulator.engine.ddl.reading import expect_end, take_name, take_names
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.identity import IdentityValues
from sqlserver_emulator.engine.translation import StatementTranslator
from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.events import Command
from sqlserver_emulator.tsql.parsing.cursor import Cursor

_COMMENTS = r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
_DDL = re.compile(
    rf"{_COMMENTS}(?:CREATE|ALTER|DROP|TRUNCATE|GRANT|REVOKE|DENY|SET\s+IDENTITY_INSERT)\b", re.IGNORECASE | re.DOTALL
)

Statement = Callable[[DdlScope, Cursor], Command]


def is_ddl(statement: str) -> bool:
    return _DDL.match(statement) is not None


class DdlRunner:
    def __init__(self, access: SessionAccess, translator: StatementTranslator, identity: IdentityValues) -> None:
        self._access = access
        self._translator = translator
        self._identity = identity

    def run(self, statement: str, database: str) -> StatementResult:
        cursor = Cursor(statement)
        scope = DdlScope(self._access, self._translator, database, statement)
        apply = self._statement(cursor)
        with self._access.atomic():
            command = apply(scope, cursor)
            self._access.catalog_changed()
        return StatementResult(command)

    def _statement(self, cursor: Cursor) -> Statement:
        for words, apply in _STATEMENTS:
            if cursor.accept(*words.split()):
                return apply
        words = " ".join(token.word for token in cursor.tokens[:3])
        raise NotSupportedByEmulatorError(f"the statement {words}")


def _create_table(scope: DdlScope, cursor: Cursor) -> Command:
    tables.create_table(scope, read_create_table(cursor, scope.read_type))
    return Command.CREATE_TABLE


def _drop_table(scope: DdlScope, cursor: Cursor) -> Command:
    if_exists = cursor.accept("IF", "EXISTS")
    names = take_names(cursor)
    expect_end(cursor)
    for name in names:
        tables.drop_table(scope, name, if_exists=if_exists)
    return Command.NONE


def _truncate_table(scope: DdlScope, cursor: Cursor) -> Command:
    name = take_name(cursor)
    expect_end(cursor)
    tables.truncate_table(scope, name)
    return Command.NONE


_STATEMENTS: tuple[tuple[str, Statement], ...] = (
    ("CREATE TABLE", _create_table),
    ("DROP TABLE", _drop_table),
    ("TRUNCATE TABLE", _truncate_table),
)
