"""Keys of tables with change tracking: the server reports one change for two spellings of a key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from emulator_process import Emulator
from floodmark.core.errors import TableNotPlannableError
from floodmark.core.schema import TableName
from floodmark.core.settings import KeySpelling
from floodmark.postgres.session import WarehouseConnection
from tracking_rig import TrackingRig, tracked_tables, tracking_rig

TABLES = (
    "CREATE TABLE dbo.Names (K nvarchar(20) NOT NULL PRIMARY KEY, V int)",
    "ALTER TABLE dbo.Names ENABLE CHANGE_TRACKING",
    "CREATE TABLE dbo.Codes (K char(2) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY, V int)",
    "ALTER TABLE dbo.Codes ENABLE CHANGE_TRACKING",
    "INSERT dbo.Names VALUES (N'a', 1), (N'b', 2)",
    "INSERT dbo.Codes VALUES ('a', 1), ('b', 2)",
)


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[TrackingRig]:
    with tracking_rig(emulator, database, tracked_tables("Names"), TABLES) as made:
        yield made


def test_key_that_may_change_its_spelling_is_refused(rig: TrackingRig) -> None:
    with pytest.raises(TableNotPlannableError, match=r"K nvarchar\(20\) SQL_Latin1_General_CP1_CI_AS.* key_spelling"):
        rig.sync()
    assert rig.rows("SELECT to_regclass('shop.names') IS NULL") == [(True,)]


def test_new_spelling_of_a_key_leaves_the_old_row_in_the_target(rig: TrackingRig) -> None:
    rig.settings = tracked_tables("Names", key_spelling=KeySpelling.FIXED)
    rig.sync()
    rig.run("UPDATE dbo.Names SET V = 3 WHERE K = N'b'")
    rig.sync()
    assert rig.differing() == []
    # A broken promise: the reason for which such keys are refused without one.
    rig.run("UPDATE dbo.Names SET K = N'A' WHERE K = N'a'")
    rig.sync()
    assert rig.rows('SELECT "K" FROM shop.names WHERE NOT __deleted ORDER BY 1') == [("A",), ("a",), ("b",)]
    assert rig.differing() == [TableName("dbo", "Names")]


def test_key_that_is_compared_by_bytes_may_change_its_spelling(rig: TrackingRig) -> None:
    rig.settings = tracked_tables("Codes")
    rig.sync()
    rig.run("UPDATE dbo.Codes SET K = 'A' WHERE K = 'a'")
    rig.sync()
    assert rig.differing() == []
    assert rig.rows('SELECT "K" FROM shop.codes WHERE NOT __deleted ORDER BY 1') == [("A ",), ("b ",)]


def test_declared_key_that_is_not_the_primary_key_is_refused(rig: TrackingRig) -> None:
    rig.settings = tracked_tables("Codes", key=("V",))
    with pytest.raises(TableNotPlannableError, match=r"the key is \(V\), .* primary key, \(K\)"):
        rig.sync()
    [table] = rig.settings.tables
    rig.settings = replace(rig.settings, tables=(replace(table, key=("k",)),))
    rig.sync()
    assert rig.differing() == []
