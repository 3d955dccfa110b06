"""The Avro schemas of the format: the envelope, and its data in two versions.

Microsoft's page of the preview lists the data without ``finalevent``, the page of August 2026 with it. A datum has no
schema and no version with it. A reader has schemas of its own, so that a slip here is found by it.
"""

from __future__ import annotations

from typing import Any

from fastavro import parse_schema

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
