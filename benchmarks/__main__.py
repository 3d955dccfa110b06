"""``make bench``: everything measured in one run, written to ``benchmarks/report.md``.

``python -m benchmarks window runs`` measures the named sections alone, and prints them.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psutil

from benchmarks import (
    asked,
    dag_parse,
    emulator,
    event_decode,
    event_stream,
    first_load,
    fleet,
    idle_tables,
    lake,
    large_targets,
    many_tables,
    runs,
    source,
    table_styles,
    window,
)
from benchmarks.measuring import Report, temporary_stack
from floodmark_laptop.stack import Stack

Section = Callable[[Stack, Report, Path], None]
_SECTIONS: dict[str, Section] = {
    "emulator": lambda stack, report, _: emulator.measure(stack, report),
    "source": lambda stack, report, _: source.measure(
        stack.source, psutil.Process(stack.emulator.process.pid), report, source.Sizes()
    ),
    "window": window.measure,
    "first_load": first_load.measure,
    "large_targets": large_targets.measure,
    "table_styles": table_styles.measure,
    "lake": lake.measure,
    "many_tables": many_tables.measure,
    "fleet": fleet.measure,
    "asked": lambda stack, report, _: asked.measure(stack, report),
    "runs": lambda stack, report, _: runs.measure(stack, report),
    "dag_parse": dag_parse.measure,
    "idle_tables": idle_tables.measure,
    "event_stream": event_stream.measure,
    "event_decode": lambda _, report, __: event_decode.measure(report),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(_SECTIONS)}; all by default")
    chosen = parser.parse_args().sections
    if unknown := set(chosen) - set(_SECTIONS):
        parser.error(f"there is no section {', '.join(sorted(unknown))}; there are {', '.join(_SECTIONS)}")
    report = Report()
    report.add("# Benchmarks")
    report.add()
    report.add(
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, Python {platform.python_version()}. Source, warehouse "
        "and Spark share the machine. Ratios are measured side by side in one run; absolute figures are its own."
    )
    report.add()
    with temporary_stack() as (stack, folder):
        for name in chosen or _SECTIONS:
            _SECTIONS[name](stack, report, folder)
    if not chosen:
        (Path(__file__).parent / "report.md").write_text("\n".join(report.lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
