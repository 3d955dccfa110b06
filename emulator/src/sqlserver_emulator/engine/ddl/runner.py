"""Runs one DDL statement: recognises it by its first words, reads it, and applies it in one transaction."""

from __future__ import annotations

import re

from sqlserver_emulator.contract import StatementResult, Variables
from sqlserver_emulator.engine.access.identity import IdentityValues
from sqlserver_emulator.engine.access.session_access import SessionAccess
from sqlserver_emulator.engine.ddl import hooks
from sqlserver_emulator.engine.ddl.reading.taking import expect_end, take_name
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.security.permissions import may_alter
from sqlserver_emulator.engine.ddl.security.principals import change_membership
from sqlserver_emulator.engine.ddl.statements import find_statement
from sqlserver_emulator.engine.ddl.tables.rename import rename
from sqlserver_emulator.engine.ddl.tables.select_into import find_into, run_select_into
from sqlserver_emulator.engine.translation import StatementTranslator
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError, read_only_database
from sqlserver_emulator.events import Command
from sqlserver_emulator.syntax.lexer import quote_string
from sqlserver_emulator.syntax.parsing.cursor import Cursor

_DDL = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:CREATE|ALTER|DROP|TRUNCATE|GRANT|REVOKE|DENY|ENABLE|DISABLE|SET\s+IDENTITY_INSERT)\b",
    re.IGNORECASE | re.DOTALL,
)


def is_ddl(statement: str) -> bool:
    """Return whether the statement is DDL, SELECT … INTO included."""
    return _DDL.match(statement) is not None or find_into(statement) is not None


class DdlRunner:
    """The DDL of one session."""

    def __init__(self, access: SessionAccess, translator: StatementTranslator, identity: IdentityValues) -> None:
        self._access = access
        self._translator = translator
        self._identity = identity

    def run(self, statement: str, database: str, variables: Variables) -> StatementResult | None:
        """None: the statement is no DDL, and nothing was done."""
        if _DDL.match(statement) is None:
            into = find_into(statement)
            return None if into is None else self._select_into(into, database, variables)
        with self._access.connection.creating():
            # Table variables that are used again need no DDL at all.
            table_variables = self._access.table_variables
            if table_variables.take(statement, database) or table_variables.leave(statement):
                return StatementResult(Command.NONE)
            return self._apply(statement, database)

    def _apply(self, statement: str, database: str) -> StatementResult:
        cursor = Cursor(statement)
        self._refuse_read_only(cursor, database)
        scope = DdlScope(self._access, self._translator, database, statement)
        if cursor.accept("SET", "IDENTITY_INSERT"):
            return self._set_identity_insert(scope, cursor)
        apply = find_statement(cursor)
        self._check_rights(scope, cursor)
        with self._access.atomic():
            command = apply(scope, cursor)
            if scope.changes_catalog:
                self._access.catalog_changed()
        return StatementResult(command)

    def rename(self, name: str, new_name: str, kind: str, database: str) -> None:
        text = f"EXEC sp_rename {quote_string(name)}, {quote_string(new_name)}"
        scope = DdlScope(self._access, self._translator, database, text)
        self._require_ddl_rights("ALTER", database)
        with self._access.atomic():
            rename(scope, name, new_name, kind)
            self._access.catalog_changed()

    def change_role_member(self, role: str, member: str, database: str, *, adds: bool) -> None:
        scope = DdlScope(self._access, self._translator, database, "")
        self._require_ddl_rights("ALTER ROLE", database)
        with self._access.atomic():
            change_membership(scope, role, member, adds=adds)
            self._access.catalog_changed()

    def _refuse_read_only(self, cursor: Cursor, database: str) -> None:
        """DDL on a readable secondary. Raises 3906 unless it is about a table variable."""
        words = [token.word for token in cursor.tokens]
        if not self._access.connection.is_read_only or any(word.startswith("@") for word in words[2:5]):
            return
        if any(word.startswith("#") for word in words):
            raise NotSupportedByEmulatorError("temp tables on a readable secondary")
        raise read_only_database(database)

    def _select_into(self, cursor: Cursor, database: str, variables: Variables) -> StatementResult:
        self._refuse_read_only(cursor, database)
        with self._access.atomic():
            scope = DdlScope(self._access, self._translator, database, cursor.text)
            result = run_select_into(scope, cursor, variables)
            if scope.changes_catalog:
                self._access.catalog_changed()
        return result

    def _set_identity_insert(self, scope: DdlScope, cursor: Cursor) -> StatementResult:
        name = take_name(cursor)
        allowed = cursor.expect_one_of(("ON", "OFF")) == "ON"
        expect_end(cursor)
        table = scope.table(name)
        if table is None:
            message = f'Cannot find the object "{name}" because it does not exist or you do not have permissions.'
            raise SqlServerError(1088, message, state=11)
        if not any(column.identity for column in table.columns):
            raise SqlServerError(
                8106, f"Table '{name}' does not have the identity property. Cannot perform SET operation."
            )
        self._identity.explicit_values(table, allowed=allowed)
        return StatementResult(Command.SET)

    def _check_rights(self, scope: DdlScope, cursor: Cursor) -> None:
        """DDL is for sysadmin, db_owner and db_ddladmin; temp tables and table variables are for everybody, ALTER TABLE
        also for who was given ALTER on it."""
        if cursor.word.startswith(("#", "@")) or cursor.word_after(2).startswith("#"):
            return
        words = " ".join(token.word for token in cursor.tokens[:2])
        if words == "ALTER TABLE" and not self._may_change(scope.database):
            # The cursor is put back, because the statement reads the name again.
            start = cursor.at
            table = scope.table(take_name(cursor))
            cursor.at = start
            if table is not None and may_alter(scope, table):
                hooks.before_granted_change(scope, table)
                return
        self._require_ddl_rights(words, scope.database)

    def _require_ddl_rights(self, statement: str, database: str) -> None:
        if not self._may_change(database):
            raise SqlServerError(262, f"{statement} permission denied in database '{database}'.", severity=14)

    def _may_change(self, database: str) -> bool:
        security = self._access.security
        return security.caller_is("db_owner", database) or security.caller_is("db_ddladmin", database)
