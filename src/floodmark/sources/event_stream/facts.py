"""The facts about a stream for a diagnosis."""

from __future__ import annotations

from floodmark.core.doctor.stream import StreamFacts
from floodmark.sources.event_stream.connection import StreamConnection


def read_stream_facts(connection: StreamConnection) -> StreamFacts:
    """Return the facts. Raises ConfigError for a stream that cannot be reached."""
    stream = connection.open_stream()
    ends = stream.read_ends()
    return StreamFacts(stream.topic, len(ends), sum(end.high - end.low for end in ends.values()))
