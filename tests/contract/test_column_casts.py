"""Columns that have another type in the target: from the file to SELECT, with every style."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_database import CdcDatabase, cdc_database
from command_rig import CommandRig
from emulator_process import Emulator

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
COLUMNS = """
          Small: {cast: bigint}
          At: {cast: date, as: day}
          Fine: {cast: date}
          Price: {cast: text}
          Code: {cast: text}
          Flag: {cast: text}
          Moment: {cast: text}
          Born: {mask: year, cast: text}
          Grams: {mask: {round: -3}, cast: text}
"""
CONFIG = f"""
sources: {{shop: {{conn_id: shop_mssql}}}}
warehouse: {{conn_id: warehouse}}
pipelines:
  shop:
    source: shop
    schedule: null
    tables:
      - source: dbo.Facts
        target: shop.facts
        style: current
        temporal: truncate
        columns:
{COLUMNS}
"""
TABLE = (
    "Id int NOT NULL PRIMARY KEY, Small tinyint, At datetime, Fine datetime2(7), Price decimal(38, 4),"
    " Code uniqueidentifier, Flag bit, Moment datetime2(3), Born date, Grams int, Note nvarchar(max)"
)
FACTS = 'SELECT "Id", "Small", day::text, "Fine"::text, "Price", "Code", "Flag", "Moment", "Born", "Grams"'
GUID = "6F9619FF-8B86-D011-B42D-00C04FC964FF"
CAST = (
    255,
    "1969-12-31",
    "2026-01-31",
    "-0.0500",
    GUID.lower(),
    "1",
    "2026-02-03 04:05:06.789000",
    "1987-01-01",
    "42000",
)


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(f"CREATE TABLE dbo.Facts ({TABLE})")
        made.enable("Facts")
        yield made


@pytest.fixture
def rig(commands: CommandRig) -> CommandRig:
    commands.configure(CONFIG)
    return commands


def change(rig: CommandRig, *statements: str) -> None:
    rig.source.run(*statements)
    rig.source.scan()


def fact(number: int) -> str:
    return (
        f"({number}, 255, '1969-12-31T23:59:59.997', '2026-01-31 23:59:59.9999999', -0.05, '{GUID}', 1,"
        " '2026-02-03 04:05:06.789', '1987-06-05', 41500, N'note')"
    )


def facts(rig: CommandRig) -> list[tuple[object, ...]]:
    return rig.rows(f'{FACTS} FROM shop.facts ORDER BY "Id"')


@pytest.mark.parametrize("temporal", ["truncate", "text"])
def test_columns_come_to_the_target_with_the_types_of_the_file(rig: CommandRig, temporal: str) -> None:
    rig.configure(CONFIG.replace("temporal: truncate", f"temporal: {temporal}"))
    change(rig, f"INSERT INTO dbo.Facts VALUES {fact(1)}", "INSERT INTO dbo.Facts (Id) VALUES (2)")
    rig.call("config", "check")
    rig.call("run", "shop")
    nothing = (None,) * len(CAST)
    assert facts(rig) == [(1, *CAST), (2, *nothing)]
    types = rig.rows(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'facts'"
        " AND column_name IN ('Small', 'day', 'Price', 'Code') ORDER BY 1"
    )
    assert types == [
        ("Code", "character varying"),
        ("Price", "character varying"),
        ("Small", "bigint"),
        ("day", "date"),
    ]
    change(
        rig,
        f"INSERT INTO dbo.Facts VALUES {fact(3)}",
        "UPDATE dbo.Facts SET Small = 7 WHERE Id = 1",
        "DELETE dbo.Facts WHERE Id = 2",
    )
    rig.call("run", "shop")
    assert facts(rig) == [(1, 7, *CAST[1:]), (2, *nothing), (3, *CAST)]
    assert "dbo.Facts equal" in rig.call("verify", "shop")


@pytest.mark.parametrize(("style", "rows"), [("log", 3), ("history", 2), ("snapshot", 2)])
def test_casts_work_with_every_style(rig: CommandRig, style: str, rows: int) -> None:
    rig.configure(CONFIG.replace("style: current", f"style: {style}"))
    change(rig, f"INSERT INTO dbo.Facts VALUES {fact(1)}")
    rig.call("run", "shop")
    change(rig, f"INSERT INTO dbo.Facts VALUES {fact(2)}", "UPDATE dbo.Facts SET Note = N'x' WHERE Id = 1")
    rig.call("run", "shop")
    found = facts(rig)
    assert len(found) == rows
    assert {row[1:] for row in found} == {CAST}


def test_changed_cast_leaves_the_table_out_until_its_target_is_made_again(rig: CommandRig) -> None:
    change(rig, f"INSERT INTO dbo.Facts VALUES {fact(1)}")
    rig.call("run", "shop")
    rig.configure(CONFIG.replace("Flag: {cast: text}", "Flag: keep"))
    change(rig, "UPDATE dbo.Facts SET Small = 7 WHERE Id = 1")
    status, output = rig.try_call("run", "shop")
    assert status != 0
    assert "Flag (cast: text, now as it is)" in output
    status, output = rig.try_call("reload", "shop", "dbo.Facts")
    assert status != 0
    assert "has rows with other values of Flag" in output
    rig.rows("DROP TABLE shop.facts")
    rig.call("reload", "shop", "dbo.Facts")
    assert rig.rows('SELECT "Flag", "Small" FROM shop.facts') == [(True, 7)]


def test_cast_of_another_type_or_of_the_key_is_refused_by_name(rig: CommandRig) -> None:
    change(rig, f"INSERT INTO dbo.Facts VALUES {fact(1)}")
    for columns, words in (
        ("Small: {cast: date}", "cast: date is for date, datetime, smalldatetime, datetime2, and Small is tinyint"),
        ("Note: {cast: text}", "and Note is nvarchar(max)"),
        ("Price: {cast: bigint}", "cast: bigint is for tinyint, smallint, int, bigint, and Price is decimal(38,4)"),
        ("Id: {cast: bigint}", "Id is part of the key, by which rows are merged, and cannot be cast"),
    ):
        rig.configure(CONFIG.replace(COLUMNS, f"\n          {columns}\n"))
        status, output = rig.try_call("run", "shop")
        assert (status != 0, words in output) == (True, True), output


def test_columns_of_change_tracking_are_cast_as_well(rig: CommandRig) -> None:
    rig.source.run(
        f"ALTER DATABASE [{rig.source.name}] SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 2 DAYS, AUTO_CLEANUP = ON)",
        "ALTER TABLE dbo.Facts ENABLE CHANGE_TRACKING",
        f"INSERT INTO dbo.Facts VALUES {fact(1)}",
    )
    tracked = CONFIG.replace("conn_id: shop_mssql", "conn_id: shop_mssql, kind: change_tracking")
    rig.configure(tracked.replace("        style: current\n", ""))
    rig.call("run", "shop")
    rig.source.run(f"INSERT INTO dbo.Facts VALUES {fact(2)}", "UPDATE dbo.Facts SET Small = 7 WHERE Id = 1")
    rig.call("run", "shop")
    assert facts(rig) == [(1, 7, *CAST[1:]), (2, *CAST)]
    assert "dbo.Facts equal" in rig.call("verify", "shop")
