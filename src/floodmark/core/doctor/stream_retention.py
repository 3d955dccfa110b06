"""How long the messages of a stream are kept, compared with the times between runs and with what was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from floodmark.core.doctor.finding import Finding, Grade
from floodmark.core.doctor.server import DiagnosisInput, ServerFindings
from floodmark.core.durations import format_duration
from floodmark.core.schema import TableName

_LEAST_FIX = timedelta(days=3)


@dataclass(frozen=True, slots=True)
class RemovalRules:
    """The settings of a topic by which a broker removes its messages."""

    kept: timedelta | None
    """``retention.ms``; None: no message is removed because of its age."""
    kept_bytes: int | None = None
    """``retention.bytes``, for each partition; None: none is removed because of the others."""
    is_compacted: bool = False
    """Whether ``cleanup.policy`` has ``compact``."""


@dataclass(frozen=True, slots=True)
class OldestMessage:
    """The oldest message that a partition has."""

    partition: int
    offset: int
    """Above 0 where messages before it were removed."""
    at: datetime | None
    """Its time in UTC, by which retention counts; None where it has none."""


@dataclass(frozen=True, slots=True)
class UnreadMessages:
    """The messages of a stream that were not read for a table."""

    oldest_at: datetime | None = None
    """The time of the oldest one in UTC; None where all were read, or where it has none."""
    gone: str = ""
    """The messages that were removed before they were read; "" for none."""


@dataclass(frozen=True, slots=True)
class StreamRetention:
    """How long the messages of a topic are kept."""

    rules: RemovalRules | None
    """None where the broker does not show them."""
    refusal: str = ""
    """The reason why it does not."""
    oldest: tuple[OldestMessage, ...] = ()
    """Of each partition that has messages."""
    unread: Mapping[TableName, UnreadMessages] = field(default_factory=dict)
    """By the tables of which it is known where they were read to."""


def examine_retention(examined: DiagnosisInput, retention: StreamRetention | None, topic: str) -> Iterator[Finding]:
    """Yield the findings on what a stream keeps. retention: None for files."""
    needed = _days(_needed(examined))
    if retention is None:
        text = "the files are kept as long as the owner of the folder keeps them, which is not known here."
        fix = f"Keep them for {needed} or longer: see the lifecycle rules of the storage account."
        yield Finding(Grade.NOTE, "retention", topic, text, fix)
        return
    if retention.rules is None:
        found = _hidden_rules(retention, examined.now_utc, needed)
    else:
        found = _examine_rules(examined, retention, retention.rules, topic)
    for grade, check, text, fix in found:
        yield Finding(grade, check, topic, text, fix)


def _hidden_rules(retention: StreamRetention, now: datetime, needed: str) -> ServerFindings:
    cut = _youngest_cut(retention)
    known = ""
    if cut is not None and cut.at is not None:
        known = (
            f" Messages were removed, and the oldest one left in partition {cut.partition} is {_age(now, cut.at)} old."
        )
    elif retention.oldest:
        known = f" {_describe_oldest(retention, now)}."
    yield (
        Grade.NOTE,
        "retention",
        f"the broker does not show how long messages are kept ({retention.refusal}).{known}",
        f"Check that it is {needed} or more: on the page Properties of the event hub, or as retention.ms of the topic."
        " A login that may describe the topic's configuration shows it here.",
    )


def _examine_rules(
    examined: DiagnosisInput, retention: StreamRetention, rules: RemovalRules, topic: str
) -> ServerFindings:
    if rules.is_compacted:
        yield (
            Grade.PROBLEM,
            "cleanup policy",
            "compaction removes events: of those with the same key of the message, only the newest is kept.",
            f"{_set(topic, 'cleanup.policy=delete')} (an event hub keeps its policy: create another one, with Delete)",
        )
    yield _examine_time(examined, retention, rules.kept, topic)
    if rules.kept_bytes is not None:
        yield _examine_size(examined, retention, rules.kept_bytes, topic)


def _examine_time(
    examined: DiagnosisInput, retention: StreamRetention, kept: timedelta | None, topic: str
) -> tuple[Grade, str, str, str]:
    check, now = "retention", examined.now_utc
    oldest = f" {_describe_oldest(retention, now)}." if retention.oldest else ""
    if kept is None:
        return Grade.GOOD, check, f"messages are kept without a limit of time.{oldest}", ""
    interval, needed = examined.interval, _needed(examined)
    stated = f"messages are kept for {_days(kept)}"
    if kept >= needed:
        return Grade.GOOD, check, f"{stated}.{oldest}", ""
    wanted = max(needed, _LEAST_FIX)
    fix = _set(topic, f"retention.ms={wanted // timedelta(milliseconds=1)}")
    fix = f"{fix} (an event hub: the retention on its page Properties, {wanted // timedelta(hours=1)} hours)"
    if interval is not None and kept < interval:
        between = f"up to {_days(interval)} are between two runs"
        return Grade.PROBLEM, check, f"{stated}, and {between}: changes are lost before they are read.{oldest}", fix
    every = f", and a run starts every {interval}" if interval else ""
    return Grade.RISK, check, f"{stated}{every}: after few failed runs, changes are lost.{oldest}", fix


def _examine_size(
    examined: DiagnosisInput, retention: StreamRetention, kept_bytes: int, topic: str
) -> tuple[Grade, str, str, str]:
    """Return the finding on a limit of bytes. How long it reaches shows a partition of which messages were removed."""
    check, limit = "retention size", f"a partition keeps {kept_bytes:,} bytes at most"
    fix = _set(topic, "retention.bytes=-1")
    cut = _youngest_cut(retention)
    if cut is None or cut.at is None:
        return Grade.NOTE, check, f"{limit}: how long that is depends on the number of changes.", fix
    age = _age(examined.now_utc, cut.at)
    if examined.now_utc - cut.at < _needed(examined):
        text = f"{limit}: in partition {cut.partition}, only the messages of the last {age} are left."
        return Grade.RISK, check, text, fix
    return Grade.GOOD, check, f"{limit}: that is {age} in partition {cut.partition}.", ""


def examine_unread(examined: DiagnosisInput, retention: StreamRetention | None, table: TableName) -> Iterator[Finding]:
    """Yield how long the messages are still kept that were not read for a table. Nothing where that is not known."""
    unread = retention.unread.get(table) if retention else None
    if retention is None or unread is None:
        return
    subject, pipeline = str(table), examined.settings.name
    if unread.gone:
        text = f"{unread.gone} were removed before they were read: changes are lost."
        fix = f"Raise the retention of the stream, then: floodmark reload {pipeline} {table}"
        yield Finding(Grade.PROBLEM, "unread messages", subject, text, fix)
        return
    kept = retention.rules.kept if retention.rules else None
    if kept is None or unread.oldest_at is None:
        return
    left = kept - (examined.now_utc - unread.oldest_at)
    text = f"the oldest message that was not read is {_age(examined.now_utc, unread.oldest_at)} old"
    fix = f"floodmark run {pipeline}"
    if left <= timedelta(0):
        yield Finding(Grade.RISK, "unread messages", subject, f"{text}, and may be removed at any time.", fix)
    elif left < (examined.interval or examined.freshness):
        text = f"{text}, and is kept for {format_duration(left.total_seconds())} more: a run may come too late."
        yield Finding(Grade.RISK, "unread messages", subject, text, fix)
    else:
        text = f"{text}, and is kept for {format_duration(left.total_seconds())} more."
        yield Finding(Grade.GOOD, "unread messages", subject, text)


def _needed(examined: DiagnosisInput) -> timedelta:
    return timedelta(minutes=examined.needed_minutes)


def _youngest_cut(retention: StreamRetention) -> OldestMessage | None:
    """Return the youngest of the oldest messages of partitions that have lost others; None without such a partition."""
    cut = [each for each in retention.oldest if each.offset > 0 and each.at is not None]
    return max(cut, key=lambda each: each.at or datetime.min, default=None)


def _describe_oldest(retention: StreamRetention, now: datetime) -> str:
    ages = [each.at for each in retention.oldest if each.at is not None]
    return f"The oldest one is {_age(now, min(ages))} old" if ages else "The time of the oldest one is not known"


def _age(now: datetime, at: datetime) -> str:
    return format_duration(max((now - at).total_seconds(), 0.0))


def _days(kept: timedelta) -> str:
    return str(kept).removesuffix(", 0:00:00")


def _set(topic: str, setting: str) -> str:
    return (
        f"kafka-configs.sh --bootstrap-server <broker> --alter --entity-type topics --entity-name {topic}"
        f" --add-config {setting}"
    )
