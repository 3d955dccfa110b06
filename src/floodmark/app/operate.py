"""The operator's decisions on a pipeline: switches of capture instances, quarantined rows, replays."""

from __future__ import annotations

import getpass
import logging
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.app.run import load_planner
from floodmark.app.upkeep import drift_watch, find_table_settings
from floodmark.core.alerts import REPLAY_FAILED, parse_data_interval
from floodmark.core.drift.proposals import describe_added
from floodmark.core.errors import FloodmarkError
from floodmark.core.position import Interval
from floodmark.sync.replay import Replay
from floodmark.sync.switch import SwitchPlanner, SwitchSteps
from floodmark.wiring.adapters import wire, wire_ledger, wire_source, wire_warehouse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.app.upkeep import AppContext
    from floodmark.core.drift.proposals import InstanceSwitch, Proposal
    from floodmark.core.recovery import Release
    from floodmark.core.schema import TableName
    from floodmark.core.status import QuarantinedKey, RuleCount
    from floodmark.sync.records import DriftEvent

_LOG = logging.getLogger(__name__)


# --------------------------------------------------------------------------------------------------------------------
# Switches of capture instances: the proposals, the operator's decisions, and the steps that follow.


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


# --------------------------------------------------------------------------------------------------------------------
# The rows in quarantine, and the operator's decisions about them.


def list_quarantined(app: AppContext, pipeline: str) -> Sequence[RuleCount]:
    """Return what waits in quarantine of a pipeline, by table and rule, the newest first."""
    return wire(app.config, pipeline).ledger.status().list_quarantined(pipeline)


def list_keys(
    app: AppContext, pipeline: str, table: TableName, rule: str | None, *, skipped: int, at_most: int
) -> Sequence[QuarantinedKey]:
    """Return rows of a table in quarantine with their keys, the newest first: only for users who may see values."""
    return (
        wire(app.config, pipeline)
        .ledger.status()
        .list_quarantined_keys(pipeline, table, rule, skipped=skipped, at_most=at_most)
    )


def release_rows(app: AppContext, pipeline: str, table: str) -> Release:
    """Merge the rows of a table in quarantine that break no rule of the configuration any more.

    Raises ConfigError for an unknown pipeline or table, and the errors of ``PostgresQuarantine.release``.
    """
    settings = find_table_settings(app, pipeline, table)
    found = wire(app.config, pipeline).warehouse.quarantine().release(pipeline, settings, getpass.getuser())
    _LOG.info("%s: %s of quarantine released, window %s.", table, found.released, found.window_id or "none")
    return found


def discard_rows(app: AppContext, pipeline: str, table: str, rule: str | None) -> int:
    """Settle the rows of a table in quarantine without a merge. rule: only of this one. Return the number of entries.

    Raises ConfigError for an unknown pipeline or table.
    """
    source = find_table_settings(app, pipeline, table).source
    return wire(app.config, pipeline).warehouse.quarantine().discard(pipeline, source, rule, getpass.getuser())


# --------------------------------------------------------------------------------------------------------------------
# Replays: an interval of the log is merged again, by the command line or by a run of ``airflow backfill``.


def can_replay(app: AppContext, pipeline: str) -> bool:
    """Return whether the source of a pipeline has what was changed in a past time; True for a removed pipeline."""
    found = app.config.pipelines.get(pipeline)
    return found is None or wire_source(app.config, found.source).has_history


def replay_of(app: AppContext, pipeline: str) -> Replay:
    """Return the replays of a pipeline.

    Raises ConfigError where the pipeline is not in the configuration, or its source keeps no history of changes.
    """
    wiring = wire(app.config, pipeline)
    log = wiring.source.replays()
    return Replay(
        wiring.settings,
        wiring.source.snapshots(),
        log,
        wiring.ledger.replays(),
        wiring.warehouse.windows(),
        drift=drift_watch(app, app.config.pipeline(pipeline).source),
    )


def end_replay(app: AppContext, pipeline: str, replayed: str) -> None:
    """End the part of the alerts about failed backfills that one backfill caused. The other parts stay open.

    replayed: its data interval.
    """
    app.alerts().end_part(REPLAY_FAILED, pipeline, replayed)


def end_failed_replays(app: AppContext, pipeline: str, replay: Replay, interval: Interval) -> None:
    """End the alerts about runs of ``airflow backfill`` that failed inside an interval that has been replayed.

    An alert stays open where the source can no longer map its data interval to the log, or where it names no interval.
    A failure here does not fail the replay.
    """
    alerts = app.alerts()
    try:
        parts = wire_ledger(app.config).list_alert_parts(REPLAY_FAILED, pipeline)
    except FloodmarkError as error:
        _LOG.warning("Could not check whether this replay covers a failed backfill of %s: %s", pipeline, error)
        return
    for part in parts:
        try:
            failed = replay.find_moments(*parse_data_interval(part))
        except (FloodmarkError, ValueError) as error:
            _LOG.warning("Could not check whether this replay covers the failed backfill of %s: %s", part, error)
            continue
        if isinstance(failed, Interval) and interval.covers(failed):
            _LOG.info("This replay covers the failed backfill of %s.", part)
            alerts.end_part(REPLAY_FAILED, pipeline, part)
