"""The PostgreSQL objects of a tracked table: its side table, the triggers that fill it, the functions that read it.

The side table has a row for each change of a row: transaction, place in it, operation, assigned columns, context, key.
It is written in the changing transaction, by a trigger after each statement, which sees all changed rows at once; so a
statement costs the same few commands however many rows it changes (ADR 60).
"""

# ruff: noqa: S608  (names are quoted by ``names``)

from __future__ import annotations

from importlib.resources import files
from string import Template

from sqlserver_emulator.engine.ddl.compared import compared_sql
from sqlserver_emulator.engine.ddl.scope import DdlScope
from sqlserver_emulator.engine.names import qualified, quote
from sqlserver_emulator.engine.translation import CatalogColumn, CatalogObject

_KEY = "k"
"""The mark of an update that assigns a column of the key, among the entries of the mask."""


def key_columns(table: CatalogObject) -> list[CatalogColumn]:
    """Return the columns of the primary key in the order of the key."""
    by_name = {column.name: column for column in table.columns}
    return [by_name[name] for name in table.key_columns]


def side_table(table: CatalogObject) -> str:
    """Return the quoted name of the table's side table."""
    return qualified("emulator", f"change_tracking_{table.object_id}")


def install(scope: DdlScope, table: CatalogObject, *, tracks_columns: bool) -> None:
    """Create everything that a table needs from now on; its rows so far are not tracked."""
    keys = ", ".join(f"{quote(column.postgres_name)} AS k{i}" for i, column in enumerate(key_columns(table), 1))
    side = side_table(table)
    scope.run(
        f"CREATE TABLE {side} AS SELECT NULL::bigint AS xdes_id, NULL::text AS operation, NULL::bytea AS columns,"
        f" NULL::bytea AS context, {keys} FROM {_target(table)} WITH NO DATA"
    )
    scope.run(f"ALTER TABLE {side} ADD COLUMN seq bigint GENERATED ALWAYS AS IDENTITY")
    scope.run(f"CREATE INDEX ON {side} (xdes_id)")
    scope.run(f"CREATE INDEX ON {side} ({', '.join(_compared(table))})")
    attach(scope, table, tracks_columns=tracks_columns)


def attach(scope: DdlScope, table: CatalogObject, *, tracks_columns: bool) -> None:
    """Create the triggers and functions, which name the table's columns."""
    for statement in _script(scope, table, tracks_columns).split("--;\n"):
        scope.run(statement)
    target = _target(table)
    for event, images in _IMAGES:
        scope.run(
            f'CREATE TRIGGER "~tracking {event}" AFTER {event} ON {target} REFERENCING {images}'
            f" FOR EACH STATEMENT EXECUTE FUNCTION {_function(table, 'record')}()"
        )
    keys = ", ".join(quote(column.postgres_name) for column in key_columns(table))
    _note(scope, target, keys, "key", _KEY)
    for column in _masked_columns(table) if tracks_columns else ():
        _note(scope, target, quote(column.postgres_name), f"{column.column_id:05}", _entry(column))


def detach(scope: DdlScope, table: CatalogObject) -> None:
    """Drop the triggers. The functions stay until they are replaced: views may call them."""
    target = _target(table)
    for (name,) in scope.fetch(_TRIGGERS, [table.object_id]):
        scope.run(f"DROP TRIGGER {quote(name)} ON {target}")


def remove(scope: DdlScope, table: CatalogObject) -> None:
    """Drop everything that ``install`` made."""
    detach(scope, table)
    for (function,) in scope.fetch(_FUNCTIONS, [f"^tracking_(record|changes|version)_{table.object_id}$"]):
        scope.run(f"DROP FUNCTION {function}")
    scope.run(f"DROP TABLE {side_table(table)}")


def _note(scope: DdlScope, target: str, columns: str, name: str, argument: str) -> None:
    scope.run(
        f'CREATE TRIGGER "~tracking of {name}" BEFORE UPDATE OF {columns} ON {target} FOR EACH STATEMENT'
        f" EXECUTE FUNCTION emulator.note_assigned_column('{argument}')"
    )


def _masked_columns(table: CatalogObject) -> list[CatalogColumn]:
    """The columns that a mask lists where they are assigned: computed ones and the key never are."""
    return [c for c in table.columns if not c.computed and c.name not in table.key_columns]


def _entry(column: CatalogColumn) -> str:
    return column.column_id.to_bytes(4, "little").hex()


def _script(scope: DdlScope, table: CatalogObject, tracks_columns: bool) -> str:
    numbers = range(1, len(table.key_columns) + 1)
    masked = _masked_columns(table)
    stamped = "".join(_entry(column) for column in masked if column.type.name == "rowversion")
    types = [str(type) for (type,) in scope.fetch(_KEY_TYPES, [f"change_tracking_{table.object_id}"])]
    side_keys = _compared(table)
    own_keys = [compared_sql(column) for column in key_columns(table)]
    names = [quote(column.postgres_name) for column in key_columns(table)]
    database_id = scope.fetch("SELECT database_id FROM emulator.objects WHERE object_id = $1::int", [table.object_id])
    values = {
        "object_id": table.object_id,
        "database_id": database_id[0][0],
        "target": _target(table),
        "side": side_table(table),
        "record": _function(table, "record"),
        "changes": _function(table, "changes"),
        "version": _function(table, "version"),
        "tracks_columns": str(tracks_columns).lower(),
        "stamped": stamped,
        "all_entries": sum(len(_entry(column)) for column in masked),
        "keys": _list("k{}", numbers),
        "names": ", ".join(names),
        "named": ", ".join(f"{name} AS k{i}" for i, name in enumerate(names, 1)),
        "old_fields": _list("(o).k{}", numbers),
        "new_fields": _list("(n).k{}", numbers),
        "row_keys": _list("t.k{}", numbers),
        "old_compared": _list("o.c{}", numbers),
        "new_compared": _list("n.c{}", numbers),
        "compared": _list("c{}", numbers),
        "own_compared": ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(own_keys, 1)),
        "side_compared": ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(side_keys, 1)),
        "side_is_key": " AND ".join(f"{s} = t.c{i}" for i, s in enumerate(side_keys, 1)),
        "own_is_given": _is_given(own_keys, names),
        "last_keys": _list("(array_agg(k{0} ORDER BY seq))[1] AS k{0}", numbers),
        "first_keys": _list("(array_agg(k{0} ORDER BY commit_ts))[1]", numbers),
        "parameters": ", ".join(f"p{i} {type}" for i, type in enumerate(types, 1)),
        "key_results": ", ".join(f"k{i} {type}" for i, type in enumerate(types, 1)),
    }
    text = files("sqlserver_emulator.engine").joinpath("sql/tracked_table.sql").read_text(encoding="utf-8")
    return Template(text).substitute({name: str(value) for name, value in values.items()})


def _is_given(compared: list[str], names: list[str]) -> str:
    """The condition that a row has the key of the parameters, which stand in the columns' places."""
    pairs = enumerate(zip(compared, names, strict=True), 1)
    return " AND ".join(f"{sql} = {sql.replace(name, f'${i}')}" for i, (sql, name) in pairs)


def _list(form: str, numbers: range) -> str:
    return ", ".join(form.format(i) for i in numbers)


def _compared(table: CatalogObject) -> list[str]:
    """The expressions that are compared of the side table's keys."""
    return [
        compared_sql(column).replace(quote(column.postgres_name), f"k{i}")
        for i, column in enumerate(key_columns(table), 1)
    ]


def _target(table: CatalogObject) -> str:
    return qualified(table.postgres_schema, table.postgres_name)


def _function(table: CatalogObject, part: str) -> str:
    return f"emulator.tracking_{part}_{table.object_id}"


_IMAGES = (
    ("INSERT", "NEW TABLE AS inserted"),
    ("UPDATE", "OLD TABLE AS deleted NEW TABLE AS inserted"),
    ("DELETE", "OLD TABLE AS deleted"),
)
_TRIGGERS = "SELECT tgname::text FROM pg_trigger WHERE tgrelid = $1::oid AND tgname LIKE '~tracking %'"
_FUNCTIONS = """
SELECT p.oid::regprocedure::text FROM pg_proc p WHERE p.pronamespace = 'emulator'::regnamespace AND p.proname ~ $1
"""
_KEY_TYPES = """
SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
WHERE a.attrelid = format('emulator.%I', $1::text)::regclass AND a.attname ~ '^k[0-9]+$'
ORDER BY substr(a.attname, 2)::int
"""
