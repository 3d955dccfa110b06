"""Columns of Arrow batches from the texts of events."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.policies import TemporalPolicy
from floodmark.core.schema import SourceColumn
from floodmark.core.types import Kind, WarehouseType
from floodmark.sources.event_stream.values import value_reader
from floodmark.sync.ports.arrow import arrow_type

_INTEGERS = {"smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
_PLAIN_INTEGER = "^-?[0-9]{1,19}$"


def build_array(
    texts: Sequence[str | None], column: SourceColumn, as_type: WarehouseType, temporal: TemporalPolicy
) -> pa.Array:
    """Return a column of a batch. Raises PoisonError, naming the column, for a text that is no value of its type.

    Half of a surrogate pair becomes the three bytes that UTF-8 would have for it, as in the batches of the other kinds
    on SQL Server: no valid text, so that the warehouse finds it (``postgres.warehouse.unstorable``).
    """
    if column.type_name in _INTEGERS and (found := _plain_integers(texts, _INTEGERS[column.type_name])) is not None:
        return found
    read = value_reader(column, as_type, temporal)
    values = [read(text) for text in texts]
    if as_type.kind is not Kind.TEXT:
        return pa.array(values, arrow_type(as_type))
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        octets = [None if value is None else value.encode(errors="surrogatepass") for value in values]
        return pa.array(octets, pa.binary()).view(pa.string())


def _plain_integers(texts: Sequence[str | None], kind: pa.DataType) -> pa.Array | None:
    """Return integers that are all written plainly, None where one is not or is out of range."""
    try:
        found = pa.array(texts, pa.string())
        if pc.all(pc.match_substring_regex(found, _PLAIN_INTEGER)).as_py() is False:
            return None
        return found.cast(kind)
    except (pa.ArrowInvalid, UnicodeEncodeError):
        return None
