"""How the server streams tables, the schemas of its events, and the faults of a message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fastavro import parse_schema

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
