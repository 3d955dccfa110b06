"""A source table whose rows a security policy filters: what the login of the pipeline sees of it, by kind of source."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_database import CdcDatabase, cdc_database
from command_rig import CommandRig
from emulator_process import Emulator

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
CONFIG = """
sources: {{shop: {{conn_id: shop_mssql, kind: {kind}}}}}
warehouse: {{conn_id: warehouse}}
pipelines:
  shop:
    source: shop
    schedule: null
    tables:
      - {{source: dbo.Regions, target: shop.regions, style: {style}, security_filtered: {filtered}}}
"""
LIVING = 'SELECT "Id", "Region", "Amount" FROM shop.regions WHERE NOT __deleted ORDER BY "Id"'
NORTH, SOUTH, EAST = (1, "north", 10), (2, "south", 21), (3, "east", 30)


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(
            f"ALTER DATABASE {made.name} SET CHANGE_TRACKING = ON",
            f"ALTER DATABASE {made.name} SET ALLOW_SNAPSHOT_ISOLATION ON",
            "CREATE TABLE dbo.Regions (Id int NOT NULL PRIMARY KEY, Region varchar(9) NOT NULL, Amount int)",
            "ALTER TABLE dbo.Regions ENABLE CHANGE_TRACKING",
            "CREATE FUNCTION dbo.Passes (@r varchar(9)) RETURNS TABLE AS RETURN SELECT 1 AS x WHERE @r = 'north'",
        )
        made.enable("Regions")
        made.run(
            "INSERT INTO dbo.Regions VALUES (1, 'north', 10), (2, 'south', 20)",
            "CREATE SECURITY POLICY dbo.RegionFilter ADD FILTER PREDICATE dbo.Passes(Region) ON dbo.Regions",
        )
        made.scan()
        yield made


def change_hidden(rig: CommandRig, *statements: str) -> None:
    """Change rows as an application does that the policy does not concern."""
    rig.source.run("ALTER SECURITY POLICY dbo.RegionFilter WITH (STATE = OFF)", *statements)
    rig.source.run("ALTER SECURITY POLICY dbo.RegionFilter WITH (STATE = ON)")
    rig.source.scan()


@pytest.mark.parametrize("style", ["current", "history"])
@pytest.mark.parametrize("kind", ["cdc", "change_tracking"])
def test_loads_have_the_visible_rows_and_the_changes_of_cdc_are_those_of_all(
    commands: CommandRig, kind: str, style: str
) -> None:
    rig = commands
    rig.configure(CONFIG.format(kind=kind, style=style, filtered="refuse"))
    status, output = rig.try_call("run", "shop")
    assert status != 0
    assert "dbo.RegionFilter" in output
    rig.configure(CONFIG.format(kind=kind, style=style, filtered="accept"))
    rig.call("run", "shop")
    assert rig.rows(LIVING) == [NORTH]
    change_hidden(
        rig, "UPDATE dbo.Regions SET Amount = 21 WHERE Id = 2", "INSERT INTO dbo.Regions VALUES (3, 'east', 30)"
    )
    rig.call("run", "shop")
    changed = [NORTH, SOUTH, EAST] if kind == "cdc" else [NORTH]
    assert rig.rows(LIVING) == changed
    extra = {key for key in (2, 3) if f"key ({key}) is extra" in rig.try_call("verify", "shop")[1]}
    assert extra == ({2, 3} if kind == "cdc" else set())
    # A row that leaves the sight of the login stays as it was: no delete shows it, and no load deletes it.
    change_hidden(rig, "UPDATE dbo.Regions SET Region = 'west' WHERE Id = 1")
    rig.call("run", "shop")
    moved = [(1, "west", 10), SOUTH, EAST] if kind == "cdc" else [NORTH]
    assert rig.rows(LIVING) == moved
    rig.call("reload", "shop", "dbo.Regions")
    assert rig.rows(LIVING) == moved
    change_hidden(rig, "DELETE dbo.Regions")
    rig.call("run", "shop")
    assert rig.rows(LIVING) == []
