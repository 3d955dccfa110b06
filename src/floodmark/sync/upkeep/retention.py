"""One run of the retention guard: read the status, bring the cleanup job to the wanted state, and raise alerts.

Nothing is recorded between runs, so a run may be missed, killed or repeated. Where the ledger cannot be reached, the
run fails before it changes anything: without the watermarks it is not known what may be deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from floodmark.core.alerts.retention import (
    CHANGE_TABLES_LARGE,
    EXHAUSTED,
    LOW,
    change_tables_large,
    retention_exhausted,
    retention_low,
)
from floodmark.core.errors import CdcNotEnabledError
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.upkeep.capture_job import on_replica
from floodmark.core.upkeep.change_table import ChangeTableSize, largest_first, table_sizes
from floodmark.core.upkeep.retention import (
    Mark,
    RetentionSettings,
    RetentionStatus,
    RetentionStep,
    decide_retention,
)
from floodmark.sync.alerts import Alerts

_LOG = logging.getLogger(__name__)
_THRESHOLD = 5000
"""The server's own default."""


class RetentionControl(Protocol):
    """The cleanup of one source. It needs db_owner there. Every method raises from ``core.errors``."""

    def read_retention(self) -> RetentionStatus:
        """Return the current status of the cleanup job and the change tables."""

    def read_time_at(self, position: Position) -> datetime | None:
        """Return the commit time of the newest log entry up to a position, or else of the oldest; None without any."""

    def change_cleanup(self, changes: Mapping[str, int]) -> None:
        """Change parameters of sys.sp_cdc_change_job, by name. The job uses them in its next run."""

    def read_low_water_mark(self, watermark: Position, margin_seconds: float) -> Position | None:
        """Return the newest log entry that is older than the watermark by the margin; None where there is none."""

    def clean_instance(self, instance: str, low_water_mark: Position, threshold: int) -> bool:
        """Delete the changes below the mark. Return False where some rows are left for the next time."""


class MarkLedger(Protocol):
    """The watermarks in the ledger."""

    def read_marks(self, pipelines: Collection[str]) -> Sequence[Mark]:
        """Return the mark of every table that has a watermark or is being loaded."""

    def record_sizes(self, pipeline: str, sizes: Mapping[TableName, tuple[int | None, int | None]]) -> None:
        """Record rows and bytes of the change tables in the newest window of each table."""


def keep_retention(
    source: str,
    settings: RetentionSettings,
    readers: Mapping[str, Collection[TableName]],
    *,
    control: RetentionControl,
    ledger: MarkLedger,
    alerts: Alerts,
) -> RetentionStep:
    """Bring the retention to the wanted value. Return what was done and why.

    readers: the tables by pipeline, as configured. A table that was removed from the configuration holds nothing back.
    """
    marks = [mark for mark in ledger.read_marks(readers) if mark.table in readers[mark.pipeline]]
    # Of a position that was imported, the ledger may have no time.
    marks = [mark if mark.at else replace(mark, at=control.read_time_at(mark.lsn)) for mark in marks]
    status = control.read_retention()
    if status.is_replica:
        raise on_replica(source, "retention")
    if status.retention_minutes is None:
        raise CdcNotEnabledError(
            source,
            "the database has no cleanup job, so that its changes are kept forever.",
            "Create it: sys.sp_cdc_add_job @job_type = N'cleanup'.",
        )
    for size in largest_first(status.sizes):
        _LOG.info("Source %s, change table of %s: %s", source, size.instance, size)
    for pipeline, tables in readers.items():
        if sizes := table_sizes(tables, status.sizes):
            ledger.record_sizes(pipeline, sizes)
    _report_sizes(source, settings.change_table_limit_bytes, status.sizes, alerts)
    step = decide_retention(status, settings, marks)
    _LOG.info("Source %s: %s", source, step.forecast or "no table has a watermark that could be lost")
    _LOG.info("Source %s: %s", source, step.reason)
    _change(step, control)
    _report(source, step, alerts)
    if settings.margin_seconds is not None and marks:
        _clean(source, settings, marks, status, control)
    return step


def _change(step: RetentionStep, control: RetentionControl) -> None:
    wanted = {"retention": step.retention_minutes, "threshold": step.threshold}
    changes = {name: value for name, value in wanted.items() if value is not None}
    if changes:
        control.change_cleanup(changes)
        changed = ", ".join(
            f"{name} {value}{' minutes' if name == 'retention' else ''}" for name, value in changes.items()
        )
        _LOG.info("Changed (sys.sp_cdc_change_job): %s", changed)


def _report(source: str, step: RetentionStep, alerts: Alerts) -> None:
    if step.low:
        alerts.raise_alert(retention_low(source, step))
    else:
        alerts.end_alerts(LOW, source, step.reason[:1].upper() + step.reason[1:])
    if step.exhausted:
        alerts.raise_alert(retention_exhausted(source, step))
    else:
        alerts.end_alerts(EXHAUSTED, source)


def _report_sizes(source: str, limit_bytes: int | None, sizes: Sequence[ChangeTableSize], alerts: Alerts) -> None:
    large = [
        size
        for size in sizes
        if limit_bytes is not None and size.size_bytes is not None and size.size_bytes > limit_bytes
    ]
    if limit_bytes is not None and large:
        alerts.raise_alert(change_tables_large(source, large, limit_bytes))
    else:
        alerts.end_alerts(CHANGE_TABLES_LARGE, source)


def _clean(
    source: str,
    settings: RetentionSettings,
    marks: Sequence[Mark],
    status: RetentionStatus,
    control: RetentionControl,
) -> None:
    """Clean up the instances that our pipelines read, none beyond the slowest watermark of all."""
    assert settings.margin_seconds is not None  # noqa: S101  (checked by keep_retention)
    slowest = min(mark.lsn for mark in marks)
    low_water_mark = control.read_low_water_mark(slowest, settings.margin_seconds)
    if low_water_mark is None:
        _LOG.info("Source %s: no change is older than the slowest watermark %s by the margin.", source, slowest)
        return
    threshold = settings.threshold or status.threshold or _THRESHOLD
    read = {mark.instance.casefold() for mark in marks}
    for size in status.sizes:
        if size.instance.casefold() in read and size.low_end is not None and size.low_end < low_water_mark:
            done = control.clean_instance(size.instance, low_water_mark, threshold)
            rest = "" if done else "; some rows were locked and are left for the next run"
            _LOG.info("Change table of %s: cleaned up to %s%s.", size.instance, low_water_mark, rest)
