"""CREATE, ALTER and DROP VIEW. A view is a PostgreSQL view; its columns' T-SQL types are kept in the catalog.

PostgreSQL guards the tables under a view; SQL Server does not. So before a table changes or goes its views are taken
away in PostgreSQL (the catalog keeps them), and made again afterwards, or when a table comes back under the old name.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg.pq.abc import PGresult

from sqlserver_emulator.engine.catalog import result_types
from sqlserver_emulator.engine.connection.pipeline import StatementFailedError
from sqlserver_emulator.engine.ddl.reading.declarations import ObjectName
from sqlserver_emulator.engine.ddl.reading.read_program import ViewText, read_view
from sqlserver_emulator.engine.ddl.scope import DdlScope, with_literals
from sqlserver_emulator.engine.ddl.tables import rows
from sqlserver_emulator.engine.ddl.tables.filters import refuse_filtered
from sqlserver_emulator.engine.names import postgres_name, qualified, quote
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject, Translated
from sqlserver_emulator.errors import SqlServerError

# pg_depend has a view's rule depend on the view itself, which is left out. CHANGETABLE is a call of a function.
_VIEWS_OVER = """
SELECT DISTINCT v.oid::bigint FROM pg_depend d
JOIN pg_rewrite r ON r.oid = d.objid AND d.classid = 'pg_rewrite'::regclass
JOIN pg_class v ON v.oid = r.ev_class AND v.relkind = 'v'
JOIN emulator.objects o ON o.object_id = v.oid::bigint AND o.type = 'V' AND NOT o.is_system
WHERE (d.refobjid = $1::oid AND d.refclassid = 'pg_class'::regclass AND v.oid <> $1::oid)
   OR (d.refclassid = 'pg_proc'::regclass AND d.refobjid IN (
       SELECT p.oid FROM pg_proc p WHERE p.pronamespace = 'emulator'::regnamespace
       AND p.proname IN ('tracking_changes_' || $1::oid, 'tracking_version_' || $1::oid)))
"""
_VIEWS_OF_FUNCTION = """
SELECT DISTINCT v.oid::bigint FROM pg_depend d
JOIN pg_rewrite r ON r.oid = d.objid AND d.classid = 'pg_rewrite'::regclass
JOIN pg_class v ON v.oid = r.ev_class AND v.relkind = 'v'
JOIN emulator.objects o ON o.object_id = v.oid::bigint AND o.type = 'V' AND NOT o.is_system
WHERE d.refobjid = $1::regprocedure AND d.refclassid = 'pg_proc'::regclass
"""
# In the order of creation, so that a view over a view follows the one below it.
_BROKEN = """
SELECT o.object_id, s.name, o.name, o.definition FROM emulator.objects o
JOIN emulator.schemas s ON s.database_id = o.database_id AND s.schema_id = o.schema_id
JOIN emulator.databases d ON d.database_id = o.database_id
WHERE o.type = 'V' AND NOT o.is_system AND d.name = $1
  AND NOT EXISTS (SELECT 1 FROM pg_class c WHERE c.oid = o.object_id::bigint::oid)
ORDER BY o.create_date
"""


_KEEP_PROPERTIES = """
UPDATE emulator.extended_properties SET major_id = $2::int WHERE class IN (1, 7) AND major_id = $1::int
"""


def create_view(scope: DdlScope, view: ViewText, *, replace: str) -> None:
    """``replace``: '' for CREATE, 'ALTER' (must exist: 208), 'CREATE OR ALTER'."""
    name = view.name
    existing = scope.table(name)
    if existing is not None and replace and existing.kind == "V":
        _forget(scope, existing)
        scope.fetch(_KEEP_PROPERTIES, [existing.object_id, _make(scope, name, view)])
        return
    if replace == "ALTER":
        raise SqlServerError(208, f"Invalid object name '{name}'.", state=6)
    _make(scope, name, view)


def _make(scope: DdlScope, name: ObjectName, view: ViewText) -> int:
    columns, query = view.columns, view.query
    home = scope.schema(name)
    translated = scope.translate(query)
    refuse_filtered(translated.sql)
    described = scope.access.connection.describe(with_literals(translated))
    # The columns' T-SQL types are known only now; PostgreSQL's view has storage types.
    declared = _columns(scope, described, translated, columns, name)
    target = qualified(home.postgres_name, postgres_name(name.name))
    names = ", ".join(quote(c.postgres_name) for c in declared)
    check = " WITH CASCADED CHECK OPTION" if view.checks else ""
    scope.run(f"CREATE VIEW {target} ({names}) AS {with_literals(translated)}{check}")
    object_id = rows.object_id_of(scope, target)
    rows.insert_object(
        scope,
        home,
        name.name,
        "V",
        object_id=object_id,
        postgres_name=postgres_name(name.name),
        definition=scope.statement,
    )
    rows.insert_view_columns(scope, object_id, declared)
    return object_id


def _columns(
    scope: DdlScope, described: PGresult, translated: Translated, names: tuple[str, ...], view: ObjectName
) -> list[CatalogColumn]:
    typed = result_types.result_columns(described, translated, scope.access.catalog, scope.access.own_types)
    declared: list[CatalogColumn] = []
    for i, column in enumerate(typed):
        name = names[i] if i < len(names) else column.name
        if not name:
            raise SqlServerError(
                4511, f"Create View or Function failed because no column name was specified for column {i + 1}."
            )
        if any(c.name.lower() == name.lower() for c in declared):
            raise SqlServerError(
                4506,
                "Column names in each view or function must be unique. Column name "
                f"'{name}' in view or function '{view.name}' is specified more than once.",
            )
        declared.append(
            CatalogColumn(
                name, i + 1, column.type, column.nullable, postgres_name=postgres_name(name), collation=column.collation
            )
        )
    return declared


def drop_view(scope: DdlScope, name: ObjectName, *, if_exists: bool) -> None:
    """Apply DROP VIEW. Raises 3701."""
    view = scope.table(name)
    if view is None or view.kind != "V":
        if if_exists:
            return
        message = f"Cannot drop the view '{name}', because it does not exist or you do not have permission."
        raise SqlServerError(3701, message, severity=11, state=5)
    # Views over this view are kept in the catalog and become invalid, as on a real server.
    detach_views(scope, view)
    _forget(scope, view)


def _forget(scope: DdlScope, view: CatalogObject) -> None:
    detach_views(scope, view)
    scope.run(f"DROP VIEW IF EXISTS {qualified(view.postgres_schema, view.postgres_name)}")
    scope.fetch("DELETE FROM emulator.objects WHERE object_id = $1::int", [view.object_id])
    scope.access.catalog_changed()


def detach_views(scope: DdlScope, relation: CatalogObject) -> None:
    """Take the user's views over ``relation`` away, and those over them."""
    _detach(scope, scope.fetch(_VIEWS_OVER, [relation.object_id]))


def detach_views_of_function(scope: DdlScope, signature: str) -> None:
    """Take the user's views away that call a function; ``signature`` is PostgreSQL's."""
    _detach(scope, scope.fetch(_VIEWS_OF_FUNCTION, [signature]))


def _detach(scope: DdlScope, view_ids: Sequence[tuple[object, ...]]) -> None:
    for (view_id,) in view_ids:
        view = scope.access.catalog.table_by_id(int(str(view_id)))
        if view is not None:
            # From the top down: PostgreSQL drops no view that another one needs.
            detach_views(scope, view)
            scope.run(f"DROP VIEW IF EXISTS {qualified(view.postgres_schema, view.postgres_name)}")


def attach_views(scope: DdlScope, database: str) -> None:
    """Make again the views that are in the catalog only, where their tables are there."""
    for object_id, schema, name, definition in scope.fetch(_BROKEN, [database]):
        inner = DdlScope.like(scope, database, str(definition))
        view = read_view(str(definition))
        try:
            # A failure must not cost the statement's own change.
            with scope.access.connection.nested():
                scope.fetch("DELETE FROM emulator.objects WHERE object_id = $1::int", [object_id])
                scope.access.catalog_changed()
                made = _make(inner, ObjectName(str(name), str(schema), database), view)
                scope.fetch(_KEEP_PROPERTIES, [object_id, made])
        except (SqlServerError, StatementFailedError):
            # The table below is still missing, or the query is no longer valid: the view stays in the catalog only.
            scope.access.catalog_changed()
