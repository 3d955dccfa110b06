"""The policies that a configuration chooses: what becomes of deletes, gaps, drift, rules and fine times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Deletes(Enum):
    """soft: the row stays, marked; hard: the row goes, key and LSN stay in the tombstone table."""

    SOFT = "soft"
    HARD = "hard"


class NetSource(Enum):
    """Who computes net changes: Spark from all changes, or the server's net function."""

    SPARK = "spark"
    SERVER = "server"


class TemporalPolicy(Enum):
    """What becomes of a fraction finer than a microsecond (datetime2(7), time(7), datetimeoffset(7))."""

    TRUNCATE = "truncate"
    TEXT = "text"


class OnFailure(Enum):
    """What a broken rule does: the row goes to quarantine, the run stops, or it is only reported."""

    QUARANTINE = "quarantine"
    STOP = "stop"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class Rule:
    """A declared rule. ``sql`` is a condition over the target's columns, in the warehouse's SQL; NULL passes."""

    name: str
    sql: str
    on_failure: OnFailure


class OnGap(Enum):
    """The table is left out, and the others go on. fail: until somebody has it loaded anew, and runs end as failed with
    its verdict. repair: it is loaded anew at once."""

    FAIL = "fail"
    REPAIR = "repair"


class Backfill(Enum):
    """The rows whose new columns are loaded after a switch. all: wherever they hold something. touched: of the rows
    that a change was captured of since the column was there; the others get theirs with their next change."""

    ALL = "all"
    TOUCHED = "touched"


class DriftClass(Enum):
    """What happened to the table."""

    COLUMN_ADDED = "column_added"
    COLUMN_DROPPED = "column_dropped"
    TYPE_WIDENED = "type_widened"
    TYPE_NARROWED = "type_narrowed"
    TYPE_CHANGED = "type_changed"
    NULLABILITY_CHANGED = "nullability_changed"
    KEY_CHANGED = "key_changed"
    TABLE_RENAMED = "table_renamed"
    TABLE_DROPPED = "table_dropped"
    CDC_DISABLED = "cdc_disabled"
    INSTANCE_REPLACED = "instance_replaced"
    UNKNOWN = "unknown"
    """The DDL history tells of a statement that left no difference Floodmark could name."""


class DriftPolicy(Enum):
    """What Floodmark does about it. Every event enters the ledger, whatever the policy."""

    IGNORE = "ignore"
    ALERT = "alert"
    HOLD = "hold"
    """The table is left out of the pipeline's windows until somebody ends the hold; the others go on."""
    EVOLVE = "evolve"
    """The target follows in the run that needs it."""
    PROPOSE = "propose"
    """The alert shows the T-SQL for a second capture instance."""


_REPORT = (DriftPolicy.ALERT, DriftPolicy.IGNORE, DriftPolicy.HOLD)


_STOP = (DriftPolicy.HOLD, DriftPolicy.ALERT)


ALLOWED: Mapping[DriftClass, tuple[DriftPolicy, ...]] = {
    DriftClass.COLUMN_ADDED: (DriftPolicy.PROPOSE, *_REPORT),
    DriftClass.COLUMN_DROPPED: _REPORT,
    # The target must follow before the first wider value can be merged.
    DriftClass.TYPE_WIDENED: (DriftPolicy.EVOLVE, DriftPolicy.HOLD),
    DriftClass.TYPE_NARROWED: (DriftPolicy.HOLD, DriftPolicy.ALERT, DriftPolicy.IGNORE),
    # What the target cannot hold, or cannot be merged by, must never reach a window: it could not be finished.
    DriftClass.TYPE_CHANGED: (DriftPolicy.HOLD,),
    DriftClass.NULLABILITY_CHANGED: _REPORT,
    DriftClass.KEY_CHANGED: (DriftPolicy.HOLD,),
    # With alert the run fails on the verdict, as every other gap in the source does.
    DriftClass.TABLE_RENAMED: _STOP,
    DriftClass.TABLE_DROPPED: _STOP,
    DriftClass.CDC_DISABLED: _STOP,
    DriftClass.INSTANCE_REPLACED: _STOP,
    DriftClass.UNKNOWN: _REPORT,
}
"""The policies that make sense for a class; the first is the default."""


GONE = frozenset({DriftClass.TABLE_RENAMED, DriftClass.TABLE_DROPPED, DriftClass.CDC_DISABLED})
"""Classes that end by themselves when the same capture instance is seen again."""


@dataclass(frozen=True, slots=True)
class DriftPolicies:
    """chosen: what the configuration says; the rest has its default."""

    chosen: tuple[tuple[DriftClass, DriftPolicy], ...] = ()

    def of(self, kind: DriftClass) -> DriftPolicy:
        return dict(self.chosen).get(kind, ALLOWED[kind][0])


DEFAULT_POLICIES = DriftPolicies()


class WhenAdded(Enum):
    """How a table that is added to a pipeline is loaded."""

    IN_WINDOW = "in_window"
    """By the next window, so that it joins the others at one place in the log, and they wait for it."""
    IN_PARALLEL = "in_parallel"
    """On a lane of its own, while the others go on."""

    @classmethod
    def _missing_(cls, value: object) -> WhenAdded | None:
        """Take ``beside`` as well, the name of ``in_parallel`` in earlier configurations."""
        return cls.IN_PARALLEL if value == "beside" else None
