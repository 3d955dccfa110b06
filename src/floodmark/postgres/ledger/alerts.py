"""``PostgresAlertLedger``: the alerts in the ledger, table ``floodmark.alerts``.

A delivery is one transaction that holds the alert's row. Two processes that find the same event at the same time queue
up, and the second one finds that the first has notified all channels. A process that dies during a delivery leaves the
row unchanged, so a message may be sent twice but is never lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import DictRow

from floodmark.core.alert import Alert
from floodmark.core.schema import TableName
from floodmark.postgres.ledger.schema import ensure_schema
from floodmark.postgres.session import Reachable, open_transaction
from floodmark.postgres.statements import query
from floodmark.sync.alerts import Delivery, OpenAlert, OwedAlert


class PostgresAlertLedger:
    """``sync.alerts.AlertLedger``. It creates the ledger's tables when it is the first to need them."""

    def __init__(self, connection: Reachable) -> None:
        self._at = connection

    @contextmanager
    def raised(self, alert: Alert) -> Iterator[Delivery]:
        ensure_schema(self._at)
        with open_transaction(self._at, alert.subject) as session:
            row = query(session, "raise_alert", **_parameters(alert))[0]
            delivery = Delivery(alert, row["raised_at"], notified=set(row["raised_to"]))
            yield delivery
            query(session, "record_alert_raised", alert_id=row["alert_id"], channels=sorted(delivery.notified))

    @contextmanager
    def ended(self, event_key: str, outcome: str) -> Iterator[Delivery | None]:
        ensure_schema(self._at)
        with open_transaction(self._at, event_key) as session:
            rows = query(session, "end_alert", event_key=event_key, outcome=outcome)
            if not rows:
                yield None
                return
            delivery = _delivery(rows[0])
            yield delivery
            _record(session, rows[0], delivery)

    def end_part(self, kind: str, subject: str, part: str) -> Sequence[str]:
        ensure_schema(self._at)
        with open_transaction(self._at, subject) as session:
            rows = query(session, "end_alert_part", kind=kind, subject=subject, part=part)
        return [row["event_key"] for row in rows if row["left"] == 0]

    def list_parts(self, kind: str, subject: str) -> Sequence[str]:
        """Return the open parts of all alerts of a kind about a subject."""
        ensure_schema(self._at)
        with open_transaction(self._at, subject) as session:
            rows = query(session, "list_alert_parts", kind=kind, subject=subject)
        return [row["part"] for row in rows]

    def list_open(self) -> Sequence[OpenAlert]:
        ensure_schema(self._at)
        with open_transaction(self._at) as session:
            rows = query(session, "list_open_alerts")
        return [open_alert_of(row) for row in rows]

    def list_owed(self, channels: Sequence[str]) -> Sequence[OwedAlert]:
        ensure_schema(self._at)
        with open_transaction(self._at) as session:
            rows = query(session, "list_owed_alerts", channels=list(channels))
        return [OwedAlert(row["alert_id"], row["event_key"], row["subject"]) for row in rows]

    @contextmanager
    def owed(self, alert_id: int) -> Iterator[Delivery | None]:
        with open_transaction(self._at) as session:
            rows = query(session, "lock_alert", alert_id=alert_id)
            if not rows:
                yield None
                return
            delivery = _delivery(rows[0])
            yield delivery
            _record(session, rows[0], delivery)


def open_alert_of(row: DictRow) -> OpenAlert:
    """Return the alert of a row of ``list_open_alerts.sql``."""
    return OpenAlert(_alert(row), row["raised_at"], row["seen_at"], row["times"])


def _delivery(row: DictRow) -> Delivery:
    """Return the delivery of an alert in its recorded state."""
    if row["ended_at"] is None:
        return Delivery(_alert(row), row["raised_at"], notified=set(row["raised_to"]))
    return Delivery(
        _alert(row),
        row["raised_at"],
        row["ended_at"],
        frozenset(row["raised_to"]),
        set(row["ended_to"]),
        row["outcome"],
    )


def _record(session: psycopg.Connection, row: DictRow, delivery: Delivery) -> None:
    statement = "record_alert_raised" if row["ended_at"] is None else "record_alert_ended"
    query(session, statement, alert_id=row["alert_id"], channels=sorted(delivery.notified))


def _parameters(alert: Alert) -> dict[str, Any]:
    return {
        "event_key": alert.event_key,
        "kind": alert.kind,
        "subject": alert.subject,
        "source_schema": alert.table.schema if alert.table else None,
        "source_name": alert.table.name if alert.table else None,
        "parts": [alert.part] if alert.part else [],
        "what": alert.what,
        "place": alert.where,
        "since": alert.since,
        "means": alert.means,
        "advice": alert.do,
    }


def _alert(row: DictRow) -> Alert:
    table = TableName(row["source_schema"], row["source_name"]) if row["source_name"] is not None else None
    return Alert(
        kind=row["kind"],
        subject=row["subject"],
        table=table,
        what=row["what"],
        where=row["place"],
        since=row["since"],
        means=row["means"],
        do=row["advice"],
        event_key=row["event_key"],
    )
