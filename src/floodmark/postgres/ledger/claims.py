"""The claim of tables whose watermarks are to move: their rows are locked, and nothing else moves them.

All runs lock tables in the same order, that of ``TableName``, so that two runs queue up instead of deadlocking. What
follows the locks is asked once for all tables.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import psycopg

from floodmark.core.errors import ConfigError, WatermarkConflictError, WindowBusyError
from floodmark.core.position import Position
from floodmark.core.positions import read_position
from floodmark.core.schema import TableName
from floodmark.core.source.feed import InstanceIdentity
from floodmark.core.window.lane import is_load_lane
from floodmark.core.window.plan import TablePlan
from floodmark.postgres.statements import query, source_arrays, source_parameters


def claim_table(session: psycopg.Connection, pipeline: str, table: TablePlan) -> None:
    """Lock the table's row, which may be new, and check that its watermark is still the one of the plan."""
    named = {"pipeline": pipeline, **source_parameters(table.source)}
    target = {"target_schema": table.target.schema, "target_name": table.target.name}
    try:
        with session.transaction():
            query(session, "register_table", **named, **target)
    except psycopg.errors.UniqueViolation:
        # Of two runs that register the same table at once, one may get this error for the target instead.
        if not any(row.items() >= target.items() for row in query(session, "lock_table", **named)):
            raise _target_taken(pipeline, table, query(session, "find_target", **target)) from None
    row = query(session, "lock_table", **named)[0]
    if row["watermark"] != (table.watermark.value if table.watermark else None):
        raise WatermarkConflictError(
            str(table.source),
            f"its watermark is {describe_watermark(row['watermark'])}, not {table.watermark or 'unset'}.",
            "Another run moved it; run again.",
        )
    if (known := TableName(row["target_schema"], row["target_name"])) != table.target:
        raise ConfigError(
            str(table.source),
            f"its target was {known} and is now {table.target}.",
            "Restore the name; or rename the target in the warehouse too, then: "
            f"floodmark rename-target {pipeline} {table.source}.",
        )


def _target_taken(pipeline: str, table: TablePlan, holders: Sequence[Mapping[str, object]]) -> ConfigError:
    """Return the error that names the table whose target it is, and the way out."""
    subject, what = str(table.source), f"another table already uses the target {table.target}"
    if not holders:  # It was released meanwhile.
        return ConfigError(subject, f"{what}.", "Run again, or choose another target.")
    (holder,) = holders
    source = TableName(str(holder["source_schema"]), str(holder["source_name"]))
    if holder["pipeline"] == pipeline:
        return ConfigError(subject, f"{what}: {source} of the same pipeline.", "Choose another target.")
    hint, former = "Choose another target.", holder["pipeline"]
    if source == table.source:
        hint += f" If {former} is the former name of this pipeline: floodmark rename {former} {pipeline}."
    return ConfigError(subject, f"{what}: {source} of pipeline {former}.", hint)


def lock_watermarks(session: psycopg.Connection, pipeline: str, watermarks: Mapping[TableName, Position]) -> None:
    """Lock the rows of tables. Raises WatermarkConflictError where a watermark is not the given one."""
    rows = query(session, "lock_tables", pipeline=pipeline, **source_arrays(watermarks))
    found = {TableName(row["source_schema"], row["source_name"]): row["watermark"] for row in rows}
    for source, watermark in sorted(watermarks.items()):
        if found.get(source) != watermark.value:
            raise WatermarkConflictError(
                str(source), f"its watermark is no longer {watermark}.", "Another run moved it; run again."
            )


def refuse_left_instances(
    session: psycopg.Connection, pipeline: str, instances: Mapping[TableName, InstanceIdentity]
) -> None:
    """Raise WatermarkConflictError if the pipeline has switched away from one of the instances. The tables' rows are
    locked."""
    left = {
        InstanceIdentity(row["old_name"], row["old_object_id"], row["old_created_at"]): row["new_name"]
        for row in query(session, "list_left_instances", pipeline=pipeline)
    }
    for source, identity in sorted(instances.items()):
        if identity in left:
            raise WatermarkConflictError(
                str(source),
                f"it is read from capture instance {left[identity]} now, not {identity.name}.",
                "The pipeline switched meanwhile; run again.",
            )


def refuse_other_lanes(session: psycopg.Connection, pipeline: str, lane: str, sources: Collection[TableName]) -> None:
    """Raise WindowBusyError if another lane moves the watermark of one of the tables. Their rows are locked.

    Of two windows that move one watermark, the second to finish would fail.
    """
    for row in query(session, "list_other_lanes", pipeline=pipeline, lane=lane):
        source = TableName(row["source_schema"], row["source_name"])
        if source in sources:
            where = f" on lane {row['lane']}" if row["lane"] else ""
            raise WindowBusyError(
                str(source),
                f"window {row['window_id']}{where} is unfinished and holds the table.",
                "It is retried automatically; the table is free when that window has been published.",
            )


def refuse_loads(session: psycopg.Connection, pipeline: str, lane: str, sources: Collection[TableName]) -> None:
    """Raise WatermarkConflictError if one of the tables is being reloaded, also if that began after the replay was
    planned."""
    for row in query(session, "list_other_lanes", pipeline=pipeline, lane=lane):
        source = TableName(row["source_schema"], row["source_name"])
        if source in sources and is_load_lane(row["lane"]):
            raise WatermarkConflictError(str(source), f"window {row['window_id']} is reloading it.", "Run again.")


def describe_watermark(value: bytes | None) -> str:
    """Return a watermark of the ledger for a message."""
    return str(read_position(bytes(value))) if value else "unset"
