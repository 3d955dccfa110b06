"""Columns with a name, with a mask, or left out: from the file to SELECT, and which values no one may find."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc_database import CdcDatabase, cdc_database
from command_rig import CommandRig
from emulator_process import Emulator
from floodmark.app.pipeline import App, Pipeline
from floodmark.config import load_config
from floodmark.core.settings import Style
from floodmark.orchestration.lineage import read_lineage
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sync.columns import hash_value

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
SECRET = "a secret of more than sixteen characters"
COLUMNS = """
          Email: {as: email, mask: hash}
          Phone: {mask: last4}
          Born: {mask: year}
          Salary: {mask: {round: -3}}
          Doc: {mask: redact}
          Pin: {mask: null}
          Notes: drop
"""
CONFIG = f"""
sources: {{shop: {{conn_id: shop_mssql}}}}
warehouse: {{conn_id: warehouse}}
pipelines:
  shop:
    source: shop
    schedule: null
    tables:
      - source: dbo.People
        target: shop.people
        style: current
        mask_key_conn_id: mask_key
        rules: [{{name: positive, sql: '"Amount" > 0'}}]
        columns:
{COLUMNS}
"""
TABLE = (
    "Id int NOT NULL PRIMARY KEY, Amount int, Email nvarchar(80), Phone varchar(20), Born date, Salary int,"
    " Doc nvarchar(max), Pin int, Notes nvarchar(max)"
)
MASKED = 'SELECT "Id", "Amount", email, "Phone", "Born"::text, "Salary", "Doc", "Pin" FROM shop.people ORDER BY "Id"'


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(f"CREATE TABLE dbo.People ({TABLE})")
        made.enable("People")
        yield made


@pytest.fixture
def rig(commands: CommandRig, monkeypatch: pytest.MonkeyPatch) -> CommandRig:
    monkeypatch.setenv("AIRFLOW_CONN_MASK_KEY", json.dumps({"conn_type": "generic", "password": SECRET}))
    commands.configure(CONFIG)
    return commands


def change(rig: CommandRig, *statements: str) -> None:
    rig.source.run(*statements)
    rig.source.scan()


def person(number: int, amount: int = 1) -> str:
    """Return the values of a row whose hidden ones are unlike all others."""
    return (
        f"({number}, {amount}, N'mail-{number}@example.com', '+699-{number}-1234', '1987-06-{number:02}', 41234321,"
        f" N'doc-{number}', 770077001, N'note-{number}')"
    )


PLANTED = ("mail-", "+699-", "1987-06-", "41234321", "doc-", "770077001", "note-")
"""What the hidden values of the rows have, and nothing else."""


def leaks(text: str) -> list[str]:
    """Return the planted values that a text has, also as octets in hexadecimal digits."""
    forms = {value: (value, value.encode().hex(), value.encode("utf-16-le").hex()) for value in PLANTED}
    return [value for value, ways in forms.items() if any(way in text for way in ways)]


def dump(rig: CommandRig) -> str:
    """Return every row of every table of the warehouse's database: targets, staging and ledger."""
    tables = rig.rows(
        "SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables"
        " WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
    )
    return "\n".join(
        f"{table} {row}" for (table,) in tables for (row,) in rig.rows(f"SELECT t::text FROM {table} AS t")
    )


def hashed(value: str) -> str:
    return hash_value(SECRET.encode(), value)


def test_doctor_finds_a_secret_that_is_missing_or_too_short(rig: CommandRig, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> dict[str, str]:
        output = rig.try_call("doctor", "shop", "--json")[1]
        findings = json.loads(output[output.index("[ {") : output.rindex("]") + 1])
        [key] = [each for each in findings if each["check"] == "mask key"]
        return {name: key[name] for name in ("grade", "text")}

    assert found()["grade"] == "good"
    monkeypatch.setenv("AIRFLOW_CONN_MASK_KEY", json.dumps({"conn_type": "generic", "password": "fifteen letters"}))
    assert found()["grade"] == "problem"
    assert "too short" in found()["text"]
    assert "fifteen" not in repr(found())
    monkeypatch.delenv("AIRFLOW_CONN_MASK_KEY")
    assert "Airflow does not know it" in found()["text"]


def test_columns_come_to_the_target_as_the_file_says(rig: CommandRig) -> None:
    change(
        rig, f"INSERT INTO dbo.People VALUES {person(1)}, {person(2)}, (3, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    rig.call("config", "check")
    rig.call("run", "shop")
    nothing = (3, 1, None, None, None, None, None, None)
    second = (2, 1, hashed("mail-2@example.com"), "*******1234", "1987-01-01", 41234000, "***", None)
    assert rig.rows(MASKED) == [
        (1, 1, hashed("mail-1@example.com"), "*******1234", "1987-01-01", 41234000, "***", None),
        second,
        nothing,
    ]
    change(
        rig,
        "UPDATE dbo.People SET Email = N'mail-2@example.com', Phone = '123', Salary = 41600500 WHERE Id = 1",
        "UPDATE dbo.People SET Amount = 5 WHERE Id = 2",
        "UPDATE dbo.People SET Notes = N'other' WHERE Id = 3",
    )
    rig.call("run", "shop")
    # The change of a column that is left out is a change of the row, and the LOB that it leaves out stays.
    assert rig.rows(MASKED) == [
        (1, 1, hashed("mail-2@example.com"), "***", "1987-01-01", 41601000, "***", None),
        (2, 5, *second[2:]),
        nothing,
    ]
    assert "dbo.People equal" in rig.call("verify", "shop")
    rig.rows('UPDATE shop.people SET "Phone" = \'0699\' WHERE "Id" = 1')
    status, output = rig.try_call("verify", "shop")
    assert (status != 0, "Phone" in output) == (True, True)


def test_rules_and_expectations_see_the_names_and_the_values_of_the_target(rig: CommandRig) -> None:
    stars = "{type: expect_column_values_to_be_in_set, kwargs: {column: Doc, value_set: ['***']}}"
    shown = f"{{name: shown, sql: \"email <> '{hashed('mail-2@example.com')}' AND \\\"Phone\\\" LIKE '*%'\"}}"
    config = CONFIG.replace("rules: [", f"rules: [{shown}, ")
    rig.configure(config.replace("style: current", f"style: current\n        expectations: [{stars}]"))
    change(rig, f"INSERT INTO dbo.People VALUES {person(1)}, {person(2)}")
    rig.call("run", "shop")
    change(rig, f"INSERT INTO dbo.People VALUES {person(3)}", "UPDATE dbo.People SET Amount = 2 WHERE Id = 2")
    rig.call("run", "shop")
    assert [row[0] for row in rig.rows(MASKED)] == [1, 3]
    assert rig.rows("SELECT DISTINCT rule, key ->> 0 FROM floodmark.quarantine") == [("shown", "2")]


def test_masks_that_make_texts_have_columns_for_them_and_others_keep_the_type_of_the_source(rig: CommandRig) -> None:
    change(rig, f"INSERT INTO dbo.People VALUES {person(1)}")
    rig.call("run", "shop")
    types = dict(
        rig.rows(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = 'shop.people'::regclass AND attnum > 0"
        )
    )
    assert {name: kind for name, kind in types.items() if not name.startswith("__")} == {
        "Id": "integer",
        "Amount": "integer",
        "email": "character varying(64)",
        "Phone": "character varying(20)",
        "Born": "date",
        "Salary": "integer",
        "Doc": "text",
        "Pin": "integer",
    }


@pytest.mark.parametrize("style", Style)
def test_hidden_values_are_in_no_table_no_file_no_log_and_no_event(
    rig: CommandRig, tmp_path: Path, style: Style, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    staged: list[str] = []
    merge = PostgresWarehouse.merge_window

    def watched(self: PostgresWarehouse, *arguments: Any, **named: Any) -> Any:
        staged.append(dump(rig))
        return merge(self, *arguments, **named)

    monkeypatch.setattr(PostgresWarehouse, "merge_window", watched)
    stop = "{name: little, sql: '\"Amount\" < 1000', on_failure: stop}"
    config = CONFIG.replace("style: current", f"style: {style.value}").replace("rules: [", f"rules: [{stop}, ")
    expected = "expectations: [{type: expect_column_values_to_not_be_null, kwargs: {column: Amount}}]"
    config = config.replace("mask_key_conn_id: mask_key", f"mask_key_conn_id: mask_key\n        {expected}")
    rig.configure(config)
    change(rig, f"INSERT INTO dbo.People VALUES {person(1)}, {person(2)}, {person(3, -1)}")
    said = [rig.call("run", "shop")]
    change(
        rig,
        f"INSERT INTO dbo.People VALUES {person(4)}, {person(5, -5)}",
        "UPDATE dbo.People SET Email = N'mail-11', Phone = '+699-11', Salary = 41234321, Doc = N'doc-11' WHERE Id = 1",
        "UPDATE dbo.People SET Notes = N'note-11', Pin = 770077001, Born = '1987-06-30' WHERE Id = 1",
        "DELETE dbo.People WHERE Id = 2",
    )
    said.append(rig.call("run", "shop"))
    change(rig, f"INSERT INTO dbo.People VALUES {person(6, 5000)}")
    said.append(rig.try_call("run", "shop")[1])
    change(rig, "UPDATE dbo.People SET Amount = NULL WHERE Id = 6")
    said.append(rig.try_call("run", "shop")[1])
    change(rig, "UPDATE dbo.People SET Amount = 6, Doc = N'doc-6' + NCHAR(0) WHERE Id = 6")
    said += [rig.try_call(*words)[1] for words in (("run", "shop"), ("status", "shop"), ("quarantine", "list", "shop"))]
    if style in {Style.CURRENT, Style.HISTORY}:
        rig.rows('UPDATE shop.people SET email = \'other\', "Phone" = NULL WHERE "Id" = 4')
        said.append(rig.try_call("verify", "shop")[1])
        assert "email" in said[-1]
    rig.configure(config.replace('"Amount" > 0', '"Amount" > -9'))
    said.append(rig.call("quarantine", "release", "shop", "dbo.People"))
    said.append(rig.call("reload", "shop", "dbo.People"))
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path != rig.file]
    pipeline = App(load_config(rig.file)).pipeline("shop")
    ((newest,),) = rig.rows("SELECT max(window_id) FROM floodmark.windows")
    lineage = repr(read_lineage(pipeline, newest))
    assert ("email" in lineage, "masking=True" in lineage, "Notes" in lineage) == (True, True, False)
    whole = dump(rig)
    # The values that take their place are there, so that the search has found what it was to search.
    mail = hashed("mail-4@example.com")
    assert all(mail in text for text in (whole, "".join(staged)))
    assert hashed("mail-5@example.com") in "".join(whole.split("floodmark.quarantine ")[1:])
    assert any(path.suffix == ".html" for path in files)
    texts = [whole, *staged, *said, caplog.text, lineage, *(path.read_bytes().decode("latin-1") for path in files)]
    assert [leaks(text) for text in texts if leaks(text)] == []
    assert SECRET not in "".join(texts)


def test_other_settings_of_a_loaded_table_wait_for_a_new_target(rig: CommandRig) -> None:
    change(rig, f"INSERT INTO dbo.People VALUES {person(1)}, {person(2)}")
    named = CONFIG.replace(COLUMNS, "\n          Email: {as: email}\n          Phone: keep\n").replace(
        "mask_key_conn_id", "#"
    )
    rig.configure(named)
    rig.call("run", "shop")
    change(rig, "DELETE dbo.People WHERE Id = 2")
    rig.call("run", "shop")
    rig.configure(named.replace("as: email", "as: mail"))
    change(rig, f"INSERT INTO dbo.People VALUES {person(3)}")
    status, output = rig.try_call("run", "shop")
    assert (status != 0, "definition_changed" in output) == (True, True)
    assert "Email (as: email, now as: mail)" in output
    assert "other settings" in rig.try_call("verify", "shop")[1]
    rig.call("reload", "shop", "dbo.People")
    assert rig.rows('SELECT "Id", mail FROM shop.people ORDER BY 1')[2] == (3, "mail-3@example.com")
    rig.configure(named.replace("as: email", "as: mail").replace("Phone: keep", "Phon: {mask: redact}"))
    change(rig, "UPDATE dbo.People SET Amount = 2 WHERE Id = 3")
    assert "no captured column Phon in this spelling" in rig.try_call("run", "shop")[1]
    rig.configure(CONFIG)
    assert "Phone (as it is, now mask: last4)" in rig.try_call("run", "shop")[1]
    status, output = rig.try_call("reload", "shop", "dbo.People")
    assert (status != 0, "has rows with other values of Email, Phone" in output) == (True, True)
    assert rig.rows("SELECT count(*) FROM shop.people") == [(3,)]
    # The load is given up, and the table goes on by the settings of its target.
    rig.configure(named.replace("as: email", "as: mail"))
    rig.call("reload", "shop", "dbo.People", "--give-up")
    rig.call("run", "shop")
    rig.configure(CONFIG)
    rig.rows("DROP TABLE shop.people")
    rig.call("reload", "shop", "dbo.People")
    assert leaks(repr(rig.rows("SELECT * FROM shop.people"))) == []
    assert [row[0] for row in rig.rows(MASKED)] == [1, 3]
    change(rig, "UPDATE dbo.People SET Amount = 3 WHERE Id = 3")
    rig.call("run", "shop")
    assert "dbo.People equal" in rig.call("verify", "shop")


def test_settings_that_the_table_cannot_have_are_refused_by_name(rig: CommandRig) -> None:
    change(rig, f"INSERT INTO dbo.People VALUES {person(1)}")
    for columns, why in (
        ("Id: drop", "part of the key"),
        ("Emial: {mask: redact}", "no captured column Emial"),
        ("Email: {mask: year}", "Email is nvarchar(80)"),
        ("Amount: {mask: last4}", "Amount is int"),
        ("Email: {as: Phone}", "would both be"),
        ("Email: {as: PHONE}", "would both be"),
    ):
        rig.configure(CONFIG.replace(COLUMNS, f"\n          {columns}\n"))
        status, output = rig.try_call("run", "shop")
        assert (status != 0, why in output, "not_plannable" in output) == (True, True, True), output
        assert rig.rows("SELECT to_regclass('shop.people')") == [(None,)]


def test_window_of_an_older_definition_is_not_merged_into_the_new_target(
    rig: CommandRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are staged, and then a load gives the table its masks."""
    change(rig, f"INSERT INTO dbo.People VALUES {person(1)}")
    rig.configure(CONFIG.replace(COLUMNS, "\n          Email: {as: email}\n"))
    rig.call("run", "shop")
    change(rig, f"INSERT INTO dbo.People VALUES {person(2)}")
    merge = PostgresWarehouse.merge_window

    def redefined(self: PostgresWarehouse, *arguments: Any, **named: Any) -> Any:
        masked = json.dumps({"": {"naming": "keep"}, "Email": {"as": "email", "mask": "redact"}})
        rig.rows(f"UPDATE floodmark.tables SET definition = '{masked}' RETURNING 1")
        return merge(self, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(PostgresWarehouse, "merge_window", redefined)
        status, output = rig.try_call("run", "shop")
    assert (status != 0, "planned with other settings of columns: Email" in output) == (True, True), output
    assert rig.rows('SELECT "Id" FROM shop.people') == [(1,)]


def test_changed_password_of_the_secret_leaves_the_table_out_until_it_is_restored(
    rig: CommandRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(rig, f"INSERT INTO dbo.People VALUES {person(1)}")
    rig.call("run", "shop")
    # A ledger of an older version has no fingerprint, nor do its plans. The next window adds it.
    rig.rows("UPDATE floodmark.tables SET definition = definition #- '{Email,fingerprint}' RETURNING 1")
    rig.rows(
        "UPDATE floodmark.windows SET plan = plan #- '{tables,0,settings,mask_key_print}'"
        " WHERE plan #> '{tables,0,settings,mask_key_print}' IS NOT NULL RETURNING 1"
    )
    change(rig, f"INSERT INTO dbo.People VALUES {person(2)}")
    assert "mask_key" not in rig.call("plan", "shop")
    rig.call("run", "shop")
    emails = rig.rows("SELECT email FROM shop.people ORDER BY 1")
    assert sorted(emails) == sorted([(hashed("mail-1@example.com"),), (hashed("mail-2@example.com"),)])
    other = "the other secret of the masks"
    monkeypatch.setenv("AIRFLOW_CONN_MASK_KEY", json.dumps({"conn_type": "generic", "password": other}))
    change(rig, f"INSERT INTO dbo.People VALUES {person(3)}")
    for command in ("run", "verify", "plan"):
        status, output = rig.try_call(command, "shop")
        assert (status != 0, "Email (mask: hash, now by another secret" in output) == (True, True), output
        assert other not in output
    assert rig.rows("SELECT email FROM shop.people ORDER BY 1") == emails
    assert "has rows with other values of Email" in rig.try_call("reload", "shop", "dbo.People")[1]
    rig.call("reload", "shop", "dbo.People", "--give-up")
    monkeypatch.setenv("AIRFLOW_CONN_MASK_KEY", json.dumps({"conn_type": "generic", "password": SECRET}))
    # So it is with another connection, whatever its password.
    monkeypatch.setenv("AIRFLOW_CONN_OTHER_KEY", json.dumps({"conn_type": "generic", "password": SECRET}))
    rig.configure(CONFIG.replace("mask_key_conn_id: mask_key", "mask_key_conn_id: other_key"))
    status, output = rig.try_call("run", "shop")
    changed = "Email (as: email, mask: hash, key: mask_key, now as: email, mask: hash, key: other_key)"
    assert (status != 0, "definition_changed" in output, changed in output) == (True, True, True), output
    rig.configure(CONFIG)
    rig.call("run", "shop")
    assert "dbo.People equal" in rig.call("verify", "shop")


def test_password_that_changes_after_the_plan_refuses_the_table(
    rig: CommandRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(rig, f"INSERT INTO dbo.People VALUES {person(1)}")
    rig.call("run", "shop")
    change(rig, f"INSERT INTO dbo.People VALUES {person(2)}")
    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, "mask_keys", lambda _: {"mask_key": "the other secret of the masks"})
        status, output = rig.try_call("run", "shop")
    assert (status != 0, "was changed after the window was planned" in output) == (True, True), output
    rig.call("run", "shop")
    assert "dbo.People equal" in rig.call("verify", "shop")


def test_types_of_hidden_columns_may_change_at_the_source(rig: CommandRig) -> None:
    change(rig, f"INSERT INTO dbo.People VALUES {person(1)}")
    rig.call("run", "shop")
    rig.source.run(
        "ALTER TABLE dbo.People ALTER COLUMN Salary bigint",
        "ALTER TABLE dbo.People ALTER COLUMN Email nvarchar(200)",
        "ALTER TABLE dbo.People DROP COLUMN Phone",
    )
    change(rig, "UPDATE dbo.People SET Salary = 9000000000499, Amount = 2 WHERE Id = 1")
    rig.call("run", "shop")
    mail = hashed("mail-1@example.com")
    assert [row[:6] for row in rig.rows(MASKED)] == [(1, 2, mail, "*******1234", "1987-01-01", 9000000000000)]
    assert rig.rows('SELECT DISTINCT pg_typeof(email)::text, pg_typeof("Salary")::text FROM shop.people') == [
        ("character varying", "bigint")
    ]
    assert leaks(dump(rig)) == []


TRACKED = CONFIG.replace("conn_id: shop_mssql", "conn_id: shop_mssql, kind: change_tracking")


@pytest.fixture
def tracked(rig: CommandRig) -> CommandRig:
    """A source with change tracking, whose net changes have each column of the table at once."""
    rig.source.run(
        f"ALTER DATABASE [{rig.source.name}] SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 2 DAYS, AUTO_CLEANUP = ON)",
        "ALTER TABLE dbo.People ENABLE CHANGE_TRACKING",
        f"INSERT INTO dbo.People VALUES {person(1)}, {person(2)}",
    )
    rig.configure(TRACKED.replace("        style: current\n", ""))
    rig.call("run", "shop")
    return rig


def test_new_column_waits_where_others_are_hidden_and_none_of_its_values_comes(tracked: CommandRig) -> None:
    config = tracked.file.read_text(encoding="utf-8")
    assert leaks(dump(tracked)) == []
    tracked.source.run("ALTER TABLE dbo.People ADD Passport nvarchar(20)")
    tracked.source.run("UPDATE dbo.People SET Passport = N'note-9', Amount = 9 WHERE Id = 1")
    for words in (("run", "shop"), ("reload", "shop", "dbo.People"), ("verify", "shop")):
        status, output = tracked.try_call(*words)
        assert (status != 0, "a new column Passport" in output) == (True, True), output
    assert tracked.rows('SELECT "Amount" FROM shop.people WHERE "Id" = 1') == [(1,)]
    # With its name in the file, its rows come without a reload.
    tracked.configure(
        config.replace("          Notes: drop", "          Notes: drop\n          Passport: {mask: last4}")
    )
    tracked.call("run", "shop")
    assert tracked.rows('SELECT "Amount", "Passport" FROM shop.people ORDER BY "Id"') == [(9, "**te-9"), (1, None)]
    assert "dbo.People equal" in tracked.call("verify", "shop")
    assert leaks(dump(tracked)) == []
    # And from then on it is known: another mask is another definition.
    tracked.source.run("UPDATE dbo.People SET Amount = 10 WHERE Id = 1")
    tracked.configure(config.replace("          Notes: drop", "          Notes: drop\n          Passport: keep"))
    assert "Passport (mask: last4, now as it is)" in tracked.try_call("run", "shop")[1]


def test_new_column_is_not_read_or_follows_as_the_file_says(tracked: CommandRig) -> None:
    config = tracked.file.read_text(encoding="utf-8")
    tracked.configure(config.replace("        columns:", "        new_columns: drop\n        columns:"))
    tracked.source.run("ALTER TABLE dbo.People ADD Passport nvarchar(20)")
    tracked.source.run("UPDATE dbo.People SET Passport = N'note-9', Amount = 9 WHERE Id = 1")
    tracked.call("run", "shop")
    tracked.call("reload", "shop", "dbo.People")
    assert "dbo.People equal" in tracked.call("verify", "shop")
    assert leaks(dump(tracked)) == []
    assert tracked.rows('SELECT to_jsonb(t) ? \'Passport\', "Amount" FROM shop.people AS t WHERE "Id" = 1') == [
        (False, 9)
    ]
    tracked.configure(config.replace("        columns:", "        new_columns: follow\n        columns:"))
    tracked.source.run("UPDATE dbo.People SET Amount = 10 WHERE Id = 1")
    tracked.call("run", "shop")
    assert tracked.rows('SELECT "Amount", "Passport" FROM shop.people WHERE "Id" = 1') == [(10, "note-9")]


def test_short_secret_and_a_missing_one_end_a_run_before_it_reads(
    rig: CommandRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(rig, f"INSERT INTO dbo.People VALUES {person(1)}")
    monkeypatch.setenv("AIRFLOW_CONN_MASK_KEY", json.dumps({"conn_type": "generic", "password": "too short"}))
    status, output = rig.try_call("run", "shop")
    assert (status != 0, "too short for the secret" in output, 'too short"' in output) == (True, True, False)
    rig.configure(CONFIG.replace("mask_key_conn_id: mask_key", ""))
    status, output = rig.try_call("config", "check")
    assert (status != 0, "mask: hash needs mask_key_conn_id" in output) == (True, True)
