"""Two schedulers, a zombie, a cleared task, a command line, reloads and replays at once, step by step in random orders.

The lease is the window's row with its attempt, the hold of a load, and compare-and-set of the watermarks
(docs/adr/0011). Each actor is a thread that stops before every call of a port; a seeded choice says who goes on. So
the calls of a run interleave in any order, and each happens alone: what goes wrong comes from the order, and can be
repeated. In between, rules set rows aside, checks fail, operators release and discard rows, changes are cleaned up, and
targets are lost (``random_history``). At the end each row is where it has to be (``history_oracle``).

``make torture-histories`` plays 10,000 histories. FLOODMARK_INTERLEAVING_SEED=17 FLOODMARK_INTERLEAVING_SEEDS=1 repeats
the one with the seed 17.
"""

from __future__ import annotations

import os

import pytest
from play_histories import play_all

from embedded_postgres import EmbeddedPostgres

SEEDS = int(os.environ.get("FLOODMARK_INTERLEAVING_SEEDS", "40"))
FIRST = int(os.environ.get("FLOODMARK_INTERLEAVING_SEED", "0"))
PROCESSES = int(os.environ.get("FLOODMARK_INTERLEAVING_PROCESSES", "1"))
BLOCK = SEEDS if PROCESSES > 1 else 10
"""The histories of one test. A machine that is busy with other work plays one in ten seconds."""
_SHOWN = 3


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, BLOCK))
def test_histories_at_random_lose_no_row_and_double_none(postgres: EmbeddedPostgres, first: int) -> None:
    seeds = range(first, min(first + BLOCK, FIRST + SEEDS))
    failures = play_all(postgres, seeds, PROCESSES, report=print)
    repeats = [
        f"FLOODMARK_INTERLEAVING_SEED={failure.seed} FLOODMARK_INTERLEAVING_SEEDS=1 "
        f"make test-one T=tests/contract/test_interleavings.py\n{failure.text}"
        for failure in failures
    ]
    assert not failures, f"{len(failures)} histories failed. To repeat them:\n" + "\n".join(repeats[:_SHOWN])
