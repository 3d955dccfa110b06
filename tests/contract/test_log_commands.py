"""A log as a user meets it: from ``pipelines.yaml`` by the command to SELECT, with the checks of each window."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_database import CdcDatabase, cdc_database
from command_rig import CommandRig
from emulator_process import Emulator

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
CONFIG = """
sources: {{shop: {{conn_id: shop_mssql}}}}
warehouse: {{conn_id: warehouse}}
pipelines:
  shop:
    source: shop
    {pipeline}
    tables:
      - {{source: dbo.Orders, target: shop.orders}}
      - source: dbo.Lines
        target: shop.lines_log
        style: log
        rules: [{{name: positive, sql: "amount > 0"}}]
        expectations: [{{type: expect_column_values_to_not_be_null, kwargs: {{column: Amount}}}}]
"""
LOG = 'SELECT __op, "Id", "Amount" FROM shop.lines_log ORDER BY __load, __lsn, __command_id, __seq, __op'


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        for name in ("Orders", "Lines"):
            made.run(f"CREATE TABLE dbo.{name} (Id int NOT NULL PRIMARY KEY, Amount int)")
            made.enable(name)
        made.run("INSERT INTO dbo.Orders VALUES (1, 1)", "INSERT INTO dbo.Lines VALUES (1, 10), (2, 20)")
        made.scan()
        yield made


@pytest.fixture
def rig(commands: CommandRig) -> CommandRig:
    commands.configure(CONFIG.format(pipeline="schedule: null"))
    return commands


def change(rig: CommandRig, *statements: str) -> None:
    rig.source.run(*statements)
    rig.source.scan()


def test_log_is_filled_checked_released_and_replayed(rig: CommandRig) -> None:
    rig.call("run", "shop")
    change(
        rig,
        "UPDATE dbo.Lines SET Amount = -1 WHERE Id = 1",
        "UPDATE dbo.Lines SET Amount = 11 WHERE Id = 1",
        "DELETE dbo.Lines WHERE Id = 2",
        "DELETE dbo.Orders WHERE Id = 1",
    )
    rig.call("run", "shop")
    merged = [(0, 1, 10), (0, 2, 20), (4, 1, 11), (1, 2, 20)]
    assert rig.rows(LOG) == merged
    assert "dbo.Lines positive 1" in rig.call("quarantine", "list", "shop")
    change(rig, "UPDATE dbo.Lines SET Amount = 12 WHERE Id = 1")
    rig.call("run", "shop")
    # A later change of its row does not settle a change that waits.
    rig.configure(CONFIG.replace("amount > 0", "amount > -9").format(pipeline="schedule: null"))
    rig.call("quarantine", "release", "shop", "dbo.Lines")
    assert rig.rows(LOG) == [*merged[:2], (4, 1, -1), *merged[2:], (4, 1, 12)]
    ((after, to),) = rig.rows("SELECT encode(min(to_lsn), 'hex'), encode(max(to_lsn), 'hex') FROM floodmark.windows")
    before = rig.rows("SELECT * FROM shop.lines_log ORDER BY __lsn, __command_id, __seq, __op")
    rig.call(
        "replay", "shop", "--from-lsn", f"0x{int(after, 16) + 1:020X}", "--to-lsn", f"0x{to}", "--table", "dbo.Lines"
    )
    assert rig.rows("SELECT * FROM shop.lines_log ORDER BY __lsn, __command_id, __seq, __op") == before
    assert "dbo.Lines" in rig.call("status", "shop")


def test_check_of_a_window_finds_a_change_that_is_not_in_the_log(rig: CommandRig) -> None:
    rig.call("run", "shop")
    rig.rows(
        "CREATE FUNCTION shop.lose() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        " CREATE TRIGGER lose BEFORE INSERT ON shop.lines_log FOR EACH ROW WHEN (NEW.__op = 1)"
        " EXECUTE FUNCTION shop.lose()"
    )
    change(rig, "DELETE dbo.Lines WHERE Id = 2")
    status, output = rig.try_call("run", "shop")
    assert status != 0
    assert "every_staged_row_merged" in output


def test_plan_names_the_style_that_was_changed(rig: CommandRig) -> None:
    rig.call("run", "shop")
    change(rig, "DELETE dbo.Lines WHERE Id = 1", "EXEC sys.sp_cdc_start_job")
    rig.configure(CONFIG.format(pipeline="schedule: null").replace("style: log", "style: current"))
    status, output = rig.try_call("plan", "shop")
    assert status == 3
    assert "style: log -> current. One target has one style for good" in output
    assert "was made with style: log, and pipelines.yaml has style: current" in output


def test_verify_compares_the_other_tables(rig: CommandRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.call("run", "shop")
    compared = rig.call("verify", "shop")
    assert "dbo.Orders equal" in compared
    assert "shop.lines_log" not in compared
    assert "dbo.Lines is not compared: its target is a log of changes" in caplog.text


def test_configuration_that_loses_changes_is_refused_by_the_check(rig: CommandRig) -> None:
    rig.configure(CONFIG.format(pipeline="deletes: hard"))
    status, output = rig.try_call("config", "check")
    assert status == 2
    assert "pipelines.shop.tables[1]: style: log, but deletes: hard deletes rows of the target" in output


def test_table_without_a_key_is_a_log_for_every_command(rig: CommandRig) -> None:
    rig.source.run("CREATE TABLE dbo.Heap (Id int, Amount int)", "INSERT INTO dbo.Heap VALUES (1, 10), (1, 10)")
    rig.source.enable("Heap")
    rig.source.scan()
    config = CONFIG.format(pipeline="schedule: null").replace("dbo.Lines", "dbo.Heap")
    config = config.replace("amount > 0", "amount > 5")
    rig.configure(config.replace("style: log", "style: current"))
    # The others are published, and the run fails at its end.
    status, output = rig.try_call("run", "shop")
    assert status != 0
    assert "neither a primary key nor a declared key" in output
    assert "If there are none, set style: log" in output
    rig.configure(config)
    rig.call("run", "shop")
    change(rig, "UPDATE TOP (1) dbo.Heap SET Amount = 1", "UPDATE dbo.Heap SET Amount = 11 WHERE Amount = 1")
    rig.call("run", "shop")
    assert rig.rows(LOG) == [(0, 1, 10), (0, 1, 10), (3, 1, 10), (3, 1, 1), (4, 1, 11)]
    rig.configure(config.replace("amount > 5", "amount > 0"))
    rig.call("quarantine", "release", "shop", "dbo.Heap")
    merged = [(0, 1, 10), (0, 1, 10), (3, 1, 10), (4, 1, 1), (3, 1, 1), (4, 1, 11)]
    assert rig.rows(LOG) == merged
    assert "dbo.Heap: none, and a log needs none." in rig.try_call("doctor", "shop", "--all")[1]
    rig.call("reload", "shop", "dbo.Heap")
    assert sorted(rig.rows(LOG)) == sorted([*merged, (0, 1, 10), (0, 1, 11)])
    compared = rig.call("verify", "shop")
    assert "dbo.Orders equal" in compared
    assert "shop.lines_log" not in compared
    assert "dbo.Heap" in rig.call("status", "shop")
    status, output = rig.try_call("forget", "shop", "dbo.Heap", "--key", "Id=1")
    assert (status, "a log without a key of the source, and no key can be forgotten" in output) == (2, True), output


def test_options_of_a_log_are_for_logs_alone(rig: CommandRig) -> None:
    written = CONFIG.format(pipeline="schedule: null")
    for option, words in (
        ("before_images: true", "only style: log has images of changes"),
        ("snapshot: false", "only style: log may begin without the rows of the table"),
    ):
        rig.configure(written.replace("style: log", f"style: log\n        {option}"))
        assert option in rig.call("config", "check", "--show")
        for style in ("current", "history", "snapshot"):
            rig.configure(written.replace("style: log", f"style: {style}\n        {option}"))
            status, output = rig.try_call("config", "check")
            assert (status, f"{option}, but {words}" in " ".join(output.split())) == (2, True), output


def test_log_without_a_snapshot_passes_its_checks_and_brings_rows_before_updates(rig: CommandRig) -> None:
    options = "style: log\n        snapshot: false\n        before_images: true"
    rig.configure(CONFIG.format(pipeline="schedule: null").replace("style: log", options))
    rig.call("run", "shop")
    assert rig.rows(LOG) == []
    change(rig, "UPDATE dbo.Lines SET Amount = 11 WHERE Id = 1", "UPDATE dbo.Lines SET Amount = -2 WHERE Id = 2")
    rig.call("run", "shop")
    assert rig.rows(LOG) == [(3, 1, 10), (4, 1, 11), (3, 2, 20)]
