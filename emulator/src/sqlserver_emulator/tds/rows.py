"""ROW tokens from Python tuples. Columnar inside: C loops (``map``, ``zip``, ``join``) do the work per cell."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import chain, groupby, repeat
from typing import Any

from sqlserver_emulator.tds.values import PACK_FORMATS, column_encoder
from sqlserver_emulator.types import TsqlType

ROW = 0xD1


class RowEncoder:
    """Made once per shape of result set.

    Neighbouring number columns form a run that one ``struct`` packs, length bytes included; struct refuses None, and
    then the run is encoded cell by cell.
    """

    def __init__(self, types: Sequence[TsqlType]) -> None:
        self._runs: list[tuple[int, int, struct.Struct | None]] = []
        position = 0
        for packable, group in groupby(types, lambda type_: type_.name in PACK_FORMATS):
            run = list(group)
            format_ = "<" + "".join("B" + PACK_FORMATS[type_.name] for type_ in run) if packable else None
            self._runs.append((position, position + len(run), struct.Struct(format_) if format_ else None))
            position += len(run)
        self._sizes = [struct.calcsize("<" + PACK_FORMATS.get(type_.name, "")) for type_ in types]
        self._encoders = [column_encoder(type_) for type_ in types]

    def encode(self, rows: Sequence[tuple[object, ...]]) -> bytes:
        if not rows:
            return b""
        columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True))
        pieces: list[Iterable[bytes]] = [repeat(bytes((ROW,)), len(rows))]
        for start, end, packer in self._runs:
            packed = self._pack_run(columns, start, end, packer) if packer else None
            if packed is not None:
                pieces.append(packed)
            else:
                pieces.extend(self._encoders[i](columns[i]) for i in range(start, end))
        return b"".join(chain.from_iterable(zip(*pieces, strict=True)))

    def _pack_run(
        self, columns: list[tuple[Any, ...]], start: int, end: int, packer: struct.Struct
    ) -> list[bytes] | None:
        arguments: list[Iterable[Any]] = []
        for i in range(start, end):
            arguments += (repeat(self._sizes[i]), columns[i])
        try:
            return list(map(packer.pack, *arguments))
        except struct.error:
            return None
