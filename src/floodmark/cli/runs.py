"""The commands that move rows, and those that answer questions: ``status``, ``doctor``, ``verify``."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from floodmark.app.operate import end_failed_replays, replay_of
from floodmark.app.pipeline import config_path, spark_target
from floodmark.app.run import StartLoad, end_load, finish_window, give_up_load, open_reload, run_pipeline
from floodmark.app.status import examine_source, read_status, status_json, verify_pipeline, write_grants
from floodmark.cli.process import EXIT_FAILED, AsJson, ConfigFile, PipelineName, Wide, explained, open_app, out
from floodmark.cli.progress import drawn_progress
from floodmark.cli.tables import (
    print_line,
    print_replay,
    print_run,
    print_status,
    print_verification,
    verification_json,
)
from floodmark.core.doctor import Finding, Grade, worst
from floodmark.core.errors import ConfigError, FloodmarkBugError, FloodmarkError
from floodmark.core.recovery import NoInterval, parse_bounds
from floodmark.core.status import PipelineStatus
from floodmark.spark.launch.processes import run_load

if TYPE_CHECKING:
    from floodmark.app.pipeline import Pipeline
    from floodmark.core.plan import AdvanceResult
    from floodmark.core.position import Interval


# --------------------------------------------------------------------------------------------------------------------
# ``floodmark run``, ``replay`` and ``reload``: the commands that move rows, without a scheduler.


def run(pipeline: PipelineName, config: ConfigFile = None) -> None:
    """Run one window of PIPELINE now: open it, load it with spark-submit, check it, advance the watermark. A failure
    raises an alert."""
    with explained():
        path = (config or config_path()).resolve()
        reason = run_pipeline(open_app(path).pipeline(pipeline), _start_load(path), _show)
    if reason:
        print_line(out, f"Nothing to read: {reason}")


def replay(  # noqa: PLR0917  (typer gives them by name)
    pipeline: PipelineName,
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
        opened = open_app(path).pipeline(pipeline)
        found = replay_of(opened)
        interval: Interval | NoInterval
        if from_lsn and to_lsn and times == (None, None):
            interval = parse_bounds(from_lsn, to_lsn)
        elif from_time and to_time and lsns == (None, None):
            interval = found.find_times(from_time, to_time)
        else:
            raise ConfigError("replay", "give --from-lsn and --to-lsn, or --from-time and --to-time.")
        if isinstance(interval, NoInterval):
            print_line(out, f"Nothing to replay: {interval.reason}")
            return
        if dry_run:
            print_replay(out, found.count(interval))
            return
        window = found.open(interval)
        if window.window_id is None:
            print_line(out, f"Nothing to replay: {window.reason}")
        else:
            _show(finish_window(opened, window, _start_load(path)))
        end_failed_replays(opened, found, interval)


def reload(
    pipeline: PipelineName,
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
        opened = open_app(path).pipeline(pipeline)
        if give_up:
            typer.echo(f"Window {give_up_load(opened, table)} was given up. The target stays as it was.")
            return
        window = open_reload(opened, table, where)
        if window.window_id is None:
            raise FloodmarkBugError(table, f"no load of the table was opened: {window.reason}")
        _show(finish_window(opened, window, _start_load(path)))
        (planned,) = end_load(opened, window.window_id).tables
    if planned.where:
        typer.echo(
            f"Only rows where {planned.where} were read. Rows that no longer exist at the source were not swept, and "
            "the watermark did not move."
        )


def _start_load(config: Path) -> StartLoad:
    """Return a function that runs the load job as a child process."""

    def start(pipeline: Pipeline, window_id: int) -> None:
        with drawn_progress() as progress:
            run_load(pipeline.job_secrets(), spark_target(), window_id, config, progress)

    return start


def _show(result: AdvanceResult) -> None:
    """Print the result of a window."""
    print_run(out, result)


# --------------------------------------------------------------------------------------------------------------------
# The findings of ``floodmark doctor`` as text and as JSON.


_STYLES = {Grade.GOOD: "green", Grade.NOTE: "bold", Grade.RISK: "bold yellow", Grade.PROBLEM: "bold red"}
_INDENT = "  "


def print_findings(console: Console, pipeline: str, findings: Sequence[Finding], *, everything: bool) -> None:
    """Print the findings, the worst first, each with its fix; the good ones only as a number, unless ``everything``."""
    print_line(console, f"pipeline {pipeline}: its source", "bold")
    bad = sorted((each for each in findings if each.grade is not Grade.GOOD), key=lambda finding: -finding.grade)
    for each in bad:
        print_line(console, f"{each.grade.name}: {each.check}: {each.subject}", _STYLES[each.grade])
        print_line(console, each.text, indent=_INDENT)
        if each.fix:
            print_line(console, f"fix: {each.fix}", indent=_INDENT)
    good = [each for each in findings if each.grade is Grade.GOOD]
    if everything:
        for each in good:
            print_line(console, f"good: {each.check}: {each.subject}: {each.text}", _STYLES[Grade.GOOD])
    elif good:
        noun = "check is" if len(good) == 1 else "checks are"
        print_line(console, f"{len(good)} {noun} good. --all lists them.", _STYLES[Grade.GOOD])


def findings_json(findings: Sequence[Finding]) -> str:
    """Return the findings as JSON."""
    return json.dumps([_document(each) for each in findings], indent=2)


def _document(finding: Finding) -> dict[str, str]:
    return {
        "grade": finding.grade.name.lower(),
        "check": finding.check,
        "subject": finding.subject,
        "text": finding.text,
        "fix": finding.fix,
    }


# --------------------------------------------------------------------------------------------------------------------
# ``floodmark status``, ``doctor`` and ``verify``: the commands that only read.


DOCTOR_EXITS = {Grade.RISK: 3, Grade.PROBLEM: 4}
STANDING_EXITS = {"fine": 0, "attention": 3, "incident": 4}


def status(  # noqa: PLR0917  (typer gives them by name)
    pipeline: Annotated[str | None, typer.Argument(help="One pipeline (default: all).")] = None,
    live: Annotated[bool, typer.Option("--live", help="Query the source too: current verdict, lag, headroom.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="For monitoring: exit status 3 for attention, 4 for an incident.")
    ] = False,
    watch: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=1, help="Read it again and again, until Ctrl-C.")
    ] = None,
    as_json: AsJson = False,
    wide: Wide = False,
    config: ConfigFile = None,
) -> None:
    """Show state, verdict, watermark, lag, last window and headroom of each table, and the open alerts."""
    if watch is not None:
        if check or as_json:
            raise typer.BadParameter("--watch has no end, so it excludes --check and --json.")
        _watch(config, pipeline, watch, live=live, wide=wide)
        return
    with explained():
        statuses = _read_statuses(config, pipeline, live=live)
    if as_json:
        typer.echo(status_json(statuses))
    else:
        for each in statuses:
            print_status(out, each, wide=wide)
    code = max((STANDING_EXITS[each.standing] for each in statuses), default=0)
    if check and code:
        raise typer.Exit(code)


def _read_statuses(config: Path | None, pipeline: str | None, *, live: bool) -> list[PipelineStatus]:
    app = open_app(config)
    chosen = [app.pipeline(pipeline)] if pipeline else app.pipelines.values()
    return [read_status(each, live=live) for each in chosen]


def _watch(config: Path | None, pipeline: str | None, seconds: float, *, live: bool, wide: bool) -> None:
    """Print the status at an interval. A source or warehouse that is away for a while does not end it."""
    with contextlib.suppress(KeyboardInterrupt), explained():
        while True:
            statuses, problem = [], ""
            try:
                statuses = _read_statuses(config, pipeline, live=live)
            except FloodmarkError as error:
                if not error.retryable:
                    raise
                problem = error.in_full
            out.clear()
            print_line(out, f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC, every {seconds:g} s")
            if problem:
                print_line(out, problem, "red")
            for each in statuses:
                print_status(out, each, wide=wide)
            time.sleep(seconds)


def doctor(
    pipeline: PipelineName,
    grants: Annotated[str | None, typer.Option(help="Print the permissions that this login needs, as T-SQL.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="List the good findings too.")] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Examine the source of PIPELINE and show how to fix each finding. Exit status 3 for risks, 4 for problems."""
    with explained():
        opened = open_app(config).pipeline(pipeline)
        if grants is not None:
            typer.echo(write_grants(opened, grants), nl=False)
            return
        findings = examine_source(opened)
    if as_json:
        typer.echo(findings_json(findings))
    else:
        print_findings(out, pipeline, findings, everything=everything)
    if code := DOCTOR_EXITS.get(worst(findings)):
        raise typer.Exit(code)


def verify(pipeline: PipelineName, as_json: AsJson = False, wide: Wide = False, config: ConfigFile = None) -> None:
    """Compare source and warehouse row by row and show the differing keys. Exit status 1 when there are any."""
    with explained(), drawn_progress() as progress:
        results = list(verify_pipeline(open_app(config, progress).pipeline(pipeline)))
    if as_json:
        typer.echo(verification_json(results))
    else:
        print_verification(out, results, wide=wide)
    if not all(result.equal for result in results):
        raise typer.Exit(EXIT_FAILED)
