"""The operator's decisions on a pipeline: switches of capture instances, quarantine, replays, names, its beginning."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from floodmark.app.connections import read_mask_key
from floodmark.app.run import load_planner, register_tables
from floodmark.app.upkeep import is_check_due, watch_drift
from floodmark.config.loading import first_config, load_config
from floodmark.core.alerts import DRIFT_RUN_FAILED, REPLAY_FAILED, SWITCH_RUN_FAILED, parse_data_interval
from floodmark.core.capture import enable_table
from floodmark.core.drift import describe_added
from floodmark.core.errors import ConfigError, FloodmarkError, OperatorError, command_line
from floodmark.core.position import Interval
from floodmark.core.snapshot import Survey, SurveyedTable
from floodmark.sync.alerts import update_waiting
from floodmark.sync.repair import Adopter
from floodmark.sync.replay import Replay
from floodmark.sync.switch import Switches

if TYPE_CHECKING:
    from floodmark.app.pipeline import App, Pipeline
    from floodmark.core.drift import InstanceSwitch, Proposal
    from floodmark.core.imported import TableImport, ToolState
    from floodmark.core.recovery import Forgotten, Release
    from floodmark.core.schema import TableName
    from floodmark.core.snapshot import DatabaseIdentity
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


def list_proposed(app: App, source: str) -> list[ProposedSwitch]:
    """Return one question for each table with an undecided proposal."""
    if not app.pipelines_of(source):
        return []
    return [_question(event, proposal) for event, proposal in switches_of(app, source).list_proposed()]


def approve_switch(app: App, event_id: int, by: str) -> str:
    """Start the switch that an event proposes. Return a description of what happens next.

    Raises OperatorError where there is nothing to approve, or where the proposal has changed.
    """
    switch = switches_of(app, _source_of(app, event_id)).approve(event_id, by)
    return (
        f"{switch.table} switches from capture instance {switch.old.name} to {switch.name}, with "
        f"{', '.join(switch.added)}. The DAG cdc_drift_{switch.source} takes the steps; to take them now, run: "
        f"{command_line('drift', 'switch', switch.source)}"
    )


def reject_switch(app: App, event_id: int, by: str) -> str:
    """Reject the proposal of an event. Raises OperatorError where there is nothing to reject."""
    rejected = switches_of(app, _source_of(app, event_id)).reject(event_id, by)
    columns = ", ".join(str(each.explained.difference.column) for each in rejected)
    return f"{rejected[0].table} continues without {columns}."


def run_switches(app: App, source: str) -> str:
    """Advance every approved switch as far as it can go now. Return the state of each; raise an alert where the
    operator has to act."""
    if not app.pipelines_of(source):
        return "no pipeline reads this source."
    if not app.source(source).has_instances:
        return "a table of this source has no capture instances between which it could switch."
    return " | ".join(switches_of(app, source).take()) or "no switch of a capture instance is in progress."


def find_drift_work(app: App, source: str, is_asked: Callable[[Sequence[ProposedSwitch]], bool]) -> str:
    """Check the source for drift where a run does not. Return why the drift DAG has work, "" where it has none.

    is_asked: whether the operator has been asked all of these questions. An error is work too: the run of the DAG meets
    it again, with retries and an alert. A source at rest costs a few statements in the ledger.
    """
    failed = {alert.alert.kind for alert in app.alert_ledger.list_open() if alert.alert.subject == source}
    if failed & {DRIFT_RUN_FAILED, SWITCH_RUN_FAILED}:
        return "its last run failed"
    try:
        if is_check_due(app, source):
            watch_drift(app, source)
        if switches := app.drift_ledger.list_switches(source):
            return f"the switch of {switches[0].table} to {switches[0].name} is in progress"
        questions = list_proposed(app, source) if app.source(source).has_instances else []
        return "" if is_asked(questions) else f"the operator has not been asked: {questions[0].subject}"
    except FloodmarkError as error:
        _LOG.warning("Source %s could not be checked for drift: %s", source, error)
        return f"a run could not check it: {error}"


def list_switches(app: App) -> list[InstanceSwitch]:
    """Return the switches in progress, of all sources."""
    return [switch for source in app.config.sources for switch in app.drift_ledger.list_switches(source)]


def switches_of(app: App, source: str) -> Switches:
    """Return the switches of a source that a pipeline reads. They connect only when they are called."""
    reader = app.pipelines_of(source)[0]
    return Switches(
        source=reader.watched,
        snapshots=reader.source.snapshots,
        control=reader.source.instances,
        check_target=app.targets.check_target,
        windows=app.ledger,
        open_load=lambda pipeline, table, where: _open_load(app.pipeline(pipeline), table, where),
        elsewhere=[name for name, pipeline in app.config.pipelines.items() if pipeline.source != source],
    )


def is_proposal(app: App, event_id: int) -> bool:
    """Return whether the event proposes a switch, which its approval starts."""
    return any(event.event_id == event_id and event.proposal for event in app.drift_ledger.list_events())


def _source_of(app: App, event_id: int) -> str:
    read = [pipeline.source for pipeline in app.config.pipelines.values()]
    found = [
        event.source for event in app.drift_ledger.list_events() if event.event_id == event_id and event.source in read
    ]
    # Where there is none, that of any source reports it.
    return found[0] if found else read[0]


def _open_load(pipeline: Pipeline, table: TableName, where: str) -> int:
    opened = load_planner(pipeline).open_reload(table, where)
    assert opened.window_id is not None  # noqa: S101  (a reload always has a window)
    return opened.window_id


def _question(event: DriftEvent, proposal: Proposal) -> ProposedSwitch:
    columns = ", ".join(proposal.added)
    by_whom = "have a db_owner run this at the source" if proposal.user else "Floodmark runs this at the source"
    dropper = "a db_owner" if proposal.user else "Floodmark"
    body = (
        f"{event.table}: {describe_added(proposal.explained)}\n\n"
        f"New columns to capture: **{columns}**.\n\n"
        f"**Approve**: {by_whom}. Floodmark reads the first capture instance up to the start of the second one, "
        f"switches to the second one, and loads the new columns. Then {dropper} drops the first one. No change is lost."
        "\n\n"
        f"```sql\n{proposal.text}\n```\n\n"
        f"**Reject**: the table continues without {columns}."
    )
    key = f"{event.event_id}-{zlib.crc32(proposal.text.encode()):08x}"
    return ProposedSwitch(event.event_id, key, f"{event.table}: capture {columns}?", body)


# --------------------------------------------------------------------------------------------------------------------
# The rows in quarantine, and the operator's decisions about them.


def release_rows(pipeline: Pipeline, table: str, by: str) -> Release:
    """Merge the rows of a table in quarantine that break no rule of the configuration any more. by: the operator.

    Raises ConfigError for an unknown table, and the errors of ``PostgresQuarantine.release``, in a lake those of
    ``LakeQuarantine.release``, which starts a Spark.
    """
    settings = pipeline.find_table(table)
    app = pipeline.app
    released = app.lake_quarantine if app.is_lake else app.quarantine
    found = released.release(pipeline.name, settings, by)
    register_tables(pipeline)
    update_waiting(pipeline.settings, pipeline.ledger, pipeline.alerts)
    _LOG.info("%s: %s of quarantine released, window %s.", table, found.released, found.window_id or "none")
    return found


def discard_rows(pipeline: Pipeline, table: str, rule: str | None, by: str) -> int:
    """Settle the rows of a table in quarantine without a merge. rule: only of this one. Return the number of entries.

    Raises ConfigError for an unknown table.
    """
    source = pipeline.find_table(table).source
    count = pipeline.app.quarantine.discard(pipeline.name, source, rule, by)
    update_waiting(pipeline.settings, pipeline.ledger, pipeline.alerts)
    return count


# --------------------------------------------------------------------------------------------------------------------
# The right to erasure.


def forget_key(pipeline: Pipeline, table: str, key: Mapping[str, str], by: str, *, is_dry_run: bool) -> Forgotten:
    """Delete all that the warehouse has of a key of a table, also of one that the configuration no longer has.

    key: texts by the names of the columns at the source. by: the operator. Raises ConfigError for a lake, and the
    errors of ``PostgresEraser.forget``.
    """
    pipeline.app.require_postgres("floodmark forget")
    source = pipeline.parse_table(table)
    with suppress(ConfigError):
        source = pipeline.find_table(table).source
    eraser = pipeline.app.eraser
    found = eraser.forget(pipeline.name, source, key, by, read_mask_key, is_dry_run=is_dry_run)
    if not is_dry_run:
        update_waiting(pipeline.settings, pipeline.ledger, pipeline.alerts)
    return found


# --------------------------------------------------------------------------------------------------------------------
# Replays: an interval of the log is merged again, by the command line or by a run of ``airflow backfill``.


def replay_of(pipeline: Pipeline, tables: Sequence[str] = ()) -> Replay:
    """Return the replays of a pipeline. tables: only of these, by their names at the source; none for all.

    Raises ConfigError where its source keeps no history of changes, and for an unknown table.
    """
    log = pipeline.source.replays()
    return Replay(
        pipeline.settings,
        pipeline.source.snapshots(),
        log,
        pipeline.ledger,
        pipeline.warehouse,
        drift=pipeline.drift_watch,
        only=[pipeline.find_table(each).source for each in tables],
    )


def end_failed_replays(pipeline: Pipeline, replay: Replay, interval: Interval) -> None:
    """End the alerts about runs of ``airflow backfill`` that failed inside an interval that has been replayed.

    An alert stays open where the source can no longer map its data interval to the log, or where it names no interval.
    A failure here does not fail the replay.
    """
    try:
        parts = pipeline.app.alert_ledger.list_parts(REPLAY_FAILED, pipeline.name)
    except FloodmarkError as error:
        _LOG.warning("Could not check whether this replay covers a failed backfill of %s: %s", pipeline.name, error)
        return
    for part in parts:
        try:
            failed = replay.find_moments(*parse_data_interval(part))
        except (FloodmarkError, ValueError) as error:
            _LOG.warning("Could not check whether this replay covers the failed backfill of %s: %s", part, error)
            continue
        if isinstance(failed, Interval) and interval.covers(failed):
            _LOG.info("This replay covers the failed backfill of %s.", part)
            # Each backfill has caused one part of the alerts. The other parts stay open.
            pipeline.alerts.end_part(REPLAY_FAILED, pipeline.name, part)


# --------------------------------------------------------------------------------------------------------------------
# The decisions of the operator about names: which database a source is, and which pipeline was renamed.


@dataclass(frozen=True, slots=True)
class FollowedDatabase:
    """The database of a pipeline, before and after a confirmation."""

    pipeline: str
    before: DatabaseIdentity | None
    now: DatabaseIdentity


def reload_member(pipeline: Pipeline, table: str, member: str) -> None:
    """Let the next run of a pipeline read all rows of a member of a table, and sweep those that it no longer has.

    Raises ConfigError for an unknown table, OperatorError for a member that no run has examined.
    """
    source = next((each for each in pipeline.settings.sources if str(each) == table), None)
    if source is None:
        raise ConfigError(pipeline.name, f"it has no table {table}.", "Write it as in pipelines.yaml.")
    pipeline.ledger.ensure_schema()
    pipeline.ledger.forget_mark(pipeline.name, source, member)


def rename_pipeline(app: App, name: str, to: str) -> Sequence[TableName]:
    """Give all that the ledger has of a pipeline the name that it has in the configuration now. Return its tables.

    Raises ConfigError where the configuration has the old name, or not the new one, and what the ledger raises.
    """
    if to not in app.config.pipelines:
        raise ConfigError(to, "there is no such pipeline.", f"There are: {', '.join(sorted(app.config.pipelines))}.")
    if name in app.config.pipelines:
        raise ConfigError(name, "the configuration still has this pipeline.", "Rename it in pipelines.yaml first.")
    app.ledger.ensure_schema()
    return app.ledger.rename_pipeline(name, to)


def rename_target(pipeline: Pipeline, table: str) -> tuple[TableName, TableName]:
    """Give the ledger the target that a table has in the configuration now. Return the one before, and this one.

    Raises ConfigError for an unknown table, and what the ledger raises.
    """
    settings = pipeline.find_table(table)
    pipeline.ledger.ensure_schema()
    app = pipeline.app
    move = app.lake_catalog.rename if app.is_lake else None
    before = pipeline.ledger.rename_target(pipeline.name, settings.source, settings.target, move)
    if app.lake_registry:
        app.lake_registry.rename(app.lake_catalog, before, settings.target)
        register_tables(pipeline)
    return before, settings.target


def confirm_database(app: App, source: str, by: str) -> Sequence[FollowedDatabase]:
    """Let all pipelines of a source follow the database that its connection leads to. by: the operator who decided.

    Raises ConfigError for an unknown source, OperatorError where the source does not say which database it is.
    """
    if source not in app.config.sources:
        raise ConfigError(source, "there is no such source.", f"There are: {', '.join(sorted(app.config.sources))}.")
    found = app.source(source).snapshots().read_snapshot([]).identity
    if found is None:
        raise OperatorError(source, "the server does not show which database it is.")
    app.ledger.ensure_schema()
    confirmed = []
    for pipeline in app.pipelines_of(source):
        before = app.ledger.read_database(pipeline.name)
        if before != found:
            app.ledger.confirm_database(pipeline.name, found, by)
        confirmed.append(FollowedDatabase(pipeline.name, before, found))
    return confirmed


# --------------------------------------------------------------------------------------------------------------------
# The first configuration: written from a survey of the source, checked, and never over another file.


def chosen_tables(survey: Survey, wanted: Sequence[str]) -> list[SurveyedTable]:
    """Return the tables of these names, or all. Raises ConfigError for a name that the login cannot see."""
    exact = {str(table.name): table for table in survey.tables}
    folded = {str(table.name).casefold(): table for table in survey.tables}
    known = {name: exact.get(name) or folded.get(name.casefold()) for name in wanted}
    missing = [name for name, table in known.items() if table is None]
    if missing:
        raise ConfigError(
            f"database {survey.database}",
            f"there is no table {', '.join(missing)}, or the login may not see it.",
            "Spell it schema.table, and grant SELECT on it.",
        )
    # A table that is named twice is written once.
    return list(dict.fromkeys(table for table in known.values() if table)) if wanted else list(survey.tables)


def write_config(path: Path, name: str, source: str, warehouse: str, tables: Sequence[SurveyedTable]) -> None:
    """Write a configuration with one pipeline. Raises ConfigError where it would not be valid, or the file exists."""
    if not any(table.key for table in tables):
        raise ConfigError(
            str(path), "none of the tables has a primary key.", "Write it by hand, and declare the `key` of each table."
        )
    text = first_config(name, source, warehouse, tables)
    _check(text, path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = path.open("x", encoding="utf-8")
    except FileExistsError:
        raise ConfigError(str(path), "the file exists already.", "Choose another with --output.") from None
    except OSError as error:
        raise ConfigError(str(path), f"the file could not be written: {error.strerror}.") from None
    try:
        with opened:
            opened.write(text)
    except OSError as error:
        path.unlink()
        raise ConfigError(str(path), f"the file could not be written: {error.strerror}.") from None


def _check(text: str, path: Path) -> None:
    """Raise ConfigError where the text would not be a valid configuration."""
    with TemporaryDirectory() as folder:
        tried = Path(folder, path.name)
        tried.write_text(text, encoding="utf-8")
        try:
            load_config(tried)
        except ConfigError as error:
            raise ConfigError(str(path), error.message, error.hint) from None


def enabling_script(survey: Survey, tables: Sequence[SurveyedTable]) -> str:
    """Return the T-SQL that enables change data capture where it is not; empty where it is on all of them."""
    lines = [] if survey.has_cdc else ["EXEC sys.sp_cdc_enable_db;"]
    lines += [enable_table(table.name) for table in tables if table.key and not table.has_cdc]
    return "\n".join(lines)


# --------------------------------------------------------------------------------------------------------------------
# The import of another tool's state: its position becomes the watermark of tables that it has loaded.


def import_state(
    pipeline: Pipeline, state: ToolState, tables: Sequence[str] = (), *, dry_run: bool = False
) -> Sequence[TableImport]:
    """Import a state into a pipeline. tables: only these, by their names at the source; none for all.

    Raises ConfigError for an unknown table and for a pipeline whose source is not of kind cdc, and the errors of
    ``Adopter.adopt``.
    """
    _require_log(pipeline)
    chosen = [pipeline.find_table(table) for table in tables] or pipeline.settings.tables
    source = pipeline.source
    adopter = Adopter(
        pipeline.settings, source.snapshots(), pipeline.ledger, pipeline.app.adoption, source.read_commit_time
    )
    with pipeline.kept_sessions():
        return adopter.adopt(state, chosen, dry_run=dry_run)


def read_state_table(pipeline: Pipeline, table: str, name: str | None) -> str:
    """Return the state in a table of the source's database that SSIS keeps its states in.

    name: of the state, where the table has several. Raises ConfigError, and the errors of the source.
    """
    _require_log(pipeline)
    return pipeline.source.read_state(pipeline.parse_table(table), name)


def _require_log(pipeline: Pipeline) -> None:
    if not pipeline.source.has_log:
        raise ConfigError(
            pipeline.name,
            f"its source is of kind {pipeline.source.name}, and positions of other tools are those of change data "
            "capture.",
            "Run the pipeline, which loads its tables.",
        )
