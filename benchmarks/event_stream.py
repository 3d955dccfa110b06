"""A window of events from a capture folder: what each stage costs in one process, and the load of all of them.

``python -m benchmarks event_stream`` measures it alone.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from benchmarks.capture_files import CaptureWriter
from benchmarks.event_decode import COLUMNS, TABLE, make_messages
from benchmarks.measuring import Report
from floodmark.core.settings import TemporalPolicy
from floodmark.sources.event_stream.epochs import BatchDecoder
from floodmark.sources.event_stream.rows import TableRows
from floodmark.sources.event_stream.stream_pass import chunk_messages
from floodmark.sources.event_stream.transport import CaptureFolder
from floodmark_laptop import shop
from floodmark_laptop.stack import Stack
from sqlserver_emulator.event_stream.encoding import MessageForm

EVENTS = 1_000_000
LIMIT = 60_000
_PARTITIONS = 4
_FILE = 20_000
_PIPELINE = "events"


def measure(stack: Stack, report: Report, folder: Path) -> None:
    hub = folder / "captures" / "hub"
    hub.mkdir(parents=True)
    stack.use_source_database(shop.DATABASE)  # that of the events, whichever section came before
    _create_table(stack)
    config = _configure(folder)
    environment = stack.airflow.environment() | {
        "AIRFLOW_CONN_BENCH_HUB": json.dumps({"conn_type": "fs", "extra": {"path": str(hub)}})
    }
    _run(environment, config)  # the first load of an empty table
    _write(hub)
    stages = [(name, _seconds(work)) for name, work in _stages(CaptureFolder(str(hub)))]
    load = _run(environment, config)
    with stack.connect_warehouse() as connection:
        loaded = connection.execute("SELECT count(*) FROM events.wide").fetchone()
    assert loaded == (EVENTS,), loaded
    report.add(f"## An event stream: {EVENTS:,} inserts of 8 columns in one window, from a capture folder")
    rows: list[tuple[object, ...]] = [(name, f"{took:.1f}", f"{EVENTS / took:,.0f}") for name, took in stages]
    rows.append(
        (
            f"the whole load: these, net changes, staging, merge (at least {LIMIT:,})",
            f"{load:.1f}",
            f"{EVENTS / load:,.0f}",
        )
    )
    report.table(("one process, each stage with those before it", "seconds", "events a second"), rows)
    report.add(f"Load / read, decoded and as Arrow batches: {load / stages[-1][1]:.2f}")


def _stages(stream: CaptureFolder) -> list[tuple[str, Callable[[], object]]]:
    def fetch() -> None:
        for number, end in stream.read_ends().items():
            for _ in stream.read(number, end.low, end.high):
                continue

    def decode(*, builds: bool = False) -> None:
        decoder, rows = BatchDecoder(), TableRows(TABLE, TemporalPolicy.TRUNCATE)
        for number, end in stream.read_ends().items():
            for found in chunk_messages(stream.read(number, end.low, end.high)):
                for form, each in decoder.decode([message.body or b"" for message in found]).rows.items():
                    for _ in rows.build(form, each) if builds else ():
                        continue

    return [
        ("messages read from the files", fetch),
        ("and decoded", decode),
        ("and as Arrow batches", lambda: decode(builds=True)),
    ]


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _write(hub: Path) -> None:
    writer = CaptureWriter(hub, block_bytes=64 << 10)
    messages = make_messages(EVENTS, "INS", MessageForm())
    for place, first in enumerate(range(0, EVENTS, _FILE)):
        writer.write(place % _PARTITIONS, messages[first : first + _FILE])


def _create_table(stack: Stack) -> None:
    definition = ", ".join(f"{name} {declared}" for name, declared, _ in COLUMNS)
    with stack.connect_source("master") as connection:
        shop.create_database(connection)
    with stack.connect_source() as connection:
        connection.cursor().execute(f"CREATE TABLE {TABLE.name} ({definition}, PRIMARY KEY (ID))")


def _configure(folder: Path) -> Path:
    config = folder / "events.yaml"
    source = {"conn_id": "shop_mssql", "kind": "event_stream", "stream_conn_id": "bench_hub"}
    tables = [{"source": str(TABLE.name), "target": "events.wide"}]
    document = {
        "sources": {_PIPELINE: source},
        "warehouse": {"conn_id": "warehouse"},
        "pipelines": {_PIPELINE: {"source": _PIPELINE, "schedule": "0 0 1 1 *", "tables": tables}},
    }
    config.write_text(yaml.safe_dump(document), encoding="utf-8")
    return config


def _run(environment: dict[str, str], config: Path) -> float:
    """Run the pipeline once. Return the seconds of the load, without the start of Java."""
    command = [str(Path(sys.executable).parent / "floodmark"), "run", _PIPELINE, "--config", str(config)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    log = done.stdout + done.stderr
    found = re.search(r"The load took ([\d.]+) s", log)
    if done.returncode != 0 or found is None:
        raise RuntimeError(f"floodmark run ended with {done.returncode}:\n{log[-4000:]}")
    return float(found[1])
