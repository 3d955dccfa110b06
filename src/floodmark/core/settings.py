"""The settings of a pipeline as plain values, with the policies that they choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum

from floodmark.core.schema import TableName

# --------------------------------------------------------------------------------------------------------------------
# The policies that a configuration chooses: for deletes, gaps, drift, rules and fractions of a second.


class Deletes(Enum):
    """The effect of a delete at the source on the row of the target."""

    SOFT = "soft"
    """The row stays and is marked as deleted."""
    HARD = "hard"
    """The row is deleted; its key and LSN stay in the tombstone table."""


class Style(Enum):
    """The kind of table that a target is."""

    CURRENT = "current"
    """The newest row of each key."""
    LOG = "log"
    """A row for each change, and for each row of a load of the whole table. Nothing of it is updated or deleted."""
    HISTORY = "history"
    """The newest version of each key, and a table of the versions before it."""
    SNAPSHOT = "snapshot"
    """All rows of the newest read of the whole table, which each window with changes begins."""


class NetSource(Enum):
    """The place where net changes are computed."""

    SPARK = "spark"
    """Spark computes them from all changes."""
    SERVER = "server"
    """The server's net function computes them."""


def why_no_style(settings: TableDefaults) -> str:
    """Return why a table with these settings cannot have their style, as a clause; "" where it can."""
    if settings.style is Style.CURRENT:
        return ""
    if settings.style is Style.SNAPSHOT:
        return _why_no_snapshot(settings)
    style = f"a {settings.style.value}"
    if settings.deletes is Deletes.HARD:
        return f"deletes: hard deletes rows of the target, and {style} keeps every change: use deletes: soft"
    if settings.net is NetSource.SERVER:
        return f"net: server leaves out changes, and {style} needs all of them: use net: spark"
    if settings.live_view:
        rows = "changes" if settings.style is Style.LOG else "a view of its own"
        return f"live_view: true shows the rows that are not deleted, and {style} has {rows}: use live_view: false"
    return ""


def _why_no_snapshot(settings: TableDefaults) -> str:
    key: tuple[str, ...] = ()
    accepts_filters = False
    if isinstance(settings, TableOptions):
        key, accepts_filters = settings.key, settings.security_filtered is SecurityFiltered.ACCEPT
    reasons = {
        "deletes: hard deletes single rows of the target, and a snapshot replaces all: use deletes: soft": (
            settings.deletes is Deletes.HARD
        ),
        "net: server is about changes, and a snapshot has the rows of the table: use net: spark": (
            settings.net is NetSource.SERVER
        ),
        "live_view: true hides deleted rows, and a snapshot has none: use live_view: false": settings.live_view,
        f"key: [{', '.join(key)}] is for rows that are merged, and a snapshot replaces all: remove it": bool(key),
        "security_filtered: accept keeps rows that are not read, and a snapshot replaces all: use style: current": (
            accepts_filters
        ),
    }
    return next((why for why, applies in reasons.items() if applies), "")


def why_no_options(settings: TableOptions) -> str:
    """Return why a table cannot have an option of another style than its own; "" where it has none."""
    log, history = settings.style is Style.LOG, settings.style is Style.HISTORY
    reasons = {
        "keep_versions, but only style: history has versions": settings.keep_versions is not None and not history,
        "open_end, but only style: history has versions that end": settings.open_end is not None and not history,
        "track, but only style: history has versions": bool(settings.track) and not history,
        "before_images: true, but only style: log has images of changes": settings.before_images and not log,
        "snapshot: false, but only style: log may begin without the rows of the table": not (settings.snapshot or log),
    }
    return next((f"{why}: leave it out" for why, applies in reasons.items() if applies), "")


def why_no_commit_times(settings: TableDefaults) -> str:
    """Return why the rows of a target cannot have the times of their commits, as a clause; "" where they can."""
    if not settings.commit_times or settings.style in (Style.LOG, Style.HISTORY):
        return ""
    if settings.style is Style.SNAPSHOT:
        return "a snapshot has the rows of a read, and no commits: use commit_times: false"
    if settings.net is NetSource.SERVER:
        return "net: server delivers no times of commits: use net: spark"
    return ""


class TemporalPolicy(Enum):
    """The treatment of a fraction finer than a microsecond (datetime2(7), time(7), datetimeoffset(7))."""

    TRUNCATE = "truncate"
    """It is cut off."""
    TEXT = "text"
    """The column is text in the target, with all digits."""


class UnstorablePolicy(Enum):
    """The treatment of a text that the warehouse cannot store."""

    QUARANTINE = "quarantine"
    """The row goes to quarantine, with the column and the reason."""
    REPLACE = "replace"
    """U+FFFD takes the place of what cannot be stored. A key is never replaced: its row goes to quarantine."""
    FAIL = "fail"
    """The table leaves the window, and the run fails."""


class Naming(Enum):
    """The names of a target's columns."""

    KEEP = "keep"
    """Those of the source."""
    SNAKE_CASE = "snake_case"
    """Lower case with an underscore between words (``core.naming``)."""


class Mask(Enum):
    """The replacement of a value that must not reach the warehouse. NULL stays NULL."""

    HASH = "hash"
    """HMAC-SHA-256 by the secret of ``mask_key_conn_id``, in hexadecimal digits: equal values stay equal."""
    REDACT = "redact"
    """The text ***."""
    NULL = "null"
    """No value."""
    LAST4 = "last4"
    """A text with * in place of all characters but the last four."""
    YEAR = "year"
    """The first of January of the year, at midnight."""
    ROUND = "round"
    """A number, rounded to decimal places; to tens and hundreds where their number is negative."""


class Cast(Enum):
    """The type that a column has in the target in place of that of the source. Every value can be cast."""

    DATE = "date"
    """The day of a moment, without the time of day."""
    TEXT = "text"
    """A value in one canonical form."""
    INT = "int"
    BIGINT = "bigint"


class NewColumns(Enum):
    """The treatment of a column that the source got after the load, and that ``columns`` does not name."""

    FOLLOW = "follow"
    """It reaches the target."""
    DROP = "drop"
    """It is not read."""
    HOLD = "hold"
    """The table is left out until ``columns`` names it."""


@dataclass(frozen=True, slots=True)
class ColumnSettings:
    """The settings of a column."""

    name: str
    """The column at the source."""
    target: str = ""
    """Its name in the target; "" for the one by ``naming``."""
    mask: Mask | None = None
    digits: int = 0
    """The decimal places of ``Mask.ROUND``."""
    cast: Cast | None = None
    is_dropped: bool = False
    """It is not read."""

    @property
    def is_hidden(self) -> bool:
        """Return whether its values must not reach the warehouse."""
        return self.is_dropped or self.mask is not None

    @property
    def is_other(self) -> bool:
        """Return whether the target has other values of it, or none."""
        return self.is_hidden or self.cast is not None


@dataclass(frozen=True, slots=True)
class DerivedColumn:
    """A column of the target that the warehouse computes from the others of a row."""

    name: str
    sql: str
    """An expression in PostgreSQL's SQL over the columns of the target."""


class ComparedWith(Enum):
    """The kind of literal that a filter compares a column with."""

    NOTHING = "nothing"
    """No literal: the column is compared with another, or with NULL."""
    NUMBER = "number"
    TEXT = "text"
    BYTES = "bytes"
    PATTERN = "pattern"
    """The text of LIKE."""


@dataclass(frozen=True, slots=True)
class FilterColumn:
    """A column that a filter reads, by its name at the source."""

    name: str
    compared: ComparedWith


@dataclass(frozen=True, slots=True)
class Filter:
    """The condition on the rows of a table that reach the target (``sync.filters``)."""

    sql: str
    """The condition in T-SQL, in one form for all ways to write it."""
    columns: tuple[FilterColumn, ...] = ()
    """The columns that it reads; none where it was not parsed, for a caller that needs the shape alone."""


class SecurityFiltered(Enum):
    """The handling of a table whose rows a security policy of the source filters."""

    REFUSE = "refuse"
    """The table is not read."""
    ACCEPT = "accept"
    """The rows that the login may see are loaded, and no load deletes the others."""


class KeySpelling(Enum):
    """The handling of a key whose spelling may change without a change that the source reports as another key."""

    REFUSE = "refuse"
    """The table is not read."""
    FIXED = "fixed"
    """The owner promises that no key changes its spelling."""


class OnFailure(Enum):
    """The effect of a broken rule."""

    QUARANTINE = "quarantine"
    """The row goes to quarantine."""
    STOP = "stop"
    """The run stops."""
    WARN = "warn"
    """The row is only reported."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A declared rule."""

    name: str
    sql: str
    """A condition over the target's columns, by their names there, in the warehouse's SQL; NULL passes."""
    on_failure: OnFailure


@dataclass(frozen=True, slots=True)
class Expectation:
    """An expectation of Great Expectations over the rows of a target."""

    type: str
    """Its type, as Great Expectations names it: expect_column_values_to_be_between."""
    kwargs: str = "{}"
    """Its arguments, as JSON."""
    rows: str = "window"
    """The rows that it is about: those of the window, or of the whole table (``table``), without deleted ones."""
    severity: str = "critical"
    """Whether the table leaves the window when it fails (``critical``), or the log says so (``warning``)."""


class OnGap(Enum):
    """The handling of a table with a gap. The table is left out, and the others go on."""

    FAIL = "fail"
    """The table waits until the operator has it reloaded; runs end as failed with its verdict."""
    REPAIR = "repair"
    """The table is reloaded at once."""


class Backfill(Enum):
    """The rows whose new columns are loaded after a switch."""

    ALL = "all"
    """All rows that have a value in them."""
    TOUCHED = "touched"
    """The rows with a captured change since the column was added; the others get the value with their next change."""


class DriftClass(Enum):
    """A kind of change to a table."""

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
    """The DDL history contains a statement that left no difference Floodmark could name."""


class DriftPolicy(Enum):
    """The reaction of Floodmark to a drift. Every event is recorded in the ledger, whatever the policy."""

    IGNORE = "ignore"
    """Nothing else."""
    ALERT = "alert"
    """An alert is raised."""
    HOLD = "hold"
    """The table is left out of the pipeline's windows until the operator ends the hold; the others go on."""
    EVOLVE = "evolve"
    """The target is changed by the run that needs it."""
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
    # With alert, the run fails with the verdict, as for every other gap in the source.
    DriftClass.TABLE_RENAMED: _STOP,
    DriftClass.TABLE_DROPPED: _STOP,
    DriftClass.CDC_DISABLED: _STOP,
    DriftClass.INSTANCE_REPLACED: _STOP,
    DriftClass.UNKNOWN: _REPORT,
}
"""The policies that make sense for a class; the first is the default."""


GONE = frozenset({DriftClass.TABLE_RENAMED, DriftClass.TABLE_DROPPED, DriftClass.CDC_DISABLED})
"""The classes that end by themselves when the same capture instance is found again."""


@dataclass(frozen=True, slots=True)
class DriftPolicies:
    """The policies of a table by class of drift."""

    chosen: tuple[tuple[DriftClass, DriftPolicy], ...] = ()
    """The policies of the configuration; the other classes have their default."""

    def of(self, kind: DriftClass) -> DriftPolicy:
        """Return the policy for a class."""
        return dict(self.chosen).get(kind, ALLOWED[kind][0])


DEFAULT_POLICIES = DriftPolicies()


class WhenAdded(Enum):
    """The way in which a table that is added to a pipeline is loaded."""

    IN_WINDOW = "in_window"
    """By the next window: the table joins the others at one position of the log, and they wait for it."""
    IN_PARALLEL = "in_parallel"
    """On a lane of its own, while the others go on."""

    @classmethod
    def _missing_(cls, value: object) -> WhenAdded | None:
        """Take ``beside`` as well, the name of ``in_parallel`` in earlier configurations."""
        return cls.IN_PARALLEL if value == "beside" else None


# --------------------------------------------------------------------------------------------------------------------
# The settings of a pipeline as plain values.
#
# ``config`` reads them from ``pipelines.yaml``, planning uses them, and neither imports the other.


DEFAULT_MAX_READS = 4


@dataclass(frozen=True)
class FirstLoad:
    """The section ``first_load``: how a whole table is loaded."""

    chunk_rows: int = 500_000
    """How many rows of the table one statement reads."""
    parallel_reads: int = 4
    """How many such statements run in parallel, for all tables of a window together; the highest value applies."""
    when_added: WhenAdded = WhenAdded.IN_WINDOW
    """How a table is loaded that is added to a pipeline whose other tables have been loaded."""


@dataclass(frozen=True, kw_only=True)
class TableDefaults:
    """The settings that a table takes from its pipeline, where it does not set them itself. Sizes are in bytes."""

    style: Style = Style.CURRENT
    """Whether the target has the newest rows, these with all versions before them, all changes, or one whole read."""
    deletes: Deletes = Deletes.SOFT
    net: NetSource = NetSource.SPARK
    temporal: TemporalPolicy = TemporalPolicy.TRUNCATE
    unstorable: UnstorablePolicy = UnstorablePolicy.QUARANTINE
    """What is done with a text that the warehouse cannot store."""
    naming: Naming = Naming.KEEP
    """The names of the target's columns."""
    live_view: bool = False
    """Whether the target has a view with the rows that are not deleted (``core.naming.live_view_name``)."""
    commit_times: bool = False
    """Whether a target with the newest rows has the times of their commits; logs and histories always have them."""
    partitions: int = 0
    """The number of statements that read a window of a table; 0 lets the reader choose."""
    lob_batch: int = 32_000_000
    """The size at which a batch of rows with LOBs ends."""
    first_load: FirstLoad = FirstLoad()
    on_gap: OnGap = OnGap.FAIL
    backfill: Backfill = Backfill.ALL


@dataclass(frozen=True)
class TableOptions(TableDefaults):
    """The settings that the configuration of a table consists of."""

    source: TableName
    """The table at the source."""
    target: TableName
    """The table in the warehouse; it is created where it does not exist."""
    key: tuple[str, ...] = ()
    """The columns to merge by, where the table has no primary key."""
    capture_instance: str | None = None
    """The capture instance to read; None: the one that was read before, else the table's newest."""
    rules: tuple[Rule, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    security_filtered: SecurityFiltered = SecurityFiltered.REFUSE
    """Whether the table is loaded although a security policy of the source filters its rows."""
    key_spelling: KeySpelling = KeySpelling.REFUSE
    """Whether the owner promises that no key changes its spelling, where the source would not show it."""
    columns: tuple[ColumnSettings, ...] = ()
    """The columns that get a name, are masked, or are left out, and those that are known to be neither."""
    new_columns: NewColumns | None = None
    """What is done with a new column; None: it follows, and waits where another column is masked or left out."""
    derived: tuple[DerivedColumn, ...] = ()
    """The columns of the target that the warehouse computes."""
    mask_key_conn_id: str | None = None
    """The Airflow connection whose password is the secret of ``mask: hash``."""
    where: Filter | None = None
    """The rows that reach the target; None for all."""
    keep_versions: int | None = None
    """The days for which a history keeps a version that has ended; None for good."""
    open_end: date | None = None
    """The day from whose midnight in UTC on the view of a history has the newest versions end; None for NULL."""
    track: tuple[str, ...] = ()
    """The columns for which the view of a history says which versions differ from the one before; none: it does not."""
    before_images: bool = False
    """Whether a log has the row before each update too; without a key it always has."""
    snapshot: bool = True
    """Whether a load adds the rows of the table to a log; otherwise the log only has the changes after the load."""


@dataclass(frozen=True)
class TableSettings(TableOptions):
    """The settings of a table, with every default filled in, and with those that depend on its source."""

    drift: DriftPolicies = DEFAULT_POLICIES
    max_reads: int = DEFAULT_MAX_READS
    """How many statements of a load read the source at a time, for all of its tables."""
    mask_key_print: str = ""
    """The fingerprint of the secret of ``mask: hash``; empty where it is not known."""
    keeps_messages: bool = True
    """Whether a message of its stream may be kept as it came: no table of the stream hides values."""


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """The settings of a pipeline."""

    name: str
    tables: tuple[TableSettings, ...]
    lag_limit_seconds: float = 900.0
    """How old the newest entry of the source's log may be before capture counts as lagging; an idle source makes an
    entry every five minutes."""

    source_name: str = "SOURCE"
    """The name of the source in the configuration, for the commands in hints."""

    @property
    def sources(self) -> tuple[TableName, ...]:
        """Return the names of the source tables."""
        return tuple(table.source for table in self.tables)


# --------------------------------------------------------------------------------------------------------------------
# The variables of the load job's environment: connections as JSON, with their passwords, a URL, and what to report.


SOURCE_VARIABLE = "FLOODMARK_SOURCE"
KIND_VARIABLE = "FLOODMARK_SOURCE_KIND"
"""Holds the kind of the source; no secret."""
LEDGER_VARIABLE = "FLOODMARK_LEDGER"
WAREHOUSE_VARIABLE = "FLOODMARK_WAREHOUSE"
WAREHOUSE_KIND_VARIABLE = "FLOODMARK_WAREHOUSE_KIND"
"""Holds the kind of the warehouse; no secret."""
REMOTE_VARIABLE = "FLOODMARK_SPARK_REMOTE"
"""Holds the URL of a Spark Connect server, with its token, where the load uses one."""
MASK_KEYS_VARIABLE = "FLOODMARK_MASK_KEYS"
"""Holds the secrets of masks as JSON, by the connections that have them."""
PROGRESS_VARIABLE = "FLOODMARK_PROGRESS_LINES"
"""Set where the starter of the job reads its progress as lines for programs; no secret. Otherwise it is in the log."""
