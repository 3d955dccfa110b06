"""Planned causes of lag, for the status of a pipeline: a stop of the capture job, a switch of instances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from floodmark.core.drift.switch import InstanceSwitch, describe_step, step_of
from floodmark.core.schema import TableName
from floodmark.core.source.capture_status import PlannedStop
from floodmark.core.source.feed import InstanceIdentity


@dataclass(frozen=True, slots=True)
class StopStatus:
    """A planned stop of the capture job, with the time zone of its schedule."""

    since: datetime
    until: datetime
    is_on: bool
    """False shortly after it, while capture may be catching up."""
    job_runs: bool | None = None
    """None: the source was not asked, or did not answer."""

    def __str__(self) -> str:
        planned = f"from {self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M %Z}"
        if not self.is_on:
            return f"a planned stop of the capture job, {planned}, has just ended: its changes will follow."
        if self.job_runs:
            return (
                f"a stop of the capture job is planned {planned}, and the job is still running: it catches up first, "
                "or its DAG has not run yet."
            )
        return (
            f"a planned stop of the capture job is in effect, {planned}: changes committed during it reach the target "
            "afterwards. This is not an incident."
        )


@dataclass(frozen=True, slots=True)
class SwitchStatus:
    """The status of a table in an approved switch of capture instances."""

    switch_id: int
    old: str
    new: str
    columns: tuple[str, ...]
    step: str
    """The next step for the pipeline, a value of ``SwitchStep``."""
    what: str
    """The next step in words."""
    approved_by: str
    approved_at: datetime

    def __str__(self) -> str:
        return f"switch {self.switch_id} from {self.old} to {self.new} for {', '.join(self.columns)}: {self.what}"


def stop_status(stop: PlannedStop | None, now: datetime, *, job_runs: bool | None = None) -> StopStatus | None:
    """Return the status of a planned stop.

    now: with a zone.
    """
    return None if stop is None else StopStatus(stop.since, stop.until, now < stop.until, job_runs)


def switch_status(
    switches: Iterable[InstanceSwitch], pipeline: str, table: TableName, identity: InstanceIdentity | None
) -> SwitchStatus | None:
    """Return the status of the switch that a table is in, None where it is in none.

    identity: of the capture instance that the pipeline reads, None before its first load. It finds the switch also
    where the pipeline spells the table differently from the server, and none where it reads an instance that stays.
    """
    for switch in switches:
        if identity in (switch.old, switch.new) if identity else switch.table == table:
            return SwitchStatus(
                switch.switch_id,
                switch.old.name,
                switch.new.name if switch.new else switch.name,
                switch.added,
                step_of(switch, pipeline).value,
                describe_step(switch, pipeline),
                switch.approved_by,
                switch.approved_at,
            )
    return None
