"""Texts that PostgreSQL cannot store: with U+0000, with an unpaired surrogate, or of more than a gigabyte.

They are found before COPY, which would refuse the whole part for one of them. Whole columns are checked by Arrow, and
single values only where a column has such a text. Staging gets the text with U+FFFD in the place of what cannot be
stored, and a note of the columns and reasons, by which the gate moves the row to quarantine.

A delete is always applied: its last values are not merged as values of a living row. Only where its key cannot be
stored it is dropped, since no target has such a key.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from floodmark.core.change import Operation
from floodmark.core.errors import DataQualityError
from floodmark.core.naming import OPERATION_COLUMN
from floodmark.core.policies import UnstorablePolicy
from floodmark.core.types import Kind
from floodmark.core.window.columns import ValueColumn
from floodmark.core.window.plan import TablePlan

REPLACEMENT = "\ufffd"
MAX_TEXT_BYTES = 2**30 - 2**10
"""Less than PostgreSQL's limit for a value (1 GiB - 1), which includes its headers."""
_EXAMPLES = 3
_LAST_ASCII = 127
_Flags = npt.NDArray[np.bool_]
_Found = dict[int, dict[str, str]]
"""By row of a batch, the reason for each column."""


@dataclass(frozen=True, slots=True)
class TextCheck:
    """The check of the staged texts of one table."""

    table: TablePlan
    columns: tuple[ValueColumn, ...]

    def apply(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """Return a batch that can be stored, and for each row its note, NULL where it may be merged.

        Raises DataQualityError where the policy of the table is to fail.
        """
        storable, found = replace_unstorable(batch, self.columns)
        if not found:
            return storable, pa.nulls(batch.num_rows, pa.string())
        key, policy = set(self.table.feed.table.key), self.table.unstorable
        is_delete = pc.equal(batch.column(OPERATION_COLUMN), Operation.DELETE.value).to_pylist()
        if policy is UnstorablePolicy.FAIL and (living := [row for row in found if not is_delete[row]]):
            raise self._refused(storable, {row: found[row] for row in living})
        notes: list[str | None] = [None] * batch.num_rows
        for row, reasons in found.items():
            in_key = not key.isdisjoint(reasons)
            if in_key or (policy is UnstorablePolicy.QUARANTINE and not is_delete[row]):
                notes[row] = json.dumps(reasons)
        return storable, pa.array(notes, pa.string())

    def _refused(self, batch: pa.RecordBatch, found: _Found) -> DataQualityError:
        what = sorted({f"{column} ({reason})" for reasons in found.values() for column, reason in reasons.items()})
        rows = batch.select(list(self.table.feed.table.key)).take(list(found)[:_EXAMPLES]).to_pylist()
        return DataQualityError(
            str(self.table.source),
            f"texts cannot be stored in PostgreSQL: {', '.join(what)}.",
            "Correct the rows at the source, or choose another policy (unstorable in pipelines.yaml): the next run "
            "reads the rows again.",
            "such as key " + "; ".join(", ".join(map(repr, row.values())) for row in rows),
        )


def replace_unstorable(
    batch: pa.RecordBatch, columns: tuple[ValueColumn, ...]
) -> tuple[pa.RecordBatch, dict[int, dict[str, str]]]:
    """Return the batch with texts that can be stored, and for each changed row the reason by column."""
    found: _Found = {}
    for column in columns:
        if column.type.kind is not Kind.TEXT:
            continue
        texts = batch.column(column.name)
        suspects = np.flatnonzero(_find(texts))
        if len(suspects) == 0:
            continue
        values = texts.cast(pa.large_binary())
        replaced = []
        for row in suspects.tolist():
            text, reason = _storable(values[row].as_buffer())
            replaced.append(text)
            found.setdefault(row, {})[column.name] = reason
        mask = np.zeros(len(texts), dtype=np.bool_)
        mask[suspects] = True
        texts = pc.replace_with_mask(texts, pa.array(mask), pa.array(replaced, texts.type))
        batch = batch.set_column(batch.schema.get_field_index(column.name), column.name, texts)
    return batch, found


def _find(texts: pa.Array) -> _Flags:
    """Return for each text whether it cannot be stored."""
    octets = _octets(texts)
    flags = np.zeros(len(texts), dtype=np.bool_)
    if len(octets) > MAX_TEXT_BYTES:
        flags |= _true(pc.greater(pc.binary_length(texts), MAX_TEXT_BYTES))
    if np.count_nonzero(octets) < len(octets):
        flags |= _true(pc.match_substring(texts, "\0"))
    if len(octets) and np.max(octets) > _LAST_ASCII and not _is_unicode(texts):
        flags |= np.fromiter((not _is_unicode(texts.slice(row, 1)) for row in range(len(texts))), np.bool_, len(texts))
    return flags


def _octets(texts: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the bytes of all texts of a column.

    To check them is ten times as fast as Arrow's kernels by text, on a million texts of fifty bytes without a fault.
    """
    _, offsets, data = texts.buffers()
    if len(texts) == 0 or data is None:
        return np.zeros(0, dtype=np.uint8)
    kind = np.dtype(np.int64 if pa.types.is_large_string(texts.type) else np.int32)
    first, last = np.frombuffer(offsets, kind)[[texts.offset, texts.offset + len(texts)]]
    return np.frombuffer(data, np.uint8)[first:last]


def _is_unicode(texts: pa.Array) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _true(flags: pa.Array) -> _Flags:
    found: _Flags = pc.fill_null(flags, fill_value=False).to_numpy(zero_copy_only=False)
    return found


def _storable(value: Any) -> tuple[str, str]:
    """Return the text that is stored instead, and the reason."""
    if value.size > MAX_TEXT_BYTES:
        return REPLACEMENT, "more than 1 GB"
    raw = value.to_pybytes()
    try:
        text, reason = raw.decode(), "U+0000"
    except UnicodeDecodeError:
        text, reason = _without_surrogates(raw)
    return text.replace("\0", REPLACEMENT), reason


def _without_surrogates(raw: bytes) -> tuple[str, str]:
    try:
        text = raw.decode(errors="surrogatepass")
    except UnicodeDecodeError:
        return raw.decode(errors="replace"), "not Unicode"
    return "".join(REPLACEMENT if "\ud800" <= each <= "\udfff" else each for each in text), "an unpaired surrogate"
