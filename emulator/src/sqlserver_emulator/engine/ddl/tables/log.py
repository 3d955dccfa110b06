"""DDL in the log: a logical message in the statement's transaction, which the capture job meets among the rows."""

from __future__ import annotations

import json

from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.translation import CatalogObject


def table_changed(
    scope: DdlScope,
    table: CatalogObject,
    kind: str,
    *,
    column_id: int | None = None,
    required_column_update: bool = False,
) -> None:
    """``kind``: add_column, drop_column, alter_column, drop_table, rename_table, other. Temp tables are not logged.

    A statement about several columns is logged once for each, and is one row of the DDL history.
    """
    if table.name.startswith(("#", "@")):
        return
    content = {
        "database": table.database,
        "object_id": table.object_id,
        "schema": table.schema,
        "table": table.name,
        "ddl": scope.statement,
        "kind": kind,
        "column_id": column_id,
        "required_column_update": required_column_update,
        "is_first": table.object_id not in scope.logged_tables,
    }
    scope.logged_tables.add(table.object_id)
    scope.fetch("SELECT pg_logical_emit_message(true, 'ddl', $1)", [json.dumps(content, ensure_ascii=False)])
