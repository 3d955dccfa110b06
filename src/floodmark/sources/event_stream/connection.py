"""``StreamConnection``: the database whose changes are streamed, and the topic that has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from floodmark.core.errors import ConfigError
from floodmark.sources.event_stream.capture_folder import CaptureFolder
from floodmark.sources.event_stream.kafka_topic import KafkaTopic
from floodmark.sources.event_stream.transport import EventStream
from floodmark.sources.sqlserver.connection import SqlServerConnection

_TRANSPORTS: dict[str, type[CaptureFolder | KafkaTopic]] = {"folder": CaptureFolder, "kafka": KafkaTopic}


@dataclass(frozen=True, slots=True)
class StreamConnection:
    """A source of kind ``event_stream``. It travels to the load job as JSON."""

    database: SqlServerConnection
    stream: CaptureFolder | KafkaTopic

    @classmethod
    def from_json(cls, text: str) -> StreamConnection:
        """Return the connection that ``to_json`` wrote. Raises ValueError or TypeError for any other text."""
        document = json.loads(text)
        transport = _TRANSPORTS[document["transport"]]
        return cls(SqlServerConnection(**document["database"]), transport(**document["stream"]))

    def to_json(self) -> str:
        """Return the connection as JSON, with its passwords: for an environment variable, never a log."""
        transport = next(name for name, kind in _TRANSPORTS.items() if isinstance(self.stream, kind))
        document = {"database": asdict(self.database), "transport": transport, "stream": asdict(self.stream)}
        return json.dumps(document)

    def portable(self) -> StreamConnection:
        """Return the connection with the contents of its files, for other machines. Raises ValueError."""
        return StreamConnection(self.database.portable(), self.stream.portable())

    @property
    def hosts(self) -> Mapping[str, str]:
        """Return the hosts that are read, by what they are."""
        brokers = self.stream.hosts
        return {"source": self.database.host, **({"stream": brokers[0]} if brokers else {})}

    def open_stream(self) -> EventStream:
        """Return the topic. Raises ConfigError where the library that reads it is not installed."""
        if isinstance(self.stream, CaptureFolder):
            return self.stream
        try:
            from floodmark.sources.event_stream.kafka_stream import KafkaStream  # noqa: PLC0415  (an extra)
        except ImportError:
            raise ConfigError(
                str(self.stream), "the package confluent-kafka is not installed.", "Install floodmark[kafka]."
            ) from None
        return KafkaStream(self.stream)
