"""``make bench``: everything measured in one run, written to ``benchmarks/report.md``."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import psutil

from benchmarks import asked, emulator, idle, many_tables, source, window
from benchmarks.measuring import Report
from floodmark_laptop.stack import Stack


def main() -> None:
    report = Report()
    report.add("# Benchmarks")
    report.add()
    report.add(
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, Python {platform.python_version()}. Source, warehouse "
        "and Spark share the machine. Ratios are measured side by side in one run; absolute figures are its own."
    )
    report.add()
    folder = Path(tempfile.mkdtemp(prefix="floodmark-bench-"))
    folder.chmod(0o755)
    try:
        with Stack(folder / "stack", print) as stack:
            emulator.measure(stack, report)
            source.measure(stack.source, psutil.Process(stack.emulator.process.pid), report, source.Sizes())
            window.measure(stack, report, folder)
            many_tables.measure(stack, report, folder)
            asked.measure(stack, report)
            idle.measure(stack, report)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    (Path(__file__).parent / "report.md").write_text("\n".join(report.lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
