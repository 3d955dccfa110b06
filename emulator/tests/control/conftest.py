"""An emulator whose clock, faults and capture these tests may change: of their own, shared by this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator, running_emulator


@pytest.fixture(scope="session")
def controlled_emulator(shared_dir: Path) -> Iterator[Emulator]:
    with running_emulator(shared_dir / "controlled", "--capture-interval", "0.1") as running:
        yield running


@pytest.fixture
def shop(controlled_emulator: Emulator) -> Iterator[CdcDatabase]:
    """A CDC database with the tracked table dbo.t; its job runs. All controls are as on a real server afterwards."""
    with cdc_database(controlled_emulator) as database:
        database.is_job_stopped = True
        database.run(
            "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v varchar(20), at datetime2 DEFAULT SYSDATETIME())",
            "EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL",
        )
        try:
            yield database
        finally:
            database.run("EXEC emulator.reset")
