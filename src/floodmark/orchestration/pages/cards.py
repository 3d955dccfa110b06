"""A pipeline on the status page in one card: its state first, then what an operator asks next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import quote

from floodmark.app.status_texts import changed_text, duration_text
from floodmark.core.status.report import PipelineStatus, TableStatus
from floodmark.orchestration.pages.dag_states import DagState

STATES = ("incident", "unreadable", "attention", "paused", "healthy")
"""The states of a pipeline, by need of attention."""
_PLAIN = {"incident": "incident", "attention": "attention", "fine": "healthy"}
_CLASSES = {"incident": "incident", "unreadable": "incident", "attention": "attention", "healthy": "fine"}


@dataclass(frozen=True, slots=True)
class Card:
    """error: why the pipeline cannot be read; the fields after it are empty then."""

    pipeline: str
    state: str
    error: str = ""
    tables: str = ""
    lag: str = ""
    max_lag: str = ""
    last_window: str = ""
    next_run: str = ""
    unfinished: str = ""
    alerts: tuple[str, ...] = ()

    @property
    def standing(self) -> str:
        """The class of the page's style."""
        return _CLASSES.get(self.state, "unknown")

    @property
    def href(self) -> str:
        """The page of the pipeline, from that of all."""
        return f"status/{quote(self.pipeline, safe='')}"


def card_of(status: PipelineStatus, dag: DagState | None, max_lag: timedelta | None, now: datetime) -> Card:
    """Return the card of a pipeline. dag: None where Airflow has not parsed it."""
    return Card(
        pipeline=status.pipeline,
        state=_state(status, dag),
        tables=_tables(status.tables),
        lag=_lag(status.tables),
        max_lag=duration_text(max_lag.total_seconds()) if max_lag else "",
        last_window=_last_window(status.tables, now),
        next_run=_next_run(dag, now),
        unfinished=f"window {status.unfinished_window_id} ({status.unfinished_state})"
        if status.unfinished_window_id is not None
        else "",
        alerts=tuple(f"{each.kind.replace('_', ' ').capitalize()}: {each.what}" for each in status.alerts),
    )


def select(cards: Sequence[Card], text: str, state: str) -> list[Card]:
    """Return the cards whose name has ``text``, of one state or, where that is empty, of all. The worst is first."""
    found = [
        card for card in cards if text.casefold() in card.pipeline.casefold() and (not state or card.state == state)
    ]
    return sorted(found, key=lambda card: (STATES.index(card.state), card.pipeline.casefold()))


def summary(cards: Sequence[Card]) -> str:
    """Return how many pipelines are in each state, the worst first."""
    counts = Counter(card.state for card in cards)
    number = f"{len(cards):,} pipeline{'' if len(cards) == 1 else 's'}"
    return f"{number}: " + ", ".join(f"{counts[state]:,} {state}" for state in STATES if counts[state])


def _state(status: PipelineStatus, dag: DagState | None) -> str:
    plain = _PLAIN[status.standing]
    return "paused" if dag and dag.is_paused and plain != "incident" else plain


def _tables(tables: Sequence[TableStatus]) -> str:
    counts = Counter(each.standing for each in tables)
    parts = [f"{counts[standing]:,} {word}" for standing, word in _PLAIN.items() if counts[standing]]
    return f"{len(tables):,} ({', '.join(parts)})"


def _lag(tables: Sequence[TableStatus]) -> str:
    known = [each.lag_seconds for each in tables if each.lag_seconds is not None]
    return duration_text(max(known, default=None))


def _last_window(tables: Sequence[TableStatus], now: datetime) -> str:
    """Return when the latest window of the pipeline was published, and the rows that it changed."""
    at = max((each.advanced_at for each in tables if each.advanced_at), default=None)
    if at is None:
        return "none yet"
    number = max((each.last_window.window_id for each in tables if each.last_window), default=None)
    last = [each.last_window for each in tables if each.last_window and each.last_window.window_id == number]
    counts = (sum(getattr(each, f"{name}_rows") for each in last) for name in ("inserted", "updated", "deleted"))
    return f"{_ago(at, now)}: {changed_text(*counts)}"


def _next_run(dag: DagState | None, now: datetime) -> str:
    if dag is None:
        return "Airflow has not parsed the DAG"
    if dag.is_paused:
        return "none, the DAG is paused"
    if dag.next_run_at is None:
        return "by hand or by an asset"
    return "due" if dag.next_run_at <= now else f"in {duration_text((dag.next_run_at - now).total_seconds())}"


def _ago(at: datetime, now: datetime) -> str:
    return f"{duration_text(max((now - at).total_seconds(), 0.0))} ago"
