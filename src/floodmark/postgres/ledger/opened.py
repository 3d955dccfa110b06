"""The window of a row of the ledger."""

from __future__ import annotations

import dataclasses

import psycopg
from psycopg.rows import DictRow, dict_row

from floodmark.core.errors import OperatorError
from floodmark.core.window.plan import WindowState
from floodmark.core.window.plan_json import plan_from_json
from floodmark.postgres.sql import read_sql
from floodmark.sync.ports.ledger import OpenedWindow


def one_window(session: psycopg.Connection, statement: str, window_id: int) -> OpenedWindow:
    """Return the window of a statement of ``postgres/sql``. Raises OperatorError where the ledger does not have it."""
    row = session.cursor(row_factory=dict_row).execute(read_sql(statement), {"window_id": window_id}).fetchone()
    if row is None:
        raise OperatorError(f"window {window_id}", "the ledger has no such window.")
    return opened_window(row)


def opened_window(row: DictRow) -> OpenedWindow:
    """Return the window of a row of ``floodmark.windows``."""
    plan = dataclasses.replace(
        plan_from_json(row["plan"]),
        window_id=row["window_id"],
        attempt=row["attempt"],
        lane=row["lane"],
        to_lsn_at=row["to_lsn_at"],
    )
    state = WindowState(row["state"])
    return OpenedWindow(plan, state, is_refused=state is WindowState.MERGED and row["checked_at"] is not None)
