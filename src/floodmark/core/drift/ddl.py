"""The DDL history of a capture instance, and the statements that explain a difference.

The texts are written by users of the source. They are not parsed for their effect, which the shapes show: they are only
searched for the words that connect a statement with a column. A statement without a connection is reported as such.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from floodmark.core.drift.shapes import Difference
from floodmark.core.policies import DriftClass
from floodmark.core.position import Position

_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_ACTIONS = {
    DriftClass.COLUMN_ADDED: re.compile(r"\bADD\b", re.IGNORECASE),
    DriftClass.COLUMN_DROPPED: re.compile(r"\bDROP\b", re.IGNORECASE),
    **dict.fromkeys(
        (
            DriftClass.TYPE_WIDENED,
            DriftClass.TYPE_NARROWED,
            DriftClass.TYPE_CHANGED,
            DriftClass.NULLABILITY_CHANGED,
        ),
        re.compile(r"\bALTER\s+COLUMN\b", re.IGNORECASE),
    ),
}


@dataclass(frozen=True, slots=True)
class DdlEntry:
    """A row of ``sys.sp_cdc_get_ddl_history``."""

    lsn: Position
    at: datetime
    """Local time of the server, in whole minutes on some versions."""
    text: str


@dataclass(frozen=True, slots=True)
class Explained:
    """A difference with the statements that explain it."""

    difference: Difference
    entries: tuple[DdlEntry, ...] = ()
    """Oldest first; () while the history has none."""


def explain(differences: Sequence[Difference], entries: Sequence[DdlEntry]) -> tuple[Explained, ...]:
    """Return each difference with its DDL, then one of class unknown for each statement that explains none."""
    ordered = sorted(entries, key=lambda entry: entry.lsn)
    explained = [
        Explained(difference, tuple(entry for entry in ordered if is_behind(entry, difference)))
        for difference in differences
    ]
    used = {entry for each in explained for entry in each.entries}
    rest = (Explained(Difference(DriftClass.UNKNOWN), (entry,)) for entry in ordered if entry not in used)
    return (*explained, *rest)


def is_behind(entry: DdlEntry, difference: Difference) -> bool:
    """Return whether the statement names the column and has the kind of action that was found."""
    action = _ACTIONS.get(difference.kind)
    if action is None or difference.column is None:
        return False
    text = _COMMENT.sub(" ", entry.text)
    return bool(action.search(text)) and mentions(text, difference.column)


def mentions(text: str, column: str) -> bool:
    """Return whether a statement names the column, in brackets, in quotation marks or as a word of its own."""
    name = re.escape(column)
    bracketed = re.escape(column.replace("]", "]]"))
    pattern = rf'\[{bracketed}\]|"{re.escape(column.replace(chr(34), chr(34) * 2))}"|(?<![\w@#$]){name}(?![\w@#$])'
    return re.search(pattern, text, re.IGNORECASE) is not None
