"""Streams in orders that seeds draw: the target ends with the rows of the source, or a verdict says why it has not.

FLOODMARK_SCHEDULE_SEEDS=500 draws more orders than are drawn each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emulator_process import running_emulator
from floodmark.core.settings import Style
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


BROKEN = """
    SELECT count(*) FROM (
        SELECT __load, __lsn, __valid_from, __valid_to, __next_load, __next_lsn,
            lead(__load) OVER w AS next_load, lead(__lsn) OVER w AS next_lsn
        FROM shop.orders_history WINDOW w AS (PARTITION BY "Id" ORDER BY __load, __lsn)
    ) AS v
    WHERE (__next_load, __next_lsn) IS DISTINCT FROM (next_load, next_lsn) OR __valid_to < __valid_from
"""


@pytest.mark.parametrize("seed", schedule_seeds(usual=1))
def test_streamed_history_ends_with_the_rows_of_its_table_and_chains_of_versions(
    server: StreamingDatabase, database: WarehouseConnection, ledger: PostgresLedger, tmp_path: Path, seed: int
) -> None:
    schedule = StreamSchedule(server, database, tmp_path, seed, Style.HISTORY)
    name = "test_streamed_history_ends_with_the_rows_of_its_table_and_chains_of_versions"
    with repeatable(f"tests/contract/test_stream_schedules.py::{name}", seed, schedule.journal):
        schedule.run(steps=15)
        assert schedule.rig.query(BROKEN) == [(0,)]


@pytest.mark.parametrize("seed", schedule_seeds(usual=1))
def test_streamed_logs_end_with_entries_that_show_the_rows_of_their_tables(
    server: StreamingDatabase, database: WarehouseConnection, ledger: PostgresLedger, tmp_path: Path, seed: int
) -> None:
    schedule = StreamSchedule(server, database, tmp_path, seed, Style.LOG)
    name = "test_streamed_logs_end_with_entries_that_show_the_rows_of_their_tables"
    with repeatable(f"tests/contract/test_stream_schedules.py::{name}", seed, schedule.journal):
        schedule.run(steps=15)
