"""What makes a pipeline late on purpose, for its status: a planned stop of the capture job, a switch of instances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from floodmark.core.drift.switch import InstanceSwitch, describe_step, step_of
from floodmark.core.schema import TableName
from floodmark.core.source.capture_status import PlannedStop
from floodmark.core.source.snapshot import InstanceIdentity


@dataclass(frozen=True, slots=True)
class StopStatus:
    """since, until: with the zone of the schedule. is_on: False shortly after it, while capture may be catching up.
    job_runs: None unless the source was asked, and told."""

    since: datetime
    until: datetime
    is_on: bool
    job_runs: bool | None = None

    def __str__(self) -> str:
        planned = f"from {self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M %Z}"
        if not self.is_on:
            return f"a planned stop of the capture job, {planned}, is just over: what was committed in it is coming."
        if self.job_runs:
            return (
                f"a stop of the capture job is planned {planned}, and the job still runs: it catches up first, or its "
                "DAG has not looked yet."
            )
        return (
            f"a planned stop of the capture job is on, {planned}: what is committed in it reaches the target "
            "afterwards. That is no incident."
        )


@dataclass(frozen=True, slots=True)
class SwitchStatus:
    """Of a table that an approved switch takes from one capture instance to another. step: what comes next for the
    pipeline, a value of ``SwitchStep``, and in words."""

    switch_id: int
    old: str
    new: str
    columns: tuple[str, ...]
    step: str
    what: str
    approved_by: str
    approved_at: datetime

    def __str__(self) -> str:
        return f"switch {self.switch_id} from {self.old} to {self.new} for {', '.join(self.columns)}: {self.what}"


def stop_status(stop: PlannedStop | None, now: datetime, *, job_runs: bool | None = None) -> StopStatus | None:
    """now: with a zone."""
    return None if stop is None else StopStatus(stop.since, stop.until, now < stop.until, job_runs)


def switch_status(
    switches: Iterable[InstanceSwitch], pipeline: str, table: TableName, identity: InstanceIdentity | None
) -> SwitchStatus | None:
    """identity: of the capture instance that the pipeline reads, None before its first load. It tells also where the
    pipeline spells the table in another way than the server does, or reads an instance that stays."""
    for switch in switches:
        if identity in (switch.old, switch.new) if identity else switch.table == table:
            return SwitchStatus(
                switch.switch_id, switch.old.name, switch.new.name if switch.new else switch.name, switch.added,
                step_of(switch, pipeline).value, describe_step(switch, pipeline), switch.approved_by,
                switch.approved_at,
            )  # fmt: skip
    return None
