"""The examination of a pipeline's source, and the follow-up of a source that was renamed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from croniter import croniter  # type: ignore[import-untyped]

from floodmark.app.upkeep import find_table_settings, likely_stop
from floodmark.core.doctor import DiagnosisInput, Finding, examine_encoding, examine_engine, examine_server
from floodmark.core.errors import ConfigError, FloodmarkError, OperatorError
from floodmark.core.planning import classify_tables, pinned_instances
from floodmark.wiring.adapters import wire, wire_ledger, wire_source
from floodmark.wiring.connections import spark_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from floodmark.app.upkeep import AppContext
    from floodmark.core.schema import TableName
    from floodmark.core.snapshot import DatabaseIdentity, MemberMark
    from floodmark.wiring.adapters import PipelineWiring


# --------------------------------------------------------------------------------------------------------------------
# The examination of a pipeline's source. It queries the source, and ``core.doctor`` judges the answers.


_TICKS = 300


def examine_source(app: AppContext, pipeline: str) -> tuple[Finding, ...]:
    """Return the findings about the source of a pipeline, and about the engine that reads it.

    The warehouse is not needed: the doctor runs before there is a ledger, and when the warehouse is down. It then does
    not examine the warehouse's encoding, and of a stream it does not know what was read.
    """
    wiring = wire(app.config, pipeline)
    now = datetime.now(UTC)
    stop = likely_stop(app, pipeline, now)
    now_utc = now.replace(tzinfo=None)
    pinned = pinned_instances(wiring.settings, {})
    snapshot = wiring.source.snapshots().read_snapshot(wiring.settings.sources, pinned)
    found = wiring.source.diagnose(
        DiagnosisInput(
            wiring.settings,
            snapshot,
            classify_tables(wiring.settings, snapshot, {}, stop),
            *wiring.source.encryption(),
            longest_interval(app.config.pipeline(pipeline).schedule, now_utc),
            now_utc,
            stop,
            timedelta(seconds=wiring.freshness_seconds),
        ),
        lambda: _likely_marks(wiring),
    )
    spark = spark_target()
    if spark.server:
        engine = examine_server(spark.master, is_loopback=spark.is_loopback, has_tls=spark.has_tls)
    else:
        engine = examine_engine(spark.master, spark.conf)
    heartbeat = wiring.source.examine_heartbeat(wiring.settings.source_name, app.config.source_of(pipeline).beat_table)
    return (*found, *engine, *_examine_warehouse(wiring), *heartbeat)


def _examine_warehouse(wiring: PipelineWiring) -> Iterator[Finding]:
    """Yield the finding on the warehouse: none where it cannot be reached."""
    with suppress(FloodmarkError):
        yield examine_encoding(wiring.warehouse.read_encoding())


def _likely_marks(wiring: PipelineWiring) -> Mapping[TableName, Sequence[MemberMark]]:
    """Return where tables were read to; nothing where the ledger cannot be read, or there is none yet."""
    try:
        return wiring.ledger.windows().list_marks(wiring.settings.name)
    except FloodmarkError:
        return {}


def longest_interval(schedule: str | None, after: datetime) -> timedelta | None:
    """Return the longest time between two of the next few hundred runs of a cron schedule; None without a schedule."""
    if schedule is None:
        return None
    ticks = croniter(schedule, after)
    times: list[datetime] = [ticks.get_next(datetime) for _ in range(_TICKS)]
    return max(later - earlier for earlier, later in pairwise(times))


def write_grants(app: AppContext, pipeline: str, login: str) -> str:
    """Return the script that grants a login the permissions for the tables of a pipeline.

    The script names what the connection's own login can see.
    """
    wiring = wire(app.config, pipeline)
    pinned = pinned_instances(wiring.settings, {})
    snapshot = wiring.source.snapshots().read_snapshot(wiring.settings.sources, pinned)
    return wiring.source.build_grants(login, wiring.settings, snapshot, app.config.heartbeat_of(pipeline))


# --------------------------------------------------------------------------------------------------------------------
# The decisions of the operator about names: which database a source is, and which pipeline was renamed.


@dataclass(frozen=True, slots=True)
class FollowedDatabase:
    """The database of a pipeline, before and after a confirmation."""

    pipeline: str
    before: DatabaseIdentity | None
    now: DatabaseIdentity


def reload_member(app: AppContext, pipeline: str, table: str, member: str) -> None:
    """Let the next run of a pipeline read all rows of a member of a table, and sweep those that it no longer has.

    Raises ConfigError for an unknown pipeline or table, OperatorError for a member that no run has examined.
    """
    source = next((each.source for each in app.config.settings(pipeline).tables if str(each.source) == table), None)
    if source is None:
        raise ConfigError(pipeline, f"it has no table {table}.", "Write it as in pipelines.yaml.")
    ledger = wire_ledger(app.config).windows()
    ledger.ensure_schema()
    ledger.forget_mark(pipeline, source, member)


def rename_pipeline(app: AppContext, name: str, to: str) -> Sequence[TableName]:
    """Give all that the ledger has of a pipeline the name that it has in the configuration now. Return its tables.

    Raises ConfigError where the configuration has the old name, or not the new one, and what the ledger raises.
    """
    if to not in app.config.pipelines:
        raise ConfigError(to, "there is no such pipeline.", f"There are: {', '.join(sorted(app.config.pipelines))}.")
    if name in app.config.pipelines:
        raise ConfigError(name, "the configuration still has this pipeline.", "Rename it in pipelines.yaml first.")
    ledger = wire_ledger(app.config).windows()
    ledger.ensure_schema()
    return ledger.rename_pipeline(name, to)


def rename_target(app: AppContext, pipeline: str, table: str) -> tuple[TableName, TableName]:
    """Give the ledger the target that a table has in the configuration now. Return the one before, and this one.

    Raises ConfigError for an unknown pipeline or table, and what the ledger raises.
    """
    settings = find_table_settings(app, pipeline, table)
    ledger = wire_ledger(app.config).windows()
    ledger.ensure_schema()
    return ledger.rename_target(pipeline, settings.source, settings.target), settings.target


def confirm_database(app: AppContext, source: str, by: str) -> Sequence[FollowedDatabase]:
    """Let all pipelines of a source follow the database that its connection leads to. by: the operator who decided.

    Raises ConfigError for an unknown source, OperatorError where the source does not say which database it is.
    """
    if source not in app.config.sources:
        raise ConfigError(source, "there is no such source.", f"There are: {', '.join(sorted(app.config.sources))}.")
    found = wire_source(app.config, source).snapshots().read_snapshot([]).identity
    if found is None:
        raise OperatorError(source, "the server does not show which database it is.")
    ledger = wire_ledger(app.config).windows()
    ledger.ensure_schema()
    confirmed = []
    for pipeline in app.pipelines_of(source):
        before = ledger.read_database(pipeline)
        if before != found:
            ledger.confirm_database(pipeline, found, by)
        confirmed.append(FollowedDatabase(pipeline, before, found))
    return confirmed
