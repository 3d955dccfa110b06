"""The heartbeat of an event stream: a row of the source that Floodmark writes, and whose change must arrive.

The offsets of a stream prove that every message of it was read. Nothing in a stream proves that the server writes to
it: a stream whose server has stopped is the same as one without changes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.core.alerts import HEARTBEAT_MISSING, heartbeat_missing
from floodmark.core.capture import HeartbeatSettings, bracket, bracket_table, literal
from floodmark.core.doctor import Finding, Grade
from floodmark.core.errors import ConfigError, FloodmarkError
from floodmark.core.position import format_duration
from floodmark.core.schema import TableName
from floodmark.sources.sqlserver.driver import CONTROL_TIMEOUT_SECONDS, SourceSession, SqlServerConnection, connect
from floodmark.sources.sqlserver.tables import read_sql
from floodmark.sync.alerts import Alerts

if TYPE_CHECKING:
    from floodmark.postgres.ledger.ledger import PostgresLedger

_LOG = logging.getLogger(__name__)

_BEATS_WITHIN_LIMIT = 3
"""The beats within the limit while all arrive: each costs a window, and one that is late should not be the last."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The row of the heartbeat table."""

    number: int
    age_seconds: float
    """By the source's clock."""
    may_write: bool
    """Whether the login may write the next one."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """A judgement on the last beat."""

    has_arrived: bool
    waited_seconds: float
    """The age of the beat."""
    is_due: bool
    """Whether the next one is to be written."""
    is_late: bool


def judge_beat(settings: HeartbeatSettings, beat: Beat, arrived_seconds: float) -> Pulse:
    """Return whether the last beat has arrived.

    arrived_seconds: how long ago the newest window that brought a change of the table was published. The clocks of
    source and ledger may differ: so ages are compared, not times.
    """
    has_arrived = arrived_seconds < beat.age_seconds
    is_late = not has_arrived and beat.age_seconds > settings.limit_seconds
    # A late beat may be lost for good. Only a further one shows that the stream goes on.
    is_due = is_late or (has_arrived and beat.age_seconds >= settings.limit_seconds / _BEATS_WITHIN_LIMIT)
    return Pulse(has_arrived, beat.age_seconds, is_due, is_late)


def make_beats(table: TableName) -> Sequence[str]:
    """Return the statements in T-SQL that create the heartbeat table with its row."""
    name = bracket_table(table)
    return (
        f"CREATE TABLE {name} (id tinyint NOT NULL PRIMARY KEY, beat bigint NOT NULL,"
        " beaten_at datetime2(3) NOT NULL);",
        insert_beat(table),
    )


def insert_beat(table: TableName) -> str:
    """Return the statement that inserts the only row of the heartbeat table."""
    name = bracket_table(table)
    return f"INSERT INTO {name} (id, beat, beaten_at) VALUES (1, 0, SYSUTCDATETIME());"  # noqa: S608


def grant_beats(table: TableName, user: str) -> str:
    """Return the statement that lets a user write beats."""
    return f"GRANT UPDATE ON {bracket_table(table)} TO {bracket(user)};"


class StreamBeats:
    """The heartbeats of an event stream, with one connection to the database per call."""

    def __init__(self, connection: SqlServerConnection) -> None:
        self._connection = connection

    def read_beat(self, table: TableName) -> Beat:
        """Return the last beat. Raises ConfigError where the table does not exist, or lacks its row."""
        name = bracket_table(table)
        with self._connect() as session:
            [(object_id,)] = session.fetch("SELECT OBJECT_ID(?, N'U')", (name,))
            if object_id is None:
                raise ConfigError(
                    str(table),
                    "the heartbeat table does not exist, or the login may not see it.",
                    " ".join(make_beats(table)),
                )
            rows = session.fetch(read_sql("read_stream_beat").format(table=name, literal=literal(name)[1:]))
        if not rows:
            raise ConfigError(str(table), "the heartbeat table has no row with id 1.", insert_beat(table))
        number, age_seconds, may_write = rows[0]
        return Beat(number, max(float(age_seconds), 0.0), bool(may_write))

    def write_beat(self, table: TableName) -> None:
        """Write the next beat."""
        with self._connect() as session:
            session.fetch_sets(read_sql("write_stream_beat").format(table=bracket_table(table)))

    def _connect(self) -> SourceSession:
        return connect(self._connection, query_timeout_seconds=CONTROL_TIMEOUT_SECONDS)


def keep_heartbeat(
    pipeline: str, settings: HeartbeatSettings, *, beats: StreamBeats, ledger: PostgresLedger, alerts: Alerts
) -> None:
    """Raise or end the alert about the heartbeat, and write the next beat where it is due.

    A heartbeat that cannot be read or written never fails the run. Nothing is judged before the first load of the
    table, and while it is left out of windows, of which there is another alert.
    """
    try:
        # The source first: the moments between the two queries then count as waiting, never as an arrival.
        beat = beats.read_beat(settings.table)
        arrived_seconds = ledger.seconds_since_change(pipeline, settings.table)
        is_left_out = any(each.table == settings.table for each in ledger.list_stopped(pipeline))
        if arrived_seconds is None or is_left_out:
            return
        pulse = judge_beat(settings, beat, arrived_seconds)
        if pulse.is_late:
            alerts.raise_alert(heartbeat_missing(pipeline, settings, beat.number, pulse.waited_seconds))
        elif pulse.has_arrived:
            alerts.end_alerts(HEARTBEAT_MISSING, pipeline)
        if pulse.is_due:
            beats.write_beat(settings.table)
    except FloodmarkError as error:
        _LOG.warning("Pipeline %s has no heartbeat: %s", pipeline, error)


def examine_beats(beats: StreamBeats, source: str, table: TableName | None) -> Iterator[Finding]:
    """Yield the finding on the heartbeat of a stream. table: None where it has none."""
    if table is None:
        text = "the source has no heartbeat: a server that no longer streams is taken for one without changes."
        yield Finding(Grade.NOTE, "heartbeat", source, text, "Set one: see docs/event_streams.md.")
        return
    try:
        beat = beats.read_beat(table)
    except FloodmarkError as error:
        yield Finding(Grade.PROBLEM, "heartbeat", str(table), error.message, error.hint)
        return
    if beat.may_write:
        words = f"beat {beat.number} was written {format_duration(beat.age_seconds)} ago."
        yield Finding(Grade.GOOD, "heartbeat", str(table), words, "")
    else:
        fix = grant_beats(table, "<login>")
        yield Finding(Grade.PROBLEM, "heartbeat", str(table), "the login may not update the table.", fix)
