"""``KafkaStream``: the messages of a topic, by the Kafka protocol, and how long the topic keeps them."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from floodmark.core.errors import ConfigError, FloodmarkError, SourceLoginError, SourceUnavailableError
from floodmark.sources.event_stream.doctor import RemovalRules
from floodmark.sources.event_stream.transport import (
    KafkaTopic,
    KeptMessages,
    PartitionEnds,
    Place,
    RawMessage,
    StreamGapError,
)

# --------------------------------------------------------------------------------------------------------------------
# ``BrokerReports``: the errors of a topic's broker, and the reasons that librdkafka reports while a call waits for it.
#
# A call that gets no answer ends with a timeout or a lost connection. Why there is none, a refused login for instance,
# only a callback shows, in a poll.


_LOGIN = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)
_HANDSHAKES = 3
"""The number of TLS handshakes that have to fail: one also fails where the broker ends meanwhile."""
_LOST_CONNECTION = ("Local: ", "SSL transport error")
"""The words of librdkafka for a login or a handshake that got no answer, under the code of a refused one."""


class BrokerReports:
    """The errors of one consumer."""

    def __init__(self, at: KafkaTopic) -> None:
        self._at = at
        self._reported: list[Any] = []

    def note(self, error: Any) -> None:
        """Keep an error; librdkafka's callback."""
        self._reported.append(error)

    def refusal(self) -> FloodmarkError | None:
        """Return the error of a broker that refuses: to wait for it is of no use."""
        return self._refusal_in(self._reported)

    def _refusal_in(self, errors: Sequence[Any]) -> FloodmarkError | None:
        answers = [each for each in errors if not any(words in each.str() for words in _LOST_CONNECTION)]
        login = next((each for each in answers if each.code() in _LOGIN), None)
        if login is not None:
            return self._refused_login(login)
        handshakes = [each for each in answers if each.code() == KafkaError._SSL]
        return self._no_trust(handshakes[-1]) if len(handshakes) >= _HANDSHAKES else None

    def translated(self, error: Any) -> FloodmarkError:
        """Return the error of a call that failed, with the reason that was reported."""
        return self._refusal_in([error, *self._reported]) or self.unavailable((self._reported or [error])[-1].str())

    def unavailable(self, cause: str) -> SourceUnavailableError:
        hint = "Check the broker and the connection of the stream."
        return SourceUnavailableError(str(self._at), f"the topic cannot be read: {cause}.", hint)

    def _refused_login(self, error: Any) -> SourceLoginError:
        return SourceLoginError(
            str(self._at), f"the broker refused the login ({error.name()}).", "Correct the connection of the stream."
        )

    def _no_trust(self, error: Any) -> SourceLoginError:
        hint = "Correct ssl.ca.location or security.protocol in the connection of the stream."
        return SourceLoginError(str(self._at), f"there is no secure connection: {error.str()}.", hint)


# --------------------------------------------------------------------------------------------------------------------
# How long a topic keeps its messages: the settings that its broker shows, and the times of messages.
#
# Retention counts by the time of a message, which is the producer's, or the broker's with
# ``message.timestamp.type=LogAppendTime``.


_FIRST_MESSAGES = 500
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
                messages = consumer.consume(_FIRST_MESSAGES, timeout=1.0)
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


# --------------------------------------------------------------------------------------------------------------------
# ``KafkaStream``: the messages of a topic, by the Kafka protocol.
#
# Each call opens a consumer and closes it. Offsets come from the arguments alone: no consumer group stores any, and an
# offset that the broker does not have is an error, never another offset. librdkafka connects in threads of its own, and
# reports what it meets to a callback; what it would write to the terminal is dropped.


_TIMEOUT_SECONDS = 30.0
"""The time in which a broker must answer, and in which a read must bring a message."""
_FIRST_ASK_SECONDS = 1.0
"""The first question to a broker waits so long; each one after it twice as long."""
_SETTINGS_SECONDS = 10.0
"""The time in which a broker must show the settings of a topic; Event Hubs may never do."""
_BATCH_MESSAGES = 2_000
_SILENT = logging.getLogger("floodmark.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class _HoleError(Exception):
    """A partition has later offsets, and no message at this one."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class KafkaStream:
    """``transport.EventStream``."""

    at: KafkaTopic

    @property
    def topic(self) -> str:
        return self.at.topic

    def read_ends(self) -> Mapping[int, PartitionEnds]:
        with self._consumer() as (consumer, reports):
            return {number: self._read_end(consumer, number) for number in self._list_partitions(consumer, reports)}

    def _read_end(self, consumer: Consumer, partition: int) -> PartitionEnds:
        place = TopicPartition(self.at.topic, partition)
        return PartitionEnds(*consumer.get_watermark_offsets(place, _TIMEOUT_SECONDS, cached=False))

    def read(self, partition: int, begin: int, end: int) -> Iterator[Sequence[RawMessage]]:
        if begin >= end:
            return
        with self._consumer() as (consumer, reports):
            if partition not in self._list_partitions(consumer, reports):
                raise StreamGapError(f"there is no partition {partition}")
            self._require(consumer, partition, begin, end)
            consumer.assign([TopicPartition(self.at.topic, partition, begin)])
            expected, deadline = begin, time.monotonic() + _TIMEOUT_SECONDS
            while expected < end:
                # Not more than there are: the call would wait for others.
                wanted = min(_BATCH_MESSAGES, end - expected)
                try:
                    found = self._take(consumer.consume(wanted, timeout=1.0), partition, expected, reports)
                except _HoleError as hole:
                    raise self._explain_hole(consumer, partition, hole.offset) from None
                if found:
                    expected, deadline = found[-1].offset + 1, time.monotonic() + _TIMEOUT_SECONDS
                    yield found
                elif time.monotonic() > deadline:
                    raise reports.unavailable(f"message {expected} of partition {partition} did not arrive in time")

    def read_retention(self, places: Collection[Place]) -> KeptMessages:
        with self._consumer() as (consumer, _):
            times = read_times(consumer, self.at.topic, places, time.monotonic() + _TIMEOUT_SECONDS)
        client = AdminClient(self._connection(), logger=_SILENT)
        return KeptMessages(*read_rules(client, self.at.topic, _SETTINGS_SECONDS), times)

    def _require(self, consumer: Consumer, partition: int, begin: int, end: int) -> None:
        """Raise StreamGapError unless a partition has some messages. The broker would let a consumer wait for them."""
        found = self._read_end(consumer, partition)
        if found.low > begin:
            raise StreamGapError(f"message {begin} of partition {partition} is no longer in the stream")
        if found.high < end:
            raise StreamGapError(f"partition {partition} ends at {found.high}, and the window ends at {end}")

    def _explain_hole(self, consumer: Consumer, partition: int, offset: int) -> ConfigError | StreamGapError:
        if self._read_end(consumer, partition).low > offset:
            return StreamGapError(f"message {offset} of partition {partition} is no longer in the stream")
        return ConfigError(
            str(self.at),
            f"partition {partition} has no message {offset}, but later offsets: the topic is compacted, or written in "
            "transactions. Then a missing message cannot be known.",
            "Use a topic with the cleanup policy delete, to which messages are sent without transactions.",
        )

    def _take(self, messages: Sequence[Any], partition: int, expected: int, reports: BrokerReports) -> list[RawMessage]:
        """Return messages. Raises _HoleError if the next is not the expected one."""
        found = []
        for message in messages:
            error = message.error()
            is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
            if error is not None and not is_end:
                self._refuse(error, partition, expected, reports)
            elif message.offset() > expected:
                raise _HoleError(expected)
            elif not is_end:
                found.append(RawMessage(message.offset(), message.value()))
                expected += 1
        return found

    def _refuse(self, error: Any, partition: int, expected: int, reports: BrokerReports) -> None:
        """Raise the error of a message that is none."""
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise StreamGapError(f"message {expected} of partition {partition} is no longer in the stream")
        if error.code() in (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART):
            raise StreamGapError(f"there is no partition {partition}")
        if not error.retriable():
            raise reports.translated(error)

    def _list_partitions(self, consumer: Consumer, reports: BrokerReports) -> list[int]:
        found = self._ask_topic(consumer, reports)
        if found.error is not None:
            if found.error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
                raise ConfigError(
                    str(self.at), "there is no such topic.", "Correct the topic in the connection of the stream."
                )
            raise reports.translated(found.error)
        return sorted(found.partitions)

    def _ask_topic(self, consumer: Consumer, reports: BrokerReports) -> Any:
        """Return the broker's answer about the topic. A broker that refuses is not asked until the time is over."""
        deadline, seconds = time.monotonic() + _TIMEOUT_SECONDS, _FIRST_ASK_SECONDS
        while True:
            try:
                return consumer.list_topics(self.at.topic, timeout=seconds).topics[self.at.topic]
            except KafkaException:
                consumer.poll(0)  # calls back
                if refusal := reports.refusal():
                    raise refusal from None
                seconds = min(seconds * 2, deadline - time.monotonic())
                if seconds <= 0:
                    raise

    @contextmanager
    def _consumer(self) -> Iterator[tuple[Consumer, BrokerReports]]:
        reports = BrokerReports(self.at)
        try:
            consumer = Consumer({**self._configuration(), "error_cb": reports.note}, logger=_SILENT)
        except KafkaException as error:
            raise ConfigError(
                str(self.at), f"{error.args[0].str()}.", "Correct the connection of the stream."
            ) from None
        try:
            yield consumer, reports
        except KafkaException as error:
            raise reports.translated(error.args[0]) from None
        except SourceUnavailableError as error:
            raise reports.refusal() or error from None
        finally:
            consumer.close()

    def _connection(self) -> dict[str, Any]:
        known = {"sasl.password": self.at.password} if self.at.password else {}
        if self.at.ca_path:
            known["ssl.ca.location"] = self.at.ca_path
        return {**self.at.settings, **known, "bootstrap.servers": self.at.servers}

    def _configuration(self) -> dict[str, Any]:
        return {
            **self._connection(),
            # A name is required, and nothing is stored under it.
            "group.id": "floodmark",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            # Every offset counts, also one of a transaction that was aborted.
            "isolation.level": "read_uncommitted",
            # The end of a transaction may be the last offset: no message follows it.
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
        }
