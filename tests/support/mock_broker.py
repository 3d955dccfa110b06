"""A broker of the Kafka protocol inside of librdkafka, without a process and without Java.

Other clients reach it at its address. It has four partitions for each topic, in memory alone.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer


@contextmanager
def mock_broker(**settings: object) -> Iterator[tuple[Any, str]]:
    """A broker inside of librdkafka: it lives as long as its producer."""
    producer = Producer({"test.mock.num.brokers": 1, **settings}, logger=logging.getLogger("mock_broker"))
    (broker,) = producer.list_topics(timeout=20).brokers.values()
    yield producer, f"{broker.host}:{broker.port}"
