"""``KafkaTopic``: where a topic is that is read by the Kafka protocol: Apache Kafka, or the endpoint of Event Hubs.

``kafka_stream`` reads it, and needs the extra ``floodmark[kafka]``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from floodmark.carried_file import path_of, read_file
from floodmark.core.dataset import Dataset, topic_dataset

SETTINGS = frozenset({"security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username", "client.id"})
"""The settings of librdkafka that a connection may have, besides those that are fields of ``KafkaTopic``."""


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """A topic and the login that reads it. It travels as JSON."""

    servers: str
    """Hosts with their ports, with commas between them."""
    topic: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of ``SETTINGS``."""
    password: str = field(default="", repr=False)
    ca_file: str = ""
    """The file (PEM) with the only trusted authorities; empty for those of the system."""
    ca_pem: str = field(default="", repr=False)
    """The contents of ``ca_file``, where the connection has travelled to another machine."""

    def portable(self) -> KafkaTopic:
        """Return the topic with the contents of its file, for other machines. Raises ValueError."""
        return replace(self, ca_pem=read_file(self.ca_file, str(self), "ca_file")) if self.ca_file else self

    @property
    def dataset(self) -> Dataset:
        return topic_dataset(self.servers, self.topic)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts by which the cluster is found."""
        return tuple(each.strip().rpartition(":")[0] or each.strip() for each in self.servers.split(","))

    def __str__(self) -> str:
        return f"{self.topic} at {self.servers}"

    @property
    def ca_path(self) -> str:
        """Return the path of the trusted authorities on this machine; empty for those of the system."""
        return path_of(self.ca_pem) if self.ca_pem else self.ca_file
