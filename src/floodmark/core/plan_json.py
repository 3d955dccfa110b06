"""A window's plan as JSON: how the ledger keeps it, so that any later run, on any machine, finishes the same window.

The form is stable: fields are only added, with a default for plans written before. ``window_id``, ``attempt``, ``lane``
and the like are columns of the ledger too; the ledger's columns win.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from floodmark.core.errors import FloodmarkBugError
from floodmark.core.plan import MAIN_LANE, LoadKind, TablePlan, WindowPlan
from floodmark.core.position import Interval, parse_position
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.settings import (
    DEFAULT_LOB_BATCH_BYTES,
    DEFAULT_MAX_READS,
    Deletes,
    NetSource,
    OnFailure,
    Rule,
    TemporalPolicy,
    UnstorablePolicy,
)
from floodmark.core.snapshot import CaptureInstance, InstanceIdentity, MemberMark

if TYPE_CHECKING:
    from floodmark.core.snapshot import CaptureInstance

FORMAT = 1


def plan_to_json(plan: WindowPlan) -> dict[str, Any]:
    """Nothing but dicts, lists, strings, numbers, booleans and None."""
    return {
        "format": FORMAT,
        "window_id": plan.window_id,
        "attempt": plan.attempt,
        "pipeline": plan.pipeline,
        "lane": plan.lane,
        "to_lsn": str(plan.to_lsn),
        "to_lsn_at": plan.to_lsn_at.isoformat() if plan.to_lsn_at else None,
        "tables": [_table_to_json(table) for table in plan.tables],
    }


def plan_from_json(document: Mapping[str, Any]) -> WindowPlan:
    """Raises ValueError for a plan of a later format, KeyError for one that is not a plan."""
    if document["format"] > FORMAT:
        raise ValueError(f"the plan has format {document['format']}, this Floodmark knows {FORMAT}: upgrade it")
    return WindowPlan(
        window_id=document["window_id"],
        pipeline=document["pipeline"],
        to_lsn=parse_position(document["to_lsn"]),
        tables=tuple(_table_from_json(table) for table in document["tables"]),
        attempt=document["attempt"],
        lane=document.get("lane", MAIN_LANE),
        to_lsn_at=datetime.fromisoformat(ended) if (ended := document.get("to_lsn_at")) else None,
    )


def _table_to_json(table: TablePlan) -> dict[str, Any]:
    return {
        "source": _name_to_json(table.source),
        "target": _name_to_json(table.target),
        "kind": table.kind.value,
        "instance": _feed_to_json(table.feed),
        "after_lsn": str(table.interval.after_lsn) if table.interval else None,
        "to_lsn": str(table.interval.to_lsn) if table.interval else None,
        "watermark": str(table.watermark) if table.watermark else None,
        "deletes": table.deletes.value,
        "net": table.net.value,
        "temporal": table.temporal.value,
        "rules": [{"name": rule.name, "sql": rule.sql, "on_failure": rule.on_failure.value} for rule in table.rules],
        "partitions": table.partitions,
        "first_load_chunk_rows": table.first_load_chunk_rows,
        "quiet": table.quiet,
        "first_load_parallel_reads": table.first_load_parallel_reads,
        "max_reads": table.max_reads,
        "is_reload": table.is_reload,
        "keeps_unread": table.keeps_unread,
        "where": table.where,
        "lob_batch_bytes": table.lob_batch_bytes,
        "unstorable": table.unstorable.value,
        "reloads_members": table.reloads_members,
        "ends": [[end.member, end.mark] for end in table.ends],
        "rows_at": table.rows_at.hex() if table.rows_at else None,
    }


def _table_from_json(document: Mapping[str, Any]) -> TablePlan:
    after, to = document["after_lsn"], document["to_lsn"]
    return TablePlan(
        source=_name_from_json(document["source"]),
        target=_name_from_json(document["target"]),
        kind=LoadKind(document["kind"]),
        feed=_instance_from_json(document["instance"]),
        interval=Interval(parse_position(after), parse_position(to)) if after else None,
        watermark=parse_position(document["watermark"]) if document["watermark"] else None,
        deletes=Deletes(document["deletes"]),
        net=NetSource(document["net"]),
        temporal=TemporalPolicy(document["temporal"]),
        rules=tuple(Rule(r["name"], r["sql"], OnFailure(r["on_failure"])) for r in document["rules"]),
        partitions=document["partitions"],
        first_load_chunk_rows=document["first_load_chunk_rows"],
        quiet=document["quiet"],
        first_load_parallel_reads=document.get("first_load_parallel_reads", 4),
        max_reads=document.get("max_reads", DEFAULT_MAX_READS),
        is_reload=document.get("is_reload", False),
        keeps_unread=document.get("keeps_unread", False),
        where=document.get("where", ""),
        lob_batch_bytes=document.get("lob_batch_bytes", DEFAULT_LOB_BATCH_BYTES),
        unstorable=UnstorablePolicy(document.get("unstorable", UnstorablePolicy.QUARANTINE.value)),
        reloads_members=document.get("reloads_members", False),
        ends=tuple(MemberMark(member, mark) for member, mark in document.get("ends", ())),
        rows_at=bytes.fromhex(found) if (found := document.get("rows_at")) else None,
    )


def _instance_to_json(instance: CaptureInstance) -> dict[str, Any]:
    return {
        "name": instance.identity.name,
        "object_id": instance.identity.object_id,
        "created_at": instance.identity.created_at.isoformat(),
        "store_id": instance.identity.store_id,
        "table": {
            "name": _name_to_json(instance.table.name),
            "key": list(instance.table.key),
            "is_partial": instance.table.is_partial,
            "columns": [_column_to_json(column) for column in instance.table.columns],
        },
        "start_lsn": str(instance.start_lsn),
        "supports_net_changes": instance.supports_net_changes,
        "has_command_id": instance.has_command_id,
        "delivers_net": instance.delivers_net,
        "has_members": instance.has_members,
        "member_column": instance.member_column,
    }


def _feed_to_json(feed: CaptureInstance) -> dict[str, Any]:
    if not isinstance(feed, CaptureInstance):
        raise FloodmarkBugError(str(feed.table.name), f"a plan cannot keep a feed of type {type(feed).__name__}.")
    return _instance_to_json(feed)


def _instance_from_json(document: Mapping[str, Any]) -> CaptureInstance:
    table = document["table"]
    return CaptureInstance(
        identity=InstanceIdentity(
            document["name"],
            document["object_id"],
            datetime.fromisoformat(document["created_at"]),
            document.get("store_id", 0),
        ),
        table=SourceTable(
            name=_name_from_json(table["name"]),
            columns=tuple(SourceColumn(**column) for column in table["columns"]),
            key=tuple(table["key"]),
            is_partial=table.get("is_partial", False),
        ),
        start_lsn=parse_position(document["start_lsn"]),
        supports_net_changes=document["supports_net_changes"],
        has_command_id=document["has_command_id"],
        delivers_net=document.get("delivers_net", False),
        # A plan of an earlier version has members only where its rows name them.
        has_members=document.get("has_members", bool(document.get("member_column"))),
        member_column=document.get("member_column", ""),
    )


def _column_to_json(column: SourceColumn) -> dict[str, Any]:
    return {
        "name": column.name,
        "type_name": column.type_name,
        "ordinal": column.ordinal,
        "max_length": column.max_length,
        "precision": column.precision,
        "scale": column.scale,
        "nullable": column.nullable,
        "is_computed": column.is_computed,
        "collation": column.collation,
    }


def _name_to_json(name: TableName) -> list[str]:
    # Not "schema.name": a name may hold a dot.
    return [name.schema, name.name]


def _name_from_json(parts: list[str]) -> TableName:
    return TableName(parts[0], parts[1])
