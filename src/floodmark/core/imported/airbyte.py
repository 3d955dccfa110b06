"""The state of Airbyte's SQL Server source with CDC (docs/reference/imported_states.md, "Airbyte").

It has an offset of Debezium for the whole connection, and a state for each stream, which shows whether the initial load
of the table has ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from floodmark.core.imported.debezium import DebeziumOffsets, parse_pairs
from floodmark.core.imported.position import ImportedPosition, unreadable
from floodmark.core.schema import TableName

TOOL = "Airbyte"
_OFFSET = "mssql_cdc_offset"
_FORM = (
    "Give the state of the connection as JSON: what the settings of the connection show, or a state message of type "
    "GLOBAL. Older forms are not supported."
)
_LOADING = "Airbyte's initial load of the table has not ended. Let a sync run to its end, and import its state."


@dataclass(frozen=True, slots=True)
class AirbyteState:
    """The state of a connection of Airbyte."""

    offsets: DebeziumOffsets
    streams: Mapping[tuple[str, str], str]
    """By the folded name of each table, why its rows are not complete; "" where they are."""

    def position_in(self, database: str) -> ImportedPosition:
        """Return the position in the log of a database. Raises OperatorError."""
        return replace(self.offsets.position_in(database), tables=self.streams)


def parse_airbyte_state(text: str) -> AirbyteState:
    """Return the state that a text spells. Raises ConfigError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise unreadable(TOOL, "the text is not JSON.", _FORM) from None
    found = [each[_OFFSET] for each in _objects(document) if _OFFSET in each]
    if len(found) != 1 or not isinstance(found[0], dict):
        count = "no" if not found else "not one"
        raise unreadable(TOOL, f"the JSON has {count} {_OFFSET}.", _FORM)
    offsets = DebeziumOffsets(parse_pairs(found[0].items(), TOOL), tool=TOOL)
    streams = dict(_streams(document))
    if not streams:
        raise unreadable(TOOL, "the JSON lists no stream.", _FORM)
    return AirbyteState(offsets, streams)


def _streams(document: Any) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the streams. Messages spell their keys with underscores, Airbyte's own interface in camel case."""
    for each in _objects(document):
        descriptor = each.get("stream_descriptor", each.get("streamDescriptor"))
        if not isinstance(descriptor, dict):
            continue
        name, namespace = descriptor.get("name"), descriptor.get("namespace")
        if not isinstance(name, str) or not isinstance(namespace, str):
            raise unreadable(TOOL, "a stream has no name or no namespace, which is the schema of its table.", _FORM)
        state = each.get("stream_state", each.get("streamState"))
        yield TableName(namespace, name).folded, "" if _is_complete(state) else _LOADING


def _is_complete(state: Any) -> bool:
    """Return whether a stream follows the log: a state of an initial load has a type, one without any is empty."""
    return isinstance(state, dict) and bool(state) and state.get("state_type") is None


def _objects(document: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a JSON document."""
    waiting = [document]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            yield each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
