"""Keys that are masked by hashes: rows are merged, compared and forgotten by them, and no one finds the values."""

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
from floodmark.core.errors import WarehouseUnavailableError
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sync.columns import hash_value

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
SECRET = "a secret of more than sixteen characters"
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
        columns: {Mail: {as: mail, mask: hash}}
        rules: [{name: positive, sql: '"Amount" > 0'}]
        style: current
"""
TABLE = "Country nvarchar(20) NOT NULL, Mail nvarchar(80) NOT NULL, Amount int, Note nvarchar(max)"
KEY = "PRIMARY KEY (Country, Mail)"
STYLES = ("style: current", "style: current\n        deletes: hard", "style: history", "style: log")
COMPARED = STYLES[:3]
PLANTED = "planted-"
FORMS = (PLANTED, PLANTED.encode().hex(), PLANTED.encode("utf-16-le").hex())


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(f"CREATE TABLE dbo.People ({TABLE}, {KEY})")
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


def insert(name: str, amount: int = 1) -> str:
    return f"INSERT INTO dbo.People VALUES (N'land', N'{PLANTED}{name}', {amount}, N'note')"


def update(name: str, assigned: str) -> str:
    return f"UPDATE dbo.People SET {assigned} WHERE Mail = N'{PLANTED}{name}'"


def delete(name: str) -> str:
    return f"DELETE dbo.People WHERE Mail = N'{PLANTED}{name}'"


def hashed(value: Any) -> str:
    return hash_value(SECRET.encode(), value)


def mails(*names: str) -> list[tuple[str]]:
    return sorted((hashed(PLANTED + name),) for name in names)


def dump(rig: CommandRig) -> str:
    """Return every row of every table of the warehouse's database, and the planner's samples of them."""
    tables = rig.rows(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
        " WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    )
    found = [f"{name} {row}" for (name,) in tables for (row,) in rig.rows(f"SELECT t::text FROM {name} AS t")]
    samples = "SELECT s::text FROM pg_stats AS s WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
    return "\n".join([*found, *(row for (row,) in rig.rows(samples))])


def forget(rig: CommandRig, *key: str) -> dict[str, Any]:
    pairs = [word for each in key for word in ("--key", each)]
    output = rig.call("forget", "shop", "dbo.People", *pairs, "--json")
    found: dict[str, Any] = json.loads(output[output.index("{") : output.rindex("}") + 1])
    return found


@pytest.mark.parametrize("style", STYLES)
def test_value_of_a_masked_key_is_in_no_table_no_file_and_no_log(
    rig: CommandRig, tmp_path: Path, style: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    staged: list[str] = []
    merge = PostgresWarehouse.merge_window

    def watched(self: PostgresWarehouse, *arguments: Any, **named: Any) -> Any:
        staged.append(dump(rig))
        return merge(self, *arguments, **named)

    monkeypatch.setattr(PostgresWarehouse, "merge_window", watched)
    config = CONFIG.replace("style: current", style)
    rig.configure(config)
    change(rig, insert("anna"), insert("berta"), insert("cleo"), insert("dora", -1))
    said = [rig.call("run", "shop")]
    change(
        rig,
        update("anna", "Amount = 7"),
        update("berta", f"Mail = N'{PLANTED}bert'"),
        delete("cleo"),
        insert("emma", -5),
        update("dora", "Note = N'other'"),
    )
    said += [rig.call(*words) for words in (("run", "shop"), ("status", "shop"), ("quarantine", "list", "shop"))]
    rig.configure(config.replace('"Amount" > 0', '"Amount" > -9'))
    said.append(rig.call("quarantine", "release", "shop", "dbo.People"))
    if style in COMPARED:
        assert rig.rows("SELECT count(*) FROM shop.people") == [(4 if "hard" in style else 6,)]
        said.append(rig.call("verify", "shop"))
        assert "dbo.People equal" in said[-1]
        # The next window has not been merged, and its keys are left out.
        change(rig, delete("emma"), update("anna", f"Mail = N'{PLANTED}ann'"), insert("fritz"))
        said.append(rig.call("verify", "shop"))
        said.append(rig.call("run", "shop"))
        alive = "" if "hard" in style else " WHERE NOT __deleted"
        found = rig.rows(f"SELECT mail FROM shop.people{alive} ORDER BY 1")
        assert found == mails("ann", "bert", "dora", "fritz")
        rig.rows(f"UPDATE shop.people SET \"Amount\" = 8 WHERE mail = '{hashed(PLANTED + 'fritz')}'")
        status, output = rig.try_call("verify", "shop")
        assert (status != 0, hashed(PLANTED + "fritz") in output) == (True, True), output
        said.append(output)
    ((first, last),) = rig.rows("SELECT encode(min(to_lsn), 'hex'), encode(max(to_lsn), 'hex') FROM floodmark.windows")
    said.append(rig.call("replay", "shop", "--from-lsn", f"0x{first}", "--to-lsn", f"0x{last}"))
    rig.rows("ANALYZE floodmark.quarantine, floodmark.tombstones, floodmark.load_chunks, shop.people")
    said.append(rig.call("reload", "shop", "dbo.People"))
    if style in COMPARED:
        assert "dbo.People equal" in rig.call("verify", "shop")
    before = dump(rig)
    counts = forget(rig, "Country=land", f"Mail={PLANTED}dora")["counts"]
    assert (counts["target"] > 0, counts["quarantine"] > 0) == (True, True)
    whole = dump(rig)
    # The search finds what is there, and the key that was forgotten is not.
    assert [hashed(PLANTED + "dora") in text for text in (before, "".join(staged), whole)] == [True, True, False]
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path != rig.file]
    texts = [before, whole, *staged, *said, caplog.text, *(path.read_bytes().decode("latin-1") for path in files)]
    assert [text for text in texts if any(form in text for form in FORMS)] == []
    assert SECRET not in "".join(texts)


def test_load_that_was_ended_reads_the_table_again_because_the_ledger_has_no_bounds(
    rig: CommandRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.configure(CONFIG.replace("columns: {Mail: {as: mail, mask: hash}}", "columns: {Mail: {as: mail}}"))
    change(rig, insert("anna"), insert("berta"))
    rig.call("run", "shop")
    assert any(form in repr(rig.rows("SELECT to_bound::text FROM floodmark.load_chunks")) for form in FORMS)
    rig.rows("DROP TABLE shop.people")
    rig.configure(CONFIG)

    def fail(*_: object, **__: object) -> None:
        raise WarehouseUnavailableError("load", "it was ended.")

    with monkeypatch.context() as patch:
        patch.setattr(PostgresWarehouse, "merge_window", fail)
        rig.try_call("reload", "shop", "dbo.People")
    chunks = (
        "SELECT chunk_no, state, rows, after_bound, to_bound FROM floodmark.load_chunks WHERE window_id = {} ORDER BY 1"
    )
    ((window_id,),) = rig.rows("SELECT max(window_id) FROM floodmark.windows")
    assert [row[1:] for row in rig.rows(chunks.format(window_id))][:2] == [("staged", 1, None, None)] * 2
    # Those of the load before the mask have gone as well.
    assert rig.rows("SELECT count(*) FROM floodmark.load_chunks WHERE to_bound IS NOT NULL") == [(0,)]
    rig.source.run(insert("cleo"), insert("dora"), delete("berta"))
    rig.call("reload", "shop", "dbo.People")
    assert rig.rows("SELECT mail FROM shop.people ORDER BY 1") == mails("anna", "cleo", "dora")
    assert sum(row[2] for row in rig.rows(chunks.format(window_id))) == 3


def test_one_statement_may_pass_masked_keys_on_from_row_to_row(rig: CommandRig) -> None:
    rig.source.run("CREATE TABLE dbo.Numbers (N int NOT NULL, V int)")
    rig.source.enable("Numbers")
    masked = "mask_key_conn_id: mask_key, columns: {N: {mask: hash}}"
    rig.configure(f"{CONFIG}      - {{source: dbo.Numbers, target: shop.numbers, key: [N], {masked}}}")
    change(rig, "INSERT INTO dbo.Numbers VALUES (1, 10), (2, 20), (3, 30)")
    rig.call("run", "shop")
    change(rig, "UPDATE dbo.Numbers SET N = N + 1")
    rig.call("run", "shop")
    alive = 'SELECT "N", "V" FROM shop.numbers WHERE NOT __deleted ORDER BY 2'
    assert rig.rows(alive) == [(hashed(key), value) for key, value in ((2, 10), (3, 20), (4, 30))]
    change(rig, "INSERT INTO dbo.Numbers VALUES (12345678, 40), (12345678, 50)")
    rig.call("run", "shop")
    status, output = rig.try_call("reload", "shop", "dbo.Numbers")
    assert (status != 0, "is not unique: 2 rows" in output, "12345678" in output) == (True, True, False), output


TYPED = {
    "int": ("42", "42"),
    "nchar(6)": ("N'abc'", "abc"),
    "varchar(9)": ("'x=y z'", "x=y z"),
    "decimal(18,0)": ("123456789012345678", "123456789012345678"),
    "uniqueidentifier": ("'6f9619ff-8b86-d011-b42d-00c04fc964ff'", "6f9619ff-8b86-d011-b42d-00c04fc964ff"),
    "binary(4)": ("0x0A0B", "0x0A0B"),
}
"""By the type of a key: a value in T-SQL, and as it is written for ``floodmark forget``."""


def test_key_of_each_type_is_forgotten_as_it_is_written(rig: CommandRig) -> None:
    columns = {f"K{number}": kind for number, kind in enumerate(TYPED)}
    rig.source.run(
        "CREATE TABLE dbo.Typed ("
        + ", ".join(f"{name} {kind} NOT NULL" for name, kind in columns.items())
        + f", V int, PRIMARY KEY ({', '.join(columns)}))"
    )
    rig.source.enable("Typed")
    masked = ", ".join(f"{name}: {{mask: hash}}" for name in columns)
    typed = f"      - {{source: dbo.Typed, target: shop.typed, mask_key_conn_id: mask_key, columns: {{{masked}}}}}"
    rig.configure(CONFIG + typed)
    values = ", ".join(value for value, _ in TYPED.values())
    change(rig, f"INSERT INTO dbo.Typed VALUES ({values}, 1)")
    rig.call("run", "shop")
    change(rig, "UPDATE dbo.Typed SET V = 2")
    rig.call("run", "shop")
    assert "dbo.Typed equal" in rig.call("verify", "shop")
    assert rig.rows('SELECT "V" FROM shop.typed') == [(2,)]
    written = [
        word for name, (_, text) in zip(columns, TYPED.values(), strict=True) for word in ("--key", f"{name}={text}")
    ]
    wrong = [word.replace("K0=42", "K0=forty-two") for word in written]
    status, output = rig.try_call("forget", "shop", "dbo.Typed", *wrong)
    assert (status != 0, "the value of K0 is no int" in output, "forty" in output) == (True, True, False), output
    rig.call("forget", "shop", "dbo.Typed", *written)
    assert rig.rows("SELECT count(*) FROM shop.typed") == [(0,)]


def test_condition_of_a_reload_names_no_hidden_column(rig: CommandRig) -> None:
    change(rig, insert("anna"))
    rig.call("run", "shop")
    status, output = rig.try_call("reload", "shop", "dbo.People", "--where", f"mail = N'{PLANTED}anna'")
    assert (status != 0, "mail is masked or left out" in output, PLANTED in dump(rig)) == (True, True, False), output
    rig.call("reload", "shop", "dbo.People", "--where", "Amount = 1")


def test_changes_that_are_tracked_come_by_masked_keys(rig: CommandRig) -> None:
    rig.source.run(
        f"ALTER DATABASE [{rig.source.name}] SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 2 DAYS, AUTO_CLEANUP = ON)",
        "CREATE TABLE dbo.Tracked (Code varchar(20) COLLATE Latin1_General_BIN2 NOT NULL PRIMARY KEY, V int)",
        "ALTER TABLE dbo.Tracked ENABLE CHANGE_TRACKING",
        f"INSERT INTO dbo.Tracked VALUES ('{PLANTED}a', 1), ('{PLANTED}b', 2), ('{PLANTED}c', 3)",
    )
    config = CONFIG.replace("conn_id: shop_mssql", "conn_id: shop_mssql, kind: change_tracking")
    config = config.replace("dbo.People", "dbo.Tracked").replace("rules:", "key_spelling: fixed #")
    rig.configure(config.replace("Mail: {as: mail, mask: hash}", "Code: {mask: hash}"))
    rig.call("run", "shop")
    rig.source.run(
        f"DELETE dbo.Tracked WHERE Code = '{PLANTED}a'",
        f"UPDATE dbo.Tracked SET Code = '{PLANTED}d' WHERE Code = '{PLANTED}b'",
        "UPDATE dbo.Tracked SET V = V + 1",
    )
    rig.call("run", "shop")
    alive = 'SELECT "Code", "V" FROM shop.people WHERE NOT __deleted ORDER BY 2'
    assert rig.rows(alive) == [(hashed(f"{PLANTED}d"), 3), (hashed(f"{PLANTED}c"), 4)]
    assert "dbo.Tracked equal" in rig.call("verify", "shop")
    assert not any(form in dump(rig) for form in FORMS)


def test_mask_that_does_not_keep_keys_apart_is_refused_by_name(rig: CommandRig) -> None:
    rig.source.run(
        "CREATE TABLE dbo.Priced (Code nvarchar(9) NOT NULL, P decimal(9,2) NOT NULL, PRIMARY KEY (Code, P))"
    )
    rig.source.enable("Priced")
    change(rig, "INSERT INTO dbo.Priced VALUES (N'a', 1)")
    for mask, why in (
        ("redact", "mask: redact may give two keys one value: use mask: hash"),
        ("null", "mask: null may give two keys"),
        ("last4", "mask: last4 may give two keys"),
        ("hash", "mask: hash is for texts, whole numbers, uniqueidentifier and bytes, and not for decimal(9,2)"),
    ):
        column = "P" if mask == "hash" else "Code"
        config = CONFIG.replace("dbo.People", "dbo.Priced").replace("rules:", "#")
        rig.configure(config.replace("Mail: {as: mail, mask: hash}", f"{column}: {{mask: {mask}}}"))
        status, output = rig.try_call("run", "shop")
        assert (status != 0, f"{column} is part of the key" in output, why in output) == (True, True, True), output
