"""The actions on a table: the DAG that the viewer may read, its configuration, and the command."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from floodmark.orchestration.pages.content import TableAction, actions_on, approval_params

DAGS = ("cdc_shop", "cdc_load_shop")


def actions(table: str = "dbo.Orders", dags: tuple[str, ...] = DAGS, **known: Any) -> list[TableAction]:
    return actions_on("shop", table, dags, **{"has_history": True, "is_scheduled": True} | known)


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


def test_approval_has_the_number_of_the_event() -> None:
    assert json.loads(approval_params(7)) == {"event_id": 7}
