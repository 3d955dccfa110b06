"""The same window into a current table, with and without masks, a log and a history: what a style costs.

Each target has a million keys before it; log and history have five changes of each key. These rows are made in the
warehouse. Four pipelines read the same changes of one table, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmarks.emulator import wait_until_captured
from benchmarks.large_targets import SEEDS, insert_changes, prepare_source
from benchmarks.measuring import MASK_KEY, Report, cpu_seconds
from benchmarks.window import HASHED, configure, last_window, run
from floodmark_laptop.stack import Stack

LIMITS = {"masked": 1.15, "log": 1.0, "history": 3.0}
_DATABASE = "Styles"
_KEYS, _CHANGES, _EVENTS = 1_000_000, 200_000, 5
_ROUNDS = 2
_STYLES: dict[str, dict[str, object]] = {
    "current": {},
    "masked": {"columns": {name: {"mask": "hash"} for name in HASHED}, "mask_key_conn_id": MASK_KEY},
    "log": {"style": "log"},
    "history": {"style": "history"},
}
_VALUES = {
    '"ID"': "k",
    '"Quantity"': "k * 7000000001",
    '"Name"': "'näme ' || k",
    '"Amount"': "k + 0.25",
    '"ChangedAt"': "timestamp '2026-03-01 12:00'",
    '"IsActive"': "k % 2 = 0",
    '"ExternalID"': "'00000000-0000-0000-0000-000000000000'::uuid",
    '"Payload"': "'\\x0000000000000000'::bytea",
    "__lsn": "decode(lpad(to_hex(e), 20, '0'), 'hex')",
    "__op": "4",
    "__window_id": "0",
    "__loaded_at": "now()",
}
_TIME = "timestamptz '2026-03-01 12:00+00' + {} * interval '1 day'"
_OF_LOG = {
    "__load": "0",
    "__command_id": "1",
    "__seq": "decode(lpad(to_hex(k), 20, '0'), 'hex')",
    "__committed_at": _TIME.format("e"),
}
_OF_HISTORY = {
    "__load": "0",
    "__deleted": "false",
    "__committed_at": _TIME.format("e"),
    "__kept": "'{}'",
    "__valid_from": _TIME.format("e"),
}
_OF_ENDED = {
    "__next_load": "0",
    "__next_lsn": "decode(lpad(to_hex(e + 1), 20, '0'), 'hex')",
    "__valid_to": _TIME.format("(e + 1)"),
}


def measure(stack: Stack, report: Report, folder: Path) -> None:
    report.add(f"## {_CHANGES:,} changes into {_KEYS:,} keys by style, {_EVENTS} changes of each key before, 2 cores")
    prepare_source(stack, _DATABASE)
    configs = {
        style: configure(stack, folder, _DATABASE, f"styled_{style}", **settings) for style, settings in _STYLES.items()
    }
    for style, config in configs.items():
        run(stack, config, 0, sample_memory=False)  # the first load, of no row: it creates the target
        _fill(stack, style)
    loads: dict[str, float] = dict.fromkeys(_STYLES, 0.0)
    backends: dict[str, float] = dict.fromkeys(_STYLES, 0.0)
    for number in range(_ROUNDS):
        _change(stack, number)
        for style, config in configs.items():
            with _cpu(stack, backends, style):
                loads[style] += run(stack, config, _CHANGES, sample_memory=False).load_seconds
    rows: list[tuple[object, ...]] = []
    for style in _STYLES:
        ratio = f"**{loads[style] / loads['current']:.2f}** (at most {LIMITS[style]:g})" if style in LIMITS else ""
        cpu = backends[style]
        rows.append((style, f"{loads[style]:.1f}", ratio, f"{cpu:.1f}", f"{cpu / backends['current']:.2f}"))
    report.table(
        ("style", f"{_ROUNDS} loads, seconds", "load / current", "CPU seconds of PostgreSQL", "CPU / current"), rows
    )


@contextmanager
def _cpu(stack: Stack, backends: dict[str, float], style: str) -> Iterator[None]:
    """Add the processor time of PostgreSQL during the block."""
    with stack.connect_warehouse() as session:
        session.execute("CHECKPOINT")  # what the window before has left is not part of this one
    postmaster = int((stack.state_dir / "warehouse" / "cluster" / "postmaster.pid").read_text().splitlines()[0])
    before = cpu_seconds(postmaster)
    yield
    backends[style] += cpu_seconds(postmaster) - before


def _change(stack: Stack, number: int) -> None:
    """Change every fifth key: as inserts at the source the first time, then as updates."""
    if number == 0:
        insert_changes(stack, _DATABASE, _CHANGES, _KEYS // _CHANGES)
    else:
        with stack.connect_source(_DATABASE) as connection:
            connection.cursor().execute("UPDATE dbo.Wide SET Quantity = Quantity + 1, Amount = Amount + 1")
    wait_until_captured(stack, _DATABASE, 2 * SEEDS + (number + 1) * _CHANGES, "WHERE __$operation <> 3")


def _fill(stack: Stack, style: str) -> None:
    """Give a target its rows, as windows and a vacuum leave it."""
    target = last_window(stack).tables[0].target
    with stack.connect_warehouse() as session:
        session.autocommit = True
        if style == "history":
            _insert(session, f"{target}_versions", _VALUES | _OF_HISTORY | _OF_ENDED, range(1, _EVENTS))
            _insert(session, f"{target}", _VALUES | _OF_HISTORY, [_EVENTS])
        elif style == "log":
            _insert(session, f"{target}", _VALUES | _OF_LOG, range(1, _EVENTS + 1))
        else:
            hashes = {f'"{name}"': "encode(sha256(int4send(k)), 'hex')" for name in HASHED if style == "masked"}
            _insert(session, f"{target}", _VALUES | hashes | {"__deleted": "false"}, [_EVENTS])


def _insert(session: psycopg.Connection, table: str, values: dict[str, str], events: Sequence[int]) -> None:
    for event in events:
        session.execute(
            f"INSERT INTO {table} ({', '.join(values)}) SELECT {', '.join(values.values())}"
            f" FROM generate_series(0, {_KEYS} - 1) AS k, (VALUES ({event})) AS one (e)"
        )
    session.execute(f"VACUUM (ANALYZE) {table}")
