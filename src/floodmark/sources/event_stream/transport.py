"""``EventStream``: the messages of a topic. Adapters: ``capture_folder``, ``kafka_stream``.

A topic has partitions, and the messages of a partition have offsets without holes. Offsets are those that a consumer
sees: with Event Hubs, the sequence numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from floodmark.core.doctor.stream_retention import RemovalRules

Place = tuple[int, int]
"""A partition and an offset."""


@dataclass(frozen=True, slots=True)
class PartitionEnds:
    """The messages that a partition has: ``[low, high)``."""

    low: int
    """The offset of the oldest message; ``high`` where there is none."""
    high: int
    """The offset that the next message will have."""


class RawMessage(NamedTuple):
    """A message as it was read."""

    offset: int
    body: bytes | None
    """None for a message without one."""


@dataclass(frozen=True, slots=True)
class KeptMessages:
    """How long a topic keeps its messages."""

    rules: RemovalRules | None
    """None where the broker does not show them."""
    refusal: str
    """The reason why it does not."""
    times: Mapping[Place, datetime]
    """The times in UTC, by which retention counts, of messages that were asked for."""


class StreamGapError(Exception):
    """Messages of a planned window are not there, or no longer. The text has no content of a message."""


class EventStream(Protocol):
    """A topic. It is picklable, with the secrets of its connection. Methods raise from ``core.errors``."""

    @property
    def topic(self) -> str:
        """Return the name of the topic."""

    def read_ends(self) -> Mapping[int, PartitionEnds]:
        """Return what each partition has now. Raises ConfigError for a topic that does not exist."""

    def read(self, partition: int, begin: int, end: int) -> Iterator[Sequence[RawMessage]]:
        """Yield the messages ``[begin, end)`` of a partition, each once and in order.

        Raises StreamGapError where one of them is missing.
        """

    def read_retention(self, places: Collection[Place]) -> KeptMessages | None:
        """Return how long messages are kept, with the times of some. None: the owner of a folder removes its files."""
