"""A Kafka broker as the destination: a hub is a topic, the partition key is the key of the message.

It needs the extra ``sqlserver-emulator[kafka]``. librdkafka connects in threads of its own, and reports what it meets
to a callback; what it would write to the terminal is dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.event_stream.destination import Hub, HubMessage
from sqlserver_emulator.event_stream.messages import stream_error

_TIMEOUT_SECONDS = 10.0
"""The time in which the broker must answer, and in which it must confirm a part of the messages."""
_FIRST_ASK_SECONDS = 1.0
"""The first question to the broker waits so long; each one after it twice as long."""
_PART_BYTES = 8 << 20
_ANY_PARTITION = -1
_SILENT = logging.getLogger("sqlserver_emulator.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
_NUMBERS = {
    KafkaError._AUTHENTICATION: 23681,
    KafkaError.SASL_AUTHENTICATION_FAILED: 23681,
    KafkaError._SSL: 23694,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: 23690,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: 23690,
    KafkaError.UNKNOWN_TOPIC_OR_PART: 23680,
    KafkaError._UNKNOWN_TOPIC: 23680,
    KafkaError._TRANSPORT: 23679,
    KafkaError._RESOLVE: 23679,
    KafkaError._ALL_BROKERS_DOWN: 23679,
    KafkaError.MSG_SIZE_TOO_LARGE: 23646,
    KafkaError._MSG_TIMED_OUT: 23692,
    KafkaError._TIMED_OUT: 23693,
}
_LOST_CONNECTION = ("Local: ", "SSL transport error")
"""The words of librdkafka for a login or a handshake that got no answer, under the code of a refused one."""
_CAUSES = (23681, 23694)
"""The numbers of what the callback reports that explain why a call got no answer."""


class KafkaHubs:
    """The topics of one broker. With ``ca_file`` it has TLS and wants a login. Not thread-safe."""

    takes_amqp = False

    def __init__(self, servers: str, ca_file: Path | None) -> None:
        self._servers = servers
        self._ca_file = ca_file
        self._clients: dict[Hub, _Client] = {}
        self._turns = count()

    def send(self, hub: Hub, messages: Sequence[HubMessage]) -> None:
        """Deliver messages. What was not confirmed when it fails is dropped, so that nothing arrives later."""
        try:
            client = self._clients.get(hub) or self._connect(hub)
            partitions = client.count_partitions()
            for part in _parts(messages):
                client.deliver(part, self._turns, partitions)
        except BaseException:
            self._drop(hub)
            raise

    def close(self) -> None:
        for hub in list(self._clients):
            self._drop(hub)

    def _connect(self, hub: Hub) -> _Client:
        try:
            client = _Client(hub, {"bootstrap.servers": self._servers, **self._login(hub)})
        except KafkaException as error:
            raise stream_error(23677, hub.path, error.args[0].str()) from None
        self._clients[hub] = client
        return client

    def _login(self, hub: Hub) -> dict[str, str]:
        if self._ca_file is None:
            return {}
        if hub.secret is None:
            raise stream_error(23613, hub.identity)
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._ca_file),
            "sasl.mechanism": "PLAIN",
            "sasl.username": hub.identity,
            "sasl.password": hub.secret,
        }

    def _drop(self, hub: Hub) -> None:
        if (client := self._clients.pop(hub, None)) is not None:
            client.close()


class _Client:
    """A producer for one hub."""

    def __init__(self, hub: Hub, settings: dict[str, str]) -> None:
        self._hub = hub
        self._reported: list[KafkaError] = []
        self._failed: list[KafkaError] = []
        limits = {
            # A batch has one message of any size, or several up to batch.size; the broker has the limit that counts.
            "message.max.bytes": 4 << 20,
            "delivery.timeout.ms": int(_TIMEOUT_SECONDS * 1000),
            "queue.buffering.max.messages": 0,
            "queue.buffering.max.kbytes": (1 << 21) - 1,
        }
        kept = {"enable.idempotence": True, "partitioner": "consistent", "error_cb": self._reported.append}
        self._producer = Producer({**settings, **limits, **kept}, logger=_SILENT)

    def count_partitions(self) -> int:
        """Return how many partitions the hub has now. Raises 23680 where there is none."""
        topics = self._list_topics()
        if self._hub.name not in topics:
            raise stream_error(23680, self._hub.path, "the broker has no such topic")
        return len(topics[self._hub.name].partitions)

    def _list_topics(self) -> dict[str, Any]:
        """Return all topics: asked for one, a broker may create it. A broker that refuses is asked once."""
        deadline, seconds = time.monotonic() + _TIMEOUT_SECONDS, _FIRST_ASK_SECONDS
        while True:
            try:
                found: dict[str, Any] = self._producer.list_topics(timeout=seconds).topics
            except KafkaException as error:
                seconds = min(seconds * 2, deadline - time.monotonic())
                translated = self._translated(error.args[0])
                if translated.number in _CAUSES or seconds <= 0:
                    raise translated from None
            else:
                return found

    def deliver(self, messages: Sequence[HubMessage], turns: Iterator[int], partitions: int) -> None:
        """Send messages, and return when the broker has confirmed each."""
        for key, body in messages:
            partition = next(turns) % partitions if key is None else _ANY_PARTITION
            coded = None if key is None else key.encode("utf-8", "surrogatepass")
            self._producer.produce(self._hub.name, body, coded, partition, on_delivery=self._note)
        left = self._producer.flush(_TIMEOUT_SECONDS * 2)
        if self._failed:
            raise self._translated(self._failed[0])
        if left:
            raise stream_error(23692, self._hub.path, "the broker has not confirmed all messages in time")

    def close(self) -> None:
        self._producer.purge()
        self._producer.close()

    def _note(self, error: KafkaError | None, _message: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def _translated(self, error: KafkaError) -> SqlServerError:
        """Return the error of a call. What librdkafka reported meanwhile says why there was no answer."""
        self._producer.poll(0)
        known = {_number(each): each for each in self._reported}
        cause = next((known[number] for number in _CAUSES if number in known), error)
        return stream_error(_number(cause), self._hub.path, cause.str())


def _number(error: KafkaError) -> int:
    number = _NUMBERS.get(error.code(), 23677)
    is_lost = number in _CAUSES and any(words in error.str() for words in _LOST_CONNECTION)
    return 23679 if is_lost else number


def _parts(messages: Sequence[HubMessage]) -> Iterator[Sequence[HubMessage]]:
    """Yield the messages in parts that a broker confirms in time."""
    start = size = 0
    for place, message in enumerate(messages):
        size += len(message.body)
        if size >= _PART_BYTES:
            yield messages[start : place + 1]
            start, size = place + 1, 0
    if start < len(messages):
        yield messages[start:]
