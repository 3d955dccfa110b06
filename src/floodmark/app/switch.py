"""Switches of capture instances: the proposals, the operator's decisions, and the steps that follow."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.app.load import load_planner
from floodmark.core.drift.messages import describe_added
from floodmark.sync.drift.switch import SwitchPlanner
from floodmark.sync.drift.switch_steps import SwitchSteps
from floodmark.wiring.pipelines import wire, wire_ledger, wire_source, wire_warehouse

if TYPE_CHECKING:
    from floodmark.app.context import AppContext
    from floodmark.core.drift.proposal import Proposal
    from floodmark.core.drift.switch import InstanceSwitch
    from floodmark.core.schema import TableName
    from floodmark.sync.ports.drift import DriftEvent


@dataclass(frozen=True, slots=True)
class ProposedSwitch:
    """A question for the operator."""

    event_id: int
    key: str
    """Identifies this event with this proposal."""
    subject: str
    body: str
    """Markdown with the T-SQL."""


def list_proposed(app: AppContext, source: str) -> list[ProposedSwitch]:
    """Return one question for each table with an undecided proposal."""
    if not app.pipelines_of(source):
        return []
    return [_question(event, proposal) for event, proposal in switch_planner(app, source).list_proposed()]


def approve_switch(app: AppContext, event_id: int, by: str) -> str:
    """Start the switch that an event proposes. Return a description of what happens next.

    Raises OperatorError where there is nothing to approve, or where the proposal has changed.
    """
    switch = switch_planner(app, _source_of(app, event_id)).approve(event_id, by)
    return (
        f"{switch.table} switches from capture instance {switch.old.name} to {switch.name}, with "
        f"{', '.join(switch.added)}. The DAG cdc_drift_{switch.source} takes the steps; to take them now, run: "
        f"floodmark drift switch {switch.source}"
    )


def reject_switch(app: AppContext, event_id: int, by: str) -> str:
    """Reject the proposal of an event. Raises OperatorError where there is nothing to reject."""
    rejected = switch_planner(app, _source_of(app, event_id)).reject(event_id, by)
    columns = ", ".join(str(each.explained.difference.column) for each in rejected)
    return f"{rejected[0].table} continues without {columns}."


def run_switches(app: AppContext, source: str) -> str:
    """Advance every approved switch as far as it can go now. Return the state of each; raise an alert where the
    operator has to act."""
    config = app.config
    if not app.pipelines_of(source):
        return "no pipeline reads this source."
    if not wire_source(config, source).has_instances:
        return "a table of this source has no capture instances between which it could switch."
    planner = switch_planner(app, source)
    steps = SwitchSteps(
        source_name=source,
        pipelines=planner.pipelines,
        source=planner.source,
        drift_source=planner.drift_source,
        control=lambda: wire_source(config, source).instances(),
        targets=wire_warehouse(config).targets(),
        open_load=lambda pipeline, table, where: _open_load(app, pipeline, table, where),
        ledger=planner.ledger,
        switches=planner.switches,
        alerts=planner.alerts,
        elsewhere=[name for name, pipeline in config.pipelines.items() if pipeline.source != source],
    )
    return " | ".join(steps.take()) or "no switch of a capture instance is in progress."


def list_switches(app: AppContext) -> list[InstanceSwitch]:
    """Return the switches in progress, of all sources."""
    ledger = wire_ledger(app.config).switches()
    return [switch for source in app.config.sources for switch in ledger.list_switches(source)]


def switch_planner(app: AppContext, source: str) -> SwitchPlanner:
    """Return the switch planner of a source that a pipeline reads. It connects only when it is called."""
    names = app.pipelines_of(source)
    wiring = wire(app.config, names[0])
    return SwitchPlanner(
        source_name=source,
        pipelines=[app.config.settings(name) for name in names],
        source=wiring.source.snapshots,
        drift_source=wiring.source.drift,
        ledger=wiring.ledger.windows(),
        drift=wiring.ledger.drift(),
        switches=wiring.ledger.switches(),
        alerts=app.alerts(),
    )


def is_proposal(app: AppContext, event_id: int) -> bool:
    """Return whether the event proposes a switch, which its approval starts."""
    return any(event.event_id == event_id and event.proposal for event in _events(app))


def _source_of(app: AppContext, event_id: int) -> str:
    read = [pipeline.source for pipeline in app.config.pipelines.values()]
    found = [event.source for event in _events(app) if event.event_id == event_id and event.source in read]
    # Where there is none, the planner of any source reports it.
    return found[0] if found else read[0]


def _events(app: AppContext) -> list[DriftEvent]:
    return list(wire_ledger(app.config).drift().list_events())


def _open_load(app: AppContext, pipeline: str, table: TableName, where: str) -> int:
    opened = load_planner(app, pipeline).open_reload(table, where)
    assert opened.window_id is not None  # noqa: S101  (a reload always has a window)
    return opened.window_id


def _question(event: DriftEvent, proposal: Proposal) -> ProposedSwitch:
    columns = ", ".join(proposal.added)
    body = (
        f"{event.table}: {describe_added(proposal.explained)}\n\n"
        f"New columns to capture: **{columns}**.\n\n"
        "**Approve**: Floodmark runs this at the source. It reads the first capture instance up to the start of the "
        "second one, switches to the second one, loads the new columns, and drops the first one. No change is lost."
        "\n\n"
        f"```sql\n{proposal.text}\n```\n\n"
        f"**Reject**: the table continues without {columns}."
    )
    key = f"{event.event_id}-{zlib.crc32(proposal.text.encode()):08x}"
    return ProposedSwitch(event.event_id, key, f"{event.table}: capture {columns}?", body)
