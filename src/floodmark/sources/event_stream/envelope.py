"""The envelope of a message, in JSON or Avro: its schemas, the attributes of its CloudEvent, checked, and its data."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from io import BytesIO
from typing import Any, NoReturn

import orjson
from fastavro import block_reader, parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException

from floodmark.core.position import Lsn
from floodmark.core.snapshot import FeedFault, Verdict
from floodmark.sources.sqlserver.driver import SourceSession
from floodmark.sources.sqlserver.tables import read_sql

# --------------------------------------------------------------------------------------------------------------------
# How the server streams tables: ``sys.sp_help_change_feed_table`` (docs/reference/event_stream.md, "Columns").


_IN_ORDER = (1, 2)
"""The partition schemes StreamGroup and Table. With the others, the events of a row may be in several partitions."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options with which a table was added to its stream group."""

    has_all_columns: bool
    """An update has all columns, and not only the key and those that changed."""
    has_old_values: bool
    """An update and a delete have the values before it; without them, a delete has the key alone."""
    group: str = ""
    """The stream group."""
    keeps_order: bool = True
    """The events of a row are in one partition, in the order of their changes."""

    @property
    def is_partial(self) -> bool:
        """Return whether events leave out values."""
        return not (self.has_all_columns and self.has_old_values)

    @property
    def fault(self) -> FeedFault | None:
        """Return why the table cannot be read: a late event would lose the values that a newer one leaves out."""
        if self.has_all_columns or self.keeps_order:
            return None
        return FeedFault(
            Verdict.NOT_PLANNABLE,
            f"its events leave out columns, and stream group {self.group} spreads the events of a row over partitions."
            " An event that comes late would be lost.",
            "Add the table to a stream group with @partition_key_scheme = N'Table' or N'StreamGroup', or add it again"
            " with @include_all_columns = 1.",
        )


WHOLE = StreamOptions(has_all_columns=True, has_old_values=True)


def read_options(session: SourceSession, tables: Iterable[int]) -> Mapping[int, StreamOptions]:
    """Return the options of tables by their object_ids, as far as the login may see them."""
    objects = b"".join(table.to_bytes(4) for table in tables)
    rows = session.fetch_named(read_sql("read_stream_options"), (objects,)) if objects else []
    in_order: set[str] = set()
    if not all(row["include_all_columns"] for row in rows):
        groups = session.fetch_named(read_sql("read_stream_settings"))
        in_order.update(each["table_group_name"] for each in groups if each.get("partition_scheme") in _IN_ORDER)
    return {
        row["table_object_id"]: StreamOptions(
            bool(row["include_all_columns"]),
            bool(row["include_old_values"]),
            row["table_group_name"],
            row["table_group_name"] in in_order,
        )
        for row in rows
    }


# --------------------------------------------------------------------------------------------------------------------
# The Avro schemas of the format: the envelope, and its data in two versions.
#
# Microsoft's page of the preview lists the data without ``finalevent``, the page of August 2026 with it. A datum has no
# schema and no version with it.


Schema = dict[str, Any]


def _record(name: str, fields: dict[str, Any]) -> Schema:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


def _data(*, has_final_event: bool) -> Schema:
    final_event = {"finalevent": "boolean"} if has_final_event else {}
    transaction = {
        "commitlsn": "string",
        "beginlsn": "string",
        "sequencenumber": "int",
        **final_event,
        "committime": "string",
    }
    source = {
        **dict.fromkeys(("db", "schema", "tbl"), "string"),
        "cols": {"type": "array", "items": _record("Column", {"name": "string", "type": "string", "index": "int"})},
        "pkkey": {"type": "array", "items": _record("PkKey", {"columnname": "string", "value": "string"})},
        "transaction": _record("Transaction", transaction),
    }
    row = {"old": "string", "current": "string"}
    return _record("Data", {"eventsource": _record("EventSource", source), "eventrow": _record("EventRow", row)})


_TEXTS = ("specversion", "type", "source", "id", "logicalid", "time", "datacontenttype", "operation")
_ENVELOPE = {**dict.fromkeys(_TEXTS, "string"), "segmentindex": "int", "finalsegment": "boolean", "data": "bytes"}


def _parsed(schema: Schema) -> Schema:
    parsed = parse_schema(schema)
    if not isinstance(parsed, dict):
        raise TypeError
    return parsed


ENVELOPE_SCHEMA = _parsed(_record("ChangeEvent", _ENVELOPE))
DATA_SCHEMA = _parsed(_data(has_final_event=True))
PREVIEW_DATA_SCHEMA = _parsed(_data(has_final_event=False))


# --------------------------------------------------------------------------------------------------------------------
# The faults of messages. No text of them contains a value of a row.
#
# A name of a column or of an attribute may be in a text, and a declared type: they are the shape of a table, not a row.


class EventFaultError(Exception):
    """The base of all faults of a message or of what it contains."""


class PoisonError(EventFaultError):
    """A message that cannot be read: it belongs in quarantine, and the others are read."""


class UnknownVersionError(EventFaultError):
    """A message in another version of the format: it may be a change that a table must not miss."""

    def __init__(self, text: str, data: object) -> None:
        super().__init__(text)
        self.data = data
        """The attribute of the message."""


# --------------------------------------------------------------------------------------------------------------------
# Avro as the server writes it with ``@encoding = Binary``: an envelope, and in its bytes the data.
#
# Neither has a schema with it. A datum of one schema may be readable with another, as other values and to the last
# byte. So a reading counts only if the positions in the log and the time around the field that differs have their forms
# too.


CONTAINER = b"Obj\x01"
"""The first bytes of an object container file, which brings its schema."""
_LSN = re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{8}:[0-9A-Fa-f]{4}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]")
_SIMPLE = ("string", "bytes", "int", "long", "boolean", "null")
_FAULTS = (
    ValueError,
    EOFError,
    IndexError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    RecursionError,
    StopIteration,
    struct.error,
    SchemaParseException,
)
"""The exceptions of fastavro on bytes that are no datum of a schema."""


def read_avro_envelope(body: bytes) -> Mapping[str, Any]:
    """Return the attributes of a message. Raises PoisonError."""
    if body.startswith(CONTAINER):
        return _read_container(body)
    found = _read_datum(body, ENVELOPE_SCHEMA)
    if found is None:
        raise PoisonError("the message is neither a JSON object nor an Avro datum of its schema")
    return found


def read_avro_data(octets: bytes) -> Mapping[str, Any]:
    """Return the data of a whole event. Raises PoisonError."""
    for schema in (DATA_SCHEMA, PREVIEW_DATA_SCHEMA):
        found = _read_datum(octets, schema)
        if found is not None and _is_plausible(found):
            return found
    raise PoisonError("the data is no Avro datum of a known schema")


def _is_plausible(data: Mapping[str, Any]) -> bool:
    """Return whether the texts before and after ``finalevent`` have their forms, so that no field has shifted."""
    transaction = data["eventsource"]["transaction"]
    lsns = _LSN.fullmatch(transaction["commitlsn"]) and _LSN.fullmatch(transaction["beginlsn"])
    return bool(lsns and _TIME.match(transaction["committime"]))


def _read_datum(octets: bytes, schema: Schema) -> Mapping[str, Any] | None:
    """Return a datum that takes all bytes, None where they are none of the schema."""
    source = BytesIO(octets)
    try:
        found = schemaless_reader(source, schema, None)
    except _FAULTS:
        return None
    return found if isinstance(found, dict) and source.tell() == len(octets) else None


def _read_container(body: bytes) -> Mapping[str, Any]:
    """Return the one record of an object container file.

    Nothing is unpacked, and no record is read before the file shows that it has one: a file of some bytes may declare
    any number of them, or a schema that takes no byte for a million of values.
    """
    source = BytesIO(body)
    try:
        blocks = block_reader(source)
        if blocks.codec != "null":
            raise PoisonError("the message is an Avro container with compressed blocks")
        block = next(blocks)
        if block.num_records == 1 and source.tell() == len(body) and _is_flat(blocks.writer_schema):
            [record] = block
            if isinstance(record, dict):
                return record
    except _FAULTS:
        raise PoisonError("the message is an Avro container that cannot be read") from None
    raise PoisonError("the message is an Avro container without exactly one record of the format")


def _is_flat(schema: Any) -> bool:
    """Return whether a schema is a record of simple values."""
    if not isinstance(schema, dict) or schema.get("type") != "record" or not schema["fields"]:
        return False
    return all(_is_simple(field["type"]) for field in schema["fields"])


def _is_simple(kind: Any) -> bool:
    if isinstance(kind, list):
        return all(_is_simple(each) for each in kind)
    return (kind["type"] if isinstance(kind, dict) else kind) in _SIMPLE


# --------------------------------------------------------------------------------------------------------------------
# JSON as the server writes it, which includes halves of surrogate pairs.
#
# An nvarchar holds any sequence of 16-bit units. Half of a pair can only be written as an escape (``\ud83d``), which
# ``orjson`` refuses. Such a text is read by the slower module of the standard library, which keeps the half.


_SURROGATE = re.compile("\\\\u[dD][89a-fA-F]|[\ud800-\udfff]")
"""The escape of a half, or a half that an outer level had as an escape."""


def load_json(text: str | bytes, noun: str) -> Any:
    """Return the value of a JSON text. Raises PoisonError, naming what the text is.

    Numbers have the types of orjson: a fraction is a float.
    """
    # The fault is raised outside of the handler: the exception there holds the text.
    with suppress(orjson.JSONDecodeError, UnicodeEncodeError):
        return orjson.loads(text)
    return _load_halves(text, noun)


def load_exact_json(text: str | bytes, noun: str) -> Any:
    """Return the value of a JSON text with each fraction as its own text, so that no digit is lost."""
    try:
        return json.loads(text, parse_float=str, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise _not_json(noun) from None


def _load_halves(text: str | bytes, noun: str) -> Any:
    try:
        readable = text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError:
        raise _not_json(noun) from None
    if not _SURROGATE.search(readable):
        raise _not_json(noun)
    return load_exact_json(readable, noun)


def _not_json(noun: str) -> PoisonError:
    return PoisonError(f"{noun} is not valid JSON")


def _refuse_constant(_: str) -> NoReturn:
    raise ValueError


# --------------------------------------------------------------------------------------------------------------------
# The envelope of a message: the attributes of its CloudEvent, checked, and the data that they carry.
#
# Three generations of the format are read: they differ in the attributes of segments and in the layout of the data
# (docs/reference/event_stream.md, "Generations"). The data is not read here: a segment has only a part of it.


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
