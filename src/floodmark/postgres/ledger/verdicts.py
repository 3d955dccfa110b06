"""``VerdictRecords``: the verdicts on tables, and the tables that a load refuses. Part of ``PostgresLedger``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb

from floodmark.core.lsn import Lsn
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import Validity, Verdict
from floodmark.core.source.verdicts import LEFT_OUT
from floodmark.core.window.plan import WindowPlan
from floodmark.core.window.plan_json import plan_to_json
from floodmark.postgres.ledger.loads import fence
from floodmark.postgres.session import Reachable, open_transaction
from floodmark.postgres.sql import read_sql


class VerdictRecords:
    """The part of ``PostgresLedger`` for verdicts. It holds no session: each method is one transaction of its own."""

    _at: Reachable

    def record_verdicts(self, pipeline: str, validities: Sequence[Validity]) -> None:
        with open_transaction(self._at, pipeline) as session:
            _record(session, pipeline, validities)

    def refuse_tables(self, plan: WindowPlan, refused: Sequence[Validity]) -> WindowPlan | None:
        out = {validity.table for validity in refused}
        kept = tuple(table for table in plan.tables if table.source not in out)
        with open_transaction(self._at, f"window {plan.window_id}") as session:
            fence(session, plan)
            _record(session, plan.pipeline, refused)
            if not kept:
                return None
            left = dataclasses.replace(plan, tables=kept)
            _query(session, "store_plan", window_id=plan.window_id, plan=Jsonb(plan_to_json(left)))
            for name in out:
                _query(session, "leave_out_table", window_id=plan.window_id, **_source(name))
        return left

    def list_stopped(self, pipeline: str) -> Sequence[Validity]:
        with open_transaction(self._at, pipeline) as session:
            rows = _query(session, "list_stopped", pipeline=pipeline, stops=[verdict.value for verdict in LEFT_OUT])
        return [
            Validity(
                TableName(row["source_schema"], row["source_name"]),
                Verdict(row["verdict"]),
                row["cause"],
                row["hint"],
                _lsn(row["watermark"]),
                _lsn(row["min_lsn"]),
                _lsn(row["max_lsn"]),
            )
            for row in rows
        ]


def _record(session: psycopg.Connection, pipeline: str, validities: Sequence[Validity]) -> None:
    for validity in sorted(validities, key=lambda validity: validity.table):
        _query(
            session,
            "record_verdict",
            pipeline=pipeline,
            **_source(validity.table),
            verdict=validity.verdict.value,
            cause=validity.cause,
            hint=validity.hint,
            watermark=_bytes(validity.watermark),
            min_lsn=_bytes(validity.min_lsn),
            max_lsn=_bytes(validity.max_lsn),
        )


def _query(session: psycopg.Connection, statement: str, **parameters: Any) -> list[DictRow]:
    cursor = session.cursor(row_factory=dict_row).execute(read_sql(statement), parameters)
    return cursor.fetchall() if cursor.description else []


def _source(name: TableName) -> dict[str, str]:
    return {"source_schema": name.schema, "source_name": name.name}


def _bytes(lsn: Lsn | None) -> bytes | None:
    return lsn.value if lsn else None


def _lsn(value: bytes | None) -> Lsn | None:
    return None if value is None else Lsn(bytes(value))
