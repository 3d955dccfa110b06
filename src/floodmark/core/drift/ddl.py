"""The DDL history of a capture instance, and which of its statements stand behind which difference.

The texts are whatever somebody typed. They are never parsed for what they do (the shapes tell that): only the words
that connect a statement with a column are looked for, and a statement that connects with nothing is reported as such.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from floodmark.core.drift.shapes import Difference
from floodmark.core.lsn import Lsn
from floodmark.core.policies import DriftClass

_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_ACTIONS = {
    DriftClass.COLUMN_ADDED: re.compile(r"\bADD\b", re.IGNORECASE),
    DriftClass.COLUMN_DROPPED: re.compile(r"\bDROP\b", re.IGNORECASE),
    **dict.fromkeys(
        (
            DriftClass.TYPE_WIDENED, DriftClass.TYPE_NARROWED, DriftClass.TYPE_CHANGED,
            DriftClass.NULLABILITY_CHANGED,
        ),
        re.compile(r"\bALTER\s+COLUMN\b", re.IGNORECASE),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DdlEntry:
    """A row of ``sys.sp_cdc_get_ddl_history``. at: local time of the server, in whole minutes on some versions."""

    lsn: Lsn
    at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class Explained:
    """A difference with the statements that may have made it, oldest first; () while the history tells of none."""

    difference: Difference
    entries: tuple[DdlEntry, ...] = ()


def explain(differences: Sequence[Difference], entries: Sequence[DdlEntry]) -> tuple[Explained, ...]:
    """Each difference with its DDL, then one of class unknown for each statement that stands behind none."""
    ordered = sorted(entries, key=lambda entry: entry.lsn)
    explained = [
        Explained(difference, tuple(entry for entry in ordered if is_behind(entry, difference)))
        for difference in differences
    ]
    used = {entry for each in explained for entry in each.entries}
    rest = (Explained(Difference(DriftClass.UNKNOWN), (entry,)) for entry in ordered if entry not in used)
    return (*explained, *rest)


def is_behind(entry: DdlEntry, difference: Difference) -> bool:
    """Whether the statement names the column and does the kind of thing that was found."""
    action = _ACTIONS.get(difference.kind)
    if action is None or difference.column is None:
        return False
    text = _COMMENT.sub(" ", entry.text)
    return bool(action.search(text)) and mentions(text, difference.column)


def mentions(text: str, column: str) -> bool:
    """Whether a statement names the column, in brackets, in quotation marks or as a word of its own."""
    name = re.escape(column)
    bracketed = re.escape(column.replace("]", "]]"))
    pattern = rf'\[{bracketed}\]|"{re.escape(column.replace(chr(34), chr(34) * 2))}"|(?<![\w@#$]){name}(?![\w@#$])'
    return re.search(pattern, text, re.IGNORECASE) is not None
