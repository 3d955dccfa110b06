"""The positions of a fleet are moments, and never go back."""

from __future__ import annotations

from pathlib import Path

from floodmark.core.position import Position, Version
from floodmark.sources.compact.reader import Fleet
from floodmark.sources.compact.source import CompactSource

YEAR_3000_MILLISECONDS = 32_503_680_000_000


def test_a_clock_that_was_set_back_gives_no_earlier_position(tmp_path: Path) -> None:
    source = CompactSource(Fleet((str(tmp_path),)))
    now = source.read_snapshot([]).newest
    assert isinstance(now, Version)
    assert now.number < YEAR_3000_MILLISECONDS
    known: list[Position] = [Version.of(YEAR_3000_MILLISECONDS), Version.of(1)]
    assert source.read_snapshot([], None, known).newest == Version.of(YEAR_3000_MILLISECONDS + 1)
