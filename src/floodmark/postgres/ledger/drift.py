"""The ledger's records about schema drift: shapes, events, holds, and switches of capture instances.

An event is written in the transaction that replaces the known shape by the new one, under the lock of that row. When
a run and the drift DAG find the same change at the same time, one of them writes the event and the other one does
not. The step that switches a pipeline is a compare-and-set on the pipeline's table, under the lock that the opening of
a window takes as well: no window of the old instance is open then, and none can be opened afterwards (see
``ledger.ledger``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from floodmark.core.drift import InstanceSwitch, PlannedSwitch, SwitchedPipeline, SwitchState
from floodmark.core.errors import OperatorError, command_line
from floodmark.core.plan import WindowState
from floodmark.core.position import Position, parse_position, read_position
from floodmark.core.schema import TableName
from floodmark.core.settings import GONE, DriftClass, DriftPolicy
from floodmark.core.shapes import DdlEntry, Difference, Explained, is_behind, shape_from_json, shape_to_json
from floodmark.core.snapshot import FeedIdentity
from floodmark.postgres.ledger.schema import ensure_schema
from floodmark.postgres.session import open_session, open_transaction, query, source_parameters
from floodmark.sync.records import DriftEvent, DriftFinding, Hold, KnownTable

if TYPE_CHECKING:
    from floodmark.postgres.session import WarehouseConnection

_BACK = "the source: the table is back"
# Separates Floodmark's advisory locks from those of other programs. Arbitrary, and fixed.
_STEPS_LOCK = 0x46_4C_53_57


class PostgresDriftLedger:
    """The shapes of tables, the drift events, the holds and the switches. It holds no session: each method is a
    transaction."""

    def __init__(self, connection: WarehouseConnection) -> None:
        self._at = connection

    def read_known(self, source: str) -> Mapping[tuple[TableName, str], KnownTable]:
        """Return the recorded tables, by table (see ``core.shapes``) and name of the capture instance."""
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
        """Replace the known shape by the seen one, record the events, and hold the tables that they hold.

        Return False, and write nothing, where another process has recorded a new shape meanwhile.
        """
        named = {"source": source, **source_parameters(table), "instance_name": seen.shape.identity.name}
        with open_transaction(self._at, str(table)) as session:
            if not _replace(session, known, seen, named):
                return False
            for finding in findings:
                _insert_event(session, source, table, seen.shape.identity, finding)
        return True

    def record_unchanged(self, source: str, table: TableName, instance: str) -> None:
        """Record that the details of a table were read, and that it is as it was known."""
        with open_transaction(self._at, str(table)) as session:
            query(session, "record_shape_unchanged", source=source, **source_parameters(table), instance_name=instance)

    def list_readers(self, instance: FeedIdentity) -> Sequence[str]:
        """Return the pipelines whose watermarks belong to the instance, or to one of another source with its identity.

        Pipelines that are no longer in a configuration are included.
        """
        with open_transaction(self._at, instance.name) as session:
            return [row["pipeline"] for row in query(session, "list_readers", **_identity("instance", instance))]

    def explain_later(self, source: str, identity: FeedIdentity, entry: DdlEntry) -> bool:
        """Add the statement to events that were found before the history had it. Return False where there is none."""
        with open_transaction(self._at, identity.name) as session:
            rows = query(session, "list_unexplained_events", source=source, **_identity("instance", identity))
            found = [row["event_id"] for row in rows if is_behind(entry, _difference(row))]
            for event_id in found:
                query(
                    session,
                    "explain_drift_event",
                    event_id=event_id,
                    ddl=_to_json([entry]),
                    ddl_lsn=entry.position.value,
                )
        return bool(found)

    def mark_reported(self, event_id: int) -> None:
        """Record that the alert about an event has been raised."""
        with open_transaction(self._at, f"drift event {event_id}") as session:
            query(session, "mark_drift_reported", event_id=event_id)

    def list_events(self, source: str | None = None) -> Sequence[DriftEvent]:
        """Return the events, the oldest first."""
        ensure_schema(self._at)
        with open_transaction(self._at) as session:
            return [event_of(row) for row in query(session, "list_drift_events", source=source, event_id=None)]

    def list_holds(self, pipeline: str) -> Mapping[TableName, Hold]:
        """Return the held tables; of a table with several holds, the oldest hold."""
        ensure_schema(self._at)
        holds: dict[TableName, Hold] = {}
        with open_transaction(self._at, pipeline) as session:
            for row in query(session, "list_drift_holds", pipeline=pipeline):
                if _table(row) not in holds:
                    event = _one_event(session, row["event_id"])
                    holds[_table(row)] = Hold(pipeline, _table(row), event, row["held_at"])
        return holds

    def approve(self, event_id: int, by: str) -> DriftEvent:
        """Approve an event and end its holds. Raises OperatorError for an unknown event."""
        ensure_schema(self._at)
        with open_transaction(self._at, f"drift event {event_id}") as session:
            event = _one_event(session, event_id)
            query(session, "release_event_holds", event_id=event_id, by=by)
            query(session, "approve_drift_event", event_id=event_id, by=by)
        return event

    def reject(self, event_id: int, by: str) -> None:
        """Reject the proposal of an event. Nothing is written where the event is already decided."""
        with open_transaction(self._at, f"drift event {event_id}") as session:
            if query(session, "reject_drift_event", event_id=event_id, by=by):
                query(session, "release_event_holds", event_id=event_id, by=by)

    def replace_proposal(self, event_id: int, proposal: str) -> None:
        """Replace the proposal of an undecided event."""
        with open_transaction(self._at, f"drift event {event_id}") as session:
            query(session, "replace_proposal", event_id=event_id, proposal=proposal)

    def release(self, pipeline: str, table: TableName, by: str) -> Sequence[int]:
        """End every hold on a table of a pipeline. Events without another hold count as approved; return them."""
        ensure_schema(self._at)
        with open_transaction(self._at, str(table)) as session:
            rows = query(session, "release_table_holds", pipeline=pipeline, **source_parameters(table), by=by)
            ended = [row["event_id"] for row in rows if not _one_event(session, row["event_id"]).held]
            for event_id in ended:
                query(session, "approve_drift_event", event_id=event_id, by=by)
        if not rows:
            raise OperatorError(str(table), f"pipeline {pipeline} does not hold it.", "Run: floodmark drift list.")
        return ended

    def end_absence(self, source: str, table: TableName, instance: str) -> Sequence[int]:
        """End the holds of the events that removed a table which exists again. Return these events."""
        kinds = [kind.value for kind in GONE]
        with open_transaction(self._at, str(table)) as session:
            rows = query(
                session,
                "end_drift_absence",
                source=source,
                **source_parameters(table),
                instance_name=instance,
                kinds=kinds,
            )
            for row in rows:
                query(session, "release_event_holds", event_id=row["event_id"], by=_BACK)
                query(session, "approve_drift_event", event_id=row["event_id"], by=_BACK)
        return [row["event_id"] for row in rows]

    # -- switches of capture instances -------------------------------------------------------------------------------

    def open_switch(self, planned: PlannedSwitch, event_ids: Sequence[int], by: str) -> InstanceSwitch:
        """Record a switch and approve its events. Raises OperatorError where a switch of the table is in progress."""
        ensure_schema(self._at)
        with open_transaction(self._at, str(planned.table)) as session:
            try:
                row = query(
                    session,
                    "open_switch",
                    source=planned.source,
                    **source_parameters(planned.table),
                    **_identity("old", planned.old),
                    new_name=planned.name,
                    added=list(planned.added),
                    columns=list(planned.columns),
                    enabling=planned.enabling,
                    drops=planned.drops,
                    since_lsn=planned.since.value if planned.since else None,
                    by=by,
                )[0]
            except psycopg.errors.UniqueViolation:
                raise OperatorError(
                    str(planned.table),
                    "another switch of its capture instance is in progress.",
                    f"Let it finish ({command_line('drift', 'switch', planned.source)}), then approve this one.",
                ) from None
            for event_id in event_ids:
                query(session, "release_event_holds", event_id=event_id, by=by)
                query(session, "approve_drift_event", event_id=event_id, by=by)
            return switch_of(query(session, "list_switches", source=planned.source, switch_id=row["switch_id"])[0])

    def list_switches(self, source: str) -> Sequence[InstanceSwitch]:
        """Return the switches in progress, the oldest first."""
        ensure_schema(self._at)
        with open_transaction(self._at, source) as session:
            return [switch_of(row) for row in query(session, "list_switches", source=source, switch_id=None)]

    @contextmanager
    def hold_switches(self, source: str) -> Iterator[bool]:
        """Keep other processes from taking steps during the block. Yields False where another process does so."""
        with open_session(self._at, source) as session:
            row = session.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", (_STEPS_LOCK, source)).fetchone()
            if row is None or not row[0]:
                yield False
                return
            try:
                yield True
            finally:
                with contextlib.suppress(psycopg.Error):
                    session.execute("SELECT pg_advisory_unlock(%s, hashtext(%s))", (_STEPS_LOCK, source))

    def mark_switch_made(self, switch_id: int, new: FeedIdentity | None) -> None:
        """Record the second instance. new: None where it no longer exists."""
        state = SwitchState.APPROVED if new is None else SwitchState.MADE
        with open_transaction(self._at, f"switch {switch_id}") as session:
            query(session, "mark_switch_made", switch_id=switch_id, state=state.value, **_identity("new", new))

    def switch_pipeline(self, switch: InstanceSwitch, pipeline: str, table: TableName, start: Position) -> bool:
        """Make the pipeline's next window of the table read the second instance. table: as the pipeline spells it.

        Return False, and write nothing, while a window with the table is unfinished, or while its watermark is below
        ``start``.
        """
        named = {"pipeline": pipeline, **source_parameters(table)}
        with open_transaction(self._at, str(switch.table)) as session:
            # In a separate statement: the next one sees every window that was opened before the lock was free.
            query(session, "lock_table", **named)
            switched = query(
                session, "switch_pipeline", switch_id=switch.switch_id, **named, least_watermark=start.previous().value
            )
        return bool(switched)

    def record_backfill(self, switch_id: int, pipeline: str, window_id: int) -> None:
        """Record the window that loads the new columns for a pipeline."""
        with open_transaction(self._at, f"switch {switch_id}") as session:
            query(session, "record_backfill", switch_id=switch_id, pipeline=pipeline, window_id=window_id)

    def finish_switch(self, switch_id: int, *, given_up: bool = False) -> None:
        """End a switch. given_up: its events become undecided again."""
        state = SwitchState.GIVEN_UP if given_up else SwitchState.DONE
        with open_transaction(self._at, f"switch {switch_id}") as session:
            query(session, "finish_switch", switch_id=switch_id, state=state.value)
            if given_up:
                query(session, "reopen_drift_events", switch_id=switch_id)


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
    session: psycopg.Connection, source: str, table: TableName, identity: FeedIdentity, finding: DriftFinding
) -> None:
    difference, entries = finding.explained.difference, finding.explained.entries
    (row,) = query(
        session,
        "insert_drift_event",
        source=source,
        **source_parameters(table),
        **_identity("instance", identity),
        kind=difference.kind.value,
        column_name=difference.column,
        before=difference.before,
        after=difference.after,
        is_captured=difference.is_captured,
        obstacle=difference.obstacle,
        ddl=_to_json(entries),
        ddl_lsn=entries[-1].position.value if entries else None,
        proposal=finding.proposal,
        policies=Jsonb({pipeline: policy.value for pipeline, policy in finding.policies.items()}),
    )
    for pipeline, policy in sorted(finding.policies.items()):
        if policy is DriftPolicy.HOLD:
            named = source_parameters(finding.spelled.get(pipeline, table))
            query(session, "insert_drift_hold", event_id=row["event_id"], pipeline=pipeline, **named)


def _one_event(session: psycopg.Connection, event_id: int) -> DriftEvent:
    rows = query(session, "list_drift_events", source=None, event_id=event_id)
    if not rows:
        raise OperatorError(f"drift event {event_id}", "the ledger has no such event.", "Run: floodmark drift list.")
    return event_of(rows[0])


def _to_json(entries: Sequence[DdlEntry]) -> Jsonb:
    return Jsonb([{"lsn": str(entry.position), "at": entry.at.isoformat(), "text": entry.text} for entry in entries])


def event_of(row: Mapping[str, Any]) -> DriftEvent:
    """Return the event of a row of ``list_drift_events.sql``."""
    return DriftEvent(
        event_id=row["event_id"],
        source=row["source"],
        table=_table(row),
        identity=FeedIdentity(row["instance_name"], row["instance_object_id"], row["instance_created_at"]),
        explained=Explained(_difference(row), tuple(map(_entry, row["ddl"]))),
        policies={pipeline: DriftPolicy(policy) for pipeline, policy in row["policies"].items()},
        found_at=row["found_at"],
        held=tuple(row["held"]),
        proposal=row["proposal"],
        approved_at=row["approved_at"],
        approved_by=row["approved_by"],
        reported=row["told_at"] is not None,
        is_rejected=row["is_rejected"],
    )


def _difference(row: Mapping[str, Any]) -> Difference:
    return Difference(
        DriftClass(row["kind"]), row["column_name"], row["before"], row["after"], row["is_captured"], row["obstacle"]
    )


def _entry(document: Mapping[str, str]) -> DdlEntry:
    return DdlEntry(parse_position(document["lsn"]), datetime.fromisoformat(document["at"]), document["text"])


def _known(row: DictRow) -> KnownTable:
    return KnownTable(shape_from_json(row["shape"]), row["absent"], row.get("age_seconds"))


def _table(row: Mapping[str, Any]) -> TableName:
    return TableName(row["source_schema"], row["source_name"])


def switch_of(row: DictRow) -> InstanceSwitch:
    """Return the switch of a row of ``list_switches``."""
    new = None
    if row["new_object_id"] is not None:
        new = FeedIdentity(row["new_name"], row["new_object_id"], row["new_created_at"])
    return InstanceSwitch(
        switch_id=row["switch_id"],
        source=row["source"],
        table=_table(row),
        old=FeedIdentity(row["old_name"], row["old_object_id"], row["old_created_at"]),
        name=row["new_name"],
        added=tuple(row["added"]),
        columns=tuple(row["columns"]),
        enabling=row["enabling"],
        drops=row["drops"],
        since=read_position(row["since_lsn"]) if row["since_lsn"] is not None else None,
        state=SwitchState(row["state"]),
        approved_by=row["approved_by"],
        approved_at=row["approved_at"],
        new=new,
        pipelines=tuple(map(_pipeline, row["pipelines"])),
    )


def _pipeline(document: dict[str, Any]) -> SwitchedPipeline:
    return SwitchedPipeline(
        document["pipeline"],
        parse_position(document["watermark"]),
        document["window_id"],
        WindowState(document["window_state"]) if document["window_state"] else None,
    )


def _identity(prefix: str, identity: FeedIdentity | None) -> dict[str, Any]:
    return {
        f"{prefix}_name": identity.name if identity else None,
        f"{prefix}_object_id": identity.object_id if identity else None,
        f"{prefix}_created_at": identity.created_at if identity else None,
    }
