"""The progress of commands on terminals: what is drawn, what is printed above it, and what is left of it."""

from __future__ import annotations

import io
import logging
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from rich.console import Console

from floodmark.cli.process import explained, log_plainly
from floodmark.cli.runs import DrawnProgress, drawn_progress
from floodmark.core.errors import OperatorError
from floodmark.core.progress import ReadKind, ReadProgress, StepProgress
from floodmark.core.schema import TableName
from pseudo_terminal import FakeTerminal

DETAIL = ReadProgress(
    TableName("SalesLT", "SalesOrderDetail"), ReadKind.FIRST_LOAD, 1_234_567, 100.0, total_rows=2_700_000
)
REPLAY = ReadProgress(TableName("dbo", "Orders"), ReadKind.REPLAY, 12_000, 4.0)
READING = StepProgress("window 12: reading", 35.0, 8, 2)
ENDED = """
import os, signal, sys
from rich.console import Console
from floodmark.cli.runs import drawn_progress
from floodmark.core.schema import TableName
from floodmark.core.progress import ReadKind, ReadProgress

sys.stdout.isatty = lambda: True
console = Console(file=sys.stdout, width=80, height=24, _environ={"TERM": "xterm"})
with drawn_progress(console) as progress:
    progress.report(ReadProgress(TableName("dbo", "Orders"), ReadKind.REPLAY, 5, 1.0))
    progress.refresh()
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
"""
"""A program that gets SIGTERM while it draws."""


class FakeClock:
    """A clock that a test sets."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def terminal(
    width: int = 80,
    height: int = 24,
    environment: Mapping[str, str] | None = None,
    clock: FakeClock | None = None,
) -> Console:
    """Return the console of a terminal of a size, and of an environment that has nothing else."""
    return Console(
        file=FakeTerminal(),
        width=width,
        height=height,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
        get_time=clock or FakeClock(),
        _environ={"TERM": "xterm-256color"} | dict(environment or {}),
    )


def written(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def shown(progress: DrawnProgress, width: int) -> list[str]:
    """Return the lines of the present frame."""
    out = io.StringIO()
    Console(file=out, width=width).print(progress)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def drawn(*reads: ReadProgress, width: int = 140, height: int = 24) -> list[str]:
    """Return the lines on a terminal after reports about reads."""
    progress = DrawnProgress(terminal(width, height))
    progress.report_step(READING)
    for read in reads:
        progress.report(read)
    return shown(progress, width)


def is_erased(console: Console) -> bool:
    """Return whether the last frame was erased, and the cursor is shown again."""
    text = written(console)
    return text.rindex("\x1b[2K") > text.rindex("dbo.Orders") and text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


@pytest.fixture(autouse=True)
def _own_streams() -> Iterator[None]:
    """Hold that what the bars replace is as it was afterwards."""
    before = (sys.stderr, signal.getsignal(signal.SIGTERM))
    yield
    assert (sys.stderr, signal.getsignal(signal.SIGTERM)) == before


def test_table_has_its_share_time_rows_rate_and_time_left() -> None:
    step, detail, replay = drawn(DETAIL, REPLAY)
    assert re.fullmatch(r"window 12: reading +━+ +0:00:00 2 of 8 tables done", step)
    numbers = re.escape("1,234,567 of ~2,700,000 rows, 12,346 rows/s, about 2 min left")
    assert re.fullmatch(rf"SalesLT\.SalesOrderDetail ━+[╸╺]? + 45% 0:01:40 {numbers}", detail)
    assert re.fullmatch(r"dbo\.Orders +━+ +0:00:04 12,000 rows, 3,000 rows/s", replay)


def test_finished_table_shows_its_rows_and_time_and_comes_last() -> None:
    done = replace(DETAIL, rows=2_700_000, total_rows=2_700_000, seconds=240.0, is_done=True)
    lines = drawn(done, REPLAY)
    assert "dbo.Orders" in lines[1]
    assert re.search(r"100% 0:04:00 2,700,000 rows, 11,250 rows/s$", lines[2])


@pytest.mark.parametrize("width", [40, 50, 60, 80, 100, 200])
def test_names_and_numbers_are_complete_on_every_terminal(width: int) -> None:
    lines = drawn(DETAIL, REPLAY, width=width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for number in ("1,234,567", "~2,700,000", "12,346", "2 min left", "45%", "0:01:40", "12,000", "3,000"):
        assert re.search(rf"(?<![\d,]){re.escape(number)}(?![\d,]*\d)", text), text
    # The first column alone; a name is divided where it has no room.
    name = "".join(line[: line.find(" ")] if " " in line else line for line in lines)
    assert "SalesLT.SalesOrderDetaildbo.Orders" in name


def test_brackets_of_a_name_are_no_markup() -> None:
    assert drawn(replace(REPLAY, table=TableName("dbo", "x[red]y :car:")))[1].startswith("dbo.[x[red]]y :car:] ")


def test_time_passes_without_reports_and_each_step_has_its_own() -> None:
    clock = FakeClock()
    progress = DrawnProgress(terminal(clock=clock))
    progress.report_step(READING)
    clock.now += 90
    assert "0:01:30" in shown(progress, 140)[0]
    progress.report_step(StepProgress("window 12: merging"))
    clock.now += 3
    (line,) = shown(progress, 140)
    assert re.fullmatch(r"window 12: merging ━+ +0:00:03", line)


def test_low_terminal_shows_unfinished_tables() -> None:
    tables = [replace(REPLAY, table=TableName("dbo", f"T{number:02}"), is_done=number < 8) for number in range(20)]
    console = terminal(height=10)
    with drawn_progress(console) as progress:
        assert progress is not None
        progress.report_step(READING)
        for each in tables:
            progress.report(each)
        progress.refresh()
        *_, frame = written(console).split("window 12: reading")
        assert re.findall(r"dbo\.T(\d+)", frame)[:3] == ["08", "09", "10"]
    assert "dbo.T19" not in written(console)


def test_log_and_output_are_whole_lines_above_the_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    console = terminal(60)
    log = logging.getLogger("floodmark")
    monkeypatch.setattr(log, "handlers", [])
    monkeypatch.setattr(log, "propagate", log.propagate)
    monkeypatch.setattr(log, "level", log.level)
    monkeypatch.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    monkeypatch.setattr("floodmark.cli.process.err", console)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", console.file)
        log_plainly()
        with drawn_progress(console) as progress:
            assert progress is not None
            progress.report(REPLAY)
            log.info("dbo.[x] :car:: %s rows read, %s staged, and some more words that need a second line.", 5, 4)
            sys.stderr.write("a line in ")
            sys.stderr.write("two [red]parts\nand [one] without an end")
        assert sys.stderr is console.file
    text = written(console)
    for line in (
        "dbo.[x] :car:: 5 rows read, 4 staged, and some more words \nthat need a second line.\n",
        "a line in two [red]parts\n",
        "and [one] without an end\n",
    ):
        assert line in text
    assert is_erased(console)


def test_log_without_bars_is_wrapped_on_a_terminal_and_whole_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging.getLogger("floodmark")
    monkeypatch.setattr(log, "handlers", [])
    monkeypatch.setattr(log, "propagate", log.propagate)
    monkeypatch.setattr(log, "level", log.level)
    monkeypatch.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    monkeypatch.setattr("floodmark.cli.process.err", Console(stderr=True, width=20, highlight=False))
    streams = FakeTerminal(), io.StringIO()
    for stream in streams:
        log.handlers.clear()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            log_plainly()
            log.warning("Window %s of edge, attempt %s.", 1, 2)
    assert [stream.getvalue() for stream in streams] == [
        "Window 1 of edge, \nattempt 2.\n",
        "Window 1 of edge, attempt 2.\n",
    ]


def test_error_leaves_no_bar_and_its_message_comes_after(capsys: pytest.CaptureFixture[str]) -> None:
    console = terminal()
    with pytest.raises(BaseException, match="1"), explained(), drawn_progress(console) as progress:
        assert progress is not None
        progress.report(REPLAY)
        raise OperatorError("dbo.Orders", "its target does not exist.")
    assert capsys.readouterr().err == "floodmark: dbo.Orders: its target does not exist.\n"
    assert "does not exist" not in written(console)
    assert is_erased(console)


def test_interrupted_command_leaves_no_bar() -> None:
    console = terminal()
    with pytest.raises(KeyboardInterrupt), drawn_progress(console) as progress:
        assert progress is not None
        progress.report(REPLAY)
        raise KeyboardInterrupt
    assert is_erased(console)


def test_sigterm_shows_the_cursor_again_and_ends_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", ENDED], stdout=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == -signal.SIGTERM
    output = done.stdout.decode()
    assert output.rindex("\x1b[2K") > output.rindex("dbo.Orders")
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")


def test_no_color_draws_without_colours() -> None:
    def drawn_in(environment: Mapping[str, str]) -> str:
        console = terminal(environment=environment)
        with drawn_progress(console) as progress:
            assert progress is not None
            progress.report(DETAIL)
            progress.report(REPLAY)
        return written(console)

    colours = re.compile(r"\x1b\[[\d;]*[34][0-9][\d;]*m")
    assert colours.search(drawn_in({}))
    plain = drawn_in({"NO_COLOR": "1"})
    assert "SalesLT.SalesOrderDetail" in plain
    assert "━" in plain
    assert not colours.search(plain)


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TTY_INTERACTIVE": "0"}])
def test_terminal_that_cannot_be_drawn_on_gets_lines(environment: Mapping[str, str]) -> None:
    console = terminal(environment=environment)
    with drawn_progress(console) as progress:
        assert progress is None
    assert written(console) == ""


@pytest.mark.parametrize("environment", [{}, {"FORCE_COLOR": "1"}, {"TTY_COMPATIBLE": "1"}])
def test_pipe_gets_lines(environment: Mapping[str, str]) -> None:
    console = Console(file=io.StringIO(), _environ={"TERM": "xterm"} | dict(environment))
    with drawn_progress(console) as progress:
        assert progress is None
