"""``PostgresStatusLedger``: the ledger's records about a pipeline, read in one transaction."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row

from floodmark.core.drift.shapes import Difference
from floodmark.core.policies import DriftClass
from floodmark.core.positions import read_position
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import Verdict
from floodmark.core.status.history import QuarantinedKey, RuleCount, TableGap, TableHistory, TableWindow
from floodmark.core.status.report import LastWindow
from floodmark.postgres.ledger.alerts import open_alert_of
from floodmark.postgres.ledger.drift_rows import event_of
from floodmark.postgres.ledger.schema import ensure_schema
from floodmark.postgres.ledger.switches import switch_of
from floodmark.postgres.session import Reachable, open_transaction
from floodmark.postgres.sql import read_sql
from floodmark.postgres.statements import source_parameters
from floodmark.sync.ports.status import RecordedHold, RecordedTable, StatusRecord

_LAST_WINDOW = ("window_id", "read_rows", "inserted_rows", "updated_rows", "deleted_rows", "quarantined_rows")
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
    """``sync.ports.status.StatusLedger``."""

    def __init__(self, connection: Reachable) -> None:
        self._at = connection

    def read_status(self, pipeline: str, source: str) -> StatusRecord:
        if self._exists():
            # The ledger may be of an earlier version of Floodmark that no run has upgraded yet.
            ensure_schema(self._at)
        with open_transaction(self._at, pipeline) as session:
            tables = _read_rows(session, "window_tables", "read_status", pipeline=pipeline)
            alerts = _read_rows(session, "alerts", "list_open_alerts")
            holds = _read_rows(session, "drift_holds", "list_drift_holds", pipeline=pipeline)
            events = _read_rows(session, "drift_events", "list_drift_events", source=source, event_id=None)
            switches = _read_rows(session, "instance_switches", "list_switches", source=source, switch_id=None)
        return StatusRecord(
            tables={_table_name(row): _recorded_table(row) for row in tables},
            # In reverse order, so that the oldest hold of a table wins.
            holds={_table_name(row): _recorded_hold(row) for row in reversed(holds)},
            alerts=[open_alert_of(row) for row in alerts],
            events=[event_of(row) for row in events],
            switches=[switch_of(row) for row in switches],
        )

    def read_history(self, pipeline: str, table: TableName, at_most: int) -> TableHistory:
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

    def list_quarantined(self, pipeline: str) -> list[RuleCount]:
        with open_transaction(self._at, pipeline) as session:
            return _list_quarantined(session, pipeline)

    def list_quarantined_keys(
        self, pipeline: str, table: TableName, rule: str | None, *, skipped: int, at_most: int
    ) -> list[QuarantinedKey]:
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
        **{name: row[name] for name in _COPIED},
    )


def _recorded_hold(row: DictRow) -> RecordedHold:
    difference = Difference(
        DriftClass(row["kind"]), row["column_name"], row["before"], row["after"], row["is_captured"]
    )
    return RecordedHold(difference, row["event_id"], row["held_at"].astimezone(UTC))
