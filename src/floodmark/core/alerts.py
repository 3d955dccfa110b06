"""The kinds of alerts: when each is raised and ends, who must act, and what its message says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from floodmark.core.alert import Alert
from floodmark.core.capture import HeartbeatSettings, PlannedStop
from floodmark.core.drift import INSTANCE_SWITCH, SCHEMA_DRIFT
from floodmark.core.errors import (
    FloodmarkError,
    InstanceReplacedError,
    SourceRewoundError,
    TableNotPlannableError,
    TableRefusedError,
    TargetLostError,
    WindowExpiredError,
    command_line,
)
from floodmark.core.patterns import ListedTable
from floodmark.core.plan import QuarantinedMessages
from floodmark.core.position import format_duration
from floodmark.core.progress import Standing, say_waiting
from floodmark.core.recovery import REPAIR, WaitingRows
from floodmark.core.schema import TableName
from floodmark.core.snapshot import Validity, Verdict, WiderInstance
from floodmark.core.status import TableMeasure
from floodmark.core.upkeep import ChangeTableSize, RetentionStep, format_bytes, largest_first
from floodmark.core.verdicts import LEFT_OUT

# --------------------------------------------------------------------------------------------------------------------
# Alerts about the capture job of a source, raised by its own DAG and by the pipelines.


STOP_ENDED = "capture_stop_ended"
NOT_RUNNING = "capture_not_running"
NOT_ALIVE = "capture_not_alive"
LAGGING = "capture_lagging"


def stop_ended(source: str, stop: PlannedStop, guard: str) -> Alert:
    """Return the alert that a planned stop is not kept; one per planned stop."""
    return Alert(
        kind=STOP_ENDED,
        subject=source,
        what=f"The capture job is running although {stop} has begun: {guard}.",
        means="Capture loads the source in hours that were to be free of it. No change is lost.",
        do="Give the log more space or back it up more often, or plan shorter stops; see sources."
        f"{source}.capture in pipelines.yaml.",
        event_key=f"{STOP_ENDED}:{source}:{stop.since.isoformat()}",
        where=f"source {source}",
    )


def not_running(source: str, why: str) -> Alert:
    """Return the alert that the job is required and could not be started."""
    return Alert(
        kind=NOT_RUNNING,
        subject=source,
        what=f"The capture job is not running: {why}",
        means="Changes are not captured and wait in the source's log, which grows; the warehouse gets no new rows.",
        do="Check the job's history and whether SQL Server Agent is running, then run the DAG again to start the job.",
        event_key=f"{NOT_RUNNING}:{source}",
        where=f"source {source}",
    )


def not_alive(source: str, words: str) -> Alert:
    """Return the alert that the job is running and captures nothing."""
    return Alert(
        kind=NOT_ALIVE,
        subject=source,
        what=words,
        means="Changes are not captured, or late; the source's log is held, and the warehouse falls behind.",
        do="Check sys.dm_cdc_errors and the job's history. A very large transaction is captured as a whole: then wait.",
        event_key=f"{NOT_ALIVE}:{source}",
        where=f"source {source}",
    )


def capture_lagging(pipeline: str, cause: str) -> Alert:
    """Return the alert that the job is running, and a pipeline has had nothing to read for too long."""
    return Alert(
        kind=LAGGING,
        subject=pipeline,
        what=f"Runs found nothing to read, and ended as skipped: {cause}",
        means="An idle source makes an entry every five minutes, so nothing is captured: the warehouse gets no new "
        "rows, while every run seems fine. No change is lost as long as the source's log has space.",
        do="Check sys.dm_cdc_errors and sys.dm_cdc_log_scan_sessions. A very large transaction is captured as a whole: "
        "then wait.",
        event_key=f"{LAGGING}:{pipeline}",
        where=f"pipeline {pipeline}",
    )


# --------------------------------------------------------------------------------------------------------------------
# The alert about the heartbeat of an event stream.


HEARTBEAT_MISSING = "heartbeat_missing"


def heartbeat_missing(pipeline: str, settings: HeartbeatSettings, number: int, waited_seconds: float) -> Alert:
    """Return the alert that a beat has not arrived; one for each pipeline while it lasts."""
    return Alert(
        kind=HEARTBEAT_MISSING,
        subject=pipeline,
        table=settings.table,
        what=f"Beat {number:,}, written {format_duration(waited_seconds)} ago, has not arrived; the limit is"
        f" {format_duration(settings.limit_seconds)} (`heartbeat.limit`).",
        means="The server no longer writes changes to the stream, or late: the warehouse gets no new rows, while every"
        " run seems fine. Changes that the server left out are in no event.",
        do="Check sys.dm_change_feed_errors and sys.dm_change_feed_log_scan_sessions, and whether the table is in its"
        f" stream group: `floodmark doctor {pipeline}`. When beats arrive again, run `floodmark verify {pipeline}`.",
        event_key=f"{HEARTBEAT_MISSING}:{pipeline}",
    )


# --------------------------------------------------------------------------------------------------------------------
# Alerts about what is left out: tables out of the windows of their pipeline, and columns out of their table.


TABLE_LEFT_OUT = "table_left_out"
COLUMNS_LEFT_OUT = "columns_left_out"
TABLE_NOT_TAKEN = "table_not_taken"
_LEFT_OUT_TABLE_MEANS = (
    "No new rows arrive in the table until the cause is removed. The other tables of the pipeline go on."
)


def left_out(pipeline: str, validity: Validity) -> Alert:
    """Return the alert that a table is left out of windows: one for each table and verdict.

    validity: its verdict is one of ``LEFT_OUT``.
    """
    return Alert(
        kind=TABLE_LEFT_OUT,
        subject=pipeline,
        table=validity.table,
        what=f"{validity.verdict.value}: {validity.cause}",
        means=_LEFT_OUT_TABLE_MEANS,
        do=validity.hint or f"Run `floodmark status {pipeline} --live`.",
        event_key=_event_key(pipeline, validity.table, validity.verdict),
    )


def table_not_taken(pipeline: str, listed: ListedTable) -> Alert:
    """Return the alert about a table that a pattern matches and the pipeline does not have: one for each table."""
    return Alert(
        kind=TABLE_NOT_TAKEN,
        subject=pipeline,
        table=listed.table,
        what=f"{listed.table}: {listed.reason}.",
        means="Its rows do not reach the warehouse. The tables of the pipeline go on.",
        do=listed.fix,
        event_key=f"{TABLE_NOT_TAKEN}:{pipeline}:{listed.table}",
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


# --------------------------------------------------------------------------------------------------------------------
# The alerts about rows that broke a rule, and about messages that could not be read as changes.


ROWS_QUARANTINED = "rows_quarantined"


def rows_quarantined(pipeline: str, waiting: WaitingRows) -> Alert:
    """Return the alert about the rows of a table that wait in quarantine: one for each table while any waits."""
    rules = f"rule{'' if len(waiting.rules) == 1 else 's'} {', '.join(waiting.rules)}"
    return Alert(
        kind=ROWS_QUARANTINED,
        subject=pipeline,
        table=waiting.table,
        what=f"{say_waiting(waiting.rows)}, because of {rules}.",
        means="The target lacks these rows, or has their values from before. All other rows are loaded.",
        do=f"See `floodmark quarantine list {pipeline}`. Correct the rows at the source: the next run loads them. Or "
        f"correct the rule, and run `{command_line('quarantine', 'release', pipeline, waiting.table)}`. To do without "
        f"them, run `{command_line('quarantine', 'discard', pipeline, waiting.table)}`.",
        event_key=f"{ROWS_QUARANTINED}:{pipeline}:{waiting.table}",
    )


MESSAGES_QUARANTINED = "messages_quarantined"
_SHOWN = 3


def messages_quarantined(pipeline: str, found: QuarantinedMessages) -> Alert:
    """Return the alert about the messages of a pipeline in quarantine: one while there are any."""
    shown = "; ".join(f"{reason} ({count:,})" for reason, count in found.reasons[:_SHOWN])
    more = "; and other reasons" if len(found.reasons) > _SHOWN else ""
    return Alert(
        kind=MESSAGES_QUARANTINED,
        subject=pipeline,
        what=f"{found.count:,} messages of the stream could not be read as changes: {shown}{more}.",
        means="The rows that they changed may be wrong in the target until their next change. The others are correct.",
        do=(
            f"See the rows of pipeline {pipeline} in floodmark.quarantined_messages. Run `floodmark verify {pipeline}`,"
            " and `floodmark reload` for a table that differs. Then delete the rows."
        ),
        event_key=f"{MESSAGES_QUARANTINED}:{pipeline}",
    )


# --------------------------------------------------------------------------------------------------------------------
# Alerts about how long a source keeps its changes, and how much space they take.


LOW = "retention_low"
EXHAUSTED = "retention_exhausted"
CHANGE_TABLES_LARGE = "change_tables_large"
_NAMED_TABLES = 3
_RETENTION_MEANS = (
    "When cleanup has passed a watermark, unread changes have been deleted, and the table has to be reloaded."
)


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
        means=_RETENTION_MEANS,
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
        means=_RETENTION_MEANS,
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


# --------------------------------------------------------------------------------------------------------------------
# Alerts about runs: one that failed, one that does not end, and data that are late.


RUN_FAILED = "run_failed"
REPLAY_FAILED = "replay_failed"
RUN_LATE = "run_late"
LAG = "lag"
CAPTURE_RUN_FAILED = "capture_run_failed"
DRIFT_RUN_FAILED = "drift_run_failed"
LAKE_UPKEEP_FAILED = "lake_upkeep_failed"
LAKE = "lake"
"""The subject of alerts about the lake: a configuration has one at most."""
LOAD_RUN_FAILED = "load_run_failed"
RETENTION_RUN_FAILED = "retention_run_failed"
SWITCH_RUN_FAILED = "switch_run_failed"
_RUN_MEANS = {
    RUN_FAILED: "No new rows arrive until a run succeeds. Nothing is lost as long as the source keeps its changes.",
    REPLAY_FAILED: "The run's data interval has not been merged again. Watermarks do not move "
    "in a backfill: the scheduled runs go on, and no table is late because of it.",
    CAPTURE_RUN_FAILED: "The source's capture job is neither maintained nor checked until a run succeeds.",
    RETENTION_RUN_FAILED: "No one checks whether cleanup is about to pass a watermark until a run succeeds.",
    LAKE_UPKEEP_FAILED: "Nothing is lost. The tables of the lake get more files, and are read more slowly.",
    LOAD_RUN_FAILED: "A table that is reloaded keeps its old rows until a run succeeds. Staged rows are kept.",
    DRIFT_RUN_FAILED: "Schema drift is detected only by the runs of the pipelines until a run succeeds.",
    SWITCH_RUN_FAILED: "A switch of capture instances is suspended. Pipelines continue with the instance they read.",
}
_GAPS = {each.__name__ for each in (WindowExpiredError, InstanceReplacedError, SourceRewoundError, TargetLostError)}
_GAP_MEANS = "No new rows arrive in the named tables until they have been reloaded. The others go on."
_LEFT_OUT = {TableNotPlannableError.__name__, TableRefusedError.__name__}
_LEFT_OUT_MEANS = "No new rows arrive in the named tables until the cause is removed. The others go on."


@dataclass(frozen=True, slots=True)
class RunFailure:
    """The reason why a task failed, in words that may leave the organisation."""

    error: str
    """The name of its class."""
    subject: str
    """The table, pipeline or source that it is about."""
    message: str
    hint: str

    @classmethod
    def of(cls, error: FloodmarkError) -> RunFailure:
        """Return the failure for an error."""
        return cls(type(error).__name__, error.subject, error.message, error.hint)

    @classmethod
    def parse(cls, value: object) -> RunFailure | None:
        """Return the failure that a task left behind; None where it left nothing that can be read."""
        if not isinstance(value, Mapping) or not all(isinstance(value.get(name), str) for name in cls.__slots__):
            return None
        return cls(*(value[name] for name in cls.__slots__))


def is_about_tables(failure: RunFailure | None) -> bool:
    """Return whether a run failed only because tables are left out. Each of them has its own alert."""
    return failure is not None and failure.error in _GAPS | _LEFT_OUT


def run_failed(
    kind: str, subject: str, failure: RunFailure | None, *, dag_id: str, run_id: str, task_id: str, part: str = ""
) -> Alert:
    """Return the alert that a run failed: one per cause, until a run succeeds.

    kind: one of the above that end in ``failed``. failure None: the task ended before it could report a reason. part:
    of a backfill, its interval as ``data_interval`` returns it; the alert ends when every interval that failed for the
    cause has succeeded.
    """
    if failure is None:
        what = "The task ended without reporting an error: it was killed, or met an error that Floodmark does not know."
        do = "Check the log of the task in Airflow. "
        do += "Then clear the run." if kind == REPLAY_FAILED else "The next run continues where this one ended."
        cause = f"silent:{task_id}"
    else:
        what = f"{failure.subject}: {failure.message}"
        do, cause = failure.hint or "Check the log of the task in Airflow.", f"{failure.error}:{failure.subject}"
    means = _RUN_MEANS[kind]
    if kind == RUN_FAILED and failure is not None:
        means = _GAP_MEANS if failure.error in _GAPS else _LEFT_OUT_MEANS if failure.error in _LEFT_OUT else means
    return Alert(
        kind=kind,
        subject=subject,
        what=what,
        means=means,
        do=do,
        event_key=f"{kind}:{subject}:{cause}",
        where=f"DAG {dag_id}, run {run_id}" + (f", task {task_id}" if task_id else ""),
        part=part,
    )


def data_interval(begin: datetime, end: datetime) -> str:
    """Return the same text for the same two moments, whatever zone they are given in."""
    return f"{begin.astimezone(UTC).isoformat()}/{end.astimezone(UTC).isoformat()}"


def parse_data_interval(part: str) -> tuple[datetime, datetime]:
    """Return the moments of a text of ``data_interval``. Raises ValueError."""
    begin, end = part.split("/")
    return datetime.fromisoformat(begin), datetime.fromisoformat(end)


def run_late(pipeline: str, run_id: str, queued_at: str, limit_seconds: float) -> Alert:
    """Return the alert that a run does not end.

    queued_at: for a person, with its zone.
    """
    return Alert(
        kind=RUN_LATE,
        subject=pipeline,
        what=f"Run {run_id} has not ended within {format_duration(limit_seconds)} (`max_lag`) of being queued.",
        means="The rows that it carries are late. Runs of a pipeline follow one another: the next one waits for it.",
        do="Check in Airflow whether it waits for a free slot, is being retried, was interrupted because the DAG was "
        "paused, or loads many rows. A load reports its progress in the log of its task.",
        event_key=f"{RUN_LATE}:{pipeline}",
        where=f"pipeline {pipeline}, run {run_id}",
        since=queued_at,
    )


def lag(pipeline: str, late: Sequence[TableMeasure], limit_seconds: float, taken_at: datetime) -> Alert:
    """Return the alert that tables are late.

    late: the tables beyond the limit, at least one. taken_at: local time of the source.
    """
    worst_first = sorted(late, key=lambda each: each.lag_seconds or 0.0, reverse=True)
    named = ", ".join(
        f"{each.table} by {format_duration(each.lag_seconds or 0.0)}" for each in worst_first[:_NAMED_TABLES]
    )
    more = f" and {len(late) - _NAMED_TABLES} more" if len(late) > _NAMED_TABLES else ""
    return Alert(
        kind=LAG,
        subject=pipeline,
        what=f"Behind the source: {named}{more}; the limit is {format_duration(limit_seconds)} (`max_lag`).",
        means="Readers of these tables in the warehouse see old rows.",
        do=f"Run `floodmark status {pipeline} --live`. A table that is held waits for a decision. Where the verdict is "
        "about capture, check the capture job. Otherwise runs fail, are too rare, or take too long.",
        event_key=f"{LAG}:{pipeline}",
        where=f"pipeline {pipeline}",
        since=f"{taken_at:%Y-%m-%d %H:%M:%S}, by the source's clock",
    )


# --------------------------------------------------------------------------------------------------------------------
# Every kind of alert: when it is raised, when it ends, who must act, and what it does to the status of a pipeline.


_OPERATOR = "the operator"
_DBA = "the DBA of the source"


@dataclass(frozen=True, slots=True)
class AlertKind:
    """A kind of alert."""

    raised: str
    """When it is raised, in one or several sentences."""
    ends: str
    """When it ends."""
    acts: str
    """Who must act."""
    standing: Standing = Standing.ATTENTION
    """The least standing of a pipeline while an alert of the kind about it, or about its source, is open."""


def standing_of(kind: str) -> Standing:
    """Return the least standing of a pipeline with an open alert. A ledger may have kinds of an older version."""
    return ALERT_KINDS[kind].standing if kind in ALERT_KINDS else Standing.ATTENTION


ALERT_KINDS: Mapping[str, AlertKind] = {
    RUN_FAILED: AlertKind(
        "A run of `cdc_<pipeline>` failed, all its tries included, or `floodmark run` did. One alert for each kind of"
        " error and table.",
        "A run succeeds, finds nothing to read, or publishes the tables that are not left out.",
        "whom the error names",
        Standing.INCIDENT,
    ),
    TABLE_LEFT_OUT: AlertKind(
        "A table or a device is left out of a run, which fails at its end without `run_failed`. One alert for each"
        " table and verdict.",
        "A run no longer leaves the table out, a load of the table has been published, or the table was removed from"
        " the configuration.",
        "whom the verdict names",
    ),
    COLUMNS_LEFT_OUT: AlertKind(
        "A run found that the capture instance of a table, which no `capture_instance` names, lacks columns that an"
        " older instance of the table has.",
        "A run finds that the instance has all these columns, that the older one was dropped, or that"
        " `capture_instance` names one.",
        _OPERATOR,
    ),
    TABLE_NOT_TAKEN: AlertKind(
        "A run found a table of a pattern that came later, or whose target another table fills: it is not taken.",
        "A run finds that the configuration names, excludes or adds it, or that the source no longer has it.",
        _OPERATOR,
    ),
    ROWS_QUARANTINED: AlertKind(
        "A run ended, and rows of a table wait in quarantine. One alert for each table.",
        "No row of the table waits: each was corrected or deleted at the source and loaded, released, or discarded.",
        "the operator, with the owner of the data",
    ),
    MESSAGES_QUARANTINED: AlertKind(
        "A run ended, and messages of an event stream that could not be read as changes are in"
        " `floodmark.quarantined_messages`.",
        "A run ends and finds none there.",
        _OPERATOR,
    ),
    HEARTBEAT_MISSING: AlertKind(
        "A run ended, and the last beat of the source's `heartbeat` is older than its `limit` and has not arrived.",
        "A run ends after a beat has arrived, or the pipeline has no heartbeat any more.",
        _DBA,
    ),
    REPLAY_FAILED: AlertKind(
        "A run of `airflow backfill` failed. One alert for each cause, however many data intervals fail for it.",
        "The last of these intervals has been merged, by a run or by `floodmark replay`.",
        _OPERATOR,
    ),
    RUN_LATE: AlertKind(
        "A run was still queued or running `max_lag` after it was queued.",
        "A run succeeds, or publishes the tables that are not left out.",
        _OPERATOR,
    ),
    LAG: AlertKind(
        "A run had ended, or a task of it had failed, and a table was further behind the source than `max_lag`, by the"
        " source's clock.",
        "All tables are within it again.",
        _OPERATOR,
    ),
    LOAD_RUN_FAILED: AlertKind(
        "A run of `cdc_load_<pipeline>` failed, all its tries included.", "A load has been published.", _OPERATOR
    ),
    REPAIR: AlertKind(
        "A run opened a window that loads a table again, because of a gap.",
        "The load has been published.",
        _OPERATOR,
    ),
    SCHEMA_DRIFT: AlertKind(
        "The schema of a table differs from that of the last check. One alert for each drift event.",
        "The operator has approved or rejected the event, or has ended the hold; or the table exists again.",
        "the operator, with the owner of the data",
    ),
    INSTANCE_SWITCH: AlertKind(
        "An approved switch to a second capture instance cannot continue by itself.",
        "The switch continues.",
        _DBA,
    ),
    DRIFT_RUN_FAILED: AlertKind(
        "A run of `cdc_drift_<source>` failed, all its tries included.", "A run succeeds.", _OPERATOR
    ),
    SWITCH_RUN_FAILED: AlertKind(
        "A run of `cdc_switch_<source>` failed, or one of the tasks `switch_instances`, `list_questions` and `ask` of"
        " `cdc_drift_<source>`, all tries included.",
        "The task `switch_instances` succeeds.",
        _OPERATOR,
    ),
    CAPTURE_RUN_FAILED: AlertKind(
        "A run of `cdc_capture_<source>` failed, all its tries included.", "A run succeeds.", _OPERATOR
    ),
    STOP_ENDED: AlertKind(
        "The capture job runs during a planned stop, because of the source's log. One alert for each planned stop.",
        "A run of `cdc_capture_<source>` finds the planned stop over.",
        _DBA,
    ),
    NOT_RUNNING: AlertKind(
        "The capture job is wanted and does not run, or could not be started.",
        "A run of `cdc_capture_<source>` has brought the job to its scheduled state.",
        _OPERATOR,
    ),
    NOT_ALIVE: AlertKind(
        "The capture job runs and captures nothing.",
        "A run of `cdc_capture_<source>` finds that it captures, or a planned stop begins.",
        _DBA,
    ),
    LAGGING: AlertKind(
        "Runs find nothing to read, while the newest entry of the log is older than `lag_limit` although the capture"
        " job runs.",
        "A run finds new entries in the log.",
        _DBA,
    ),
    LAKE_UPKEEP_FAILED: AlertKind("A run of `cdc_lake_upkeep` failed.", "A run succeeds.", _OPERATOR),
    RETENTION_RUN_FAILED: AlertKind(
        "A run of `cdc_retention_<source>` failed, all its tries included.", "A run succeeds.", _OPERATOR
    ),
    LOW: AlertKind(
        "By the usual retention, cleanup would pass a watermark within `headroom_limit`. The message says whether time"
        " was given.",
        "The usual retention leaves time enough again; where it was raised, a quarter more than the limit.",
        _OPERATOR,
    ),
    EXHAUSTED: AlertKind(
        "The retention was raised up to its `ceiling`, and there is still too little time.",
        "The retention leaves time enough again.",
        _OPERATOR,
    ),
    CHANGE_TABLES_LARGE: AlertKind("A change table is larger than `change_table_limit`.", "None is.", _DBA),
}
