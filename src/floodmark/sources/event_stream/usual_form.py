"""The short way from a message to a row, for messages of the usual form.

All events of a table repeat its description, which is much of their data. Here it is parsed once: data is cut before
the key, and both parts are completed to JSON of their own. A message that is not exactly as expected raises, and is
parsed as a whole by ``parse_envelope`` and ``parse_change``. So nothing here decides what a fault is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any

from orjson import loads

from floodmark.core.position import POSITION_BYTES
from floodmark.sources.event_stream.change import read_event_columns, read_name
from floodmark.sources.event_stream.defaults import CUT_LENGTH
from floodmark.sources.event_stream.envelope import CONTENT_TYPES, SPEC_VERSION, TYPE_PREFIX, VERSION, EventOperation
from floodmark.sources.event_stream.faults import PoisonError
from floodmark.sources.event_stream.rows import EventRow, TableForm, Values

UNUSUAL = (LookupError, ValueError, TypeError, AttributeError)
"""The exceptions that messages of another form cause."""
USUAL_BYTES = CUT_LENGTH // 4
"""A shorter message has no value that could have been cut."""
_KEY_MARK = '"pkkey"'
_BEFORE_KEY = '{"eventsource":{' + _KEY_MARK
_AFTER_HEAD = '"":0}}'
_HEAD_NAMES = {"db", "schema", "tbl", "cols", ""}
_NO_VALUES = "{}"
_NO_FILE = "00000000"
_LSN_LENGTH = 22
_LSN = re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{8}:[0-9A-Fa-f]{4}")
_NONE: frozenset[str] = frozenset()
_TEXT_OR_NULL = frozenset({str, type(None)})
_OPERATIONS = {each.value: each for each in EventOperation}
_DELETE = EventOperation.DELETE
_USUAL = [(f"{TYPE_PREFIX}V{VERSION}", SPEC_VERSION, content_type) for content_type in CONTENT_TYPES]
"""A list: comparing is faster than hashing texts that are new."""
_SHARED = itemgetter("type", "specversion", "datacontenttype")
_OWN = itemgetter("finalsegment", "segmentindex", "id", "source", "logicalid", "time", "operation", "data")
_JOIN = "".join


@dataclass(slots=True)
class TableHead:
    """The description of a table: its form, and the way from an image to a tuple."""

    form: TableForm
    select: Callable[[dict[str, Any]], Values]
    places: dict[str, int]
    """The places of the columns in the tuple."""
    rows: list[EventRow] | None = field(default=None, compare=False)
    """The rows of the batch under way."""


class UsualMessages:
    """Reads messages of the usual form. It remembers the descriptions of tables and the identifiers that it met."""

    def __init__(self, most_heads: int = 4096, most_guids: int = 65536) -> None:
        self._most_heads, self._most_guids = most_heads, most_guids
        self._heads: dict[str, TableHead] = {}
        self._guids: set[str] = set()
        self._last_text = _KEY_MARK
        """The beginning of data, to the name of the key, that the last message had. No data begins with the name."""
        self._last_head: TableHead | None = None

    def forget_rows(self) -> None:
        """Begin a batch."""
        for head in self._heads.values():
            head.rows = None

    def learn_guid(self, guid: str) -> None:
        """Remember the first part of a ``logicalid`` that was checked."""
        if len(self._guids) < self._most_guids:
            self._guids.add(guid)

    def read(self, place: int, body: bytes) -> tuple[TableHead, EventRow]:
        """Return the row of a message and its table. Raises one of ``UNUSUAL``."""
        found = loads(body)
        is_final, index, message_id, source, logical_id, time, operation, data = _OWN(found)
        if not (
            _SHARED(found) in _USUAL
            and is_final is True
            and type(index) is int
            and 0 <= index <= 1
            and type(message_id) is type(source) is str
            and message_id
            and source
            and logical_id[-42] == logical_id[-21] == ":"
            and logical_id[:-42] in self._guids
            and time[-1] == "Z"
        ):
            raise ValueError
        if data.startswith(self._last_text):
            head, rest = self._last_head, data[len(self._last_text) :]
        else:
            text, _, rest = data.partition(_KEY_MARK)
            head = self._heads.get(text) or self._learn(text)
            self._last_text, self._last_head = text + _KEY_MARK, head
        if head is None:
            raise ValueError
        row = _read_row(
            head,
            place=place,
            at=datetime.fromisoformat(time),
            logical_id=logical_id,
            operation=_OPERATIONS[operation],
            data=loads(_BEFORE_KEY + rest),
        )
        return head, row

    def _learn(self, text: str) -> TableHead:
        """Return the description of a table that data begins with."""
        found = loads(text + _AFTER_HEAD)
        source = found["eventsource"]
        if len(found) > 1 or source.keys() != _HEAD_NAMES:
            raise ValueError
        try:
            head = _build_head(source)
        except PoisonError:
            raise ValueError from None
        if len(self._heads) >= self._most_heads:
            self._heads.clear()
        self._heads[text] = head
        return head


def _build_head(source: dict[str, Any]) -> TableHead:
    columns = read_event_columns(source["cols"])
    names = [each.name for each in columns]
    form = TableForm(read_name(source, "db"), read_name(source, "schema"), read_name(source, "tbl"), columns)
    only = names[0]
    select: Callable[[dict[str, Any]], Values] = itemgetter(*names) if names[1:] else lambda image: (image[only],)
    return TableHead(form, select, {name: place for place, name in enumerate(names)})


def _read_row(
    head: TableHead, *, place: int, at: datetime, logical_id: str, operation: EventOperation, data: dict[str, Any]
) -> EventRow:
    """Return the row of an event. Raises one of ``UNUSUAL``."""
    source, images = data["eventsource"], data["eventrow"]
    transaction = source["transaction"]
    commit, begin, number = transaction["commitlsn"], transaction["beginlsn"], transaction["sequencenumber"]
    guid, digits = logical_id[:-42], logical_id[-41:-21]
    lsn = bytes.fromhex(digits)
    if not (
        len(data) == len(source) == 2
        and len(lsn) == POSITION_BYTES
        and len(commit) == _LSN_LENGTH
        and commit[8] == commit[17] == ":"
        and commit.replace(":", "") == digits
        and _LSN.fullmatch(begin)
        and digits[:8] != _NO_FILE != begin[:8]
        and type(number) is int
        and number >= 0
        and logical_id[-20:] == f"{number:020}"
    ):
        raise ValueError
    old, current = images["old"], images["current"]
    before = None if old == _NO_VALUES else _select(head, old)
    after = None if current == _NO_VALUES else _select(head, current)
    pairs = _read_key(head, source["pkkey"], after)
    if not (before or pairs) if operation is _DELETE else after is None:
        raise ValueError
    return tuple.__new__(EventRow, (place, at, lsn, number, operation, pairs, before, after, _NONE, _NONE, 0, guid))


def _read_key(head: TableHead, found: list[dict[str, Any]], after: Values | None) -> tuple[tuple[str, str], ...]:
    """Return the columns of the key with their values, which are texts, and not NULL in the image after the change."""
    pairs = []
    for each in found:
        name, value = each["columnname"], each["value"]
        if type(name) is not str or type(value) is not str:
            raise TypeError
        if after is not None and name in head.places and after[head.places[name]] is None:
            raise ValueError
        pairs.append((name, value))
    if len(pairs) > 1 and len(dict(pairs)) < len(pairs):
        raise ValueError
    return tuple(pairs)


def _select(head: TableHead, text: str) -> Values:
    """Return the values of an image that has all columns."""
    image = loads(text)
    values = head.select(image)
    if len(image) != len(values):
        raise ValueError
    try:
        _JOIN(values)  # type: ignore[arg-type]
    except TypeError:
        if not _TEXT_OR_NULL.issuperset(map(type, values)):
            raise
    return values
