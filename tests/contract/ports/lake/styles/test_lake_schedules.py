"""Change tracking into a lake in orders that seeds draw: its tables end with the rows of the source, or a verdict.

FLOODMARK_SCHEDULE_SEEDS=20 draws more orders than are drawn each time.
"""

from __future__ import annotations

import random

import pytest
from lake_rig import LakeRig

from emulator_process import Emulator
from floodmark.core.settings import OnGap
from schedule_seeds import repeatable, schedule_seeds
from sql_client import SqlClient
from tracking_rig import tracked_tables, tracking_rig
from tracking_schedule import TrackingSchedule

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.mark.parametrize("seed", schedule_seeds(usual=1))
def test_tables_of_a_lake_end_with_their_rows_or_a_verdict(emulator: Emulator, lake: LakeRig, seed: int) -> None:
    on_gap = random.Random(f"settings {seed}").choice(list(OnGap))
    settings = tracked_tables("Orders", "Lines", number=seed, on_gap=on_gap)
    with (
        tracking_rig(emulator, lake.at, settings, ()) as rig,
        emulator.connect_pymssql(rig.at.database, autocommit=True) as connection,
    ):
        rig.lake = lake.lake
        schedule = TrackingSchedule(rig, SqlClient(connection), seed)
        schedule.note(f"on_gap {on_gap.value}")
        file = "tests/contract/ports/lake/styles/test_lake_schedules.py"
        test = f"{file}::test_tables_of_a_lake_end_with_their_rows_or_a_verdict"
        with repeatable(test, seed, schedule.journal):
            schedule.run(steps=6)
