"""``floodmark``: a run without a scheduler, and the questions a person asks of a pipeline.

Exit status: 0 done; 1 it failed, or source and warehouse differ; 2 the command or the configuration is wrong; 75 it
failed for a reason that may pass, so that trying again makes sense. ``status --check``: 3 when something wants
attention, 4 when a table gets no new rows. ``doctor``: 3 for risks, 4 for problems. Errors are one message on standard
error; results go to standard output.
"""

from __future__ import annotations

import getpass
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from floodmark.command_process import EXIT_FAILED, explained, has_airflow_database, log_plainly
from floodmark.config.loading import dump_config, load_config
from floodmark.core.diagnosis import worst
from floodmark.core.errors import ConfigError, FloodmarkBugError, FloodmarkError
from floodmark.core.finding import Grade
from floodmark.core.window import WindowState
from floodmark.wiring import Wiring, config_path, wire

if TYPE_CHECKING:
    from floodmark.config.models import Config
    from floodmark.core.capture_job import PlannedStop
    from floodmark.core.interval import Interval
    from floodmark.sync.advance import AdvanceResult

DOCTOR_EXITS = {Grade.RISK: 3, Grade.PROBLEM: 4}
STANDING_EXITS = {"fine": 0, "attention": 3, "incident": 4}

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
config_app = typer.Typer(no_args_is_help=True, help="The configuration.")
app.add_typer(config_app, name="config")
drift_app = typer.Typer(no_args_is_help=True, help="Schema drift: what changed at the source, and what is held.")
app.add_typer(drift_app, name="drift")
alerts_app = typer.Typer(no_args_is_help=True, help="Alerts and who is told of them.")
app.add_typer(alerts_app, name="alerts")
_out = Console(soft_wrap=False)

Pipeline = Annotated[str, typer.Argument(help="Name of the pipeline in the configuration.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="The configuration [default: FLOODMARK_CONFIG, include/pipelines.yaml].")
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]


@app.command()
def run(pipeline: Pipeline, config: ConfigFile = None) -> None:
    """Do one window of PIPELINE now: open it, load it with spark-submit, check it, advance the watermark. Where that
    fails, the channels of the alerts are told."""
    from floodmark.orchestration.command_alerts import tells_failed_run  # noqa: PLC0415

    with explained():
        path = (config or config_path()).resolve()
        loaded = load_config(path)
        with tells_failed_run(loaded, pipeline):
            _run(loaded, pipeline, path)


def _run(loaded: Config, pipeline: str, path: Path) -> None:
    from floodmark.orchestration.tasks import end_well  # noqa: PLC0415
    from floodmark.orchestration.windows import open_next  # noqa: PLC0415
    from floodmark.sync.gaps import find_stopped  # noqa: PLC0415

    opened = open_next(loaded, pipeline)
    if opened.window_id is None:
        _out.print(f"Nothing to read: {opened.reason}", highlight=False)
        end_well(loaded, pipeline)
        return
    wiring = wire(loaded, pipeline)
    result = _finish(wiring, opened.window_id, opened.state, path)
    stopped = find_stopped(wiring.settings, wiring.ledger())
    end_well(loaded, pipeline, result, stopped=stopped is not None)
    if stopped:
        raise stopped


@app.command()
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
    from floodmark.console.tables import replay_table  # noqa: PLC0415
    from floodmark.core.replay_interval import NoInterval, parse_bounds  # noqa: PLC0415
    from floodmark.orchestration.replays import end_failed_replays, replay_of  # noqa: PLC0415

    lsns, times = (from_lsn, to_lsn), (from_time, to_time)
    with explained():
        path = (config or config_path()).resolve()
        loaded = load_config(path)
        found = replay_of(loaded, pipeline)
        interval: Interval | NoInterval
        if from_lsn and to_lsn and times == (None, None):
            interval = parse_bounds(from_lsn, to_lsn)
        elif from_time and to_time and lsns == (None, None):
            interval = found.find_times(from_time, to_time)
        else:
            raise ConfigError("replay", "give --from-lsn and --to-lsn, or --from-time and --to-time.")
        if isinstance(interval, NoInterval):
            _out.print(f"Nothing to replay: {interval.reason}", highlight=False)
            return
        if dry_run:
            _out.print(replay_table(found.count(interval)))
            return
        opened = found.open(interval)
        if opened.window_id is None:
            _out.print(f"Nothing to replay: {opened.reason}", highlight=False)
        else:
            _finish(wire(loaded, pipeline), opened.window_id, opened.state, path)
        end_failed_replays(loaded, pipeline, found, interval)


@app.command()
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
    from floodmark.orchestration.loads import end_load, open_reload  # noqa: PLC0415

    with explained():
        path = (config or config_path()).resolve()
        loaded = load_config(path)
        opened = open_reload(loaded, pipeline, table, where)
        if opened.window_id is None:
            raise FloodmarkBugError(table, f"no load of it was opened: {opened.reason}")
        _finish(wire(loaded, pipeline), opened.window_id, opened.state, path)
        (planned,) = end_load(loaded, pipeline, opened.window_id).tables
    if planned.where:
        typer.echo(f"Only rows where {planned.where} were read. Rows that the source has no more were not looked for, "
                   "and the watermark stays where it was.")  # fmt: skip


@app.command()
def status(
    pipeline: Annotated[str | None, typer.Argument(help="One pipeline [default: all].")] = None,
    live: Annotated[bool, typer.Option("--live", help="Ask the source too: verdict of now, lag, headroom.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="For monitoring: exit status 3 for attention, 4 for an incident.")
    ] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """State, verdict, watermark, lag, last window and headroom of each table, and the open alerts."""
    from floodmark.console.tables import status_json, status_table  # noqa: PLC0415
    from floodmark.statuses import read_status  # noqa: PLC0415

    with explained():
        loaded = load_config(config or config_path())
        names = [pipeline] if pipeline else list(loaded.pipelines)
        statuses = [read_status(loaded, name, live=live) for name in names]
    if as_json:
        typer.echo(status_json(statuses))
    else:
        for each in statuses:
            _out.print(status_table(each))
    code = max((STANDING_EXITS[each.standing] for each in statuses), default=0)
    if check and code:
        raise typer.Exit(code)


@app.command()
def doctor(
    pipeline: Pipeline,
    grants: Annotated[str | None, typer.Option(help="Print the rights that this login needs, as T-SQL.")] = None,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Examine the source of PIPELINE, with what mends each finding. Exit status 3 for risks, 4 for problems."""
    from floodmark.console.doctor import examine, findings_json, findings_table, write_grants  # noqa: PLC0415

    with explained():
        loaded = load_config(config or config_path())
        wiring = wire(loaded, pipeline)
        if grants is not None:
            typer.echo(write_grants(wiring, grants), nl=False)
            return
        capture = loaded.source_of(pipeline).capture
        heartbeat = capture.heartbeat if capture else None
        findings = examine(wiring, loaded.pipeline(pipeline).schedule, heartbeat, _likely_stop(loaded, pipeline))
    if as_json:
        typer.echo(findings_json(findings))
    else:
        _out.print(findings_table(pipeline, findings))
    if code := DOCTOR_EXITS.get(worst(findings)):
        raise typer.Exit(code)


def _likely_stop(loaded: Config, pipeline: str) -> PlannedStop | None:
    """Without a warehouse to ask, whether the stop that is planned for now was ended early is not known."""
    from floodmark.orchestration.planned_stops import current_stop, scheduled_stop  # noqa: PLC0415

    now = datetime.now(UTC)
    try:
        return current_stop(loaded, pipeline, now)
    except FloodmarkError:
        return scheduled_stop(loaded, pipeline, now)


@app.command()
def verify(pipeline: Pipeline, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """Compare source and warehouse row by row and name the differing keys. Exit status 1 when there are any."""
    from floodmark.console.tables import verification_json, verification_remarks, verification_table  # noqa: PLC0415
    from floodmark.spark.verify import verify_tables  # noqa: PLC0415

    with explained():
        wiring = wire(load_config(config or config_path()), pipeline)
        results = list(verify_tables(wiring.settings, wiring.source_connection(), wiring.warehouse_connection()))
    if as_json:
        typer.echo(verification_json(results))
    else:
        _out.print(verification_table(results))
        for line in verification_remarks(results):
            _out.print(line, markup=False, highlight=False)
    if not all(result.equal for result in results):
        raise typer.Exit(EXIT_FAILED)


@config_app.command("check")
def check_config(
    file: Annotated[Path | None, typer.Argument(help="[default: FLOODMARK_CONFIG, include/pipelines.yaml]")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print it with every default written out.")] = False,
) -> None:
    """Read the configuration and report everything that is wrong with it. Asks neither source nor warehouse."""
    with explained():
        path = file or config_path()
        loaded = load_config(path)
    if show:
        typer.echo(dump_config(loaded), nl=False)
        return
    tables = sum(len(pipeline.tables) for pipeline in loaded.pipelines.values())
    typer.echo(f"{path}: good: {_count(len(loaded.pipelines), 'pipeline')}, {_count(tables, 'table')}.")


@drift_app.command("list")
def list_drift(
    everything: Annotated[bool, typer.Option("--all", help="Also those that somebody has decided about.")] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """The events that nobody has decided about yet, with their DDL, what is held, and the T-SQL that is proposed; then
    the switches of capture instances that are under way."""
    from floodmark.console.drift import drift_details, drift_json, drift_table, switch_lines  # noqa: PLC0415
    from floodmark.orchestration import drift_approval, switches  # noqa: PLC0415

    with explained():
        loaded = load_config(config or config_path())
        events = drift_approval.list_drift(loaded, everything=everything)
        under_way = switches.list_switches(loaded)
    if as_json:
        typer.echo(drift_json(events))
    elif not events:
        typer.echo("No drift." if everything else "No drift is left to decide about. See also --all.")
    else:
        _out.print(drift_table(events))
        typer.echo(drift_details(events))
    if under_way and not as_json:
        typer.echo(switch_lines(under_way))


@drift_app.command("approve")
def approve_drift(event: Annotated[int, typer.Argument(help="Its number.")], config: ConfigFile = None) -> None:
    """Take note of an EVENT: its alert is over, and the tables that it holds go on with the next run. Where a second
    capture instance is proposed, it is made, and the table goes over to it."""
    from floodmark.orchestration import drift_approval, switches  # noqa: PLC0415

    with explained():
        loaded = load_config(config or config_path())
        if switches.is_proposal(loaded, event):
            typer.echo(switches.approve_switch(loaded, event, getpass.getuser()))
            return
        found = drift_approval.approve_drift(loaded, event)
    held = f"; {found.table} goes on in {', '.join(found.held)}" if found.held else ""
    typer.echo(f"Event {event} is approved{held}.")


@drift_app.command("reject")
def reject_drift(event: Annotated[int, typer.Argument(help="Its number.")], config: ConfigFile = None) -> None:
    """Turn down what an EVENT proposes: its alert is over, and the table goes on without the column."""
    from floodmark.orchestration import switches  # noqa: PLC0415

    with explained():
        typer.echo(switches.reject_switch(load_config(config or config_path()), event, getpass.getuser()))


@drift_app.command("switch")
def switch_instances(
    source: Annotated[str, typer.Argument(help="Its name in the configuration.")], config: ConfigFile = None
) -> None:
    """Take the approved switches of capture instances of SOURCE as far as they go now, as its drift DAG does."""
    from floodmark.orchestration import switches  # noqa: PLC0415

    with explained():
        typer.echo(switches.run_switches(load_config(config or config_path()), source))


@drift_app.command("release")
def release_table(
    pipeline: Pipeline, table: Annotated[str, typer.Argument(help="schema.table")], config: ConfigFile = None
) -> None:
    """End every hold on a TABLE of PIPELINE; it goes on with the next run."""
    from floodmark.orchestration import drift_approval  # noqa: PLC0415

    with explained():
        drift_approval.release_table(load_config(config or config_path()), pipeline, table)
    typer.echo(f"{table} goes on in {pipeline}.")


@alerts_app.command("test")
def test_alerts(config: ConfigFile = None) -> None:
    """Send a message to every channel of the configuration. Exit status 1 when one of them does not take it."""
    from floodmark.orchestration.alerting import try_channels  # noqa: PLC0415

    with explained():
        tried = try_channels(load_config(config or config_path()))
    for name, problem in tried.items():
        typer.echo(f"{name}: {problem or 'told'}")
    if not tried:
        typer.echo("There is no channel.")
    if any(tried.values()):
        raise typer.Exit(EXIT_FAILED)


def _finish(wiring: Wiring, window_id: int, state: WindowState | None, path: Path) -> AdvanceResult:
    """Of a window that has been opened, and what it did as a table."""
    from floodmark.console.tables import run_table  # noqa: PLC0415
    from floodmark.orchestration.load_process import run_load  # noqa: PLC0415
    from floodmark.sync import advance, check  # noqa: PLC0415

    if state is WindowState.PLANNED:
        run_load(wiring, window_id, path)
    check.check_window(window_id, wiring.ledger(), wiring.quality())
    result = advance.advance_window(window_id, wiring.ledger(), wiring.warehouse())
    _out.print(run_table(result))
    return result


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def main() -> None:
    """The console script."""
    if has_airflow_database():
        # Without a running task Airflow looks connections up in the environment only; as a server it asks its database.
        os.environ.setdefault("_AIRFLOW_PROCESS_CONTEXT", "server")
    log_plainly()
    app()
