"""The source's clock and log for replays, over the wire: counts, and an hour that its clock shows twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cdc_database import CdcDatabase
from emulator_process import running_emulator
from floodmark.core.errors import WindowExpiredError
from floodmark.core.position import Interval, Lsn
from floodmark.core.recovery import NoInterval, covering_times, interval_of
from floodmark.sources.cdc.operations import SqlServerReplaySource
from floodmark.sources.sqlserver.driver import SqlServerConnection


@dataclass
class Berlin:
    """A server in Berlin on the night on which summer time ends: 02:00 to 03:00 comes twice."""

    database: CdcDatabase
    source: SqlServerReplaySource

    def commit(self) -> Lsn:
        """One row, captured."""
        self.database.run("INSERT dbo.Orders DEFAULT VALUES")
        self.database.scan()
        return Lsn(bytes(self.database.change_table("dbo_Orders")[-1]["__$start_lsn"]))

    def later(self, minutes: int) -> None:
        self.database.run(f"EXEC emulator.advance_clock @seconds = {minutes * 60}")

    def between(self, begin: datetime, end: datetime) -> Interval | NoInterval:
        spans = self.source.read_local_time(begin), self.source.read_local_time(end)
        from_at, to_at = covering_times(*spans)
        return interval_of("shop", from_at, to_at, self.source.map_times(from_at, to_at))


@pytest.fixture(scope="module")
def berlin(open_dir: Path) -> Iterator[Berlin]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        with (
            running_emulator(open_dir / "berlin", databases=("Shop",)) as emulator,
            emulator.connect_pymssql("Shop", autocommit=True) as connection,
        ):
            shop = CdcDatabase("Shop", connection)
            shop.run("EXEC emulator.set_clock @now = '2026-10-24T12:00:00'")
            # By UTC, because the season that it is really decides what a local time of another one is.
            wait = datetime(2026, 10, 24, 22, 30) - shop.scalar("GETUTCDATE()")
            shop.run(f"EXEC emulator.advance_clock @seconds = {int(wait.total_seconds())}", "EXEC sys.sp_cdc_enable_db")
            shop.run("CREATE TABLE dbo.Orders (Id int IDENTITY PRIMARY KEY)")
            shop.enable("Orders")
            at = SqlServerConnection(
                emulator.host, emulator.port, "Shop", emulator.user, emulator.password, ca_file=str(emulator.ca_file)
            )
            yield Berlin(shop, SqlServerReplaySource(at))


def test_moments_are_given_in_the_servers_own_time_of_then_and_not_by_todays_offset(berlin: Berlin) -> None:
    summer = berlin.source.read_local_time(datetime(2026, 7, 1, 12, tzinfo=UTC))
    winter = berlin.source.read_local_time(datetime(2026, 12, 1, 12, 0, 0, 500_000, tzinfo=UTC))
    assert summer.earliest == summer.latest == datetime(2026, 7, 1, 14)
    assert winter.earliest == datetime(2026, 12, 1, 13, 0, 0, 500_000)


def test_an_hour_that_comes_twice_is_replayed_with_both_its_passes(berlin: Berlin) -> None:
    berlin.later(60)
    commits = [berlin.commit()]
    for _ in range(3):
        berlin.later(60)
        commits.append(berlin.commit())
    local = [
        row["tran_end_time"]
        for row in berlin.database.query(
            "SELECT m.tran_end_time FROM cdc.lsn_time_mapping AS m"
            " JOIN cdc.dbo_Orders_CT AS c ON c.[__$start_lsn] = m.start_lsn ORDER BY m.start_lsn"
        )
    ]
    assert [at.hour for at in local] == [1, 2, 2, 3]
    first_pass = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    for begin in (first_pass, first_pass + timedelta(hours=1)):
        found = berlin.between(begin - timedelta(minutes=10), begin + timedelta(minutes=10))
        assert isinstance(found, Interval)
        assert [lsn in found for lsn in commits] == [False, True, True, False]
    before = berlin.between(first_pass - timedelta(minutes=70), first_pass - timedelta(minutes=50))
    assert isinstance(before, Interval)
    assert [lsn in before for lsn in commits] == [True, False, False, False]
    with pytest.raises(WindowExpiredError, match="begins before the log"):
        berlin.between(first_pass - timedelta(days=1), first_pass)
    later = berlin.between(first_pass + timedelta(days=1), first_pass + timedelta(days=2))
    assert isinstance(later, NoInterval)
    assert f"only to {local[-1]:%Y-%m-%d %H:%M:%S}: its changes are not known yet" in later.reason


def test_changes_are_counted_in_their_interval_without_the_images_before_an_update(berlin: Berlin) -> None:
    after = berlin.commit()
    berlin.database.run(
        "ALTER TABLE dbo.Orders ADD Amount int",
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo',"
        " @source_name = N'Orders', @role_name = NULL, @capture_instance = N'Second'",
    )
    berlin.database.scan()
    berlin.database.run("UPDATE dbo.Orders SET Amount = 1 WHERE Id = 1")
    to = berlin.commit()
    assert berlin.source.count_changes({"dbo_Orders": Interval(after, to), "Second": Interval(after, to)}) == {
        "dbo_Orders": 1,
        "Second": 2,
    }
    assert berlin.source.count_changes({"Second": Interval(after, to)}, limit=1) == {"Second": 1}
