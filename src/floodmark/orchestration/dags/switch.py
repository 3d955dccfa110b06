"""One DAG per source, ``cdc_switch_<source>``: each run asks a person about one proposed switch of a capture instance,
and does as is answered."""

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
from floodmark.orchestration.dags.frame import make_dag
from floodmark.orchestration.failure import explained

if TYPE_CHECKING:
    from floodmark.app.context import AppContext
    from floodmark.config.models import Config

APPROVE, REJECT = "Approve", "Reject"
MAX_WAITING = 16
"""Questions that can wait for their answers at once; a waiting task holds neither a worker nor a slot."""

_PAGE = """
# Switches of capture instances of {source}

A column was added to a table, and its capture instance does not have it. `cdc_drift_{source}` starts one run of this
DAG for each such proposal. The run shows the T-SQL of the second capture instance and waits for an answer, however long
it takes: under *Browse*, *Required Actions*, choose **Approve** or **Reject**.

* **Approve**: the second instance is made at once. The pipelines read the first one up to where the second one starts,
  go over to it, and the first one is dropped; every run of `cdc_drift_{source}` takes that as far as it goes by then.
* **Reject**: the table goes on without the new column.

The same on the command line: `floodmark drift list`, `floodmark drift approve`, `floodmark drift reject`. A question
that was decided there, or whose T-SQL has changed with the source, still waits here: an answer to it changes nothing,
and ends the run as skipped. What is proposed by then is asked by another run.

Keep this DAG unpaused: it has no schedule, and paused it asks nothing.
"""


def build_switch_dags(config: Config, config_path: Path) -> dict[str, DAG]:
    """By id, one per source that a pipeline reads."""
    read = {pipeline.source for pipeline in config.pipelines.values()}
    dags = (_build(name, config_path) for name in config.sources if name in read)
    return {dag.dag_id: dag for dag in dags}


def switch_dag_id(source: str) -> str:
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
        description=f"Switches of capture instances of source {source}, each approved or rejected by a person",
        doc_md=_PAGE.format(source=source),
        schedule=None,
        # Paused, as new DAGs are by default, it would never ask.
        is_paused_upon_creation=False,
        params={"event_id": Param(type="integer", minimum=1, description="The drift event that proposes the switch.")},
    )
    with dag:

        @task(doc_md="What is proposed, and the T-SQL of it.")  # type: ignore[untyped-decorator]
        def describe_switch(params: Any = None) -> dict[str, str]:
            return run_describe_switch(config_path, source, params["event_id"])

        @task(doc_md="Write down what was answered, and by whom.")  # type: ignore[untyped-decorator]
        def take_decision(key: str, answer: Any, params: Any = None) -> str:
            return run_take_decision(config_path, source, params["event_id"], key, answer)

        @task(doc_md="Make the second instance, if it was approved.")  # type: ignore[untyped-decorator]
        def switch_instances() -> str:
            return run_switch_instances(config_path, source)

        described = describe_switch()
        decided = HITLOperator(
            task_id="decide_switch",
            subject=described["subject"],
            body=described["body"],
            options=[APPROVE, REJECT],
            doc_md="Waits for a person, however long it takes.",
        )
        take_decision(described["key"], decided.output) >> switch_instances()
    return dag


def run_describe_switch(config_path: Path, source: str, event_id: int) -> dict[str, str]:
    """subject, body and key of the question. Skips the run where there is nothing to decide."""
    with explained():
        proposed = _find_proposed(open_app(config_path), source, event_id)
    if proposed is None:
        raise AirflowSkipException(
            f"Drift event {event_id} of source {source} proposes nothing that is still to be decided. "
            "See: floodmark drift list --all"
        )
    return {"subject": proposed.subject, "body": proposed.body, "key": proposed.key}


def run_take_decision(config_path: Path, source: str, event_id: int, key: str, answer: Mapping[str, Any]) -> str:
    """What was decided, in a sentence. key: of the question; answer: what HITLOperator returns.

    Skips what is left of the run where that is not the question of now: nobody is held to an answer about other T-SQL
    than the one they have read.
    """
    (option,) = answer["chosen_options"]
    by = answer["responded_by_user"]["name"]
    with explained():
        app = open_app(config_path)
        proposed = _find_proposed(app, source, event_id)
        if proposed is None or proposed.key != key:
            raise AirflowSkipException(
                f"The question about drift event {event_id} of source {source} is not open any more: somebody has "
                "decided elsewhere, or the source has changed and another run asks about that. "
                f"The answer of {by}, {option}, changes nothing. See: floodmark drift list --all"
            )
        decide = switch.approve_switch if option == APPROVE else switch.reject_switch
        return decide(app, event_id, by)


def run_switch_instances(config_path: Path, source: str) -> str:
    """Take every approved switch as far as it goes now; where each is, in a sentence."""
    with explained():
        app = open_app(config_path)
        said = switch.run_switches(app, source)
        app.alerts().end_alerts(SWITCH_RUN_FAILED, source)
        return said


def list_questions(config_path: Path, source: str) -> list[dict[str, Any]]:
    """For each proposal that nobody has decided: the run that asks about it, as TriggerDagRunOperator takes it. A
    proposal of an event that has changed is asked anew."""
    with explained():
        proposed = switch.list_proposed(open_app(config_path), source)
    return [{"trigger_run_id": f"drift_event_{each.key}", "conf": {"event_id": each.event_id}} for each in proposed]


def _find_proposed(app: AppContext, source: str, event_id: int) -> switch.ProposedSwitch | None:
    return next((each for each in switch.list_proposed(app, source) if each.event_id == event_id), None)
