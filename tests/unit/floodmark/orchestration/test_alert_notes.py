"""The variable that remembers alerts while the warehouse is away, whatever it holds and however Airflow fails."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.sdk import Variable
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse

from floodmark.core.alert import Alert
from floodmark.core.schema import TableName
from floodmark.orchestration import tasks
from floodmark.orchestration.tasks import VariableNotes
from floodmark.sync.alerts import Delivery

ALERT = Alert(
    kind="run_failed", subject="shop", what="w", means="m", do="d", event_key="k", table=TableName("dbo", "Orders")
)
NOTE = Delivery(ALERT, datetime(2026, 5, 1, tzinfo=UTC), notified={"chat"})


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The variables of an Airflow."""
    kept: dict[str, Any] = {}
    monkeypatch.setattr(tasks, "_is_inside_airflow", lambda: True)
    monkeypatch.setattr(Variable, "get", lambda name, **_: kept.get(name))
    monkeypatch.setattr(Variable, "set", lambda name, value, **_: kept.update({name: value}))
    return kept


def test_notes_come_back_as_they_were_written(kept: dict[str, Any]) -> None:
    VariableNotes().write({"k": NOTE})
    assert VariableNotes().read() == {"k": NOTE}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda row: {},
        lambda row: "text",
        lambda row: row | {"alert": None},
        lambda row: {**row, "raised_at": "soon"},
        lambda row: {**row, "alert": {**row["alert"], "of_a_later_version": 1}},
    ],
)
def test_note_that_cannot_be_read_costs_no_more_than_itself(
    kept: dict[str, Any], caplog: pytest.LogCaptureFixture, spoil: Callable[[Any], Any]
) -> None:
    VariableNotes().write({"k": NOTE})
    (row,) = kept[tasks.VARIABLE]
    kept[tasks.VARIABLE] = [spoil(row), row]
    assert VariableNotes().read() == {"k": NOTE}
    assert "Could not read a note" in caplog.text


@pytest.mark.parametrize("content", [None, [], {}, "text", 7])
def test_variable_that_holds_something_else_counts_as_no_notes(kept: dict[str, Any], content: Any) -> None:
    kept[tasks.VARIABLE] = content
    assert VariableNotes().read() == {}


def test_api_server_that_fails_counts_as_no_notes(kept: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **named: Any) -> Any:
        raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))

    monkeypatch.setattr(Variable, "get", fail)
    monkeypatch.setattr(Variable, "set", fail)
    VariableNotes().write({"k": NOTE})
    assert VariableNotes().read() == {}
