"""Everything is killed while writers commit: after a restart every row has its change, and versions go on."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pymssql

from cdc_database import wait_until
from emulator_process import Emulator, kill_family, running_emulator
from sql_client import SqlClient


def _write(emulator: Emulator, first: int) -> None:
    """Insert rows, each in a transaction of its own, until the server is gone."""
    with contextlib.suppress(pymssql.Error), emulator.connect_pymssql("Crash", autocommit=True) as connection:
        for key in range(first, first + 1_000_000):
            SqlClient(connection).run(f"INSERT t VALUES ({key})")


def _check(client: SqlClient) -> int:
    """Each row is a change with a version of its own; return the newest one."""
    changes = client.rows("SELECT id, SYS_CHANGE_VERSION FROM CHANGETABLE(CHANGES t, 0) AS c")
    assert sorted(key for key, _ in changes) == [key for (key,) in client.rows("SELECT id FROM t ORDER BY id")]
    versions = sorted(version for _, version in changes)
    assert len(versions) == len(set(versions)) > 0
    newest: int = client.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()")
    assert newest == versions[-1]
    # A commit that was not written out may have taken a number; nothing else takes one.
    assert newest <= len(versions) + 1
    client.run("INSERT t VALUES (-1)")
    assert client.value(f"SELECT SYS_CHANGE_VERSION FROM CHANGETABLE(CHANGES t, {newest}) AS c") > newest
    return newest


def test_killed_server_forgets_no_version_and_gives_none_twice(open_dir: Path) -> None:
    folder = open_dir / "tracking-crash"
    with running_emulator(folder, databases=("Crash",)) as emulator:
        client = SqlClient(emulator.connect_pymssql("Crash", autocommit=True))
        client.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON")
        client.run("CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t ENABLE CHANGE_TRACKING")
        writers = [threading.Thread(target=_write, args=(emulator, 10_000_000 * i)) for i in range(3)]
        for writer in writers:
            writer.start()
        wait_until(lambda: client.value("SELECT COUNT(*) FROM t") > 60, 60)
        kill_family(emulator)
        for writer in writers:
            writer.join()
    with running_emulator(folder, databases=("Crash",)) as emulator:
        assert _check(SqlClient(emulator.connect_pymssql("Crash", autocommit=True))) > 60
