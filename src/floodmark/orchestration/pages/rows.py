"""The tables of a pipeline on its page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from floodmark.app.status_texts import behind_text, changed_text, duration_text, headroom_text, state_text
from floodmark.core.status.report import TableStatus

_ORDER = ("incident", "attention", "fine")


@dataclass(frozen=True, slots=True)
class Row:
    """A table, in words."""

    source: str
    target: str
    standing: str
    verdict: str
    state: str
    drift: str
    lag: str
    behind: str
    headroom: str
    read: str
    changed: str
    quarantined: str
    watermark: str
    watermark_at: str


def rows_of(tables: Sequence[TableStatus], text: str) -> list[Row]:
    """Return the tables whose name has ``text``, the worst first and otherwise in the order of the configuration."""
    found = [each for each in tables if text.casefold() in f"{each.source} {each.target}".casefold()]
    return [_row(each) for each in sorted(found, key=lambda each: _ORDER.index(each.standing))]


def _row(table: TableStatus) -> Row:
    last = table.last_window
    return Row(
        source=table.source,
        target=table.target,
        standing=table.standing,
        verdict=table.verdict.replace("_", " "),
        state=state_text(table).replace("_", " "),
        drift=f"{len(table.drift)} drift open" if table.drift else "",
        lag=duration_text(table.lag_seconds),
        behind=behind_text(table),
        headroom=headroom_text(table),
        read=f"{last.read_rows:,}" if last else "-",
        changed=changed_text(last.inserted_rows, last.updated_rows, last.deleted_rows) if last else "-",
        quarantined=f"{last.quarantined_rows:,}" if last and last.quarantined_rows else "",
        watermark=table.watermark or "-",
        watermark_at=f"{table.watermark_at:%Y-%m-%d %H:%M:%S}" if table.watermark_at else "",
    )
