"""A history as a user meets it: from ``pipelines.yaml`` by the command to SELECT, with the checks of each window."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_database import CdcDatabase, cdc_database
from command_rig import CommandRig
from emulator_process import Emulator

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    schedule: null
    tables:
      - source: dbo.Lines
        target: shop.lines
        style: history
        rules: [{name: positive, sql: "amount > 0"}]
        expectations: [{type: expect_column_values_to_not_be_null, kwargs: {column: Amount}}]
"""
HISTORY = 'SELECT __op, "Id", "Amount", __next_lsn IS NULL FROM shop.lines_history ORDER BY "Id", __load, __lsn'
WHOLE = 'SELECT * FROM shop.lines_history ORDER BY "Id", __load, __lsn'


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run("CREATE TABLE dbo.Lines (Id int NOT NULL PRIMARY KEY, Amount int)")
        made.enable("Lines")
        made.run("INSERT INTO dbo.Lines VALUES (1, 10), (2, 20)")
        made.scan()
        yield made


@pytest.fixture
def rig(commands: CommandRig) -> CommandRig:
    commands.configure(CONFIG)
    return commands


def change(rig: CommandRig, *statements: str) -> None:
    rig.source.run(*statements)
    rig.source.scan()


def replay(rig: CommandRig) -> None:
    """Merge everything again, also what the first load has read."""
    ((first, last),) = rig.rows("SELECT encode(min(to_lsn), 'hex'), encode(max(to_lsn), 'hex') FROM floodmark.windows")
    bounds = ("--from-lsn", f"0x{int(first, 16):020X}", "--to-lsn", f"0x{last}")
    rig.call("replay", "shop", *bounds, "--table", "dbo.Lines")


def test_history_is_filled_checked_released_and_replayed(rig: CommandRig) -> None:
    rig.call("run", "shop")
    change(
        rig,
        "UPDATE dbo.Lines SET Amount = -1 WHERE Id = 1",
        "UPDATE dbo.Lines SET Amount = 11 WHERE Id = 1",
        "DELETE dbo.Lines WHERE Id = 2",
    )
    rig.call("run", "shop")
    first, second = [(2, 1, 10, False)], [(2, 2, 20, False), (1, 2, 20, True)]
    assert rig.rows(HISTORY) == [*first, (4, 1, 11, True), *second]
    assert "dbo.Lines positive 1" in rig.call("quarantine", "list", "shop")
    change(rig, "UPDATE dbo.Lines SET Amount = 12 WHERE Id = 1")
    rig.call("run", "shop")
    # A later change of its row does not settle a change that waits, and its version falls into its place.
    rig.configure(CONFIG.replace("amount > 0", "amount > -9"))
    rig.call("quarantine", "release", "shop", "dbo.Lines")
    released = [*first, (4, 1, -1, False), (4, 1, 11, False), (4, 1, 12, True), *second]
    assert rig.rows(HISTORY) == released
    before = rig.rows(WHOLE)
    replay(rig)
    assert rig.rows(WHOLE) == before
    assert "dbo.Lines" in rig.call("status", "shop")
    assert "dbo.Lines equal" in rig.call("verify", "shop")


AGED = "__valid_from = __valid_from - interval '100 days', __committed_at = __committed_at - interval '100 days'"
KEPT = CONFIG.replace("style: history", "style: history\n        keep_versions: 90d")


def test_versions_that_ended_long_ago_are_deleted_and_an_old_change_is_overtaken(rig: CommandRig) -> None:
    rig.configure(KEPT)
    rig.call("run", "shop")
    change(rig, "UPDATE dbo.Lines SET Amount = 11 WHERE Id = 1", "DELETE dbo.Lines WHERE Id = 2")
    rig.call("run", "shop")
    change(rig, "UPDATE dbo.Lines SET Amount = -1 WHERE Id = 1")
    rig.call("run", "shop")
    change(rig, "UPDATE dbo.Lines SET Amount = 12 WHERE Id = 1")
    rig.call("run", "shop")
    before = [(2, 1, 10, False), (4, 1, 11, False), (4, 1, 12, True), (2, 2, 20, False), (1, 2, 20, True)]
    assert rig.rows(HISTORY) == before
    rig.rows(f"UPDATE shop.lines_versions SET {AGED}, __valid_to = __valid_to - interval '100 days'")
    rig.rows(f"UPDATE shop.lines SET {AGED}")
    rig.rows(
        "UPDATE floodmark.quarantine SET row_data = row_data || jsonb_build_object("
        "'__committed_at', (row_data ->> '__committed_at')::timestamptz - interval '100 days')"
    )
    change(rig, "INSERT INTO dbo.Lines VALUES (3, 30)")
    rig.call("run", "shop")
    newest = [(4, 1, 12, True), (1, 2, 20, True), (2, 3, 30, True)]
    assert rig.rows(HISTORY) == newest
    rig.configure(KEPT.replace("amount > 0", "amount > -9"))
    assert "overtaken by later changes: 1" in rig.call("quarantine", "release", "shop", "dbo.Lines")
    rig.call("reload", "shop", "dbo.Lines")
    assert rig.rows(HISTORY) == newest
    assert "dbo.Lines equal" in rig.call("verify", "shop")


def test_options_of_versions_are_for_histories_alone(rig: CommandRig) -> None:
    rig.configure(KEPT.replace("keep_versions: 90d", "open_end: 9999-12-31"))
    assert "open_end: 9999-12-31" in rig.call("config", "check", "--show").replace("'", "")
    rig.configure(KEPT.replace("90d", "7y"))
    assert "keep_versions: 2562d" in rig.call("config", "check", "--show")
    for text, words in (
        (KEPT.replace("style: history", "style: log"), "only style: history has versions"),
        (KEPT.replace("90d", "90h"), "such as 90d or 7y"),
        (KEPT.replace("90d", "0d"), "greater than 0"),
        (KEPT.replace("keep_versions: 90d", "open_end: 2026-12-31"), "should be greater than or equal to 2100-01-01"),
        (
            KEPT.replace("keep_versions: 90d", "open_end: 9999-12-31").replace("history", "log"),
            "only style: history has",
        ),
    ):
        rig.configure(text)
        status, output = rig.try_call("config", "check")
        assert (status, words in output) == (2, True), output


def test_row_of_a_load_that_is_released_begins_with_the_load(rig: CommandRig) -> None:
    rig.source.run("INSERT INTO dbo.Lines VALUES (3, -3)")
    rig.source.scan()
    rig.call("run", "shop")
    change(rig, "UPDATE dbo.Lines SET Amount = 4 WHERE Id = 3")
    rig.call("run", "shop")
    assert rig.rows(HISTORY)[2:] == [(4, 3, 4, True)]
    rig.configure(CONFIG.replace("amount > 0", "amount > -9"))
    rig.call("quarantine", "release", "shop", "dbo.Lines")
    assert rig.rows(HISTORY)[2:] == [(2, 3, -3, False), (4, 3, 4, True)]


def test_reload_gives_rows_that_differ_a_version_and_keeps_what_waits_in_quarantine(rig: CommandRig) -> None:
    rig.call("run", "shop")
    change(rig, "UPDATE dbo.Lines SET Amount = 11 WHERE Id = 1")
    rig.call("run", "shop")
    rig.rows(
        'UPDATE shop.lines SET "Amount" = 21 WHERE "Id" = 2; INSERT INTO shop.lines SELECT 3, 30, __load, __lsn,'
        " 2, false, NULL, '{}', NULL, __window_id, now() FROM shop.lines WHERE \"Id\" = 2"
    )
    change(rig, "UPDATE dbo.Lines SET Amount = -1 WHERE Id = 1")
    rig.call("reload", "shop", "dbo.Lines")
    newest = [(2, 2, 20, True), (2, 3, 30, False), (1, 3, 30, True)]
    assert rig.rows(HISTORY) == [(2, 1, 10, False), (4, 1, 11, True), (2, 2, 21, False), *newest]
    before = rig.rows(WHOLE)
    rig.call("reload", "shop", "dbo.Lines")
    assert rig.rows(WHOLE) == before


def test_window_that_a_check_refused_is_merged_again(rig: CommandRig) -> None:
    """Its table keeps the watermark, and has the events of the window."""
    rig.call("run", "shop")
    change(rig, "UPDATE dbo.Lines SET Amount = NULL WHERE Id = 1", "UPDATE dbo.Lines SET Amount = 20 WHERE Id = 2")
    status, output = rig.try_call("run", "shop")
    assert status != 0
    assert "expect_column_values_to_not_be_null" in output
    change(rig, "UPDATE dbo.Lines SET Amount = 12 WHERE Id = 1")
    rig.call("run", "shop")
    assert [row for row in rig.rows(HISTORY) if row[1] == 1] == [
        (2, 1, 10, False),
        (4, 1, None, False),
        (4, 1, 12, True),
    ]
    assert "dbo.Lines equal" in rig.call("verify", "shop")


@pytest.mark.parametrize(
    ("where", "check"),
    [("lines", "every_staged_row_merged"), ("lines_versions", "every_ended_version_has_its_next")],
)
def test_checks_of_a_window_find_a_version_that_is_missing(rig: CommandRig, where: str, check: str) -> None:
    rig.call("run", "shop")
    change(rig, "UPDATE dbo.Lines SET Amount = 11 WHERE Id = 1", "UPDATE dbo.Lines SET Amount = 12 WHERE Id = 1")
    lost = 'NEW."Amount" = 12' if where == "lines" else 'NEW."Amount" = 11'
    rig.rows(
        "CREATE FUNCTION shop.lose() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        f" CREATE TRIGGER lose BEFORE INSERT ON shop.{where} FOR EACH ROW WHEN ({lost}) EXECUTE FUNCTION shop.lose()"
    )
    status, output = rig.try_call("run", "shop")
    assert status != 0
    assert check in output


def test_plan_names_the_style_that_was_changed(rig: CommandRig) -> None:
    rig.call("run", "shop")
    change(rig, "DELETE dbo.Lines WHERE Id = 1", "EXEC sys.sp_cdc_start_job")
    rig.configure(CONFIG.replace("style: history", "style: current"))
    status, output = rig.try_call("plan", "shop")
    assert status == 3
    assert "style: history -> current. One target has one style for good" in output
    assert "was made with style: history, and pipelines.yaml has style: current" in output


def test_settings_that_do_not_fit_are_refused_by_the_check(rig: CommandRig) -> None:
    for more, problem in (
        ("deletes: hard", "style: history, but deletes: hard deletes rows"),
        ("net: server", "style: history, but net: server leaves out changes"),
        ("live_view: true", "style: history, but live_view: true shows"),
    ):
        rig.configure(CONFIG.replace("style: history", f"style: history\n        {more}"))
        status, output = rig.try_call("config", "check")
        assert status == 2
        assert problem in " ".join(output.split())


def test_target_with_a_name_that_a_history_needs_is_refused_by_the_check(rig: CommandRig) -> None:
    for name in ("lines_versions", "lines_history"):
        rig.configure(f"{CONFIG}      - {{source: dbo.Others, target: shop.{name}}}\n")
        status, output = rig.try_call("config", "check")
        assert status == 2
        assert f"its history needs the name shop.{name}" in " ".join(output.split())


def test_target_whose_versions_would_have_too_long_a_name_is_refused_by_the_check(rig: CommandRig) -> None:
    rig.configure(CONFIG.replace("target: shop.lines", f"target: shop.{'l' * 55}"))
    status, output = rig.try_call("config", "check")
    assert status == 2
    assert f"{'l' * 55}_versions has more than the 63 bytes of a name" in " ".join(output.split())
