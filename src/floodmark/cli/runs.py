"""``floodmark run``, ``replay`` and ``reload``: what moves rows, without a scheduler."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.app.load import end_load, open_reload
from floodmark.app.replay import end_failed_replays, replay_of
from floodmark.app.run import StartLoad, finish_window, run_pipeline
from floodmark.cli.process import ConfigFile, Pipeline, explained, open_app, out
from floodmark.cli.tables import replay_table, run_table
from floodmark.core.errors import ConfigError, FloodmarkBugError
from floodmark.core.recovery.replay_interval import NoInterval, parse_bounds
from floodmark.spark.launch.process import run_load
from floodmark.wiring.connections import spark_master
from floodmark.wiring.pipelines import wire
from floodmark.wiring.places import config_path

if TYPE_CHECKING:
    from floodmark.core.interval import Interval
    from floodmark.core.window.published import AdvanceResult
    from floodmark.wiring.pipelines import PipelineWiring


def run(pipeline: Pipeline, config: ConfigFile = None) -> None:
    """Do one window of PIPELINE now: open it, load it with spark-submit, check it, advance the watermark. Where that
    fails, the channels of the alerts are told."""
    with explained():
        path = (config or config_path()).resolve()
        reason = run_pipeline(open_app(path), pipeline, _start_load(path), _show)
    if reason:
        out.print(f"Nothing to read: {reason}", highlight=False)


def replay(  # noqa: PLR0917  (typer gives them by name)
    pipeline: Pipeline,
    from_lsn: Annotated[str | None, typer.Option(help="From this LSN on, included.")] = None,
    to_lsn: Annotated[str | None, typer.Option(help="Up to this LSN, included.")] = None,
    from_time: Annotated[datetime | None, typer.Option(help="By the source's own clock, included.")] = None,
    to_time: Annotated[datetime | None, typer.Option(help="By the source's own clock, included.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be read.")] = False,
    config: ConfigFile = None,
) -> None:
    """Merge an interval of PIPELINE once more, up to the watermarks, which stay where they are."""
    lsns, times = (from_lsn, to_lsn), (from_time, to_time)
    with explained():
        path = (config or config_path()).resolve()
        app = open_app(path)
        found = replay_of(app, pipeline)
        interval: Interval | NoInterval
        if from_lsn and to_lsn and times == (None, None):
            interval = parse_bounds(from_lsn, to_lsn)
        elif from_time and to_time and lsns == (None, None):
            interval = found.find_times(from_time, to_time)
        else:
            raise ConfigError("replay", "give --from-lsn and --to-lsn, or --from-time and --to-time.")
        if isinstance(interval, NoInterval):
            out.print(f"Nothing to replay: {interval.reason}", highlight=False)
            return
        if dry_run:
            out.print(replay_table(found.count(interval)))
            return
        opened = found.open(interval)
        if opened.window_id is None:
            out.print(f"Nothing to replay: {opened.reason}", highlight=False)
        else:
            _show(finish_window(wire(app.config, pipeline), opened, _start_load(path)))
        end_failed_replays(app, pipeline, found, interval)


def reload(
    pipeline: Pipeline,
    table: Annotated[str, typer.Argument(help="schema.table of the source.")],
    where: Annotated[
        str | None, typer.Option(help="Only rows for which this T-SQL condition over the table's columns is true.")
    ] = None,
    config: ConfigFile = None,
) -> None:
    """Load a TABLE of PIPELINE anew beside its windows, and sweep rows that the source has no more; or go on with such
    a load. Its old rows stay readable, and the other tables go on meanwhile."""
    with explained():
        path = (config or config_path()).resolve()
        app = open_app(path)
        opened = open_reload(app, pipeline, table, where)
        if opened.window_id is None:
            raise FloodmarkBugError(table, f"no load of it was opened: {opened.reason}")
        _show(finish_window(wire(app.config, pipeline), opened, _start_load(path)))
        (planned,) = end_load(app, pipeline, opened.window_id).tables
    if planned.where:
        typer.echo(f"Only rows where {planned.where} were read. Rows that the source has no more were not looked for, "
                   "and the watermark stays where it was.")  # fmt: skip


def _start_load(config: Path) -> StartLoad:
    """Return what runs the load job as a process of this one."""

    def start(wiring: PipelineWiring, window_id: int) -> None:
        run_load(wiring.job_secrets(), spark_master(), window_id, config)

    return start


def _show(result: AdvanceResult) -> None:
    """Print what a window did."""
    out.print(run_table(result))
