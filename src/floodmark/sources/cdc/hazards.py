"""Hazards of a database for ``core.doctor.hazards``, read over the caller's connection with the login's rights."""

from __future__ import annotations

from collections.abc import Iterable

from floodmark.core.doctor.hazards import Hazards
from floodmark.core.drift.types import TypeChange, classify_type
from floodmark.core.policies import TemporalPolicy
from floodmark.core.schema import SourceColumn, TableName
from floodmark.sources.sqlserver.driver import SourceSession
from floodmark.sources.sqlserver.modules import list_truncating
from floodmark.sources.sqlserver.sql_files import read_sql
from floodmark.sources.sqlserver.tables import Row, read_source_column

_ROWVERSION = "timestamp"
_SETS_WITHOUT_CDC = 3
_SETS_OF_OWNER = 6


def read_hazards(session: SourceSession) -> Hazards:
    """Return the hazards that the login may see."""
    sets = session.fetch_sets(read_sql("read_hazards"))
    accelerated, has_schema, has_user, is_user_owner, sees_policies = sets[0][0]
    return Hazards(
        accelerated_recovery=None if accelerated is None else bool(accelerated),
        has_schema=bool(has_schema),
        has_user=bool(has_user),
        is_user_owner=None if is_user_owner is None else bool(is_user_owner),
        sees_policies=bool(sees_policies),
        partitioned=frozenset(TableName(*row) for row in sets[1]),
        truncating=list_truncating(sets[2]),
        switchable={row[0]: bool(row[1]) for row in sets[5]} if len(sets) == _SETS_OF_OWNER else None,
        unlike=build_unlike(sets[3], sets[4]) if len(sets) > _SETS_WITHOUT_CDC else {},
    )


def build_unlike(instances: Iterable[Row], columns: Iterable[Row]) -> dict[TableName, tuple[str, ...]]:
    """Return the columns of each table whose type differs from the change table's; a type that was widened does not.

    instances: the rows of sys.sp_cdc_help_change_data_capture. columns: those of tracked tables and of change tables.
    """
    columns_of: dict[int, dict[str, SourceColumn]] = {}
    for object_id, *row in columns:
        columns_of.setdefault(object_id, {})[row[0]] = read_source_column(tuple(row))
    found: dict[TableName, tuple[str, ...]] = {}
    for schema, table, instance, change_table_id, source_id, *_ in instances:
        name = TableName(schema, table)
        captured = columns_of.get(change_table_id, {})
        unlike = [
            f"{column.name}: {column.declared_type}, in {instance} still {before.declared_type}"
            for column in columns_of.get(source_id, {}).values()
            if (before := captured.get(column.name)) is not None and _may_not_fit(before, column)
        ]
        if unlike:
            found[name] = (*found.get(name, ()), *unlike)
    return found


def _may_not_fit(before: SourceColumn, after: SourceColumn) -> bool:
    # A rowversion is binary(8) in a change table.
    return after.type_name != _ROWVERSION and classify_type(before, after, TemporalPolicy.TEXT) not in (
        None,
        TypeChange.WIDENED,
    )
