"""Alerts about how long a source keeps its changes, and how much space they take."""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.core.alert import Alert
from floodmark.core.upkeep.change_table import ChangeTableSize, format_bytes, largest_first
from floodmark.core.upkeep.retention import RetentionStep

LOW = "retention_low"
EXHAUSTED = "retention_exhausted"
CHANGE_TABLES_LARGE = "change_tables_large"
_NAMED_TABLES = 3
_MEANS = "When cleanup has passed a watermark, unread changes have been deleted, and the table has to be reloaded."


def retention_low(source: str, step: RetentionStep) -> Alert:
    """Return the alert that the usual retention leaves too little time; the reason contains what was done."""
    usual, now = step.usual, step.forecast
    gained = now is not None and usual is not None and now.headroom_seconds > usual.headroom_seconds
    given = f" That leaves {now.left}." if now is not None and gained and not now.is_endless else ""
    pipeline = usual.mark.pipeline if usual is not None else ""
    return Alert(
        kind=LOW,
        subject=source,
        what=f"The headroom is below `headroom_limit`. With the usual retention {usual}. Now {step.reason}{given}",
        means=_MEANS,
        do=f"Make the pipeline run: `{f'floodmark status {pipeline}'.strip()}` shows its state and the reason.",
        event_key=f"{LOW}:{source}",
        where=f"source {source}",
    )


def retention_exhausted(source: str, step: RetentionStep) -> Alert:
    """Return the alert that policy and ceiling leave nothing more that Floodmark could do."""
    return Alert(
        kind=EXHAUSTED,
        subject=source,
        what=f"Whatever the policy does, {step.forecast}; {step.reason}",
        means=_MEANS,
        do="Make the pipeline run, or give it time: a higher ceiling, or on_low: hold_cleanup, under sources."
        f"{source}.retention in pipelines.yaml.",
        event_key=f"{EXHAUSTED}:{source}",
        where=f"source {source}",
    )


def change_tables_large(source: str, large: Sequence[ChangeTableSize], limit_bytes: int) -> Alert:
    """Return the alert that change tables are too large; one per source.

    large: the tables beyond the limit, at least one. A further table that grows beyond it needs no other action.
    """
    named = ", ".join(f"that of {size.instance} has {size}" for size in largest_first(large)[:_NAMED_TABLES])
    more = f", and {len(large) - _NAMED_TABLES} more are too large" if len(large) > _NAMED_TABLES else ""
    return Alert(
        kind=CHANGE_TABLES_LARGE,
        subject=source,
        what=f"Change tables are larger than {format_bytes(limit_bytes)}: {named}{more}.",
        means="They take space in the database of the source, make its backups longer, and cleanup slower.",
        do="Check whether the cleanup job works (its history in SQL Server Agent), and whether a raised retention was "
        f"not restored. Otherwise set a shorter keep, or a cleanup_margin, under sources.{source}.retention in "
        "pipelines.yaml.",
        event_key=f"{CHANGE_TABLES_LARGE}:{source}",
        where=f"source {source}",
    )
