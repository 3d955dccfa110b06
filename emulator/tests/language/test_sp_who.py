"""sp_who: which sessions there are, and what blocks them (sp_who (Transact-SQL), Result Sets)."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from emulator_process import Emulator
from sql_client import SqlClient

COLUMNS = ["spid", "ecid", "status", "loginame", "hostname", "blk", "dbname", "cmd", "request_id"]
PASSWORD = "Visitor-9876"


@pytest.fixture
def visitor(client: SqlClient, emulator: Emulator, database: str) -> Iterator[SqlClient]:
    if client.value("SELECT SUSER_ID('who_visitor')") is None:
        client.run(
            f"CREATE LOGIN who_visitor WITH PASSWORD = '{PASSWORD}'; CREATE USER who_visitor FOR LOGIN who_visitor"
        )
    other = dataclasses.replace(emulator, user="who_visitor", password=PASSWORD)
    with contextlib.closing(other.connect_pymssql(database, autocommit=True)) as connection:
        yield SqlClient(connection)


def test_row_has_the_documented_columns_and_widths(client: SqlClient, database: str) -> None:
    cursor = client.connection.cursor()
    cursor.execute("DECLARE @me sysname = CAST(@@SPID AS sysname) EXEC sp_who @me")
    assert [column[0] for column in cursor.description] == COLUMNS
    (row,) = cursor.fetchall()
    spid = client.value("SELECT @@SPID")
    texts = ("running".ljust(30), "sa".ljust(128), "localhost".ljust(128), "0".ljust(5), database.ljust(128))
    assert row == (spid, 0, *texts, "SELECT".ljust(16), 0)


def test_session_is_found_by_its_login_and_its_number(client: SqlClient, visitor: SqlClient) -> None:
    spid = visitor.value("SELECT @@SPID")
    for asked in ("'WHO_VISITOR'", f"'{spid}'", str(spid)):
        (row,) = client.rows(f"EXEC sp_who {asked}")
        assert (row[0], row[2].rstrip(), row[7].rstrip()) == (spid, "sleeping", "AWAITING COMMAND")
    assert spid in [row[0] for row in client.rows("EXEC sp_who")]
    assert spid not in [row[0] for row in client.rows("EXEC sp_who 'ACTIVE'")]
    assert client.rows("EXEC sp_who '32000'") == []
    assert client.error("EXEC sp_who 'nobody_at_all'")[0] == 15007


def test_login_that_is_no_sysadmin_sees_its_own_session(client: SqlClient, visitor: SqlClient) -> None:
    spid = visitor.value("SELECT @@SPID")
    assert [row[0] for row in visitor.rows("EXEC sp_who")] == [spid]
    assert visitor.rows("EXEC sp_who 'sa'") == []
    assert client.value("SELECT @@SPID") != spid


def test_session_that_waits_for_a_lock_names_who_holds_it(client: SqlClient, connect: Callable[..., SqlClient]) -> None:
    holder, waiter = connect(), connect()
    holder_id, waiter_id = holder.value("SELECT @@SPID"), waiter.value("SELECT @@SPID")
    client.run("CREATE TABLE held (a int); INSERT held VALUES (1)")
    holder.run("BEGIN TRAN; UPDATE held SET a = 2")
    waiting = threading.Thread(target=waiter.run, args=("UPDATE held SET a = 3",))
    waiting.start()
    seen: tuple[str, ...] = ()
    wanted = ("suspended", str(holder_id), "UPDATE")
    deadline = time.monotonic() + 60
    while seen != wanted and time.monotonic() < deadline:
        (row,) = client.rows(f"EXEC sp_who '{waiter_id}'")
        seen = (row[2].rstrip(), row[5].rstrip(), row[7].rstrip())
        assert "AWAITING COMMAND" not in seen or seen == ("sleeping", "0", "AWAITING COMMAND")
    holder.run("ROLLBACK")
    waiting.join()
    assert seen == wanted
