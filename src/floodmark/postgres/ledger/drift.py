"""``PostgresDriftLedger``: the known shapes of the tracked tables, the drift events, and the holds.

An event is written in the transaction that replaces the known shape by the new one, under the lock of that row. When a
run and the drift DAG find the same change at the same time, one of them writes the event and the other one does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from floodmark.core.drift.ddl import DdlEntry, is_behind
from floodmark.core.drift.shape_json import shape_from_json, shape_to_json
from floodmark.core.errors import OperatorError
from floodmark.core.policies import GONE, DriftPolicy
from floodmark.core.schema import TableName
from floodmark.core.source.feed import InstanceIdentity
from floodmark.postgres.ledger.drift_rows import difference_of, entries_to_json, event_of, event_parameters
from floodmark.postgres.ledger.readers import list_readers
from floodmark.postgres.ledger.schema import ensure_schema
from floodmark.postgres.session import Reachable, open_transaction
from floodmark.postgres.statements import query
from floodmark.sync.ports.drift import DriftEvent, DriftFinding, Hold, KnownTable

_BACK = "the source: the table is back"


class PostgresDriftLedger:
    """``sync.ports.drift.DriftLedger``. It holds no session: each method is one transaction of its own."""

    def __init__(self, connection: Reachable) -> None:
        self._at = connection

    def read_known(self, source: str) -> Mapping[tuple[TableName, str], KnownTable]:
        ensure_schema(self._at)
        with open_transaction(self._at, source) as session:
            rows = query(session, "read_known_shapes", source=source)
        return {(_table(row), row["instance_name"]): _known(row) for row in rows}

    def record(
        self,
        source: str,
        table: TableName,
        known: KnownTable | None,
        seen: KnownTable,
        findings: Sequence[DriftFinding],
    ) -> bool:
        named = {"source": source, **_names(table), "instance_name": seen.shape.identity.name}
        with open_transaction(self._at, str(table)) as session:
            if not _replace(session, known, seen, named):
                return False
            for finding in findings:
                _insert_event(session, source, table, seen.shape.identity, finding)
        return True

    def record_unchanged(self, source: str, table: TableName, instance: str) -> None:
        with open_transaction(self._at, str(table)) as session:
            query(session, "record_shape_unchanged", source=source, **_names(table), instance_name=instance)

    def list_readers(self, instance: InstanceIdentity) -> Sequence[str]:
        return list_readers(self._at, instance)

    def explain_later(self, source: str, identity: InstanceIdentity, entry: DdlEntry) -> bool:
        with open_transaction(self._at, identity.name) as session:
            rows = query(
                session,
                "list_unexplained_events",
                source=source,
                instance_name=identity.name,
                instance_object_id=identity.object_id,
                instance_created_at=identity.created_at,
            )
            found = [row["event_id"] for row in rows if is_behind(entry, difference_of(row))]
            for event_id in found:
                ddl = Jsonb(entries_to_json([entry]))
                query(session, "explain_drift_event", event_id=event_id, ddl=ddl, ddl_lsn=entry.lsn.value)
        return bool(found)

    def mark_reported(self, event_id: int) -> None:
        with open_transaction(self._at, f"drift event {event_id}") as session:
            query(session, "mark_drift_reported", event_id=event_id)

    def list_events(self, source: str | None = None) -> Sequence[DriftEvent]:
        ensure_schema(self._at)
        with open_transaction(self._at) as session:
            return [event_of(row) for row in query(session, "list_drift_events", source=source, event_id=None)]

    def list_holds(self, pipeline: str) -> Mapping[TableName, Hold]:
        ensure_schema(self._at)
        holds: dict[TableName, Hold] = {}
        with open_transaction(self._at, pipeline) as session:
            for row in query(session, "list_drift_holds", pipeline=pipeline):
                if _table(row) not in holds:
                    event = _one_event(session, row["event_id"])
                    holds[_table(row)] = Hold(pipeline, _table(row), event, row["held_at"])
        return holds

    def approve(self, event_id: int, by: str) -> DriftEvent:
        ensure_schema(self._at)
        with open_transaction(self._at, f"drift event {event_id}") as session:
            event = _one_event(session, event_id)
            query(session, "release_event_holds", event_id=event_id, by=by)
            query(session, "approve_drift_event", event_id=event_id, by=by)
        return event

    def reject(self, event_id: int, by: str) -> None:
        with open_transaction(self._at, f"drift event {event_id}") as session:
            if query(session, "reject_drift_event", event_id=event_id, by=by):
                query(session, "release_event_holds", event_id=event_id, by=by)

    def replace_proposal(self, event_id: int, proposal: str) -> None:
        with open_transaction(self._at, f"drift event {event_id}") as session:
            query(session, "replace_proposal", event_id=event_id, proposal=proposal)

    def release(self, pipeline: str, table: TableName, by: str) -> Sequence[int]:
        ensure_schema(self._at)
        with open_transaction(self._at, str(table)) as session:
            rows = query(session, "release_table_holds", pipeline=pipeline, **_names(table), by=by)
            ended = [row["event_id"] for row in rows if not _one_event(session, row["event_id"]).held]
            for event_id in ended:
                query(session, "approve_drift_event", event_id=event_id, by=by)
        if not rows:
            raise OperatorError(str(table), f"pipeline {pipeline} does not hold it.", "Run: floodmark drift list.")
        return ended

    def end_absence(self, source: str, table: TableName, instance: str) -> Sequence[int]:
        kinds = [kind.value for kind in GONE]
        with open_transaction(self._at, str(table)) as session:
            rows = query(
                session, "end_drift_absence", source=source, **_names(table), instance_name=instance, kinds=kinds
            )
            for row in rows:
                query(session, "release_event_holds", event_id=row["event_id"], by=_BACK)
                query(session, "approve_drift_event", event_id=row["event_id"], by=_BACK)
        return [row["event_id"] for row in rows]


def _replace(session: psycopg.Connection, known: KnownTable | None, seen: KnownTable, named: dict[str, Any]) -> bool:
    values = {"shape": Jsonb(shape_to_json(seen.shape)), "absent": seen.absent}
    if known is None and query(session, "insert_known_shape", **named, **values):
        return True
    rows = query(session, "lock_known_shape", **named)
    if not rows or _known(rows[0]) != known:
        return False
    query(session, "update_known_shape", **named, **values)
    return True


def _insert_event(
    session: psycopg.Connection, source: str, table: TableName, identity: InstanceIdentity, finding: DriftFinding
) -> None:
    parameters = event_parameters(source, table, identity, finding)
    event_id = query(session, "insert_drift_event", **parameters)[0]["event_id"]
    for pipeline, policy in sorted(finding.policies.items()):
        if policy is DriftPolicy.HOLD:
            named = _names(finding.spelled.get(pipeline, table))
            query(session, "insert_drift_hold", event_id=event_id, pipeline=pipeline, **named)


def _one_event(session: psycopg.Connection, event_id: int) -> DriftEvent:
    rows = query(session, "list_drift_events", source=None, event_id=event_id)
    if not rows:
        raise OperatorError(f"drift event {event_id}", "the ledger has no such event.", "Run: floodmark drift list.")
    return event_of(rows[0])


def _known(row: DictRow) -> KnownTable:
    return KnownTable(shape_from_json(row["shape"]), row["absent"], row.get("age_seconds"))


def _table(row: DictRow) -> TableName:
    return TableName(row["source_schema"], row["source_name"])


def _names(table: TableName) -> dict[str, str]:
    return {"source_schema": table.schema, "source_name": table.name}
