"""``EventStream``: the messages of a topic. Adapters: ``capture_folder``.

A topic has partitions, and the messages of a partition have offsets without holes. Offsets are those that a consumer
sees: with Event Hubs, the sequence numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


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
