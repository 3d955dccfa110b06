"""Streams in orders that seeds draw: the target ends with the rows of the source, or a verdict says why it has not.

FLOODMARK_SCHEDULE_SEEDS=500 draws more orders than are drawn each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator_process import running_emulator
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from schedule_seeds import repeatable, schedule_seeds
from stream_schedule import DATABASE, StreamingDatabase, StreamSchedule, streaming_database


@pytest.fixture(scope="module")
def server(open_dir: Path) -> Iterator[StreamingDatabase]:
    hubs = open_dir / "scheduled-hubs"
    arguments = ("--event-hubs-folder", str(hubs), "--event-hubs-partitions", "1", "--secondary-port", "0")
    with (
        running_emulator(open_dir / "scheduled", *arguments, databases=(DATABASE,)) as emulator,
        streaming_database(emulator, hubs) as found,
    ):
        yield found


@pytest.mark.parametrize("seed", schedule_seeds(usual=2))
def test_stream_ends_with_the_rows_of_its_tables_or_a_verdict(
    server: StreamingDatabase, database: WarehouseConnection, ledger: PostgresLedger, tmp_path: Path, seed: int
) -> None:
    schedule = StreamSchedule(server, database, tmp_path, seed)
    with repeatable(
        "tests/contract/test_stream_schedules.py::test_stream_ends_with_the_rows_of_its_tables_or_a_verdict",
        seed,
        schedule.journal,
    ):
        schedule.run(steps=25)
