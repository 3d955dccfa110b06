"""Histories and logs over an event stream as a user meets them, with the checks of each window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emulator_process import Emulator
from floodmark.cli.main import app
from floodmark.postgres.session import WarehouseConnection
from stream_commands import prepare_commands
from stream_rig import StreamRig, stream_rig

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
