"""The steps of a switch of capture instances. Any process may take a step when it is possible; steps can be repeated.

The steps: create the second instance; switch a pipeline when its watermark has reached the start of that instance; load
the new columns of the rows that have them; drop the first instance when no pipeline reads it. Each time, the progress
is read from the source and the ledger, so that a process that dies between two steps leaves nothing to repair.
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
from floodmark.core.source.feed import InstanceIdentity
from floodmark.core.source.scripts import disable_instance
from floodmark.sync.alerts import Alerts
from floodmark.sync.drift.switch_readers import SecondInstance, SwitchReaders
from floodmark.sync.ports.drift import DriftSource
from floodmark.sync.ports.ledger import Ledger
from floodmark.sync.ports.source import Source
from floodmark.sync.ports.switch import InstanceControl, SwitchLedger, Targets

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SwitchSteps:
    """The steps of the switches of one source."""

    source_name: str
    pipelines: Sequence[PipelineSettings]
    """All pipelines that read the source."""
    source: Callable[[], Source]
    drift_source: Callable[[], DriftSource]
    control: Callable[[], InstanceControl]
    targets: Targets
    open_load: Callable[[str, TableName, str], int]
    """See ``SwitchReaders``."""
    ledger: Ledger
    switches: SwitchLedger
    alerts: Alerts
    elsewhere: Collection[str] = ()
    """The pipelines of other sources. Their capture instances may have the same identities: restored copies."""

    def take(self) -> list[str]:
        """Advance every switch as far as it can go now. Return a sentence for each.

        An alert is raised where the operator has to act.
        """
        with self.switches.hold_switches(self.source_name) as is_free:
            if not is_free:
                return ["another process is working on the switches."]
            return [self._take(switch) for switch in self.switches.list_switches(self.source_name)]

    def _take(self, switch: InstanceSwitch) -> str:
        name = f"{switch.table}, {switch.old.name} to {switch.name}"
        try:
            state = self._step(switch)
        except (WindowBusyError, TableBusyError) as error:
            state = f"waits: {error}"
        except TransientError:
            raise
        except FloodmarkError as error:
            self.alerts.raise_alert(build_switch_alert(switch, str(error), error.hint))
            _LOG.warning("Switch of %s: %s", name, error)
            return f"{name}: {error}"
        self.alerts.end_alert(switch_key(switch.switch_id))
        _LOG.info("Switch of %s: %s", name, state)
        return f"{name}: {state}"

    def _step(self, switch: InstanceSwitch) -> str:
        living = self.drift_source().read_drift({}).instances
        if not any(each.identity == switch.old for each in living) and self._list_readers(switch.old):
            self.switches.finish(switch.switch_id, given_up=True)
            return f"given up, because {switch.old.name} no longer exists; the verdicts of its readers say what to do."
        if switch.new is None and (gone := self._gone_columns(switch)):
            self.switches.finish(switch.switch_id, given_up=True)
            return f"given up, because {', '.join(gone)} was dropped or renamed; the other columns are proposed again."
        if switch.new is None:
            switch = replace(switch, new=self._make(switch, living), state=SwitchState.MADE)
            living = self.drift_source().read_drift({}).instances
        assert switch.new is not None  # noqa: S101  (it was just created)
        second = SecondInstance(switch, self.source().read_snapshot([switch.table], {switch.table: switch.new.name}))
        if second.table_snapshot.instance is None or second.table_snapshot.instance.identity != switch.new:
            return self._remake(switch)
        readers = SwitchReaders(
            self.source, self.drift_source, self.targets, self.open_load, self.ledger, self.switches
        )
        waits, failed = [], []
        for settings, table in self._readers(switch, living):
            try:
                waits.append(readers.go_on(settings, table, second))
            except FloodmarkError as error:
                # The other pipelines continue.
                failed.append(error)
        if failed:
            raise failed[0]
        return " ".join(filter(None, waits)) or self._finish(switch, living)

    # -- the second instance ----------------------------------------------------------------------------------------

    def _make(self, switch: InstanceSwitch, living: Sequence[LivingInstance]) -> InstanceIdentity:
        """Create the second instance, or use an existing one: from an earlier attempt, or created by hand."""
        found = self._able(switch, living)
        if found is None:
            self._make_room(switch, living)
            self._change(
                switch,
                f"{switch.name} could not be created",
                switch.enabling,
                lambda control: control.make_instance(switch.enabling),
            )
            found = self._able(switch, self.drift_source().read_drift({}).instances)
        if found is None:
            raise OperatorError(
                str(switch.table),
                f"{switch.name} was created and does not capture {', '.join(switch.columns)}.",
                "Check whether its columns were dropped or renamed; drop it to have it created again.",
            )
        self.switches.mark_made(switch.switch_id, found.identity)
        _LOG.info("%s: capture instance %s exists.", switch.table, found.identity.name)
        return found.identity

    def _drop(self, switch: InstanceSwitch, name: str) -> None:
        self._change(
            switch,
            f"{name} could not be dropped",
            disable_instance(switch.table, name),
            lambda control: control.drop_instance(switch.table, name),
        )

    def _change(
        self, switch: InstanceSwitch, failed: str, statement: str, change: Callable[[InstanceControl], None]
    ) -> None:
        """Make or drop an instance. statement: the statement that a db_owner can run instead."""
        try:
            change(self.control())
        except TransientError as error:
            raise TableBusyError(
                str(switch.table),
                f"capture instance {failed} yet: {error.message}",
                "The attempt waited only for seconds, because later transactions wait behind it. The next run of the "
                "drift DAG tries again.",
            ) from None
        except FloodmarkError as error:
            raise OperatorError(
                str(switch.table),
                f"capture instance {failed}: {error.message}",
                f"Have a db_owner run this: {' '.join(statement.split())}",
            ) from None

    def _gone_columns(self, switch: InstanceSwitch) -> list[str]:
        """Return the columns for the second instance that no longer exist. Its creation would always fail."""
        details = self.drift_source().read_drift({switch.old.name: switch.table}).details.get(switch.old.name)
        if details is None:
            return []
        left = {column.name for column in details.uncaptured}
        # A new column may have the name of a column that the first instance has lost.
        return [name for name in switch.columns if (name not in left if name in switch.added else name in details.lost)]

    def _able(self, switch: InstanceSwitch, living: Sequence[LivingInstance]) -> LivingInstance | None:
        """Return another instance of the table that captures all columns for the second one."""
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
                why = f"pipeline {readers[0]} reads it" if readers else "its removal has not been approved"
                raise OperatorError(
                    str(switch.table),
                    "the table already has two capture instances, the maximum: "
                    f"{switch.old.name} and {other.identity.name}. The latter is not dropped: {why}.",
                    f"If {other.identity.name} is not needed, drop it (sys.sp_cdc_disable_table).",
                )
            self._drop(switch, other.identity.name)

    def _remake(self, switch: InstanceSwitch) -> str:
        if switch.pipelines:
            raise OperatorError(
                str(switch.table),
                f"capture instance {switch.name} no longer exists, and {switch.pipelines[0].pipeline} reads it.",
                "Follow the hint of its verdict; a reload restores the lost changes.",
            )
        self.switches.mark_made(switch.switch_id, None)
        return f"{switch.name} no longer exists; it will be created again."

    def _readers(
        self, switch: InstanceSwitch, living: Sequence[LivingInstance]
    ) -> list[tuple[PipelineSettings, TableSettings]]:
        """Return the pipelines that read the table, in whatever case they spell its name."""
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
                str(switch.table),
                f"pipeline {readers[0]} still reads {switch.old.name}, and the configuration does "
                "not name it for this source.",
                "Put the pipeline back into the configuration, or remove its tables from the ledger.",
            )
        if any(each.identity == switch.old for each in living):
            self._drop(switch, switch.old.name)
        self.switches.finish(switch.switch_id)
        return f"done; {switch.old.name} was dropped."
