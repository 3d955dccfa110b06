"""Floodmark and Debezium on the same change tables, one after the other, and the ratio of their rates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import window
from benchmarks.measuring import Report, cpu_seconds
from benchmarks.peers import backlog
from benchmarks.peers.backlog import Backlog
from benchmarks.peers.debezium import Debezium, Reading, jdbc_sink
from benchmarks.peers.debezium_jars import VERSION, Installation
from floodmark_laptop.stack import Stack

LEAST, LEAST_OF_MANY = 8, 3
"""The ratios to aim at, for one table and for many: Floodmark to the merged row, Debezium to that of its sink."""


@dataclass(frozen=True)
class Figure:
    """One reader's time for the whole backlog."""

    name: str
    changes: int
    seconds: float
    start_seconds: float
    source_cpu_seconds: float

    @property
    def rate(self) -> float:
        """Changes per second, without the start."""
        return self.changes / self.seconds

    @property
    def whole_seconds(self) -> float:
        """The seconds with the start, in which Debezium also runs its statements for all tables."""
        return self.start_seconds + self.seconds

    @property
    def own_seconds(self) -> float:
        """The whole seconds less the processor time of the source, as if both had never worked at once."""
        return self.whole_seconds - self.source_cpu_seconds

    def row(self) -> tuple[object, ...]:
        """Return a row of the report."""
        share = f"{self.source_cpu_seconds:.1f} ({100 * self.source_cpu_seconds / self.seconds:.0f} %)"
        return (self.name, f"{self.seconds:.1f}", f"{self.rate:,.0f}", f"{self.start_seconds:.1f}", share)


def measure(stack: Stack, report: Report, folder: Path, debezium: Installation, shape: tuple[int, int]) -> None:
    """Compare both on so many tables with so many changes each."""
    tables, changes = shape
    report.add(f"## {tables} {'table' if tables == 1 else 'tables'} × {changes:,} changes")
    work = backlog.prepare(stack, folder, tables, changes)
    schema = f"debezium_{work.database.lower()}"
    with stack.connect_warehouse() as connection:
        connection.execute(f"CREATE SCHEMA {schema} AUTHORIZATION floodmark")
    sink = jdbc_sink(stack.warehouse_address, schema)
    # The state before the changes: each reader loads the whole tables, into targets of its own.
    first = Debezium(debezium, stack.source, work.database, folder / f"{schema}_first")
    window.run(stack, work.config, work.whole, sample_memory=False)
    first.read(work.whole, sink)
    work.change(stack)
    floodmark = _floodmark(stack, work)
    _check(stack, work, "Floodmark", list(work.targets.values()))
    bare = _debezium(stack, first.copy_to(folder / f"{schema}_bare"), work, "Debezium, events counted", {})
    full = _debezium(stack, first.copy_to(folder / f"{schema}_full"), work, "Debezium to its JDBC sink", sink)
    _check(stack, work, "Debezium", [f'{schema}."{name}"' for name in work.targets])
    _tabulate(report, LEAST if tables == 1 else LEAST_OF_MANY, floodmark, bare, full)


def _floodmark(stack: Stack, work: Backlog) -> Figure:
    cpu = _source_cpu(stack)
    found = window.run(stack, work.config, work.whole, sample_memory=False)
    return Figure("Floodmark to the merged row", work.whole, found.load_seconds, found.start_seconds, cpu())


def _debezium(stack: Stack, reader: Debezium, work: Backlog, name: str, sink: dict[str, str]) -> Figure:
    cpu = _source_cpu(stack)
    found: Reading = reader.read(work.whole, sink)
    return Figure(name, work.whole, found.seconds, found.start_seconds, cpu())


def _source_cpu(stack: Stack) -> Callable[[], float]:
    """Return a function for the processor time of the source since this call."""
    pid = stack.emulator.process.pid
    before = cpu_seconds(pid)
    return lambda: cpu_seconds(pid) - before


def _check(stack: Stack, work: Backlog, reader: str, targets: list[str]) -> None:
    if work.read_target(stack, targets) != work.read_source(stack):
        raise RuntimeError(f"{reader}'s targets differ from the source after the run")


def _tabulate(report: Report, least: int, floodmark: Figure, bare: Figure, full: Figure) -> None:
    header = ("reader", "seconds", "changes/s", "start before the first, seconds", "CPU of the source, seconds (share)")
    report.table(header, [each.row() for each in (floodmark, bare, full)])
    report.table((f"Floodmark to the merged row / Debezium {VERSION}", "ratio"), ratios(least, floodmark, bare, full))


def ratios(least: int, floodmark: Figure, bare: Figure, full: Figure) -> list[tuple[object, ...]]:
    """Return the rows of the ratios: how often as many changes per second, with starts and source, and without.

    least: the ratio to Debezium's sink that is aimed at.
    """
    rows: list[tuple[object, ...]] = [
        (f"**to its JDBC sink** (at least {least})", f"**{floodmark.rate / full.rate:.1f}**"),
        ("events counted, without a sink", f"{floodmark.rate / bare.rate:.1f}"),
        ("to its JDBC sink, both with their starts", f"{full.whole_seconds / floodmark.whole_seconds:.1f}"),
    ]
    # Where much of the source's work went on while the reader worked, nothing is left to compare.
    if floodmark.own_seconds > 0 and full.own_seconds > 0:
        without = f"{full.own_seconds / floodmark.own_seconds:.1f}"
        rows.append(("the same, both less the processor time of the source", without))
    return rows
