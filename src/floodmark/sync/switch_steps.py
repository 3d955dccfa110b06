"""The steps of a switch of capture instances, each taken when it can be, by whoever comes first, and safe to repeat.

Make the second instance; when a pipeline's watermark has reached its start, let the pipeline go over; load the new
columns of the rows that have them; drop the first instance when nobody reads it any more. What was done is looked up at
the source and in the ledger each time, so that a process that dies between two steps leaves nothing to be repaired.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from floodmark.core.capture import InstanceIdentity, TableSighting
from floodmark.core.drift_proposal import LivingInstance
from floodmark.core.errors import FloodmarkError, OperatorError, TransientError, WindowBusyError
from floodmark.core.lsn import Lsn
from floodmark.core.planning import with_key
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.core.switch import (
    InstanceSwitch,
    SwitchState,
    build_switch_alert,
    may_go_over,
    rows_to_fill,
    switch_key,
)
from floodmark.sync.alerts import Alerts
from floodmark.sync.drift_ports import DriftSource
from floodmark.sync.ports import Ledger, Source
from floodmark.sync.switch_ports import InstanceControl, SwitchLedger

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SwitchSteps:
    """Of one source. pipelines: all that read it. open_load: opens, or finds, the load of the rows of a pipeline's
    table for which a condition is true, and returns its window's id."""

    source_name: str
    pipelines: Sequence[PipelineSettings]
    source: Callable[[], Source]
    drift_source: Callable[[], DriftSource]
    control: Callable[[], InstanceControl]
    open_load: Callable[[str, TableName, str], int]
    ledger: Ledger
    switches: SwitchLedger
    alerts: Alerts

    def take(self) -> list[str]:
        """Every switch as far as it goes now; a sentence for each. Where a person has to act, an alert says so."""
        with self.switches.hold_switches(self.source_name) as is_free:
            if not is_free:
                return ["another process is at work on the switches."]
            return [self._take(switch) for switch in self.switches.list_switches(self.source_name)]

    def _take(self, switch: InstanceSwitch) -> str:
        name = f"{switch.table}, {switch.old.name} to {switch.name}"
        try:
            said = self._step(switch)
        except WindowBusyError as error:
            said = f"waits: {error}"
        except TransientError:
            raise
        except FloodmarkError as error:
            self.alerts.raise_alert(build_switch_alert(switch, str(error), error.hint))
            _LOG.warning("Switch of %s: %s", name, error)
            return f"{name}: {error}"
        self.alerts.end_alert(switch_key(switch.switch_id))
        _LOG.info("Switch of %s: %s", name, said)
        return f"{name}: {said}"

    def _step(self, switch: InstanceSwitch) -> str:
        living = self.drift_source().read_drift({}).instances
        if not any(each.identity == switch.old for each in living) and self.switches.list_readers(switch.old):
            self.switches.finish(switch.switch_id, given_up=True)
            return f"given up, as {switch.old.name} is gone; the verdicts of its readers say what to do."
        if switch.new is None and (gone := self._gone_columns(switch)):
            self.switches.finish(switch.switch_id, given_up=True)
            return f"given up, as {', '.join(gone)} was dropped or renamed meanwhile; what is left is proposed anew."
        if switch.new is None:
            switch = replace(switch, new=self._make(switch, living), state=SwitchState.MADE)
            living = self.drift_source().read_drift({}).instances
        assert switch.new is not None  # noqa: S101  (it was just made)
        sighting = self.source().read_snapshot([switch.table], {switch.table: switch.new.name}).tables[0]
        if sighting.instance is None or sighting.instance.identity != switch.new:
            return self._remake(switch)
        waits = [
            said for settings, table in self._readers(switch) for said in self._go_on(settings, table, switch, sighting)
        ]
        return " ".join(waits) if waits else self._finish(switch, living)

    # -- the second instance ----------------------------------------------------------------------------------------

    def _make(self, switch: InstanceSwitch, living: Sequence[LivingInstance]) -> InstanceIdentity:
        """Or take the one that is there: of an earlier try, or made by hand."""
        found = self._able(switch, living)
        if found is None:
            self._make_room(switch, living)
            control = self.control()
            try:
                control.make_instance(switch.enabling)
            except TransientError:
                raise
            except FloodmarkError as error:
                raise OperatorError(
                    str(switch.table),
                    f"its second capture instance could not be made: {error.message}",
                    f"Have a db_owner run this: {' '.join(switch.enabling.split())}",
                ) from None
            found = self._able(switch, self.drift_source().read_drift({}).instances)
        if found is None:
            raise OperatorError(
                str(switch.table), f"{switch.name} was made and does not capture {', '.join(switch.columns)}.",
                "See whether its columns were dropped or renamed meanwhile; drop it to have it made anew.",
            )  # fmt: skip
        self.switches.mark_made(switch.switch_id, found.identity)
        _LOG.info("%s: capture instance %s is there.", switch.table, found.identity.name)
        return found.identity

    def _gone_columns(self, switch: InstanceSwitch) -> list[str]:
        """Of those that the second instance is to capture; its making would fail for ever."""
        details = self.drift_source().read_drift({switch.old.name: switch.table}).details.get(switch.old.name)
        if details is None:
            return []
        left = {column.name for column in details.uncaptured}
        return [name for name in switch.columns if name in details.lost or (name in switch.added and name not in left)]

    def _able(self, switch: InstanceSwitch, living: Sequence[LivingInstance]) -> LivingInstance | None:
        """Another instance of the table that captures all that the second one is to capture."""
        others = [each for each in living if each.table == switch.table and each.identity != switch.old]
        details = self.drift_source().read_drift({each.identity.name: each.table for each in others}).details
        for each in others:
            found = details.get(each.identity.name)
            if found is not None and found.captures(switch.columns):
                return each
        return None

    def _make_room(self, switch: InstanceSwitch, living: Sequence[LivingInstance]) -> None:
        for other in living:
            if other.table != switch.table or other.identity == switch.old:
                continue
            readers = self.switches.list_readers(other.identity)
            if readers or other.identity.name != switch.drops:
                why = f"pipeline {readers[0]} reads it" if readers else "nobody has approved that it goes"
                raise OperatorError(
                    str(switch.table), "it has two capture instances, the most that there can be: "
                    f"{switch.old.name} and {other.identity.name}, and {why}.",
                    f"If nobody needs {other.identity.name}, drop it (sys.sp_cdc_disable_table).",
                )  # fmt: skip
            self.control().drop_instance(switch.table, other.identity.name)

    def _remake(self, switch: InstanceSwitch) -> str:
        if switch.pipelines:
            raise OperatorError(
                str(switch.table), f"capture instance {switch.name} is gone, and {switch.pipelines[0].pipeline} reads "
                "it.", "Its verdict says what to do; a reload makes up for what is lost.",
            )  # fmt: skip
        self.switches.mark_made(switch.switch_id, None)
        return f"{switch.name} is gone again; it is made anew."

    # -- the pipelines ----------------------------------------------------------------------------------------------

    def _readers(self, switch: InstanceSwitch) -> list[tuple[PipelineSettings, TableSettings]]:
        return [
            (settings, table)
            for settings in self.pipelines
            for table in settings.tables
            if table.source == switch.table
        ]

    def _go_on(
        self, settings: PipelineSettings, table: TableSettings, switch: InstanceSwitch, sighting: TableSighting
    ) -> Iterator[str]:
        """What a pipeline still waits for, if anything."""
        state = self.ledger.read_tables(settings.name).get(switch.table)
        if state is None or state.identity is None:
            if any(each.source == switch.table for window in self.ledger.list_unfinished(settings.name)
                   for each in window.plan.tables):  # fmt: skip
                yield f"{settings.name} has not finished its first load."
            return
        if state.identity == switch.old:
            if table.capture_instance is not None:
                raise OperatorError(
                    f"{settings.name}, {switch.table}", "its configuration names capture instance "
                    f"{table.capture_instance}.", "Take capture_instance out of pipelines.yaml.",
                )  # fmt: skip
            if not sighting.permitted:
                raise OperatorError(
                    str(switch.table), f"the login may not read the change table of {switch.name}.",
                    "Grant it what it has on the first one: SELECT on the change table, and the gating role if there "
                    "is one.",
                )  # fmt: skip
            start = sighting.min_lsn
            if not isinstance(start, Lsn):
                yield f"the capture job has not come to {switch.name} yet."
                return
            if state.watermark is None or not may_go_over(state.watermark, start):
                yield f"{settings.name} reads {switch.old.name} up to {start} first; it stands at {state.watermark}."
                return
            if not self.switches.go_over(switch, settings.name, start):
                yield f"{settings.name} goes over when its window has been published."
                return
            _LOG.info("%s: %s reads %s after %s.", switch.table, settings.name, switch.name, state.watermark)
        elif state.identity != switch.new:
            return
        yield from self._fill(settings, table, switch, sighting)

    def _fill(
        self, settings: PipelineSettings, table: TableSettings, switch: InstanceSwitch, sighting: TableSighting
    ) -> Iterator[str]:
        """The values of the new columns that no window of the second instance brings."""
        current = next(
            each for each in self.switches.list_switches(switch.source) if each.switch_id == switch.switch_id
        )
        gone_over = current.of(settings.name)
        if gone_over is None or gone_over.is_filled:
            return
        window_id = gone_over.window_id
        if gone_over.window_state is None:
            assert sighting.instance is not None  # noqa: S101  (the caller saw it)
            details = self.drift_source().read_drift({sighting.instance.identity.name: switch.table}).details
            lost = details[sighting.instance.identity.name].lost if details else ()
            left = tuple(name for name in switch.added if name not in lost)
            if not left:
                return
            key = with_key(table, sighting.instance).table.key
            window_id = self.open_load(settings.name, switch.table, rows_to_fill(switch, left, key, table.backfill))
            self.switches.record_backfill(switch.switch_id, settings.name, window_id)
        yield f"{settings.name} reads {switch.name}; window {window_id} loads {', '.join(switch.added)}."

    # -- the end ----------------------------------------------------------------------------------------------------

    def _finish(self, switch: InstanceSwitch, living: Sequence[LivingInstance]) -> str:
        readers = self.switches.list_readers(switch.old)
        if readers:
            raise OperatorError(
                str(switch.table), f"pipeline {readers[0]} still reads {switch.old.name}, and the configuration does "
                "not name it for this source.", "Put it back, or take its tables out of the ledger.",
            )  # fmt: skip
        if any(each.identity == switch.old for each in living):
            self.control().drop_instance(switch.table, switch.old.name)
        self.switches.finish(switch.switch_id)
        return f"done; {switch.old.name} is gone."
