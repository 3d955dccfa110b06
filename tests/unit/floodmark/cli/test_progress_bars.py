"""The progress of commands on terminals: what is drawn, what is printed above it, and what is left of it."""

from __future__ import annotations

import io
import logging
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pytest
from rich.console import Console

from floodmark.cli.process import explained, log_plainly
from floodmark.cli.progress import DrawnProgress, LinesAbove, can_draw, drawn_progress
from floodmark.core.errors import OperatorError
from floodmark.core.progress import ReadKind, ReadProgress, StepProgress
from floodmark.core.schema import TableName
from terminal_screen import TerminalScreen

DETAIL = ReadProgress(
    TableName("SalesLT", "SalesOrderDetail"), ReadKind.FIRST_LOAD, 1_234_567, 100.0, total_rows=2_700_000
)
REPLAY = ReadProgress(TableName("dbo", "Orders"), ReadKind.REPLAY, 12_000, 4.0)
LONG = replace(DETAIL, table=TableName("Production", "TransactionHistoryArchiveOfTheNorthernHemisphere"))
READING = StepProgress("window 12: reading", 35.0, 8, 2)
ENDED = """
import os, signal, sys
from rich.console import Console
from floodmark.cli.progress import drawn_progress
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


class FakeTerminal(io.StringIO):
    """A file that is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@dataclass
class FakeClock:
    """A clock that a test sets."""

    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


def terminal(width: int = 80, height: int = 24, environment: Mapping[str, str] | None = None) -> Console:
    """Return the console of a terminal of a size, and of an environment that has nothing else."""
    return Console(
        file=FakeTerminal(),
        width=width,
        height=height,
        highlight=False,
        legacy_windows=False,
        _environ={"TERM": "xterm-256color"} | dict(environment or {}),
    )


def written(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def screen_of(console: Console) -> TerminalScreen:
    screen = TerminalScreen(console.width)
    screen.feed(written(console))
    return screen


def drawn(*reads: ReadProgress, width: int = 80, height: int = 24, later: float = 0.0) -> list[str]:
    """Return the lines on a terminal after reports about reads, and some seconds without one."""
    console, clock = terminal(width, height), FakeClock()
    with DrawnProgress(console, clock, auto_refresh=False) as progress:
        progress.report_step(READING)
        for read in reads:
            progress.report(read)
        clock.now += later
        progress.refresh()
        return screen_of(console).lines


@pytest.fixture(autouse=True)
def _own_streams(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hold that what the bars replace is as it was afterwards."""
    before = (sys.stderr, signal.getsignal(signal.SIGTERM))
    yield
    assert (sys.stderr, signal.getsignal(signal.SIGTERM)) == before


def test_narrow_terminal_has_the_numbers_on_a_line_of_their_own() -> None:
    step, *lines = drawn(DETAIL, REPLAY)
    assert step == "- window 12: reading, 2 of 8 tables done, 35 s"
    assert re.fullmatch(r"SalesLT\.SalesOrderDetail  [━╸╺]{46}   45 %", lines[0])
    assert lines[1] == "  1,234,567 of ~2,700,000 rows, 12,346 rows/s, ~2 min left"
    assert re.fullmatch(r"dbo\.Orders {16}━{46}", lines[2])
    assert lines[3:] == ["  12,000 rows staged, 3,000 rows/s"]


def test_wide_terminal_has_one_line_for_a_table() -> None:
    _, detail, replay = drawn(DETAIL, REPLAY, width=140)
    numbers = re.escape("1,234,567 of ~2,700,000 rows, 12,346 rows/s, ~2 min left")
    assert re.fullmatch(rf"SalesLT\.SalesOrderDetail  [━╸╺]+   45 %  {numbers}", detail)
    assert replay.endswith("12,000 rows staged, 3,000 rows/s")


def test_long_name_has_a_line_of_its_own_on_60_columns() -> None:
    _, name, bar, numbers = drawn(LONG, width=60)
    assert name == "Production.TransactionHistoryArchiveOfTheNorthernHemisphere"
    assert re.fullmatch(r"  [━╸╺]+   45 %", bar)
    assert numbers == "  1,234,567 of ~2,700,000 rows, 12,346 rows/s, ~2 min left"


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 140, 200])
def test_no_line_is_wider_than_the_terminal_and_no_number_is_broken(width: int) -> None:
    lines = drawn(DETAIL, REPLAY, replace(DETAIL, table=TableName("dbo", "Items"), is_done=True), width=width)
    assert max(map(len, lines)) < width
    assert any(re.search(r"\b1,234,567\b", line) for line in lines)
    assert any(re.search(r"\b12,000 rows\b", line) for line in lines)


def test_narrower_terminal_leaves_out_the_total_and_then_the_rate() -> None:
    assert drawn(DETAIL, width=50)[-1] == "  1,234,567 rows, 12,346 rows/s, ~2 min left"
    assert drawn(DETAIL, width=40)[-1] == "  1,234,567 rows, ~2 min left"
    assert drawn(DETAIL, width=25)[-1] == "  1,234,567 rows"


def test_finished_table_shows_its_rows_and_time() -> None:
    done = replace(DETAIL, rows=2_700_000, seconds=240.0, is_done=True)
    _, bar, numbers = drawn(done)
    assert bar.endswith("  100 %")
    assert numbers == "  2,700,000 rows, 11,250 rows/s in 4 min"


def test_time_of_a_step_passes_without_reports() -> None:
    assert drawn(REPLAY, later=90.0)[0].endswith("window 12: reading, 2 of 8 tables done, 2 min")


def test_next_step_has_its_own_time() -> None:
    console, clock = terminal(), FakeClock()
    with DrawnProgress(console, clock, auto_refresh=False) as progress:
        progress.report_step(READING)
        progress.report_step(StepProgress("window 12: merging"))
        clock.now += 3
        progress.refresh()
        assert screen_of(console).lines == [screen_of(console).lines[0]]
        assert screen_of(console).lines[0].endswith("window 12: merging, 3 s")


def test_low_terminal_shows_unfinished_tables_and_counts_the_others() -> None:
    tables = [replace(REPLAY, table=TableName("dbo", f"T{number}"), is_done=number < 4) for number in range(8)]
    lines = drawn(*tables, height=13, width=140)
    assert len(lines) == 1 + 8
    step, *bars, more = drawn(*tables, height=9, width=140)
    assert "4 of 8 tables done" in step
    assert [line.split()[0] for line in bars] == ["dbo.T2", "dbo.T3", "dbo.T4", "dbo.T5", "dbo.T6", "dbo.T7"]
    assert more == "  and 2 more tables"


def test_log_and_output_are_whole_lines_above_the_bars() -> None:
    console = terminal(60)
    log = logging.getLogger("floodmark")
    handler = logging.StreamHandler(sys.stderr)
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with drawn_progress(console) as progress:
            assert progress is not None
            progress.report(DETAIL)
            log.info("dbo.Orders: %s rows read, %s staged, and some more words that need a second line.", 5, 4)
            sys.stderr.write("a line in ")
            sys.stderr.write("two parts\nand one without an end")
            progress.refresh()
            lines = screen_of(console).lines
        assert handler.stream is sys.stderr
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    above = [
        "dbo.Orders: 5 rows read, 4 staged, and some more words that",
        "need a second line.",
        "a line in two parts",
    ]
    assert lines[:3] == above
    assert "SalesLT.SalesOrderDetail" in lines[3]
    assert screen_of(console).lines == [*above, "and one without an end"]


def test_log_without_bars_is_wrapped_on_a_terminal_and_whole_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    log = logging.getLogger("floodmark")
    monkeypatch.setattr(log, "handlers", [])
    monkeypatch.setattr(log, "propagate", log.propagate)
    monkeypatch.setattr(log, "level", log.level)
    monkeypatch.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    monkeypatch.setattr("floodmark.cli.process._err", Console(stderr=True, width=20))
    streams = FakeTerminal(), io.StringIO()
    for stream in streams:
        log.handlers.clear()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            log_plainly()
            log.warning("Window %s of edge, attempt %s.", 1, 2)
    assert [stream.getvalue() for stream in streams] == [
        "Window 1 of edge,\nattempt 2.\n",
        "Window 1 of edge, attempt 2.\n",
    ]


def test_indented_line_that_fits_keeps_its_blanks() -> None:
    console = terminal(40)
    LinesAbove(console).write('  File "job.py", line 5\n\n    raise\n')
    assert written(console).splitlines() == ['  File "job.py", line 5', "", "    raise"]


def test_word_that_is_longer_than_the_terminal_stays_whole() -> None:
    console = terminal(20)
    LinesAbove(console).write("see /a/very/long/path/to/a/file for more\n")
    assert written(console).splitlines() == ["see", "/a/very/long/path/to/a/file", "for more"]


def test_error_leaves_no_bar_and_its_message_comes_after() -> None:
    console = terminal()
    with pytest.raises(OperatorError), drawn_progress(console) as progress:
        assert progress is not None
        progress.report(DETAIL)
        progress.refresh()
        assert len(screen_of(console).lines) == 2
        raise OperatorError("dbo.Orders", "its target does not exist.")
    assert screen_of(console).lines == []
    assert screen_of(console).shows_cursor


def test_message_of_an_error_is_printed_when_the_bars_are_gone(capsys: pytest.CaptureFixture[str]) -> None:
    console = terminal()
    with pytest.raises(BaseException, match="1"), explained(), drawn_progress(console) as progress:
        assert progress is not None
        progress.report(DETAIL)
        raise OperatorError("dbo.Orders", "its target does not exist.")
    assert capsys.readouterr().err == "floodmark: dbo.Orders: its target does not exist.\n"
    assert "does not exist" not in written(console)


def test_interrupted_command_leaves_no_bar() -> None:
    console = terminal()
    with pytest.raises(KeyboardInterrupt), drawn_progress(console) as progress:
        assert progress is not None
        progress.report(DETAIL)
        raise KeyboardInterrupt
    assert screen_of(console).lines == []
    assert screen_of(console).shows_cursor


def test_sigterm_shows_the_cursor_again_and_ends_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", ENDED], stdout=subprocess.PIPE, check=False, timeout=60)
    assert done.returncode == -signal.SIGTERM
    screen, output = TerminalScreen(80), done.stdout.decode()
    screen.feed(output)
    assert "dbo.Orders" in output
    assert screen.lines == []
    assert screen.shows_cursor


def test_no_color_draws_without_colours() -> None:
    def drawn_in(environment: Mapping[str, str]) -> str:
        console = terminal(environment=environment)
        with DrawnProgress(console, FakeClock(), auto_refresh=False) as progress:
            progress.report(DETAIL)
            progress.report(REPLAY)
        return written(console)

    colours = re.compile(r"\x1b\[[\d;]*[34][0-9][\d;]*m")
    assert colours.search(drawn_in({}))
    plain = drawn_in({"NO_COLOR": "1"})
    assert "SalesLT.SalesOrderDetail" in plain
    assert "━" in plain
    assert not colours.search(plain)


def test_terminal_without_cursor_movement_gets_lines() -> None:
    console = terminal(environment={"TERM": "dumb"})
    with drawn_progress(console) as progress:
        assert progress is None
    assert written(console) == ""


@pytest.mark.parametrize("environment", [{}, {"FORCE_COLOR": "1"}, {"TTY_COMPATIBLE": "1"}])
def test_pipe_gets_lines(environment: Mapping[str, str]) -> None:
    console = Console(file=io.StringIO(), _environ={"TERM": "xterm"} | dict(environment))
    assert not can_draw(console)
    with drawn_progress(console) as progress:
        assert progress is None


def test_terminal_of_a_program_that_is_not_interactive_gets_lines() -> None:
    assert can_draw(terminal())
    assert not can_draw(terminal(environment={"TTY_INTERACTIVE": "0"}))
