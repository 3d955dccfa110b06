"""The one place that maps rows of a source to columns of a target: names, masks in place of values, and casts.

It runs in the process that reads the rows, before anything is held, packed, staged or compared. So a value that is
masked is in no table of the warehouse and in no file of the engine.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from functools import cached_property, partial
from hashlib import sha256
from itertools import pairwise
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.columns import HASH_DIGITS, casts_of, has_hash, masks_of
from floodmark.core.definition import fingerprint
from floodmark.core.errors import ConfigError, DefinitionChangedError
from floodmark.core.plan import TablePlan, value_columns
from floodmark.core.schema import SourceColumn
from floodmark.core.settings import Cast, ColumnSettings, Mask
from floodmark.sync.arrow import rename_values
from floodmark.sync.ports import RowShape

MaskKeys = Mapping[str, str]
"""The secrets of ``Mask.HASH``, by their connections."""
_LAST = 4
_DAY = len("2026-01-31")
_FOUR_OCTETS = 0xF0
"""The lowest octet that begins a character of four in UTF-8."""
_BLOCK = 64
"""The bytes that SHA-256 takes at once: HMAC's key (RFC 2104)."""
_REDACTED = "***"
_EXACT = Context(prec=80)
"""A decimal of the warehouse has 38 digits, more than Python's default context."""


@dataclass(frozen=True)
class ColumnMap:
    """The mapping of the rows of one table. It travels to the workers, with the secret of its hashes."""

    table: TablePlan
    secret: bytes = field(default=b"", repr=False)

    @cached_property
    def masks(self) -> Mapping[str, ColumnSettings]:
        """Return the masked columns, by their names at the source."""
        return masks_of(self.table.settings)

    @cached_property
    def casts(self) -> Mapping[str, Cast]:
        """Return the casts of columns, by their names at the source."""
        return casts_of(self.table.settings)

    @cached_property
    def _known_secret(self) -> bytes:
        """Return the secret. Raises DefinitionChangedError where it was changed after the plan was made."""
        planned = self.table.settings.mask_key_print
        if planned and self.secret and planned != fingerprint(self.secret.decode()):
            raise DefinitionChangedError(
                str(self.table.source),
                f"the password of {self.table.settings.mask_key_conn_id}, the secret of mask: hash, was changed after "
                "the window was planned.",
                "Restore it, or rename or drop the target and reload the table.",
            )
        return self.secret

    def shape(self, shape: RowShape) -> RowShape:
        """Return the columns of the batches of a reader as they are behind ``apply``."""
        if changed := self.masks.keys() | self.casts.keys():
            before = [column.name for column in self.table.feed.table.stored_columns]
            after = value_columns(self.table.in_target, self.table.settings.temporal)
            types = {name: column.type for name, column in zip(before, after, strict=True) if name in changed}
            values = tuple(replace(column, type=types.get(column.name, column.type)) for column in shape.values)
            shape = replace(shape, values=values)
        return shape.with_names(self.table.target_names)

    def apply(self, batch: pa.RecordBatch, own: Iterable[str] = ()) -> pa.RecordBatch:
        """Return a batch of a reader with masks and casts, and with the target's names.

        own: the columns of the change itself, which keep their names and values.
        """
        kept = frozenset(own)
        for name, column in self.masks.items():
            place = batch.schema.get_field_index(name)
            if name not in kept and place >= 0:
                batch = batch.set_column(place, name, mask_values(batch.column(place), column, self._known_secret))
        for name, cast in self.casts.items():
            place = batch.schema.get_field_index(name)
            if name not in kept and place >= 0:
                batch = batch.set_column(place, name, cast_values(batch.column(place), cast))
        return rename_values(batch, {name: to for name, to in self.table.target_names.items() if name not in kept})

    def hash_key(self, name: str, text: str) -> str:
        """Return what the target has in place of a value of the key. Raises ValueError for a text that is no value."""
        return hash_value(self._known_secret, _parse_key(self.table.feed.table.column(name), text))

    def all(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of rows of the table itself as they are behind ``apply``."""
        return map(self.apply, batches)


def find_mask_key(table: TablePlan, keys: MaskKeys) -> bytes:
    """Return the secret of a table's hashes; empty where it has none. Raises ConfigError where it is missing."""
    if not has_hash(table.settings):
        return b""
    conn_id = table.settings.mask_key_conn_id
    if conn_id is None or not keys.get(conn_id):
        raise ConfigError(
            str(table.source),
            f"the load has no secret of connection {conn_id}, which mask: hash needs.",
            "Restore mask_key_conn_id of the table in pipelines.yaml.",
        )
    return keys[conn_id].encode()


# --------------------------------------------------------------------------------------------------------------------
# Masks, for each distinct value once. NULL stays NULL: a change row also has NULL for a value that it leaves out.


def mask_values(values: pa.Array, column: ColumnSettings, secret: bytes) -> pa.Array:
    """Return the masks of the values of a column."""
    if column.mask is Mask.NULL:
        return pa.nulls(len(values), values.type)
    if column.mask is Mask.REDACT:
        return _by_value(values, lambda _: _REDACTED, pa.string())
    if column.mask is Mask.HASH:
        return _hashes(values, secret)
    if column.mask is Mask.LAST4:
        return _by_value(values, _last4, values.type)
    if column.mask is Mask.YEAR:
        return _by_value(values, _first_of_year, values.type)
    return _by_value(values, partial(_rounded, values.type, column.digits), values.type)


def cast_values(values: pa.Array, cast: Cast) -> pa.Array:
    """Return the values of a column in another type. A moment may be a text, with more digits than the target has."""
    if cast is Cast.INT:
        return values.cast(pa.int32())
    if cast is Cast.BIGINT:
        return values.cast(pa.int64())
    is_text = pa.types.is_string(values.type)
    if cast is Cast.DATE:
        days = pc.utf8_slice_codeunits(values, 0, _DAY) if is_text else pc.floor_temporal(values, unit="day")
        return days.cast(pa.date32())
    # The driver writes a uniqueidentifier in capitals, and the warehouse does not.
    return pc.utf8_lower(values) if is_text else _by_value(values, _canonical, pa.string())


def _by_value(values: pa.Array, function: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    encoded = values.dictionary_encode()
    found = [function(value) for value in _to_python(encoded.dictionary)]
    if pa.types.is_string(kind):
        # As bytes: no strict encoder takes half of a surrogate pair, and its error would show the value.
        masked = pa.array([text.encode("utf-8", "surrogatepass") for text in found], pa.binary()).view(kind)
    else:
        masked = pa.array(found, kind)
    return masked.take(encoded.indices)


def _to_python(values: pa.Array) -> list[Any]:
    if not pa.types.is_string(values.type):
        return list(values.to_pylist())
    return [text.decode("utf-8", "surrogatepass") for text in values.cast(pa.binary()).to_pylist()]


def hash_value(secret: bytes, value: Any) -> str:
    """Return the HMAC-SHA-256 of a value in hexadecimal digits: of its text in UTF-16LE, as nvarchar has it.

    The text of other values: digits with all decimal places of the type, 1 or 0, ISO 8601 with microseconds, and
    hexadecimal digits.
    """
    return hmac.digest(secret, _hashed_bytes(value), "sha256").hex()


def _hashes(values: pa.Array, secret: bytes) -> pa.Array:
    """Return ``hash_value`` of each value, in less than half of the time: the secret is hashed once."""
    encoded = values.dictionary_encode()
    block = (secret if len(secret) <= _BLOCK else sha256(secret).digest()).ljust(_BLOCK, b"\0")
    inner, outer = (sha256(bytes(octet ^ pad for octet in block)).copy for pad in (0x36, 0x5C))
    digests = []
    for octets in _all_hashed_bytes(encoded.dictionary):
        inside, outside = inner(), outer()
        inside.update(octets)
        outside.update(inside.digest())
        digests.append(outside.digest())
    ends = np.arange(len(digests) + 1, dtype=np.int64) * HASH_DIGITS
    digits = pa.py_buffer(b"".join(digests).hex().encode())
    hashes = pa.Array.from_buffers(pa.large_string(), len(digests), [None, pa.py_buffer(ends), digits])
    return hashes.cast(pa.string()).take(encoded.indices)


def _hashed_bytes(value: Any) -> bytes:
    return _canonical(value).encode("utf-16-le", "surrogatepass")


def _all_hashed_bytes(values: pa.Array) -> list[bytes]:
    """Return ``_hashed_bytes`` of each value; of texts and whole numbers all in one."""
    if pa.types.is_integer(values.type):
        values = values.cast(pa.string())
    if not pa.types.is_string(values.type):
        return list(map(_hashed_bytes, values.to_pylist()))
    whole = b"".join(values.cast(pa.binary()).to_pylist())
    if _has_pairs(whole):
        return [text.encode("utf-16-le", "surrogatepass") for text in _to_python(values)]
    encoded = whole.decode("utf-8", "surrogatepass").encode("utf-16-le", "surrogatepass")
    ends = (2 * np.cumsum(pc.utf8_length(values).to_numpy(zero_copy_only=False))).tolist()
    return [encoded[begin:end] for begin, end in pairwise([0, *ends])]


def _has_pairs(utf8: bytes) -> bool:
    """Return whether a text has a character that takes two units of UTF-16."""
    return bool(utf8) and np.frombuffer(utf8, np.uint8).max() >= _FOUR_OCTETS


def _canonical(value: Any) -> str:
    match value:
        case bool():
            return str(int(value))
        case bytes():
            return value.hex()
        case datetime():
            return value.isoformat(" ", "microseconds")
        case Decimal():
            return f"{value:f}"
        case _:
            return str(value)


def _parse_key(column: SourceColumn, text: str) -> str | bytes | int:
    """Return the value of a key that is written as a text, as the reader delivers it."""
    match column.type_name:
        case "char" | "nchar":
            return text.ljust(column.max_length)
        case "varchar" | "nvarchar" | "sysname":
            return text
        case "uniqueidentifier":
            return str(UUID(text)).upper()
        case "binary" | "varbinary":
            octets = bytes.fromhex(text.removeprefix("0x"))
            return octets.ljust(column.max_length, b"\0") if column.type_name == "binary" else octets
        case _:
            return int(text)


def _last4(text: str) -> str:
    """Return a text that shows its last four characters, or none where it has no others."""
    shown = text[-_LAST:] if len(text) > _LAST else ""
    return "*" * (len(text) - len(shown)) + shown


def _first_of_year(value: date | str) -> date | str:
    """Return the beginning of the year of a moment, which may be a text with more digits than the target has."""
    if isinstance(value, str):
        return f"{value[:4]}-01-01{re.sub('[0-9]', '0', value[10:])}"
    if isinstance(value, datetime):
        return value.replace(month=1, day=1, hour=0, minute=0, second=0, microsecond=0)
    return value.replace(month=1, day=1)


def _rounded(kind: pa.DataType, digits: int, value: float | Decimal) -> float | Decimal:
    """Return a number with fewer digits; rounded towards zero where its type has no room for the next higher one."""
    if isinstance(value, float):
        return round(value, digits)
    exact, unit = Decimal(value), Decimal(1).scaleb(-digits)
    if _places(exact) <= digits:
        return value
    rounded = exact.quantize(unit, ROUND_HALF_UP, _EXACT)
    if not _fits(kind, rounded):
        rounded = exact.quantize(unit, ROUND_DOWN, _EXACT)
    return int(rounded) if isinstance(value, int) else rounded


def _places(value: Decimal) -> int:
    """Return the decimal places of a number."""
    return -int(value.as_tuple().exponent)


def _fits(kind: pa.DataType, value: Decimal) -> bool:
    if pa.types.is_decimal(kind):
        return abs(value) < Decimal(10) ** int(kind.precision - kind.scale)
    limit = Decimal(2) ** (int(kind.bit_width) - 1)
    return -limit <= value < limit
