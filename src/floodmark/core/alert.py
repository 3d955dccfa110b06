"""The alert, and the messages to the person on call that are made from it.

A component that detects a problem creates an ``Alert``. When it is sent, to whom and how often is the business of
``sync.alerts``. A text never contains a password or a row's values, because it leaves the organisation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from floodmark.core.schema import TableName

_KIND = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An event that the person on call must know of.

    Raises ValueError where a part that every message needs is empty.
    """

    kind: str
    """One word with underscores, such as ``run_failed``; docs/reference/alerts.md has each."""
    subject: str
    """The source or the pipeline."""
    what: str
    """What happened, in one or several sentences."""
    means: str
    """What it leads to, in one or several sentences."""
    do: str
    """What to do now, in one or several sentences."""
    event_key: str
    """The same for one event, and never for two. While the alert of a key is open, it is sent once."""
    table: TableName | None = None
    """None when the alert is about the whole subject."""
    where: str = ""
    """"": the subject and the table."""
    since: str = ""
    """In words, with the clock it was read from; "": the moment at which the alert is first raised."""
    part: str = ""
    """The part of an event that consists of several, and ends when its last part does, such as one cause that several
    runs fail for; "" for an event without parts."""

    def __post_init__(self) -> None:
        if not _KIND.fullmatch(self.kind):
            raise ValueError(f"{self.kind!r} is not a kind of alert: use one word of small letters and underscores")
        empty = [name for name in ("subject", "what", "means", "do", "event_key") if not getattr(self, name).strip()]
        if empty:
            raise ValueError(f"an alert of kind {self.kind} lacks {', '.join(empty)}")


@dataclass(frozen=True, slots=True)
class AlertMessage:
    """A message about an alert."""

    title: str
    """One line."""
    lines: tuple[tuple[str, str], ...]
    """A heading and its text each."""
    is_over: bool
    """Whether this is the last message of the alert."""

    def __str__(self) -> str:
        return "\n".join((self.title, *(f"{heading}: {text}" for heading, text in self.lines)))


def build_raised_message(alert: Alert, raised_at: datetime, links: tuple[tuple[str, str], ...] = ()) -> AlertMessage:
    """Return the message that an alert was raised.

    raised_at: with a time zone. links: a heading and an address each.
    """
    lines = (
        ("What", alert.what),
        ("Where", _where(alert)),
        ("Since", alert.since or _moment(raised_at)),
        ("What it means", alert.means),
        ("What to do", alert.do),
        *links,
    )
    return AlertMessage(f"Floodmark: {_headline(alert)}", lines, is_over=False)


def build_ended_message(
    alert: Alert,
    raised_at: datetime,
    ended_at: datetime,
    outcome: str = "",
    links: tuple[tuple[str, str], ...] = (),
) -> AlertMessage:
    """Return the message that an alert has ended.

    outcome: how it ended, in a sentence; "" where there is no more to say. links: a heading and an address each.
    """
    lines = (
        ("What it was", alert.what),
        ("Where", _where(alert)),
        ("Since", alert.since or _moment(raised_at)),
        ("Ended at", _moment(ended_at)),
        *((("How it ended", outcome),) if outcome else ()),
        ("What to do", "Nothing."),
        *links,
    )
    return AlertMessage(f"Floodmark: ended: {_headline(alert)}", lines, is_over=True)


def _headline(alert: Alert) -> str:
    table = f", {alert.table}" if alert.table else ""
    return f"{alert.kind.replace('_', ' ')}: {alert.subject}{table}"


def _where(alert: Alert) -> str:
    return alert.where or alert.subject + (f", table {alert.table}" if alert.table else "")


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} {at.tzname() or ''}".rstrip()
