"""The ledger's records that are read together: the status of a pipeline, its alerts, its retention."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import DictRow, dict_row

from floodmark.core.alert import Alert
from floodmark.core.plan import TablePlan
from floodmark.core.position import read_position
from floodmark.core.schema import TableName
from floodmark.core.settings import DriftClass
from floodmark.core.shapes import Difference
from floodmark.core.snapshot import Verdict
from floodmark.core.status import LastWindow, QuarantinedKey, RuleCount, TableGap, TableHistory, TableWindow
from floodmark.core.upkeep import PACE_SECONDS, Mark, pace_of
from floodmark.postgres.ledger.drift import event_of, switch_of
from floodmark.postgres.ledger.schema import ensure_schema, opened_window
from floodmark.postgres.session import open_transaction, query, source_arrays, source_parameters
from floodmark.postgres.sql import read_sql
from floodmark.sync.alerts import Delivery, OpenAlert, OwedAlert
from floodmark.sync.records import RecordedHold, RecordedTable, StatusRecord

if TYPE_CHECKING:
    from floodmark.postgres.session import WarehouseConnection

# --------------------------------------------------------------------------------------------------------------------
# ``PostgresAlertLedger``: the alerts in the ledger, table ``floodmark.alerts``.
#
# A delivery is one transaction that holds the alert's row. Two processes that find the same event at the same time
# queue up, and the second one finds that the first has notified all channels. A process that dies during a delivery
# leaves the row unchanged, so a message may be sent twice but is never lost.


class PostgresAlertLedger:
    """The alerts and their messages. It creates the ledger's tables when it is the first to need them."""

    def __init__(self, connection: WarehouseConnection) -> None:
        self._at = connection

    @contextmanager
    def raised(self, alert: Alert) -> Iterator[Delivery]:
        """Record the alert and, at the end of the block, the channels that were notified."""
        ensure_schema(self._at)
        with open_transaction(self._at, alert.subject) as session:
            row = query(session, "raise_alert", **_parameters(alert))[0]
            delivery = Delivery(alert, row["raised_at"], notified=set(row["raised_to"]))
            yield delivery
            query(session, "record_alert_raised", alert_id=row["alert_id"], channels=sorted(delivery.notified))

    @contextmanager
    def ended(self, event_key: str, outcome: str) -> Iterator[Delivery | None]:
        """Record the end of an alert. Yields None where there is no such alert, where it has parts left, or where all
        channels have been notified of its end."""
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
        """Remove the part from every open alert that has it. Return the event keys of the alerts without a part."""
        ensure_schema(self._at)
        with open_transaction(self._at, subject) as session:
            rows = query(session, "end_alert_part", kind=kind, subject=subject, part=part)
        return [row["event_key"] for row in rows if row["left"] == 0]

    def drop_parts(self, event_key: str) -> None:
        """Let an open alert end although parts of its event last."""
        with open_transaction(self._at, event_key) as session:
            query(session, "drop_alert_parts", event_key=event_key)

    def list_parts(self, kind: str, subject: str) -> Sequence[str]:
        """Return the open parts of all alerts of a kind about a subject."""
        ensure_schema(self._at)
        with open_transaction(self._at, subject) as session:
            rows = query(session, "list_alert_parts", kind=kind, subject=subject)
        return [row["part"] for row in rows]

    def list_open(self) -> Sequence[OpenAlert]:
        """Return the open alerts, the oldest first."""
        ensure_schema(self._at)
        with open_transaction(self._at) as session:
            rows = query(session, "list_open_alerts")
        return [open_alert_of(row) for row in rows]

    def list_owed(self, channels: Sequence[str]) -> Sequence[OwedAlert]:
        """Return the alerts of whose beginning or end one of these channels has still to be notified."""
        ensure_schema(self._at)
        with open_transaction(self._at) as session:
            rows = query(session, "list_owed_alerts", channels=list(channels))
        return [OwedAlert(row["alert_id"], row["event_key"], row["subject"]) for row in rows]

    @contextmanager
    def owed(self, alert_id: int) -> Iterator[Delivery | None]:
        """Deliver one of ``list_owed`` in its current state. Yields None where another process delivers it."""
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


# --------------------------------------------------------------------------------------------------------------------
# ``PostgresStatusLedger``: the ledger's records about a pipeline, read in one transaction.


_LAST_WINDOW = (
    "window_id",
    "read_rows",
    "inserted_rows",
    "updated_rows",
    "deleted_rows",
    "quarantined_rows",
    "margin_seconds",
)
_COPIED = (
    "watermark_at",
    "consistent",
    "verdict_since",
    "verdict_seen_at",
    "windows",
    "read_rows",
    "inserted_rows",
    "updated_rows",
    "deleted_rows",
    "quarantined_rows",
    "advanced_at",
)


class PostgresStatusLedger:
    """The records about a pipeline, read in one transaction."""

    def __init__(self, connection: WarehouseConnection) -> None:
        self._at = connection

    def read_status(self, pipeline: str, source: str) -> StatusRecord:
        """Return the record of a pipeline. source: the name of its source in the configuration."""
        if self._exists():
            # The ledger may be of an earlier version of Floodmark that no run has upgraded yet.
            ensure_schema(self._at)
        with open_transaction(self._at, pipeline) as session:
            tables = _read_rows(session, "window_tables", "read_status", pipeline=pipeline)
            alerts = _read_rows(session, "alerts", "list_open_alerts")
            holds = _read_rows(session, "drift_holds", "list_drift_holds", pipeline=pipeline)
            events = _read_rows(session, "drift_events", "list_drift_events", source=source, event_id=None)
            waiting = _read_rows(session, "quarantine", "count_waiting", pipeline=pipeline)
            switches = _read_rows(session, "instance_switches", "list_switches", source=source, switch_id=None)
        return StatusRecord(
            tables={_table_name(row): _recorded_table(row) for row in tables},
            # In reverse order, so that the oldest hold of a table wins.
            holds={_table_name(row): _recorded_hold(row) for row in reversed(holds)},
            alerts=[open_alert_of(row) for row in alerts],
            events=[event_of(row) for row in events],
            switches=[switch_of(row) for row in switches],
            waiting={_table_name(row): row["rows"] for row in waiting},
        )

    def read_history(self, pipeline: str, table: TableName, at_most: int) -> TableHistory:
        """Return the last windows, gaps and quarantined rules of a table, without its drift. Empty without a ledger."""
        if not self._exists():
            return TableHistory()
        ensure_schema(self._at)
        wanted = {
            "pipeline": pipeline,
            "source_schema": table.schema,
            "source_name": table.name,
            "at_most": at_most,
        }
        with open_transaction(self._at, pipeline) as session:
            windows = _read_rows(session, "window_tables", "list_table_windows", **wanted)
            gaps = _read_rows(session, "gaps", "list_table_gaps", **wanted)
            rules = _list_quarantined(session, pipeline)
        return TableHistory(
            tuple(TableWindow(**row) for row in reversed(windows)),
            tuple(TableGap(**row) for row in gaps),
            tuple(each for each in rules if each.table == str(table)),
        )

    def list_plans(self, pipeline: str) -> Mapping[TableName, TablePlan]:
        """Return the plan of each table in its newest window that was merged. Empty without a ledger."""
        with open_transaction(self._at, pipeline) as session:
            rows = _read_rows(session, "windows", "list_newest_plans", pipeline=pipeline)
        return {table.source: table for row in rows for table in opened_window(row).plan.tables}

    def list_quarantined(self, pipeline: str) -> list[RuleCount]:
        """Return what is in quarantine, the newest first. Empty without a ledger."""
        with open_transaction(self._at, pipeline) as session:
            return _list_quarantined(session, pipeline)

    def count_waiting(self, pipeline: str, table: TableName) -> int:
        """Return how many rows of a table wait in quarantine. A row that broke several rules waits once."""
        with open_transaction(self._at, pipeline) as session:
            rows = _read_rows(session, "quarantine", "count_waiting", pipeline=pipeline)
        return next((row["rows"] for row in rows if _table_name(row) == table), 0)

    def list_quarantined_keys(
        self, pipeline: str, table: TableName, rule: str | None, *, skipped: int, at_most: int
    ) -> list[QuarantinedKey]:
        """Return rows of a table in quarantine, the newest first. rule: only of this one. Empty without a ledger."""
        named = {"pipeline": pipeline, "rule": rule, "skipped": skipped, "at_most": at_most, **source_parameters(table)}
        with open_transaction(self._at, pipeline) as session:
            rows = _read_rows(session, "quarantine", "list_quarantined_keys", **named)
        return [
            QuarantinedKey(
                row["rule"],
                tuple(row["key"]),
                str(read_position(bytes(row["lsn"]))),
                row["window_id"],
                row["at"].astimezone(UTC),
            )
            for row in rows
        ]

    def _exists(self) -> bool:
        with open_transaction(self._at) as session:
            exists = session.execute("SELECT to_regclass('floodmark.window_tables') IS NOT NULL").fetchone()
        return exists is not None and bool(exists[0])


def _read_rows(session: psycopg.Connection, table: str, statement: str, **parameters: Any) -> list[DictRow]:
    """Return the rows of a statement; none where the ledger's table does not exist yet."""
    exists = session.execute("SELECT to_regclass(%s) IS NOT NULL", [f"floodmark.{table}"]).fetchone()
    if exists is None or not exists[0]:
        return []
    return session.cursor(row_factory=dict_row).execute(read_sql(statement), parameters).fetchall()


def _list_quarantined(session: psycopg.Connection, pipeline: str) -> list[RuleCount]:
    rows = _read_rows(session, "quarantine", "list_quarantined", pipeline=pipeline)
    return [RuleCount(str(_table_name(row)), row["rule"], row["rows"], row["last_at"].astimezone(UTC)) for row in rows]


def _table_name(row: DictRow) -> TableName:
    return TableName(row["source_schema"], row["source_name"])


def _recorded_table(row: DictRow) -> RecordedTable:
    last = None
    if row["last_window_id"] is not None:
        last = LastWindow(**{name: row[f"last_{name}"] for name in _LAST_WINDOW})
    return RecordedTable(
        watermark=read_position(bytes(row["watermark"])) if row["watermark"] else None,
        verdict=Verdict(row["verdict"]) if row["verdict"] else None,
        cause=row["cause"] or "",
        hint=row["hint"] or "",
        last_window=last,
        verdict_watermark=read_position(bytes(row["verdict_watermark"])) if row["verdict_watermark"] else None,
        verdict_newest=read_position(bytes(row["verdict_newest"])) if row["verdict_newest"] else None,
        **{name: row[name] for name in _COPIED},
    )


def _recorded_hold(row: DictRow) -> RecordedHold:
    difference = Difference(
        DriftClass(row["kind"]), row["column_name"], row["before"], row["after"], row["is_captured"]
    )
    return RecordedHold(difference, row["event_id"], row["held_at"].astimezone(UTC))


# --------------------------------------------------------------------------------------------------------------------
# ``PostgresMarkLedger``: the watermarks that a source's cleanup must not pass, with their paces.


class PostgresMarkLedger:
    """The watermarks that cleanup must not pass. It creates the ledger's tables when it is the first to need them."""

    def __init__(self, connection: WarehouseConnection) -> None:
        self._at = connection

    def read_marks(self, pipelines: Collection[str]) -> Sequence[Mark]:
        """Return the mark of every table that has a watermark or is being loaded."""
        ensure_schema(self._at)
        with open_transaction(self._at) as session:
            cursor = session.cursor(row_factory=dict_row)
            named = {"pipelines": list(pipelines), "over_seconds": PACE_SECONDS}
            rows = cursor.execute(read_sql("read_marks"), named).fetchall()
        return [_mark(row) for row in rows]

    def record_sizes(self, pipeline: str, sizes: Mapping[TableName, tuple[int | None, int | None]]) -> None:
        """Record rows and bytes of the change tables in the newest window of each table, for its history."""
        measured = [sizes[table] for table in sorted(sizes)]
        with open_transaction(self._at, pipeline) as session:
            query(
                session,
                "record_sizes",
                pipeline=pipeline,
                **source_arrays(sizes),
                change_rows=[rows for rows, _ in measured],
                change_bytes=[size_bytes for _, size_bytes in measured],
            )


def _mark(row: DictRow) -> Mark:
    return Mark(
        pipeline=row["pipeline"],
        table=TableName(row["source_schema"], row["source_name"]),
        instance=row["instance_name"],
        position=read_position(row["lsn"]),
        at=row["at"],
        pace=pace_of(row["at"], row["reference_at"], row["elapsed_seconds"]) if row["at"] else 0.0,
    )
