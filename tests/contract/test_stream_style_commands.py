"""Histories and logs over an event stream as a user meets them, with the checks of each window."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from emulator_process import Emulator
from floodmark.cli.main import app
from floodmark.core.settings import Style
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sources.event_stream.epochs import PartitionMark
from sqlserver_emulator.event_stream.encoding import MessageForm
from stream_commands import prepare_commands
from stream_rig import PIPELINE, StreamRig, stream_rig

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
CONFIG = """
sources: {shop: {conn_id: shop, kind: event_stream, stream_conn_id: hub}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    schedule: null
    tables:
      - source: dbo.Orders
        target: shop.orders
        style: history
        keep_versions: 7y
        open_end: 9999-01-01
        rules: [{name: positive, sql: "Amount > 0"}]
  audit:
    source: shop
    schedule: null
    style: log
    tables:
      - {source: dbo.Orders, target: audit.orders, before_images: true}
"""
LOG = (
    'SELECT __op, "Id", "Amount"::float, "Note", __changed FROM audit.orders'
    " ORDER BY __load, __lsn, __command_id, __seq, __op"
)
HISTORY = (
    'SELECT __op, "Id", "Amount"::float, "Note", __next_lsn IS NULL FROM shop.orders_history'
    ' ORDER BY "Id", __load, __lsn'
)


@pytest.fixture
def rig(
    emulator: Emulator, database: WarehouseConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StreamRig]:
    with stream_rig(emulator, database, tmp_path) as made:
        prepare_commands(made, CONFIG, tmp_path, monkeypatch)
        yield made


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    output = " ".join(result.output.split())
    assert result.exit_code == 0, output
    return output


def test_log_has_each_event_once(rig: StreamRig) -> None:
    call("config", "check")
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", None)))
    call("run", "audit")
    first = rig.change((1, "1.50", "one"), (3, "3.00", "three"))
    second = rig.change(3, (1, "1.75", "ONE"))
    rig.stream(*second, *second[:1])
    call("run", "audit")
    rig.stream(*first, *second)
    call("run", "audit")
    assert rig.query(LOG) == [
        (0, 1, 1.0, "one", None),
        (0, 2, 2.0, None, None),
        (3, 1, 1.0, "one", ["Amount"]),
        (4, 1, 1.5, "one", ["Amount"]),
        (2, 3, 3.0, "three", None),
        (1, 3, 3.0, "three", None),
        (3, 1, 1.5, "one", ["Amount", "Note"]),
        (4, 1, 1.75, "ONE", ["Amount", "Note"]),
    ]


def test_history_is_filled_checked_verified_forgotten_and_loaded_again(rig: StreamRig) -> None:
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.00", None)))
    call("run", "shop")
    update, delete = rig.change((1, "1.50", "one"), (3, "-3.00", "bad")), rig.change(2)
    rig.stream(*rig.change((2, "2.50", "two")), *update)
    call("run", "shop")
    rig.stream(*delete, *update)
    call("run", "shop")
    expected = [
        (2, 1, 1.0, "one", False),
        (4, 1, 1.5, "one", True),
        (2, 2, 2.0, None, False),
        (1, 2, 2.0, None, False),
        (2, 2, 2.5, "two", True),
    ]
    assert rig.query(HISTORY) == expected
    assert rig.query("SELECT count(*) FROM floodmark.quarantine WHERE settled_at IS NULL") == [(1,)]
    assert "dbo.Orders" in call("status", "shop")
    rig.stream(*rig.change((3, "3.00", "good")))
    call("run", "shop")
    assert "dbo.Orders equal" in call("verify", "shop")
    call("forget", "shop", "dbo.Orders", "--key", "Id=2")
    assert {row[1] for row in rig.query(HISTORY)} == {1, 3}
    rig.client.run("DELETE dbo.Orders WHERE Id = 2")
    call("reload", "shop", "dbo.Orders")
    assert rig.query(HISTORY)[:2] == expected[:2]
    assert "dbo.Orders equal" in call("verify", "shop")


HIDDEN = """
sources: {shop: {conn_id: shop, kind: event_stream, stream_conn_id: hub}}
warehouse: {conn_id: warehouse}
pipelines:
  streamed:
    source: shop
    schedule: null
    tables:
      - source: dbo.Orders
        target: shop.orders
        style: STYLE
        where: "Amount < 1000"
        mask_key_conn_id: mask_key
        columns: {Id: {as: number, mask: hash}, Note: {mask: last4}}
        rules: [{name: positive, sql: '"Amount" > 0'}]
  other:
    source: shop
    schedule: null
    tables: [{source: dbo.Others, target: shop.others}]
"""
PLANTED = ("planted", "7077007", "4123987")
"""What the hidden values have, and nothing else: notes, keys, and the amounts of rows that do not pass."""


def leaks(text: str) -> list[str]:
    """Return the planted values that a text has, also as octets in hexadecimal digits."""
    return [each for each in PLANTED if each in text or each.encode().hex() in text]


def dump(rig: StreamRig) -> str:
    """Return every row of every table of the warehouse's database: targets, staging and ledger."""
    tables = rig.query(
        "SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables"
        " WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
    )
    return "\n".join(
        f"{table} {row}" for (table,) in tables for (row,) in rig.query(f"SELECT t::text FROM {table} AS t")
    )


@pytest.mark.parametrize("style", [Style.CURRENT, Style.HISTORY, Style.LOG])
def test_hidden_values_of_events_are_in_no_table_no_file_and_no_log(
    rig: StreamRig, tmp_path: Path, style: Style, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("AIRFLOW_CONN_MASK_KEY", json.dumps({"conn_type": "generic", "password": "s" * 20}))
    file = tmp_path / "pipelines.yaml"
    file.write_text(HIDDEN.replace("STYLE", style.value), encoding="utf-8")
    staged: list[str] = []
    merge = PostgresWarehouse.merge_window

    def watched(self: PostgresWarehouse, *arguments: Any, **named: Any) -> Any:
        staged.append(dump(rig))
        return merge(self, *arguments, **named)

    monkeypatch.setattr(PostgresWarehouse, "merge_window", watched)
    rig.client.run("CREATE TABLE dbo.Others (Id int NOT NULL PRIMARY KEY)")
    first, second, third = 70770071, 70770072, 70770073
    rig.stream(*rig.change((first, "1.00", "planted-1111"), (second, "4123987.00", "planted-2222")))
    said = [call("config", "check"), call("run", "streamed"), call("run", "other")]
    rig.stream(*rig.change((first, "-1.00", "planted-3333"), (third, "3.00", "planted-4444")))
    rig.stream(*rig.change((second, "2.00", "planted-5555")), *rig.change((third, "4123987.43", "planted-6666")))
    [whole] = rig.log.commit(({}, {"Id": "70770074", "Amount": "5.00", "Note": "planted-7777"}))
    [unfit] = rig.log.commit(({}, {"Id": "70770075", "Amount": "planted", "Note": "planted-8888"}))
    segmented = replace(rig.log, form=MessageForm(limit_bytes=2000))
    *parts, _ = segmented.commit(({}, {"Id": "70770076", "Amount": "6.00", "Note": "planted " * 1000}))
    rig.stream(whole[:-9], unfit, *parts)
    said += [call("run", name) for name in ("streamed", "other", "streamed")]
    assert {(reason, body) for _, _, reason, body in rig.quarantined()} == {
        ("column Amount has a value that is no decimal(9,2)", None),
        *((reason, None) for _, _, reason, _ in rig.quarantined()),
    }
    found = (each.mark for marks in rig.ledger.list_marks(PIPELINE).values() for each in marks)
    marks = [PartitionMark.parse(mark) for mark in found if mark]
    assert {each.body for mark in marks for each in mark.carried} == {b""}
    said += [call(*words) for words in (("status", "streamed"), ("quarantine", "list", "streamed"))]
    rig.stream(*rig.change((first, "1.00", "planted-9999"), second))
    said.append(call("run", "streamed"))
    if style is not Style.LOG:
        said.append(call("verify", "streamed"))
        assert "dbo.Orders equal" in said[-1]
        assert rig.query('SELECT "Note" FROM shop.orders WHERE NOT __deleted') == [("********9999",)]
    said.append(call("reload", "streamed", "dbo.Orders"))
    rig.client.run("ALTER TABLE dbo.Orders ADD Passport nvarchar(20)")
    rig.stream(*rig.log.commit(({}, {"Id": "70770077", "Amount": "7.00", "Note": "planted-7777"})))
    said.append(CliRunner().invoke(app, ["run", "streamed"]).output)
    assert "a new column Passport" in " ".join(said[-1].split())
    file.write_text(file.read_text(encoding="utf-8").replace("Note: {", "Passport: drop, Note: {"), encoding="utf-8")
    said.append(call("run", "streamed"))
    assert rig.query('SELECT "Note" FROM shop.orders WHERE "Amount" = 7') == [("********7777",)]
    files = [each for each in tmp_path.rglob("*") if each.is_file() and rig.capture.folder not in each.parents]
    texts = {str(each): each.read_bytes().decode(errors="replace") for each in files}
    texts |= {"output": "\n".join(said), "log": caplog.text, "staged": "\n".join(staged), "tables": dump(rig)}
    assert {name: leaks(text) for name, text in texts.items()} == {name: [] for name in texts}


SHAPED = """
sources: {shop: {conn_id: shop, kind: event_stream, stream_conn_id: hub}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    schedule: null
    tables:
      - source: dbo.Orders
        target: shop.orders
        style: STYLE
        columns: {Amount: {as: price, cast: text}}
        derived: {label: "upper(\\"Note\\") || '-' || price"}
"""


@pytest.mark.parametrize("style", [Style.CURRENT, Style.HISTORY, Style.LOG])
def test_events_are_cast_and_derived_from_as_the_plan_says(rig: StreamRig, tmp_path: Path, style: Style) -> None:
    file = tmp_path / "pipelines.yaml"
    file.write_text(SHAPED.replace("STYLE", style.value), encoding="utf-8")

    def plan(expected: int = 0) -> str:
        result = CliRunner().invoke(app, ["plan", "shop"])
        assert result.exit_code == expected, result.output
        return " ".join(result.output.split())

    def replace_in_file(old: str, new: str) -> None:
        file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")

    shaped = 'SELECT "Id", price, label FROM shop.orders WHERE __op <> 3 ORDER BY "Id", __lsn'
    rig.stream(*rig.change((1, "1.00", "one"), (2, "2.50", None)))
    assert "dbo.Orders shop.orders first load" in plan()
    call("run", "shop")
    rig.stream(*rig.change((1, "1.50", "ONE!"), 2), *rig.change((3, "3.00", "three")))
    assert "dbo.Orders shop.orders changes" in plan()
    call("run", "shop")
    before = [(1, "1.00", "ONE-1.00"), (2, "2.50", None)] if style is Style.LOG else []
    rows = [*before, (1, "1.50", "ONE!-1.50"), (2, "2.50", None), (3, "3.00", "THREE-3.00")]
    assert rig.query(shaped) == sorted(rows, key=lambda row: row[0])
    replace_in_file("upper", "lower")
    assert "makes it again, in all rows of the target" in plan()
    rig.stream(*rig.change(3))
    call("run", "shop")
    rows = [(number, price, label and label.lower()) for number, price, label in rows]
    rows += [(3, "3.00", "three-3.00")] if style is Style.LOG else []
    assert rig.query(shaped) == sorted(rows, key=lambda row: row[0])
    replace_in_file(", cast: text", "")
    assert "definition changed" in plan(3)
    assert CliRunner().invoke(app, ["run", "shop"]).exit_code != 0
    assert rig.query(shaped) == sorted(rows, key=lambda row: row[0])
    replace_in_file("as: price", "as: price, cast: text")
    if style is not Style.LOG:
        call("run", "shop")
        assert "dbo.Orders equal" in call("verify", "shop")
