"""State of the controls that is left when the emulator is started again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from emulator_process import running_emulator


@contextmanager
def started(folder: Path) -> Iterator[Any]:
    with (
        running_emulator(folder) as emulator,
        emulator.connect_pymssql(autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        yield cursor


def now(cursor: Any) -> datetime:
    cursor.execute("SELECT SYSDATETIME()")
    ((shown,),) = cursor.fetchall()
    assert isinstance(shown, datetime)
    return shown


def test_every_system_view_survives_a_restart(open_dir: Path) -> None:
    views = "SELECT name FROM sys.all_views ORDER BY name"
    with started(open_dir / "views") as cursor:
        cursor.execute(views)
        before = cursor.fetchall()
    with started(open_dir / "views") as cursor:
        cursor.execute(views)
        assert cursor.fetchall() == before
    names = {name for (name,) in before}
    assert {"dm_change_feed_errors", "dm_change_feed_log_scan_sessions", "tables"} <= names


def test_clock_survives_a_restart_and_faults_do_not(open_dir: Path) -> None:
    folder = open_dir / "restarted"
    with started(folder) as cursor:
        cursor.callproc("emulator.set_clock", (datetime(2031, 5, 6),))
        cursor.execute("EXEC emulator.fail_statements @error = 1222, @times = 0")
    with started(folder) as cursor:
        assert timedelta(0) < now(cursor) - datetime(2031, 5, 6) < timedelta(minutes=5)
        cursor.execute("EXEC emulator.reset")
        assert abs(now(cursor) - datetime.now()) < timedelta(minutes=1)
