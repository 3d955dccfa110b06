"""Histories and logs over change tracking as a user meets them, with the checks of each window."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_database import CdcDatabase, cdc_database
from command_rig import CommandRig
from emulator_process import Emulator

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
CONFIG = """
sources: {shop: {conn_id: shop_mssql, kind: change_tracking}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    schedule: null
    tables:
      - source: dbo.Lines
        target: shop.lines
        style: history
        keep_versions: 7y
        rules: [{name: positive, sql: "amount > 0"}]
  audit:
    source: shop
    schedule: null
    style: log
    tables:
      - {source: dbo.Lines, target: audit.lines}
"""
HISTORY = 'SELECT __op, "Id", "Amount", __next_lsn IS NULL FROM shop.lines_history ORDER BY "Id", __load, __lsn'
LOG = 'SELECT __op, "Id", "Amount" FROM audit.lines ORDER BY __load, __lsn, __command_id, __seq, __op, "Id"'


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(
            f"ALTER DATABASE {made.name} SET CHANGE_TRACKING = ON",
            f"ALTER DATABASE {made.name} SET ALLOW_SNAPSHOT_ISOLATION ON",
            "CREATE TABLE dbo.Lines (Id int NOT NULL PRIMARY KEY, Amount int)",
            "ALTER TABLE dbo.Lines ENABLE CHANGE_TRACKING",
            "INSERT INTO dbo.Lines VALUES (1, 10), (2, 20)",
        )
        yield made


@pytest.fixture
def rig(commands: CommandRig) -> CommandRig:
    commands.configure(CONFIG)
    return commands


def run_both(rig: CommandRig, *statements: str) -> None:
    rig.source.run(*statements)
    rig.call("run", "shop")
    rig.call("run", "audit")


def test_history_and_log_are_filled_checked_verified_and_forgotten(rig: CommandRig) -> None:
    rig.call("config", "check")
    run_both(rig)
    run_both(
        rig,
        "UPDATE dbo.Lines SET Amount = Amount + 1",
        "INSERT INTO dbo.Lines VALUES (3, 30), (4, -4)",
        "DELETE dbo.Lines WHERE Id = 3",
    )
    assert "1 row waits in quarantine" in rig.call("verify", "shop")
    run_both(rig, "DELETE dbo.Lines WHERE Id IN (2, 4)", "UPDATE dbo.Lines SET Amount = 12 WHERE Id = 1")
    first = [(2, 1, 10, False), (4, 1, 11, False), (4, 1, 12, True)]
    # The insert of the last row waits in quarantine. Its delete has come.
    assert rig.rows(HISTORY) == [
        *first,
        (2, 2, 20, False),
        (4, 2, 21, False),
        (1, 2, 21, True),
        (1, 4, None, True),
    ]
    assert rig.rows(LOG) == [
        (0, 1, 10),
        (0, 2, 20),
        (4, 1, 11),
        (4, 2, 21),
        (2, 4, -4),
        (1, 3, None),
        (1, 2, None),
        (1, 4, None),
        (4, 1, 12),
    ]
    assert "dbo.Lines equal" in rig.call("verify", "shop")
    for pipeline in ("shop", "audit"):
        rig.call("status", pipeline)
        rig.call("forget", pipeline, "dbo.Lines", "--key", "Id=2")
    assert rig.rows('SELECT count(*) FROM audit.lines WHERE "Id" = 2') == [(0,)]
    assert {row[1] for row in rig.rows(HISTORY)} == {1, 4}
    rig.call("reload", "shop", "dbo.Lines")
    rig.call("reload", "audit", "dbo.Lines")
    assert rig.rows(HISTORY)[:3] == first
    assert rig.rows(LOG)[-1] == (0, 1, 12)
