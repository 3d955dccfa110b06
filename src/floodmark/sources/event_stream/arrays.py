"""Columns of Arrow batches from the texts of events."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from floodmark.core.policies import TemporalPolicy
from floodmark.core.schema import SourceColumn
from floodmark.core.types import Kind, WarehouseType
from floodmark.sources.event_stream.plain_texts import read_plain_texts
from floodmark.sources.event_stream.values import value_reader
from floodmark.sync.ports.arrow import arrow_type

FEWEST_IN_BULK = 50
"""Fewer texts are read sooner one by one: Arrow takes some time for each column."""


def build_array(
    texts: Sequence[str | None], column: SourceColumn, as_type: WarehouseType, temporal: TemporalPolicy
) -> pa.Array:
    """Return a column of a batch. Raises PoisonError, naming the column, for a text that is no value of its type.

    Half of a surrogate pair becomes the three bytes that UTF-8 would have for it, as in the batches of the other kinds
    on SQL Server: no valid text, so that the warehouse finds it (``postgres.warehouse.unstorable``).
    """
    if len(texts) >= FEWEST_IN_BULK and (plain := read_plain_texts(texts, column, as_type)) is not None:
        return plain
    read = value_reader(column, as_type, temporal)
    values = [read(text) for text in texts]
    if as_type.kind is not Kind.TEXT:
        return pa.array(values, arrow_type(as_type))
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        octets = [None if value is None else value.encode(errors="surrogatepass") for value in values]
        return pa.array(octets, pa.binary()).view(pa.string())
