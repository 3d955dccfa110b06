"""The actions on a table: the button, the DAG that the viewer may read, its configuration, and the command."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from floodmark.core.status import DriftNote
from floodmark.orchestration.pages.buttons import (
    Rights,
    TableAction,
    actions_on,
    close_button,
    drift_buttons,
    right_of,
)

DAGS = ("cdc_shop", "cdc_load_shop")
RUNS = ("cdc_shop", "cdc_load_shop")
"""The DAGs whose runs the viewer may start."""
NOTE = DriftNote(7, datetime(2026, 5, 1, tzinfo=UTC), "column Note was added", "undecided", "EXEC x;")


def actions(table: str = "dbo.Orders", dags: tuple[str, ...] = DAGS, **known: Any) -> list[TableAction]:
    return actions_on(
        "shop", table, Rights(dags, RUNS.__contains__), **{"has_history": True, "is_scheduled": True} | known
    )


def test_table_is_reloaded_and_an_interval_replayed() -> None:
    reloads, replays = actions()
    assert (reloads.dag_id, reloads.params) == ("cdc_load_shop", '{"table": "dbo.Orders"}')
    assert reloads.command == "floodmark reload shop dbo.Orders"
    assert (replays.dag_id, replays.params) == ("cdc_shop", "")


@pytest.mark.parametrize("table", ["dbo.\"Or'ders", "dbo.Größe; x"])
def test_names_are_quoted_for_the_shell_and_for_json(table: str) -> None:
    reloads = actions(table)[0]
    assert shlex.split(reloads.command)[-1] == table
    assert json.loads(reloads.params) == {"table": table}


def test_dag_is_left_out_where_the_viewer_may_not_read_it_or_airflow_has_no_backfill() -> None:
    assert [each.dag_id for each in actions(dags=("cdc_shop",))] == ["", "cdc_shop"]
    assert [each.dag_id for each in actions(is_scheduled=False)] == ["cdc_load_shop", ""]


def test_source_without_history_has_no_replay() -> None:
    assert [each.title for each in actions(has_history=False)] == ["Reload the table"]


def test_buttons_are_requests_of_airflows_own_api() -> None:
    reload, replay = (each.button for each in actions('dbo."Größe'))
    assert reload is not None
    assert replay is not None
    assert (reload.url, replay.url) == ("../api/v2/dags/cdc_load_shop/dagRuns", "../api/v2/backfills")
    assert json.loads(reload.body) == {"logical_date": None, "conf": {"table": 'dbo."Größe'}}
    assert json.loads(replay.body)["dag_id"] == "cdc_shop"
    # Runs that succeeded are the ones to be repeated.
    assert json.loads(replay.body)["reprocess_behavior"] == "completed"
    assert [(each.name, each.kind) for each in replay.fields] == [
        ("from_date", "datetime-local"),
        ("to_date", "datetime-local"),
    ]


def test_button_says_that_the_runs_of_a_paused_dag_wait() -> None:
    effects = [each.button.effect for each in actions(paused_dags={"cdc_load_shop"}) if each.button]
    assert ["The DAG cdc_load_shop is paused" in effect for effect in effects] == [True, False]


def test_viewer_without_the_right_has_no_button(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "RUNS", ("cdc_shop",))
    assert [each.button is None for each in actions()] == [True, False]
    assert [each.button is None for each in actions(is_scheduled=False)] == [True, True]


def test_approval_is_of_the_proposal_that_was_shown() -> None:
    approve, reject = drift_buttons("a/b", NOTE)
    assert (approve.url, reject.url) == ("decisions/a%2Fb/approve", "decisions/a%2Fb/reject")
    assert json.loads(approve.body) == json.loads(reject.body) == {"event_id": 7, "proposal": "EXEC x;"}
    (acknowledge,) = drift_buttons("shop", replace(NOTE, proposal=""))
    assert (acknowledge.label, acknowledge.url) == ("Acknowledge event 7", "decisions/shop/approve")


def test_alert_is_closed_with_a_reason() -> None:
    close = close_button("shop", "run_failed:shop")
    assert (json.loads(close.body), [each.name for each in close.fields]) == ({"alert": "run_failed:shop"}, ["reason"])


def test_decision_about_drift_needs_the_right_to_the_dag_of_its_source() -> None:
    assert [right_of(each, "shop", "erp") for each in ("approve", "reject")] == ["cdc_drift_erp"] * 2
    assert [right_of(each, "shop", "erp") for each in ("close", "release", "discard")] == ["cdc_shop"] * 3
