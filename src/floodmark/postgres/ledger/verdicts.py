"""``VerdictRecords``: the verdicts on tables, and tables that a load or a check refuses. Part of ``PostgresLedger``."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import psycopg
from psycopg.types.json import Jsonb

from floodmark.core.position import Position
from floodmark.core.positions import read_position
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import Validity, Verdict
from floodmark.core.source.verdicts import LEFT_OUT
from floodmark.core.window.plan import WindowPlan, WindowState
from floodmark.core.window.plan_json import plan_to_json
from floodmark.postgres.ledger.loads import fence
from floodmark.postgres.ledger.opened import one_window
from floodmark.postgres.session import Reachable, open_transaction
from floodmark.postgres.statements import query, source_arrays, source_parameters


class VerdictRecords:
    """The part of ``PostgresLedger`` for verdicts. It holds no session: each method is one transaction of its own."""

    _at: Reachable

    def record_verdicts(self, pipeline: str, validities: Sequence[Validity]) -> None:
        with open_transaction(self._at, pipeline) as session:
            _record(session, pipeline, validities)

    def refuse_merged(self, window_id: int, refused: Sequence[Validity]) -> WindowPlan | None:
        with open_transaction(self._at, f"window {window_id}") as session:
            window = one_window(session, "lock_window", window_id)
            if window.state is not WindowState.MERGED:
                return window.plan
            out = {validity.table for validity in refused}
            _record(session, window.plan.pipeline, refused)
            if out.issuperset(table.source for table in window.plan.tables):
                return None
            return _remove_merged(session, window.plan, out)

    def mark_refused(self, window_id: int) -> None:
        with open_transaction(self._at, f"window {window_id}") as session:
            query(session, "mark_refused", window_id=window_id)

    def drop_merged(self, window_id: int) -> None:
        with open_transaction(self._at, f"window {window_id}") as session:
            window = one_window(session, "lock_window", window_id)
            if window.state is WindowState.MERGED:
                _remove_merged(session, window.plan, {table.source for table in window.plan.tables})
                query(session, "drop_merged_window", window_id=window_id)

    def refuse_tables(self, plan: WindowPlan, refused: Sequence[Validity]) -> WindowPlan | None:
        out = {validity.table for validity in refused}
        kept = tuple(table for table in plan.tables if table.source not in out)
        with open_transaction(self._at, f"window {plan.window_id}") as session:
            fence(session, plan)
            _record(session, plan.pipeline, refused)
            if not kept:
                return None
            left = dataclasses.replace(plan, tables=kept)
            query(session, "store_plan", window_id=plan.window_id, plan=Jsonb(plan_to_json(left)))
            for name in out:
                query(session, "leave_out_table", window_id=plan.window_id, **source_parameters(name))
        return left

    def list_stopped(self, pipeline: str) -> Sequence[Validity]:
        with open_transaction(self._at, pipeline) as session:
            rows = query(session, "list_stopped", pipeline=pipeline, stops=[verdict.value for verdict in LEFT_OUT])
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


def _remove_merged(session: psycopg.Connection, plan: WindowPlan, out: Collection[TableName]) -> WindowPlan:
    """Remove tables from a merged window. Return the plan without them.

    The target has the rows of a first load already. The next one must sweep those that the source has deleted since.
    """
    left = dataclasses.replace(plan, tables=tuple(table for table in plan.tables if table.source not in out))
    query(session, "store_plan", window_id=plan.window_id, plan=Jsonb(plan_to_json(left)))
    for name in out:
        query(session, "record_unpublished_load", window_id=plan.window_id, **source_parameters(name))
        query(session, "leave_out_table", window_id=plan.window_id, **source_parameters(name))
    return left


def _record(session: psycopg.Connection, pipeline: str, validities: Sequence[Validity]) -> None:
    """Record verdicts by one statement: every run has one for each table of its pipeline."""
    ordered = sorted(validities, key=lambda validity: validity.table)
    query(
        session,
        "record_verdicts",
        pipeline=pipeline,
        **source_arrays([each.table for each in ordered]),
        verdicts=[each.verdict.value for each in ordered],
        causes=[each.cause for each in ordered],
        hints=[each.hint for each in ordered],
        watermarks=[_bytes(each.watermark) for each in ordered],
        min_lsns=[_bytes(each.min_lsn) for each in ordered],
        max_lsns=[_bytes(each.max_lsn) for each in ordered],
    )


def _bytes(lsn: Position | None) -> bytes | None:
    return lsn.value if lsn else None


def _lsn(value: bytes | None) -> Position | None:
    return None if value is None else read_position(bytes(value))
