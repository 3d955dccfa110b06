"""``VariableNotes``: an Airflow variable that records which channels were notified while the warehouse is unreachable.

Without it, an alert about an unreachable warehouse would be sent in every run, and its end would never be reported.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from floodmark.core.alert import Alert
from floodmark.core.schema import TableName
from floodmark.orchestration.airflow_errors import AIRFLOW_ERRORS
from floodmark.sync.alerts import Delivery

_LOG = logging.getLogger(__name__)
VARIABLE = "floodmark_alerts_not_in_the_ledger"


class VariableNotes:
    """``sync.alerts.AlertNotes`` in an Airflow variable. Outside of Airflow's processes there are no notes.

    Two processes that write at the same time may lose a note. The cost is a message that is sent twice.
    """

    def read(self) -> dict[str, Delivery]:
        if not _is_inside_airflow():
            return {}
        from airflow.sdk import Variable  # noqa: PLC0415

        try:
            rows = Variable.get(VARIABLE, default=None, deserialize_json=True)
        except (*AIRFLOW_ERRORS, ValueError) as error:
            _LOG.warning("Could not read variable %s: %s", VARIABLE, error)
            return {}
        found = [_parse(row) for row in (rows if isinstance(rows, list) else [])]
        return {delivery.alert.event_key: delivery for delivery in found if delivery is not None}

    def write(self, notes: Mapping[str, Delivery]) -> None:
        if not _is_inside_airflow():
            return
        from airflow.sdk import Variable  # noqa: PLC0415

        rows = [_row(delivery) for delivery in notes.values()]
        description = "Alerts that were sent while Floodmark's ledger could not be reached."
        try:
            Variable.set(VARIABLE, rows, description=description, serialize_json=True)
        except AIRFLOW_ERRORS as error:
            _LOG.warning("Could not write variable %s: %s", VARIABLE, error)


def _is_inside_airflow() -> bool:
    """Return whether variables are available: a task, a callback or a trigger has a supervisor that provides them."""
    from airflow.sdk.execution_time import task_runner  # noqa: PLC0415

    return getattr(task_runner, "SUPERVISOR_COMMS", None) is not None


def _row(delivery: Delivery) -> dict[str, Any]:
    return {
        "alert": asdict(delivery.alert),
        "raised_at": delivery.raised_at.isoformat(),
        "told": sorted(delivery.notified),
    }


def _parse(row: Any) -> Delivery | None:
    """Return None for a row that this version cannot read. A lost note costs one more message."""
    try:
        fields = dict(row["alert"])
        if fields["table"] is not None:
            fields["table"] = TableName(**fields["table"])
        return Delivery(Alert(**fields), datetime.fromisoformat(row["raised_at"]), notified=set(row["told"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        _LOG.warning("Could not read a note in variable %s: %r", VARIABLE, error)
        return None
