"""Windows that follow each other, applied to a copy, give the table at each cut, whatever writers do meanwhile.

``SQLSERVER_EMULATOR_WINDOW_COMMITS``: how many transactions each writer makes.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable

import pymssql

from sql_client import SqlClient

_COMMITS = int(os.environ.get("SQLSERVER_EMULATOR_WINDOW_COMMITS", "40"))
_WRITERS = 3
_KEYS = 12
_SEED = 4711


def _statement(random_: random.Random) -> str:
    key, other = random_.randrange(_KEYS), random_.randrange(_KEYS)
    return random_.choice(
        (
            f"IF NOT EXISTS (SELECT 1 FROM t WHERE id = {key})"
            f" INSERT t (id, a) VALUES ({key}, {random_.randrange(10**6)})",
            f"DELETE t WHERE id = {key}",
            f"UPDATE t SET a = a + 1, b = {key} WHERE id BETWEEN {key} AND {other}",
            f"UPDATE t SET id = {other} WHERE id = {key} AND NOT EXISTS (SELECT 1 FROM t WHERE id = {other})",
            f"UPDATE t SET id = CASE id WHEN {key} THEN {other} ELSE {key} END WHERE id IN ({key}, {other})"
            f" AND 2 = (SELECT COUNT(*) FROM t WHERE id IN ({key}, {other}))",
            f"SAVE TRAN s; DELETE t WHERE id <> {key}; ROLLBACK TRAN s",
        )
    )


def _write(client: SqlClient, seed: int) -> None:
    """Transactions of one to three statements, of which some roll back; deadlocks and taken keys are rolled back."""
    random_ = random.Random(seed)
    for _ in range(_COMMITS):
        statements = "; ".join(_statement(random_) for _ in range(random_.randint(1, 3)))
        end = random_.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK"))
        try:
            client.run(f"SET XACT_ABORT ON; BEGIN TRAN; {statements}; {end}")
        except pymssql.Error:
            client.run("IF @@TRANCOUNT > 0 ROLLBACK")


def _apply_window(reader: SqlClient, copy: dict[int, tuple[int, int]], after: int) -> int:
    """Bring ``copy`` to the present with one window; return its end."""
    reader.run("BEGIN TRAN")
    to: int = reader.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()")
    changes = reader.rows(
        f"SELECT c.id, c.SYS_CHANGE_OPERATION, c.SYS_CHANGE_VERSION, t.a, t.b FROM CHANGETABLE(CHANGES t, {after}) AS c"
        " LEFT JOIN t ON t.id = c.id"
    )
    truth = {key: (a, b) for key, a, b in reader.rows("SELECT id, a, b FROM t")}
    reader.run("COMMIT")
    for key, operation, version, a, b in changes:
        assert after < version <= to
        assert (key in truth) == (operation != "D")
        # A row that the reader had is never reported as new.
        assert operation != "I" or key not in copy
        if operation == "D":
            copy.pop(key, None)
        else:
            copy[key] = (a, b)
    assert copy == truth
    return to


def test_chained_windows_are_the_table_at_each_cut(tracked: SqlClient, connect: Callable[..., SqlClient]) -> None:
    after = tracked.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()")
    writers = [threading.Thread(target=_write, args=(connect(), _SEED + i)) for i in range(_WRITERS)]
    reader, copy = connect(), dict[int, tuple[int, int]]()
    reader.run("SET TRANSACTION ISOLATION LEVEL SNAPSHOT")
    for writer in writers:
        writer.start()
    windows = 0
    while any(writer.is_alive() for writer in writers):
        after = _apply_window(reader, copy, after)
        windows += 1
    _apply_window(reader, copy, after)
    assert windows > 3
