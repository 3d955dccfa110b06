"""A readable secondary that lags: what it lacks is tried again, and is neither a restored source nor a gap nor lost."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from switch_rig import ORDERS, SwitchRig
from typer.testing import CliRunner

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator, running_emulator
from floodmark.cli.main import app
from floodmark.core.errors import ConfigError, SourceAdminError, SourceBehindError
from floodmark.core.position import Lsn
from floodmark.core.settings import OnGap
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.cdc.source import SqlServerInstances, SqlServerSource
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.sync.finish import advance_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from in_process_stager import InProcessStager
from row_verification import reading
from stream_rig import stream_rig

CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    schedule: "@weekly"
    tables:
      - {source: dbo.Orders, target: shop.orders}
"""


@pytest.fixture(scope="module")
def group(open_dir: Path) -> Iterator[Emulator]:
    """A primary and its readable secondary."""
    with running_emulator(open_dir / "lagging", "--capture-interval", "0.1", "--secondary-port", "0") as running:
        yield running


@pytest.fixture
def source(group: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(group) as database:
        database.run("CREATE TABLE dbo.Orders (Id int PRIMARY KEY, Amount int)")
        database.enable("Orders")
        database.run("INSERT INTO dbo.Orders VALUES (1, 1)")
        database.scan()
        yield database
        database.run("EXEC emulator.reset")


@pytest.fixture
def rig(group: Emulator, source: CdcDatabase, database: WarehouseConnection) -> SwitchRig:
    rig = SwitchRig(group, source, database)
    repairing = replace(rig.pipelines[0].tables[0], on_gap=OnGap.REPAIR)
    rig.pipelines = [replace(rig.pipelines[0], tables=(repairing,))]
    return rig


@pytest.fixture
def secondary(rig: SwitchRig) -> SqlServerConnection:
    """The connection of the primary, which leads a session that only reads to the secondary."""
    return replace(rig.at, application_intent="ReadOnly")


@pytest.fixture
def cli(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secondary: SqlServerConnection, database: WarehouseConnection
) -> CliRunner:
    """The command, whose connection of the source leads to the secondary."""
    path = tmp_path / "pipelines.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    source = {
        "conn_type": "mssql",
        "host": secondary.host,
        "port": secondary.port,
        "login": secondary.user,
        "password": secondary.password,
        "schema": secondary.database,
        "extra": {"ca_file": secondary.ca_file, "application_intent": secondary.application_intent},
    }
    warehouse = {"conn_type": "postgres", "host": database.host, "login": database.user, "schema": database.database}
    monkeypatch.setenv("FLOODMARK_CONFIG", str(path))
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_MSSQL", json.dumps(source))
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps({**warehouse, "port": database.port}))
    return CliRunner()


def load_from(rig: SwitchRig, window_id: int | None, rows: SqlServerConnection, control: SqlServerConnection) -> None:
    assert window_id is not None
    load_window(window_id, rig.ledger, rig.warehouse, SqlServerSource(control), InProcessStager(reading(rows)))


def windows(rig: SwitchRig) -> list[tuple[str, str]]:
    """Return kind and state of each window, oldest first."""
    sql = (
        "SELECT t.kind, w.state FROM floodmark.windows AS w JOIN floodmark.window_tables AS t USING (window_id)"
        " ORDER BY window_id"
    )
    return [(kind, state) for kind, state in rig.rows(sql)]


def test_pipeline_reads_everything_from_a_secondary(rig: SwitchRig, secondary: SqlServerConnection) -> None:
    rig.at = secondary
    rig.run()
    rig.change("INSERT INTO dbo.Orders VALUES (2, 2)", "DELETE FROM dbo.Orders WHERE Id = 1")
    rig.run()
    assert rig.differing() == []
    assert SqlServerSource(secondary).read_snapshot([ORDERS]).is_replica


def test_pipeline_moves_between_primary_and_secondary_without_confirmation(
    rig: SwitchRig, secondary: SqlServerConnection
) -> None:
    rig.run()
    rig.change("INSERT INTO dbo.Orders VALUES (2, 2)")
    primary, rig.at = rig.at, secondary
    rig.run()
    rig.change("INSERT INTO dbo.Orders VALUES (3, 3)")
    rig.at = primary
    rig.run()
    assert rig.differing() == []


def test_first_load_from_a_secondary_that_lags_is_tried_again(rig: SwitchRig, secondary: SqlServerConnection) -> None:
    rig.database.run("EXEC emulator.hold_secondary")
    rig.change("INSERT INTO dbo.Orders VALUES (2, 2)")
    opened = rig.open()
    with pytest.raises(SourceBehindError, match="copy of the database") as caught:
        load_from(rig, opened.window_id, secondary, rig.at)
    assert caught.value.retryable
    rig.database.run("EXEC emulator.release_secondary")
    rig.at = secondary
    rig.run()
    assert rig.differing() == []


def test_changes_that_a_secondary_does_not_have_yet_are_tried_again(
    rig: SwitchRig, secondary: SqlServerConnection
) -> None:
    rig.run()
    rig.database.run("EXEC emulator.hold_secondary")
    rig.change("INSERT INTO dbo.Orders VALUES (2, 2)")
    opened = rig.open()
    for _ in range(2):
        with pytest.raises(SourceBehindError, match="copy of the database"):
            load_from(rig, opened.window_id, secondary, rig.at)
    assert rig.rows("SELECT count(*) FROM shop.orders") == [(1,)]
    rig.database.run("EXEC emulator.release_secondary")
    load_from(rig, opened.window_id, secondary, rig.at)
    rig.run()
    assert rig.differing() == []
    assert windows(rig)[-1][1] == "advanced"


def test_rows_are_not_verified_by_a_secondary_that_lags(rig: SwitchRig, secondary: SqlServerConnection) -> None:
    rig.run()
    rig.database.run("EXEC emulator.hold_secondary")
    rig.change("INSERT INTO dbo.Orders VALUES (2, 2)")
    opened = rig.open()
    with pytest.raises(SourceBehindError, match="readable replica"):
        load_from(rig, opened.window_id, rig.at, secondary)
    rig.database.run("EXEC emulator.release_secondary")
    rig.at = secondary
    rig.run()
    assert rig.differing() == []


def test_secondary_behind_the_watermark_is_neither_a_gap_nor_a_drift(
    rig: SwitchRig, secondary: SqlServerConnection
) -> None:
    rig.run()
    rig.database.run("EXEC emulator.hold_secondary")
    rig.change("ALTER TABLE dbo.Orders ADD Note int", "INSERT INTO dbo.Orders VALUES (2, 2, 2)")
    rig.run()
    before = windows(rig), rig.rows("SELECT event_id FROM floodmark.drift_events")
    lagging = SqlServerSource(secondary)
    for _ in range(2):
        with pytest.raises(SourceBehindError, match="readable replica") as caught:
            open_window(rig.pipelines[0], lagging, rig.ledger, rig.watch)
        assert caught.value.retryable
    assert rig.rows("SELECT verdict FROM floodmark.verdicts") == [("replica_behind",)]
    assert (windows(rig), rig.rows("SELECT event_id FROM floodmark.drift_events")) == before
    rig.database.run("EXEC emulator.release_secondary")
    rig.change("INSERT INTO dbo.Orders VALUES (3, 3, 3)")
    rig.at = secondary
    rig.run()
    assert rig.differing() == []


def test_pipeline_that_knows_only_the_lagging_secondary_reads_as_far_as_it_has(
    rig: SwitchRig, secondary: SqlServerConnection
) -> None:
    rig.at = secondary
    rig.run()
    rig.change("INSERT INTO dbo.Orders VALUES (2, 2)")
    rig.database.run("EXEC emulator.hold_secondary")
    rig.change("INSERT INTO dbo.Orders VALUES (3, 3)", "UPDATE dbo.Orders SET Amount = 9")
    rig.run()
    rig.run()
    assert rig.rows('SELECT "Id", "Amount" FROM shop.orders ORDER BY "Id"') == [(1, 1), (2, 2)]
    held = SqlServerSource(secondary).read_snapshot([ORDERS]).newest
    rig.database.run("EXEC emulator.release_secondary")
    newest = SqlServerSource(secondary).read_snapshot([ORDERS]).newest
    assert isinstance(held, Lsn) and isinstance(newest, Lsn) and held < newest
    rig.run()
    assert rig.differing() == []
    assert windows(rig) == [("first_load", "advanced"), ("changes", "advanced"), ("changes", "advanced")]


def test_change_of_the_source_over_a_secondary_is_led_to_the_primary(secondary: SqlServerConnection) -> None:
    enabling = (
        "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'Orders', @role_name = NULL,"
        " @capture_instance = N'second'"
    )
    with pytest.raises(SourceAdminError, match="read-only") as caught:
        SqlServerInstances(secondary).make_instance(enabling)
    assert "connection to the primary" in str(caught.value)
    with pytest.raises(SourceAdminError, match="read-only"):
        SqlServerInstances(secondary).drop_instance(ORDERS, "dbo_Orders")


def test_commands_report_a_secondary_that_lags_and_conclude_nothing_from_it(rig: SwitchRig, cli: CliRunner) -> None:
    rig.run()
    rig.database.run("EXEC emulator.hold_secondary")
    rig.change("INSERT INTO dbo.Orders VALUES (2, 2)")
    rig.run()
    verified = cli.invoke(app, ["verify", "shop"])
    assert verified.exit_code == 75
    assert "dbo.Orders: replica_behind: a readable replica answered" in verified.output
    checked = cli.invoke(app, ["status", "--live", "--check"])
    assert checked.exit_code == 3
    assert "replica_behind" in checked.output
    examined = cli.invoke(app, ["doctor", "shop", "--json"])
    assert examined.exit_code == 0
    assert "read-only replica" in examined.output
    rig.database.run("EXEC emulator.release_secondary")
    assert cli.invoke(app, ["verify", "shop"]).exit_code == 0


def test_streamed_table_is_read_from_the_primary_only(
    group: Emulator, database: WarehouseConnection, tmp_path: Path
) -> None:
    """The stream may have changes that a secondary lacks, and events that a load seems to have read are not merged."""
    with stream_rig(group, database, tmp_path) as rig:
        primary = rig.at
        secondary = replace(primary, application_intent="ReadOnly")
        rig.stream(*rig.change((1, "1.00", "old"), (2, "2.00", "gone")))
        rig.client.run("EXEC emulator.hold_secondary")
        rig.stream(*rig.change((1, "9.00", "changed"), 2, (3, "3.00", "new")))
        rig.at = secondary
        with pytest.raises(ConfigError, match="reads a copy of the database that cannot be written"):
            rig.sync()
        rig.at = primary
        opened = rig.open()
        rig.at = secondary
        with pytest.raises(ConfigError, match="reads a copy of the database that cannot be written"):
            rig.load(opened)
        rig.client.run("EXEC emulator.release_secondary")
        rig.at = primary
        rig.sync()
        assert rig.differing() == []


@pytest.mark.parametrize("seed", range(3))
def test_answers_of_changing_copies_lose_nothing_and_repair_nothing(
    rig: SwitchRig, secondary: SqlServerConnection, seed: int
) -> None:
    """Each question of a run goes to the primary or to the secondary, which lags or does not, in a random order."""
    drawn = random.Random(seed)
    copies = (rig.at, secondary)
    rig.run()
    for step in range(2, 11):
        rig.change(f"INSERT INTO dbo.Orders VALUES ({step}, 0)", "UPDATE dbo.Orders SET Amount = Amount + 1")
        rig.database.run(f"EXEC emulator.{drawn.choice(('hold', 'hold', 'release'))}_secondary")
        rig.change(f"DELETE FROM dbo.Orders WHERE Id = {drawn.randrange(step)}")
        with suppress(SourceBehindError):
            opened = open_window(rig.pipelines[0], SqlServerSource(drawn.choice(copies)), rig.ledger, rig.watch)
            if opened.window_id is not None:
                load_from(rig, opened.window_id, drawn.choice(copies), drawn.choice(copies))
                rig.ledger.mark_checked(opened.window_id)
                advance_window(opened.window_id, rig.ledger, rig.warehouse)
    rig.database.run("EXEC emulator.release_secondary")
    for key in (98, 99):
        # The first run may finish the window of the last step.
        rig.change(f"INSERT INTO dbo.Orders VALUES ({key}, 0)")
        rig.run()
    assert rig.differing() == []
    assert [kind for kind, _ in windows(rig)].count("first_load") == 1
    assert rig.rows("SELECT event_id FROM floodmark.drift_events") == []
