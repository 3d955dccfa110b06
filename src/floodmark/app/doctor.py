"""The examination of a pipeline's source. It queries the source, and ``core.doctor`` judges the answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from croniter import croniter  # type: ignore[import-untyped]

from floodmark.app.upkeep import likely_stop
from floodmark.core.doctor.engine import examine_engine, examine_server
from floodmark.core.doctor.finding import Finding, Grade
from floodmark.core.doctor.server import DiagnosisInput
from floodmark.core.errors import CdcNotEnabledError, SourcePermissionError
from floodmark.core.window.planning import classify_tables, pinned_instances
from floodmark.wiring.connections import spark_target
from floodmark.wiring.pipelines import wire

if TYPE_CHECKING:
    from floodmark.app.context import AppContext
    from floodmark.core.schema import TableName
    from floodmark.wiring.pipelines import PipelineWiring

_TICKS = 300


def examine_source(app: AppContext, pipeline: str) -> tuple[Finding, ...]:
    """Return the findings about the source of a pipeline, and about the engine that reads it.

    The warehouse is not needed: the doctor runs before there is a ledger, and when the warehouse is down.
    """
    wiring = wire(app.config, pipeline)
    capture = app.config.source_of(pipeline).capture
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
        )
    )
    spark = spark_target()
    if spark.server:
        engine = examine_server(spark.master, is_loopback=spark.is_loopback, has_tls=spark.has_tls)
    else:
        engine = examine_engine(spark.master, spark.conf)
    found = (*found, *engine)
    if capture is None or capture.heartbeat is None:
        return found
    return (*found, _examine_heartbeat(wiring, capture.heartbeat))


def _examine_heartbeat(wiring: PipelineWiring, table: TableName) -> Finding:
    try:
        found = wiring.source.jobs().read_heartbeat(table)
    except CdcNotEnabledError as error:
        return Finding(Grade.PROBLEM, "heartbeat", str(table), error.message, error.hint)
    except SourcePermissionError as error:
        return Finding(
            Grade.NOTE, "heartbeat", str(table), f"the heartbeat cannot be read: {error.message}", error.hint
        )
    return Finding(Grade.GOOD, "heartbeat", str(table), f"the table exists, with beat {found.beat}.", "")


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
    return wiring.source.build_grants(login, wiring.settings, snapshot)
