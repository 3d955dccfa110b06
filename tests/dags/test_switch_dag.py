"""The DAG that asks a person about a switch of capture instances, and what an answer leads to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from floodmark.app import operate as switches
from floodmark.app.operate import ProposedSwitch
from floodmark.app.pipeline import App
from floodmark.config.loading import load_config
from floodmark.core.alerts import SWITCH_RUN_FAILED
from floodmark.core.errors import OperatorError, SourceUnavailableError
from floodmark.orchestration.dags import upkeep as switch_dag
from floodmark.orchestration.dags.upkeep import build_switch_dags

CONFIG = """
sources: {shop: {conn_id: shop_mssql}, unread: {conn_id: unread_mssql}}
warehouse: {conn_id: warehouse}
pipelines: {shop: {source: shop, tables: [{source: dbo.Orders, target: shop.orders}]}}
"""
PROPOSED = ProposedSwitch(
    12, "12-a", "dbo.Orders: capture Channel?", "```sql\nEXEC sys.sp_cdc_enable_table N'{{ 1 / 0 }}'\n```"
)


@dataclass
class FakeSwitchPlanner:
    """In the place of the switches: one proposal, and what is asked for."""

    proposed: list[ProposedSwitch] = field(default_factory=lambda: [PROPOSED])
    asked: list[Any] = field(default_factory=list)
    error: Exception | None = None

    def list_proposed(self, _config: object, source: str) -> list[ProposedSwitch]:
        assert source == "shop"
        return self.proposed

    def doing(self, what: str) -> Callable[..., str]:
        def do(_config: object, *arguments: object) -> str:
            if self.error is not None:
                raise self.error
            self.asked.append((what, *arguments))
            return f"{what} is done"

        return do

    def end_alerts(self, kind: str, subject: str) -> None:
        self.asked.append(("end_alerts", kind, subject))


@pytest.fixture
def planner(monkeypatch: pytest.MonkeyPatch) -> FakeSwitchPlanner:
    planner = FakeSwitchPlanner()
    monkeypatch.setattr(switches, "list_proposed", planner.list_proposed)
    for name in ("approve_switch", "reject_switch", "run_switches"):
        monkeypatch.setattr(switches, name, planner.doing(name))
    monkeypatch.setattr(App, "alerts", planner)
    return planner


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


@pytest.fixture
def dag(config_file: Path) -> DAG:
    dags = build_switch_dags(App(load_config(config_file)), config_file)
    assert list(dags) == ["cdc_switch_shop"]
    return dags["cdc_switch_shop"]


def answer(option: str) -> dict[str, Any]:
    """Return an answer as HITLOperator returns it."""
    return {"chosen_options": [option], "params_input": {}, "responded_by_user": {"id": "7", "name": "grace"}}


def test_switch_dag_asks_then_does_and_many_questions_can_wait_at_once(dag: DAG) -> None:
    order = ["describe_switch", "decide_switch", "take_decision", "switch_instances"]
    assert [task.task_id for task in dag.topological_sort()] == order
    upstream = [task.upstream_task_ids for task in dag.topological_sort()]
    assert upstream == [set(), {"describe_switch"}, {"describe_switch", "decide_switch"}, {"take_decision"}]
    assert (dag.max_active_runs, dag.catchup, dag.schedule) == (16, False, None)
    event_id = dag.params.get_param("event_id")
    assert (event_id.schema["type"], event_id.has_value) == ("integer", False)


def test_switch_dag_is_not_paused_when_airflow_first_sees_it(dag: DAG) -> None:
    assert dag.is_paused_upon_creation is False


def test_question_waits_without_end_for_one_of_two_answers(dag: DAG) -> None:
    question = dag.get_task("decide_switch")
    assert isinstance(question, HITLOperator)
    assert (question.options, question.multiple) == (["Approve", "Reject"], False)
    assert (question.defaults, question.response_timeout, question.execution_timeout) == (None, None, None)
    # What a person fills in would be these; the event_id of the run is none of it.
    assert not question.params


def test_question_shows_what_the_first_task_found_word_for_word(
    dag: DAG, config_file: Path, planner: FakeSwitchPlanner
) -> None:
    found = switch_dag.run_describe_switch(config_file, "shop", 12)

    class FirstTask:
        def xcom_pull(self, *, task_ids: str, key: str, **_: object) -> str:
            assert task_ids == "describe_switch"
            return found[key]

    question = dag.get_task("decide_switch")
    question.render_template_fields({"ti": FirstTask()})
    assert (question.subject, question.body) == (PROPOSED.subject, PROPOSED.body)


def test_run_about_an_event_with_nothing_to_decide_ends_as_skipped(
    config_file: Path, planner: FakeSwitchPlanner
) -> None:
    with pytest.raises(AirflowSkipException, match="event 13 of source shop has no undecided proposal"):
        switch_dag.run_describe_switch(config_file, "shop", 13)


@pytest.mark.parametrize(("option", "done"), [("Approve", "approve_switch"), ("Reject", "reject_switch")])
def test_answer_is_written_down_in_the_name_of_who_gave_it(
    config_file: Path, planner: FakeSwitchPlanner, option: str, done: str
) -> None:
    assert switch_dag.run_take_decision(config_file, "shop", 12, "12-a", answer(option)) == f"{done} is done"
    assert planner.asked == [(done, 12, "grace")]


@pytest.mark.parametrize("now", [[], [replace(PROPOSED, key="12-b")]], ids=["decided", "changed"])
def test_answer_to_a_question_that_is_not_open_any_more_changes_nothing_and_says_so(
    config_file: Path, planner: FakeSwitchPlanner, now: list[ProposedSwitch]
) -> None:
    planner.proposed = now
    with pytest.raises(AirflowSkipException, match=r"is no longer open: .* answer Approve of grace changed nothing"):
        switch_dag.run_take_decision(config_file, "shop", 12, "12-a", answer("Approve"))
    assert planner.asked == []


def test_approval_of_what_is_no_longer_proposed_fails_for_good(config_file: Path, planner: FakeSwitchPlanner) -> None:
    planner.error = OperatorError("dbo.Orders", "the proposal has changed.", "Read it again.")
    with pytest.raises(AirflowFailException, match="the proposal has changed"):
        switch_dag.run_take_decision(config_file, "shop", 12, "12-a", answer("Approve"))


def test_switches_that_go_on_end_the_alert_about_failed_ones(config_file: Path, planner: FakeSwitchPlanner) -> None:
    assert switch_dag.run_switch_instances(config_file, "shop") == "run_switches is done"
    assert planner.asked == [("run_switches", "shop"), ("end_alerts", SWITCH_RUN_FAILED, "shop")]


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (OperatorError("dbo.Orders", "both slots are taken."), AirflowFailException),
        (SourceUnavailableError("dbo.Orders", "no answer."), AirflowException),
    ],
)
def test_switch_that_a_person_has_to_help_fails_for_good_and_others_are_tried_again(
    config_file: Path, planner: FakeSwitchPlanner, error: Exception, seen: type[Exception]
) -> None:
    planner.error = error
    with pytest.raises(AirflowException) as raised:
        switch_dag.run_switch_instances(config_file, "shop")
    assert type(raised.value) is seen
    assert planner.asked == []


def test_every_undecided_proposal_is_one_run_and_one_that_has_changed_is_another(
    config_file: Path, planner: FakeSwitchPlanner
) -> None:
    planner.proposed = [PROPOSED, ProposedSwitch(13, "13-b", "dbo.Items: capture Colour?", "…")]
    assert switch_dag.read_questions(config_file, "shop") == [
        {"trigger_run_id": "drift_event_12-a", "conf": {"event_id": 12}},
        {"trigger_run_id": "drift_event_13-b", "conf": {"event_id": 13}},
    ]
