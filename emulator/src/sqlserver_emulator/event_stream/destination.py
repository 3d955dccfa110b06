"""``Destination``: where the messages of event streams go. Adapters: ``capture_folder``, ``kafka_hubs``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from sqlserver_emulator.event_stream.messages import stream_error


@dataclass(frozen=True, slots=True)
class Hub:
    """An event hub, and the credential of the stream group that sends to it."""

    path: str
    """``namespace/hub``, the namespace in lower case."""
    identity: str = ""
    secret: str | None = field(default=None, repr=False)
    """None: the credential has none."""

    @property
    def name(self) -> str:
        """Return the name within the namespace."""
        return self.path.partition("/")[2]


class HubMessage(NamedTuple):
    """A message for a hub."""

    key: str | None
    """Messages with one key are in one partition, in order; those without a key are dealt to partitions in turn."""
    body: bytes


class Destination(Protocol):
    """A place with hubs."""

    @property
    def takes_amqp(self) -> bool:
        """Return whether groups of the type AzureEventHubsAmqp may lead here."""

    def send(self, hub: Hub, messages: Sequence[HubMessage]) -> None:
        """Deliver messages; when it returns, they are there to stay.

        Raises SqlServerError, with the number that sys.dm_change_feed_errors shows. Some may be there then.
        """

    def close(self) -> None:
        """Release what is open."""


class NoDestination:
    """A server that was started without a destination: no hub can be reached."""

    takes_amqp = True

    def send(self, hub: Hub, messages: Sequence[HubMessage]) -> None:
        """Raise 23679."""
        raise stream_error(
            23679, hub.path, "the emulator was started without --event-hubs-folder and without --event-hubs-broker"
        )

    def close(self) -> None:
        """Nothing is open."""
