"""The parts of the status pages: cards of pipelines, rows of tables, states of DAGs, templates."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from floodmark.app.status import TableTexts, changed_text, duration_text, lag_text, table_texts
from floodmark.core.status import PipelineStatus, TableStatus

# --------------------------------------------------------------------------------------------------------------------
# The state of pipelines in Airflow: whether their DAGs are paused, and when they run next.


@dataclass(frozen=True, slots=True)
class DagState:
    """next_run_at: the earliest moment of the next scheduled run; None where none is planned."""

    is_paused: bool
    next_run_at: datetime | None


def read_dag_states(dag_ids: Collection[str]) -> Mapping[str, DagState]:
    """Return the DAGs that Airflow has parsed. To be called in the API server, which may query Airflow's database."""
    from airflow.models.dag import DagModel  # noqa: PLC0415  (only the API server may import it)
    from airflow.utils.session import create_session  # noqa: PLC0415
    from sqlalchemy import select  # noqa: PLC0415

    wanted = (DagModel.dag_id, DagModel.is_paused, DagModel.next_dagrun_create_after)
    query = select(*wanted).where(DagModel.dag_id.in_(dag_ids), DagModel.is_stale.is_(False))
    with create_session(scoped=False) as session:
        rows = session.execute(query).all()
    return {dag: DagState(is_paused=paused, next_run_at=None if paused else at) for dag, paused, at in rows}


# --------------------------------------------------------------------------------------------------------------------
# A pipeline on the status page in one card: its state first, then what an operator asks next.


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
    least = [each.least_lag_seconds for each in tables if each.least_lag_seconds is not None]
    return lag_text(max(known, default=None), max(least, default=None))


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


# --------------------------------------------------------------------------------------------------------------------
# The tables of a pipeline on its page.


_ORDER = ("incident", "attention", "fine")


def rows_of(tables: Sequence[TableStatus], text: str) -> list[TableTexts]:
    """Return the tables whose name has ``text``, the worst first and otherwise in the order of the configuration."""
    found = [each for each in tables if text.casefold() in f"{each.source} {each.target}".casefold()]
    return [table_texts(each) for each in sorted(found, key=lambda each: _ORDER.index(each.standing))]


# --------------------------------------------------------------------------------------------------------------------
# HTML from the templates. Each value is escaped.


# A statement of T-SQL within a sentence, up to its semicolon.
_STATEMENT = re.compile(r"(\b(?:USE|EXEC|GRANT|REVOKE|ALTER) [^;\n]+;(?: (?:USE|EXEC|GRANT|REVOKE|ALTER) [^;\n]+;)*)")


class TextPart(NamedTuple):
    """A part of a text for an operator. is_block: T-SQL with lines of its own."""

    text: str
    is_sql: bool
    is_block: bool = False


def parts_of(text: str) -> list[TextPart]:
    """Return a text in its parts: sentences, statements of T-SQL among them, and the script after the first line."""
    sentences, _, script = text.partition("\n")
    # What a pattern with a group splits by is at the odd places.
    found = [TextPart(part, bool(at % 2)) for at, part in enumerate(_STATEMENT.split(sentences)) if part]
    return [*found, TextPart(script, is_sql=True, is_block=True)] if script else found


@cache
def _environment() -> Environment:
    loader = PackageLoader("floodmark.orchestration.pages")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    # Jinja's own filter leaves "/", which a name may have.
    made.filters["quoted"] = lambda name: quote(name, safe="")
    made.filters["parts"] = parts_of
    # The page says why a value is missing, where a terminal has a dash.
    made.filters["known"] = lambda text, instead: instead if text == "-" else text
    return made


def render(template: str, **values: Any) -> str:
    """Return the page. A value that the template uses and that is not given is an error."""
    return _environment().get_template(template).render(values)


# --------------------------------------------------------------------------------------------------------------------
# Long lists in pages.


_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Page(Generic[_Item]):
    """One page of a list. Pages are counted from 1."""

    items: Sequence[_Item]
    number: int
    count: int


def page_of(items: Sequence[_Item], number: int, size: int) -> Page[_Item]:
    """Return the page of that number: the first or the last where the list has no such page."""
    number, count = page_numbers(len(items), number, size)
    return Page(items[(number - 1) * size : number * size], number, count)


def page_numbers(items: int, number: int, size: int) -> tuple[int, int]:
    """Return the number of the page that is shown for ``number``, and the number of pages."""
    count = max(-(-items // size), 1)
    return min(max(number, 1), count), count
