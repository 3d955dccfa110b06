"""Staging of a lake: one Parquet file for each try of a part, of which the merge reads those that tasks reported.

``<root>/<window>/<attempt>/<table>/<part>-<random>.parquet`` has changes, and ``<root>/<window>/load/<table>/``
the chunks of a first load, which outlast attempts. A file appears under its name when it is complete.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from floodmark.core.errors import DataQualityError, WatermarkConflictError
from floodmark.core.plan import LoadKind, TablePlan, WindowPlan, value_columns
from floodmark.core.schema import (
    CHANGED_COLUMN,
    COMMAND_COLUMN,
    COMMITTED_COLUMN,
    OPERATION_COLUMN,
    POSITION_COLUMN,
    SEQUENCE_COLUMN,
    keep_column,
)
from floodmark.postgres.warehouse.staging import kept_columns, staged_columns
from floodmark.sync.arrow import arrow_type
from floodmark.sync.ports import StagedPart, StagedRows

_ATTEMPT = "attempt"
_MERGED = "merged.json"
_LOADS = "load"
_LONGEST_READ_SECONDS = 86_400.0
_OWN_TYPES = {
    COMMAND_COLUMN: pa.int32(),
    SEQUENCE_COLUMN: pa.binary(),
    CHANGED_COLUMN: pa.list_(pa.string()),
    COMMITTED_COLUMN: pa.timestamp("us", tz="UTC"),
}
_NAME = re.compile(r"(\d+)(?:-[0-9a-f]+)?\.parquet")


def parquet_schema(table: TablePlan) -> pa.Schema:
    """Return the schema of staged files: the stored values, position, operation, columns of the style, keep flags."""
    source = table.in_target
    values = [(column.name, arrow_type(column.type)) for column in value_columns(source, table.settings.temporal)]
    own = [(POSITION_COLUMN, pa.binary()), (OPERATION_COLUMN, pa.int16())]
    own += [(name, _OWN_TYPES[name]) for name in staged_columns(table)]
    return pa.schema([*values, *own, *((keep_column(name), pa.bool_()) for name in kept_columns(table))])


@dataclass(frozen=True)
class ParquetSink:
    """``sync.ports.StagingSink`` for one table of one attempt. It holds no connection and no secret."""

    table: TablePlan
    window: Path
    folder: Path
    attempt: int

    def write(self, part: int, batches: Iterator[pa.RecordBatch]) -> StagedPart:
        is_chunk = self.table.kind is LoadKind.FIRST_LOAD
        receipt = f"{part}.parquet" if is_chunk else f"{part}-{secrets.token_hex(8)}.parquet"
        partial = self.folder / f".{secrets.token_hex(8)}.partial"
        self._refuse_overtaken()
        rows = self._write(partial, batches)
        try:
            self._refuse_overtaken()
            if rows or is_chunk:
                partial.replace(self.folder / receipt)
        except FileNotFoundError:
            raise self._overtaken() from None
        finally:
            partial.unlink(missing_ok=True)
        return StagedPart(part, rows, receipt if rows and not is_chunk else "")

    def _write(self, path: Path, batches: Iterator[pa.RecordBatch]) -> int:
        schema, rows = parquet_schema(self.table), 0
        with pq.ParquetWriter(path, schema) as writer:
            for batch in batches:
                writer.write_batch(self._as_stored(batch, schema))
                rows += batch.num_rows
        return rows

    def _as_stored(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return a batch in the schema of staging. Raises DataQualityError for a text that is not Unicode."""
        arrays = []
        for field in schema:
            array = batch.column(field.name)
            if pa.types.is_string(field.type):
                self._refuse_half_texts(array, field.name)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _refuse_half_texts(self, texts: pa.Array, column: str) -> None:
        try:
            texts.validate(full=True)
        except pa.ArrowInvalid:
            raise DataQualityError(
                str(self.table.source),
                f"texts of column {column} are not Unicode (an unpaired surrogate), and cannot be stored in a lake.",
                "Correct the rows at the source: the next run reads the rows again.",
            ) from None

    def _refuse_overtaken(self) -> None:
        try:
            latest = int((self.window / _ATTEMPT).read_text("ascii"))
        except FileNotFoundError:
            latest = -1
        if latest != self.attempt or not self.folder.is_dir():
            raise self._overtaken()

    def _overtaken(self) -> WatermarkConflictError:
        return WatermarkConflictError(
            str(self.table.source),
            "another load of the window has begun, or has finished it: its staging folder is gone.",
            "Nothing was written.",
        )


class LakeStaging:
    """The folders of staging, for the driver."""

    def __init__(self, root: Path) -> None:
        """Prepare it. root: the folder of one ledger's windows."""
        self._root = root

    def prepare(self, plan: WindowPlan, unfinished: Collection[int]) -> None:
        """Make the folders of an attempt, and remove those of earlier ones; chunks of first loads are kept.

        unfinished: the windows of the ledger; what is left of others is removed.
        """
        if self._root.is_dir():
            self._drop_reads()
            for left in [path for path in self._root.iterdir() if path.name.isdecimal()]:
                if int(left.name) not in {*unfinished, plan.window_id}:
                    self.drop(int(left.name))
        window = self._window(plan.window_id)
        window.mkdir(parents=True, exist_ok=True)
        partial = window / f".{_ATTEMPT}"
        partial.write_text(str(plan.attempt), "ascii")
        partial.replace(window / _ATTEMPT)
        kept = {_LOADS, str(plan.attempt)}
        for left in [each for each in window.iterdir() if each.is_dir() and each.name not in kept]:
            shutil.rmtree(left, ignore_errors=True)
        for index in range(len(plan.tables)):
            self.folder(plan, index).mkdir(parents=True, exist_ok=True)

    def sink(self, plan: WindowPlan, index: int) -> ParquetSink:
        """Return the sink of a table."""
        window = self._window(plan.window_id)
        return ParquetSink(plan.tables[index], window, self.folder(plan, index), plan.attempt)

    def folder(self, plan: WindowPlan, index: int) -> Path:
        """Return the folder of a table."""
        table = plan.tables[index]
        attempt = _LOADS if table.kind is LoadKind.FIRST_LOAD else str(plan.attempt)
        return self._window(plan.window_id) / attempt / f"{table.target.schema}.{table.target.name}"

    def gate(self, plan: WindowPlan, index: int) -> Path:
        """Return an empty folder for what the rules leave of the rows of a table."""
        return self._empty(plan, index, "gate")

    def merge(self, plan: WindowPlan, index: int) -> Path:
        """Return an empty folder for what a merge computes of a table."""
        return self._empty(plan, index, "merge")

    def _empty(self, plan: WindowPlan, index: int, of: str) -> Path:
        table = plan.tables[index]
        folder = self._window(plan.window_id) / str(plan.attempt) / f"{table.target.schema}.{table.target.name}.{of}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def count_parts(self, plan: WindowPlan, index: int) -> Mapping[int, int]:
        """Return the number of rows of each part that has some."""
        found: Counter[int] = Counter()
        for path in self._files(plan, index):
            found[_part_of(path)] += count_rows([path])
        return +found

    def clear(self, plan: WindowPlan, index: int, numbers: Collection[int]) -> None:
        """Remove the files of parts."""
        for path in self._files(plan, index):
            if _part_of(path) in numbers:
                path.unlink(missing_ok=True)

    def find_files(self, plan: WindowPlan, index: int, staged: StagedRows | None) -> list[Path]:
        """Return the files of the reported tries, of a first load those of all chunks. Those without rows are left out.

        staged: None for all files. A file that is missing is left out; the number of rows shows it.
        """
        files = self._files(plan, index)
        if staged is not None and plan.tables[index].kind is LoadKind.CHANGES:
            receipts = {part.receipt for part in staged.parts}
            files = [path for path in files if path.name in receipts]
        return [path for path in files if count_rows([path])]

    def record_merged(self, plan: WindowPlan, index: int, files: Sequence[Path]) -> None:
        """Record the files that were merged, for the checks."""
        folder = self.folder(plan, index)
        partial = folder / f".{_MERGED}"
        partial.write_text(json.dumps([str(path) for path in files]), "utf-8")
        partial.replace(folder / _MERGED)

    def find_merged(self, plan: WindowPlan, index: int) -> list[Path] | None:
        """Return the files that were merged; None where staging is gone."""
        folder = self.folder(plan, index)
        try:
            names = json.loads((folder / _MERGED).read_text("utf-8"))
        except FileNotFoundError:
            return None
        files = [Path(name) for name in names]
        return files if all(path.is_file() for path in files) else None

    def drop(self, window_id: int) -> None:
        """Remove what is staged of a window; sinks of its attempts can no longer write."""
        window = self._window(window_id)
        (window / _ATTEMPT).unlink(missing_ok=True)
        shutil.rmtree(window, ignore_errors=True)

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """Return a folder for one read of a table, which is removed after the block."""
        folder = self._root / f"read-{secrets.token_hex(8)}"
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _drop_reads(self) -> None:
        """Remove what reads that were killed have left."""
        for left in self._root.glob("read-*"):
            with suppress(FileNotFoundError):
                if time.time() - left.stat().st_mtime > _LONGEST_READ_SECONDS:
                    shutil.rmtree(left, ignore_errors=True)

    def _window(self, window_id: int) -> Path:
        return self._root / str(window_id)

    def _files(self, plan: WindowPlan, index: int) -> list[Path]:
        try:
            paths = sorted(self.folder(plan, index).iterdir())
        except FileNotFoundError:
            return []
        return [path for path in paths if _NAME.fullmatch(path.name)]


def count_rows(files: Sequence[Path]) -> int:
    """Return the number of rows of staged files, without reading them. A file that is gone has none."""
    rows = 0
    for path in files:
        try:
            rows += pq.read_metadata(path).num_rows
        except FileNotFoundError:
            continue
    return rows


def _part_of(path: Path) -> int:
    found = _NAME.fullmatch(path.name)
    assert found is not None  # noqa: S101  (only such names are listed)
    return int(found[1])
