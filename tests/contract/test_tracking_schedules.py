"""Change tracking in orders that seeds draw: the target ends with the rows of the source, or a verdict says why not.

FLOODMARK_SCHEDULE_SEEDS=500 draws more orders than are drawn each time.
"""

from __future__ import annotations

import random

import pytest

from emulator_process import Emulator
from floodmark.core.settings import Deletes, OnGap
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from schedule_seeds import repeatable, schedule_seeds
from sql_client import SqlClient
from tracking_rig import tracked_tables, tracking_rig
from tracking_schedule import TrackingSchedule


@pytest.mark.parametrize("seed", schedule_seeds(usual=1))
def test_tracked_tables_end_with_their_rows_or_a_verdict(
    emulator: Emulator, database: WarehouseConnection, ledger: PostgresLedger, seed: int
) -> None:
    chance = random.Random(f"settings {seed}")
    on_gap, deletes = chance.choice(list(OnGap)), chance.choice(list(Deletes))
    settings = tracked_tables("Orders", "Lines", on_gap=on_gap, deletes=deletes)
    with (
        tracking_rig(emulator, database, settings, ()) as rig,
        emulator.connect_pymssql(rig.at.database, autocommit=True) as connection,
    ):
        schedule = TrackingSchedule(rig, SqlClient(connection), seed)
        schedule.note(f"on_gap {on_gap.value}, deletes {deletes.value}")
        test = "tests/contract/test_tracking_schedules.py::test_tracked_tables_end_with_their_rows_or_a_verdict"
        with repeatable(test, seed, schedule.journal):
            schedule.run(steps=25)
