"""Hooks that change data capture and change event streaming register for DDL.

Each registers its guard with ``register``. A method may raise SqlServerError to refuse the statement, or do what the
statement entails (DROP TABLE removes the capture instances). It runs in the statement's transaction, before the change;
``after_create_database`` after it. A guard is asked only about the tables that it watches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject


class GuardContext(Protocol):
    """The means of a guard: SQL with the emulator's rights, in the statement's transaction."""

    def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]: ...


class DdlGuard(Protocol):
    """The interface of what has a say in DDL; each method may refuse by raising SqlServerError."""

    def watches(self, context: GuardContext, table: CatalogObject) -> bool:
        """Whether the other methods are to be called for this table."""

    def after_create_database(self, context: GuardContext, database_id: int, database: str) -> None:
        """Add to a new database what change data capture has in every one."""

    def before_granted_change(self, context: GuardContext, table: CatalogObject) -> None:
        """The caller is no db_ddladmin, but was given ALTER on the table. 22914."""

    def before_drop_table(self, context: GuardContext, table: CatalogObject) -> None: ...

    def before_truncate(self, context: GuardContext, table: CatalogObject) -> None: ...

    def before_rename_table(self, context: GuardContext, table: CatalogObject) -> None: ...

    def before_transfer(self, context: GuardContext, table: CatalogObject) -> None:
        """ALTER SCHEMA … TRANSFER."""

    def before_add_primary_key(self, context: GuardContext, table: CatalogObject) -> None: ...

    def before_drop_index(self, context: GuardContext, table: CatalogObject, index: str, *, constraint: bool) -> None:
        """22979 (a constraint's index) and 22983."""

    def before_rename_column(self, context: GuardContext, table: CatalogObject, column: CatalogColumn) -> None:
        """4928."""

    def before_alter_column(self, context: GuardContext, table: CatalogObject, column: CatalogColumn) -> None: ...

    def before_drop_column(self, context: GuardContext, table: CatalogObject, column: CatalogColumn) -> None: ...

    def before_drop_database(self, context: GuardContext, database: str) -> None: ...

    def before_drop_credential(self, context: GuardContext, database: str, credential: str) -> None: ...


_guards: list[DdlGuard] = []


def register(guard: DdlGuard) -> None:
    """Add a guard, once."""
    if guard not in _guards:
        _guards.append(guard)


def _asked(context: GuardContext, table: CatalogObject) -> list[DdlGuard]:
    if table.name.startswith(("#", "@")):
        return []
    return [guard for guard in _guards if guard.watches(context, table)]


def after_create_database(context: GuardContext, database_id: int, database: str) -> None:
    """Call every guard after a database was created."""
    for guard in _guards:
        guard.after_create_database(context, database_id, database)


def before_granted_change(context: GuardContext, table: CatalogObject) -> None:
    """Call the guards before a change that ALTER on the watched table allows."""
    for guard in _asked(context, table):
        guard.before_granted_change(context, table)


def before_drop_table(context: GuardContext, table: CatalogObject) -> None:
    """Call the guards before a watched table is dropped."""
    for guard in _asked(context, table):
        guard.before_drop_table(context, table)


def before_truncate(context: GuardContext, table: CatalogObject) -> None:
    """Call the guards before TRUNCATE TABLE."""
    for guard in _asked(context, table):
        guard.before_truncate(context, table)


def before_rename_table(context: GuardContext, table: CatalogObject) -> None:
    """Call the guards before a table is renamed."""
    for guard in _asked(context, table):
        guard.before_rename_table(context, table)


def before_transfer(context: GuardContext, table: CatalogObject) -> None:
    """Call the guards before a table moves to another schema."""
    for guard in _asked(context, table):
        guard.before_transfer(context, table)


def before_add_primary_key(context: GuardContext, table: CatalogObject) -> None:
    """Call the guards before a table that is there gets a primary key."""
    for guard in _asked(context, table):
        guard.before_add_primary_key(context, table)


def before_drop_index(context: GuardContext, table: CatalogObject, index: str, *, constraint: bool) -> None:
    """Call the guards before an index of a watched table is dropped."""
    for guard in _asked(context, table):
        guard.before_drop_index(context, table, index, constraint=constraint)


def before_rename_column(context: GuardContext, table: CatalogObject, column: CatalogColumn) -> None:
    """Call the guards before a column of a watched table is renamed."""
    for guard in _asked(context, table):
        guard.before_rename_column(context, table, column)


def before_alter_column(context: GuardContext, table: CatalogObject, column: CatalogColumn) -> None:
    """Call the guards before a column of a watched table is altered."""
    for guard in _asked(context, table):
        guard.before_alter_column(context, table, column)


def before_drop_column(context: GuardContext, table: CatalogObject, column: CatalogColumn) -> None:
    """Call the guards before a column of a watched table is dropped."""
    for guard in _asked(context, table):
        guard.before_drop_column(context, table, column)


def before_drop_database(context: GuardContext, database: str) -> None:
    """Call every guard before a database is dropped."""
    for guard in _guards:
        guard.before_drop_database(context, database)


def before_drop_credential(context: GuardContext, database: str, credential: str) -> None:
    """Call every guard before a database scoped credential is dropped."""
    for guard in _guards:
        guard.before_drop_credential(context, database, credential)
