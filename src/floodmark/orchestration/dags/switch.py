"""One DAG per source, ``cdc_switch_<source>``. Each run asks the operator about one proposed switch of a capture
instance, and carries out the answer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import DAG, Param, task
from airflow.sdk.exceptions import AirflowSkipException

from floodmark.app import switch
from floodmark.core.alerts.runs import SWITCH_RUN_FAILED
from floodmark.orchestration.context import open_app
from floodmark.orchestration.dags.frame import is_needed, make_dag
from floodmark.orchestration.failure import explained
from floodmark.wiring.pipelines import wire_source

if TYPE_CHECKING:
    from floodmark.app.context import AppContext
    from floodmark.config.models import Config

APPROVE, REJECT = "Approve", "Reject"
MAX_WAITING = 16
"""The number of questions that can wait for an answer at once. A waiting task holds neither a worker nor a slot."""

_PAGE = """
# Switches of capture instances of {source}

A column was added to a table, and the table's capture instance does not have it. `cdc_drift_{source}` starts one run of
this DAG for each such proposal. The run shows the T-SQL of the second capture instance and waits for an answer without
a time limit: under *Browse*, *Required Actions*, choose **Approve** or **Reject**.

* **Approve**: the second instance is created at once. The pipelines read the first one up to the start of the second
  one and switch to it. Then the first one is dropped. Every run of `cdc_drift_{source}` takes the steps that are
  possible at that time.
* **Reject**: the table continues without the new column.

The same on the command line: `floodmark drift list`, `floodmark drift approve`, `floodmark drift reject`. A question
that was decided there, or whose T-SQL has changed with the source, still waits here: an answer to it changes nothing
and ends the run as skipped. Another run asks about the new proposal.

Keep this DAG unpaused: it has no schedule, and a paused DAG asks nothing.
"""


def build_switch_dags(config: Config, config_path: Path) -> dict[str, DAG]:
    """Return one DAG per source with capture instances that a pipeline reads, by id; in the process of a task, that of
    the task."""
    read = {pipeline.source for pipeline in config.pipelines.values()}
    names = (name for name in config.sources if name in read and wire_source(config, name).has_instances)
    dags = (_build(name, config_path) for name in names if is_needed(switch_dag_id(name)))
    return {dag.dag_id: dag for dag in dags}


def switch_dag_id(source: str) -> str:
    """Return the id of a source's switch DAG."""
    return f"cdc_switch_{source}"


def _build(source: str, config_path: Path) -> DAG:
    dag = make_dag(
        switch_dag_id(source),
        source=source,
        tags=("drift",),
        config_path=config_path,
        failed=SWITCH_RUN_FAILED,
        subject=source,
        max_active_runs=MAX_WAITING,
        description=f"Switches of capture instances of source {source}, each approved or rejected by the operator",
        doc_md=_PAGE.format(source=source),
        schedule=None,
        # New DAGs are paused by default; a paused DAG would never ask.
        is_paused_upon_creation=False,
        params={"event_id": Param(type="integer", minimum=1, description="The drift event that proposes the switch.")},
    )
    with dag:

        @task(doc_md="Describe the proposal, with its T-SQL.")  # type: ignore[untyped-decorator]
        def describe_switch(params: Any = None) -> dict[str, str]:
            return run_describe_switch(config_path, source, params["event_id"])

        @task(doc_md="Record the answer and the name of the user.")  # type: ignore[untyped-decorator]
        def take_decision(key: str, answer: Any, params: Any = None) -> str:
            return run_take_decision(config_path, source, params["event_id"], key, answer)

        @task(doc_md="Create the second instance, if it was approved.")  # type: ignore[untyped-decorator]
        def switch_instances() -> str:
            return run_switch_instances(config_path, source)

        described = describe_switch()
        decided = HITLOperator(
            task_id="decide_switch",
            subject=described["subject"],
            body=described["body"],
            options=[APPROVE, REJECT],
            doc_md="Wait for the operator's answer, without a time limit.",
        )
        take_decision(described["key"], decided.output) >> switch_instances()
    return dag


def run_describe_switch(config_path: Path, source: str, event_id: int) -> dict[str, str]:
    """Return subject, body and key of the question. Skips the run where there is nothing to decide."""
    with explained():
        proposed = _find_proposed(open_app(config_path), source, event_id)
    if proposed is None:
        raise AirflowSkipException(
            f"Drift event {event_id} of source {source} has no undecided proposal. See: floodmark drift list --all"
        )
    return {"subject": proposed.subject, "body": proposed.body, "key": proposed.key}


def run_take_decision(config_path: Path, source: str, event_id: int, key: str, answer: Mapping[str, Any]) -> str:
    """Record the decision and return it in a sentence. key: of the question. answer: what HITLOperator returns.

    Skips the rest of the run where the question has changed: an answer applies only to the T-SQL that the user has
    read.
    """
    (option,) = answer["chosen_options"]
    by = answer["responded_by_user"]["name"]
    with explained():
        app = open_app(config_path)
        proposed = _find_proposed(app, source, event_id)
        if proposed is None or proposed.key != key:
            raise AirflowSkipException(
                f"The question about drift event {event_id} of source {source} is no longer open: it was decided "
                "elsewhere, or the source has changed and another run asks about that. "
                f"The answer {option} of {by} changed nothing. See: floodmark drift list --all"
            )
        decide = switch.approve_switch if option == APPROVE else switch.reject_switch
        return decide(app, event_id, by)


def run_switch_instances(config_path: Path, source: str) -> str:
    """Advance every approved switch as far as it can go now. Return the state of each in a sentence."""
    with explained():
        app = open_app(config_path)
        states = switch.run_switches(app, source)
        app.alerts().end_alerts(SWITCH_RUN_FAILED, source)
        return states


def list_questions(config_path: Path, source: str) -> list[dict[str, Any]]:
    """Return the run that asks about each undecided proposal, as TriggerDagRunOperator takes it.

    A proposal that has changed is asked again.
    """
    with explained():
        proposed = switch.list_proposed(open_app(config_path), source)
    return [{"trigger_run_id": f"drift_event_{each.key}", "conf": {"event_id": each.event_id}} for each in proposed]


def _find_proposed(app: AppContext, source: str, event_id: int) -> switch.ProposedSwitch | None:
    return next((each for each in switch.list_proposed(app, source) if each.event_id == event_id), None)
