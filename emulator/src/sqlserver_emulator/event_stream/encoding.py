"""A change becomes the messages that the server sends (docs/reference/event_stream.md).

Values are texts already. The third generation is written by default. The others have their own layout of the data and
of the places of segments.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from io import BytesIO
from typing import Any

import orjson
from fastavro import schemaless_writer

from sqlserver_emulator.event_stream.schemas import DATA_SCHEMA, ENVELOPE_SCHEMA, PREVIEW_DATA_SCHEMA

DEFAULT_MESSAGE_BYTES = 256 << 10
FIRST_SEGMENT = 0
"""The index of the first segment in the third generation. Published examples and consumers differ; this is assumed."""
_EVENT_TYPE = "com.microsoft.SQL.CES.DML.V1"
_LONGEST_ESCAPE = 6
_MOST_VARINT_BYTES = 5
_EMPTY_END = b'"data":""}'
_HIGHEST_INDEX = 9_999_999


class Generation(Enum):
    """A version of the format: docs/reference/event_stream.md, "Generations"."""

    G1 = 1
    G2 = 2
    G3 = 3


@dataclass(frozen=True, slots=True)
class OutgoingChange:
    """A change of a row, with every value as text."""

    database: str
    schema: str
    table: str
    columns: tuple[tuple[str, str, int], ...]
    """Name, declared type and 0-based place of each column."""
    key: tuple[tuple[str, str], ...]
    """Name and value of each column of the primary key."""
    guid: str
    """The first part of ``logicalid``."""
    commit_lsn: bytes
    """Ten bytes."""
    begin_lsn: bytes
    """Ten bytes."""
    sequence: int
    """The place of the change in its transaction, from 1."""
    committed_at: datetime
    operation: str
    """INS, UPD or DEL."""
    old: Mapping[str, str | None]
    current: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class MessageForm:
    """The form in which changes are written."""

    generation: Generation = Generation.G3
    is_avro: bool = False
    limit_bytes: int = DEFAULT_MESSAGE_BYTES
    """The most bytes of a serialised message."""


def encode_change(change: OutgoingChange, form: MessageForm, new_id: Callable[[], str]) -> list[bytes]:
    """Return the messages of a change, in the order of their segments.

    new_id: returns the ``id`` of each message; all have one length. Raises ValueError for a limit that the attributes
    alone exceed, and for Avro in the first generation, which has no schema.
    """
    if form.is_avro:
        if form.generation is Generation.G1:
            raise ValueError("there is no Avro schema of the first generation")
        return _encode_avro(change, form, new_id)
    return _encode_json(change, form, new_id)


def build_data(change: OutgoingChange, form: MessageForm) -> dict[str, Any]:
    """Return the data of an event, with both images as texts of JSON."""
    source: dict[str, Any] = {
        "db": change.database,
        "schema": change.schema,
        "tbl": change.table,
        "cols": [{"name": name, "type": declared, "index": index} for name, declared, index in change.columns],
        "pkkey": [{"columnname": name, "value": value} for name, value in change.key],
    }
    if form.generation is not Generation.G1:
        final_event = {"finalevent": False} if form.generation is Generation.G3 else {}
        source["transaction"] = {
            "commitlsn": _with_colons(change.commit_lsn),
            "beginlsn": _with_colons(change.begin_lsn),
            "sequencenumber": change.sequence,
            **final_event,
            "committime": _time(change.committed_at),
        }
    is_compact = form.generation is Generation.G3
    images = {"old": _image(change.old, is_compact), "current": _image(change.current, is_compact)}
    return {"eventsource": source, "eventrow": images}


def _encode_json(change: OutgoingChange, form: MessageForm, new_id: Callable[[], str]) -> list[bytes]:
    data = build_data(change, form)
    text = _compact(data) if form.generation is Generation.G3 else _indented(data)
    escaped = orjson.dumps(text)[1:-1]

    def build(message_id: str, place: dict[str, Any], part: bytes) -> bytes:
        attributes = orjson.dumps(_attributes(change, form, message_id) | place | {"data": ""})
        # The server escapes the slashes of its attributes.
        head = attributes.removesuffix(_EMPTY_END).replace(b"/", b"\\/")
        return head + _EMPTY_END[:-2] + part + _EMPTY_END[-2:]

    first_id = new_id()
    whole = build(first_id, _place(form, 0, 1), escaped)
    if len(whole) <= form.limit_bytes:
        return [whole]
    room = form.limit_bytes - len(build(first_id, _place(form, _HIGHEST_INDEX, _HIGHEST_INDEX + 2), b""))
    if room < _LONGEST_ESCAPE:
        raise ValueError("the limit of a message leaves no room for data")
    parts = list(split_escaped(escaped, room))
    return [
        build(new_id() if index else first_id, _place(form, index, len(parts)), part)
        for index, part in enumerate(parts)
    ]


def _encode_avro(change: OutgoingChange, form: MessageForm, new_id: Callable[[], str]) -> list[bytes]:
    schema = DATA_SCHEMA if form.generation is Generation.G3 else PREVIEW_DATA_SCHEMA
    datum = _datum(schema, _without_halves(build_data(change, form)))

    def build(message_id: str, place: dict[str, Any], part: bytes) -> bytes:
        return _datum(ENVELOPE_SCHEMA, _attributes(change, form, message_id) | place | {"data": part})

    first_id = new_id()
    whole = build(first_id, _place(form, 0, 1), datum)
    if len(whole) <= form.limit_bytes:
        return [whole]
    empty = build(first_id, _place(form, _HIGHEST_INDEX, _HIGHEST_INDEX + 2), b"")
    room = form.limit_bytes - len(empty) - _MOST_VARINT_BYTES
    if room < 1:
        raise ValueError("the limit of a message leaves no room for data")
    parts = [datum[start : start + room] for start in range(0, len(datum), room)]
    return [
        build(new_id() if index else first_id, _place(form, index, len(parts)), part)
        for index, part in enumerate(parts)
    ]


def split_escaped(escaped: bytes, room: int) -> Iterator[bytes]:
    """Yield parts of the inside of a JSON string, of at most ``room`` bytes each.

    No part ends inside a code point or an escape. room: at least the length of the longest escape.
    """
    start = 0
    while start < len(escaped):
        end = min(start + room, len(escaped))
        if end < len(escaped):
            end = _cut_before(escaped, start, end)
        yield escaped[start:end]
        start = end


def _cut_before(escaped: bytes, start: int, end: int) -> int:
    """Return the last place up to ``end`` that is between two code points and not inside an escape."""
    while escaped[end] & 0xC0 == 0x80:  # the next byte continues a code point
        end -= 1
    for at in range(max(start, end - _LONGEST_ESCAPE + 1), end):
        if escaped[at] == 0x5C and _begins_escape(escaped, start, at):
            length = _LONGEST_ESCAPE if escaped[at + 1] == 0x75 else 2
            if at + length > end:
                return at
    return end


def _begins_escape(escaped: bytes, start: int, at: int) -> bool:
    """Return whether a backslash begins an escape: an even number of them precedes it in a part that begins whole."""
    first = at
    while first > start and escaped[first - 1] == 0x5C:
        first -= 1
    return (at - first) % 2 == 0


def _attributes(change: OutgoingChange, form: MessageForm, message_id: str) -> dict[str, Any]:
    kind = "avro-json" if form.generation is Generation.G2 else "json"
    return {
        "specversion": "1.0",
        "type": _EVENT_TYPE,
        "source": "/",
        "id": message_id,
        "logicalid": f"{change.guid}:{change.commit_lsn.hex().upper()}:{change.sequence:020}",
        "time": _time(change.committed_at),
        "datacontenttype": f"application/{kind}",
        "operation": change.operation,
    }


def _place(form: MessageForm, index: int, count: int) -> dict[str, Any]:
    if form.generation is Generation.G1:
        return {"splitindex": index, "splittotalcnt": count if count > 1 else 0}
    base = 1 if form.generation is Generation.G2 else FIRST_SEGMENT
    return {"segmentindex": base + index, "finalsegment": index == count - 1}


def _datum(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    written = BytesIO()
    schemaless_writer(written, schema, value)
    return written.getvalue()


def _with_colons(lsn: bytes) -> str:
    digits = lsn.hex().upper()
    return f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"


def _time(at: datetime) -> str:
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _image(values: Mapping[str, str | None], is_compact: bool) -> str:
    return _compact(dict(values)) if is_compact else _spaced(dict(values))


def _compact(value: object) -> str:
    """Return JSON without blanks. Halves of surrogate pairs, which UTF-8 cannot have, become escapes."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value, separators=(",", ":"))


def _spaced(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return json.dumps(value) if _has_half(text) else text


def _indented(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return json.dumps(value, indent=2) if _has_half(text) else text


def _has_half(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _without_halves(value: Any) -> Any:
    """Return data whose texts are valid in UTF-8, as Avro requires. Images are escaped already; keys lose a half."""
    if isinstance(value, dict):
        return {key: _without_halves(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_halves(each) for each in value]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
