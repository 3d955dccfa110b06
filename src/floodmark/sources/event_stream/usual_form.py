"""The short way from a message to a row, for messages of the usual form.

All events of a table repeat its description, which is much of their data. Here it is parsed once: data is cut before
the key, and both parts are completed to JSON of their own. A message that is not exactly as expected raises, and is
parsed as a whole by ``parse_envelope`` and ``parse_change``. So nothing here decides what a fault is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from orjson import loads

from floodmark.core.position import POSITION_BYTES
from floodmark.core.schema import SourceColumn
from floodmark.core.types import MICROSECOND_DIGITS, Kind, WarehouseType
from floodmark.sources.event_stream.change import EventRow, TableForm, Values, read_event_columns, read_name
from floodmark.sources.event_stream.defaults import CUT_LENGTH, HEX_PREFIX
from floodmark.sources.event_stream.envelope import (
    CONTENT_TYPES,
    SPEC_VERSION,
    TYPE_PREFIX,
    VERSION,
    EventOperation,
    PoisonError,
)
from floodmark.sync.arrow import arrow_type

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


# --------------------------------------------------------------------------------------------------------------------
# The short way from texts to a column: texts that are all written plainly are read by Arrow, many at once.
#
# A plain text has one meaning, which ``values`` gives it too. Where one text of a column is not plain, or out of range,
# ``values`` reads all of them one by one: nothing here decides what a fault is.


_FLOAT = r"^-?[0-9]{1,17}(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?$"
_DATE = r"^[12][0-9]{3}-[0-9]{2}-[0-9]{2}"
"""Arrow also knows the year 0."""
_TIME = r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}"
_LONGEST_TIMESTAMP = len("2026-03-01 12:00:00.") + MICROSECOND_DIGITS
_GUID = r"^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
_HEX = f"^{HEX_PREFIX}([0-9A-Fa-f]{{2}})*$"
_MILLISECOND_DIGITS = 3


@dataclass(frozen=True, slots=True)
class _PlainForm:
    """The plain texts of a column."""

    are_plain: Callable[[pa.Array], pa.Array]
    """Returns for each text whether it is plain, NULL for NULL."""
    read: Callable[[pa.Array], pa.Array]
    """Returns the values of plain texts. It raises ArrowInvalid for one that is out of range."""


_Describe = Callable[[SourceColumn, WarehouseType], _PlainForm]


def read_plain_texts(texts: Sequence[str | None], column: SourceColumn, as_type: WarehouseType) -> pa.Array | None:
    """Return the values of texts, None where one of them is not plain or is out of range."""
    kind, describe = _FORMS.get(column.type_name, _NO_FORM)
    if describe is None or kind not in (None, as_type.kind):
        return None
    form = describe(column, as_type)
    try:
        found = pa.array(texts, pa.string())
        return None if pc.all(form.are_plain(found)).as_py() is False else form.read(found)
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return None


def _matches(pattern: str) -> Callable[[pa.Array], pa.Array]:
    return lambda found: pc.match_substring_regex(found, pattern)


def _cast(pattern: str, kind: pa.DataType) -> _PlainForm:
    return _PlainForm(_matches(pattern), lambda found: found.cast(kind))


def _integers(pattern: str, kind: pa.DataType) -> tuple[None, _Describe]:
    return None, lambda _, __: _cast(pattern, kind)


def _fraction(digits: int) -> str:
    return rf"(\.[0-9]{{1,{digits}}})?$" if digits else "$"


def _decimals(_: SourceColumn, as_type: WarehouseType) -> _PlainForm:
    return _cast(f"^-?[0-9]{{1,{as_type.precision}}}" + _fraction(as_type.scale), arrow_type(as_type))


def _timestamps(digits: int) -> _PlainForm:
    return _PlainForm(_matches(_DATE + _TIME + _fraction(digits)), _read_timestamps)


def _read_timestamps(found: pa.Array) -> pa.Array:
    """Return moments without the digits below a microsecond."""
    return pc.utf8_slice_codeunits(found, 0, _LONGEST_TIMESTAMP).cast(pa.timestamp("us"))


def _texts(column: SourceColumn, _: WarehouseType) -> _PlainForm:
    return _PlainForm(lambda found: _are_within(pc.utf8_length(found), column.max_length), lambda found: found)


def _octets(column: SourceColumn, _: WarehouseType) -> _PlainForm:
    def are_plain(found: pa.Array) -> pa.Array:
        lengths = pc.divide(pc.subtract(pc.binary_length(found), len(HEX_PREFIX)), 2)
        return pc.and_(pc.match_substring_regex(found, _HEX), _are_within(lengths, column.max_length))

    return _PlainForm(are_plain, _read_hex)


def _read_hex(found: pa.Array) -> pa.Array:
    begin = len(HEX_PREFIX)
    return pa.array([text and bytes.fromhex(text[begin:]) for text in found.to_pylist()], pa.binary())


def _are_within(lengths: pa.Array, longest: int) -> pa.Array:
    """Return whether each length is at most the longest, which is not above 0 for a type without one."""
    return pc.less_equal(lengths, longest) if longest > 0 else pc.greater_equal(lengths, 0)


_NO_FORM = (None, None)
_INTEGER = r"^-?[0-9]{1,19}$"
_FORMS: dict[str, tuple[Kind | None, _Describe]] = {
    "tinyint": _integers("^[0-9]{1,2}$", pa.int16()),
    "smallint": _integers(_INTEGER, pa.int16()),
    "int": _integers(_INTEGER, pa.int32()),
    "bigint": _integers(_INTEGER, pa.int64()),
    **dict.fromkeys(("decimal", "numeric", "money", "smallmoney"), (Kind.DECIMAL, _decimals)),
    "float": (Kind.FLOAT64, lambda _, __: _cast(_FLOAT, pa.float64())),
    "bit": (Kind.BOOLEAN, lambda _, __: _cast("^[01]$", pa.bool_())),
    "date": (Kind.DATE, lambda _, __: _cast(f"{_DATE}$", pa.date32())),
    "datetime": (Kind.TIMESTAMP, lambda _, __: _timestamps(_MILLISECOND_DIGITS)),
    "smalldatetime": (Kind.TIMESTAMP, lambda _, __: _timestamps(0)),
    "datetime2": (Kind.TIMESTAMP, lambda column, _: _timestamps(column.scale)),
    "uniqueidentifier": (Kind.UUID, lambda _, __: _PlainForm(_matches(_GUID), pc.ascii_lower)),
    **dict.fromkeys(("char", "varchar", "nchar", "nvarchar", "sysname"), (Kind.TEXT, _texts)),
    **dict.fromkeys(("binary", "varbinary"), (Kind.BYTES, _octets)),
}
"""By SQL type: the kind of the column in the warehouse, None for any, and the plain texts.

The other types have no plain texts: their texts are read one by one.
"""
