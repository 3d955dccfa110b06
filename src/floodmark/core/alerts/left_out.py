"""Alerts about what is left out: tables out of the windows of their pipeline, and columns out of their table."""

from __future__ import annotations

from floodmark.core.alert import Alert
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import Validity, Verdict, WiderInstance
from floodmark.core.source.verdicts import LEFT_OUT

TABLE_LEFT_OUT = "table_left_out"
COLUMNS_LEFT_OUT = "columns_left_out"
_MEANS = "No new rows arrive in the table until the cause is removed. The other tables of the pipeline go on."


def left_out(pipeline: str, validity: Validity) -> Alert:
    """Return the alert that a table is left out of windows: one for each table and verdict.

    validity: its verdict is one of ``LEFT_OUT``.
    """
    return Alert(
        kind=TABLE_LEFT_OUT,
        subject=pipeline,
        table=validity.table,
        what=f"{validity.verdict.value}: {validity.cause}",
        means=_MEANS,
        do=validity.hint or f"Run `floodmark status {pipeline} --live`.",
        event_key=_event_key(pipeline, validity.table, validity.verdict),
    )


def columns_left_out(pipeline: str, table: TableName, instance: str, wider: WiderInstance) -> Alert:
    """Return the alert that a table is read from an instance with fewer columns: one for each table."""
    return Alert(
        kind=COLUMNS_LEFT_OUT,
        subject=pipeline,
        table=table,
        what=wider.describe(instance),
        means="These columns do not reach the target, or no longer. All others do.",
        do=wider.advise(instance),
        event_key=columns_left_out_key(pipeline, table),
    )


def columns_left_out_key(pipeline: str, table: TableName) -> str:
    """Return the event key of the alert about the columns of a table."""
    return f"{COLUMNS_LEFT_OUT}:{pipeline}:{table}"


def left_out_keys(pipeline: str, table: TableName) -> tuple[str, ...]:
    """Return the event keys of all alerts that a table can have."""
    return tuple(_event_key(pipeline, table, verdict) for verdict in sorted(LEFT_OUT, key=lambda each: each.value))


def _event_key(pipeline: str, table: TableName, verdict: Verdict) -> str:
    return f"{TABLE_LEFT_OUT}:{pipeline}:{table}:{verdict.value}"
