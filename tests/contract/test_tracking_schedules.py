"""Change tracking in orders that seeds draw: the target ends with the rows of the source, or a verdict says why not.

FLOODMARK_SCHEDULE_SEEDS=500 draws more orders than are drawn each time.
"""

from __future__ import annotations

import random

import pytest

from emulator_process import Emulator
from floodmark.core.settings import Deletes, OnGap, Style
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


BROKEN = """
    SELECT count(*) FROM (
        SELECT __load, __lsn, __valid_from, __valid_to, __next_load, __next_lsn, __deleted,
            lead(__load) OVER w AS next_load, lead(__lsn) OVER w AS next_lsn, lead(__deleted) OVER w AS next_deleted
        FROM shop.{}_history WINDOW w AS (PARTITION BY {} ORDER BY __load, __lsn)
    ) AS v
    WHERE (__next_load, __next_lsn) IS DISTINCT FROM (next_load, next_lsn) OR __valid_to < __valid_from
        OR (__deleted AND next_deleted)
"""


@pytest.mark.parametrize("seed", schedule_seeds(usual=1))
def test_tracked_histories_end_with_the_rows_of_the_source_and_chains_of_versions(
    emulator: Emulator, database: WarehouseConnection, ledger: PostgresLedger, seed: int
) -> None:
    on_gap = random.Random(f"settings {seed}").choice(list(OnGap))
    settings = tracked_tables("Orders", "Lines", on_gap=on_gap, style=Style.HISTORY)
    with (
        tracking_rig(emulator, database, settings, ()) as rig,
        emulator.connect_pymssql(rig.at.database, autocommit=True) as connection,
    ):
        schedule = TrackingSchedule(rig, SqlClient(connection), seed, keeps_snapshots=True)
        schedule.note(f"on_gap {on_gap.value}")
        test = (
            "tests/contract/test_tracking_schedules.py"
            "::test_tracked_histories_end_with_the_rows_of_the_source_and_chains_of_versions"
        )
        with repeatable(test, seed, schedule.journal):
            schedule.run(steps=25)
            assert rig.rows(BROKEN.format("orders", '"Id"')) == [(0,)]
            assert rig.rows(BROKEN.format("lines", '"Id", "B"')) == [(0,)]
