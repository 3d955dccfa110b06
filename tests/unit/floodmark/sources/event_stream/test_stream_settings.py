"""The keys of a source of kind ``event_stream``: its stream's connection, and its heartbeat."""

from __future__ import annotations

from pathlib import Path

import pytest

from floodmark.config import load_config
from floodmark.config.models import Config
from floodmark.core.capture import HeartbeatSettings
from floodmark.core.errors import ConfigError
from floodmark.core.schema import TableName
from floodmark.sources.event_stream.source import StreamConnection
from floodmark.sources.event_stream.transport import CaptureFolder
from floodmark.sources.kind import find_kind
from floodmark.sources.sqlserver.driver import SqlServerConnection

PIPELINE = """
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    tables:
      - {source: dbo.Orders, target: shop.orders}
"""
SECOND = "      - {source: dbo.Beat, target: shop.beat}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pipelines.yaml"


def load(path: Path, source: str, tables: str = "") -> Config:
    path.write_text(f"sources: {{shop: {{conn_id: shop_mssql, {source}}}}}\n{PIPELINE}{tables}", encoding="utf-8")
    return load_config(path)


def problem(path: Path, source: str, tables: str = "") -> str:
    with pytest.raises(ConfigError) as raised:
        load(path, source, tables)
    [line] = str(raised.value).splitlines()[1:]
    return line.strip()


def test_event_stream_needs_the_connection_of_its_stream_and_no_other_kind_has_one(path: Path) -> None:
    needs = "sources.shop: a source of kind event_stream needs stream_conn_id, the connection of the stream"
    assert problem(path, "kind: event_stream") == needs
    other = "sources.shop.stream_conn_id: does not apply to a source of kind cdc"
    assert problem(path, "kind: cdc, stream_conn_id: hub").startswith(other)


def test_filter_of_a_heartbeat_is_refused(path: Path) -> None:
    stream = "kind: event_stream, stream_conn_id: hub"
    beat = f"{stream}, heartbeat: {{table: dbo.Beat}}"
    words = "sources.shop.heartbeat.table: dbo.Beat has a filter (where), which may leave out"
    assert problem(path, beat, SECOND.replace("}", ', where: "Id > 1"}')).startswith(words)


@pytest.mark.parametrize(
    ("settings", "keeps"),
    [
        ("rules: []", True),
        ("columns: {Note: {as: note}}", True),
        ("columns: {Note: {mask: redact}}", False),
        ("columns: {Note: drop}", False),
        ("new_columns: drop", False),
        ("where: Id > 1", False),
    ],
)
def test_messages_are_kept_where_no_table_of_the_stream_hides_values(path: Path, settings: str, *, keeps: bool) -> None:
    second = SECOND.replace("}", f", {settings}}}")
    other = "  other: {source: shop, tables: [{source: dbo.Lines, target: shop.lines}]}\n"
    config = load(path, "kind: event_stream, stream_conn_id: hub", second + other)
    assert [config.settings(name).tables[0].keeps_messages for name in ("shop", "other")] == [keeps, keeps]
    databases = load(path, "kind: cdc", second)
    assert databases.settings("shop").tables[1].keeps_messages


def test_heartbeat_is_a_table_of_a_pipeline_of_a_stream(path: Path) -> None:
    stream = "kind: event_stream, stream_conn_id: hub"
    beat = f"{stream}, heartbeat: {{table: dbo.Beat}}"
    words = "no pipeline of the source has the table dbo.Beat: add it to one, with the same spelling"
    assert problem(path, beat) == f"sources.shop.heartbeat.table: {words}"
    assert load(path, beat, SECOND).heartbeat_of("shop") == HeartbeatSettings(TableName("dbo", "Beat"), 900.0)
    assert load(path, stream).heartbeat_of("shop") is None


@pytest.mark.parametrize(
    ("setting", "reason"),
    [("key: [Id]", "pass declared keys on"), ("security_filtered: accept", "must read all rows")],
)
def test_history_of_a_stream_takes_no_declared_key_and_reads_all_rows(path: Path, setting: str, reason: str) -> None:
    stream, table = "kind: event_stream, stream_conn_id: hub", "source: dbo.Lines, target: shop.lines"
    found = problem(path, stream, f"      - {{{table}, style: history, {setting}}}\n")
    name = setting.partition(":")[0]
    assert found.startswith(f"pipelines.shop.tables[1].{name}: does not apply to a source of kind event_stream: ")
    assert reason in found
    for style in ("log", "current"):
        load(path, stream, f"      - {{{table}, style: {style}, {setting}}}\n")


def test_executors_need_a_keytab_where_the_database_is_logged_in_to_by_kerberos() -> None:
    executor_variables = find_kind("event_stream").load_adapters().executor_variables
    for authentication, names in (("Kerberos", ("KRB5_CLIENT_KTNAME",)), ("SqlPassword", ())):
        at = SqlServerConnection("db", 1433, "Shop", "", authentication=authentication)  # type: ignore[arg-type]
        assert executor_variables(StreamConnection(at, CaptureFolder("/captures"))) == names
