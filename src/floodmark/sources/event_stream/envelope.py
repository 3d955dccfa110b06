"""The envelope of a message: the attributes of its CloudEvent, checked, and the data that they carry.

Three generations of the format are read: they differ in the attributes of segments and in the layout of the data
(docs/reference/event_stream.md, "Generations"). The data is not read here: a segment has only a part of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from floodmark.core.lsn import Lsn
from floodmark.sources.event_stream.avro import read_avro_envelope
from floodmark.sources.event_stream.faults import PoisonError, UnknownVersionError
from floodmark.sources.event_stream.json_text import load_exact_json, load_json

SPEC_VERSION = "1.0"
TYPE_PREFIX = "com.microsoft.SQL.CES.DML."
VERSION = 1
CONTENT_TYPES = ("application/json", "application/avro-json")
_LOGICAL_ID = re.compile(r"([0-9A-Za-z-]{1,64}):([0-9A-Fa-f]{20}):([0-9]{20})", re.ASCII)
_VERSION = re.compile(r"V([0-9]{1,9})", re.ASCII)
_MOST_SEGMENTS = 1 << 20

Data = str | bytes | Mapping[str, Any]
"""The data of a message, or a part of it: JSON as text, Avro as bytes. An object is part of the envelope's JSON."""


class EventOperation(Enum):
    """The change that an event describes."""

    INSERT = "INS"
    UPDATE = "UPD"
    DELETE = "DEL"


@dataclass(frozen=True, slots=True)
class LogicalId:
    """The identity of an event, which all its segments share."""

    text: str
    """The attribute as it was sent."""
    guid: str
    """The thing it names is not documented: see ``epochs``."""
    commit_lsn: Lsn
    sequence: int
    """The place of the change in its transaction."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The place of a message among those of its event, from the second generation on."""

    index: int
    is_final: bool


@dataclass(frozen=True, slots=True)
class Split:
    """The place of a message among those of its event, in the first generation."""

    index: int
    total: int
    """The number of messages; 0 for an event of one message."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message: its attributes, and its data."""

    version: int
    """The version in the attribute ``type``."""
    id: str
    """The identity of the message, not of the event."""
    logical_id: LogicalId
    time: datetime
    """The commit time, in UTC."""
    operation: EventOperation
    place: Segment | Split
    data: Data


def parse_envelope(body: bytes) -> Envelope:
    """Return the envelope of a message.

    Raises UnknownVersionError for a version of the format that is not known, PoisonError for any other fault.
    """
    if body[:1] != b"{":
        return build_envelope(read_avro_envelope(body))
    found = load_json(body, "the message")
    if isinstance(found, dict) and isinstance(found.get("data"), dict):
        # Values inside an object are no texts, and their digits must survive.
        found = load_exact_json(body, "the message")
    if not isinstance(found, dict):
        raise PoisonError("the message is not a JSON object")
    return build_envelope(found)


def build_envelope(attributes: Mapping[str, Any]) -> Envelope:
    """Return the envelope of decoded attributes. Raises as ``parse_envelope``."""
    check_version(attributes)
    place = read_place(attributes)
    data = attributes.get("data")
    if not isinstance(data, str | bytes | dict):
        raise PoisonError("the attribute data is neither a text nor an object")
    if isinstance(data, dict) and not is_alone(place):
        raise PoisonError("the attribute data is an object in one of several segments")
    return Envelope(
        version=VERSION,
        id=read_text(attributes, "id"),
        logical_id=parse_logical_id(read_text(attributes, "logicalid")),
        time=parse_time(read_text(attributes, "time")),
        operation=parse_operation(read_text(attributes, "operation")),
        place=place,
        data=data,
    )


def check_version(attributes: Mapping[str, Any]) -> None:
    """Raise UnknownVersionError for a version that is not known, PoisonError for what is no change event."""
    found = read_text(attributes, "type")
    if not found.startswith(TYPE_PREFIX):
        raise PoisonError("the attribute type does not name a change event")
    if found != f"{TYPE_PREFIX}V{VERSION}":
        match = _VERSION.fullmatch(found, len(TYPE_PREFIX))
        name = match[0] if match else "an unreadable version"
        text = f"has {name} of the format; only V{VERSION} can be read"
        raise UnknownVersionError(text, attributes.get("data"))
    if attributes.get("specversion") != SPEC_VERSION:
        raise PoisonError(f"the attribute specversion is not {SPEC_VERSION}")
    content_type = attributes.get("datacontenttype", CONTENT_TYPES[0])
    if not isinstance(content_type, str) or content_type.partition(";")[0].strip() not in CONTENT_TYPES:
        raise PoisonError("the attribute datacontenttype names another format than JSON")
    read_text(attributes, "source")


def is_alone(place: Segment | Split) -> bool:
    """Return whether the place can be that of an event's only message.

    The only message has index 0 or 1. A final message with index 1 may also be the second of two.
    """
    if isinstance(place, Split):
        return place.total <= 1
    return place.is_final and place.index <= 1


def read_text(attributes: Mapping[str, Any], name: str) -> str:
    """Return an attribute that is a non-empty text. Raises PoisonError."""
    value = attributes.get(name)
    if not isinstance(value, str) or not value:
        raise PoisonError(f"the attribute {name} is not a text, or is empty")
    return value


def read_place(attributes: Mapping[str, Any]) -> Segment | Split:
    """Return the place of a message among those of its event. Raises PoisonError."""
    if "segmentindex" in attributes:
        is_final = attributes.get("finalsegment")
        if not isinstance(is_final, bool):
            raise PoisonError("the attribute finalsegment is not a truth value")
        return Segment(_read_count(attributes, "segmentindex"), is_final)
    if "splitindex" in attributes:
        split = Split(_read_count(attributes, "splitindex"), _read_count(attributes, "splittotalcnt"))
        if split.index > split.total:
            raise PoisonError("the attribute splitindex is above splittotalcnt")
        return split
    raise PoisonError("the message has neither segmentindex nor splitindex")


def parse_logical_id(text: str) -> LogicalId:
    """Return the parts of the attribute ``logicalid``. Raises PoisonError."""
    match = _LOGICAL_ID.fullmatch(text)
    if not match:
        raise PoisonError("the attribute logicalid is not an identifier, an LSN and a sequence number")
    return LogicalId(text, match[1], parse_lsn(match[2], "logicalid"), int(match[3]))


def parse_lsn(text: str, noun: str) -> Lsn:
    """Return an LSN of a message. Raises PoisonError, naming where the text is from."""
    try:
        return Lsn.parse(text)
    except ValueError:
        raise PoisonError(f"{noun} has no LSN") from None


def parse_time(text: str) -> datetime:
    """Return a time of RFC 3339 in UTC. Raises PoisonError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise PoisonError("the attribute time is not a time of RFC 3339") from None
    if found.tzinfo is None:
        raise PoisonError("the attribute time has no offset from UTC")
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise PoisonError("the attribute time is out of range") from None


def parse_operation(text: str) -> EventOperation:
    """Return the operation of an event. Raises PoisonError."""
    try:
        return EventOperation(text)
    except ValueError:
        raise PoisonError("the attribute operation is none of INS, UPD and DEL") from None


def _read_count(attributes: Mapping[str, Any], name: str) -> int:
    value = attributes.get(name)
    if type(value) is not int or not 0 <= value <= _MOST_SEGMENTS:
        raise PoisonError(f"the attribute {name} is not a number of a segment")
    return value
