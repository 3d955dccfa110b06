"""The catalog of a lake: rows of the ledger's PostgreSQL that readers and merges see by two names.

The catalog ``lake`` is what readers see, ``next`` is where a window is merged and checked. To publish a window is to
give the rows of ``lake`` the locations that those of ``next`` have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import psycopg

from floodmark.core.errors import (
    ConfigError,
    OperatorError,
    TargetRefusedError,
    WatermarkConflictError,
    WindowBusyError,
)
from floodmark.core.naming import versions_name
from floodmark.core.plan import TablePlan, WindowPlan, WindowState, finishing_command
from floodmark.core.schema import LEDGER_SCHEMA, TableName
from floodmark.iceberg.folder import LakeFolder
from floodmark.postgres.ledger.ledger import is_being_loaded
from floodmark.postgres.session import WarehouseConnection, open_transaction
from floodmark.postgres.warehouse.targets import list_relations

# ruff: noqa: S608  (the names in statements are constants)

PUBLISHED, UNPUBLISHED, KEPT, RELEASED = "lake", "next", "upkeep", "release"
"""The names of the catalog: what readers see, what is merged and checked, what is made smaller (``upkeep``), and where
rows from quarantine are merged (``release``)."""
CATALOG_SCHEMA = "floodmark_lake"
"""The schema of the ledger's database with the tables of Iceberg's catalog, which Iceberg creates itself."""
HELD_ROWS = f"{CATALOG_SCHEMA}.lake_quarantine"
"""The rows that come to quarantine, or settle others there, when their window is published."""


def catalog_settings(ledger: WarehouseConnection, folder: LakeFolder) -> dict[str, str]:
    """Return the properties of Spark for all catalogs, with the password: for a session, never a command line.

    Raises ConfigError where the ledger's connection is a Unix socket, which Java's driver does not know.
    """
    if ledger.host.startswith(("/", "@")):
        raise ConfigError(
            "the ledger's connection",
            f"its host is the socket {ledger.host}, and Iceberg's catalog is reached by TCP.",
            "Name a host and a port.",
        )
    host = f"[{ledger.host}]" if ":" in ledger.host else ledger.host
    asked = {"currentSchema": CATALOG_SCHEMA, "sslmode": ledger.sslmode, "ApplicationName": "floodmark"}
    if ledger.sslrootcert:
        asked["sslrootcert"] = ledger.sslrootcert
    database = quote(ledger.database, safe="")
    values = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:postgresql://{host}:{ledger.port}/{database}?{urlencode(asked)}",
        ".jdbc.user": ledger.user,
        ".jdbc.password": ledger.password,
        ".jdbc.schema-version": "V1",
        ".cache-enabled": "false",
        ".warehouse": folder.tables,
        **(folder.bucket.spark_properties() if folder.bucket else {}),
    }
    return {
        f"spark.sql.catalog.{name}{key}": value
        for name in (PUBLISHED, UNPUBLISHED, KEPT, RELEASED)
        for key, value in values.items()
    }


# --------------------------------------------------------------------------------------------------------------------
# The rows of the catalog, and what Floodmark keeps of each table next to them.


_SCHEMA = f"""
DO $$ BEGIN IF to_regnamespace('{CATALOG_SCHEMA}') IS NULL THEN CREATE SCHEMA {CATALOG_SCHEMA}; END IF; END $$;
CREATE TABLE IF NOT EXISTS {CATALOG_SCHEMA}.lake_tables (
  target_schema text NOT NULL,
  target_name text NOT NULL,
  window_id bigint NOT NULL,
  attempt integer NOT NULL,
  base text NOT NULL,
  checked text,
  published text,
  PRIMARY KEY (target_schema, target_name)
);
COMMENT ON TABLE {CATALOG_SCHEMA}.lake_tables IS 'The last window of each table of the lake: the location of its
metadata that the window began with (base), the one that its checks have read (checked), and the one that was last
published.';
CREATE TABLE IF NOT EXISTS {HELD_ROWS} (
  target_schema text NOT NULL,
  target_name text NOT NULL,
  window_id bigint NOT NULL,
  rule text,
  key jsonb NOT NULL,
  lsn bytea NOT NULL,
  row_data jsonb
);
CREATE INDEX IF NOT EXISTS lake_quarantine_by_window ON {HELD_ROWS} (window_id);
COMMENT ON TABLE {HELD_ROWS} IS 'Rows of windows that are not published, by the rule that each breaks. A row without a
rule is merged, and settles those of its key.';
"""
_FORGET_HELD = f"""
DELETE FROM {HELD_ROWS}
WHERE (target_schema, target_name) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
"""
_UNFINISHED = f"SELECT window_id FROM {LEDGER_SCHEMA}.windows WHERE state <> %(state)s"
_LOCATIONS = f"""
SELECT catalog_name, table_namespace, table_name, metadata_location FROM {CATALOG_SCHEMA}.iceberg_tables
WHERE (table_namespace, table_name) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
"""
_LOCK = f"""
SELECT FROM {CATALOG_SCHEMA}.iceberg_tables
WHERE catalog_name IN ('{PUBLISHED}', '{UNPUBLISHED}')
  AND (table_namespace, table_name) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
ORDER BY catalog_name, table_namespace, table_name FOR UPDATE
"""
_COPY = f"""
INSERT INTO {CATALOG_SCHEMA}.iceberg_tables AS known
  (catalog_name, table_namespace, table_name, metadata_location, previous_metadata_location, iceberg_type)
SELECT %(to)s, table_namespace, table_name, metadata_location, previous_metadata_location, iceberg_type
FROM {CATALOG_SCHEMA}.iceberg_tables
WHERE catalog_name = %(of)s
  AND (table_namespace, table_name) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
ON CONFLICT (catalog_name, table_namespace, table_name) DO
"""
_TO_LAKE = _COPY + " NOTHING"
_TO_NEXT = (
    _COPY
    + """ UPDATE SET metadata_location = excluded.metadata_location,
  previous_metadata_location = excluded.previous_metadata_location
  WHERE known.metadata_location <> excluded.metadata_location"""
)
_FORGET = f"""
DELETE FROM {CATALOG_SCHEMA}.lake_tables
WHERE (target_schema, target_name) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
"""
_FORGET_LOCATIONS = f"""
DELETE FROM {CATALOG_SCHEMA}.iceberg_tables
WHERE catalog_name IN ('{PUBLISHED}', '{UNPUBLISHED}')
  AND (table_namespace, table_name) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
"""
_FORGET_OTHER_LEDGER = _FORGET + f"  AND window_id > (SELECT max(window_id) FROM {LEDGER_SCHEMA}.windows)"
_BEGIN = f"""
INSERT INTO {CATALOG_SCHEMA}.lake_tables AS known (target_schema, target_name, window_id, attempt, base)
SELECT table_namespace, table_name, %(window_id)s, %(attempt)s, metadata_location
FROM {CATALOG_SCHEMA}.iceberg_tables
WHERE catalog_name = '{PUBLISHED}'
  AND (table_namespace, table_name) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
ON CONFLICT (target_schema, target_name) DO UPDATE
SET window_id = excluded.window_id, attempt = excluded.attempt, base = excluded.base, checked = NULL
WHERE (known.window_id, known.attempt) <= (excluded.window_id, excluded.attempt)
  OR known.window_id NOT IN ({_UNFINISHED} AND lane = %(lane)s)
"""
_IN_OTHER_LANE = f"""
SELECT known.target_schema, known.target_name, w.window_id, w.pipeline, w.lane, w.state
FROM {CATALOG_SCHEMA}.lake_tables AS known
JOIN {LEDGER_SCHEMA}.windows AS w USING (window_id)
JOIN {LEDGER_SCHEMA}.window_tables AS t USING (window_id)
JOIN unnest(%(schemas)s::text[], %(names)s::text[], %(source_schemas)s::text[], %(source_names)s::text[])
  AS wanted (target_schema, target_name, source_schema, source_name)
  USING (target_schema, target_name, source_schema, source_name)
WHERE w.state <> %(state)s AND NOT (w.state = 'merged' AND w.checked_at IS NOT NULL) AND w.lane <> %(lane)s
ORDER BY window_id
"""
_IS_LATEST = f"""
SELECT count(*) FROM {CATALOG_SCHEMA}.lake_tables
WHERE (target_schema, target_name) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
  AND (window_id, attempt) = (%(window_id)s, %(attempt)s)
"""
_CHECKED = f"""
UPDATE {CATALOG_SCHEMA}.lake_tables AS known SET checked = n.metadata_location
FROM {CATALOG_SCHEMA}.iceberg_tables AS n
WHERE n.catalog_name = '{UNPUBLISHED}' AND (n.table_namespace, n.table_name) = (known.target_schema, known.target_name)
  AND (known.target_schema, known.target_name, n.metadata_location)
    IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[], %(locations)s::text[]))
  AND known.window_id = %(window_id)s
"""
_PUBLISH = f"""
UPDATE {CATALOG_SCHEMA}.iceberg_tables AS l
SET metadata_location = n.metadata_location, previous_metadata_location = l.metadata_location
FROM {CATALOG_SCHEMA}.iceberg_tables AS n, {CATALOG_SCHEMA}.lake_tables AS w
WHERE l.catalog_name = '{PUBLISHED}' AND n.catalog_name = '{UNPUBLISHED}'
  AND (l.table_namespace, l.table_name) = (n.table_namespace, n.table_name)
  AND (w.target_schema, w.target_name) = (l.table_namespace, l.table_name)
  AND (l.table_namespace, l.table_name) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
  AND w.window_id = %(window_id)s
  AND l.metadata_location = w.base
  AND n.metadata_location = w.checked
"""
_RECORD_PUBLISHED = f"""
UPDATE {CATALOG_SCHEMA}.lake_tables SET published = checked
WHERE (target_schema, target_name) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
"""
_LIST_PUBLISHED = f"""
SELECT target_schema, target_name, published FROM {CATALOG_SCHEMA}.lake_tables
WHERE (target_schema, target_name) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
"""
_IS_AT_REST = f"""
SELECT l.metadata_location
FROM {CATALOG_SCHEMA}.iceberg_tables AS l
JOIN {CATALOG_SCHEMA}.iceberg_tables AS n USING (table_namespace, table_name, metadata_location)
JOIN {CATALOG_SCHEMA}.lake_tables AS w ON (w.target_schema, w.target_name) = (l.table_namespace, l.table_name)
WHERE l.catalog_name = '{PUBLISHED}' AND n.catalog_name = '{UNPUBLISHED}'
  AND (l.table_namespace, l.table_name) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
  AND w.window_id NOT IN ({_UNFINISHED}) AND w.published = l.metadata_location
"""
_PUBLISH_OF = f"""
UPDATE {CATALOG_SCHEMA}.iceberg_tables AS l
SET metadata_location = k.metadata_location, previous_metadata_location = l.metadata_location
FROM {CATALOG_SCHEMA}.iceberg_tables AS k
WHERE l.catalog_name IN ('{PUBLISHED}', '{UNPUBLISHED}') AND k.catalog_name = %(of)s
  AND (l.table_namespace, l.table_name) = (k.table_namespace, k.table_name)
  AND (l.table_namespace, l.table_name) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
"""
_RECORD_AS_PUBLISHED = f"""
UPDATE {CATALOG_SCHEMA}.lake_tables AS w SET published = l.metadata_location
FROM {CATALOG_SCHEMA}.iceberg_tables AS l
WHERE l.catalog_name = '{PUBLISHED}' AND (l.table_namespace, l.table_name) = (w.target_schema, w.target_name)
  AND (w.target_schema, w.target_name) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
"""
_FORGET_OF = f"""
DELETE FROM {CATALOG_SCHEMA}.iceberg_tables
WHERE catalog_name = %(of)s
  AND (table_namespace, table_name) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
"""
_UNFINISHED_OF = f"""
SELECT w.window_id, w.pipeline, w.lane FROM {LEDGER_SCHEMA}.windows AS w
JOIN {LEDGER_SCHEMA}.window_tables AS x USING (window_id)
JOIN {LEDGER_SCHEMA}.tables AS t USING (pipeline, source_schema, source_name)
WHERE w.state <> %(state)s AND (t.target_schema, t.target_name) = (%(schema)s, %(name)s)
"""
_MOVE = f"""
UPDATE {CATALOG_SCHEMA}.iceberg_tables SET table_namespace = %(schema)s, table_name = %(name)s
WHERE catalog_name IN ('{PUBLISHED}', '{UNPUBLISHED}')
  AND (table_namespace, table_name) = (%(old_schema)s, %(old_name)s)
"""
_MOVE_OWN = f"""
UPDATE {CATALOG_SCHEMA}.lake_tables SET target_schema = %(schema)s, target_name = %(name)s
WHERE (target_schema, target_name) = (%(old_schema)s, %(old_name)s)
"""
_HAS_VERSIONS = f"""
SELECT FROM {CATALOG_SCHEMA}.lake_tables AS known
WHERE (target_schema, target_name) = (%(schema)s, %(name)s) AND NOT EXISTS (
  SELECT FROM {LEDGER_SCHEMA}.tables AS t
  WHERE (t.target_schema, t.target_name) = (known.target_schema, known.target_name)
)
"""
_LIST_OTHERS = f"""
SELECT metadata_location FROM {CATALOG_SCHEMA}.iceberg_tables
WHERE NOT (table_namespace, table_name) IN (SELECT * FROM unnest(%(schemas)s::text[], %(names)s::text[]))
"""
_NAMESAKE = f"""
SELECT n.name_schema, n.name, t.table_namespace, t.table_name
FROM unnest(%(schemas)s::text[], %(names)s::text[]) AS n (name_schema, name)
JOIN {CATALOG_SCHEMA}.iceberg_tables AS t ON lower(t.table_namespace) = lower(n.name_schema)
  AND (t.table_namespace <> n.name_schema OR lower(t.table_name) = lower(n.name) AND t.table_name <> n.name)
WHERE (t.table_namespace, t.table_name) <> (%(old_schema)s, %(old_name)s)
  AND (n.name_schema, n.name) NOT IN (SELECT table_namespace, table_name FROM {CATALOG_SCHEMA}.iceberg_tables)
ORDER BY 1, 2, 3, 4 LIMIT 1
"""
Locations = Mapping[tuple[str, TableName], str]
"""The place of the metadata of a table, by the name of a catalog and that of the table."""


class LakeCatalog:
    """The rows of the catalog. It holds no session: each method is one transaction of its own."""

    def __init__(self, ledger: WarehouseConnection, folder: LakeFolder) -> None:
        """Prepare it. folder: of the files that its rows name."""
        self._at = ledger
        self.folder = folder

    def ensure_schema(self) -> None:
        """Create the schema of the catalog, and Floodmark's table in it, where they are missing."""
        with open_transaction(self._at, "the catalog of the lake") as session:
            session.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [CATALOG_SCHEMA])
            session.execute(_SCHEMA)

    def exists(self) -> bool:
        """Return whether Iceberg has made its tables: the first load lets it."""
        with open_transaction(self._at, "the catalog of the lake") as session:
            return _is_made(session)

    def read_locations(self, targets: Sequence[TableName]) -> Locations:
        """Return the locations of tables in all catalogs; without those that a catalog does not have."""
        with open_transaction(self._at, "the catalog of the lake") as session:
            return _read_locations(session, _names(targets))

    def list_published(self, targets: Sequence[TableName]) -> Mapping[TableName, str | None]:
        """Return the locations of tables that were published last; None for a table that no window has published."""
        with open_transaction(self._at, "the catalog of the lake") as session:
            rows = session.execute(_LIST_PUBLISHED, _names(targets)).fetchall()
        return {TableName(schema, name): location for schema, name, location in rows}

    def list_unfinished(self) -> list[int]:
        """Return the windows of the ledger that are not finished."""
        with open_transaction(self._at, "the catalog of the lake") as session:
            rows = session.execute(_UNFINISHED, {"state": WindowState.ADVANCED.value}).fetchall()
        return [window_id for (window_id,) in rows]

    def forget(self, targets: Sequence[TableName]) -> None:
        """Forget tables that are made again: what is known under their names is of tables that are gone.

        Their files are kept.
        """
        with open_transaction(self._at, "the catalog of the lake") as session:
            session.execute(_FORGET, _names(targets))
            session.execute(_FORGET_LOCATIONS, _names(targets))

    def begin(self, plan: WindowPlan) -> None:
        """Make the tables of a window what readers see, in both catalogs, and record where the window begins.

        What a killed or refused window left in ``next`` is given up. Raises WatermarkConflictError where a later
        attempt has begun, WindowBusyError where a table is in an unfinished window of another lane.
        """
        named = _of(plan) | {"state": WindowState.ADVANCED.value, "lane": plan.lane}
        with open_transaction(self._at, plan.pipeline) as session:
            session.execute(_LOCK, named)
            _refuse_other_lane(session, plan, named)
            session.execute(_TO_LAKE, named | {"of": UNPUBLISHED, "to": PUBLISHED})
            session.execute(_TO_NEXT, named | {"of": PUBLISHED, "to": UNPUBLISHED})
            session.execute(_FORGET_OTHER_LEDGER, named)
            if session.execute(_BEGIN, named).rowcount != len(named["names"]):
                raise overtaken(plan)
            session.execute(_FORGET_HELD, named)

    def refuse_overtaken(self, plan: WindowPlan) -> None:
        """Raise WatermarkConflictError where a later attempt at the tables has begun."""
        named = _of(plan)
        with open_transaction(self._at, plan.pipeline) as session:
            if session.execute(_IS_LATEST, named).fetchone() != (len(named["names"]),):
                raise overtaken(plan)

    def give_up_merge(self, target: TableName) -> None:
        """Make a table what readers see, in ``next`` too, for a merge that begins again within its attempt."""
        named = _names([target])
        with open_transaction(self._at, str(target)) as session:
            session.execute(_LOCK, named)
            session.execute(_TO_NEXT, named | {"of": PUBLISHED, "to": UNPUBLISHED})

    def record_checked(self, plan: WindowPlan, checked: Mapping[TableName, str]) -> None:
        """Record the locations of tables that the checks have read. Raises WatermarkConflictError where one is over."""
        named = _of(plan) | _names(tuple(checked)) | {"locations": list(checked.values())}
        with open_transaction(self._at, plan.pipeline) as session:
            if session.execute(_CHECKED, named).rowcount != len(checked):
                raise WatermarkConflictError(
                    plan.pipeline, f"tables of window {plan.window_id} changed while they were checked.", "Run again."
                )

    def publish(self, plan: WindowPlan, session: psycopg.Connection) -> None:
        """Let readers see the tables of a checked window, in the caller's transaction.

        Raises WatermarkConflictError where another program has written to a table since the window began, or what the
        checks have read is no longer what would be published.
        """
        named = _of(plan)
        session.execute(_LOCK, named)
        published, tables = session.execute(_PUBLISH, named).rowcount, len(named["names"])
        if published != tables:
            raise WatermarkConflictError(
                plan.pipeline,
                f"{tables - published} of {tables} tables of window {plan.window_id} are no longer as they were when "
                "it began, or as they were checked.",
                "Nothing was published. Find out what else writes to the lake, and take its commit back "
                '(docs/lakehouse.md, "Checks"). Then run again.',
            )
        session.execute(_RECORD_PUBLISHED, named)

    def begin_upkeep(self, target: TableName) -> str | None:
        """Show a table in the catalog of upkeep, as readers see it. Return where its metadata is.

        None, where a window of the table is unfinished, or its state is not the one that a window or upkeep published.
        """
        named = _names([target])
        with open_transaction(self._at, str(target)) as session:
            base = _read_at_rest(session, named)
            if base is not None:
                session.execute(_TO_NEXT, named | {"of": PUBLISHED, "to": KEPT})
        return base

    def publish_upkeep(self, target: TableName, base: str) -> bool:
        """Let readers and windows see a table as upkeep has left it. Return False where it has changed meanwhile.

        base: where its metadata was when upkeep began.
        """
        named = _names([target])
        with open_transaction(self._at, str(target)) as session:
            if is_same := _read_at_rest(session, named) == base:
                session.execute(_PUBLISH_OF, named | {"of": KEPT})
                session.execute(_RECORD_AS_PUBLISHED, named)
        return is_same

    def end_upkeep(self, target: TableName) -> None:
        """Remove a table from the catalog of upkeep."""
        with open_transaction(self._at, str(target)) as session:
            session.execute(_FORGET_OF, _names([target]) | {"of": KEPT})

    def rename(self, session: psycopg.Connection, before: TableName, to: TableName) -> None:
        """Give a table another name, in the caller's transaction, after the ledger has given it to the target.

        A history gets it with its ended versions. The files stay where they are. A table that was renamed in both
        catalogs already keeps its new name. Raises OperatorError where the lake has another table of that name,
        WindowBusyError where a window of it is unfinished.
        """
        if not _is_made(session):
            return
        for window_id, pipeline, lane in session.execute(
            _UNFINISHED_OF, {"state": WindowState.ADVANCED.value, "schema": to.schema, "name": to.name}
        ).fetchall():
            raise WindowBusyError(
                pipeline,
                f"window {window_id} of the table is unfinished, and its rows are under the name {before}.",
                f"Nothing was renamed. Finish it first: {finishing_command(pipeline, lane)}.",
            )
        _move(session, before, to)
        versions = versions_name(before)
        if session.execute(_HAS_VERSIONS, {"schema": versions.schema, "name": versions.name}).fetchone() is not None:
            _move(session, versions, versions_name(to))

    def begin_release(self, plan: WindowPlan, session: psycopg.Connection) -> Mapping[TableName, str]:
        """Show the table of a release in its catalog, as readers see it, a history with its ended versions.

        Return where the metadata is, without a table that readers do not see.

        session: of the caller's transaction. Raises WindowBusyError where an unfinished window has merged the table, or
        merges it.
        """
        named = _of(plan) | {"state": WindowState.ADVANCED.value, "lane": plan.lane}
        session.execute(_LOCK, named)
        _refuse_other_lane(session, plan, named)
        session.execute(_TO_NEXT, named | {"of": PUBLISHED, "to": RELEASED})
        found = _read_locations(session, named)
        return {target: location for (catalog, target), location in found.items() if catalog == PUBLISHED}

    def publish_release(
        self,
        plan: WindowPlan,
        base: Mapping[TableName, str],
        merged: Mapping[TableName, str],
        session: psycopg.Connection,
    ) -> None:
        """Let readers and windows see the table as a release has merged it, in the caller's transaction.

        base, merged: where its metadata was when the release began, and where it is after the merge. Raises
        WatermarkConflictError where either is another one by now, WindowBusyError as ``begin_release``.
        """
        named = _of(plan) | {"state": WindowState.ADVANCED.value, "lane": plan.lane, "of": RELEASED}
        session.execute(_LOCK, named)
        _refuse_other_lane(session, plan, named)
        found = _read_locations(session, named)
        now = [{of: at for (name, of), at in found.items() if name == catalog} for catalog in (PUBLISHED, RELEASED)]
        if now != [base, merged]:
            raise WatermarkConflictError(
                str(plan.tables[0].source),
                f"the table {plan.tables[0].target} of the lake was written to while rows were released.",
                "Nothing was released. Run again.",
            )
        session.execute(_PUBLISH_OF, named)
        session.execute(_RECORD_AS_PUBLISHED, named)
        session.execute(_FORGET_OF, named)

    def refuse_namesakes(self, tables: Sequence[TablePlan]) -> None:
        """Raise TargetRefusedError for a new table whose name differs in case alone from that of another one."""
        with open_transaction(self._at, "the catalog of the lake") as session:
            found = _find_namesake(session, [table.target for table in tables]) if _is_made(session) else None
        if found is not None:
            target, words = found
            [source] = [table.source for table in tables if table.target == target]
            raise TargetRefusedError(str(source), words, "Give it another name (target).")

    def list_other_locations(self, target: TableName) -> list[str]:
        """Return where the metadata of all other tables is."""
        with open_transaction(self._at, str(target)) as session:
            rows = session.execute(_LIST_OTHERS, _names([target])).fetchall()
        return [location for (location,) in rows]


def _find_namesake(
    session: psycopg.Connection, targets: Sequence[TableName], but: TableName | None = None
) -> tuple[TableName, str] | None:
    """Return the first new table whose name, or schema, differs in case alone from those of another one, in words."""
    old = {"old_schema": but.schema if but else "", "old_name": but.name if but else ""}
    found = session.execute(_NAMESAKE, _names(targets) | old).fetchone()
    if found is None:
        return None
    target, other = TableName(*found[:2]), TableName(*found[2:])
    words = f"the lake has the table {other}, from which {target} differs in case alone, or its schema does"
    return target, f"{words}. Readers of a lake do not distinguish them."


def _move(session: psycopg.Connection, before: TableName, to: TableName) -> None:
    """Give a table another name in both catalogs. Raises OperatorError where the lake has another one of that name."""
    found = _read_locations(session, _names([before, to]))
    if {(PUBLISHED, before), (PUBLISHED, to)} <= found.keys():
        raise OperatorError(str(before), f"the lake has a table {to} already.", "Choose another target.")
    if (namesake := _find_namesake(session, [to], before)) is not None:
        raise OperatorError(str(before), namesake[1], "Choose another target.")
    session.execute(_FORGET, _names([to]))
    named = {"schema": to.schema, "name": to.name, "old_schema": before.schema, "old_name": before.name}
    session.execute(_MOVE, named)
    session.execute(_MOVE_OWN, named)


def _refuse_other_lane(session: psycopg.Connection, plan: WindowPlan, named: Mapping[str, Any]) -> None:
    """Raise WindowBusyError where what another lane has merged in ``next``, or merges there, would be given up.

    Not for what its checks have refused. A window that is planned, and that no load has, begins again later.
    """
    sources = [table.source for table in plan.tables for _ in list_relations([table])]
    places = {"source_schemas": [each.schema for each in sources], "source_names": [each.name for each in sources]}
    for schema, name, window_id, pipeline, lane, state in session.execute(
        _IN_OTHER_LANE, {**named, **places}
    ).fetchall():
        if state == WindowState.PLANNED.value and not is_being_loaded(session, window_id):
            continue
        raise WindowBusyError(
            plan.pipeline,
            f"window {window_id} ({lane or 'a run'}) is unfinished, and has the table {schema}.{name} too: a lake "
            "merges one window of a table at a time.",
            f"Nothing was merged. Finish it first: {finishing_command(pipeline, lane)}.",
        )


def _is_made(session: psycopg.Connection) -> bool:
    [(found,)] = session.execute("SELECT to_regclass(%s)", [f"{CATALOG_SCHEMA}.iceberg_tables"]).fetchall()
    return found is not None


def _read_locations(session: psycopg.Connection, named: Mapping[str, Any]) -> Locations:
    rows = session.execute(_LOCATIONS, named).fetchall()
    return {(catalog, TableName(schema, name)): location for catalog, schema, name, location in rows}


def _read_at_rest(session: psycopg.Connection, named: Mapping[str, Any]) -> str | None:
    """Lock a table that no unfinished window has, until the transaction ends. Return where its metadata is."""
    session.execute(_LOCK, named)
    row = session.execute(_IS_AT_REST, {**named, "state": WindowState.ADVANCED.value}).fetchone()
    return row[0] if row else None


def overtaken(plan: WindowPlan) -> WatermarkConflictError:
    """Return the error about a load that a later attempt has replaced."""
    return WatermarkConflictError(
        f"{plan.pipeline}, window {plan.window_id}",
        f"this load is attempt {plan.attempt}, and it is not the latest one.",
        "Nothing was merged; the later attempt merges the window.",
    )


def _of(plan: WindowPlan) -> dict[str, Any]:
    """Return a window with the tables of the lake that it writes: a history has two."""
    return {"window_id": plan.window_id, "attempt": plan.attempt, **_names(list_relations(plan.tables))}


def _names(targets: Sequence[TableName]) -> dict[str, Any]:
    return {"schemas": [target.schema for target in targets], "names": [target.name for target in targets]}
