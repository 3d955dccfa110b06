"""Fleets in orders that seeds draw: the target ends with the rows of the devices, or a verdict says why it has not.

FLOODMARK_SCHEDULE_SEEDS=500 draws more orders than are drawn each time.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from fleet_rig import FleetRig, fleet_settings
from fleet_schedule import FleetSchedule
from floodmark.core.settings import Deletes, OnGap, Style
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.filters import parse_filter
from schedule_seeds import repeatable, schedule_seeds


@pytest.mark.parametrize("seed", schedule_seeds(usual=3))
def test_fleet_ends_with_the_rows_of_its_devices_or_a_verdict(
    tmp_path: Path, database: WarehouseConnection, ledger: PostgresLedger, seed: int
) -> None:
    chance = random.Random(f"settings {seed}")
    on_gap, deletes = chance.choice(list(OnGap)), chance.choice(list(Deletes))
    style = (Style.CURRENT, Style.HISTORY, Style.LOG)[seed % 3]
    deletes = deletes if style is Style.CURRENT else Deletes.SOFT
    folder = tmp_path / "devices"
    folder.mkdir()
    where = None if style is Style.LOG else chance.choice((None, parse_filter("id <= 4 AND amount > 6")))
    settings = fleet_settings(style=style, on_gap=on_gap, deletes=deletes, where=where)
    schedule = FleetSchedule(FleetRig(folder, database, settings), seed)
    schedule.note(f"on_gap {on_gap.value}, deletes {deletes.value}, style {style.value}, {where}")
    test = "tests/contract/test_fleet_schedules.py::test_fleet_ends_with_the_rows_of_its_devices_or_a_verdict"
    with repeatable(test, seed, schedule.journal):
        schedule.run(steps=25)
