"""The parts of an Arrow column before rows are made of it, and how parts are joined into rows.

A column is a list of parts. A ``FixedPart`` is a few numbers of fixed width per row, of which a NULL row keeps only
the first bytes; neighbouring fixed parts of all columns become one record array. A ``VariablePart`` is text or bytes.
``join_parts`` interleaves them with Arrow's ``binary_join_element_wise``, whose data buffer is the token stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class FixedPart:
    """fields: (numpy type, a value or one per row). Rows where ``present`` is false keep ``kept_bytes`` bytes."""

    fields: Sequence[tuple[str, Numbers | int]]
    present: Mask | None = None
    kept_bytes: int = 0


@dataclass(frozen=True, slots=True)
class VariablePart:
    """Row i has the bytes from ``offsets[i]`` to ``offsets[i + 1]``."""

    offsets: Numbers
    data: bytes | memoryview


Part: TypeAlias = FixedPart | VariablePart


def join_parts(parts: Sequence[Part], row_count: int) -> memoryview:
    """The bytes of all rows, one after the other."""
    arrays = []
    for fixed, run in groupby(parts, lambda part: isinstance(part, FixedPart)):
        if fixed:
            arrays.append(_fixed_array([part for part in run if isinstance(part, FixedPart)], row_count))
        else:
            arrays += [_array(part.offsets, part.data) for part in run if isinstance(part, VariablePart)]
    joined = arrays[0] if len(arrays) == 1 else pc.binary_join_element_wise(*arrays, b"")
    _validity, offsets, data = joined.buffers()
    end = np.frombuffer(offsets, "<i4")[row_count]
    return memoryview(data)[:end]


def _array(offsets: Numbers, data: bytes | memoryview | Numbers) -> Any:
    if offsets[-1] > np.iinfo(np.int32).max:
        raise OverflowError(f"{offsets[-1]} bytes in one slice of a result")
    buffers = [None, pa.py_buffer(offsets.astype("<i4", copy=False)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _fixed_array(parts: Sequence[FixedPart], row_count: int) -> Any:
    fields = [field for part in parts for field in part.fields]
    records = np.empty(row_count, np.dtype([(f"f{i}", type_) for i, (type_, _values) in enumerate(fields)]))
    for i, (_type, values) in enumerate(fields):
        records[f"f{i}"] = values
    matrix = records.view(np.uint8).reshape(row_count, -1)
    mask = _kept_mask(parts, row_count, matrix.shape[1])
    if mask is None:
        return _array(np.arange(row_count + 1, dtype=np.int64) * matrix.shape[1], matrix.reshape(-1))
    return _array(_offsets(np.count_nonzero(mask, axis=1)), matrix[mask])


def _kept_mask(parts: Iterable[FixedPart], row_count: int, width: int) -> Mask | None:
    mask: Mask | None = None
    start = 0
    for part in parts:
        size = sum(np.dtype(type_).itemsize for type_, _values in part.fields)
        if part.present is not None:
            if mask is None:
                mask = np.ones((row_count, width), np.bool_)
            mask[:, start + part.kept_bytes : start + size] = part.present[:, np.newaxis]
        start += size
    return mask


def _offsets(lengths: Numbers) -> Numbers:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def variable_part(values: Sequence[bytes]) -> VariablePart:
    return VariablePart(_offsets(np.fromiter(map(len, values), np.int64, len(values))), b"".join(values))
