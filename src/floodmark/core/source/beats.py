"""The heartbeat of an event stream: a row of the source that Floodmark writes, and whose change must arrive.

The offsets of a stream prove that every message of it was read. Nothing in a stream proves that the server writes to
it: a stream whose server has stopped is the same as one without changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from floodmark.core.schema import TableName
from floodmark.core.source.scripts import bracket, bracket_table

_BEATS_WITHIN_LIMIT = 3
"""The beats within the limit while all arrive: each costs a window, and one that is late should not be the last."""


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """The heartbeat of a source."""

    table: TableName
    limit_seconds: float
    """How long a beat may take to arrive."""


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
