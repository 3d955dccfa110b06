"""CDC's part in DDL on tracked tables (docs/reference/sqlserver_cdc.md, "DDL"): refusals by number, and the end of
instances.

The engine asks through ``engine.ddl.hooks`` in the statement's transaction, before the change.
"""

from __future__ import annotations

from sqlserver_emulator.cdc.enabling.disable import disable_database, forget_table
from sqlserver_emulator.cdc.enabling.enable_database import database_id_of, find_database
from sqlserver_emulator.cdc.installation import install_database
from sqlserver_emulator.cdc.instances import CdcDatabase
from sqlserver_emulator.cdc.messages import cdc_error
from sqlserver_emulator.engine.ddl.hooks import GuardContext
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError


class CdcGuard:
    """CDC's ``engine.ddl.hooks.DdlGuard``. The engine asks only about tables that are tracked."""

    def watches(self, context: GuardContext, table: CatalogObject) -> bool:
        """Return whether change data capture tracks the table."""
        sql = "SELECT 1 FROM emulator.objects WHERE object_id = $1::int AND is_tracked_by_cdc"
        return bool(context.fetch(sql, [table.object_id]))

    def after_create_database(self, context: GuardContext, database_id: int, database: str) -> None:
        """Give the new database CDC's functions and views."""
        install_database(context.fetch, database_id, database)

    def before_granted_change(self, context: GuardContext, table: CatalogObject) -> None:
        """Raise 22914: a right on a tracked table alone is not enough."""
        raise cdc_error(22914)

    def before_drop_table(self, context: GuardContext, table: CatalogObject) -> None:
        """Drop the table's capture instances."""
        forget_table(context.fetch, database_id_of(context.fetch, table.database), table.object_id)

    def before_truncate(self, context: GuardContext, table: CatalogObject) -> None:
        """Raise 4711."""
        raise SqlServerError(
            4711,
            f"Cannot truncate table '{table.name}' because it is published for replication or enabled for Change Data"
            " Capture.",
        )

    def before_rename_table(self, context: GuardContext, table: CatalogObject) -> None:
        """Allow it: the capture instance keeps the name that it was made with."""

    def before_transfer(self, context: GuardContext, table: CatalogObject) -> None:
        """Refuse it: nothing is known of it."""
        raise NotSupportedByEmulatorError("ALTER SCHEMA … TRANSFER of a table that change data capture tracks")

    def before_add_primary_key(self, context: GuardContext, table: CatalogObject) -> None:
        """Allow it: an instance keeps the index that it was made with."""

    def before_drop_index(self, context: GuardContext, table: CatalogObject, index: str, *, constraint: bool) -> None:
        """Raise 22979 for a constraint's index, 22983 for any other, where an instance identifies rows by it."""
        database = self._database(context, table)
        if context.fetch(database.sql(_USES_INDEX), (table.object_id, index)):
            raise cdc_error(22979 if constraint else 22983, index, f"{table.schema}.{table.name}")

    def before_rename_column(self, context: GuardContext, table: CatalogObject, column: CatalogColumn) -> None:
        """Raise 4928 for a captured column; others may be renamed."""
        database = self._database(context, table)
        if context.fetch(database.sql(_CAPTURES_COLUMN), (table.object_id, column.column_id)):
            # docs/reference/sqlserver_cdc.md, "DDL": sp_rename of a captured column is refused, of another one allowed.
            raise cdc_error(4928, column.name, procedure="sp_rename")

    def before_alter_column(self, context: GuardContext, table: CatalogObject, column: CatalogColumn) -> None:
        """Refuse to alter a column that an instance identifies rows by."""
        self._refuse_key_column(context, table, column)

    def before_drop_column(self, context: GuardContext, table: CatalogObject, column: CatalogColumn) -> None:
        """Refuse to drop a column that an instance identifies rows by; other captured columns may be dropped."""
        self._refuse_key_column(context, table, column)

    def before_drop_database(self, context: GuardContext, database: str) -> None:
        """Disable CDC in the database."""
        found = find_database(context.fetch, database)
        if found is not None:
            disable_database(context.fetch, found)

    def before_drop_credential(self, context: GuardContext, database: str, credential: str) -> None:
        """Allow it: change data capture uses none."""

    def _refuse_key_column(self, context: GuardContext, table: CatalogObject, column: CatalogColumn) -> None:
        database = self._database(context, table)
        rows = context.fetch(database.sql(_INDEX_OF_COLUMN), (table.object_id, column.column_id))
        if rows:
            raise cdc_error(22983, rows[0][0], f"{table.schema}.{table.name}")

    def _database(self, context: GuardContext, table: CatalogObject) -> CdcDatabase:
        database = find_database(context.fetch, table.database)
        if database is None:
            raise cdc_error(22901, table.database)
        return database


GUARD = CdcGuard()
"""The one guard; to be registered once."""

_USES_INDEX = """
SELECT 1 FROM :cdc.change_tables WHERE source_object_id = $1::int AND lower(index_name) = lower($2::varchar) LIMIT 1
"""
_CAPTURES_COLUMN = """
SELECT 1 FROM :cdc.captured_columns k JOIN :cdc.change_tables t ON t.object_id = k.object_id
WHERE t.source_object_id = $1::int AND k.column_id = $2::int LIMIT 1
"""
_INDEX_OF_COLUMN = """
SELECT t.index_name::text FROM :cdc.index_columns k JOIN :cdc.change_tables t ON t.object_id = k.object_id
WHERE t.source_object_id = $1::int AND k.column_id = $2::int LIMIT 1
"""
