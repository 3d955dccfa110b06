"""``floodmark forget``: after it no table of the warehouse's database has a value of the key, and none comes back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cdc_database import CdcDatabase, cdc_database
from command_rig import CommandRig
from emulator_process import Emulator
from floodmark.app.pipeline import App
from floodmark.cli.main import app
from floodmark.config import load_config
from floodmark.core.errors import WarehouseUnavailableError, WatermarkConflictError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
CONFIG = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    schedule: null
    first_load: {chunk_rows: 1}
    tables:
      - source: dbo.People
        target: shop.people
        mask_key_conn_id: mask_key
        columns: {Mail: {as: mail}, Phone: {mask: last4}}
        rules: [{name: positive, sql: '"Amount" > 0'}]
        style: current
"""
TABLE = (
    "Country nvarchar(20) NOT NULL, Mail nvarchar(80) NOT NULL, Amount int, Phone varchar(20), Note nvarchar(max),"
    " PRIMARY KEY (Country, Mail)"
)
EXIT_TRY_AGAIN = 75
STYLES = ("style: current", "style: current\n        deletes: hard", "style: history", "style: log")
PLACES = {
    "style: current": {"target", "quarantine"},
    STYLES[1]: {"tombstones", "quarantine"},
    "style: history": {"target", "versions", "quarantine"},
    "style: log": {"target", "quarantine"},
}
"""Where the row of the tests has left something, behind the bounds and the condition of its loads."""


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(f"CREATE TABLE dbo.People ({TABLE})")
        made.enable("People")
        yield made


@pytest.fixture
def rig(commands: CommandRig, monkeypatch: pytest.MonkeyPatch) -> CommandRig:
    monkeypatch.setenv(
        "AIRFLOW_CONN_MASK_KEY", json.dumps({"conn_type": "generic", "password": "a secret of sixteen and more"})
    )
    commands.configure(CONFIG)
    return commands


def change(rig: CommandRig, *statements: str) -> None:
    rig.source.run(*statements)
    rig.source.scan()


def insert(name: str, amount: int = 1) -> str:
    return f"INSERT INTO dbo.People VALUES (N'land-{name}', N'mail-{name}', {amount}, '0699-{name}', N'note-{name}')"


def update(name: str, **values: str) -> str:
    assigned = ", ".join(f"{column} = {value}" for column, value in values.items())
    return f"UPDATE dbo.People SET {assigned} WHERE Mail = N'mail-{name}'"


def delete(name: str) -> str:
    return f"DELETE dbo.People WHERE Mail = N'mail-{name}'"


def key(name: str) -> list[str]:
    return ["--key", f"Country=land-{name}", "--key", f"Mail=mail-{name}"]


def forget(rig: CommandRig, name: str, *more: str) -> dict[str, Any]:
    return forgotten(rig.call("forget", "shop", "dbo.People", *key(name), *more, "--json"))


def forgotten(output: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output[output.index("{") : output.rindex("}") + 1])
    return found


def places(found: dict[str, Any]) -> set[str]:
    return {place for place, count in found["counts"].items() if count}


def lines(rig: CommandRig, word: str) -> list[str]:
    """Return all rows of the database with a word, also of the planner's statistics, each with its table."""
    tables = rig.rows(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
        " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    )
    found = [
        f"{table} {row}" for (table,) in tables for (row,) in rig.rows(f"SELECT t::text FROM {table} AS t ORDER BY 1")
    ]
    samples = "SELECT s::text FROM pg_stats AS s WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    found += [f"pg_stats {row}" for (row,) in rig.rows(samples)]
    forms = (word, word.encode().hex(), word.encode("utf-16-le").hex())
    return [line for line in found if any(form in line for form in forms)]


def live(rig: CommandRig, name: str) -> None:
    """Let a row leave its values wherever rows leave some."""
    change(rig, insert(name))
    rig.call("run", "shop")
    change(rig, update(name, Amount="-1"))
    rig.call("run", "shop")
    change(rig, update(name, Amount="-2", Note=f"N'other-{name}'"))
    rig.call("run", "shop")
    change(rig, update(name, Amount="5"))
    rig.call("run", "shop")
    change(rig, update(name, Amount="-6"))
    rig.call("run", "shop")


@pytest.mark.parametrize("style", STYLES)
def test_no_table_has_a_value_of_the_key_and_other_rows_stay(
    rig: CommandRig, style: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The search is first proven to find the values, and each place to have some."""
    caplog.set_level("DEBUG")
    rig.configure(CONFIG.replace("style: current", style))
    # A table without rows would keep the planner's samples.
    change(rig, insert("anna"), insert("berta"), insert("cleo"))
    for name in ("anna", "berta"):
        change(rig, delete(name))
        live(rig, name)
    if style in STYLES[:2]:
        rig.call("reload", "shop", "dbo.People", "--where", "Mail = N'mail-anna'")
    change(rig, delete("anna"), delete("berta"))
    rig.call("run", "shop")
    rig.rows(
        "ANALYZE floodmark.quarantine, floodmark.tombstones, floodmark.load_chunks, floodmark.windows, shop.people"
    )
    before, others = lines(rig, "anna"), [line for line in lines(rig, "berta") if "pg_stats" not in line]
    assert any(line.startswith("pg_stats") for line in before)
    caplog.clear()
    counted = forget(rig, "anna", "--dry-run")
    assert (counted["dry_run"], counted["receipt"], lines(rig, "anna")) == (True, None, before)
    found = forget(rig, "anna")
    assert found["counts"] == counted["counts"]
    assert found["still_exists"] is False
    kept = {"load_bounds", "load_conditions"}
    assert places(found) - kept == PLACES[style]
    assert "load_bounds" in places(found)
    assert ("load_conditions" in places(found)) is (style in STYLES[:2])
    assert lines(rig, "anna") == []
    assert others
    assert [line for line in others if line not in lines(rig, "berta") and "load_chunks" not in line] == []
    assert "anna" not in caplog.text
    assert places(forget(rig, "anna")) == set()
    receipts = rig.rows("SELECT pipeline, source_name, forgotten_by <> '', counts FROM floodmark.forgotten")
    assert [row[:3] for row in receipts] == [("shop", "People", True)] * 2
    assert receipts[0][3] == found["counts"]
    change(rig, update("cleo", Amount="8"))
    rig.call("run", "shop")
    assert lines(rig, "anna") == []


def unfinished(rig: CommandRig, monkeypatch: pytest.MonkeyPatch, *command: str) -> None:
    """Leave the window of a command with its plan, as a load that does not reach the warehouse does."""

    def fail(*_: object) -> None:
        raise WarehouseUnavailableError("load", "it was ended.")

    with monkeypatch.context() as inner:
        inner.setattr("floodmark.cli.runs.run_load", fail)
        assert rig.try_call(*command)[0] == EXIT_TRY_AGAIN


def test_unfinished_window_of_the_table_keeps_the_key(rig: CommandRig, monkeypatch: pytest.MonkeyPatch) -> None:
    change(rig, insert("anna"), insert("berta"))
    rig.call("run", "shop")
    change(rig, update("anna", Amount="7"))
    unfinished(rig, monkeypatch, "run", "shop")
    status, output = rig.try_call("forget", "shop", "dbo.People", *key("anna"))
    assert (status, "is unfinished" in output, "floodmark run shop" in output) == (EXIT_TRY_AGAIN, True, True)
    assert "anna" not in output
    assert rig.rows("SELECT count(*) FROM shop.people") == [(2,)]
    rig.call("run", "shop")
    unfinished(rig, monkeypatch, "reload", "shop", "dbo.People")
    status, output = rig.try_call("forget", "shop", "dbo.People", *key("anna"))
    assert (status, "floodmark reload shop dbo.People" in output) == (EXIT_TRY_AGAIN, True)
    rig.call("reload", "shop", "dbo.People", "--give-up")
    assert forget(rig, "anna")["still_exists"] is True
    assert lines(rig, "anna") == []


def test_rows_that_the_next_window_reads_again_keep_the_key(rig: CommandRig) -> None:
    """A check that refuses the table leaves its merged rows, and the watermark where it was."""
    expected = "expectations: [{type: expect_table_row_count_to_be_between, kwargs: {max_value: 1}, rows: table}]"
    other = "      - {source: dbo.Other, target: shop.other}\n"
    rig.source.run("CREATE TABLE dbo.Other (Id int NOT NULL PRIMARY KEY)")
    rig.source.enable("Other")
    rig.configure(CONFIG + other)
    change(rig, insert("berta"))
    rig.call("run", "shop")
    rig.configure(CONFIG.replace("style: current", expected) + other)
    change(rig, insert("anna"), "INSERT INTO dbo.Other VALUES (1)")
    assert rig.try_call("run", "shop")[0] != 0
    assert rig.rows("SELECT count(*) FROM shop.people") == [(2,)]
    status, output = rig.try_call("forget", "shop", "dbo.People", *key("anna"))
    assert (status, "Run the pipeline first" in output) == (1, True)
    rig.configure(CONFIG + other)
    change(rig, delete("anna"))
    rig.call("run", "shop")
    forget(rig, "anna")
    assert lines(rig, "anna") == []


def log_bounds(rig: CommandRig) -> list[str]:
    ((first, last),) = rig.rows("SELECT encode(min(to_lsn), 'hex'), encode(max(to_lsn), 'hex') FROM floodmark.windows")
    return ["--from-lsn", f"0x{first}", "--to-lsn", f"0x{last}"]


@pytest.mark.parametrize("style", STYLES)
def test_no_replay_brings_the_key_back_and_the_source_does(rig: CommandRig, style: str) -> None:
    rig.configure(CONFIG.replace("style: current", style))
    change(rig, insert("berta"))
    rig.call("run", "shop")
    change(rig, insert("anna"))
    rig.call("run", "shop")
    change(rig, update("anna", Amount="3"), update("berta", Amount="4"))
    rig.call("run", "shop")
    change(rig, delete("anna"))
    rig.call("run", "shop")
    bounds = log_bounds(rig)
    forget(rig, "anna")
    assert "a key was forgotten at" in rig.call("replay", "shop", *bounds)
    change(rig, update("berta", Amount="5"))
    rig.call("run", "shop")
    rig.rows('DELETE FROM shop.people WHERE "Amount" = 5')
    rig.call("replay", "shop", *log_bounds(rig))
    assert rig.rows('SELECT "Amount" FROM shop.people WHERE "Amount" = 5') == [(5,)]
    assert lines(rig, "anna") == []
    # A load of the whole table is a bound of its own.
    rig.call("reload", "shop", "dbo.People")
    assert lines(rig, "anna") == []
    change(rig, insert("anna"))
    rig.call("run", "shop")
    assert rig.rows("SELECT count(*) FROM shop.people WHERE mail = 'mail-anna'") == [(1,)]


def test_replay_that_was_planned_before_is_refused_at_its_merge(
    rig: CommandRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command waits for no plan that is not in the ledger yet."""
    change(rig, insert("berta"))
    rig.call("run", "shop")
    change(rig, insert("anna"))
    rig.call("run", "shop")
    change(rig, delete("anna"))
    rig.call("run", "shop")
    bounds = log_bounds(rig)
    unfinished(rig, monkeypatch, "replay", "shop", *bounds)
    rig.rows("UPDATE floodmark.windows SET state = 'advanced' WHERE lane <> ''")
    forget(rig, "anna")
    rig.rows("UPDATE floodmark.windows SET state = 'planned' WHERE lane <> ''")
    ((window_id,),) = rig.rows("SELECT window_id FROM floodmark.windows WHERE lane <> ''")
    pipeline = App(load_config(rig.file)).pipeline("shop")
    opened = pipeline.ledger.begin_load(window_id)
    pipeline.warehouse.prepare_window(opened.plan)
    with pytest.raises(WatermarkConflictError, match="a key was forgotten since the replay was planned"):
        pipeline.warehouse.merge_window(opened.plan)


def test_staging_that_a_load_has_left_is_dropped_and_that_of_another_pipeline_stays(rig: CommandRig) -> None:
    change(rig, insert("anna"), insert("berta"))
    rig.call("run", "shop")
    rig.rows("INSERT INTO floodmark.windows (pipeline, to_lsn, plan) VALUES ('other', '\\x00000000000000000001', '{}')")
    ((other,),) = rig.rows("SELECT max(window_id) FROM floodmark.windows")
    suffix = hashlib.sha256(b"dbo.People").hexdigest()[:16]
    for name in (f"w1_1_{suffix}", f"w{other}_1_{suffix}", "w1_1_0123456789abcdef"):
        rig.rows(f"CREATE TABLE floodmark_staging.{name} AS SELECT 'mail-anna' AS mail")
    assert forget(rig, "anna")["counts"]["staging_tables"] == 1
    left = rig.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'floodmark_staging' ORDER BY 1")
    assert sorted(left) == sorted([(f"w{other}_1_{suffix}",), ("w1_1_0123456789abcdef",)])


def test_target_whose_newest_rows_were_forgotten_is_still_the_one_of_the_ledger(rig: CommandRig) -> None:
    change(rig, insert("berta"))
    rig.call("run", "shop")
    change(rig, insert("anna"))
    rig.call("run", "shop")
    change(rig, delete("anna"))
    rig.call("run", "shop")
    forget(rig, "anna")
    rig.rows("VACUUM FULL shop.people")
    change(rig, update("berta", Amount="9"))
    rig.call("run", "shop")
    assert rig.rows('SELECT "Amount" FROM shop.people') == [(9,)]


def test_errors_and_outputs_have_no_value_of_the_key(rig: CommandRig, tmp_path: Path) -> None:
    change(rig, insert("anna"), insert("berta"))
    rig.call("run", "shop")
    said = [
        rig.try_call("forget", "shop", "dbo.People", "--key", "Mail=mail-anna"),
        rig.try_call("forget", "shop", "dbo.People", "--key", "mail=mail-anna", "--key", "Country=land-anna"),
        rig.try_call("forget", "shop", "dbo.People", "--key", "mail-anna"),
        rig.try_call("forget", "shop", "dbo.People"),
        rig.try_call("forget", "shop", "dbo.Other", *key("anna")),
    ]
    document = tmp_path / "key.json"
    document.write_text('{"Country": "land-anna\\u0000", "Mail": "mail-anna"}')
    said.append(rig.try_call("forget", "shop", "dbo.People", "--key-file", str(document)))
    rig.rows(
        "CREATE TABLE shop.mine (country varchar, mail varchar,"
        ' FOREIGN KEY (country, mail) REFERENCES shop.people ("Country", mail) DEFERRABLE INITIALLY DEFERRED)'
    )
    rig.rows("INSERT INTO shop.mine VALUES ('land-anna', 'mail-anna')")
    said += [rig.try_call("forget", "shop", "dbo.People", *key("anna"), *more) for more in ((), ("--dry-run",))]
    assert [status for status, _ in said] == [2, 2, 2, 2, 1, 2, 1, 1]
    assert [output for _, output in said if "anna" in output] == []
    assert "refused the deletion" in said[-1][1]
    assert rig.rows("SELECT count(*) FROM shop.people") == [(2,)]
    rig.rows("DROP TABLE shop.mine")
    document.write_text('{"Country": "land-anna", "Mail": "mail-anna"}')
    result = CliRunner().invoke(app, ["forget", "shop", "dbo.People", "--key-file", "-"], input=document.read_bytes())
    assert (result.exit_code, "anna" in result.output) == (0, False)
    assert "brings it back" in " ".join(result.output.split())
    assert lines(rig, "anna") == []
    assert "has nothing of this key" in rig.call("forget", "shop", "dbo.People", *key("anna"))


KEYS = {
    "Id": ("uniqueidentifier", "'6F9619FF-8B86-D011-B42D-00C04FC964FF'", "6f9619ff-8b86-d011-b42d-00c04fc964ff"),
    "At": ("datetime", "'2026-01-31 12:00:00.003'", "2026-01-31 12:00:00.003"),
    "Fine": ("datetime2(7)", "'2026-01-31 12:00:00.1234567'", "2026-01-31 12:00:00.1234567"),
    "Code": ("varbinary(8)", "0x00FF10", "0x00ff10"),
    "Pct %": ("decimal(9,3)", "1.250", "1.25"),
    "It's": ("nvarchar(60)", "N'50 % \"of\" it''s \\ é' + NCHAR(10) + N'{}'", '50 % "of" it\'s \\ é\n{}'),
    "Yes": ("bit", "1", "1"),
    "Small": ("smallint", "-7", "-7"),
}
OTHERS = {
    "Id": "'6F9619FF-8B86-D011-B42D-00C04FC964FE'",
    "At": "'2026-01-31 12:00:00.007'",
    "Fine": "'2026-01-31 12:00:00.1234568'",
    "Code": "0x00FF",
    "Pct %": "1.251",
    "It's": "N'50 % \"of\" it''s \\ e' + NCHAR(10) + N'{}'",
    "Yes": "0",
    "Small": "7",
}


@pytest.mark.parametrize("deletes", ["soft", "hard"])
def test_keys_of_every_type_are_found_and_no_other(rig: CommandRig, tmp_path: Path, deletes: str) -> None:
    names = ", ".join(f"[{name}]" for name in KEYS)
    columns = ", ".join(f"[{name}] {kind} NOT NULL" for name, (kind, *_) in KEYS.items())
    rig.source.run(f"CREATE TABLE dbo.Odd ({columns}, Amount int, PRIMARY KEY ({names}))")
    rig.source.enable("Odd")
    rules = "rules: [{name: positive, sql: '\"amount\" > 0'}]"
    rig.configure(
        CONFIG.split("      - source", maxsplit=1)[0]
        + "      - source: dbo.Odd\n        target: shop.odd\n        naming: snake_case\n"
        + f"        deletes: {deletes}\n        {rules}\n"
    )
    own = [value for _, value, _ in KEYS.values()]
    rows = [own] + [
        [OTHERS[name] if name == other else value for name, (_, value, _) in KEYS.items()] for other in KEYS
    ]
    for row in rows:
        rig.source.run(f"INSERT INTO dbo.Odd VALUES ({', '.join(row)}, 1)")
    rig.source.scan()
    rig.call("run", "shop")
    change(rig, "UPDATE dbo.Odd SET Amount = -1")
    rig.call("run", "shop")
    change(rig, "DELETE dbo.Odd")
    rig.call("run", "shop")
    document = tmp_path / "key.json"
    document.write_text(json.dumps({name: value for name, (_, _, value) in KEYS.items()}), encoding="utf-8")
    place = "target" if deletes == "soft" else "tombstones"
    found = forgotten(rig.call("forget", "shop", "dbo.Odd", "--key-file", str(document), "--json"))
    assert {name: count for name, count in found["counts"].items() if name != "load_bounds" and count} == {
        place: 1,
        "quarantine": 1,
    }
    table = "shop.odd" if deletes == "soft" else "floodmark.tombstones"
    assert rig.rows(f"SELECT count(*) FROM {table}") == [(len(KEYS),)]
    assert rig.rows("SELECT count(*) FROM floodmark.quarantine") == [(len(KEYS),)]
    for name, wrong in {
        "Id": "no-anna",
        "At": "no-anna",
        "Code": "no-anna",
        "Small": "99999",
        "Pct %": "x-anna",
    }.items():
        document.write_text(json.dumps({each: value for each, (_, _, value) in KEYS.items()} | {name: wrong}))
        status, output = rig.try_call("forget", "shop", "dbo.Odd", "--key-file", str(document))
        assert (status, f"the value of {name} is no" in output, wrong in output) == (2, True, False)
    # No value is cut or rounded to one that the column has.
    document.write_text(json.dumps({each: value for each, (_, _, value) in KEYS.items()} | {"Pct %": "1.2511"}))
    found = forgotten(rig.call("forget", "shop", "dbo.Odd", "--key-file", str(document), "--json"))
    assert places(found) == set()


def test_key_column_that_was_renamed_is_found_in_older_entries_of_quarantine(rig: CommandRig) -> None:
    change(rig, insert("berta"))
    rig.call("run", "shop")
    change(rig, insert("anna", -1))
    rig.call("run", "shop")
    rig.configure(CONFIG.replace("as: mail", "as: address"))
    rig.call("reload", "shop", "dbo.People")
    change(rig, delete("anna"))
    rig.call("run", "shop")
    assert "quarantine" in places(forget(rig, "anna"))
    assert lines(rig, "anna") == []
    assert rig.rows("SELECT address FROM shop.people") == [("mail-berta",)]


def test_table_that_the_configuration_no_longer_has_can_be_cleaned(rig: CommandRig) -> None:
    change(rig, insert("anna"), insert("berta"))
    rig.call("run", "shop")
    assert any(line.startswith("floodmark.load_chunks") for line in lines(rig, "anna"))
    rig.source.run("CREATE TABLE dbo.Other (Id int NOT NULL PRIMARY KEY)")
    rig.configure(CONFIG.split("      - source", maxsplit=1)[0] + "      - {source: dbo.Other, target: shop.other}\n")
    assert forget(rig, "anna")["counts"]["target"] == 1
    assert lines(rig, "anna") == []


def test_lake_refuses_by_name(rig: CommandRig) -> None:
    rig.configure(
        CONFIG.split("pipelines:", maxsplit=1)[0].replace(
            "{conn_id: warehouse}", "{kind: iceberg, conn_id: lake}\nledger: {conn_id: warehouse}"
        )
        + "pipelines:\n  shop: {source: shop, tables: [{source: dbo.People, target: shop.people}]}\n"
    )
    status, output = rig.try_call("forget", "shop", "dbo.People", *key("anna"))
    assert (status, "floodmark forget is not supported for kind iceberg" in output) == (2, True)
