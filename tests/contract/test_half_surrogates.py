"""National strings with half of a surrogate pair, from a server to the target, in first loads and in windows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from switch_rig import SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.errors import DataQualityError
from floodmark.core.settings import FirstLoad, UnstorablePolicy
from floodmark.postgres.session import WarehouseConnection
from row_verification import verify_tables

LIVING = 'SELECT "Id", "N", "M", "C" FROM shop.orders WHERE NOT __deleted ORDER BY "Id"'
QUARANTINE = "SELECT key ->> 0, row_data ->> '__unstorable' FROM floodmark.quarantine ORDER BY 1"
HIGH, LOW = "NCHAR(0xD83D)", "NCHAR(0xDE00)"
GOOD = ("o\ufffdk 😀", "é" * 3000, "ж  ")


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[SwitchRig]:
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, N nvarchar(20), M nvarchar(max), C nchar(3))",
            "INSERT dbo.Orders VALUES (0, NULL, NULL, NULL),"
            " (1, N'o' + NCHAR(0xFFFD) + N'k 😀', REPLICATE(CAST(N'é' AS nvarchar(max)), 3000), N'ж')",
        )
        source.enable("Orders")
        yield SwitchRig(emulator, source, database)


def insert(rig: SwitchRig) -> None:
    """Insert rows with half of a pair at each place, in each type, and next to the other half in another row."""
    rig.change(
        f"INSERT dbo.Orders VALUES (2, N'a' + {HIGH}, N'', N''), (3, {LOW} + N'b', N'', N''),"
        f" (4, N'', N'long' + {LOW} + {HIGH}, N''), (5, N'', N'', {HIGH}), (6, N'', N'fine', N'')"
    )


def unstorable(rig: SwitchRig, policy: UnstorablePolicy) -> None:
    rig.pipelines = [
        replace(each, tables=tuple(replace(table, unstorable=policy) for table in each.tables))
        for each in rig.pipelines
    ]


def load_them(rig: SwitchRig, *, first: bool) -> None:
    if not first:
        rig.run()
    insert(rig)
    rig.run()


@pytest.mark.parametrize("first", [True, False])
def test_row_with_half_of_a_pair_goes_to_quarantine_and_all_others_arrive_as_they_are(
    rig: SwitchRig, first: bool
) -> None:
    load_them(rig, first=first)
    assert rig.rows(LIVING) == [(0, None, None, None), (1, *GOOD), (6, "", "fine", "   ")]
    reason = "an unpaired surrogate"
    assert rig.rows(QUARANTINE) == [
        (key, f'{{"{column}": "{reason}"}}') for key, column in [("2", "N"), ("3", "N"), ("4", "M"), ("5", "C")]
    ]
    (found,) = verify_tables(rig.pipelines[0], rig.at, rig.connection)
    assert (found.waiting_rows, found.missing_rows, found.different_rows, found.extra_rows) == (4, 0, 0, 0)


@pytest.mark.parametrize("first", [True, False])
def test_half_of_a_pair_is_replaced_where_the_policy_says_so(rig: SwitchRig, first: bool) -> None:
    unstorable(rig, UnstorablePolicy.REPLACE)
    load_them(rig, first=first)
    assert rig.rows(LIVING)[2:] == [
        (2, "a\ufffd", "", "   "),
        (3, "\ufffdb", "", "   "),
        (4, "", "long\ufffd\ufffd", "   "),
        (5, "", "", "\ufffd  "),
        (6, "", "fine", "   "),
    ]


@pytest.mark.parametrize("first", [True, False])
def test_half_of_a_pair_stops_the_table_where_the_policy_says_so(rig: SwitchRig, first: bool) -> None:
    if not first:
        rig.run()
    unstorable(rig, UnstorablePolicy.FAIL)
    insert(rig)
    with pytest.raises(DataQualityError, match=r"texts cannot be stored in PostgreSQL: .* \(an unpaired surrogate\)"):
        rig.run()


def test_keys_that_differ_in_half_of_a_pair_are_different_rows_in_chunks_and_windows(
    emulator: Emulator, database: WarehouseConnection
) -> None:
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (Id nvarchar(10) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY, N int)",
            f"INSERT dbo.Orders VALUES (N'', 0), (NCHAR(0xFFFD), 1), ({HIGH}, 2), ({LOW}, 3), (N'ü', 4),"
            f" ({LOW} + {HIGH}, 5)",
        )
        source.enable("Orders")
        rig = SwitchRig(emulator, source, database)
        (settings,) = rig.pipelines
        tables = tuple(replace(table, first_load=FirstLoad(chunk_rows=1)) for table in settings.tables)
        rig.pipelines = [replace(settings, tables=tables)]
        rig.run()
        living = 'SELECT "Id", "N" FROM shop.orders WHERE NOT __deleted ORDER BY "N"'
        assert rig.rows(living) == [("", 0), ("\ufffd", 1), ("ü", 4)]
        rig.change(f"UPDATE dbo.Orders SET N = 6 WHERE Id = {HIGH}", f"DELETE dbo.Orders WHERE Id = {LOW}")
        rig.change("UPDATE dbo.Orders SET N = 7 WHERE Id = NCHAR(0xFFFD)")
        rig.run()
        assert rig.rows(living) == [("", 0), ("ü", 4), ("\ufffd", 7)]
        rows = "SELECT row_data ->> 'N' FROM floodmark.quarantine WHERE rule = 'text_can_be_stored' ORDER BY 1"
        assert [int(number) for (number,) in rig.rows(rows)] == [2, 3, 5, 6]
