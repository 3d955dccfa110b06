"""The adoption of tables that another tool has loaded: they get a watermark, and no first load.

An import is a first load that another tool has done: the rows have every change up to the position of its state, and
may have later ones, up to the moment of the import. So the windows after it, their checks and the bound of replays are
those after a first load at that position. The merge makes the overlap harmless.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from floodmark.core.errors import ConfigError, NoKeyError, OperatorError, WindowBusyError
from floodmark.core.imported.outcome import TableImport
from floodmark.core.imported.position import ImportedPosition, ToolState
from floodmark.core.position import Position
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.core.source.history import LogEntry
from floodmark.core.source.snapshot import SourceSnapshot, TableSnapshot, Validity, Verdict
from floodmark.core.source.state import TableState
from floodmark.core.source.verdicts import GAPS, classify
from floodmark.core.window.planning import known_positions, pinned_instances, plan_table
from floodmark.sync.ports.adoption import RowsAge, TargetAdoption
from floodmark.sync.ports.ledger import Ledger
from floodmark.sync.ports.source import Source
from floodmark.sync.window.origin import follow_database, require_origin

_LOG = logging.getLogger(__name__)
_INSIDE = frozenset({Verdict.READY, Verdict.CAUGHT_UP, Verdict.CAPTURE_STOPPED, Verdict.CAPTURE_LAGGING})
"""The verdicts of a position that is inside the validity interval."""
_OF_ONE_TABLE = (ConfigError, NoKeyError, OperatorError, WindowBusyError)


@dataclass(frozen=True, slots=True)
class Adopter:
    """Imports the positions of other tools into a pipeline."""

    settings: PipelineSettings
    source: Source
    ledger: Ledger
    targets: TargetAdoption

    def adopt(
        self, state: ToolState, tables: Sequence[TableSettings], *, dry_run: bool = False
    ) -> Sequence[TableImport]:
        """Set the watermarks of tables to the position of a state. A refused table does not stop the others.

        dry_run: only check. Raises OperatorError where the state is of no use for any table, and the errors of
        ``require_origin``.
        """
        self.ledger.ensure_schema()
        states = self.ledger.read_tables(self.settings.name)
        # The database is known when it has answered; its name is what the positions of some tools are chosen by.
        position = state.position_in(self.source.read_snapshot([]).database)
        snapshot = self.source.read_snapshot(
            self.settings.sources,
            pinned_instances(self.settings, states),
            [*known_positions(states), position.after_lsn, position.log_lsn],
        )
        require_origin(self.settings, snapshot, states)
        one = _OneImport(self, position, snapshot, states, dry_run)
        return [one.run(table) for table in tables]


@dataclass(frozen=True, slots=True)
class _OneImport:
    """One import, with what is the same for all of its tables."""

    adopter: Adopter
    position: ImportedPosition
    snapshot: SourceSnapshot
    states: Mapping[TableName, TableState]
    dry_run: bool

    def run(self, table: TableSettings) -> TableImport:
        """Adopt one table, or return why it cannot be adopted."""
        state = self.states.get(table.source)
        if state is not None and state.watermark is not None:
            return self._refuse(
                table,
                f"it has the watermark {state.watermark} already.",
                "Run the pipeline, which continues from there; a watermark is never set a second time.",
            )
        if why := self.position.explain_refusal(table.source):
            return self._refuse(table, why, self._load_instead(table))
        seen = next(each for each in self.snapshot.tables if each.table == table.source)
        validity = self._classify(seen)
        if validity.verdict not in _INSIDE:
            hint = self._load_instead(table) if validity.verdict in GAPS else validity.hint
            return self._refuse(table, validity.cause, hint, validity.verdict.value)
        try:
            return self._adopt(table, seen, validity)
        except _OF_ONE_TABLE as error:
            return self._refuse(table, error.message, error.hint, validity.verdict.value)

    def _adopt(self, table: TableSettings, seen: TableSnapshot, validity: Validity) -> TableImport:
        plan = plan_table(table, seen, self.snapshot, None)
        window_id = None
        if self.dry_run:
            self.adopter.targets.check_adoption(plan)
        else:
            pipeline = self.adopter.settings.name
            follow_database(pipeline, self.snapshot, self.adopter.ledger)
            window_id = self.adopter.targets.adopt(pipeline, plan, self._age())
            _LOG.info("%s: %s was adopted, its watermark is %s.", table.source, table.target, self.position.after_lsn)
        return TableImport(table.source, table.target, self.position.after_lsn, validity.verdict.value, window_id)

    def _classify(self, seen: TableSnapshot) -> Validity:
        """Return the verdict that a run would give on a watermark at the position."""
        settings, after = self.adopter.settings, self.position.after_lsn
        as_if = TableState(seen.table, after, None, consistent=False)
        validity = classify(
            seen,
            self.snapshot,
            as_if,
            settings.lag_limit_seconds,
            pipeline=settings.name,
            source_name=settings.source_name,
        )
        if validity.verdict in _INSIDE and self._is_elsewhere(seen):
            return Validity(
                seen.table,
                Verdict.OTHER_DATABASE,
                f"the log of {self.snapshot.database} has no transaction at {self.position.log_lsn}, which "
                f"{self.position.tool} has read: it read another database, or this one was restored since.",
                "Correct the connection. Where the database was restored, load the tables instead.",
                after,
            )
        return validity

    def _is_elsewhere(self, seen: TableSnapshot) -> bool:
        """Return whether the log is not the one that the tool has read (``core.source.history`` on what proves it)."""
        proof, low = self.position.log_lsn, seen.min_lsn
        sees_times = self.snapshot.max_lsn_at is not None
        return sees_times and isinstance(low, Position) and proof > low and self.snapshot.entries.get(proof) is None

    def _age(self) -> RowsAge:
        after, newest = self.position.after_lsn, self.snapshot.max_lsn
        return RowsAge(
            LogEntry(after, self.snapshot.entries.get(after)),
            self.snapshot.latest_commit_at,
            newest if isinstance(newest, Position) else None,
            self.snapshot.max_lsn_at,
        )

    def _load_instead(self, table: TableSettings) -> str:
        return f"Rename or drop {table.target}, then run the pipeline: it loads the table from the source."

    def _refuse(self, table: TableSettings, why: str, hint: str, verdict: str = "") -> TableImport:
        return TableImport(table.source, table.target, self.position.after_lsn, verdict, refusal=why, hint=hint)
