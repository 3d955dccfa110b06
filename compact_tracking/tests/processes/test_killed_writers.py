"""Several processes write to one file and are killed; every window between two anchors stays exact.

``COMPACT_TRACKING_SECONDS`` sets how long, ``COMPACT_TRACKING_SEED`` the random numbers.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import random_writer
from compact_files import ITEM, apply, make_file, open_file, read_rows
from compact_tracking import ChangeTracking, Operation, open_snapshot

SECONDS = float(os.environ.get("COMPACT_TRACKING_SECONDS", "4"))
SEED = int(os.environ.get("COMPACT_TRACKING_SEED", "1"))


class Writers:
    """Processes that write until they are killed, and others in their place."""

    def __init__(self, path: Path) -> None:
        self.path, self.started = path, 0
        self.running = [self._start(kind) for kind in ("library", "plain", "library", "plain")]

    def _start(self, kind: str) -> tuple[subprocess.Popen[str], str]:
        self.started += 1
        command = [sys.executable, random_writer.__file__, str(self.path), str(SEED * 1000 + self.started), kind]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        return process, kind

    def kill(self, place: int) -> None:
        process, _ = self.running[place]
        process.send_signal(signal.SIGKILL)
        with process:
            assert process.wait() == -signal.SIGKILL, "the writer ended by itself"

    def replace(self, place: int) -> None:
        self.kill(place)
        self.running[place] = self._start(self.running[place][1])


@pytest.fixture
def writers(tmp_path: Path) -> Iterator[Writers]:
    make_file(tmp_path / "device.db", ITEM, "INSERT INTO item (k, code, v) VALUES ('a', 1, 0), ('b', 2, 0)").close()
    processes = Writers(tmp_path / "device.db")
    try:
        yield processes
        assert [process.poll() for process, _ in processes.running] == [None] * 4, "a writer ended by itself"
    finally:
        for process, _ in processes.running:
            process.kill()
            with process:
                process.wait()


def test_windows_are_exact_under_kills(writers: Writers) -> None:
    file, draw = open_file(writers.path, timeout=60), random.Random(SEED)
    tracking = ChangeTracking(file)
    anchor, rows = tracking.take_anchor(), read_rows(file, "item")
    with tracking.enumerate_changes("item", anchor) as (anchor, _):
        rows = read_rows(file, "item")
    windows = changed = 0
    until = time.monotonic() + SECONDS
    while time.monotonic() < until or windows < 5:
        time.sleep(draw.random() * 0.05)
        if draw.random() < 0.2 or not windows:
            writers.replace(draw.randrange(4))
        with tracking.enumerate_changes("item", anchor) as (end, found):
            changes, truth = list(found), read_rows(file, "item")
        assert apply(rows, changes) == truth
        updated = {change.key[0] for change in changes if change.operation is Operation.UPDATE}
        assert updated == {key for key in rows.keys() & truth.keys() if rows[key] != truth[key]}
        assert all(anchor.csn <= change.csn < end.csn for change in changes)
        rows, anchor, windows, changed = truth, end, windows + 1, changed + len(changes)
    assert changed
    assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    print(f"{windows} windows, {changed} changes, {writers.started - 4} kills")


def test_snapshots_are_exact_while_processes_write(writers: Writers) -> None:
    draw, proof, rows, anchor = random.Random(SEED), None, None, None
    until, syncs = time.monotonic() + SECONDS / 2, 0
    while time.monotonic() < until or syncs < 3:
        time.sleep(draw.random() * 0.05)
        if draw.random() < 0.2:
            writers.replace(draw.randrange(4))
        with open_snapshot(writers.path, "warehouse", proof, timeout_seconds=60) as snapshot:
            truth = {row[0]: row for row in snapshot.read_rows("item")}
            if rows is not None and anchor is not None:
                assert apply(rows, snapshot.enumerate_changes("item", anchor)) == truth
            rows, anchor, proof = truth, snapshot.anchor_of("item"), snapshot.receipt.token
        syncs += 1
