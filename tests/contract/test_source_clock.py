"""A source whose clock is set in the nights in which summer time begins and ends."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from cdc_database import CdcDatabase
from emulator_process import running_emulator
from floodmark.core.schema import TableName
from floodmark.core.verdicts import DEFAULT_LAG_LIMIT_SECONDS, judge_liveness
from floodmark.sources.cdc.operations import SqlServerJobs
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.sqlserver.driver import SqlServerConnection

ORDERS = TableName("dbo", "Orders")


def test_idle_source_is_not_silent_for_an_hour_when_summer_time_begins_and_commits_come_twice_when_it_ends(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    with (
        running_emulator(open_dir / "spring", databases=("Shop",)) as emulator,
        emulator.connect_pymssql("Shop", autocommit=True) as connection,
    ):
        shop = CdcDatabase("Shop", connection)
        shop.run("EXEC sys.sp_cdc_enable_db", "CREATE TABLE dbo.Orders (Id int IDENTITY PRIMARY KEY)")
        shop.enable("Orders")
        at = SqlServerConnection(
            emulator.host, emulator.port, "Shop", emulator.user, emulator.password, ca_file=str(emulator.ca_file)
        )
        shop.run("EXEC emulator.set_clock @now = '2027-03-28T01:59:00'", "INSERT dbo.Orders DEFAULT VALUES")
        shop.scan()
        assert SqlServerSource(at).read_snapshot([ORDERS]).clock_ahead_seconds == 0
        # At two it turns three.
        shop.run("EXEC emulator.set_clock @now = '2027-03-28T03:03:00'")
        seen, table_seen = SqlServerSource(at).read_snapshot([ORDERS]), SqlServerJobs(at).read_capture()
        assert seen.newest_at is not None
        assert (seen.taken_at - seen.newest_at).total_seconds() > 3600
        assert seen.seconds_behind is not None
        assert 180 <= seen.seconds_behind < 480
        assert judge_liveness(table_seen, DEFAULT_LAG_LIMIT_SECONDS).alive is not False
        shop.run("EXEC emulator.set_clock @now = '2027-03-28T06:01:00'")
        later = SqlServerSource(at).read_snapshot([ORDERS])
        assert later.seconds_behind is not None
        assert (later.clock_ahead_seconds, later.seconds_behind > DEFAULT_LAG_LIMIT_SECONDS) == (0, True)
        # At three it had turned two once more.
        shop.run("EXEC emulator.set_clock @now = '2027-10-31T03:30:00'")
        twice = SqlServerSource(at).read_snapshot([ORDERS])
        assert (twice.clock_ahead_seconds, twice.latest_commit_at - twice.taken_at) == (0, timedelta(hours=1))
        shop.run("EXEC emulator.set_clock @now = '2027-10-31T06:01:00'")
        once = SqlServerSource(at).read_snapshot([ORDERS])
        assert once.latest_commit_at == once.taken_at
