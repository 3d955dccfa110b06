"""The questions about a table before it is read whole, to a session that gives the answers of the test."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import UUID

import pyarrow as pa
import pytest

from change_histories import histories_plan
from floodmark.core.errors import ConfigError, SourceUnavailableError
from floodmark.core.plan import Bound, LoadKind, TablePlan
from floodmark.core.schema import SourceColumn, SourceTable
from floodmark.sources.sqlserver.driver import SourceSession
from floodmark.sources.sqlserver.rows import find_double_key, read_chunk_bounds, refuse_null_keys


@dataclass
class Session:
    """Answers by what a statement begins with."""

    answers: dict[str, list[tuple[Any, ...]]]
    asked: list[str] = field(default_factory=list)
    given: list[Sequence[object]] = field(default_factory=list)
    bounds: list[tuple[Any, ...] | None] = field(default_factory=list)
    """The answers to the search for bounds, one after the other; None: an error of a moment."""

    def fetch(self, text: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        self.asked.append(text)
        self.given.append(parameters)
        if "OFFSET" in text:
            found = self.bounds.pop(0) if self.bounds else ()
            if found is None:
                raise SourceUnavailableError("dbo.Histories", "the source reported error 1222.")
            return [found] if found else []
        return next(rows for begin, rows in self.answers.items() if text.startswith(begin))


@pytest.fixture
def session() -> Session:
    return Session({"-- The columns of each index": [(1, "A", 0), (1, "B", 0)]})


def _plan(*, nullable: bool) -> TablePlan:
    plan = histories_plan()
    columns = (SourceColumn("A", "int", 1, nullable=False), SourceColumn("B", "uniqueidentifier", 2, nullable=nullable))
    table = SourceTable(plan.source, columns, ("A", "B"))
    return replace(plan, kind=LoadKind.FIRST_LOAD, interval=None, feed=replace(plan.feed, table=table))


def _bounds(session: Session, *, nullable: bool = False) -> list[Bound]:
    return read_chunk_bounds(_plan(nullable=nullable), lambda: nullcontext(cast(SourceSession, session)))


def test_bounds_come_as_values_that_can_go_back(session: Session) -> None:
    session.bounds = [(1, UUID(int=1)), (2, UUID(int=2))]
    assert _bounds(session) == [(1, str(UUID(int=1))), (2, str(UUID(int=2)))]
    rows = histories_plan().settings.first_load.chunk_rows
    assert session.given[-1] == (2, 2, 2, str(UUID(int=2)), rows - 1)


def test_bounds_that_were_found_are_kept_when_a_later_one_fails_for_a_moment(session: Session) -> None:
    session.bounds = [(1, "a"), None, (2, "b"), None, None, (3, "c")]
    assert _bounds(session) == [(1, "a"), (2, "b"), (3, "c")]
    assert sum("OFFSET" in text and "WHERE" not in text for text in session.asked) == 1


def test_search_for_bounds_ends_when_one_fails_again_and_again(session: Session) -> None:
    session.bounds = [(1, "a"), None, None, None]
    with pytest.raises(SourceUnavailableError):
        _bounds(session)


@pytest.mark.parametrize(
    "indexes",
    [
        [],
        [(1, "A", 0)],
        [(1, "B", 0), (1, "A", 0)],
        [(1, "A", 0), (1, "B", 1)],
        [(1, "A", 0), (2, "B", 0)],
    ],
)
def test_key_without_an_index_in_its_order_has_no_bounds(session: Session, indexes: list[tuple[Any, ...]]) -> None:
    session.answers["-- The columns of each index"] = indexes
    session.bounds = [(1, "a")]
    assert _bounds(session, nullable=True) == []
    assert not any("FROM [dbo]" in text for text in session.asked)


@pytest.mark.parametrize("direction", [0, 1])
def test_index_that_begins_with_the_key_serves_in_both_directions(session: Session, direction: int) -> None:
    session.answers["-- The columns of each index"] = [(3, name, direction) for name in ("A", "B", "C")]
    session.bounds = [(1, "a")]
    assert _bounds(session) == [(1, "a")]


def test_null_in_a_key_that_is_read_in_one_stream_is_refused_when_all_are_counted() -> None:
    batch = pa.RecordBatch.from_pydict({"A": [1, 2, 3], "B": [None, "x", None]})
    read = refuse_null_keys(_plan(nullable=True), iter([batch, batch]))
    assert [next(read), next(read)] == [batch, batch]
    with pytest.raises(ConfigError, match=r"declared key \(A, B\) is NULL: B in 4 rows\. "):
        next(read)


def test_key_that_is_null_in_one_row_is_refused(session: Session) -> None:
    session.answers["SELECT COUNT_BIG"] = [(1,)]
    with pytest.raises(ConfigError, match=r"declared key \(A, B\) is NULL: B in 1 row\. "):
        _bounds(session, nullable=True)


@pytest.mark.parametrize(("rows", "found"), [(1, None), (3, ((1, "x"), 3))])
def test_double_key_counts_when_it_is_found_a_second_time(session: Session, rows: int, found: object) -> None:
    session.answers |= {"SELECT TOP (1)": [(1, "x", 2)], "SELECT COUNT_BIG(*)": [(rows,)]}
    assert find_double_key(_plan(nullable=False), cast(SourceSession, session)) == found


def test_key_that_no_two_rows_have_is_not_found(session: Session) -> None:
    session.answers["SELECT TOP (1)"] = []
    assert find_double_key(_plan(nullable=False), cast(SourceSession, session)) is None
