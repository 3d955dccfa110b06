"""Change Tracking on and off, for databases and tables; DDL on tracked tables; what the catalog shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emulator_process import Emulator
from sql_client import SqlClient


@pytest.fixture
def plain(emulator: Emulator, connect: Callable[..., SqlClient]) -> SqlClient:
    """A connection with a database that tracks nothing, made just now."""
    client = connect()
    client.run("USE master; DROP DATABASE IF EXISTS plain_switches")
    client.run("CREATE DATABASE plain_switches")
    client.run("USE plain_switches")
    return client


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("ALTER TABLE t ENABLE CHANGE_TRACKING", 1718),
        ("ALTER DATABASE CURRENT SET CHANGE_TRACKING = OFF", 5089),
        ("ALTER DATABASE CURRENT SET CHANGE_TRACKING (AUTO_CLEANUP = ON)", 5089),
        ("ALTER DATABASE master SET CHANGE_TRACKING = ON", 5090),
        ("ALTER DATABASE msdb SET CHANGE_TRACKING = ON", 5090),
        ("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON (AUTO_CLEANUP = ON, AUTO_CLEANUP = OFF)", 5091),
        (
            "ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 3 DAYS, CHANGE_RETENTION = 3 DAYS)",
            5091,
        ),
        ("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 0 DAYS)", 5092),
        ("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 2000000 DAYS)", 5092),
        ("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 1 WEEKS)", 155),
        ("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 1)", 102),
        ("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 1.5 DAYS)", 102),
        ("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON ()", 102),
        ("ALTER DATABASE CURRENT SET CHANGE_TRACKING ON", 156),
        ("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON, RECURSIVE_TRIGGERS ON", 22114),
        ("ALTER DATABASE CURRENT SET RECURSIVE_TRIGGERS ON, CHANGE_TRACKING = ON", 22114),
        ("BEGIN TRAN; ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON", 226),
    ],
)
def test_database_switch_refuses(plain: SqlClient, statement: str, number: int) -> None:
    plain.run("CREATE TABLE t (id int PRIMARY KEY)")
    assert plain.error(statement)[0] == number


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON", 5088),
        ("ALTER DATABASE CURRENT SET CHANGE_TRACKING = OFF", 22115),
        ("ALTER TABLE t ENABLE CHANGE_TRACKING", 4996),
        ("ALTER TABLE h ENABLE CHANGE_TRACKING", 4997),
        ("ALTER TABLE r ENABLE CHANGE_TRACKING", 4999),
        ("ALTER TABLE u DISABLE CHANGE_TRACKING", 4998),
        ("ALTER TABLE nosuch ENABLE CHANGE_TRACKING", 4902),
        ("CREATE TABLE #tt (id int PRIMARY KEY); ALTER TABLE #tt ENABLE CHANGE_TRACKING", 1718),
        ("ALTER TABLE u ENABLE CHANGE_TRACKING WITH (TRACK_COLUMNS_UPDATED = bogus)", 102),
        ("ALTER TABLE u ENABLE CHANGE_TRACKING (TRACK_COLUMNS_UPDATED = ON)", 102),
        ("ALTER TABLE t DROP CONSTRAINT pk", 3735),
        ("ALTER TABLE t DROP COLUMN id", 5074),
        ("ALTER TABLE t ALTER COLUMN id bigint NOT NULL", 5074),
    ],
)
def test_table_switch_and_ddl_refuse(plain: SqlClient, statement: str, number: int) -> None:
    plain.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON")
    plain.run(
        "CREATE TABLE t (id int CONSTRAINT pk PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY);"
        " CREATE TABLE h (a int); CREATE TABLE r (v rowversion PRIMARY KEY); ALTER TABLE t ENABLE CHANGE_TRACKING"
    )
    assert plain.error(statement)[0] == number


def test_catalog_shows_the_settings(plain: SqlClient) -> None:
    plain.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 5 HOURS, AUTO_CLEANUP = OFF)")
    plain.run("CREATE TABLE t (id int PRIMARY KEY, a int)")
    plain.run("ALTER TABLE t ENABLE CHANGE_TRACKING WITH (TRACK_COLUMNS_UPDATED = ON)")
    databases = "SELECT * FROM sys.change_tracking_databases WHERE database_id = DB_ID()"
    (row,) = plain.rows(databases)
    assert row[1:5] == (False, 5, 2, "HOURS")
    assert plain.rows(
        "SELECT object_id - OBJECT_ID('t'), is_track_columns_updated_on, begin_version, cleanup_version,"
        " min_valid_version FROM sys.change_tracking_tables"
    ) == [(0, True, 0, 0, 0)]
    plain.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING (CHANGE_RETENTION = 30 MINUTES)")
    plain.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING (AUTO_CLEANUP = ON)")
    assert plain.rows(databases)[0][1:5] == (True, 30, 1, "MINUTES")
    plain.run("USE master")
    assert plain.value("SELECT COUNT(*) FROM sys.change_tracking_databases WHERE database_id = DB_ID('plain_switches')")
    assert plain.rows("SELECT * FROM sys.change_tracking_tables") == []


def test_version_outlives_an_off_and_on(plain: SqlClient) -> None:
    is_on = "SELECT CAST(DATABASEPROPERTYEX(DB_NAME(), 'IsChangeTrackingEnabled') AS int)"
    assert plain.rows(f"{is_on}, CHANGE_TRACKING_CURRENT_VERSION()") == [(0, None)]
    plain.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON")
    assert plain.rows(f"{is_on}, CHANGE_TRACKING_CURRENT_VERSION()") == [(1, 0)]
    plain.run("CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t ENABLE CHANGE_TRACKING")
    plain.run("INSERT t VALUES (1); INSERT t VALUES (2)")
    plain.run("ALTER TABLE t DISABLE CHANGE_TRACKING; ALTER DATABASE CURRENT SET CHANGE_TRACKING = OFF")
    assert plain.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()") is None
    plain.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON; ALTER TABLE t ENABLE CHANGE_TRACKING")
    versions = "SELECT CHANGE_TRACKING_CURRENT_VERSION(), CHANGE_TRACKING_MIN_VALID_VERSION(OBJECT_ID('t'))"
    assert plain.rows(versions) == [(2, 2)]
    plain.run("INSERT t VALUES (3)")
    assert plain.rows("SELECT id, SYS_CHANGE_VERSION FROM CHANGETABLE(CHANGES t, 0) AS c") == [(3, 3)]


def test_table_switches_roll_back(tracked: SqlClient) -> None:
    tracked.run("DROP TABLE IF EXISTS u; CREATE TABLE u (id int PRIMARY KEY); INSERT t (id) VALUES (1)")
    tracked.run("BEGIN TRAN; ALTER TABLE u ENABLE CHANGE_TRACKING; ROLLBACK")
    tracked.run("BEGIN TRAN; ALTER TABLE t DISABLE CHANGE_TRACKING; ROLLBACK")
    assert tracked.rows("SELECT OBJECT_NAME(object_id) FROM sys.change_tracking_tables") == [("t",)]
    assert tracked.rows("SELECT id FROM CHANGETABLE(CHANGES t, 0) AS c") == [(1,)]


def test_truncate_restarts_the_history_at_the_current_version(tracked: SqlClient) -> None:
    tracked.run("INSERT t (id) VALUES (1), (2)")
    base = tracked.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()")
    tracked.run("BEGIN TRAN; TRUNCATE TABLE t; ROLLBACK")
    assert len(tracked.rows("SELECT id FROM CHANGETABLE(CHANGES t, 0) AS c")) == 2
    tracked.run("TRUNCATE TABLE t")
    assert tracked.rows(
        "SELECT begin_version, min_valid_version, CHANGE_TRACKING_CURRENT_VERSION() FROM sys.change_tracking_tables"
        " WHERE object_id = OBJECT_ID('t')"
    ) == [(base, base, base)]
    tracked.run("INSERT t (id) VALUES (3)")
    assert tracked.rows("SELECT id, SYS_CHANGE_OPERATION FROM CHANGETABLE(CHANGES t, 0) AS c") == [(3, "I")]


_SIDE_TABLES = "SELECT object_id, name, parent_object_id FROM sys.internal_tables WHERE internal_type = 209"


@pytest.mark.parametrize(
    "statements",
    [
        ("TRUNCATE TABLE t",),
        ("ALTER TABLE t DISABLE CHANGE_TRACKING", "ALTER TABLE t ENABLE CHANGE_TRACKING"),
        (
            "ALTER TABLE t DISABLE CHANGE_TRACKING",
            "ALTER DATABASE CURRENT SET CHANGE_TRACKING = OFF",
            "ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON",
            "ALTER TABLE t ENABLE CHANGE_TRACKING",
        ),
    ],
)
def test_tracking_that_begins_again_has_another_side_table(plain: SqlClient, statements: tuple[str, ...]) -> None:
    plain.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON")
    plain.run("CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t ENABLE CHANGE_TRACKING")
    plain.run("INSERT t VALUES (1)")
    [(before, name, parent)] = plain.rows(_SIDE_TABLES)
    assert (name, parent) == (f"change_tracking_{parent}", plain.value("SELECT OBJECT_ID('t')"))
    plain.run("INSERT t VALUES (2); BEGIN TRAN; TRUNCATE TABLE t; ROLLBACK")
    assert plain.rows(_SIDE_TABLES) == [(before, name, parent)]
    for statement in statements:
        plain.run(statement)
    [(after, *same)] = plain.rows(_SIDE_TABLES)
    assert (after != before, same) == (True, [name, parent])
    plain.run("ALTER TABLE t DISABLE CHANGE_TRACKING")
    assert plain.rows(_SIDE_TABLES) == []


def test_side_table_is_shown_to_whom_the_definition_of_its_table_is(
    plain: SqlClient, connect: Callable[..., SqlClient]
) -> None:
    plain.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON")
    plain.run("CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t ENABLE CHANGE_TRACKING")
    plain.run("IF SUSER_ID('side_reader') IS NULL CREATE LOGIN side_reader WITH PASSWORD = 'Reader-of-changes-1'")
    plain.run("CREATE USER side_reader FOR LOGIN side_reader; GRANT SELECT, VIEW CHANGE TRACKING ON t TO side_reader")
    reader = connect("side_reader", "Reader-of-changes-1", "plain_switches")
    assert reader.rows(_SIDE_TABLES) == []
    plain.run("GRANT VIEW DEFINITION ON t TO side_reader")
    assert len(reader.rows(_SIDE_TABLES)) == 1


def test_columns_come_go_and_are_renamed(tracked: SqlClient) -> None:
    tracked.run("INSERT t (id) VALUES (1)")
    base = tracked.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()")
    tracked.run("ALTER TABLE t DROP COLUMN c")
    tracked.run("ALTER TABLE t ADD d int")
    tracked.run("ALTER TABLE t ALTER COLUMN b bigint")
    tracked.run("EXEC sp_rename 't.id', 'number', 'COLUMN'")
    assert tracked.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()") == base
    tracked.run("UPDATE t SET d = 1")
    mask = f"SELECT c.number, c.SYS_CHANGE_COLUMNS FROM CHANGETABLE(CHANGES t, {base}) AS c"
    assert tracked.rows(mask) == [(1, bytes.fromhex("0000000005000000"))]
    tracked.run("EXEC sp_rename 't', 'renamed'")
    assert tracked.value(f"SELECT COUNT(*) FROM CHANGETABLE(CHANGES renamed, {base}) AS c") == 1
    tracked.run("DROP TABLE renamed")
    assert tracked.rows("SELECT object_id FROM sys.change_tracking_tables") == []


def test_capture_and_tracking_of_one_table(plain: SqlClient) -> None:
    plain.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON; EXEC sys.sp_cdc_enable_db")
    plain.run("CREATE TABLE t (id int PRIMARY KEY, a int); ALTER TABLE t ENABLE CHANGE_TRACKING")
    plain.run("EXEC sys.sp_cdc_enable_table N'dbo', N't', @role_name = NULL, @supports_net_changes = 1")
    plain.run("INSERT t VALUES (1, 1), (2, 2); UPDATE t SET id = id + 1; DELETE t WHERE id = 3")
    assert plain.rows("SELECT id, SYS_CHANGE_OPERATION FROM CHANGETABLE(CHANGES t, 0) AS c ORDER BY id") == [
        (1, "D"),
        (2, "U"),
        (3, "D"),
    ]
    plain.run("EXEC emulator.run_capture")
    assert plain.value("SELECT COUNT(*) FROM cdc.dbo_t_CT") >= 5
    assert plain.error("TRUNCATE TABLE t")[0] == 4711
    plain.run("EXEC sys.sp_cdc_disable_db; ALTER TABLE t DISABLE CHANGE_TRACKING")


def test_dropped_database_leaves_nothing(plain: SqlClient) -> None:
    for _ in range(2):
        plain.run("ALTER DATABASE CURRENT SET CHANGE_TRACKING = ON")
        plain.run("CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t ENABLE CHANGE_TRACKING; INSERT t VALUES (1)")
        assert plain.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()") == 1
        plain.run("USE master; DROP DATABASE plain_switches; CREATE DATABASE plain_switches")
        plain.run("USE plain_switches")
        assert plain.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()") is None
