"""Switches of capture instances, put together from the configuration: for the command line, and for the DAGs that ask
somebody in the Airflow UI (``cdc_switch_<source>``) and take the steps (``cdc_drift_<source>``)."""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from floodmark.core.drift_words import describe_added
from floodmark.orchestration.alerting import alerts_of
from floodmark.orchestration.drift_watch import drift_source, pipelines_of
from floodmark.wiring import source_connection, warehouse_connection, wire

if TYPE_CHECKING:
    from floodmark.config.models import Config
    from floodmark.core.drift_proposal import Proposal
    from floodmark.core.schema import TableName
    from floodmark.core.switch import InstanceSwitch
    from floodmark.sync.drift_ports import DriftEvent
    from floodmark.sync.switch import SwitchDesk
    from floodmark.sync.switch_ports import InstanceControl

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProposedSwitch:
    """A question for somebody. key: of this event with this proposal. body: Markdown with the T-SQL."""

    event_id: int
    key: str
    subject: str
    body: str


def list_proposed(config: Config, source: str) -> list[ProposedSwitch]:
    """One for each table of which somebody has to decide."""
    if not pipelines_of(config, source):
        return []
    return [_question(event, proposal) for event, proposal in switch_desk(config, source).list_proposed()]


def approve_switch(config: Config, event_id: int, by: str) -> str:
    """Raises OperatorError where there is nothing to approve, or the proposal has changed since."""
    switch = switch_desk(config, _source_of(config, event_id)).approve(event_id, by)
    return (
        f"{switch.table} goes over from capture instance {switch.old.name} to {switch.name}, with "
        f"{', '.join(switch.added)}. The DAG cdc_drift_{switch.source} takes the steps, and so does floodmark drift "
        f"switch {switch.source}."
    )


def reject_switch(config: Config, event_id: int, by: str) -> str:
    """Raises OperatorError where there is nothing to reject."""
    rejected = switch_desk(config, _source_of(config, event_id)).reject(event_id, by)
    columns = ", ".join(str(each.explained.difference.column) for each in rejected)
    return f"{rejected[0].table} goes on without {columns}."


def run_switches(config: Config, source: str) -> str:
    """Every approved switch as far as it goes now, in sentences. Where a person has to act, an alert is raised."""
    from floodmark.sqlserver.instances import SqlServerInstances  # noqa: PLC0415
    from floodmark.sync.switch_steps import SwitchSteps  # noqa: PLC0415
    from floodmark.warehouse.targets import PostgresTargets  # noqa: PLC0415

    if not pipelines_of(config, source):
        return "no pipeline reads this source."
    desk = switch_desk(config, source)

    def control() -> InstanceControl:
        return SqlServerInstances(source_connection(config.sources[source].conn_id))

    steps = SwitchSteps(
        source_name=source,
        pipelines=desk.pipelines,
        source=desk.source,
        drift_source=desk.drift_source,
        control=control,
        targets=PostgresTargets(warehouse_connection(config.warehouse.conn_id)),
        open_load=lambda pipeline, table, where: _open_load(config, pipeline, table, where),
        ledger=desk.ledger,
        switches=desk.switches,
        alerts=desk.alerts,
        elsewhere=[name for name, pipeline in config.pipelines.items() if pipeline.source != source],
    )
    return " | ".join(steps.take()) or "no switch of a capture instance is under way."


def list_switches(config: Config) -> list[InstanceSwitch]:
    """Those under way, of all sources."""
    from floodmark.ledger.switches import PostgresSwitchLedger  # noqa: PLC0415

    ledger = PostgresSwitchLedger(warehouse_connection(config.warehouse.conn_id))
    return [switch for source in config.sources for switch in ledger.list_switches(source)]


def switch_desk(config: Config, source: str) -> SwitchDesk:
    """Of a source that a pipeline reads. Nothing is connected to before it is asked."""
    from floodmark.ledger.drift import PostgresDriftLedger  # noqa: PLC0415
    from floodmark.ledger.switches import PostgresSwitchLedger  # noqa: PLC0415
    from floodmark.sync.switch import SwitchDesk  # noqa: PLC0415

    warehouse = warehouse_connection(config.warehouse.conn_id)
    names = pipelines_of(config, source)
    wiring = wire(config, names[0])
    return SwitchDesk(
        source_name=source,
        pipelines=[config.settings(name) for name in names],
        source=wiring.source,
        drift_source=lambda: drift_source(config, source),
        ledger=wiring.ledger(),
        drift=PostgresDriftLedger(warehouse),
        switches=PostgresSwitchLedger(warehouse),
        alerts=alerts_of(config),
    )


def is_proposal(config: Config, event_id: int) -> bool:
    """Whether the event proposes a switch, so that to approve it is to start that."""
    return any(event.event_id == event_id and event.proposal for event in _events(config))


def _source_of(config: Config, event_id: int) -> str:
    read = [pipeline.source for pipeline in config.pipelines.values()]
    found = [event.source for event in _events(config) if event.event_id == event_id and event.source in read]
    # Where there is none, the desk of any source says so.
    return found[0] if found else read[0]


def _events(config: Config) -> list[DriftEvent]:
    from floodmark.ledger.drift import PostgresDriftLedger  # noqa: PLC0415

    return list(PostgresDriftLedger(warehouse_connection(config.warehouse.conn_id)).list_events())


def _open_load(config: Config, pipeline: str, table: TableName, where: str) -> int:
    from floodmark.orchestration.loads import load_desk  # noqa: PLC0415

    opened = load_desk(config, pipeline).open_reload(table, where)
    assert opened.window_id is not None  # noqa: S101  (a reload always has a window)
    return opened.window_id


def _question(event: DriftEvent, proposal: Proposal) -> ProposedSwitch:
    columns = ", ".join(proposal.added)
    body = (
        f"{event.table}: {describe_added(proposal.explained)}\n\n"
        f"To take along: **{columns}**.\n\n"
        "**Approve**: Floodmark runs this at the source, reads the table from the second capture instance as soon as "
        "it has read the first one up to its start, loads what is new, and drops the first one. No change is lost.\n\n"
        f"```sql\n{proposal.text}\n```\n\n"
        f"**Reject**: the table goes on without {columns}."
    )
    key = f"{event.event_id}-{zlib.crc32(proposal.text.encode()):08x}"
    return ProposedSwitch(event.event_id, key, f"{event.table}: take {columns} along?", body)
