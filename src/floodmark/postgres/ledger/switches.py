"""``PostgresSwitchLedger``: switches of capture instances, and the step that switches a pipeline.

That step is a compare-and-set on the pipeline's table, under the lock that the opening of a window takes as well: no
window of the old instance is open then, and none can be opened afterwards (see ``ledger.ledger``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import DictRow

from floodmark.core.drift.switch import InstanceSwitch, PlannedSwitch, SwitchedPipeline, SwitchState
from floodmark.core.errors import OperatorError
from floodmark.core.position import Position
from floodmark.core.positions import parse_position, read_position
from floodmark.core.schema import TableName
from floodmark.core.source.feed import InstanceIdentity
from floodmark.core.window.plan import WindowState
from floodmark.postgres.ledger.readers import list_readers
from floodmark.postgres.ledger.schema import ensure_schema
from floodmark.postgres.session import Reachable, open_session, open_transaction
from floodmark.postgres.statements import query

# Separates Floodmark's advisory locks from those of other programs. Arbitrary, and fixed.
_STEPS_LOCK = 0x46_4C_53_57


class PostgresSwitchLedger:
    """``sync.ports.switch.SwitchLedger``. It holds no session: each method is one transaction of its own."""

    def __init__(self, connection: Reachable) -> None:
        self._at = connection

    def open_switch(self, planned: PlannedSwitch, event_ids: Sequence[int], by: str) -> InstanceSwitch:
        ensure_schema(self._at)
        with open_transaction(self._at, str(planned.table)) as session:
            try:
                row = query(
                    session,
                    "open_switch",
                    source=planned.source,
                    **_names(planned.table),
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
                    f"Let it finish (floodmark drift switch {planned.source}), then approve this one.",
                ) from None
            for event_id in event_ids:
                query(session, "release_event_holds", event_id=event_id, by=by)
                query(session, "approve_drift_event", event_id=event_id, by=by)
            return switch_of(query(session, "list_switches", source=planned.source, switch_id=row["switch_id"])[0])

    def list_switches(self, source: str) -> Sequence[InstanceSwitch]:
        ensure_schema(self._at)
        with open_transaction(self._at, source) as session:
            return [switch_of(row) for row in query(session, "list_switches", source=source, switch_id=None)]

    @contextmanager
    def hold_switches(self, source: str) -> Iterator[bool]:
        """Hold a session's advisory lock, which the server releases as soon as this process ends."""
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

    def mark_made(self, switch_id: int, new: InstanceIdentity | None) -> None:
        state = SwitchState.APPROVED if new is None else SwitchState.MADE
        with open_transaction(self._at, f"switch {switch_id}") as session:
            query(session, "mark_switch_made", switch_id=switch_id, state=state.value, **_identity("new", new))

    def switch_pipeline(self, switch: InstanceSwitch, pipeline: str, table: TableName, start: Position) -> bool:
        named = {"pipeline": pipeline, **_names(table)}
        with open_transaction(self._at, str(switch.table)) as session:
            # In a separate statement: the next one sees every window that was opened before the lock was free.
            query(session, "lock_table", **named)
            switched = query(
                session, "switch_pipeline", switch_id=switch.switch_id, **named, least_watermark=start.previous().value
            )
        return bool(switched)

    def record_backfill(self, switch_id: int, pipeline: str, window_id: int) -> None:
        with open_transaction(self._at, f"switch {switch_id}") as session:
            query(session, "record_backfill", switch_id=switch_id, pipeline=pipeline, window_id=window_id)

    def list_readers(self, instance: InstanceIdentity) -> Sequence[str]:
        return list_readers(self._at, instance)

    def finish(self, switch_id: int, *, given_up: bool = False) -> None:
        state = SwitchState.GIVEN_UP if given_up else SwitchState.DONE
        with open_transaction(self._at, f"switch {switch_id}") as session:
            query(session, "finish_switch", switch_id=switch_id, state=state.value)
            if given_up:
                query(session, "reopen_drift_events", switch_id=switch_id)


def switch_of(row: DictRow) -> InstanceSwitch:
    """Return the switch of a row of ``list_switches``."""
    new = None
    if row["new_object_id"] is not None:
        new = InstanceIdentity(row["new_name"], row["new_object_id"], row["new_created_at"])
    return InstanceSwitch(
        switch_id=row["switch_id"],
        source=row["source"],
        table=TableName(row["source_schema"], row["source_name"]),
        old=InstanceIdentity(row["old_name"], row["old_object_id"], row["old_created_at"]),
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


def _names(table: TableName) -> dict[str, str]:
    return {"source_schema": table.schema, "source_name": table.name}


def _identity(prefix: str, identity: InstanceIdentity | None) -> dict[str, Any]:
    return {
        f"{prefix}_name": identity.name if identity else None,
        f"{prefix}_object_id": identity.object_id if identity else None,
        f"{prefix}_created_at": identity.created_at if identity else None,
    }
