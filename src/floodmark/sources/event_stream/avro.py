"""Avro as the server writes it with ``@encoding = Binary``: an envelope, and in its bytes the data.

Neither has a schema with it. A datum of one schema may be readable with another, as other values and to the last byte.
So a reading counts only if the positions in the log and the time around the field that differs have their forms too.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from io import BytesIO
from typing import Any

from fastavro import block_reader, schemaless_reader
from fastavro.schema import SchemaParseException

from floodmark.sources.event_stream.faults import PoisonError
from floodmark.sources.event_stream.schemas import DATA_SCHEMA, ENVELOPE_SCHEMA, PREVIEW_DATA_SCHEMA, Schema

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
