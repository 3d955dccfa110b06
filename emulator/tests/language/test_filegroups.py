"""Filegroups and files: names that scripts add to a database, and that tables and capture instances refer to."""

from __future__ import annotations

import contextlib

import pytest

from emulator_process import Emulator
from sql_client import SqlClient

FILES = """
SELECT f.name, g.name, f.physical_name, f.size, f.max_size, f.growth, f.is_percent_growth FROM sys.database_files f
LEFT JOIN sys.filegroups g ON g.data_space_id = f.data_space_id ORDER BY f.file_id
"""


ARCHIVE = """
ALTER DATABASE [{database}] ADD FILEGROUP archive
GO
ALTER DATABASE CURRENT ADD FILE
    (NAME = N'archive_1', FILENAME = N'/data/archive_1.ndf', SIZE = 5MB, MAXSIZE = 100 MB, FILEGROWTH = 10%),
    (NAME = archive_2, FILENAME = '/data/archive_2.ndf', SIZE = 2048KB, MAXSIZE = UNLIMITED, FILEGROWTH = 0)
    TO FILEGROUP archive
"""


@pytest.fixture(scope="module", autouse=True)
def archive(emulator: Emulator, database: str) -> None:
    with contextlib.closing(emulator.connect_pymssql(database, autocommit=True)) as connection:
        SqlClient(connection).script(ARCHIVE.format(database=database))


def test_added_filegroups_and_files_are_shown(client: SqlClient) -> None:
    shown = client.rows("SELECT name, data_space_id, type, is_default FROM sys.filegroups ORDER BY data_space_id")
    assert shown[:2] == [("PRIMARY", 1, "FG", True), ("archive", 2, "FG", False)]
    assert client.rows(FILES)[2:4] == [
        ("archive_1", "archive", "/data/archive_1.ndf", 640, 12800, 10, True),
        ("archive_2", "archive", "/data/archive_2.ndf", 256, -1, 0, False),
    ]


def test_default_moves_and_names_change(client: SqlClient) -> None:
    client.run("ALTER DATABASE CURRENT ADD FILEGROUP other")
    assert client.error("ALTER DATABASE CURRENT MODIFY FILEGROUP other DEFAULT")[0] == 5050
    client.run("ALTER DATABASE CURRENT MODIFY FILEGROUP archive DEFAULT")
    assert client.rows("SELECT name FROM sys.filegroups WHERE is_default = 1") == [("archive",)]
    client.run("ALTER DATABASE CURRENT MODIFY FILEGROUP [PRIMARY] DEFAULT")
    assert client.rows("SELECT name FROM sys.filegroups WHERE is_default = 1") == [("PRIMARY",)]
    client.run("ALTER DATABASE CURRENT MODIFY FILEGROUP other NAME = another")
    client.run("ALTER DATABASE CURRENT REMOVE FILEGROUP another")
    assert client.value("SELECT COUNT(*) FROM sys.filegroups WHERE name IN ('other', 'another')") == 0


def test_files_come_and_go(client: SqlClient) -> None:
    client.run("ALTER DATABASE CURRENT ADD FILE (NAME = more, FILENAME = '/data/more.ndf')")
    client.run("ALTER DATABASE CURRENT ADD LOG FILE (NAME = more_log, FILENAME = '/data/more.ldf', SIZE = 1GB)")
    log = client.rows("SELECT type_desc, data_space_id, size FROM sys.database_files WHERE name = 'more_log'")
    assert log == [("LOG", 0, 131072)]
    client.run("ALTER DATABASE CURRENT REMOVE FILE more; ALTER DATABASE CURRENT REMOVE FILE more_log")
    assert client.value("SELECT COUNT(*) FROM sys.database_files WHERE name LIKE 'more%'") == 0


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("ALTER DATABASE CURRENT ADD FILEGROUP Archive", 5035),
        ("ALTER DATABASE CURRENT REMOVE FILEGROUP absent", 5014),
        ("ALTER DATABASE CURRENT REMOVE FILEGROUP archive", 5042),
        ("ALTER DATABASE CURRENT MODIFY FILEGROUP [PRIMARY] NAME = x", 5012),
        ("ALTER DATABASE CURRENT ADD FILE (NAME = x, FILENAME = 'x') TO FILEGROUP absent", 1921),
        ("ALTER DATABASE CURRENT ADD FILE (NAME = archive_1, FILENAME = 'x')", 1828),
        ("ALTER DATABASE CURRENT ADD FILE (NAME = x, FILENAME = '/data/archive_1.ndf')", 5170),
        ("ALTER DATABASE CURRENT ADD FILE (NAME = x)", 1036),
        ("ALTER DATABASE CURRENT REMOVE FILE absent", 5009),
        ("ALTER DATABASE CURRENT REMOVE FILE filegroups", 5020),
        ("ALTER DATABASE master ADD FILEGROUP x", 5013),
        ("BEGIN TRAN; ALTER DATABASE CURRENT ADD FILEGROUP x", 226),
        ("ALTER DATABASE CURRENT ADD FILEGROUP x CONTAINS FILESTREAM", 49999),
        ("ALTER DATABASE CURRENT MODIFY FILEGROUP archive READ_ONLY", 49999),
        ("ALTER DATABASE CURRENT MODIFY FILE (NAME = archive_1, SIZE = 10MB)", 49999),
        ("ALTER DATABASE CURRENT MODIFY NAME = x", 49999),
        ("CREATE TABLE misplaced (a int) ON absent", 1921),
        ("CREATE TABLE misplaced (a int CONSTRAINT p PRIMARY KEY ON absent)", 1921),
        ("CREATE TABLE misplaced (a int) ON scheme (a)", 1921),
        ("CREATE TABLE misplaced (a text) TEXTIMAGE_ON absent", 1921),
        ("CREATE INDEX i ON placed (a) ON absent", 1921),
        ("ALTER TABLE placed ADD CONSTRAINT u UNIQUE (a) ON absent", 1921),
    ],
)
def test_what_is_not_there_or_taken_is_refused(client: SqlClient, statement: str, number: int) -> None:
    client.run("IF OBJECT_ID('placed') IS NULL CREATE TABLE placed (a int)")
    assert client.error(statement)[0] == number


@pytest.mark.parametrize(
    ("change", "raised"),
    [
        ("REMOVE FILE absent", (5009, 16, 9, "One or more files listed in the statement could not be found or could")),
        ("MODIFY FILEGROUP absent DEFAULT", (5014, 16, 2, "The filegroup 'absent' does not exist in database '")),
        ("ADD FILE (NAME = x, FILENAME = 'x') TO FILEGROUP absent", (1921, 16, 4, "Invalid filegroup 'absent' spe")),
        ("MODIFY FILEGROUP Archive NAME = [primary]", (5035, 16, 2, "Filegroup 'primary' already exists in this da")),
    ],
)
def test_error_has_the_severity_state_and_text_that_are_published(
    client: SqlClient, change: str, raised: tuple[object, ...]
) -> None:
    caught = "SELECT ERROR_NUMBER(), ERROR_SEVERITY(), ERROR_STATE(), ERROR_MESSAGE()"
    batch = f"BEGIN TRY ALTER DATABASE CURRENT {change} END TRY BEGIN CATCH {caught} END CATCH"
    ((*numbers, text),) = client.rows(batch)
    assert (*numbers, text[: len(str(raised[-1]))]) == raised


def test_tables_and_indexes_may_be_on_a_filegroup(client: SqlClient) -> None:
    client.run("""
        CREATE TABLE on_archive (a int CONSTRAINT pk_on_archive PRIMARY KEY ON [archive], b text) ON archive
            TEXTIMAGE_ON [PRIMARY]
        CREATE INDEX i ON on_archive (a) ON "default"
        ALTER TABLE on_archive ADD CONSTRAINT u UNIQUE (a) ON archive
        CREATE TABLE #on_primary (a int) ON 'PRIMARY'""")


def test_database_is_made_with_its_files(client: SqlClient) -> None:
    client.run("""
        CREATE DATABASE with_files CONTAINMENT = NONE ON PRIMARY (NAME = N'main', FILENAME = N'/data/main.mdf'),
            (NAME = main_2, FILENAME = '/data/main_2.ndf'),
            FILEGROUP history DEFAULT (NAME = history, FILENAME = '/data/history.ndf', SIZE = 8MB)
            LOG ON (NAME = main_log, FILENAME = '/data/main.ldf', MAXSIZE = 2GB)
            COLLATE Latin1_General_BIN2""")
    client.run("USE with_files")
    files = [row[:2] for row in client.rows(FILES)]
    assert files == [("main", "PRIMARY"), ("main_log", None), ("main_2", "PRIMARY"), ("history", "history")]
    assert client.error("ALTER DATABASE CURRENT REMOVE FILE history")[0] == 5031
    assert client.value("SELECT CONVERT(varchar(50), DATABASEPROPERTYEX('with_files', 'Collation'))").endswith("BIN2")
    client.run("USE master; DROP DATABASE with_files")


def test_capture_instance_may_be_on_a_filegroup(client: SqlClient) -> None:
    client.run("EXEC sys.sp_cdc_enable_db; CREATE TABLE tracked (a int PRIMARY KEY)")
    enable = "EXEC sys.sp_cdc_enable_table 'dbo', 'tracked', @role_name = NULL, @filegroup_name"
    assert client.error(f"{enable} = 'absent'")[0] == 22973
    client.run(f"{enable} = 'archive'")
    assert client.rows("SELECT filegroup_name FROM cdc.change_tables") == [("archive",)]
