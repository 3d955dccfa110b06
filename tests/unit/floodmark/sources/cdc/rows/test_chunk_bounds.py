"""What a table is asked before it is read whole, of a session that answers as told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import UUID

import pytest

from change_histories import histories_plan
from floodmark.core.errors import ConfigError
from floodmark.core.schema import SourceColumn, SourceTable
from floodmark.core.window.plan import LoadKind, TablePlan
from floodmark.sources.cdc.rows import chunk_bounds
from floodmark.sources.sqlserver.driver import SourceSession


@dataclass
class Session:
    """Answers by what a statement begins with."""

    answers: dict[str, list[tuple[Any, ...]]]
    asked: list[str] = field(default_factory=list)

    def fetch(self, text: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        self.asked.append(text)
        return next(rows for begin, rows in self.answers.items() if text.startswith(begin))


@pytest.fixture
def session() -> Session:
    return Session({})


def _plan(*, nullable: bool) -> TablePlan:
    plan = histories_plan()
    columns = (SourceColumn("A", "int", 1, nullable=False), SourceColumn("B", "uniqueidentifier", 2, nullable=nullable))
    table = SourceTable(plan.source, columns, ("A", "B"))
    return replace(plan, kind=LoadKind.FIRST_LOAD, interval=None, feed=replace(plan.feed, table=table))


def test_bounds_come_as_values_that_can_go_back(session: Session) -> None:
    session.answers["SELECT [A]"] = [(1, UUID(int=1))]
    assert chunk_bounds.read_chunk_bounds(_plan(nullable=False), cast(SourceSession, session)) == [
        (1, str(UUID(int=1)))
    ]
    assert len(session.asked) == 1


def test_key_that_is_null_in_one_row_is_refused(session: Session) -> None:
    session.answers["SELECT COUNT_BIG"] = [(1,)]
    with pytest.raises(ConfigError, match=r"declared key \(A, B\) is NULL: B in 1 row\. "):
        chunk_bounds.read_chunk_bounds(_plan(nullable=True), cast(SourceSession, session))


@pytest.mark.parametrize(("rows", "found"), [(1, None), (3, ((1, "x"), 3))])
def test_double_key_counts_when_it_is_found_a_second_time(session: Session, rows: int, found: object) -> None:
    session.answers |= {"SELECT TOP (1)": [(1, "x", 2)], "SELECT COUNT_BIG(*)": [(rows,)]}
    assert chunk_bounds.find_double_key(_plan(nullable=False), cast(SourceSession, session)) == found


def test_key_that_no_two_rows_have_is_not_found(session: Session) -> None:
    session.answers["SELECT TOP (1)"] = []
    assert chunk_bounds.find_double_key(_plan(nullable=False), cast(SourceSession, session)) is None
