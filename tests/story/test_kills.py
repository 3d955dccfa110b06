"""kill -9 of commands, their loads, the source and the warehouse, in each step of runs, loads, replays and switches of
capture instances, under a workload that also adds columns, on each kind of source, and of the Kafka broker in between.
Commands are also paused, and woken after another run. Troubles begin between two kills and last for some more: targets
are dropped, emptied or renamed, the ledger is lost or older than they are, warehouse or source are restored, rules fail
and are corrected, triggers refuse rows, a clock is set. A second pipeline reads the same source. In the end source and
warehouse are equal, row by row.

FLOODMARK_TORTURE_KILLS: how often, over all kinds of source. FLOODMARK_TORTURE_SEED: which moments.
FLOODMARK_TORTURE_WRITES: transactions of the workload in a second. FLOODMARK_TORTURE_SPARK=1: with Spark and Great
Expectations in every run, and also kills of Spark's processes alone. ``make torture`` does all of it.
FLOODMARK_TORTURE_CARDS: a regular expression; only the kills that it finds in lines such as "target dropped in run".
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from torture_fleet import FleetTortureRig
from torture_kafka import KafkaTortureRig
from torture_rig import CDC_NET, CHANGE_TRACKING, KillableRig, TortureRig
from torture_stream import StreamTortureRig
from torturer import Torture

KILLS = int(os.environ.get("FLOODMARK_TORTURE_KILLS", "20"))
SEED = int(os.environ.get("FLOODMARK_TORTURE_SEED", "20261121"))
WITH_SPARK = os.environ.get("FLOODMARK_TORTURE_SPARK") == "1"

pytestmark = pytest.mark.timeout(300 + KILLS * (240 if WITH_SPARK else 30))


RIGS = {
    "cdc": (partial(TortureRig, recording=CDC_NET), 8),
    "tracking": (partial(TortureRig, recording=CHANGE_TRACKING), 3),
    "compact": (FleetTortureRig, 3),
    "stream": (StreamTortureRig, 3),
    "kafka": (KafkaTortureRig, 3),
}
"""How to make the servers of each kind of source, and how many of 20 kills it gets."""


@pytest.mark.parametrize(("make_rig", "share"), RIGS.values(), ids=RIGS)
def test_whatever_is_killed_source_and_warehouse_end_equal(
    open_dir: Path, make_rig: Callable[..., KillableRig], share: int, request: pytest.FixtureRequest
) -> None:
    kills = max(1, KILLS * share // 20)
    rig = make_rig(open_dir / request.node.callspec.id, SEED, with_spark=WITH_SPARK)
    few_kills = kills if KILLS <= 20 else 0
    torture = Torture(rig, SEED, with_spark=WITH_SPARK, has_time=KILLS >= 200, few_kills=few_kills)
    with rig.running():
        while torture.kills.total() < kills:
            torture.go_on()
        rig.end_workload()
        torture.finish()
        torture.assert_equal()
    print(f"seed {SEED}:", *(f"{count} x {card}" for card, count in sorted(torture.kills.items())), sep="\n")
    if torture.cards.size <= kills:
        assert {card.victim for card in torture.kills} >= torture.cards.victims
        assert {card.kind for card in torture.kills} >= torture.cards.kinds
