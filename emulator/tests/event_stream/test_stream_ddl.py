"""DDL on streamed tables, and the catalog that shows them."""

from __future__ import annotations

import pytest

from sqlserver_emulator.errors import SqlServerError
from stream_source import SETUP, Source


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("DROP TABLE dbo.a", 23662),
        ("TRUNCATE TABLE dbo.a", 23663),
        ("EXEC sp_rename N'dbo.a', N'c'", 23661),
        ("EXEC sp_rename N'dbo.a.v', N'w', N'COLUMN'", 4928),
        ("ALTER TABLE dbo.a DROP CONSTRAINT pk_a", 23665),
        ("ALTER SCHEMA other TRANSFER dbo.a", 23659),
        ("DROP DATABASE SCOPED CREDENTIAL c", 23803),
    ],
)
def test_change_that_a_stream_cannot_follow_is_refused(source: Source, statement: str, number: int) -> None:
    source.run("CREATE TABLE dbo.a (id int CONSTRAINT pk_a PRIMARY KEY, v int)")
    source.run("IF SCHEMA_ID('other') IS NULL EXEC ('CREATE SCHEMA other')")
    source.group("ddl")
    source.add("ddl", "dbo.a")
    with pytest.raises(SqlServerError) as caught:
        source.run(statement)
    assert caught.value.number == number
    # The rest of DDL is free, and so is the table when it is not streamed any more.
    source.run("ALTER TABLE dbo.a ADD w int", "ALTER TABLE dbo.a DROP COLUMN v", "CREATE INDEX i ON dbo.a (w)")
    source.run("EXEC sys.sp_remove_object_from_event_stream_group N'ddl', N'dbo.a'", "DROP TABLE dbo.a")


def test_primary_key_is_not_added_to_a_streamed_table(source: Source) -> None:
    source.run("CREATE TABLE dbo.a (id int NOT NULL)")
    source.group("keys")
    source.add("keys", "dbo.a")
    with pytest.raises(SqlServerError) as caught:
        source.run("ALTER TABLE dbo.a ADD PRIMARY KEY (id)")
    assert caught.value.number == 23664


def test_preview_features_and_full_recovery_are_required(source: Source) -> None:
    source.run("EXEC sys.sp_disable_event_stream", "ALTER DATABASE Shop SET RECOVERY SIMPLE")
    with pytest.raises(SqlServerError, match="23634/1"):
        source.run("EXEC sys.sp_enable_event_stream")
    source.run("ALTER DATABASE Shop SET RECOVERY FULL")
    source.run("ALTER DATABASE SCOPED CONFIGURATION SET PREVIEW_FEATURES = OFF")
    with pytest.raises(SqlServerError, match="23623/1"):
        source.run("EXEC sys.sp_enable_event_stream")
    source.run(*SETUP)


def test_catalog_shows_what_is_streamed(source: Source) -> None:
    source.run("CREATE TABLE dbo.a (id int PRIMARY KEY)", "CREATE TABLE dbo.b (id int PRIMARY KEY)")
    source.group("catalog")
    source.add("catalog", "dbo.a")
    assert source.run("SELECT is_event_stream_enabled FROM sys.databases WHERE name = 'Shop'") == [(1,)]
    assert source.run("SELECT name, is_replicated FROM sys.tables ORDER BY name") == [("a", 1), ("b", 0)]
