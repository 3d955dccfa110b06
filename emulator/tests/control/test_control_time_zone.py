"""A server in another time zone than UTC: times are the server's local ones."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from cdc_database import CdcDatabase
from emulator_process import running_emulator

_OFFSET = timedelta(hours=5, minutes=30)
_NEAR = timedelta(minutes=2)


def test_times_of_commits_marks_and_scans_are_local(open_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """See docs/reference/sqlserver_cdc.md, "Scalar functions", "Time mapping"."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    with (
        running_emulator(open_dir / "kolkata", databases=("Shop",)) as emulator,
        emulator.connect_pymssql("Shop", autocommit=True) as connection,
    ):
        shop = CdcDatabase("Shop", connection)
        shop.run("EXEC sys.sp_cdc_enable_db", "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
        shop.enable("t")
        shop.run("INSERT dbo.t VALUES (1)", "ALTER TABLE dbo.t ADD v int", "EXEC emulator.run_capture")
        commit = f"0x{shop.change_table('dbo_t')[0]['__$start_lsn'].hex()}"
        shop.run("EXEC emulator.advance_clock 301", "EXEC emulator.run_capture")
        (row,) = shop.query(
            f"SELECT GETUTCDATE() AS utc, GETDATE() AS local, sys.fn_cdc_map_lsn_to_time({commit}) AS committed,"
            " sys.fn_cdc_map_lsn_to_time(sys.fn_cdc_get_max_lsn()) AS idle,"
            " (SELECT MAX(create_date) FROM cdc.change_tables) AS created, (SELECT MAX(ddl_time) FROM cdc.ddl_history)"
            " AS altered, (SELECT MAX(start_time) FROM sys.dm_cdc_log_scan_sessions) AS scanned"
        )
        assert abs(row["local"] - row["utc"] - _OFFSET) < timedelta(seconds=1)
        assert abs(row["local"] - row["idle"]) < _NEAR
        for name in ("committed", "created", "altered", "scanned"):
            assert abs(row["local"] - timedelta(seconds=301) - row[name]) < _NEAR, name
        at = row["committed"].isoformat(timespec="milliseconds")
        mapped = f"sys.fn_cdc_map_time_to_lsn(N'smallest greater than or equal', '{at}')"
        assert shop.scalar(mapped).hex() == commit.removeprefix("0x")
