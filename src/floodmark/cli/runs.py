"""The commands that move rows, with their progress, and those that answer: ``status``, ``doctor``, ``verify``."""

from __future__ import annotations

import contextlib
import getpass
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from floodmark.app.connections import spark_target
from floodmark.app.operate import discard_rows, end_failed_replays, release_rows, replay_of
from floodmark.app.pipeline import config_path
from floodmark.app.run import StartLoad, end_load, finish_window, give_up_load, open_reload, run_pipeline
from floodmark.app.status import (
    examine_source,
    json_text,
    preview_document,
    preview_next_run,
    read_status,
    status_json,
    verify_pipeline,
    write_grants,
)
from floodmark.cli.process import (
    EXIT_ATTENTION,
    EXIT_FAILED,
    AsJson,
    ConfigFile,
    PipelineName,
    Wide,
    err,
    explained,
    open_app,
    out,
    print_line,
    print_preview,
    print_replay,
    print_run,
    print_status,
    print_table,
    print_verification,
    verification_json,
)
from floodmark.core.doctor import Finding, Grade, worst
from floodmark.core.errors import ConfigError, FloodmarkBugError, FloodmarkError, command_line
from floodmark.core.progress import ReadProgress, StepProgress
from floodmark.core.recovery import NoInterval, Release, parse_bounds
from floodmark.core.schema import TableName
from floodmark.core.status import PipelineStatus
from floodmark.spark.launch.processes import run_load

if TYPE_CHECKING:
    from floodmark.app.pipeline import Pipeline
    from floodmark.core.plan import AdvanceResult
    from floodmark.core.position import Interval

# --------------------------------------------------------------------------------------------------------------------
# ``floodmark run``, ``replay`` and ``reload``: the commands that move rows, without a scheduler.


def run(
    pipeline: PipelineName,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only warnings and errors, as for cron: no log, no result.")
    ] = False,
    config: ConfigFile = None,
) -> None:
    """Run one window of PIPELINE now: open it, load it, check it, advance the watermark. A failure
    raises an alert."""
    with explained(), _logged(quiet=quiet):
        path = (config or config_path()).resolve()
        show = (lambda _: None) if quiet else _show
        reason = run_pipeline(open_app(path).pipeline(pipeline), _start_load(path, quiet=quiet), show)
    if reason and not quiet:
        print_line(out, f"Nothing to read: {reason}")


def replay(  # noqa: PLR0917  (typer gives them by name)
    pipeline: PipelineName,
    from_lsn: Annotated[str | None, typer.Option(help="First LSN, inclusive.")] = None,
    to_lsn: Annotated[str | None, typer.Option(help="Last LSN, inclusive.")] = None,
    from_time: Annotated[datetime | None, typer.Option(help="First time on the source's clock, inclusive.")] = None,
    to_time: Annotated[datetime | None, typer.Option(help="Last time on the source's clock, inclusive.")] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE", help="Only this table, schema.table of the source. May be repeated."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be read.")] = False,
    config: ConfigFile = None,
) -> None:
    """Merge an interval of PIPELINE again, up to the watermarks. The watermarks do not move. A table that cannot be
    replayed from the beginning of the interval is left out and named, if others can."""
    lsns, times = (from_lsn, to_lsn), (from_time, to_time)
    with explained():
        path = (config or config_path()).resolve()
        opened = open_app(path).pipeline(pipeline)
        found = replay_of(opened, table or ())
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
            for line in window.left_out:
                print_line(out, line)
        if not table:
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


@contextmanager
def _logged(*, quiet: bool) -> Iterator[None]:
    """Log only warnings and errors in the block, where it is quiet."""
    log = logging.getLogger("floodmark")
    before = log.level
    if quiet:
        log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(before)


def _start_load(config: Path, *, quiet: bool = False) -> StartLoad:
    """Return a function that runs the load job as a child process. quiet: without its log, unless it fails."""

    def start(pipeline: Pipeline, window_id: int) -> None:
        if quiet:
            run_load(pipeline.job_secrets(), spark_target(), window_id, config, quiet=True)
            return
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


DOCTOR_EXITS = {Grade.RISK: EXIT_ATTENTION, Grade.PROBLEM: 4}
STANDING_EXITS = {"fine": 0, "attention": EXIT_ATTENTION, "incident": 4}


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


def plan(pipeline: PipelineName, as_json: AsJson = False, wide: Wide = False, config: ConfigFile = None) -> None:
    """Show what the next run of PIPELINE would do with each table, and what is new in the configuration since the last
    one. Nothing is written. Exit status 3 when a table would be left out.

    Schema drift that no run has seen, and rows that break a rule, are not known yet.
    """
    with explained():
        opened = open_app(config).pipeline(pipeline)
    show_plans([opened], as_json=as_json, wide=wide)


def show_plans(pipelines: Iterable[Pipeline], *, as_json: bool = False, wide: bool = False) -> None:
    """Print what the next run of each pipeline does, and end with an exit status that says whether it leaves out a
    table."""
    has_left_out = False
    for pipeline in pipelines:
        with explained():
            found = preview_next_run(pipeline)
        if as_json:
            typer.echo(json_text(preview_document(found)))
        else:
            print_preview(out, found, wide=wide)
        has_left_out = has_left_out or found.has_left_out
    if has_left_out:
        raise typer.Exit(EXIT_ATTENTION)


def verify(  # noqa: PLR0917  (typer gives them by name)
    pipeline: PipelineName,
    table: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE", help="Only this table, schema.table of the source. May be repeated."),
    ] = None,
    sample: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            min=0,
            max=100,
            help="Compare about this share of the rows, in chunks chosen at random. Extra rows are not found.",
        ),
    ] = None,
    as_json: AsJson = False,
    wide: Wide = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the result, warnings and errors: no log and no progress.")
    ] = False,
    config: ConfigFile = None,
) -> None:
    """Compare source and warehouse row by row and show the differing keys. Exit status 1 when there are any.

    The source may be in use: keys that were changed after the watermark are left out and counted. Rows that wait in
    quarantine are counted too, and are no differences.
    """
    with explained(), _logged(quiet=quiet), nullcontext() if quiet else drawn_progress() as progress:
        results = list(verify_pipeline(open_app(config, progress).pipeline(pipeline), table or (), sample))
    if as_json:
        typer.echo(verification_json(results))
    else:
        print_verification(out, results, wide=wide)
    if not all(result.equal for result in results):
        raise typer.Exit(EXIT_FAILED)


# --------------------------------------------------------------------------------------------------------------------
# ``floodmark quarantine``: the rows that broke a rule and are not in the targets, and what becomes of them.


quarantine_app = typer.Typer(no_args_is_help=True, help="Rows that broke a rule.")
Table = Annotated[str, typer.Argument(help="schema.table at the source.")]
_COLUMNS = ("table", "rule", "rows", "last (UTC)", "pipeline")


@quarantine_app.command("list")
def list_rules(
    pipeline: Annotated[str | None, typer.Argument(help="One pipeline (default: all).")] = None,
    as_json: AsJson = False,
    wide: Wide = False,
    config: ConfigFile = None,
) -> None:
    """Count the rows that wait in quarantine, by table and rule. Keys and values are in floodmark.quarantine of the
    warehouse."""
    with explained():
        app = open_app(config)
        names = [app.pipeline(pipeline).name] if pipeline else list(app.pipelines)
        found = [(name, each) for name in names for each in app.status_ledger.list_quarantined(name)]
    if as_json:
        keys = ("table", "rule", "rows", "last_at")
        typer.echo(json_text([{"pipeline": name} | {key: getattr(each, key) for key in keys} for name, each in found]))
        return
    if not found:
        print_line(out, "There is no row in quarantine.")
        return
    rows = [
        ("", (each.table, each.rule, f"{each.rows:,}", f"{each.last_at:%Y-%m-%d %H:%M}", name)) for name, each in found
    ]
    print_table(out, "quarantine", _COLUMNS, rows, numbers=("rows",), optional=("pipeline", "last (UTC)"), wide=wide)


@quarantine_app.command("release")
def release(pipeline: PipelineName, table: Table, as_json: AsJson = False, config: ConfigFile = None) -> None:
    """Merge the rows of TABLE that break no rule any more, because the rule or the row was corrected.

    The other rows stay in quarantine. A row that has a later change in the target is overtaken, and needs nothing.
    """
    with explained():
        found = release_rows(open_app(config).pipeline(pipeline), table, getpass.getuser())
    if as_json:
        typer.echo(json_text(asdict(found)))
        return
    for line in _release_lines(pipeline, table, found):
        print_line(out, line)


@quarantine_app.command("discard")
def discard(
    pipeline: PipelineName,
    table: Table,
    rule: Annotated[str | None, typer.Option(help="Only the rows that broke this rule.")] = None,
    config: ConfigFile = None,
) -> None:
    """Settle the rows of TABLE without a merge. The target stays as it is; later changes of the rows are loaded."""
    with explained():
        count = discard_rows(open_app(config).pipeline(pipeline), table, rule, getpass.getuser())
    which = f" of rule {rule}" if rule else ""
    print_line(out, f"{table}: entries{which} discarded: {count:,}.")


def _release_lines(pipeline: str, table: str, found: Release) -> list[str]:
    remaining = sum(found.remaining.values())
    if not (found.released or found.overtaken or remaining):
        return [f"{table}: there is no row in quarantine."]
    lines = [f"{table}: entries released: {found.released:,}; overtaken by later changes: {found.overtaken:,}."]
    if found.window_id is not None:
        counts = f"rows inserted: {found.inserted_rows:,}; updated: {found.updated_rows:,}"
        lines.append(f"Window {found.window_id}: {counts}.")
    if remaining:
        rules = ", ".join(f"{rule}: {count:,}" for rule, count in found.remaining.items())
        lines.append(f"Entries that stay: {remaining:,} ({rules}).")
    if found.unfit:
        lines.append(
            f"Rows that break no rule and cannot be merged: {found.unfit:,}. They lack a column or a LOB, or their key "
            f"was changed. Load them from the source: {command_line('reload', pipeline, table)} --where ..."
        )
    return lines


# --------------------------------------------------------------------------------------------------------------------
# The progress of a command: bars on a terminal, lines elsewhere.


_LEAST_WIDTH_FOR_BARS = 80


class DrawnProgress(Progress):
    """``sync.ports.Progress`` on a terminal, for use in a ``with`` block: the step, and each table that is read.

    They are on standard error, as the log is, and go when the work ends, however it ends: what stays is the log, and
    the result or the message of the error.
    """

    every_seconds = 1.0

    def __init__(self, console: Console) -> None:
        columns: list[ProgressColumn] = [_text("{task.description}")]
        if console.width >= _LEAST_WIDTH_FOR_BARS:
            columns.append(BarColumn(console.width // 5))
        columns += [TaskProgressColumn(), TimeElapsedColumn(), _text("{task.fields[numbers]}")]
        self._room = console.height
        # Standard output may be a file.
        super().__init__(*columns, console=console, transient=True, redirect_stdout=False, refresh_per_second=4)
        self._step = self.add_task("", total=None, visible=False, numbers="")
        self._reads: dict[TableName, TaskID] = {}
        # Not rich's own lock: to hold it while rich draws is a deadlock with the thread that refreshes.
        self._reporting = threading.Lock()

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the rows for which the terminal may have room: the step, then the tables, the finished ones last."""
        yield self.make_tasks_table(sorted(self.tasks, key=lambda task: task.finished)[: self._room])

    def stop(self) -> None:
        """Remove all rows, also those that the terminal has no room for. Repeatable."""
        for task in self.task_ids:
            self.update(task, visible=False)
        super().stop()

    def report(self, read: ReadProgress) -> None:
        of = f" of ~{read.total_rows:,}" if read.rows_left else ""
        numbers = f"{read.rows:,}{of} rows{read.pace.describe(read.rows_left)}"
        total = None if read.percent is None else 100
        with self._reporting:
            if read.table not in self._reads:
                self._reads[read.table] = self.add_task(str(read.table), total=None, numbers=numbers)
            task = self._reads[read.table]
            self._tasks[task].start_time = self.get_time() - read.seconds
            self.update(task, total=total, completed=read.percent, numbers=numbers)

    def report_step(self, step: StepProgress) -> None:
        with self._reporting:
            if self._tasks[self._step].description != step.what:
                self.reset(self._step, description=step.what, visible=True)
            done = f"{step.done_tables} of {step.tables} tables done" if step.tables else ""
            self.update(self._step, numbers=done)


def _text(template: str) -> TextColumn:
    """Return a column whose texts are wrapped where the terminal is narrow. Brackets in names are no markup."""
    return TextColumn(template, markup=False, table_column=Column(overflow="fold"))


@contextmanager
def drawn_progress(console: Console = err) -> Iterator[DrawnProgress | None]:
    """Draw the progress on standard error while the block runs; None where it is no terminal that can be drawn on.

    What the block writes to standard error or logs is printed above the bars.
    """
    # A variable that forces colours makes no pipe a terminal.
    if not console.file.isatty() or not console.is_interactive or console.is_dumb_terminal:
        yield None
        return
    with DrawnProgress(console) as progress, _ended_by_signal(progress.stop):
        try:
            yield progress
        finally:
            # The last line may have no end.
            sys.stderr.flush()


@contextmanager
def _ended_by_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Remove the bars, which hide the cursor, before SIGTERM does what it always does."""

    def end(number: int, _frame: FrameType | None) -> None:
        stop()
        signal.signal(number, before)
        signal.raise_signal(number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
