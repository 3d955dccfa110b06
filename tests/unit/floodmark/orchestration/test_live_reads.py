"""Reads of sources that several viewers share."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

from floodmark.orchestration.pages.content import LiveReads


def test_result_is_shared_while_it_is_new_and_by_key() -> None:
    numbers = itertools.count()
    reads = LiveReads()
    assert [reads.read(key, lambda: next(numbers)) for key in ("a", "a", "b", "a")] == [0, 0, 1, 0]


def test_result_that_is_old_is_read_again() -> None:
    numbers = itertools.count()
    reads = LiveReads(kept_seconds=0)
    assert [reads.read("a", lambda: next(numbers)) for _ in range(3)] == [0, 1, 2]


def test_those_who_ask_at_the_same_time_wait_for_one_read() -> None:
    numbers = itertools.count()
    reads, both = LiveReads(), threading.Barrier(8)

    def ask(_: int) -> int:
        both.wait(timeout=30)
        return int(reads.read("a", lambda: next(numbers)))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8))) == [0] * 8


def test_slots_are_limited_and_given_back() -> None:
    reads = LiveReads(at_once=1)
    with reads.slot() as first, reads.slot() as second:
        assert (first, second) == (True, False)
    with reads.slot() as again:
        assert again
