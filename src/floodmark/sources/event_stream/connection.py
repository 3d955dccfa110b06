"""``StreamConnection``: the database whose changes are streamed, and the topic that has them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from floodmark.sources.event_stream.capture_folder import CaptureFolder
from floodmark.sources.event_stream.transport import EventStream
from floodmark.sources.sqlserver.connection import SqlServerConnection


@dataclass(frozen=True, slots=True)
class StreamConnection:
    """A source of kind ``event_stream``. It travels to the load job as JSON."""

    database: SqlServerConnection
    stream: CaptureFolder

    @classmethod
    def from_json(cls, text: str) -> StreamConnection:
        """Return the connection that ``to_json`` wrote. Raises ValueError or TypeError for any other text."""
        document = json.loads(text)
        return cls(SqlServerConnection(**document["database"]), CaptureFolder(**document["stream"]))

    def to_json(self) -> str:
        """Return the connection as JSON, with its passwords: for an environment variable, never a log."""
        return json.dumps({"database": asdict(self.database), "stream": asdict(self.stream)})

    def portable(self) -> StreamConnection:
        """Return the connection with the contents of its files, for other machines. Raises ValueError."""
        return replace(self, database=self.database.portable())

    @property
    def host(self) -> str:
        """Return the host of the database."""
        return self.database.host

    def open_stream(self) -> EventStream:
        """Return the topic."""
        return self.stream
