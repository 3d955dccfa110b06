"""How long a topic keeps its messages: the settings that its broker shows, and the times of messages.

Retention counts by the time of a message, which is the producer's, or the broker's with
``message.timestamp.type=LogAppendTime``.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from floodmark.core.doctor.stream_retention import RemovalRules
from floodmark.sources.event_stream.transport import Place

_BATCH_MESSAGES = 500
_LONGEST = timedelta(days=36_500)
"""A longer retention is none: tools write the greatest number for it."""


def read_rules(client: AdminClient, topic: str, timeout_seconds: float) -> tuple[RemovalRules | None, str]:
    """Return the rules, or None and the reason why the broker does not show them.

    Event Hubs may not have the request, and a login may lack the right to it.
    """
    resource = ConfigResource(ResourceType.TOPIC, topic)
    try:
        asked = client.describe_configs([resource], request_timeout=timeout_seconds)
        entries = asked[resource].result(timeout_seconds * 2)
    except KafkaException as error:
        return None, error.args[0].name()
    except FutureTimeoutError:
        return None, "it did not answer"
    return parse_rules({name: entry.value for name, entry in entries.items()})


def parse_rules(settings: Mapping[str, str | None]) -> tuple[RemovalRules | None, str]:
    """Return the rules in the settings of a topic, or None and the setting that is missing."""
    try:
        milliseconds = int(settings.get("retention.ms") or "")
        most_bytes = int(settings.get("retention.bytes") or "-1")
    except ValueError:
        return None, "it has no retention.ms"
    policy = {each.strip() for each in (settings.get("cleanup.policy") or "delete").split(",")}
    # Only the policy delete removes messages by their age and by the size of a partition.
    removes = "delete" in policy
    is_endless = milliseconds < 0 or milliseconds > _LONGEST // timedelta(milliseconds=1)
    kept = timedelta(milliseconds=milliseconds) if removes and not is_endless else None
    kept_bytes = most_bytes if removes and most_bytes >= 0 else None
    return RemovalRules(kept, kept_bytes, is_compacted="compact" in policy), ""


def read_times(consumer: Consumer, topic: str, places: Collection[Place], deadline: float) -> dict[Place, datetime]:
    """Return the times of messages in UTC, without those that have none, are gone, or do not come before a deadline."""
    found: dict[Place, datetime] = {}
    remaining = set(places)
    while remaining and time.monotonic() < deadline:
        waiting = dict(sorted(remaining))  # one offset of each partition
        remaining -= set(waiting.items())
        while waiting and time.monotonic() < deadline:
            consumer.assign([TopicPartition(topic, *place) for place in waiting.items()])
            messages: Sequence[Any] = ()
            while not messages and time.monotonic() < deadline:
                messages = consumer.consume(_BATCH_MESSAGES, timeout=1.0)
            for message in messages:
                offset = waiting.pop(message.partition(), None)
                if offset is not None and (at := _time_of(message)) is not None:
                    found[message.partition(), offset] = at
    return found


def _time_of(message: Any) -> datetime | None:
    kind, milliseconds = message.timestamp()
    if message.error() or kind == TIMESTAMP_NOT_AVAILABLE:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).replace(tzinfo=None)
    except (OverflowError, ValueError, OSError):
        return None  # a producer may write any number
