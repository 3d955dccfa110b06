"""``RecordedEvents``: what Airflow's OpenLineage provider sends about a task, in place of a server."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from airflow.providers.openlineage.extractors.manager import ExtractorManager
from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
from airflow.sdk import DAG
from airflow.utils.state import TaskInstanceState
from openlineage.client import OpenLineageClient
from openlineage.client.client import Event
from openlineage.client.serde import Serde
from openlineage.client.transport import Config, Transport

_RUN_ID = "01941f29-7c00-7087-8906-40e512c257bd"
_AT = "2026-05-01T12:00:00+00:00"


class RecordedEvents(Transport):
    """The transport. ``emit`` gets every event of the client."""

    kind = "recorded"
    config_class = Config

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def emit(self, event: Event) -> None:
        self.events.append(json.loads(Serde.to_json(event)))

    def event_of(self, dag: DAG, task_id: str, state: TaskInstanceState) -> dict[str, Any]:
        """Send the event about a task in a state, as Airflow's listener does, and return it as it is sent."""
        task = dag.get_task(task_id)
        lineage = ExtractorManager().extract_metadata(
            dagrun=SimpleNamespace(run_id="r"), task=task, task_instance_state=state, task_instance=None
        )
        adapter = OpenLineageAdapter(OpenLineageClient(transport=self))
        common = {"run_id": _RUN_ID, "job_name": f"{dag.dag_id}.{task_id}", "task": lineage, "owners": [], "tags": []}
        common |= {"job_description": None, "nominal_start_time": None, "nominal_end_time": None, "run_facets": {}}
        if state is TaskInstanceState.RUNNING:
            adapter.start_task(event_time=_AT, **common)
        elif state is TaskInstanceState.FAILED:
            adapter.fail_task(end_time=_AT, error="the load failed", **common)
        else:
            adapter.complete_task(end_time=_AT, **common)
        return self.events[-1]
