"""The columns of a table-valued function that is expanded in place: names and types read from its PostgreSQL body.

Without their types a conversion of such a column (`CONVERT(varchar(22), __$start_lsn, 1)`) would be PostgreSQL's and
not T-SQL's. Columns that come straight from a relation of the catalog have its types; the change functions' own columns
have the documented ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlglot
from sqlglot import exp

from sqlserver_emulator.collations import implicit
from sqlserver_emulator.engine.translate.expressions.scope import SourceColumn, quote
from sqlserver_emulator.engine.translation import CatalogObject, CatalogReader, InlineFunction
from sqlserver_emulator.types import INT, LSN, TsqlType

_CHANGE_COLUMNS = {
    "__$start_lsn": LSN,
    "__$end_lsn": LSN,
    "__$seqval": LSN,
    "__$operation": INT,
    "__$update_mask": TsqlType("varbinary", 128),
    "__$command_id": INT,
}
_CHANGE_VIEWS = "emulator_cdc"
"""The PostgreSQL schema of the views on change tables; the catalog has them as sys.cdc_<view>."""


def function_columns(catalog: CatalogReader, function: InlineFunction, body: str) -> tuple[SourceColumn, ...] | None:
    """``body`` with something in place of its arguments. None where the select list does not name its columns."""
    tree = sqlglot.parse_one(body, read="postgres")
    select = tree if isinstance(tree, exp.Select) else tree.find(exp.Select)
    return _columns(catalog, function.database, select) if select is not None else None


def _columns(catalog: CatalogReader, database: str, select: exp.Select) -> tuple[SourceColumn, ...] | None:
    sources = dict(_sources(catalog, database, select))
    columns: list[SourceColumn] = []
    for item in select.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            starred = sources.get(item.table) if isinstance(item, exp.Column) else next(iter(sources.values()), None)
            if starred is None:
                return None
            columns += starred
        elif item.alias_or_name:
            columns.append(_column(item, sources))
        else:
            return None
    return tuple(columns)


def _column(item: exp.Expression, sources: dict[str, Sequence[SourceColumn]]) -> SourceColumn:
    name = item.alias_or_name
    origin = item.this if isinstance(item, exp.Alias) else item
    if isinstance(origin, exp.Column):
        found = next((column for column in sources.get(origin.table, ()) if column.sql == quote(origin.name)), None)
        if found is not None:
            return SourceColumn(name, quote(name), found.type, found.nullable, found.direct, collated=found.collated)
    return SourceColumn(name, quote(name), _CHANGE_COLUMNS.get(name))


def _sources(catalog: CatalogReader, database: str, select: exp.Select) -> list[tuple[str, Sequence[SourceColumn]]]:
    from_ = select.args.get("from_")
    items = [from_.this] if from_ is not None else []
    items += [join.this for join in select.args.get("joins") or []]
    found: list[tuple[str, Sequence[SourceColumn]]] = []
    for item in items:
        if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Select):
            found.append((item.alias_or_name, _columns(catalog, database, item.this) or ()))
        elif isinstance(item, exp.Table):
            relation = _relation(catalog, database, item)
            found.append((item.alias_or_name, _relation_columns(relation) if relation is not None else ()))
    return found


def _relation(catalog: CatalogReader, database: str, table: exp.Table) -> CatalogObject | None:
    schema = table.db
    if schema == _CHANGE_VIEWS:
        return catalog.table(database, "sys", f"cdc_{table.name}")
    prefix = f"{database}."
    return catalog.table(database, schema.removeprefix(prefix), table.name) if schema.startswith(prefix) else None


def _relation_columns(relation: CatalogObject) -> list[SourceColumn]:
    return [
        SourceColumn(
            column.name,
            quote(column.postgres_name or column.name),
            column.type,
            column.nullable,
            True,
            collated=implicit(column.collation),
        )
        for column in relation.columns
    ]
