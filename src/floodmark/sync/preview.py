"""The preview of a run: what the next one would do with each table, by the configuration as it is now.

Source, warehouse and ledger are read, and nothing is written. So a change of ``pipelines.yaml`` can be judged before it
is applied. The verdicts and plans are those of ``open_window``. What the run itself would find out is not known yet:
schema drift that no run has seen, and rows that break a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING

from floodmark.core.columns import describe_column
from floodmark.core.errors import ConfigError, FloodmarkError, command_line
from floodmark.core.plan import LoadKind, TablePlan
from floodmark.core.planning import classify_tables, known_positions, not_plannable, pinned_feeds, plan_tables
from floodmark.core.schema import TableName
from floodmark.core.settings import (
    ColumnSettings,
    DerivedColumn,
    DriftPolicies,
    Expectation,
    Filter,
    FirstLoad,
    OnGap,
    PipelineSettings,
    Rule,
    TableSettings,
)
from floodmark.core.snapshot import TableState, Validity, Verdict
from floodmark.core.verdicts import GAPS
from floodmark.sync.ports import Source

if TYPE_CHECKING:
    from floodmark.core.capture import PlannedStop
    from floodmark.sync.status import StatusReader


class NextStep(Enum):
    """The work of the next run on a table."""

    CHANGES = "changes"
    FIRST_LOAD = "first load"
    RELOAD = "reload"
    NOTHING = "nothing to read"
    LEFT_OUT = "left out"
    NO_LONGER_READ = "no longer read"


@dataclass(frozen=True, slots=True)
class ChangedSetting:
    """A setting with another value than in the newest window of the table."""

    name: str
    before: str
    now: str
    effect: str
    """From when on it applies, and to what, as a sentence."""


@dataclass(frozen=True, slots=True)
class TablePreview:
    """A table, and the work of the next run on it."""

    source: TableName
    target: TableName | None
    step: NextStep
    reason: str
    """The verdict and its cause, or what is read."""
    hint: str = ""
    changed: tuple[ChangedSetting, ...] = ()
    new_columns: tuple[str, ...] = ()
    """The columns that are added to the target."""


@dataclass(frozen=True, slots=True)
class RunPreview:
    """The work of the next run of a pipeline."""

    pipeline: str
    tables: tuple[TablePreview, ...]
    """Those of the configuration in its order, then those that only the ledger has."""
    unfinished_window_id: int | None = None
    """The window that the run finishes before all this."""

    @property
    def has_left_out(self) -> bool:
        """Return whether a table of the configuration would get no rows."""
        return any(table.step is NextStep.LEFT_OUT for table in self.tables)


_ROWS_STAY = "Rows of earlier windows stay as they are."
EFFECTS: Mapping[str, str] = {
    "target": "Only the name changes: rename the table in the warehouse too, then floodmark rename-target.",
    "style": "One target has one style for good: rename or drop the target, and reload the table.",
    "deletes": f"It applies to deletes from the next window on. {_ROWS_STAY}",
    "temporal": f"It applies to new columns, and to all with the next target. {_ROWS_STAY}",
    "unstorable": "It applies to rows from the next window on, and to a release from quarantine.",
    "naming": "Only a reload of the table applies it.",
    "live_view": "The next window makes the view or drops it. The target stays as it is.",
    "commit_times": "The next window adds the column. Rows get their times when they change, or are loaded again.",
    "partitions": "It changes how the source is read, and no row.",
    "lob_batch": "It changes how the source is read, and no row.",
    "max_reads": "It changes how the source is read, and no row.",
    "first_load": "It applies to the next load of the whole table.",
    "on_gap": "It applies to the next gap, and to one that is open.",
    "backfill": "It applies to the next switch of capture instances.",
    "drift": "It applies to changes of the table's schema from the next run on.",
    "key": "Rows are merged by it from the next window on; the target must have the same key, unless it is a log.",
    "capture_instance": "Changes are read from it from the next window on.",
    "rules": f"They apply to rows from the next window on, and to a release from quarantine. {_ROWS_STAY}",
    "expectations": f"They apply to the checks of windows from the next one on. {_ROWS_STAY}",
    "security_filtered": "It says whether the table is loaded although a policy filters its rows.",
    "columns": "The next window does not apply them to a loaded table, which is left out until it is reloaded.",
    "new_columns": "It applies to columns that are added from the next run on.",
    "derived": "The next window adds the column, or makes it again, in all rows of the target.",
    "mask_key_conn_id": "Only a reload into a new target applies it, since hashes by two secrets are not comparable.",
    "where": "The next window does not apply it to a loaded table, which is left out until it is reloaded.",
    "keep_versions": "Runs, or the upkeep of a lake, delete what ended before. A longer time brings no version back.",
    "open_end": "The next window changes the view of the history, and no row.",
    "track": "The next window changes the view of the history, and no row.",
    "before_images": "It applies to changes from the next window on.",
    "snapshot": "It applies to the next load of the whole table.",
    "key_spelling": "It says whether the table is read although its keys may change their spelling.",
}
"""The effect of each setting whose change can be noticed."""
_SAME_RESULT = frozenset({"source", "net", "mask_key_print", "keeps_messages"})
"""The name of the table; settings that each plan decides again, and that change no row: how changes are netted, and
whether messages in quarantine keep their text; and one that older plans lack: the verdict says that a secret was
changed."""


def preview_run(
    settings: PipelineSettings,
    source: Source,
    status: StatusReader,
    plans: Mapping[TableName, TablePlan],
    check_target: Callable[[TablePlan], frozenset[str]],
    *,
    planned_stop: PlannedStop | None = None,
) -> RunPreview:
    """Return what the next run does. It runs at most two statements at the source.

    plans: of the newest window of each table. check_target: returns the columns of a target, none where it does not
    exist; raises ConfigError for one that the plan cannot be merged into. Raises from ``core.errors``.
    """
    states = status.states
    pinned = pinned_feeds(settings, states)
    snapshot = source.read_snapshot(settings.sources, pinned, known_positions(states), status.marks)
    validities = status.with_records(classify_tables(settings, snapshot, states, planned_stop))
    validities, planned = plan_tables(settings, snapshot, states, validities)
    preview = _Preview(settings, states, plans, check_target)
    tables = [preview.of_table(validity, planned.get(validity.table)) for validity in validities]
    return RunPreview(settings.name, (*tables, *preview.no_longer_read()), status.unfinished_window_id)


@dataclass(frozen=True, slots=True)
class _Preview:
    settings: PipelineSettings
    states: Mapping[TableName, TableState]
    plans: Mapping[TableName, TablePlan]
    check_target: Callable[[TablePlan], frozenset[str]]

    def of_table(self, validity: Validity, plan: TablePlan | None) -> TablePreview:
        table = next(each for each in self.settings.tables if each.source == validity.table)
        new_columns: tuple[str, ...] = ()
        if plan is not None:
            try:
                new_columns = self._check(plan)
            except FloodmarkError as error:
                validity, plan = not_plannable(validity, error), None
        step, reason = self._step(table, validity, plan)
        hint = "" if plan is not None or step in {NextStep.NOTHING, NextStep.RELOAD} else validity.hint
        before = self.plans.get(table.source)
        changed = tuple(_changes(before.settings, table)) if before else ()
        return TablePreview(table.source, table.target, step, reason, hint, changed, new_columns)

    def no_longer_read(self) -> list[TablePreview]:
        """Return the tables that the ledger has, and the configuration no longer."""
        return [
            TablePreview(
                state.source,
                state.target,
                NextStep.NO_LONGER_READ,
                "It is not in pipelines.yaml. Its target and its watermark stay as they are.",
            )
            for state in sorted(self.states.values(), key=lambda each: each.source)
            if state.source not in self.settings.sources
        ]

    def _check(self, plan: TablePlan) -> tuple[str, ...]:
        """Return the columns that the plan adds to its target. Raises ConfigError for a target that it cannot have."""
        state = self.states.get(plan.source)
        if state and state.target not in {None, plan.target}:
            raise ConfigError(
                str(plan.source),
                f"its target was {state.target} and is now {plan.target}.",
                "Restore the name; or rename the target in the warehouse too, then: "
                f"{command_line('rename-target', self.settings.name, plan.source)}.",
            )
        found = self.check_target(plan)
        names = [column.name for column in plan.in_target.stored_columns]
        return tuple(name for name in names if name not in found) if found else ()

    def _step(self, table: TableSettings, validity: Validity, plan: TablePlan | None) -> tuple[NextStep, str]:
        if plan is None:
            if validity.verdict in GAPS and table.on_gap is OnGap.REPAIR:
                return NextStep.RELOAD, f"{_name(validity)}, and on_gap: repair reloads it: {validity.cause}"
            step = NextStep.NOTHING if validity.verdict is Verdict.CAUGHT_UP else NextStep.LEFT_OUT
            return step, f"{_name(validity)}: {validity.cause}" if step is NextStep.LEFT_OUT else validity.cause
        if plan.kind is LoadKind.FIRST_LOAD:
            step = NextStep.RELOAD if plan.is_reload else NextStep.FIRST_LOAD
            return step, validity.cause
        return (NextStep.NOTHING, "No change was captured.") if plan.quiet else (NextStep.CHANGES, validity.cause)


def _name(validity: Validity) -> str:
    return validity.verdict.value.replace("_", " ")


def _text(value: object) -> str:
    """Return a value of a setting in one line, as the configuration spells it."""
    match value:
        case Enum():
            text = str(value.value)
        case bool():
            text = str(value).lower()
        case Rule():
            text = f"{value.name} ({value.sql}; {value.on_failure.value})"
        case Expectation():
            text = f"{value.type} {value.kwargs} ({value.rows}, {value.severity})"
        case ColumnSettings():
            text = f"{value.name} {describe_column(value)}"
        case DerivedColumn():
            text = f"{value.name} ({value.sql})"
        case Filter():
            text = value.sql
        case DriftPolicies():
            text = ", ".join(f"{kind.value} {policy.value}" for kind, policy in value.chosen)
        case FirstLoad():
            text = ", ".join(f"{each.name} {_text(getattr(value, each.name))}" for each in fields(value))
        case tuple():
            text = ", ".join(map(_text, value))
        case _:
            text = "" if value is None else str(value)
    return text or "none"


def _changes(before: TableSettings, now: TableSettings) -> list[ChangedSetting]:
    """Return the settings that differ."""
    names = [each.name for each in fields(TableSettings) if each.name not in _SAME_RESULT]
    values = ((name, getattr(before, name), getattr(now, name)) for name in names)
    return [ChangedSetting(name, _text(old), _text(new), EFFECTS[name]) for name, old, new in values if old != new]
