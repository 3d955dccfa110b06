"""The release as which the emulator presents itself."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from sqlserver_emulator.assembly.cluster import EmulatorStateError
from sqlserver_emulator.assembly.factory import open_engine
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import ErrorRaised, Rows
from sqlserver_emulator.release import RELEASES, SQL_SERVER_2022, SQL_SERVER_2025, Release

FACTS = (
    "SELECT CAST(SERVERPROPERTY('ProductVersion') AS varchar(30)), CAST(SERVERPROPERTY('ProductMajorVersion') AS int),"
    " @@VERSION, @@MICROSOFTVERSION, compatibility_level, CAST(DATABASEPROPERTYEX('master', 'Version') AS int)"
    " FROM sys.databases WHERE name = 'master'"
)


def run(folder: Path, release: Release, text: str) -> list[tuple[object, ...]]:
    with open_engine(folder, sa_password="a-Password-1", release=release) as engine:
        login = {"login": "sa", "password": "a-Password-1", "database": "master", "application": "test"}
        rows: list[tuple[object, ...]] = []
        with closing(engine.open_session(**login)) as session:
            for event in session.run_batch(text):
                if isinstance(event, ErrorRaised):
                    raise event.error
                if isinstance(event, Rows):
                    rows.extend(event.rows)
        return rows


def test_folder_is_upgraded_and_not_opened_by_an_older_release(open_dir: Path) -> None:
    folder = open_dir / "release"
    for release in RELEASES.values():
        ((version, major, text, number, level, files),) = run(folder, release, FACTS)
        assert version == release.version_text
        assert major == release.version[0]
        assert text == release.text
        assert f"SQL Server {release.year}" in release.text
        assert number == release.microsoft_version
        assert (level, files) == (major * 10, release.database_version)
    with pytest.raises(EmulatorStateError, match="--release 2025"):
        run(folder, SQL_SERVER_2022, FACTS)


def test_what_2025_brought_is_unknown_to_2022(open_dir: Path) -> None:
    folder = open_dir / "without-streams"
    with pytest.raises(SqlServerError) as caught:
        run(folder, SQL_SERVER_2022, "SELECT is_event_stream_enabled FROM sys.databases")
    assert caught.value.number == 207
    with pytest.raises(SqlServerError) as caught:
        run(folder, SQL_SERVER_2022, "EXEC sys.sp_enable_event_stream")
    assert caught.value.number == 2812
    assert run(folder, SQL_SERVER_2025, "SELECT is_event_stream_enabled FROM sys.databases WHERE database_id = 1") == [
        (0,)
    ]
