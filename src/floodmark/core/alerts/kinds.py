"""Every kind of alert: when it is raised, when it ends, who must act, and what it does to the status of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from floodmark.core.alerts import capture, heartbeat, left_out, messages, retention, runs
from floodmark.core.drift.messages import SCHEMA_DRIFT
from floodmark.core.drift.switch import INSTANCE_SWITCH
from floodmark.core.recovery.gap import REPAIR
from floodmark.core.status.progress import Standing

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
    runs.RUN_FAILED: AlertKind(
        "A run of `cdc_<pipeline>` failed, all its tries included; or `floodmark run` did, which has one try. One alert"
        " for each cause: kind of error and table.",
        "A run succeeds, or finds nothing to read.",
        "whom the error names",
        Standing.INCIDENT,
    ),
    left_out.TABLE_LEFT_OUT: AlertKind(
        "A run ended, and a table or a device is left out of the windows of its pipeline. One alert for each table and"
        " verdict. `run_failed` is raised as well, since the run fails at its end.",
        "A run no longer leaves the table out, a load of the table has been published, or the table was removed from"
        " the configuration.",
        "whom the verdict names",
    ),
    left_out.COLUMNS_LEFT_OUT: AlertKind(
        "A run found that the capture instance of a table, which no `capture_instance` names, lacks columns that an"
        " older instance of the table has.",
        "A run finds that the instance has all these columns, that the older one was dropped, or that"
        " `capture_instance` names one.",
        _OPERATOR,
    ),
    messages.MESSAGES_QUARANTINED: AlertKind(
        "A run ended, and messages of an event stream that could not be read as changes are in"
        " `floodmark.quarantined_messages`.",
        "A run ends and finds none there.",
        _OPERATOR,
    ),
    heartbeat.HEARTBEAT_MISSING: AlertKind(
        "A run ended, and the last beat of the source's `heartbeat` is older than its `limit` and has not arrived.",
        "A run ends after a beat has arrived, or the pipeline has no heartbeat any more.",
        _DBA,
    ),
    runs.REPLAY_FAILED: AlertKind(
        "A run of `airflow backfill` failed. One alert for each cause, however many data intervals fail for it.",
        "The last of these intervals has been merged, by a run or by `floodmark replay`.",
        _OPERATOR,
    ),
    runs.RUN_LATE: AlertKind(
        "A run was still queued or running `max_lag` after it was queued.",
        "A run succeeds, or publishes the tables that are not left out.",
        _OPERATOR,
    ),
    runs.LAG: AlertKind(
        "A run had ended, or a task of it had failed, and a table was further behind the source than `max_lag`, by the"
        " source's clock.",
        "All tables are within it again.",
        _OPERATOR,
    ),
    runs.LOAD_RUN_FAILED: AlertKind(
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
    runs.DRIFT_RUN_FAILED: AlertKind(
        "A run of `cdc_drift_<source>` failed, all its tries included.", "A run succeeds.", _OPERATOR
    ),
    runs.SWITCH_RUN_FAILED: AlertKind(
        "A run of `cdc_switch_<source>` failed, or one of the tasks `switch_instances`, `list_questions` and `ask` of"
        " `cdc_drift_<source>`, all tries included.",
        "The task `switch_instances` succeeds.",
        _OPERATOR,
    ),
    runs.CAPTURE_RUN_FAILED: AlertKind(
        "A run of `cdc_capture_<source>` failed, all its tries included.", "A run succeeds.", _OPERATOR
    ),
    capture.STOP_ENDED: AlertKind(
        "The capture job runs during a planned stop, because of the source's log. One alert for each planned stop.",
        "A run of `cdc_capture_<source>` finds the planned stop over.",
        _DBA,
    ),
    capture.NOT_RUNNING: AlertKind(
        "The capture job is wanted and does not run, or could not be started.",
        "A run of `cdc_capture_<source>` has brought the job to its scheduled state.",
        _OPERATOR,
    ),
    capture.NOT_ALIVE: AlertKind(
        "The capture job runs and captures nothing.",
        "A run of `cdc_capture_<source>` finds that it captures, or a planned stop begins.",
        _DBA,
    ),
    capture.LAGGING: AlertKind(
        "Runs of a pipeline find nothing to read and end as skipped, while the newest entry of the log is older than"
        " the pipeline's `lag_limit` although the job runs; also without `capture` in `pipelines.yaml`.",
        "A run finds new entries in the log.",
        _DBA,
    ),
    runs.RETENTION_RUN_FAILED: AlertKind(
        "A run of `cdc_retention_<source>` failed, all its tries included.", "A run succeeds.", _OPERATOR
    ),
    retention.LOW: AlertKind(
        "By the usual retention, cleanup would pass a watermark within `headroom_limit`. The message says whether time"
        " was given.",
        "The usual retention leaves time enough again; where it was raised, a quarter more than the limit.",
        _OPERATOR,
    ),
    retention.EXHAUSTED: AlertKind(
        "The retention was raised up to its `ceiling`, and there is still too little time.",
        "The retention leaves time enough again.",
        _OPERATOR,
    ),
    retention.CHANGE_TABLES_LARGE: AlertKind("A change table is larger than `change_table_limit`.", "None is.", _DBA),
}
