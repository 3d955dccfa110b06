"""The retention of a source, guarded: on a running source, with a ledger whose watermark moves or does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime

import psycopg
import pytest

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.errors import CdcNotEnabledError, WarehouseUnavailableError
from floodmark.core.position import Lsn
from floodmark.core.schema import TableName
from floodmark.core.upkeep import HOLD_MINUTES, OnLow, RetentionSettings, RetentionStep
from floodmark.postgres.ledger.schema import ensure_schema
from floodmark.postgres.ledger.status import PostgresMarkLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.cdc.operations import SqlServerRetention
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.sync.upkeep import keep_retention
from open_alerts import OpenAlerts

DAY = 1440
HOUR = 3600
ORDERS, LINES = TableName("dbo", "Orders"), TableName("dbo", "Lines")
RAISE = RetentionSettings(keep_minutes=3 * DAY, on_low=OnLow.RAISE_RETENTION)


@dataclass
class Guard:
    """Runs of the guard on one source, in parallel with a reader of dbo.Orders."""

    database: CdcDatabase
    control: SqlServerRetention
    warehouse: WarehouseConnection
    reported: OpenAlerts = field(default_factory=OpenAlerts)

    def keep(self, settings: RetentionSettings = RAISE, *tables: TableName) -> RetentionStep:
        return keep_retention(
            "shop",
            settings,
            {"sales": tables or {ORDERS}},
            control=self.control,
            ledger=PostgresMarkLedger(self.warehouse),
            alerts=self.reported,
        )

    @property
    def retention_minutes(self) -> int | None:
        return self.control.read_retention().retention_minutes

    def write(self, hours_later: float = 0.0) -> None:
        """A change, captured, after some time."""
        self.database.run(f"EXEC emulator.advance_clock @seconds = {int(hours_later * HOUR)}")
        self.database.run("INSERT dbo.Orders DEFAULT VALUES")
        self.database.scan()

    def newest(self) -> tuple[Lsn, datetime]:
        row = self.database.query(
            "SELECT TOP (1) start_lsn, tran_end_time FROM cdc.lsn_time_mapping ORDER BY start_lsn DESC"
        )[0]
        return Lsn(bytes(row["start_lsn"])), row["tran_end_time"]

    def read_all(self, table: TableName = ORDERS, ago_seconds: float = 0.0) -> Lsn:
        """A run of the pipeline publishes all there is, and a window of so long ago stood at the mark of before."""
        lsn, at = self.newest()
        with psycopg.connect(self.warehouse.conninfo()) as session:
            session.execute(
                """INSERT INTO floodmark.tables (pipeline, source_schema, source_name, target_schema, target_name,
                    watermark, watermark_at, instance_name)
                VALUES ('sales', %s, %s, 's', %s, %s, %s, %s)
                ON CONFLICT (pipeline, source_schema, source_name)
                DO UPDATE SET watermark = EXCLUDED.watermark, watermark_at = EXCLUDED.watermark_at""",
                (table.schema, table.name, table.name, lsn.value, at, f"dbo_{table.name}"),
            )
            window = session.execute(
                """INSERT INTO floodmark.windows (pipeline, to_lsn, to_lsn_at, plan, state, advanced_at)
                VALUES ('sales', %s, %s, '{}', 'advanced', now() - make_interval(secs => %s)) RETURNING window_id""",
                (lsn.value, at, ago_seconds),
            ).fetchone()
            session.execute(
                """INSERT INTO floodmark.window_tables (window_id, source_schema, source_name, kind)
                VALUES (%s, %s, %s, 'changes')""",
                ((window or (0,))[0], table.schema, table.name),
            )
        return lsn


@pytest.fixture
def guard(emulator: Emulator, database: WarehouseConnection) -> Iterator[Guard]:
    ensure_schema(database)
    with cdc_database(emulator) as made:
        made.run("CREATE TABLE dbo.Orders (Id int IDENTITY PRIMARY KEY)")
        made.run("CREATE TABLE dbo.Lines (Id int IDENTITY PRIMARY KEY)")
        made.enable("Orders")
        made.enable("Lines")
        at = SqlServerConnection(
            emulator.host, emulator.port, made.name, emulator.user, emulator.password, ca_file=str(emulator.ca_file)
        )
        yield Guard(made, SqlServerRetention(at), database)
        made.run("EXEC emulator.reset")


def test_mark_that_does_not_move_is_reported_before_it_is_lost_and_given_time(guard: Guard) -> None:
    guard.write()
    guard.read_all()
    guard.write(hours_later=40)
    assert not guard.keep().low
    assert (guard.retention_minutes, guard.reported.kinds) == (3 * DAY, [])
    guard.write(hours_later=10)
    step = guard.keep()
    assert step.low
    assert (guard.retention_minutes, guard.reported.kinds) == (3 * DAY + 3 * DAY // 4, ["retention_low"])
    what = guard.reported.open["retention_low:shop"].what
    assert "dbo.Orders in pipeline sales" in what
    assert what.startswith("The headroom is below `headroom_limit`.")
    guard.read_all()
    assert guard.keep().retention_minutes == 3 * DAY
    assert (guard.retention_minutes, guard.reported.kinds) == (3 * DAY, [])


def test_guarded_mark_survives_a_cleanup_that_would_have_passed_it(guard: Guard) -> None:
    guard.write()
    watermark = guard.read_all()
    for _ in range(10):
        guard.write(hours_later=12)
        guard.keep()
        guard.database.run("EXEC emulator.run_cleanup")
    assert Lsn(guard.database.scalar("sys.fn_cdc_get_min_lsn(N'dbo_Orders')")) <= watermark


def test_held_cleanup_deletes_nothing_and_is_given_back(guard: Guard) -> None:
    hold = replace(RAISE, on_low=OnLow.HOLD_CLEANUP)
    guard.write()
    guard.read_all()
    guard.write(hours_later=60)
    guard.keep(hold)
    assert guard.retention_minutes == HOLD_MINUTES
    guard.database.run("EXEC emulator.run_cleanup")
    assert len(guard.database.change_table("dbo_Orders")) == 2
    guard.read_all()
    guard.keep(hold)
    assert guard.retention_minutes == 3 * DAY
    assert guard.reported.outcomes == {"retention_low:shop": "The retention is 3 days, as configured."}


def test_ceiling_is_reported_as_an_alert_of_its_own(guard: Guard) -> None:
    guard.write()
    guard.read_all()
    guard.write(hours_later=200)
    guard.keep(replace(RAISE, ceiling_minutes=4 * DAY))
    assert (guard.retention_minutes, guard.reported.kinds) == (4 * DAY, ["retention_exhausted", "retention_low"])


def test_pace_is_taken_from_the_ledgers_windows(guard: Guard) -> None:
    guard.write()
    guard.read_all(ago_seconds=7 * HOUR)
    guard.write(hours_later=3.5)
    guard.read_all(ago_seconds=60)
    (mark,) = PostgresMarkLedger(guard.warehouse).read_marks(["sales"])
    assert mark.pace == pytest.approx(0.5, abs=0.01)
    assert PostgresMarkLedger(guard.warehouse).read_marks(["others"]) == []


def test_table_that_is_reloaded_needs_the_changes_since_the_load_began_and_not_those_since_its_watermark(
    guard: Guard,
) -> None:
    guard.write()
    guard.read_all()
    guard.write(hours_later=60)
    lsn, at = guard.newest()
    with psycopg.connect(guard.warehouse.conninfo()) as session:
        session.execute(
            """WITH w AS (INSERT INTO floodmark.windows (pipeline, lane, to_lsn, to_lsn_at, plan)
                VALUES ('sales', 'load dbo.Orders', %s, %s, '{}') RETURNING window_id)
            INSERT INTO floodmark.window_tables (window_id, source_schema, source_name, kind)
            SELECT window_id, 'dbo', 'Orders', 'first_load' FROM w""",
            (lsn.value, at),
        )
    (mark,) = PostgresMarkLedger(guard.warehouse).read_marks(["sales"])
    assert (mark.position, mark.at, mark.pace) == (lsn, at, 0.0)
    assert not guard.keep().low


def test_table_that_was_taken_out_of_the_configuration_holds_nothing_back(guard: Guard) -> None:
    guard.write()
    guard.read_all(LINES)
    guard.write(hours_later=60)
    guard.read_all()
    assert not guard.keep().low


def test_size_of_each_change_table_is_reported(guard: Guard, caplog: pytest.LogCaptureFixture) -> None:
    guard.write()
    guard.write()
    sizes = {size.instance: size for size in guard.control.read_retention().sizes}
    assert (sizes["dbo_Orders"].rows, sizes["dbo_Lines"].rows) == (2, 0)
    assert sizes["dbo_Orders"].size_bytes >= 8192
    with caplog.at_level("INFO"):
        guard.keep()
    assert "change table of dbo_Orders: 2 rows, " in caplog.text


def test_size_of_a_change_table_is_recorded_in_the_newest_window_of_the_table(guard: Guard) -> None:
    guard.write()
    guard.read_all()
    guard.write()
    with psycopg.connect(guard.warehouse.conninfo()) as session:
        session.execute("UPDATE floodmark.tables SET window_id = (SELECT max(window_id) FROM floodmark.windows)")
    guard.keep()
    with psycopg.connect(guard.warehouse.conninfo()) as session:
        found = session.execute("SELECT change_rows, change_bytes >= 8192 FROM floodmark.window_tables").fetchall()
    assert found == [(2, True)]


def test_change_table_beyond_its_limit_is_reported_until_it_is_smaller(guard: Guard) -> None:
    guard.write()
    size = max(each.size_bytes or 0 for each in guard.control.read_retention().sizes)
    guard.keep(replace(RAISE, change_table_limit_bytes=size - 1))
    assert guard.reported.kinds == ["change_tables_large"]
    assert "dbo_Orders has 1 rows" in guard.reported.open["change_tables_large:shop"].what
    guard.keep(replace(RAISE, change_table_limit_bytes=size))
    assert guard.reported.kinds == []


def test_cleaning_up_stays_behind_the_slowest_mark_by_the_margin(guard: Guard) -> None:
    settings = RetentionSettings(margin_seconds=2 * HOUR)
    guard.write()
    guard.read_all()
    guard.keep(settings)
    assert len(guard.database.change_table("dbo_Orders")) == 1
    for _ in range(4):
        guard.write(hours_later=1)
    watermark = guard.read_all()
    guard.write(hours_later=1)
    guard.keep(settings)
    low_end = Lsn(guard.database.scalar("sys.fn_cdc_get_min_lsn(N'dbo_Orders')"))
    assert low_end < watermark
    # Of the six changes: those of at most two hours before the watermark, and the one after it.
    assert len(guard.database.change_table("dbo_Orders")) == 4
    assert Lsn(guard.database.scalar("sys.fn_cdc_get_min_lsn(N'dbo_Lines')")) < low_end
    guard.keep(settings)
    assert len(guard.database.change_table("dbo_Orders")) == 4


@pytest.mark.parametrize("is_below_the_log", [False, True])
def test_mark_without_a_time_is_guarded_like_the_others(guard: Guard, *, is_below_the_log: bool) -> None:
    """The position of another tool may be between two entries of the log, so that no commit time belongs to it."""
    guard.write()
    watermark = Lsn(b"\0\0\0\1".ljust(10, b"\0")) if is_below_the_log else guard.read_all().next()
    guard.read_all()
    with psycopg.connect(guard.warehouse.conninfo()) as session:
        session.execute("UPDATE floodmark.tables SET watermark = %s, watermark_at = NULL", [watermark.value])
    guard.write(hours_later=50)
    assert guard.keep().low
    assert (guard.retention_minutes, guard.reported.kinds) == (3 * DAY + 3 * DAY // 4, ["retention_low"])
    guard.read_all(LINES)
    guard.keep(replace(RAISE, margin_seconds=0), ORDERS, LINES)
    assert len(guard.database.change_table("dbo_Orders")) == 2


def test_source_without_a_cleanup_job_is_refused_with_what_mends_it(guard: Guard) -> None:
    guard.database.run("EXEC sys.sp_cdc_drop_job @job_type = N'cleanup'")
    with pytest.raises(CdcNotEnabledError, match=r"no cleanup job.*sp_cdc_add_job"):
        guard.keep()


def test_without_the_ledger_nothing_is_changed(guard: Guard) -> None:
    guard.database.run("EXEC sys.sp_cdc_change_job @job_type = N'cleanup', @retention = 9999")
    guard.warehouse = replace(guard.warehouse, port=1)
    with pytest.raises(WarehouseUnavailableError):
        guard.keep()
    assert guard.retention_minutes == 9999
