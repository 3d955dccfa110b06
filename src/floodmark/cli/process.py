"""The common parts of all commands: options, errors as one message, a plain log, and the tables that they print.

Names and texts are never markup.
"""

from __future__ import annotations

import codecs
import json
import logging
import os
import sys
import textwrap
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.file_proxy import FileProxy
from rich.table import Table
from rich.text import Text

from floodmark.app.alerts import AirflowMetrics
from floodmark.app.pipeline import App, config_path
from floodmark.app.status import preview_remarks, remarks, table_texts, title
from floodmark.config.loading import load_config
from floodmark.core.errors import ConfigError, FloodmarkError
from floodmark.core.plan import AdvanceResult
from floodmark.core.progress import say_waiting
from floodmark.core.status import PipelineStatus
from floodmark.sync.ports import LoggedProgress, Progress
from floodmark.sync.preview import NextStep, RunPreview
from floodmark.sync.replay import ReplayCount

if TYPE_CHECKING:
    from floodmark.core.status import TableVerification
    from floodmark.sync.alerts import OpenAlert

EXIT_FAILED = 1
EXIT_CONFIG = 2
EXIT_ATTENTION = 3
EXIT_TRY_AGAIN = 75
out = Console(soft_wrap=False)
"""The console for results."""
err = Console(stderr=True, highlight=False, markup=False, emoji=False)
"""The console for the log, the progress and errors."""

PipelineName = Annotated[str, typer.Argument(help="Name of the pipeline in the configuration.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="The configuration (default: FLOODMARK_CONFIG, include/pipelines.yaml).")
]
Wide = Annotated[bool, typer.Option("--wide", help="Print all columns, however long the lines.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def open_app(config: Path | None, progress: Progress | None = None) -> App:
    """Return the configuration of a command with its pipelines. Raises ConfigError.

    config: the file, None for the default one. progress: receives the progress, None for the log.
    """
    loaded = load_config(config or config_path())
    return App(loaded, metrics=AirflowMetrics(), progress=progress or LoggedProgress())


@contextmanager
def explained() -> Iterator[None]:
    """Turn our errors into one message and an exit status."""
    try:
        yield
    except FloodmarkError as error:
        print_line(err, f"floodmark: {error.in_full}{' Run the command again.' if error.retryable else ''}")
        if isinstance(error, ConfigError):
            raise typer.Exit(EXIT_CONFIG) from None
        raise typer.Exit(EXIT_TRY_AGAIN if error.retryable else EXIT_FAILED) from None


def log_plainly() -> None:
    """Log only our own messages, to standard error. Airflow would write its warnings to standard output.

    On a terminal they are wrapped between words, and above the bars.
    """
    os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    handler = logging.StreamHandler(FileProxy(err, sys.stderr) if sys.stderr.isatty() else sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    own = logging.getLogger("floodmark")
    own.addHandler(handler)
    own.setLevel(logging.INFO)
    own.propagate = False


def has_airflow_database() -> bool:
    """Return whether Airflow is configured here. To query an Airflow that is not would create an empty database."""
    if any(name.startswith("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN") for name in os.environ):
        return True
    return (Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "airflow.cfg").is_file()


def read_document(file: Path | None) -> str:
    """Return the text of a file or of standard input: UTF-8, or UTF-16 with its mark, as PowerShell writes it.

    Raises ConfigError.
    """
    name = str(file or "standard input")
    try:
        content = sys.stdin.buffer.read() if file is None else file.read_bytes()
        is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return content.decode("utf-16" if is_wide else "utf-8-sig")
    except OSError as error:
        raise ConfigError(name, f"it cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(name, "it is not text in UTF-8.") from None


# --------------------------------------------------------------------------------------------------------------------
# Tables and lines. On a terminal they have its width; elsewhere (a pipe, a file) each row is one line however long.


_ENDLESS = 100_000
"""A width that no row has."""


def print_table(
    console: Console,
    title: str,
    headings: Sequence[str],
    rows: Sequence[tuple[str, Sequence[str]]],
    *,
    numbers: Collection[str] = (),
    optional: Sequence[str] = (),
    wide: bool = False,
) -> None:
    """Print a table.

    rows: the style and the cells of each. numbers: the headings of columns of numbers, which are never divided.
    optional: the headings of columns that are left out until a row fits the terminal, the first one first. wide: with
    all columns and each row on one line, also where it becomes longer than the terminal.
    """
    room = console.width if console.file.isatty() and not wide else _ENDLESS
    endless = console.options.update(max_width=_ENDLESS)
    for count in range(len(optional) + 1):
        left_out = optional[:count]
        table = _table([heading for heading in headings if heading not in left_out], numbers)
        for style, cells in rows:
            shown = (Text(cell) for heading, cell in zip(headings, cells, strict=True) if heading not in left_out)
            table.add_row(*shown, style=style)
        width = console.measure(table, options=endless).maximum
        if width <= room:
            table.width = width
            break
    if title:
        print_line(console, title, "bold")
    console.print(table, crop=False)
    if left_out:
        print_line(console, f"Not shown: {', '.join(left_out)}. --wide and --json show all.", "dim")


def _table(headings: Sequence[str], numbers: Collection[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for heading in headings:
        is_number = heading in numbers
        table.add_column(Text(heading), justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    return table


def print_line(console: Console, text: str, style: str = "", indent: str = "") -> None:
    """Print a text: wrapped between words on a terminal, as one line elsewhere. A longer word stays whole."""
    for line in text.splitlines():
        width = console.width - len(indent) if console.file.isatty() else _ENDLESS
        for part in textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False) or [""]:
            console.print(Text(indent + part, style=style), soft_wrap=True)


# --------------------------------------------------------------------------------------------------------------------
# The tables of ``run``, ``replay`` and ``verify``, and data of commands as JSON.


def print_verification(console: Console, results: Sequence[TableVerification], *, wide: bool) -> None:
    """Print one row per verified table, the recorded differing keys, and a possible cause."""
    columns = {
        "rows in source": [each.source_rows for each in results],
        "live rows in target": [each.target_rows for each in results],
        "in quarantine": [each.waiting_rows for each in results],
        "changed since": [each.changed_rows for each in results],
        "differing keys": [each.different_keys for each in results],
    }
    numbers = [name for name, found in columns.items() if any(found) or name not in ("in quarantine", "changed since")]
    rows = []
    for place, each in enumerate(results):
        counts = (f"{columns[name][place]:,}" for name in numbers)
        rows.append(("" if each.equal else "red", (str(each.source), each.outcome, *counts, str(each.target))))
    headings = ("source", "", *numbers, "target")
    optional = ("target", "live rows in target", "rows in source")
    title = "source and warehouse, row by row"
    print_table(console, title, headings, rows, numbers=numbers, optional=optional, wide=wide)
    for line in verification_remarks(results):
        print_line(console, line)


def verification_remarks(results: Sequence[TableVerification]) -> list[str]:
    """Return the recorded differing keys, what was not compared, and a possible cause."""
    lines = []
    for each in results:
        if each.waiting_rows:
            lines.append(f"{each.source}: {say_waiting(each.waiting_rows)}.")
        if each.changed_rows:
            keys = "key was" if each.changed_rows == 1 else "keys were"
            lines.append(f"{each.source}: {each.changed_rows:,} {keys} changed after the watermark, and left out.")
        if each.is_sample:
            lines.append(f"{each.source}: {each.source_rows:,} rows of the source were compared, as a sample.")
        lines += [f"{each.source}: {difference}" for difference in each.differences]
        more = each.different_keys - len(each.differences)
        lines += [f"{each.source}: and {more:,} more keys"] if each.differences and more else []
    for each in results:
        if each.unproven:
            lines.append(
                f"{each.source}: unproven: {each.unproven} Rows that were written after the watermark may differ as "
                "well. Verify again when the pipeline has caught up, or while nothing writes to the table."
            )
    return lines


def verification_json(results: Sequence[TableVerification]) -> str:
    """Return the results of a comparison as JSON."""
    return json.dumps(
        [
            asdict(each)
            | {"source": str(each.source), "target": str(each.target), "equal": each.equal, "outcome": each.outcome}
            for each in results
        ],
        indent=2,
    )


def print_replay(console: Console, counts: Sequence[ReplayCount]) -> None:
    """Print the change rows that a replay would read, per table."""
    rows = [("", (str(each.table), f"{each.rows:,}", str(each.interval))) for each in counts]
    headings = ("table", "change rows", "interval")
    print_table(console, "a replay would read", headings, rows, numbers={"change rows"})


def print_run(console: Console, result: AdvanceResult) -> None:
    """Print the row counts of a window, per table."""
    numbers = ("read", "inserted", "updated", "deleted", "unchanged", "quarantined")
    rows = []
    for each in result.tables:
        counts = (f"{getattr(each.counts, f'{name}_rows'):,}" for name in numbers)
        rows.append(("", (str(each.target), *counts, each.kind.value.replace("_", " "))))
    title = f"window {result.window_id} of {result.pipeline}, up to {result.to}"
    optional = ("unchanged", "kind", "quarantined", "deleted", "updated")
    print_table(console, title, ("table", *numbers, "kind"), rows, numbers=numbers, optional=optional)


# --------------------------------------------------------------------------------------------------------------------
# The status of a pipeline on a terminal: a line for each table, and remarks on what needs attention below.


_STYLES = {"fine": "", "attention": "yellow", "incident": "red"}
_COLUMNS = {
    "table": "source",
    "verdict": "verdict",
    "drift": "drift",
    "state": "state",
    "lag": "lag",
    "headroom": "headroom",
    "behind": "behind",
    "read": "read",
    "+ins ~upd -del": "changed",
    "in quarantine": "waiting",
    "watermark at": "watermark_at",
    "target": "target",
    "watermark": "watermark",
    "change table": "change_tables",
}
"""The field of ``TableTexts`` for each heading."""
_ONLY_FILLED = ("drift", "in quarantine", "change table", "lag", "headroom", "behind")
"""The columns that are shown only where they have something to show."""
_OPTIONAL = (
    "change table",
    "watermark",
    "behind",
    "target",
    "watermark at",
    "state",
    "headroom",
    "read",
    "+ins ~upd -del",
    "lag",
)


def print_status(console: Console, status: PipelineStatus, *, wide: bool) -> None:
    """Print a pipeline. ``wide``: with all columns."""
    found = [table_texts(each) for each in status.tables]
    columns = {
        heading: field
        for heading, field in _COLUMNS.items()
        if heading not in _ONLY_FILLED or any(getattr(each, field) not in ("", "-") for each in found)
    }
    rows = [(_STYLES[each.standing], [_cell(getattr(each, field)) for field in columns.values()]) for each in found]
    optional = [heading for heading in _OPTIONAL if heading in columns]
    numbers = ("lag", "headroom", "behind", "read", "+ins ~upd -del", "in quarantine")
    print_table(console, title(status), list(columns), rows, numbers=numbers, optional=optional, wide=wide)
    for remark in remarks(status):
        print_line(console, remark)


def _cell(text: str) -> str:
    """Return a text without the sign that a pipe may not be able to encode."""
    return text.replace("\N{MINUS SIGN}", "-") or "-"


_STEP_STYLES = {NextStep.LEFT_OUT: "red", NextStep.NO_LONGER_READ: "yellow"}


def print_preview(console: Console, preview: RunPreview, *, wide: bool) -> None:
    """Print what the next run of a pipeline does, with what is new in the configuration."""
    rows = [
        (
            _STEP_STYLES.get(table.step, ""),
            [str(table.source), str(table.target or "-"), table.step.value, table.reason],
        )
        for table in preview.tables
    ]
    title = f"pipeline {preview.pipeline}: the next run"
    print_table(console, title, ("table", "target", "does", "why"), rows, optional=("target",), wide=wide)
    for remark in preview_remarks(preview):
        print_line(console, remark)


# --------------------------------------------------------------------------------------------------------------------
# Open alerts as text and as JSON.


_INDENT = "  "


def print_alerts(console: Console, alerts: Sequence[OpenAlert]) -> None:
    """Print a paragraph for each alert."""
    if not alerts:
        print_line(console, "There is no open alert.")
    for each in alerts:
        alert = each.alert
        table = f", {alert.table}" if alert.table else ""
        heading = f"{alert.kind}: {alert.subject}{table}, since {each.raised_at:%Y-%m-%d %H:%M:%S %Z}"
        print_line(console, heading, "bold red")
        for text in (alert.what, alert.means, f"What to do: {alert.do}", f"Name: {alert.event_key}"):
            print_line(console, text, indent=_INDENT)


def alerts_json(alerts: Sequence[OpenAlert]) -> str:
    """Return the alerts as JSON."""
    return json.dumps([_document(each) for each in alerts], indent=2)


def _document(each: OpenAlert) -> dict[str, Any]:
    alert = each.alert
    return {
        "name": alert.event_key,
        "kind": alert.kind,
        "subject": alert.subject,
        "table": str(alert.table) if alert.table else None,
        "what": alert.what,
        "means": alert.means,
        "do": alert.do,
        "raised_at": each.raised_at.isoformat(),
        "seen_at": each.seen_at.isoformat(),
        "times": each.times,
    }
