"""What the person on call is told about how long a source keeps its changes, and how much room they take."""

from __future__ import annotations

from collections.abc import Sequence

from floodmark.core.alert import Alert
from floodmark.core.upkeep.change_table import ChangeTableSize, format_bytes, largest_first
from floodmark.core.upkeep.retention import RetentionStep

LOW = "retention_low"
EXHAUSTED = "retention_exhausted"
CHANGE_TABLES_LARGE = "change_tables_large"
_NAMED_TABLES = 3
_MEANS = (
    "When cleanup has passed a watermark, changes that nobody has read are gone, and the table has to be loaded anew."
)


def retention_low(source: str, step: RetentionStep) -> Alert:
    """By the usual retention there is too little time; what was done about it is in the reason."""
    usual, now = step.usual, step.forecast
    gained = now is not None and usual is not None and now.headroom_seconds > usual.headroom_seconds
    given = f" That leaves {now.left}." if now is not None and gained and not now.is_endless else ""
    pipeline = usual.mark.pipeline if usual is not None else ""
    return Alert(
        kind=LOW,
        subject=source,
        what=f"The headroom is below `headroom_limit`. With the usual retention {usual}. Now {step.reason}{given}",
        means=_MEANS,
        do=f"Bring the pipeline to run: `{f'floodmark status {pipeline}'.strip()}` has its state and the reason.",
        event_key=f"{LOW}:{source}",
        where=f"source {source}",
    )


def retention_exhausted(source: str, step: RetentionStep) -> Alert:
    """Policy and ceiling leave nothing more that Floodmark could do."""
    return Alert(
        kind=EXHAUSTED,
        subject=source,
        what=f"Whatever the policy does, {step.forecast}; {step.reason}",
        means=_MEANS,
        do="Bring the pipeline to run, or give it time: a higher ceiling, or on_low: hold_cleanup, under sources."
        f"{source}.retention in pipelines.yaml.",
        event_key=f"{EXHAUSTED}:{source}",
        where=f"source {source}",
    )


def change_tables_large(source: str, large: Sequence[ChangeTableSize], limit_bytes: int) -> Alert:
    """large: those beyond the limit, at least one. One alert for the source: with the next one that grows beyond the
    limit there is nothing else to do."""
    named = ", ".join(f"that of {size.instance} has {size}" for size in largest_first(large)[:_NAMED_TABLES])
    more = f", and {len(large) - _NAMED_TABLES} more are too large" if len(large) > _NAMED_TABLES else ""
    return Alert(
        kind=CHANGE_TABLES_LARGE,
        subject=source,
        what=f"Change tables are larger than {format_bytes(limit_bytes)}: {named}{more}.",
        means="They take room in the database of the source, make its backups longer, and cleanup slower.",
        do="See whether the cleanup job works (its history in SQL Server Agent), and whether the retention was raised "
        f"and not given back. Else a shorter keep, or a cleanup_margin, under sources.{source}.retention in "
        "pipelines.yaml.",
        event_key=f"{CHANGE_TABLES_LARGE}:{source}",
        where=f"source {source}",
    )
