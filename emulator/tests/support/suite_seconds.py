"""Seconds of each file of tests, on the clock and on the processors, in one table that every run of many files writes.

The table orders the next run: the files that take longest on the clock begin first, because one that begins last runs
alone, and most of its time may be that of servers. A clone without a table begins with the stories. Files of a folder
that share a server stay together, in one process, and begin before them.

The processor time of a file is that of its process and of all processes below it. Work of a process whose parent ended
before it is not seen: such as that of a Java, which ends when its Python has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

_REPOSITORY = Path(__file__).parents[3]
TABLE = _REPOSITORY / "build" / "test-seconds.tsv"
_NAME = "seconds of files"
_HEAD = "wall\tcpu\ttests\tfile"
_LEAST_FILES = 40
"""A run of fewer files leaves the table alone: it may be of a few tests of each."""
_LONG_FOLDERS = ("tests/story", "tests/contract", "tests/dags", "emulator/tests")
_SHARING_FOLDERS = ("tests/contract/ports/lake/tables", "tests/contract/ports/lake/styles")
"""Folders whose files share a server that takes long to start."""
_Row = tuple[float, float, int]
"""Seconds on the clock, seconds of processor time, and tests."""


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.has_plugin(_NAME):
        config.pluginmanager.register(_SuiteSeconds(config), _NAME)


class _SuiteSeconds:
    """The seconds of the files in this process, or, in the process that starts the others, in all of them."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        # All processes of a run must have one order, also if another run writes the table meanwhile.
        given: dict[str, dict[str, float]] = getattr(config, "workerinput", {})
        self._measured = given[_NAME] if given else measure_units(read_table())
        self._files: dict[str, _Row] = {}
        self._began = _read_clocks()
        self._at = self._began
        self._tests = 0

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: _place_of(_name_of(item), self._measured))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        return _UnitScheduling(config, log) if config.getvalue("dist") == "loadfile" else None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_NAME] = self._measured

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        if not self._tests:
            self._at = _read_clocks()
        self._tests += 1
        try:
            return (yield)
        finally:
            if nextitem is None or nextitem.path != item.path:
                self._end_file(_name_of(item))

    def _end_file(self, name: str) -> None:
        now = _read_clocks()
        wall, cpu, tests = self._files.get(name, (0.0, 0.0, 0))
        self._files[name] = (wall + now[0] - self._at[0], cpu + max(0.0, now[1] - self._at[1]), tests + self._tests)
        self._tests = 0

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        self._files.update(getattr(node, "workeroutput", {}).get(_NAME, {}))

    def pytest_sessionfinish(self) -> None:
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[_NAME] = self._files

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if hasattr(self._config, "workeroutput"):
            return
        wall, cpu = (now - began for now, began in zip(_read_clocks(), self._began, strict=True))
        text = f"{cpu:.0f} s of processor time in {wall:.0f} s"
        if len(self._files) >= _LEAST_FILES:
            _write_table(self._files, wall, cpu)
            text += f"; {TABLE.relative_to(_REPOSITORY)} has those of each file"
        terminalreporter.write_line(text)


class _UnitScheduling(LoadFileScheduling):  # type: ignore[misc]
    """Each unit runs in one process."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(super()._split_scope(nodeid))


def unit_of(name: str) -> str:
    """Return what stays in one process with a file: its folder, if its files share a server, or itself."""
    return next((folder for folder in _SHARING_FOLDERS if name.startswith(f"{folder}/")), name)


def measure_units(files: dict[str, _Row]) -> dict[str, float]:
    """Return the seconds on the clock of each unit, for the rows of files."""
    seconds: dict[str, float] = {}
    for name, (wall, _, _) in files.items():
        seconds[unit_of(name)] = seconds.get(unit_of(name), 0.0) + wall
    return seconds


def _name_of(item: pytest.Item) -> str:
    return item.path.relative_to(_REPOSITORY).as_posix()


def _place_of(name: str, measured: dict[str, float]) -> tuple[float, int, str]:
    """Return what orders a file. measured: seconds of units. Files of one unit are neighbours."""
    unit = unit_of(name)
    if unit != name:
        return (-measured.get(unit, 0.0), -1, unit)
    folder = next((n for n, folder in enumerate(_LONG_FOLDERS) if name.startswith(folder)), len(_LONG_FOLDERS))
    return (-measured.get(name, 0.0), folder, "")


def read_table() -> dict[str, _Row]:
    """Return wall seconds, processor seconds and tests of each file in the last whole run; empty without one."""
    try:
        lines = TABLE.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    rows = [line.split("\t") for line in lines[1:]]
    return {row[3]: (float(row[0]), float(row[1]), int(row[2])) for row in rows if row[3] != "all"}


def _write_table(files: dict[str, _Row], wall: float, cpu: float) -> None:
    known = {name: row for name, row in read_table().items() if (_REPOSITORY / name).is_file()}
    rows = sorted((known | files).items(), key=lambda each: -each[1][1])
    lines = [f"{row[0]:.1f}\t{row[1]:.1f}\t{row[2]}\t{name}" for name, row in rows]
    count = sum(row[2] for row in files.values())
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("\n".join([_HEAD, *lines, f"{wall:.1f}\t{cpu:.1f}\t{count}\tall", ""]), encoding="utf-8")


def _read_clocks() -> tuple[float, float]:
    """Return seconds on the clock, and of processor time: of this process, of ended children, of live descendants."""
    total = sum(_seconds_of(psutil.Process()))
    for child in psutil.Process().children(recursive=True):
        try:
            total += sum(_seconds_of(child))
        except psutil.NoSuchProcess:
            continue
    return time.monotonic(), total


def _seconds_of(process: psutil.Process) -> tuple[float, float, float, float]:
    times = process.cpu_times()
    return times.user, times.system, times.children_user, times.children_system
