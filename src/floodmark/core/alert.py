"""What is said to the person on call: the alert, and the messages made of it.

Whoever finds something wrong writes an ``Alert``; when it is sent, to whom and how often is the business of
``sync.alerts``. A text never holds a password or a row's values: it leaves the house.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from floodmark.core.schema import TableName

_KIND = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """kind: one word with underscores, such as ``run_failed``; docs/operations.md has a section for each.

    subject: the source or the pipeline; table: None when it is about all of it. what: what happened, means: what it
    leads to, do: what to do now, each a sentence or several. where: by default subject and table. since: in words, with
    the clock it was read from; "" for the moment the alert is first raised. event_key: of one event the same, of two
    never; as long as the alert of a key is open, it is sent once. part: of an event that is made of several and is over
    when the last of them is, such as one cause that many runs fail for; "" for an event that is not.
    Raises ValueError where a part that every message needs is empty.
    """

    kind: str
    subject: str
    what: str
    means: str
    do: str
    event_key: str
    table: TableName | None = None
    where: str = ""
    since: str = ""
    part: str = ""

    def __post_init__(self) -> None:
        if not _KIND.fullmatch(self.kind):
            raise ValueError(f"{self.kind!r} is no kind of alert: one word of small letters and underscores")
        empty = [name for name in ("subject", "what", "means", "do", "event_key") if not getattr(self, name).strip()]
        if empty:
            raise ValueError(f"an alert of kind {self.kind} lacks {', '.join(empty)}")


@dataclass(frozen=True, slots=True)
class AlertMessage:
    """title: one line. lines: a heading and its text each. is_over: the last message of an alert."""

    title: str
    lines: tuple[tuple[str, str], ...]
    is_over: bool

    def __str__(self) -> str:
        return "\n".join((self.title, *(f"{heading}: {text}" for heading, text in self.lines)))


def build_raised_message(alert: Alert, raised_at: datetime) -> AlertMessage:
    """raised_at: with a time zone."""
    lines = (
        ("What", alert.what),
        ("Where", _where(alert)),
        ("Since", alert.since or _moment(raised_at)),
        ("What it means", alert.means),
        ("What to do", alert.do),
    )
    return AlertMessage(f"Floodmark: {_headline(alert)}", lines, is_over=False)


def build_ended_message(alert: Alert, raised_at: datetime, ended_at: datetime, outcome: str = "") -> AlertMessage:
    """outcome: how it ended, in a sentence; "" where that it is over says all."""
    lines = (
        ("What it was", alert.what),
        ("Where", _where(alert)),
        ("Since", alert.since or _moment(raised_at)),
        ("Over since", _moment(ended_at)),
        *((("How it ended", outcome),) if outcome else ()),
        ("What to do", "Nothing more."),
    )
    return AlertMessage(f"Floodmark: over: {_headline(alert)}", lines, is_over=True)


def _headline(alert: Alert) -> str:
    table = f", {alert.table}" if alert.table else ""
    return f"{alert.kind.replace('_', ' ')}: {alert.subject}{table}"


def _where(alert: Alert) -> str:
    return alert.where or alert.subject + (f", table {alert.table}" if alert.table else "")


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} {at.tzname() or ''}".rstrip()
