"""The conversion of drift events to rows of ``floodmark.drift_events`` and back. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from floodmark.core.drift.ddl import DdlEntry, Explained
from floodmark.core.drift.shapes import Difference
from floodmark.core.policies import DriftClass, DriftPolicy
from floodmark.core.positions import parse_position
from floodmark.core.schema import TableName
from floodmark.core.source.feed import InstanceIdentity
from floodmark.sync.ports.drift import DriftEvent, DriftFinding


def event_parameters(
    source: str, table: TableName, identity: InstanceIdentity, finding: DriftFinding
) -> dict[str, Any]:
    """Return the parameters of ``insert_drift_event.sql``."""
    difference, entries = finding.explained.difference, finding.explained.entries
    return {
        "source": source,
        "source_schema": table.schema,
        "source_name": table.name,
        "instance_name": identity.name,
        "instance_object_id": identity.object_id,
        "instance_created_at": identity.created_at,
        "kind": difference.kind.value,
        "column_name": difference.column,
        "before": difference.before,
        "after": difference.after,
        "is_captured": difference.is_captured,
        "obstacle": difference.obstacle,
        "ddl": Jsonb(entries_to_json(entries)),
        "ddl_lsn": entries[-1].lsn.value if entries else None,
        "proposal": finding.proposal,
        "policies": Jsonb({pipeline: policy.value for pipeline, policy in finding.policies.items()}),
    }


def entries_to_json(entries: Sequence[DdlEntry]) -> list[dict[str, str]]:
    """Return entries of the DDL history as a JSON document."""
    return [{"lsn": str(entry.lsn), "at": entry.at.isoformat(), "text": entry.text} for entry in entries]


def event_of(row: Mapping[str, Any]) -> DriftEvent:
    """Return the event of a row of ``list_drift_events.sql``."""
    return DriftEvent(
        event_id=row["event_id"],
        source=row["source"],
        table=TableName(row["source_schema"], row["source_name"]),
        identity=InstanceIdentity(row["instance_name"], row["instance_object_id"], row["instance_created_at"]),
        explained=Explained(difference_of(row), tuple(map(_entry, row["ddl"]))),
        policies={pipeline: DriftPolicy(policy) for pipeline, policy in row["policies"].items()},
        found_at=row["found_at"],
        held=tuple(row["held"]),
        proposal=row["proposal"],
        approved_at=row["approved_at"],
        approved_by=row["approved_by"],
        reported=row["told_at"] is not None,
        is_rejected=row["is_rejected"],
    )


def difference_of(row: Mapping[str, Any]) -> Difference:
    """Return the difference of a row of drift events."""
    return Difference(
        DriftClass(row["kind"]), row["column_name"], row["before"], row["after"], row["is_captured"], row["obstacle"]
    )


def _entry(document: Mapping[str, str]) -> DdlEntry:
    return DdlEntry(parse_position(document["lsn"]), datetime.fromisoformat(document["at"]), document["text"])
