"""The examination of a pipeline's source, and the follow-up of a source that was renamed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from croniter import croniter  # type: ignore[import-untyped]

from floodmark.app.connections import spark_target
from floodmark.app.upkeep import likely_stop
from floodmark.core.doctor import DiagnosisInput, Finding, examine_encoding, examine_engine, examine_server
from floodmark.core.errors import ConfigError, FloodmarkError, OperatorError
from floodmark.core.planning import classify_tables, pinned_feeds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from floodmark.app.pipeline import App, Pipeline
    from floodmark.core.schema import TableName
    from floodmark.core.snapshot import DatabaseIdentity, MemberMark


# --------------------------------------------------------------------------------------------------------------------
# The examination of a pipeline's source. It queries the source, and ``core.doctor`` judges the answers.


_TICKS = 300


def examine_source(pipeline: Pipeline) -> tuple[Finding, ...]:
    """Return the findings about the source of a pipeline, and about the engine that reads it.

    The warehouse is not needed: the doctor runs before there is a ledger, and when the warehouse is down. It then does
    not examine the warehouse's encoding, and of a stream it does not know what was read.
    """
    now = datetime.now(UTC)
    stop = likely_stop(pipeline, now)
    now_utc = now.replace(tzinfo=None)
    pinned = pinned_feeds(pipeline.settings, {})
    snapshot = pipeline.source.snapshots().read_snapshot(pipeline.settings.sources, pinned)
    found = pipeline.source.diagnose(
        DiagnosisInput(
            pipeline.settings,
            snapshot,
            classify_tables(pipeline.settings, snapshot, {}, stop),
            *pipeline.source.encryption(),
            longest_interval(pipeline.config.schedule, now_utc),
            now_utc,
            stop,
            pipeline.config.freshness,
        ),
        lambda: _likely_marks(pipeline),
    )
    spark = spark_target()
    if spark.server:
        engine = examine_server(spark.master, is_loopback=spark.is_loopback, has_tls=spark.has_tls)
    else:
        engine = examine_engine(spark.master, spark.conf)
    beats = pipeline.app.config.source_of(pipeline.name).beat_table
    heartbeat = pipeline.source.examine_heartbeat(pipeline.settings.source_name, beats)
    return (*found, *engine, *_examine_warehouse(pipeline), *heartbeat)


def _examine_warehouse(pipeline: Pipeline) -> Iterator[Finding]:
    """Yield the finding on the warehouse: none where it cannot be reached."""
    with suppress(FloodmarkError):
        yield examine_encoding(pipeline.app.read_encoding())


def _likely_marks(pipeline: Pipeline) -> Mapping[TableName, Sequence[MemberMark]]:
    """Return where tables were read to; nothing where the ledger cannot be read, or there is none yet."""
    try:
        return pipeline.ledger.list_marks(pipeline.name)
    except FloodmarkError:
        return {}


def longest_interval(schedule: str | None, after: datetime) -> timedelta | None:
    """Return the longest time between two of the next few hundred runs of a cron schedule; None without a schedule."""
    if schedule is None:
        return None
    ticks = croniter(schedule, after)
    times: list[datetime] = [ticks.get_next(datetime) for _ in range(_TICKS)]
    return max(later - earlier for earlier, later in pairwise(times))


def write_grants(pipeline: Pipeline, login: str) -> str:
    """Return the script that grants a login the permissions for the tables of a pipeline.

    The script names what the connection's own login can see.
    """
    pinned = pinned_feeds(pipeline.settings, {})
    snapshot = pipeline.source.snapshots().read_snapshot(pipeline.settings.sources, pinned)
    heartbeat = pipeline.app.config.heartbeat_of(pipeline.name)
    return pipeline.source.build_grants(login, pipeline.settings, snapshot, heartbeat)


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
    return pipeline.ledger.rename_target(pipeline.name, settings.source, settings.target), settings.target


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
