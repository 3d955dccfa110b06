"""The settings of a topic as rules of removal."""

from __future__ import annotations

from datetime import timedelta

import pytest

from floodmark.sources.event_stream.doctor import RemovalRules
from floodmark.sources.event_stream.kafka import parse_rules

DAY = {"retention.ms": "86400000", "retention.bytes": "-1", "cleanup.policy": "delete"}
ONE_DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        ({}, RemovalRules(ONE_DAY)),
        ({"retention.ms": "-1"}, RemovalRules(None)),
        ({"retention.ms": str(2**63 - 1)}, RemovalRules(None)),
        ({"retention.bytes": "1000"}, RemovalRules(ONE_DAY, 1000)),
        ({"cleanup.policy": "compact"}, RemovalRules(None, is_compacted=True)),
        ({"cleanup.policy": "compact, delete"}, RemovalRules(ONE_DAY, is_compacted=True)),
        ({"cleanup.policy": None, "retention.bytes": None}, RemovalRules(ONE_DAY)),
    ],
)
def test_settings_of_a_topic_are_rules(settings: dict[str, str | None], rules: RemovalRules) -> None:
    assert parse_rules({**DAY, **settings}) == (rules, "")


@pytest.mark.parametrize("settings", [{}, {"retention.ms": None}, {"retention.ms": "", "cleanup.policy": "delete"}])
def test_settings_without_a_retention_are_no_rules(settings: dict[str, str | None]) -> None:
    assert parse_rules(settings) == (None, "it has no retention.ms")
