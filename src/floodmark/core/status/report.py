"""The status of a pipeline and its tables, as ``floodmark status`` reports it, in plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from floodmark.core.status.progress import Standing
from floodmark.core.status.under_way import StopStatus, SwitchStatus

NEVER_RUN = "never_run"


@dataclass(frozen=True, slots=True)
class LastWindow:
    """The rows that the last published window changed in a table."""

    window_id: int
    read_rows: int
    inserted_rows: int
    updated_rows: int
    deleted_rows: int
    quarantined_rows: int


@dataclass(frozen=True, slots=True)
class ChangeTableStatus:
    """The change table of a capture instance."""

    instance: str
    rows: int | None
    """None where the login may not see it."""
    size_bytes: int | None
    """None where the login may not see it."""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """A table of a pipeline. Values that only the source knows are None or empty unless the source was asked."""

    source: str
    target: str
    watermark: str | None = None
    watermark_at: datetime | None = None
    """The commit time of the watermark, local time of the source."""
    consistent: bool = False
    verdict: str = NEVER_RUN
    cause: str = ""
    windows: int = 0
    """Published windows; the rows below are of all of them."""
    read_rows: int = 0
    inserted_rows: int = 0
    updated_rows: int = 0
    deleted_rows: int = 0
    quarantined_rows: int = 0
    advanced_at: datetime | None = None
    lag_seconds: float | None = None
    """The age of the watermark; from the source."""
    state: str = NEVER_RUN
    """never_run, first_load, settling (loaded, and consistent with the others after a window or two) or consistent."""
    hint: str = ""
    verdict_since: datetime | None = None
    verdict_seen_at: datetime | None = None
    transactions_behind: int | None = None
    """In the whole database; from the source."""
    unread_messages: int | None = None
    """The messages of the stream that were not read for the table; from the source."""
    headroom_seconds: float | None = None
    """The time until cleanup passes the watermark; from the source. None also where the login may not see the
    retention."""
    headroom_transactions: int | None = None
    """How many more transactions cleanup may pass before it passes the watermark; from the source. None where positions
    do not count them."""
    last_window: LastWindow | None = None
    standing: str = Standing.FINE.name.lower()
    """fine, attention or incident."""
    reason: str = ""
    """The reason for the standing."""
    load_percent: int | None = None
    load_rows: int | None = None
    drift: tuple[str, ...] = ()
    """Undecided events, in words, with their numbers."""
    change_tables: tuple[ChangeTableStatus, ...] = ()
    """The change tables of the table's capture instances; from the source."""
    switch: SwitchStatus | None = None
    """The approved switch that is under way."""


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """An open alert about the pipeline or its source."""

    kind: str
    subject: str
    table: str | None
    what: str
    do: str
    raised_at: datetime
    times: int


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """A pipeline with its tables."""

    pipeline: str
    unfinished_window_id: int | None
    """The window that the next run finishes."""
    unfinished_state: str | None
    tables: tuple[TableStatus, ...]
    alerts: tuple[AlertStatus, ...] = ()
    standing: str = Standing.FINE.name.lower()
    """The worst of its tables; at least attention while an alert is open, and incident while its runs fail."""
    planned_stop: StopStatus | None = None
    """Of the capture job of its source; None where there is none now, or it was ended early."""
