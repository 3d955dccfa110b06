"""Event streaming's part in DDL: what is refused on a streamed table (docs/reference/event_stream.md, "Tables").

The engine asks through ``engine.ddl.hooks`` in the statement's transaction, before the change.
"""

from __future__ import annotations

from sqlserver_emulator.engine.ddl.hooks import GuardContext
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.event_stream.installation import disable_stream
from sqlserver_emulator.event_stream.messages import stream_error


class StreamGuard:
    """Event streaming's ``engine.ddl.hooks.DdlGuard``."""

    def watches(self, context: GuardContext, table: CatalogObject) -> bool:
        """Return whether the table is streamed."""
        sql = "SELECT 1 FROM emulator.objects WHERE object_id = $1::int AND is_streamed"
        return bool(context.fetch(sql, [table.object_id]))

    def after_create_database(self, context: GuardContext, database_id: int, database: str) -> None:
        """Add nothing: the tables of event streaming are shared by all databases."""

    def before_granted_change(self, context: GuardContext, table: CatalogObject) -> None:
        """Allow it."""

    def before_drop_table(self, context: GuardContext, table: CatalogObject) -> None:
        """Raise 23662."""
        raise _refused(23662, table)

    def before_truncate(self, context: GuardContext, table: CatalogObject) -> None:
        """Raise 23663."""
        raise _refused(23663, table)

    def before_rename_table(self, context: GuardContext, table: CatalogObject) -> None:
        """Raise 23661."""
        raise _refused(23661, table)

    def before_transfer(self, context: GuardContext, table: CatalogObject) -> None:
        """Raise 23659: it is not documented, and it would change the name of the table."""
        raise _refused(23659, table)

    def before_add_primary_key(self, context: GuardContext, table: CatalogObject) -> None:
        """Raise 23664."""
        raise _refused(23664, table)

    def before_drop_index(self, context: GuardContext, table: CatalogObject, index: str, *, constraint: bool) -> None:
        """Raise 23665 for the primary key; other indexes mean nothing to a stream."""
        if constraint and context.fetch(_IS_PRIMARY, [table.object_id, index]):
            raise _refused(23665, table)

    def before_rename_column(self, context: GuardContext, table: CatalogObject, column: CatalogColumn) -> None:
        """Raise 4928, as for replication."""
        text = f"Cannot alter column '{column.name}' because it is 'REPLICATED'."
        raise SqlServerError(4928, text, procedure="sp_rename")

    def before_alter_column(self, context: GuardContext, table: CatalogObject, column: CatalogColumn) -> None:
        """Allow it: the next event has the new type."""

    def before_drop_column(self, context: GuardContext, table: CatalogObject, column: CatalogColumn) -> None:
        """Allow it: the next event is without it."""

    def before_drop_database(self, context: GuardContext, database: str) -> None:
        """End the stream."""
        for database_id, slot in context.fetch(_STREAM_OF, [database]):
            disable_stream(context.fetch, int(str(database_id)), str(slot))

    def before_drop_credential(self, context: GuardContext, database: str, credential: str) -> None:
        """Raise 23803 where a group uses it."""
        if context.fetch(_USES_CREDENTIAL, [database, credential]):
            raise stream_error(23803, credential)


GUARD = StreamGuard()
"""The one guard; to be registered once."""


def _refused(number: int, table: CatalogObject) -> SqlServerError:
    return stream_error(number, f"{table.schema}.{table.name}")


_IS_PRIMARY = """
SELECT 1 FROM emulator.objects WHERE parent_object_id = $1::int AND type = 'PK' AND lower(name) = lower($2::varchar)
"""
_STREAM_OF = """
SELECT database_id, slot_name FROM emulator.event_stream_databases JOIN emulator.databases USING (database_id)
WHERE name = $1::varchar
"""
_USES_CREDENTIAL = """
SELECT 1 FROM emulator.event_stream_groups JOIN emulator.databases d USING (database_id)
WHERE d.name = $1::varchar AND lower(credential) = lower($2::varchar) LIMIT 1
"""
