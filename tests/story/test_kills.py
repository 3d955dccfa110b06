"""kill -9 of commands, their loads, the source and the warehouse, in each step of runs, loads, replays and switches of
capture instances, under a workload that also adds columns: in the end source and warehouse are equal, row by row.

FLOODMARK_TORTURE_KILLS: how often. FLOODMARK_TORTURE_SEED: which moments. FLOODMARK_TORTURE_SPARK=1: with Spark and
Great Expectations in every run, and also kills of Spark's processes alone. ``make torture`` does both.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torture_rig import TortureRig
from torturer import Torture

KILLS = int(os.environ.get("FLOODMARK_TORTURE_KILLS", "20"))
SEED = int(os.environ.get("FLOODMARK_TORTURE_SEED", "20261121"))
WITH_SPARK = os.environ.get("FLOODMARK_TORTURE_SPARK") == "1"

pytestmark = pytest.mark.timeout(300 + KILLS * (240 if WITH_SPARK else 30))


def test_whatever_is_killed_source_and_warehouse_end_equal(open_dir: Path) -> None:
    rig = TortureRig(open_dir / "killed", SEED, with_spark=WITH_SPARK)
    torture = Torture(rig, SEED, with_spark=WITH_SPARK)
    with rig.running():
        while torture.kills.total() < KILLS:
            torture.go_on()
        rig.end_workload()
        torture.finish()
        torture.assert_equal()
    print(f"seed {SEED}:", *(f"{count} x {card}" for card, count in sorted(torture.kills.items())), sep="\n")
    if torture.cards.size <= KILLS:
        assert {card.victim for card in torture.kills} == torture.cards.victims
        assert {card.kind for card in torture.kills} == torture.cards.kinds
