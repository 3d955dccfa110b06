"""``BrokerDestination``: the choice of a Kafka broker, without the package that speaks its protocol."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlserver_emulator.event_stream.destination import Destination


class MissingExtraError(Exception):
    """A package is not installed, and the message names the extra that has it."""


@dataclass(frozen=True, slots=True)
class BrokerDestination:
    """Where change event streams go: the topics of a Kafka broker."""

    servers: str
    """Hosts with their ports, with commas between them."""
    ca_file: Path | None = None
    """The only trusted authorities (PEM). With it the broker has TLS, and gets the credentials of stream groups."""

    def open(self) -> Destination:
        """Return the destination. Raises MissingExtraError; that the broker is there is asked at each delivery."""
        try:
            from sqlserver_emulator.event_stream.kafka_hubs import KafkaHubs  # noqa: PLC0415  (an extra)
        except ImportError:
            raise MissingExtraError(
                "the package confluent-kafka is not installed. Install sqlserver-emulator[kafka]."
            ) from None
        return KafkaHubs(self.servers, self.ca_file)
