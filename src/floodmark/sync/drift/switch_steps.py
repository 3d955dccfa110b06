"""The steps of a switch of capture instances, each taken when it can be, by whoever comes first, and safe to repeat.

Make the second instance; when a pipeline's watermark has reached its start, let the pipeline go over; load the new
columns of the rows that have them; drop the first instance when nobody reads it any more. What was done is looked up at
the source and in the ledger each time, so that a process that dies between two steps leaves nothing to be repaired.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from floodmark.core.drift.proposal import LivingInstance, spelled_by_server
from floodmark.core.drift.switch import InstanceSwitch, SwitchState, build_switch_alert, switch_key
from floodmark.core.errors import FloodmarkError, OperatorError, TableBusyError, TransientError, WindowBusyError
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.core.source.scripts import disable_instance
from floodmark.core.source.snapshot import InstanceIdentity
from floodmark.sync.alerts import Alerts
from floodmark.sync.drift.switch_readers import SecondInstance, SwitchReaders
from floodmark.sync.ports.drift import DriftSource
from floodmark.sync.ports.ledger import Ledger
from floodmark.sync.ports.source import Source
from floodmark.sync.ports.switch import InstanceControl, SwitchLedger, Targets

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SwitchSteps:
    """Of one source. pipelines: all that read it. open_load: see ``SwitchReaders``. elsewhere: the pipelines of other
    sources, whose capture instances may be the same in all that tells them: restored copies."""

    source_name: str
    pipelines: Sequence[PipelineSettings]
    source: Callable[[], Source]
    drift_source: Callable[[], DriftSource]
    control: Callable[[], InstanceControl]
    targets: Targets
    open_load: Callable[[str, TableName, str], int]
    ledger: Ledger
    switches: SwitchLedger
    alerts: Alerts
    elsewhere: Collection[str] = ()

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
        except (WindowBusyError, TableBusyError) as error:
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
        if not any(each.identity == switch.old for each in living) and self._list_readers(switch.old):
            self.switches.finish(switch.switch_id, given_up=True)
            return f"given up, as {switch.old.name} is gone; the verdicts of its readers say what to do."
        if switch.new is None and (gone := self._gone_columns(switch)):
            self.switches.finish(switch.switch_id, given_up=True)
            return f"given up, as {', '.join(gone)} was dropped or renamed meanwhile; what is left is proposed anew."
        if switch.new is None:
            switch = replace(switch, new=self._make(switch, living), state=SwitchState.MADE)
            living = self.drift_source().read_drift({}).instances
        assert switch.new is not None  # noqa: S101  (it was just made)
        second = SecondInstance(switch, self.source().read_snapshot([switch.table], {switch.table: switch.new.name}))
        if second.table_snapshot.instance is None or second.table_snapshot.instance.identity != switch.new:
            return self._remake(switch)
        readers = SwitchReaders(
            self.source, self.drift_source, self.targets, self.open_load, self.ledger, self.switches
        )  # fmt: skip
        waits, failed = [], []
        for settings, table in self._readers(switch, living):
            try:
                waits.append(readers.go_on(settings, table, second))
            except FloodmarkError as error:
                # The other pipelines go on.
                failed.append(error)
        if failed:
            raise failed[0]
        return " ".join(filter(None, waits)) or self._finish(switch, living)

    # -- the second instance ----------------------------------------------------------------------------------------

    def _make(self, switch: InstanceSwitch, living: Sequence[LivingInstance]) -> InstanceIdentity:
        """Or take the one that is there: of an earlier try, or made by hand."""
        found = self._able(switch, living)
        if found is None:
            self._make_room(switch, living)
            self._change(switch, f"{switch.name} could not be made", switch.enabling,
                         lambda control: control.make_instance(switch.enabling))  # fmt: skip
            found = self._able(switch, self.drift_source().read_drift({}).instances)
        if found is None:
            raise OperatorError(
                str(switch.table), f"{switch.name} was made and does not capture {', '.join(switch.columns)}.",
                "See whether its columns were dropped or renamed meanwhile; drop it to have it made anew.",
            )  # fmt: skip
        self.switches.mark_made(switch.switch_id, found.identity)
        _LOG.info("%s: capture instance %s is there.", switch.table, found.identity.name)
        return found.identity

    def _drop(self, switch: InstanceSwitch, name: str) -> None:
        self._change(switch, f"{name} could not be dropped", disable_instance(switch.table, name),
                     lambda control: control.drop_instance(switch.table, name))  # fmt: skip

    def _change(
        self, switch: InstanceSwitch, failed: str, statement: str, change: Callable[[InstanceControl], None]
    ) -> None:
        """statement: what a person runs in its place."""
        try:
            change(self.control())
        except TransientError as error:
            raise TableBusyError(
                str(switch.table), f"capture instance {failed} yet: {error.message}",
                "It waits for seconds only, as everybody who comes later waits behind it. The next run of the drift "
                "DAG tries again.",
            ) from None  # fmt: skip
        except FloodmarkError as error:
            raise OperatorError(
                str(switch.table), f"capture instance {failed}: {error.message}",
                f"Have a db_owner run this: {' '.join(statement.split())}",
            ) from None  # fmt: skip

    def _gone_columns(self, switch: InstanceSwitch) -> list[str]:
        """Of those that the second instance is to capture; its making would fail for ever."""
        details = self.drift_source().read_drift({switch.old.name: switch.table}).details.get(switch.old.name)
        if details is None:
            return []
        left = {column.name for column in details.uncaptured}
        # A new column may have the name of one that the first instance has lost.
        return [name for name in switch.columns
                if (name not in left if name in switch.added else name in details.lost)]  # fmt: skip

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
            readers = self._list_readers(other.identity)
            if readers or other.identity.name != switch.drops:
                why = f"pipeline {readers[0]} reads it" if readers else "nobody has approved that it goes"
                raise OperatorError(
                    str(switch.table), "it has two capture instances, the most that there can be: "
                    f"{switch.old.name} and {other.identity.name}, and {why}.",
                    f"If nobody needs {other.identity.name}, drop it (sys.sp_cdc_disable_table).",
                )  # fmt: skip
            self._drop(switch, other.identity.name)

    def _remake(self, switch: InstanceSwitch) -> str:
        if switch.pipelines:
            raise OperatorError(
                str(switch.table), f"capture instance {switch.name} is gone, and {switch.pipelines[0].pipeline} reads "
                "it.", "Its verdict says what to do; a reload makes up for what is lost.",
            )  # fmt: skip
        self.switches.mark_made(switch.switch_id, None)
        return f"{switch.name} is gone again; it is made anew."

    def _readers(
        self, switch: InstanceSwitch, living: Sequence[LivingInstance]
    ) -> list[tuple[PipelineSettings, TableSettings]]:
        """Whoever reads the table, however they spell its name."""
        return [
            (settings, table)
            for settings in self.pipelines
            for table in settings.tables
            if spelled_by_server(table.source, living) == switch.table
        ]

    def _list_readers(self, instance: InstanceIdentity) -> list[str]:
        return [name for name in self.switches.list_readers(instance) if name not in self.elsewhere]

    # -- the end ----------------------------------------------------------------------------------------------------

    def _finish(self, switch: InstanceSwitch, living: Sequence[LivingInstance]) -> str:
        readers = self._list_readers(switch.old)
        if readers:
            raise OperatorError(
                str(switch.table), f"pipeline {readers[0]} still reads {switch.old.name}, and the configuration does "
                "not name it for this source.", "Put it back, or take its tables out of the ledger.",
            )  # fmt: skip
        if any(each.identity == switch.old for each in living):
            self._drop(switch, switch.old.name)
        self.switches.finish(switch.switch_id)
        return f"done; {switch.old.name} is gone."
