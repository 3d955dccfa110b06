"""Rules of docs/reference/sqlserver_cdc.md that no transcript shows whole: keys, resuming, jobs, DDL, two instances."""

from __future__ import annotations

import threading

import pytest

from cdc_database import CdcDatabase, Row, shape, wait_until
from emulator_process import Emulator


@pytest.mark.parametrize(
    "key",
    [
        "code int NOT NULL UNIQUE",
        "code int NOT NULL, CONSTRAINT uq UNIQUE (v, code)",
        "code int NOT NULL, INDEX cx CLUSTERED (code)",
    ],
)
def test_update_of_one_row_in_another_key_is_a_delete_and_an_insert(database: CdcDatabase, key: str) -> None:
    """See docs/reference/sqlserver_cdc.md, "Row shapes": a unique or the clustered index."""
    database.run(
        f"CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY NONCLUSTERED, v varchar(5) NOT NULL, {key})",
        "INSERT dbo.t (id, v, code) VALUES (1, 'a', 1)",
    )
    database.enable("t")
    database.run("UPDATE dbo.t SET code = 2 WHERE id = 1", "UPDATE dbo.t SET code = 2 WHERE id = 1")
    database.scan()
    rows = database.change_table("dbo_t")
    assert shape(rows, "id", "code") == [(1, "07", 1, 1), (2, "07", 1, 2)]
    assert [row["__$command_id"] for row in rows] == [1, 2]
    assert len({row["__$seqval"] for row in rows}) == 1


def test_reader_resumes_strictly_after_any_row(database: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "Order of changes" (DBZ, FAB): with the operation a position is one row;
    without it an update pair is split."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v int)")
    database.enable("t")
    database.run(
        "INSERT dbo.t VALUES (1, 1), (2, 2)",
        "UPDATE dbo.t SET v = v + 1",
        "UPDATE dbo.t SET id = id + 10",
        "DELETE dbo.t",
    )
    database.scan()
    position = ("__$start_lsn", "__$seqval", "__$operation")
    rows = sorted(database.change_table("dbo_t"), key=lambda row: tuple(row[name] for name in position))
    for at, row in enumerate(rows):
        lsn, sequence, operation = (
            f"0x{row[name].hex()}" if isinstance(row[name], bytes) else row[name] for name in position
        )
        rest = database.query(
            f"SELECT * FROM cdc.dbo_t_CT WHERE [__$start_lsn] > {lsn} OR ([__$start_lsn] = {lsn} AND [__$seqval] >"
            f" {sequence}) OR ([__$start_lsn] = {lsn} AND [__$seqval] = {sequence} AND [__$operation] > {operation})"
            " ORDER BY [__$start_lsn], [__$seqval], [__$operation]"
        )
        assert rest == rows[at + 1 :]
    pairs = [(row["__$start_lsn"], row["__$seqval"]) for row in rows]
    assert len(set(pairs)) < len(pairs)


def test_long_transaction_is_captured_when_it_commits(database: CdcDatabase, emulator: Emulator) -> None:
    """See docs/reference/sqlserver_cdc.md, "Capture and cleanup jobs"; what it wrote first comes after what others
    committed meanwhile."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    database.enable("t")
    with emulator.connect_pymssql(database.name) as long, long.cursor() as cursor:
        cursor.execute("INSERT dbo.t VALUES (1)")
        database.run("INSERT dbo.t VALUES (2)")
        database.scan()
        assert [row["id"] for row in database.change_table("dbo_t")] == [2]
        long.commit()
    database.scan()
    early, late = database.change_table("dbo_t")
    assert [early["id"], late["id"]] == [2, 1]
    assert late["__$seqval"] < early["__$start_lsn"] < late["__$start_lsn"]


@pytest.mark.parametrize(("scan", "captured"), [("@maxtrans = 2, @maxscans = 2", 4), ("3, 1", 3), ("", 10)])
def test_scan_takes_maxtrans_transactions_maxscans_times(database: CdcDatabase, scan: str, captured: int) -> None:
    """See docs/reference/sqlserver_cdc.md, "Scan by hand", "Capture and cleanup jobs"."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    database.enable("t")
    database.run(*(f"INSERT dbo.t VALUES ({i})" for i in range(10)), f"EXEC sys.sp_cdc_scan {scan}")
    assert [row["id"] for row in database.change_table("dbo_t")] == list(range(captured))
    database.scan()
    assert len(database.change_table("dbo_t")) == 10


def test_history_is_written_by_the_capture_job_and_not_for_instances_made_later(database: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "DDL" (MCP23): a row for each statement and each instance that existed
    then."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    database.enable("t")
    database.run("ALTER TABLE dbo.t ADD a int")
    history = "EXEC sys.sp_cdc_get_ddl_history N'{0}'"
    assert database.query(history.format("dbo_t")) == []
    database.scan()
    database.enable("t", capture_instance="N'second'")
    database.run("ALTER TABLE dbo.t ADD b int")
    database.scan()
    for instance, added in (("dbo_t", ["a", "b"]), ("second", ["b"])):
        rows = database.query(history.format(instance))
        assert [row["ddl_command"] for row in rows] == [f"ALTER TABLE dbo.t ADD {name} int" for name in added]


def test_column_that_is_added_again_has_another_id(database: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "DDL" (MCP23): captured columns are distinguished by column_id."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, a int)")
    database.enable("t")
    database.run("ALTER TABLE dbo.t DROP COLUMN a", "ALTER TABLE dbo.t ADD a int")
    database.scan()
    (captured,) = database.query("SELECT column_id FROM cdc.captured_columns WHERE column_name = N'a'")
    (now,) = database.query("SELECT column_id FROM sys.columns WHERE object_id = OBJECT_ID(N'dbo.t') AND name = N'a'")
    assert captured["column_id"] == 2 < now["column_id"]


def test_two_instances_hand_over_each_commit_once_in_parallel_with_a_writer(
    database: CdcDatabase, emulator: Emulator
) -> None:
    """See docs/reference/sqlserver_cdc.md, "Two instances" (MCP23): the old one below the start of the new one, the new
    one from there."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    database.enable("t")
    written: list[int] = []
    ended = threading.Event()

    def write() -> None:
        with emulator.connect_pymssql(database.name, autocommit=True) as connection, connection.cursor() as cursor:
            while not ended.is_set():
                cursor.execute(f"INSERT dbo.t VALUES ({len(written)})")
                written.append(len(written))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_until(lambda: len(written) > 20)
        database.run("EXEC sys.sp_cdc_enable_table N'dbo', N't', N'second', @role_name = NULL")
        enough = len(written) + 20
        wait_until(lambda: len(written) > enough)
    finally:
        ended.set()
        writer.join()
    database.scan()
    start = database.scalar("sys.fn_cdc_get_min_lsn(N'second')")
    old, new = database.change_table("dbo_t"), database.change_table("second")
    before = [row["id"] for row in old if row["__$start_lsn"] < start]
    after = [row["id"] for row in new if row["__$start_lsn"] >= start]
    assert before + after == written == [row["id"] for row in old]
    assert before and after and len(new) == len(after)


def test_instances_that_cleanup_made_equal_are_distinguished_by_their_date(database: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "Two instances" (DBZ)."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    database.enable("t", capture_instance="N'older'")
    database.run("WAITFOR DELAY '00:00:00.010'")
    database.enable("t", capture_instance="N'a_newer'")
    database.run("WAITFOR DELAY '00:00:00.010'", "INSERT dbo.t VALUES (1)")
    database.scan()
    for instance in ("older", "a_newer"):
        database.run(
            f"DECLARE @l binary(10) = sys.fn_cdc_get_max_lsn(); EXEC sys.sp_cdc_cleanup_change_table N'{instance}', @l"
        )
    rows: list[Row] = database.query(
        "SELECT capture_instance, start_lsn, create_date FROM cdc.change_tables ORDER BY start_lsn, create_date"
    )
    assert [row["capture_instance"] for row in rows] == ["older", "a_newer"]
    assert rows[0]["start_lsn"] == rows[1]["start_lsn"]
    assert rows[0]["create_date"] < rows[1]["create_date"]
