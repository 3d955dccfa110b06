"""``floodmark status``, ``doctor`` and ``verify``: the commands that only read."""

from __future__ import annotations

import contextlib
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from floodmark.app.doctor import examine_source, write_grants
from floodmark.app.status import read_status
from floodmark.app.status_json import status_json
from floodmark.app.verify import verify_pipeline
from floodmark.cli.findings import findings_json, print_findings
from floodmark.cli.grid import print_line
from floodmark.cli.process import EXIT_FAILED, AsJson, ConfigFile, Pipeline, Wide, explained, open_app, out
from floodmark.cli.progress_bars import drawn_progress
from floodmark.cli.status_grid import print_status
from floodmark.cli.tables import print_verification, verification_json
from floodmark.core.doctor.finding import Grade, worst
from floodmark.core.errors import FloodmarkError
from floodmark.core.status.report import PipelineStatus

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
    names = [pipeline] if pipeline else list(app.config.pipelines)
    return [read_status(app, name, live=live) for name in names]


def _watch(config: Path | None, pipeline: str | None, seconds: float, *, live: bool, wide: bool) -> None:
    """Print the status every so many seconds. A source or warehouse that is away for a while does not end it."""
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
    pipeline: Pipeline,
    grants: Annotated[str | None, typer.Option(help="Print the permissions that this login needs, as T-SQL.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="List the good findings too.")] = False,
    as_json: AsJson = False,
    config: ConfigFile = None,
) -> None:
    """Examine the source of PIPELINE and show how to fix each finding. Exit status 3 for risks, 4 for problems."""
    with explained():
        app = open_app(config)
        if grants is not None:
            typer.echo(write_grants(app, pipeline, grants), nl=False)
            return
        findings = examine_source(app, pipeline)
    if as_json:
        typer.echo(findings_json(findings))
    else:
        print_findings(out, pipeline, findings, everything=everything)
    if code := DOCTOR_EXITS.get(worst(findings)):
        raise typer.Exit(code)


def verify(pipeline: Pipeline, as_json: AsJson = False, wide: Wide = False, config: ConfigFile = None) -> None:
    """Compare source and warehouse row by row and show the differing keys. Exit status 1 when there are any."""
    with explained(), drawn_progress() as progress:
        results = list(verify_pipeline(open_app(config, progress), pipeline))
    if as_json:
        typer.echo(verification_json(results))
    else:
        print_verification(out, results, wide=wide)
    if not all(result.equal for result in results):
        raise typer.Exit(EXIT_FAILED)
