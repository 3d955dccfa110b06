"""``floodmark run``, ``replay`` and ``reload``: the commands that move rows, without a scheduler."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from floodmark.app.load import end_load, give_up_load, open_reload
from floodmark.app.replay import end_failed_replays, replay_of
from floodmark.app.run import StartLoad, finish_window, run_pipeline
from floodmark.cli.process import ConfigFile, Pipeline, explained, open_app, out
from floodmark.cli.progress_bars import drawn_progress
from floodmark.cli.tables import print_replay, print_run
from floodmark.core.errors import ConfigError, FloodmarkBugError
from floodmark.core.recovery.replay_interval import NoInterval, parse_bounds
from floodmark.spark.launch.process import run_load
from floodmark.wiring.connections import spark_target
from floodmark.wiring.pipelines import wire
from floodmark.wiring.places import config_path

if TYPE_CHECKING:
    from floodmark.core.interval import Interval
    from floodmark.core.window.published import AdvanceResult
    from floodmark.wiring.pipelines import PipelineWiring


def run(pipeline: Pipeline, config: ConfigFile = None) -> None:
    """Run one window of PIPELINE now: open it, load it with spark-submit, check it, advance the watermark. A failure
    raises an alert."""
    with explained():
        path = (config or config_path()).resolve()
        reason = run_pipeline(open_app(path), pipeline, _start_load(path), _show)
    if reason:
        out.print(f"Nothing to read: {reason}", highlight=False)


def replay(  # noqa: PLR0917  (typer gives them by name)
    pipeline: Pipeline,
    from_lsn: Annotated[str | None, typer.Option(help="First LSN, inclusive.")] = None,
    to_lsn: Annotated[str | None, typer.Option(help="Last LSN, inclusive.")] = None,
    from_time: Annotated[datetime | None, typer.Option(help="First time on the source's clock, inclusive.")] = None,
    to_time: Annotated[datetime | None, typer.Option(help="Last time on the source's clock, inclusive.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be read.")] = False,
    config: ConfigFile = None,
) -> None:
    """Merge an interval of PIPELINE again, up to the watermarks. The watermarks do not move."""
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
            print_replay(out, found.count(interval))
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
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Drop the unfinished load; nothing of it is merged.")
    ] = False,
    config: ConfigFile = None,
) -> None:
    """Reload a TABLE of PIPELINE in parallel to its windows, and sweep rows that no longer exist at the source; or
    continue such a load. The old rows stay readable, and the other tables continue meanwhile."""
    with explained():
        if give_up and where:
            raise ConfigError("reload", "give --give-up without --where.")
        path = (config or config_path()).resolve()
        app = open_app(path)
        if give_up:
            typer.echo(f"Window {give_up_load(app, pipeline, table)} was given up. The target stays as it was.")
            return
        opened = open_reload(app, pipeline, table, where)
        if opened.window_id is None:
            raise FloodmarkBugError(table, f"no load of the table was opened: {opened.reason}")
        _show(finish_window(wire(app.config, pipeline), opened, _start_load(path)))
        (planned,) = end_load(app, pipeline, opened.window_id).tables
    if planned.where:
        typer.echo(
            f"Only rows where {planned.where} were read. Rows that no longer exist at the source were not swept, and "
            "the watermark did not move."
        )


def _start_load(config: Path) -> StartLoad:
    """Return a function that runs the load job as a child process."""

    def start(wiring: PipelineWiring, window_id: int) -> None:
        with drawn_progress() as progress:
            run_load(wiring.job_secrets(), spark_target(), window_id, config, progress)

    return start


def _show(result: AdvanceResult) -> None:
    """Print the result of a window."""
    print_run(out, result)
