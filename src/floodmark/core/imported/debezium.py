"""The offsets of Debezium's SQL Server connector (docs/reference/imported_states.md, "Debezium").

A change event has the commit LSN of its transaction. An offset is that of the last event that was delivered, so the
transaction may have been delivered in part. It is read again as a whole: the watermark is the LSN before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from floodmark.core.errors import OperatorError
from floodmark.core.imported.position import ImportedPosition, parse_log_lsn, unreadable
from floodmark.core.lsn import Lsn

TOOL = "Debezium"
_FORM = (
    "Give the answer of GET /connectors/NAME/offsets, a JSON object of keys and offsets, or lines with a key and an "
    "offset each, as in Kafka Connect's topic of offsets."
)
_COLLECTIONS = "incremental_snapshot_collections"


@dataclass(frozen=True, slots=True)
class DebeziumOffset:
    """The offset of one connector in one database."""

    connector: str
    """Its name; "" where the state has none."""
    database: str
    """"" where the version of Debezium does not name it."""
    commit_lsn: Lsn | None
    """None where it has no position yet."""
    is_snapshot_running: bool = False
    is_incremental_running: bool = False
    """Whether an incremental snapshot of some tables is running."""

    @property
    def place(self) -> str:
        """Return the names of connector and database, as far as they are known."""
        return " in ".join(filter(None, (self.connector, self.database)))

    def position(self, tool: str) -> ImportedPosition:
        """Return the position. Raises OperatorError where rows may be missing below it."""
        if self.is_snapshot_running:
            raise OperatorError(
                f"state of {tool}",
                "its snapshot has begun and has not been completed.",
                "Let the snapshot complete, or drop its targets and let floodmark run load the tables.",
            )
        if self.is_incremental_running:
            raise OperatorError(
                f"state of {tool}",
                "an incremental snapshot is running, so rows of its tables may be missing.",
                "Let it complete, or stop it by a signal (stop-snapshot) and load its tables by floodmark run.",
            )
        if self.commit_lsn is None:
            raise OperatorError(
                f"state of {tool}", "it has no commit LSN.", "There is nothing to continue: floodmark run loads."
            )
        return ImportedPosition(tool, self.commit_lsn.previous(), self.commit_lsn)


@dataclass(frozen=True, slots=True)
class DebeziumOffsets:
    """The offsets of SQL Server connectors in a state."""

    offsets: tuple[DebeziumOffset, ...]
    connector: str | None = None
    """The one that counts; None for any."""
    tool: str = TOOL

    def position_in(self, database: str) -> ImportedPosition:
        """Return the position in the log of a database. Raises OperatorError."""
        return self._find(database).position(self.tool)

    def _find(self, database: str) -> DebeziumOffset:
        named = [each for each in self.offsets if self.connector in (None, each.connector)]
        found = [each for each in named if each.database.casefold() in ("", database.casefold())]
        if len(found) == 1:
            return found[0]
        if not found:
            there = ", ".join(sorted({each.place for each in self.offsets}))
            which = f" of connector {self.connector}" if self.connector else ""
            raise OperatorError(
                f"state of {self.tool}",
                f"it has no offset{which} in database {database}.",
                f"It has: {there}." if there else _FORM,
            )
        raise OperatorError(
            f"state of {self.tool}",
            f"it has the offsets of {len(found)} connectors in database {database}.",
            f"Choose one (--connector): {', '.join(sorted(each.connector for each in found))}.",
        )


def parse_debezium_offsets(text: str, connector: str | None = None) -> DebeziumOffsets:
    """Return the offsets that a text has. Those of other kinds of connectors are left out. Raises ConfigError."""
    try:
        pairs = _pairs_of(_load(text))
    except ValueError:
        pairs = list(_lines(text))
    return DebeziumOffsets(parse_pairs(pairs, TOOL), connector)


def parse_pairs(pairs: Iterable[tuple[Any, Any]], tool: str) -> tuple[DebeziumOffset, ...]:
    """Return the offsets of keys and values, each as JSON or as a text with JSON. Of one key, the last one counts."""
    found: dict[tuple[str, str], DebeziumOffset] = {}
    for key, value in pairs:
        offset = _load_inner(value, tool)
        if offset is not None and not (isinstance(offset, dict) and "commit_lsn" in offset):
            continue
        place = _partition(_load_inner(key, tool), tool)
        if offset is None:
            found.pop(place, None)  # the offsets of the connector were reset
        else:
            found[place] = _offset(*place, offset, tool)
    if not found:
        raise unreadable(tool, "there is no offset of a SQL Server connector in the text.", _FORM)
    return tuple(found.values())


def _partition(key: Any, tool: str) -> tuple[str, str]:
    """Return the connector and the database of a key, which is ["connector", {"server": …, "database": …}]."""
    name, partition = key if isinstance(key, list) and len(key) == 2 else ("", key)
    if not isinstance(partition, dict) or not isinstance(name, str):
        raise unreadable(tool, "a key of an offset is not that of a connector.", _FORM)
    return name, str(partition.get("database") or "")


def _offset(connector: str, database: str, offset: dict[str, Any], tool: str) -> DebeziumOffset:
    text = offset["commit_lsn"]
    lsn = None
    if text not in (None, "NULL"):
        lsn = parse_log_lsn(text) if isinstance(text, str) else None
        if lsn is None:
            raise unreadable(tool, "commit_lsn is not an LSN.", _FORM)
    is_complete = offset.get("snapshot_completed") is True
    return DebeziumOffset(
        connector,
        database,
        lsn,
        is_snapshot_running=offset.get("snapshot") not in (None, False, "false") and not is_complete,
        is_incremental_running=offset.get(_COLLECTIONS) is not None,
    )


def _pairs_of(document: Any) -> list[tuple[Any, Any]]:
    """Return the keys and offsets of the answer of Kafka Connect's REST interface, or of an object of both."""
    if not isinstance(document, dict):
        raise unreadable(TOOL, "the JSON is not an object.", _FORM)
    listed = document.get("offsets")
    if not isinstance(listed, list):
        return list(document.items())
    if not all(isinstance(each, dict) and {"partition", "offset"} <= each.keys() for each in listed):
        raise unreadable(TOOL, "an entry of offsets has no partition or no offset.", _FORM)
    return [(each["partition"], each["offset"]) for each in listed]


def _lines(text: str) -> Iterator[tuple[Any, Any]]:
    for line in filter(str.strip, text.splitlines()):
        decoder, stripped = json.JSONDecoder(), line.strip()
        try:
            key, end = decoder.raw_decode(stripped)
            yield key, _load(stripped[end:])
        except (ValueError, RecursionError):
            raise unreadable(TOOL, "the text is not JSON, nor lines of a key and an offset in JSON.", _FORM) from None


def _load_inner(value: Any, tool: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return _load(value)
    except ValueError:
        raise unreadable(tool, "a key or an offset is a text that is not JSON.", _FORM) from None


def _load(text: str) -> Any:
    """Return the JSON of a text. Raises ValueError, also for one that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
