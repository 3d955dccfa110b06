"""The findings on how long a stream keeps its messages: rules of the topic, ages of messages, and what was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from floodmark.core.doctor import DiagnosisInput, Finding, Grade, about
from floodmark.sources.event_stream.doctor import (
    OldestMessage,
    RemovalRules,
    StreamRetention,
    UnreadMessages,
    examine_retention,
    examine_unread,
)
from source_snapshots import NOON, ORDERS, settings, snapshot, table_seen

WEEK = RemovalRules(timedelta(days=7))
OLDEST = (OldestMessage(0, 0, NOON - timedelta(days=2)), OldestMessage(1, 40, NOON - timedelta(hours=30)))


def examined(interval: timedelta | None = timedelta(hours=12), freshness: timedelta = timedelta(0)) -> DiagnosisInput:
    seen = snapshot(table_seen())
    return DiagnosisInput(settings(ORDERS), seen, (), "yes", False, interval, NOON, freshness=freshness)


def judged(rules: RemovalRules | None, **chosen: Any) -> list[Finding]:
    found = StreamRetention(rules, **{"oldest": OLDEST, **chosen})
    return about("hub", examine_retention(examined(), found, "hub"))


def test_messages_that_are_kept_for_long_are_good_with_their_numbers() -> None:
    (finding,) = judged(WEEK)
    assert (finding.grade, finding.check, finding.subject, finding.fix) == (Grade.GOOD, "retention", "hub", "")
    assert finding.text == "messages are kept for 7 days. The oldest one is 48.0 h old."
    (finding,) = judged(RemovalRules(None))
    assert (finding.grade, finding.fix) == (Grade.GOOD, "")
    assert finding.text.startswith("messages are kept without a limit of time.")


@pytest.mark.parametrize(
    ("kept", "grade", "text"),
    [
        (timedelta(hours=11), Grade.PROBLEM, "up to 12:00:00 are between two runs"),
        (timedelta(hours=12), Grade.RISK, "a run starts every 12:00:00: after few failed runs, changes are lost"),
        (timedelta(hours=35), Grade.RISK, "messages are kept for 1 day, 11:00:00,"),
        (timedelta(hours=36), Grade.GOOD, "messages are kept for 1 day, 12:00:00."),
    ],
)
def test_retention_is_compared_with_the_longest_time_between_runs(kept: timedelta, grade: Grade, text: str) -> None:
    (finding,) = judged(RemovalRules(kept))
    assert finding.grade is grade
    assert text in finding.text
    assert bool(finding.fix) is (grade is not Grade.GOOD)


def test_fix_sets_a_retention_that_is_good() -> None:
    (finding,) = judged(RemovalRules(timedelta(hours=1)))
    assert "--entity-name hub --add-config retention.ms=259200000 " in finding.fix
    rare = examined(timedelta(days=30))
    (finding,) = about("hub", examine_retention(rare, StreamRetention(WEEK), "hub"))
    assert finding.grade is Grade.PROBLEM
    milliseconds = int(finding.fix.partition("retention.ms=")[2].split()[0])
    raised = RemovalRules(timedelta(milliseconds=milliseconds))
    (finding,) = about("hub", examine_retention(rare, StreamRetention(raised), "hub"))
    assert finding.grade is Grade.GOOD


def test_pipeline_on_demand_needs_a_day() -> None:
    found = [
        about("hub", examine_retention(examined(None), StreamRetention(RemovalRules(timedelta(hours=kept))), "hub"))[0]
        for kept in (1, 24)
    ]
    assert [each.grade for each in found] == [Grade.RISK, Grade.GOOD]


def test_compaction_is_a_problem_whatever_the_retention() -> None:
    for rules in (replace(WEEK, is_compacted=True), RemovalRules(None, is_compacted=True)):
        problem, retention = judged(rules)
        assert (problem.grade, problem.check) == (Grade.PROBLEM, "cleanup policy")
        assert "cleanup.policy=delete" in problem.fix
        assert retention.grade is Grade.GOOD


@pytest.mark.parametrize(
    ("oldest", "grade", "text"),
    [
        (OLDEST[:1], Grade.NOTE, "depends on the number of changes"),
        ((OldestMessage(1, 40, None),), Grade.NOTE, "depends on the number of changes"),
        (OLDEST, Grade.RISK, "in partition 1, only the messages of the last 30.0 h are left"),
        ((OldestMessage(1, 40, NOON - timedelta(hours=36)),), Grade.GOOD, "that is 36.0 h in partition 1"),
    ],
)
def test_limit_of_bytes_is_judged_by_partitions_of_which_messages_were_removed(
    oldest: tuple[OldestMessage, ...], grade: Grade, text: str
) -> None:
    time, size = judged(replace(WEEK, kept_bytes=1_000_000), oldest=oldest)
    assert time.grade is Grade.GOOD
    assert (size.grade, size.check) == (grade, "retention size")
    assert size.text.startswith("a partition keeps 1,000,000 bytes at most: ")
    assert text in size.text
    assert ("retention.bytes=-1" in size.fix) is (grade is not Grade.GOOD)


@pytest.mark.parametrize(
    ("oldest", "known"),
    [
        ((), "long messages are kept (TOPIC_AUTHORIZATION_FAILED)."),
        (OLDEST[:1], "The oldest one is 48.0 h old."),
        (OLDEST, "Messages were removed, and the oldest one left in partition 1 is 30.0 h old."),
        ((OldestMessage(1, 40, None),), "The time of the oldest one is not known."),
    ],
)
def test_broker_that_does_not_show_its_rules_is_a_note_with_what_is_known(
    oldest: tuple[OldestMessage, ...], known: str
) -> None:
    (finding,) = judged(None, refusal="TOPIC_AUTHORIZATION_FAILED", oldest=oldest)
    assert finding.grade is Grade.NOTE
    assert finding.text.endswith(known)
    assert "1 day, 12:00:00 or more" in finding.fix


def test_files_are_a_note() -> None:
    (finding,) = about("hub", examine_retention(examined(), None, "hub"))
    assert finding.grade is Grade.NOTE
    assert "the owner of the folder" in finding.text
    assert list(examine_unread(examined(), None, ORDERS)) == []


def unread(table: UnreadMessages | None, rules: RemovalRules | None = WEEK, **chosen: Any) -> list[Finding]:
    tables: Mapping[Any, UnreadMessages] = {} if table is None else {ORDERS: table}
    return about(ORDERS, examine_unread(examined(**chosen), StreamRetention(rules, unread=tables), ORDERS))


@pytest.mark.parametrize(
    ("age", "grade", "text"),
    [
        (timedelta(hours=1), Grade.GOOD, "60 min old, and is kept for 7.0 days more."),
        (timedelta(days=6, hours=12), Grade.GOOD, "is kept for 12.0 h more."),
        (timedelta(days=6, hours=13), Grade.RISK, "is kept for 11.0 h more: a run may come too late."),
        (timedelta(days=8), Grade.RISK, "8.0 days old, and may be removed at any time."),
    ],
)
def test_unread_message_must_be_kept_until_the_next_run(age: timedelta, grade: Grade, text: str) -> None:
    (finding,) = unread(UnreadMessages(NOON - age))
    assert (finding.grade, finding.subject) == (grade, "dbo.Orders")
    assert finding.text.endswith(text)
    assert bool(finding.fix) is (grade is not Grade.GOOD)


def test_pipeline_on_demand_must_read_within_its_freshness() -> None:
    found = UnreadMessages(NOON - timedelta(days=6, hours=23))
    late = [unread(found, interval=None, freshness=timedelta(minutes=minutes)) for minutes in (60, 61)]
    assert [each.grade for (each,) in late] == [Grade.GOOD, Grade.RISK]


def test_messages_that_were_removed_before_they_were_read_are_a_problem() -> None:
    (finding,) = unread(UnreadMessages(NOON, "messages 3 to 7 of partition 0"), None)
    assert finding.grade is Grade.PROBLEM
    assert finding.text == "messages 3 to 7 of partition 0 were removed before they were read: changes are lost."
    assert "floodmark reload" in finding.fix
    assert "dbo.Orders" in finding.fix


def test_nothing_is_said_about_what_is_not_known_or_was_read() -> None:
    assert unread(None) == []
    assert unread(UnreadMessages()) == []
    assert unread(UnreadMessages(NOON), None) == []
    assert unread(UnreadMessages(NOON), RemovalRules(None)) == []
