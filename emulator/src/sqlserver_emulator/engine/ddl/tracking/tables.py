"""A table becomes tracked and ends to be: ENABLE and DISABLE CHANGE_TRACKING, and other DDL on a tracked table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlserver_emulator.engine.ddl.reading.declarations import ObjectName
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.ddl.tracking import installing
from sqlserver_emulator.engine.ddl.tracking.errors import tracking_error
from sqlserver_emulator.engine.translation import CatalogObject


def enable(scope: DdlScope, name: ObjectName, table: CatalogObject, *, tracks_columns: bool) -> None:
    """Track a table from now on. Raises 1718, 4996, 4997 and 4999."""
    if name.is_temporary:
        raise tracking_error(1718, "tempdb", name.name)
    database = scope.fetch(_DATABASE, [table.database])
    if not database:
        raise tracking_error(1718, table.database, table.name)
    if tracked(scope, table) is not None:
        raise tracking_error(4996, table.name)
    if not table.key_columns:
        raise tracking_error(4997, table.name)
    if any(column.type.name == "rowversion" for column in installing.key_columns(table)):
        raise tracking_error(4999, table.name)
    # The triggers keep writers out from here on, so the version is read after them.
    installing.install(scope, table, tracks_columns=tracks_columns)
    scope.fetch(_BEGIN, [table.object_id, database[0][0], tracks_columns])


def disable(scope: DdlScope, table: CatalogObject) -> None:
    """Forget all changes of a table. Raises 4998."""
    if tracked(scope, table) is None:
        raise tracking_error(4998, table.name)
    forget(scope, table)


def forget(scope: DdlScope, table: CatalogObject) -> None:
    """Before a table is dropped: so is what is known of its changes, if it is tracked."""
    if tracked(scope, table) is not None:
        installing.remove(scope, table)
        scope.fetch("DELETE FROM emulator.change_tracking_tables WHERE object_id = $1::int", [table.object_id])


def tracked(scope: DdlScope, table: CatalogObject) -> bool | None:
    """Return whether the columns of a tracked table are tracked, too; None: the table is not."""
    if table.name.startswith(("#", "@")):
        return None
    rows = scope.fetch(_TRACKED, [table.object_id])
    return bool(rows[0][0]) if rows else None


def restart(scope: DdlScope, table: CatalogObject) -> None:
    """After TRUNCATE TABLE: as off and on. The removal of the rows is no change, so the version stays."""
    if tracked(scope, table) is not None:
        scope.run(f"TRUNCATE {installing.side_table(table)}")
        scope.fetch(_RESTART, [table.object_id])


def refuse_without_key(scope: DdlScope, table: CatalogObject, constraint: str) -> None:
    """Raise 3735: the primary key of a tracked table stays."""
    if tracked(scope, table) is not None:
        raise tracking_error(3735, constraint, table.name)


@contextmanager
def columns_change(scope: DdlScope, table: CatalogObject) -> Iterator[None]:
    """While columns of a table come, go or get another name: what names them is made again afterwards."""
    tracks_columns = tracked(scope, table)
    if tracks_columns is not None:
        installing.detach(scope, table)
    yield
    if tracks_columns is not None:
        scope.access.catalog_changed()
        changed = scope.access.catalog.table_by_id(table.object_id)
        if changed is not None:
            installing.attach(scope, changed, tracks_columns=tracks_columns)


_DATABASE = """
SELECT t.database_id FROM emulator.change_tracking_databases t JOIN emulator.databases d USING (database_id)
WHERE d.name = $1 AND t.is_on
"""
_TRACKED = "SELECT is_track_columns_updated_on FROM emulator.change_tracking_tables WHERE object_id = $1::int"
_BEGIN = """
INSERT INTO emulator.change_tracking_tables
    (object_id, database_id, is_track_columns_updated_on, begin_version, min_valid_version)
SELECT $1::int, $2::int, $3::boolean, v, v FROM emulator.tracked_version($2::int) AS v
"""
_RESTART = """
UPDATE emulator.change_tracking_tables SET begin_version = v.now, min_valid_version = v.now,
    side_table_id = nextval('emulator.object_ids'), began_at = emulator.now()
FROM (SELECT emulator.tracked_version(database_id) AS now FROM emulator.change_tracking_tables
      WHERE object_id = $1::int) AS v
WHERE object_id = $1::int
"""
