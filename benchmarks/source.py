"""The emulator from all its sides: rows to each client, transactions, the capture job, an idle server, connections.

``python -m benchmarks.source --scale 0.01`` tries it with small numbers on an emulator of its own, without a report.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import psutil

from benchmarks import wide_table
from benchmarks.drivers import CLIENTS, Address, connect_pymssql
from benchmarks.measuring import Report, create_database, seconds
from benchmarks.other_runtimes import read_by_jdbc, read_by_tedious
from sqlserver_emulator.testing import running_emulator

DATABASE = "Source"
_REST_SECONDS = 8.0
"""The time after the last change until nothing is left to do."""
_SMALL = (
    "CREATE TABLE dbo.Small (ID int NOT NULL, Worker int NOT NULL, Name nvarchar(20) NULL, PRIMARY KEY (Worker, ID))"
)
_BATCH_ROWS = 50
_LOAD_PER_SECOND = 1_000
_WAIT_SECONDS = 900.0
_CAPTURE_TARGET = "50,000"


@dataclass(frozen=True)
class Sizes:
    """At scale 1."""

    rows: int = 300_000
    transactions: int = 3_000
    changes: int = 1_000_000
    latency_samples: int = 30
    idle_seconds: float = 20.0
    connections: int = 50

    def scaled(self, scale: float) -> Sizes:
        return Sizes(
            max(2_000, int(self.rows * scale)),
            max(80, int(self.transactions * scale)),
            max(5_000, int(self.changes * scale)),
            max(3, int(self.latency_samples * scale)),
            max(2.0, self.idle_seconds * scale),
            max(5, int(self.connections * scale)),
        )


def measure(address: Address, process: psutil.Process, report: Report, sizes: Sizes) -> None:
    """``process``: the emulator's."""
    report.add("## The source, client by client")
    with connect_pymssql(address, "master") as connection:
        create_database(connection, DATABASE)
    with connect_pymssql(address, DATABASE) as connection:
        wide_table.create(connection, tracked=False)
        wide_table.fill(connection, sizes.rows)
        connection.cursor().execute(_SMALL)
    figures = [*_clients(address, sizes), *_other_runtimes(address, sizes), *_transactions(address, sizes)]
    figures.append(_memory(address, process, sizes))
    with connect_pymssql(address, DATABASE) as connection:
        connection.cursor().execute("EXEC sys.sp_cdc_enable_db")
        connection.cursor().execute("EXEC sys.sp_cdc_enable_table N'dbo', N'Small', @role_name = NULL")
    figures += [*_idle(process, sizes), _sustained(address, sizes), *_latency(address, sizes)]
    report.table(("what", "figure", "target"), figures)


Figure = tuple[object, ...]


def _clients(address: Address, sizes: Sizes) -> list[Figure]:
    statement = f"SELECT {wide_table.COLUMNS} FROM {wide_table.TABLE}"
    figures: list[Figure] = []
    for name, (connect, read) in CLIENTS.items():
        what = f"rows/s of 8 columns to {name}"
        try:
            connection = connect(address, DATABASE)
        except Exception as error:  # noqa: BLE001 - a driver that this machine cannot load says so in its own way
            figures.append((what, f"not measured: {type(error).__name__}", ""))
            continue
        try:
            spent = seconds(lambda: read(connection, statement))  # noqa: B023 - called here
            figures.append((what, f"{sizes.rows / spent:,.0f}", ""))
        finally:
            connection.close()
    return figures


def _other_runtimes(address: Address, sizes: Sizes) -> list[Figure]:
    statement = f"SELECT {wide_table.COLUMNS} FROM {wide_table.TABLE}"
    figures: list[Figure] = []
    for name, read in (("mssql-jdbc, below Spark", read_by_jdbc), ("tedious", read_by_tedious)):
        what = f"rows/s of 8 columns to {name}"
        try:
            figures.append((what, f"{sizes.rows / read(address, DATABASE, statement):,.0f}", ""))
        except (OSError, subprocess.SubprocessError) as error:
            figures.append((what, f"not measured: {error}", ""))
    return figures


def _insert(worker: int, first: int, rows: int) -> str:
    values = ", ".join(f"({number}, {worker}, N'näme')" for number in range(first, first + rows))
    return f"INSERT INTO dbo.Small (ID, Worker, Name) VALUES {values}"


@dataclass(frozen=True)
class Login:
    """An address that can be sent to another process."""

    host: str
    port: int
    user: str
    password: str
    ca_file: str

    @classmethod
    def of(cls, address: Address) -> Login:
        return cls(address.host, address.port, address.user, address.password, str(address.ca_file))


_gates: list[Barrier] = []
"""Of a writing process: where it waits, connected, until all others are."""


def _take_gate(gate: Barrier) -> None:
    _gates.append(gate)


def _write(login: Login, worker: int, transactions: int, rows: int) -> tuple[float, float]:
    """One connection's work, in a process of its own. Returns when it began and ended (wall clock)."""
    with connect_pymssql(login, DATABASE) as connection:
        cursor = connection.cursor()
        _gates[0].wait(_WAIT_SECONDS)
        began = time.time()
        for number in range(transactions):
            cursor.execute(_insert(worker, number * rows, rows))
        return began, time.time()


def _transactions(address: Address, sizes: Sizes) -> list[Figure]:
    figures: list[Figure] = []
    worker = 0
    for rows, what in ((1, "single-row"), (_BATCH_ROWS, f"{_BATCH_ROWS}-row")):
        for clients in (1, 8):
            each = max(1, sizes.transactions // rows if rows > 1 else sizes.transactions // clients)
            with _writers(clients) as (pool, _):
                login = Login.of(address)
                work = [pool.submit(_write, login, worker + number, each, rows) for number in range(clients)]
                spans = [future.result() for future in work]
            worker += clients
            spent = max(end for _, end in spans) - min(begin for begin, _ in spans)
            name = "one connection" if clients == 1 else f"{clients} connections"
            figures.append((f"{what} INSERT transactions/s, pymssql, {name}", f"{clients * each / spent:,.0f}", ""))
    return figures


@contextmanager
def _writers(count: int, others: int = 0) -> Iterator[tuple[ProcessPoolExecutor, Barrier]]:
    """Processes, so that the clients do not share one interpreter's lock; the gate opens for all and ``others``."""
    context = multiprocessing.get_context("spawn")
    gate = context.Barrier(count + others)
    with ProcessPoolExecutor(count, mp_context=context, initializer=_take_gate, initargs=(gate,)) as pool:
        yield pool, gate


def _memory(address: Address, process: psutil.Process, sizes: Sizes) -> Figure:
    before = _tree_bytes(process)
    connections = [connect_pymssql(address, DATABASE) for _ in range(sizes.connections)]
    for connection in connections:
        connection.cursor().execute("SELECT COUNT(*) FROM dbo.Small")
    each = (_tree_bytes(process) - before) / len(connections)
    for connection in connections:
        connection.close()
    return ("MB per idle connection, PostgreSQL's part included", f"{each / 1e6:,.1f}", "")


def _tree(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _tree_bytes(process: psutil.Process) -> int:
    """Pages that processes share count once."""
    total = 0
    for each in _tree(process):
        with suppress(psutil.Error):  # it has ended
            total += each.memory_full_info().pss
    return total


def _capture_jobs(process: psutil.Process) -> list[psutil.Process]:
    return [each for each in _tree(process) if _is_capture_job(each)]


def _is_capture_job(process: psutil.Process) -> bool:
    try:
        return "sqlserver_emulator.cdc.agent.process" in process.cmdline()
    except psutil.Error:  # it has ended
        return False


def _cpu_seconds(processes: list[psutil.Process]) -> float:
    total = 0.0
    for each in processes:
        with suppress(psutil.Error):  # it has ended
            times = each.cpu_times()
            total += times.user + times.system
    return total


def _idle(process: psutil.Process, sizes: Sizes) -> list[Figure]:
    _wait(lambda: bool(_capture_jobs(process)), 0.1)
    jobs = _capture_jobs(process)
    everything = _tree(process)
    time.sleep(_REST_SECONDS)
    jobs_before, all_before = _cpu_seconds(jobs), _cpu_seconds(everything)
    time.sleep(sizes.idle_seconds)
    share = (_cpu_seconds(jobs) - jobs_before) / len(jobs) / sizes.idle_seconds
    whole = (_cpu_seconds(everything) - all_before) / sizes.idle_seconds
    return [
        ("CPU of an idle capture job, % of a core", f"{100 * share:.2f}", ""),
        ("CPU of the whole idle emulator, % of a core", f"{100 * whole:.2f}", "0.50"),
    ]


def _captured(cursor: Any, where: str) -> int:
    cursor.execute(f"SELECT COUNT(*) FROM cdc.dbo_Small_CT WHERE {where}")
    row = cursor.fetchone()
    return int(row[0])


def _wait(condition: Callable[[], bool], pause_seconds: float) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the capture job does not get there")
        time.sleep(pause_seconds)


def _sustained(address: Address, sizes: Sizes) -> Figure:
    """A backlog of transactions of a thousand rows each, captured from the job's start to the last change."""
    with connect_pymssql(address, DATABASE) as connection:
        cursor = connection.cursor()
        cursor.execute("EXEC sys.sp_cdc_stop_job N'capture'")
        count = 0
        while count < sizes.changes:
            cursor.execute(
                f"INSERT INTO dbo.Small (ID, Worker, Name) SELECT {count} + value, 1000, N'näme' "
                "FROM GENERATE_SERIES(1, 1000)"
            )
            count += 1000
        began = time.perf_counter()
        cursor.execute("EXEC sys.sp_cdc_start_job N'capture'")
        _wait(lambda: _captured(cursor, "Worker = 1000") >= count, 0.1)
        spent = time.perf_counter() - began
    return ("row changes/s of the capture job, sustained", f"{count / spent:,.0f}", _CAPTURE_TARGET)


def _load(login: Login, worker: int, rate: float, lasts_seconds: float) -> int:
    """Single-row transactions at an even rate. Returns how many."""
    done = 0
    with connect_pymssql(login, DATABASE) as connection:
        cursor = connection.cursor()
        _gates[0].wait(_WAIT_SECONDS)
        began = time.perf_counter()
        while time.perf_counter() < began + lasts_seconds:
            ahead = began + done / rate - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
            cursor.execute(_insert(worker, done, 1))
            done += 1
    return done


def _latency(address: Address, sizes: Sizes) -> list[Figure]:
    """From the commit of a marked row to its change, while others write."""
    login, workers = Login.of(address), 4
    lasts_seconds = max(3.0, 1.5 * sizes.latency_samples)
    latencies: list[float] = []
    with _writers(workers, others=1) as (pool, gate):
        rate = _LOAD_PER_SECOND / workers
        loads = [pool.submit(_load, login, 2000 + number, rate, lasts_seconds) for number in range(workers)]
        gate.wait(_WAIT_SECONDS)
        until = time.perf_counter() + lasts_seconds
        with connect_pymssql(address, DATABASE) as connection:
            cursor = connection.cursor()
            while not latencies or (len(latencies) < sizes.latency_samples and time.perf_counter() < until):
                number = len(latencies)
                cursor.execute(_insert(3000, number, 1))
                committed = time.perf_counter()
                _wait(lambda: _captured(cursor, f"Worker = 3000 AND ID = {number}") > 0, 0.005)  # noqa: B023
                latencies.append(time.perf_counter() - committed)
        reached = sum(load.result() for load in loads) / lasts_seconds
    worst = max(latencies)
    return [
        ("transactions/s while latency was measured (1,000 asked for)", f"{reached:,.0f}", ""),
        ("capture latency then, median seconds", f"{statistics.median(latencies):.2f}", ""),
        (f"capture latency then, worst of {len(latencies)}, seconds", f"{worst:.2f}", ""),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=0.01)
    sizes = Sizes().scaled(parser.parse_args().scale)
    folder = Path(tempfile.mkdtemp(prefix="floodmark-bench-"))
    folder.chmod(0o755)
    try:
        with running_emulator(folder / "data", "--capture-interval", "1") as emulator:
            measure(emulator, emulator.process, Report(), sizes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
