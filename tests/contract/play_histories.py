"""The play of many random histories, in this process or in several, with a line of progress."""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from history_oracle import check_end
from random_history import RandomHistory

from embedded_postgres import EmbeddedPostgres
from fast_warehouse import FastWarehouse, make_template, pooled_sessions

BATCH = 20
"""The histories that a process plays before it reports."""
_LINES = 30
_TEMPLATE = "history_template"


@dataclass(frozen=True)
class Failure:
    """A history that ended otherwise than it may, with what happened last in it."""

    seed: int
    text: str


def play(seed: int, warehouse: FastWarehouse) -> Failure | None:
    """Play one history to its end, and check it."""
    history = RandomHistory(warehouse.begin(), seed)
    try:
        history.play()
        history.end()
        check_end(history)
    except Exception:  # noqa: BLE001  (whatever it is, its seed repeats it)
        history.kill_actors()
        story = "\n".join(history.story[-_LINES:])
        return Failure(seed, f"seed {seed}: {history}\n{story}\n{traceback.format_exc(limit=-4)}")
    return None


def play_batch(data_dir: Path, seeds: Sequence[int]) -> list[Failure]:
    """Play histories one after the other, in a database of this process. Return those that failed."""
    logging.disable(logging.CRITICAL)  # thousands of refusals
    warehouse = FastWarehouse(EmbeddedPostgres(data_dir), f"histories_{os.getpid()}", _TEMPLATE)
    try:
        with pooled_sessions():
            return [failure for seed in seeds if (failure := play(seed, warehouse))]
    finally:
        logging.disable(logging.NOTSET)
        warehouse.drop()


def play_all(postgres: EmbeddedPostgres, seeds: range, processes: int, report: Callable[[str], None]) -> list[Failure]:
    """Play the histories of all seeds. report: receives a line after each batch."""
    make_template(postgres, _TEMPLATE)
    batches = [seeds[at : at + BATCH] for at in range(0, len(seeds), BATCH)]
    failures: list[Failure] = []
    began, done = time.monotonic(), 0
    for number, found in _play_batches(postgres.data_dir, batches, processes):
        failures += found
        done += number
        report(
            f"{done} of {len(seeds)} histories, {done / (time.monotonic() - began):.1f} a second, "
            f"seeds from {seeds.start}; failed: {', '.join(str(each.seed) for each in failures) or 'none'}"
        )
    return sorted(failures, key=lambda failure: failure.seed)


def _play_batches(data_dir: Path, batches: Sequence[range], processes: int) -> Iterator[tuple[int, list[Failure]]]:
    """Yield the length of each batch and its failures, as the batches end."""
    if processes == 1:
        yield from ((len(batch), play_batch(data_dir, batch)) for batch in batches)
        return
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        lengths = {pool.submit(play_batch, data_dir, batch): len(batch) for batch in batches}
        yield from ((lengths[each], each.result()) for each in as_completed(lengths))
