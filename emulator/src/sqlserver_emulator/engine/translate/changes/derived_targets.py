"""UPDATE and DELETE through a common table expression or a derived table (`DELETE FROM d WHERE rn > 1`).

The query behind the name is made to give the address of the row that it is on, as one more column; the statement
then changes the table below, joined to the query by that address. So the query may number its rows, choose some by TOP,
or join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from sqlserver_emulator.engine.translate.expressions.clauses import RowAddress, starred
from sqlserver_emulator.engine.translate.queries.sources import table_parts
from sqlserver_emulator.engine.translation import CatalogObject
from sqlserver_emulator.errors import NotSupportedByEmulatorError, SqlServerError

ADDRESS: Final = "~row"
"""The added column. No T-SQL name of a column begins so."""

ResolveTable = Callable[[tuple[str, ...]], CatalogObject]


@dataclass(frozen=True, slots=True)
class DerivedTarget:
    """``name``: what FROM calls the query. ``table``: the table that is changed.

    ``origins``: the names of its columns, by the lower-case names that the query gives them.
    """

    name: str
    table: CatalogObject
    origins: Mapping[str, str]


def find_derived_target(
    node: exp.Expression, from_key: str, assigned: Iterable[str], resolve: ResolveTable
) -> DerivedTarget | None:
    """None: the statement names a table. Else its tree is changed so that the query gives the rows' address.

    ``assigned``: the columns of SET, which say which of several joined tables is meant.
    """
    target = node.this
    if not isinstance(target, exp.Table) or len(table_parts(target)) != 1 or target.name.startswith(("#", "@")):
        return None
    with_ = node.args.get("with_")
    ctes = {cte.alias.lower(): cte for cte in with_.expressions} if with_ is not None else {}
    name = target.name
    if node.args.get(from_key) is None:
        if name.lower() not in ctes:
            return None
        # `UPDATE cte SET …` has no FROM of its own; one is added so that both forms are handled alike.
        node.set(from_key, exp.From(this=exp.Table(this=target.this.copy())))
    query = _query_of(node.args[from_key], name, ctes)
    if query is None:
        return None
    table, origins = _expose(query, ctes, [column.lower() for column in assigned], resolve)
    return DerivedTarget(name, table, origins)


def _query_of(from_: exp.Expression, name: str, ctes: Mapping[str, exp.CTE]) -> exp.Expression | None:
    """The query that FROM knows by ``name``; None when that is a table."""
    for item in _sources(from_):
        if item.alias_or_name.lower() != name.lower():
            continue
        if isinstance(item, exp.Subquery):
            return item
        return _common_table(item, ctes)
    return None


def _sources(from_: exp.Expression) -> list[exp.Expression]:
    first = from_.this
    return [first, *(join.this for join in first.args.get("joins") or [])]


def _common_table(item: exp.Expression, ctes: Mapping[str, exp.CTE]) -> exp.CTE | None:
    if not isinstance(item, exp.Table) or item.args.get("db") is not None:
        return None
    return ctes.get(item.name.lower())


def _expose(
    holder: exp.Expression, ctes: Mapping[str, exp.CTE], assigned: list[str], resolve: ResolveTable
) -> tuple[CatalogObject, dict[str, str]]:
    """Add the row's address to a query; the table it is of, and the table's names of the query's columns."""
    select = holder.this
    # A row of such a query comes from several rows of the table.
    if not isinstance(select, exp.Select) or select.args.get("group") or select.args.get("distinct"):
        message = "Cannot update the view or function because it contains aggregates, or a DISTINCT or GROUP BY clause."
        raise SqlServerError(4403, message)
    from_ = select.args.get("from_")
    if from_ is None:
        raise SqlServerError(4405, f"View or function '{holder.alias}' is not updatable.")
    joins = [*(from_.this.args.get("joins") or []), *(select.args.get("joins") or [])]
    candidates = [from_.this, *(join.this for join in joins)]
    for item in candidates:
        inner = item if isinstance(item, exp.Subquery) else _common_table(item, ctes)
        source = item.alias_or_name
        if inner is not None:
            table, names = _expose(inner, ctes, assigned, resolve)
        elif isinstance(item, exp.Table) and isinstance(item.this, (exp.Identifier, exp.Parameter)):
            table = resolve(table_parts(item))
            source = item.alias or table_parts(item)[-1]
            names = {column.name.lower(): column.name for column in table.columns}
        else:
            continue
        origins = _origins(select, source, names, alone=len(candidates) == 1)
        aliases = holder.args["alias"].columns if holder.args.get("alias") is not None else []
        if aliases:
            origins = _renamed(select, aliases, origins)
        # Of several tables, the one that has all columns of SET is meant; DELETE has no columns and needs a single
        # table.
        if len(candidates) == 1 or (assigned and all(column in origins for column in assigned)):
            # `SELECT *` over an inner query passes the address column on by itself.
            if not (inner is not None and _stars(select, source, alone=len(candidates) == 1)):
                _add_address(select, source, inner is not None)
                if aliases:
                    # A column list has to name the added column, too.
                    holder.args["alias"].append("columns", exp.to_identifier(ADDRESS, quoted=True))
            return table, origins
    message = (
        f"View or function '{holder.alias}' is not updatable because the modification affects multiple base tables."
    )
    raise SqlServerError(4405, message)


def _add_address(select: exp.Select, source: str, is_derived: bool) -> None:
    name = exp.to_identifier(ADDRESS, quoted=True)
    value: exp.Expression = RowAddress(this=exp.to_identifier(source, quoted=True))
    if is_derived:
        value = exp.Column(this=name.copy(), table=exp.to_identifier(source, quoted=True))
    select.append("expressions", exp.Alias(this=value, alias=name))


def _stars(select: exp.Select, source: str, *, alone: bool) -> bool:
    """Whether the select list has all columns of ``source``."""
    for item in select.expressions:
        star = starred(item)
        if star is not None and ((not star and alone) or (star and star[-1].lower() == source.lower())):
            return True
    return False


def _origins(select: exp.Select, source: str, names: Mapping[str, str], *, alone: bool) -> dict[str, str]:
    """The query's columns that are plain columns of ``source``."""
    origins: dict[str, str] = {}
    if _stars(select, source, alone=alone) or any(starred(item) == () for item in select.expressions):
        # A star without a qualifier has the columns of every source.
        origins.update(names)
    for item in select.expressions:
        column = item.this if isinstance(item, exp.Alias) else item
        if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star):
            continue
        of_source = column.table.lower() == source.lower() if column.table else column.name.lower() in names
        if of_source and column.name.lower() in names:
            origins[item.alias_or_name.lower()] = names[column.name.lower()]
    return origins


def _renamed(select: exp.Select, aliases: list[exp.Expression], origins: Mapping[str, str]) -> dict[str, str]:
    """`WITH d (a, b) AS (SELECT x, y …)`."""
    if any(starred(item) is not None for item in select.expressions):
        raise NotSupportedByEmulatorError("a change through a query with a column list and *")
    listed = zip(aliases, select.expressions, strict=False)
    given = {alias.name.lower(): item.alias_or_name.lower() for alias, item in listed}
    return {alias: origins[name] for alias, name in given.items() if name in origins}
