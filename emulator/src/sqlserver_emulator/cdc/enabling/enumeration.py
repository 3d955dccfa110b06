"""The change enumeration functions of an instance: the view they read and the PostgreSQL SELECTs they expand to.

A call ``cdc.fn_cdc_get_all_changes_<ci>(…)`` is replaced by such a SELECT, so columns keep their declared types. It
reads a view that the emulator owns, so the caller needs no right on the change table (ownership chaining);
``cdc_check_window`` raises 229 and 313, as real servers do, or says that one row of NULLs is the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlserver_emulator.cdc.instances import CdcDatabase
from sqlserver_emulator.cdc.metadata import CDC_SCHEMA, Run
from sqlserver_emulator.collations import find_collation
from sqlserver_emulator.engine.names import postgres_schema, quote

_PARAMETERS = json.dumps(
    [
        {"name": "@from_lsn", "type": "binary", "length": 10},
        {"name": "@to_lsn", "type": "binary", "length": 10},
        {"name": "@row_filter_option", "type": "nvarchar", "length": 30},
    ]
)

# The bounds are subqueries so that they are computed once and the index on the change table serves them.
_WINDOW = 'c."__$start_lsn" BETWEEN (SELECT ($1)::bytea) AND (SELECT ($2)::bytea)'
_OPTION = "lower(btrim(($3)::varchar))"

# OFFSET 0 keeps the planner from merging the subquery into the query, so that the window is checked once. The outer
# join leaves one row of NULLs where the caller may not read (docs/reference/sqlserver_cdc.md, "Windows").
_ALL_CHANGES = """\
SELECT c."__$start_lsn", c."__$seqval", c."__$operation", c."__$update_mask", :columns(c)
FROM (SELECT :sys.cdc_check_window(:object_id, 'all', $1, $2, $3) AS is_open OFFSET 0) AS g
LEFT JOIN :view AS c ON g.is_open AND :window AND (c."__$operation" <> 3 OR :option = 'all update old')
WHERE c."__$operation" IS NOT NULL OR NOT g.is_open"""

# One row a key: its last change in the window; the first and the last one decide its operation
# (docs/reference/sqlserver_cdc.md, "Net changes"). Rows of a key come in order of commit, command, sequence and
# operation; an update pair is 3 before 4, so a key whose first row is a 3 begins with an update. The mask is that of a
# result 4 only.
_NET_CHANGES = """\
SELECT n."__$start_lsn",
       CASE WHEN n."__$operation" IS NULL THEN NULL WHEN n."__$operation" = 1 THEN 1
            WHEN :option = 'all with merge' THEN 5 WHEN n.first_operation = 2 THEN 2 ELSE 4 END AS "__$operation",
       m.mask AS "__$update_mask", :columns(n)
FROM (SELECT :sys.cdc_check_window(:object_id, 'net', $1, $2, $3) AS is_open OFFSET 0) AS g
LEFT JOIN (
      SELECT c.*, first_value(c."__$operation") OVER w AS first_operation,
             lead(c."__$operation") OVER w AS next_operation
      FROM :view AS c
      WHERE :window
      WINDOW w AS (PARTITION BY :keys(c)
                   ORDER BY c."__$start_lsn", c."__$command_id", c."__$seqval", c."__$operation")) AS n
    ON g.is_open AND n.next_operation IS NULL AND NOT (n.first_operation = 2 AND n."__$operation" = 1)
LEFT JOIN (SELECT :named_keys(c), emulator_cdc.mask_union(c."__$update_mask") AS mask
           FROM :view AS c
           WHERE :option = 'all with mask' AND emulator_cdc.evaluates_masks() AND :window
           GROUP BY :keys(c)) AS m
       ON :same_key AND n."__$operation" <> 1 AND n.first_operation <> 2
WHERE n."__$operation" IS NOT NULL OR NOT g.is_open"""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column that identifies the row of a change."""

    postgres_name: str
    collation: str | None
    """Of a string."""

    def compared(self, alias: str) -> str:
        """Return what the changes of one row have in common; strings are equal where their collation says so."""
        sql = f"{alias}.{quote(self.postgres_name)}"
        if self.collation is None:
            return sql
        collation = find_collation(self.collation)
        return f"{sql}::bpchar" if collation.is_binary else f"tsql.key_{collation.style}({sql})"


def view_name(object_id: int) -> str:
    """Return the name of the view on the change table with this id."""
    return f"emulator_cdc.changes_{object_id}"


def create_view(run: Run, database: CdcDatabase, object_id: int) -> None:
    """Create the view on a change table, empty for all but the instance's readers, and enter it into the catalog."""
    columns = [name for (name,) in run(_COLUMN_NAMES, (object_id,))]
    ((table,),) = run("SELECT $1::int::oid::regclass::text", (object_id,))
    view = view_name(object_id)
    run(_fill(_VIEW, database, object_id, columns=columns).replace(":table", table), ())
    # The view itself decides, by cdc_may_read, who sees rows.
    run(f"GRANT SELECT ON {view} TO PUBLIC", ())
    run(_REGISTER_VIEW, (view, database.database_id, _catalog_name(object_id)))
    run(_COPY_COLUMNS, (view, object_id))


def drop_view(run: Run, database: CdcDatabase, object_id: int) -> None:
    """Drop the view on a change table and its entry in the catalog."""
    run(f"DROP VIEW IF EXISTS {view_name(object_id)}", ())
    run(
        "DELETE FROM emulator.objects WHERE database_id = $1::int AND name = $2::varchar AND type = 'V' AND is_system",
        (database.database_id, _catalog_name(object_id)),
    )


def create_functions(
    run: Run,
    database: CdcDatabase,
    instance: str,
    object_id: int,
    *,
    columns: Sequence[str],
    key: Sequence[KeyColumn] | None,
) -> None:
    """Enter the functions of an instance into the catalog.

    ``columns``: PostgreSQL names of the captured columns. ``key``: what identifies a row; None: no net changes.
    """
    bodies = {"all": _fill(_ALL_CHANGES, database, object_id, columns=columns)}
    if key is not None:
        bodies["net"] = _fill(_NET_CHANGES, database, object_id, columns=columns, key=key)
    for kind, body in bodies.items():
        rights = _rights_of(kind, object_id)
        run(f"CREATE VIEW {rights} AS SELECT WHERE false", ())
        name = f"fn_cdc_get_{kind}_changes_{instance}"
        run(_ADD_FUNCTION, (database.database_id, CDC_SCHEMA, name, _PARAMETERS, body, rights))


def drop_functions(run: Run, database: CdcDatabase, instance: str, object_id: int) -> None:
    """Remove the functions of an instance from the catalog."""
    for kind in ("all", "net"):
        run(f"DROP VIEW IF EXISTS {_rights_of(kind, object_id)}", ())
    names = (f"fn_cdc_get_all_changes_{instance}", f"fn_cdc_get_net_changes_{instance}")
    run(_DROP_FUNCTIONS, (database.database_id, CDC_SCHEMA, *names))


def _fill(
    template: str, database: CdcDatabase, object_id: int, *, columns: Sequence[str], key: Sequence[KeyColumn] = ()
) -> str:
    def qualify(names: Sequence[str], alias: str) -> str:
        return ", ".join(f"{alias}.{quote(name)}" for name in names)

    values = {
        "view": view_name(object_id),
        "sys": quote(postgres_schema(database.name, "sys")),
        "object_id": str(object_id),
        "window": _WINDOW,
        "option": _OPTION,
        "columns(c)": qualify(columns, "c"),
        "columns(n)": qualify(columns, "n"),
        "keys(c)": ", ".join(column.compared("c") for column in key),
        "named_keys(c)": ", ".join(f"{column.compared('c')} AS k{i}" for i, column in enumerate(key)),
        "same_key": " AND ".join(f"m.k{i} IS NOT DISTINCT FROM {column.compared('n')}" for i, column in enumerate(key)),
    }
    return _PLACEHOLDER.sub(lambda found: values[found[1]], template)


def _rights_of(kind: str, object_id: int) -> str:
    """Return the view that carries the rights to SELECT from a function, which is no relation in PostgreSQL."""
    return f"emulator_cdc.{kind}_function_{object_id}"


def _catalog_name(object_id: int) -> str:
    return f"cdc_changes_{object_id}"


# Not after a second colon: `::bytea` is a cast.
_PLACEHOLDER = re.compile(
    r"(?<!:):(view|sys|object_id|window|option|columns\([cn]\)|keys\(c\)|named_keys\(c\)|same_key)"
)
_VIEW = "CREATE VIEW :view AS SELECT :columns(c) FROM :table AS c WHERE :sys.cdc_may_read(:object_id)"
_COLUMN_NAMES = "SELECT postgres_name FROM emulator.columns WHERE object_id = $1::int ORDER BY column_id"
_REGISTER_VIEW = """
INSERT INTO emulator.objects (object_id, database_id, schema_id, name, type, postgres_name, is_ms_shipped, is_system)
SELECT $1::regclass::oid::int, $2::int, s.schema_id, $3::varchar, 'V', $3::text, true, true
FROM emulator.schemas s WHERE s.database_id = $2::int AND s.name = 'sys'
"""
_COPY_COLUMNS = """
INSERT INTO emulator.columns (object_id, column_id, name, postgres_name, attnum, type_name, length, precision, scale,
    user_type_id, is_nullable, collation_name)
SELECT a.attrelid::int, a.attnum, c.name, c.postgres_name, a.attnum, c.type_name, c.length, c.precision, c.scale,
    c.user_type_id, c.is_nullable, c.collation_name
FROM emulator.columns c JOIN pg_attribute a ON a.attrelid = $1::regclass AND a.attname = c.postgres_name
WHERE c.object_id = $2::int
"""
_ADD_FUNCTION = """
WITH added AS (
    INSERT INTO emulator.objects (database_id, schema_id, name, type, postgres_name)
    SELECT $1::int, s.schema_id, $3::varchar, 'IF', $6::text FROM emulator.schemas s
    WHERE s.database_id = $1::int AND s.name = $2::varchar RETURNING object_id)
INSERT INTO emulator.inline_functions SELECT object_id, $4::jsonb, $5::text FROM added
"""
_DROP_FUNCTIONS = """
DELETE FROM emulator.objects o USING emulator.schemas s
WHERE s.database_id = o.database_id AND s.schema_id = o.schema_id AND o.database_id = $1::int AND s.name = $2::varchar
  AND o.type = 'IF' AND o.name IN ($3::varchar, $4::varchar)
"""
