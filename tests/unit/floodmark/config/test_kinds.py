"""Keys that do not apply to the kind of a source are refused, by key and kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from floodmark.config import dump_config, load_config
from floodmark.config.models import SourceConfig
from floodmark.core.errors import ConfigError
from floodmark.core.settings import ALLOWED, DriftClass, DriftPolicy, KeySpelling, NetSource
from floodmark.sources.kind import KINDS, find_kind

Write = Callable[..., Path]
CONFIG = """
sources: {{shop: {{conn_id: shop_mssql, kind: {kind}{source}}}}}
warehouse: {{conn_id: warehouse}}
pipelines:
  shop:
    source: shop{pipeline}
    tables:
      - {{source: dbo.Orders, target: shop.orders{table}}}
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(kind: str = "change_tracking", source: str = "", pipeline: str = "", table: str = "") -> Path:
        path = tmp_path / "pipelines.yaml"
        path.write_text(CONFIG.format(kind=kind, source=source, pipeline=pipeline, table=table), encoding="utf-8")
        return path

    return write


def problems(path: Path) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load_config(path)
    return [line.strip() for line in str(raised.value).splitlines()[1:]]


@pytest.mark.parametrize(
    ("part", "text", "place"),
    [
        ("source", ", capture: {}", "sources.shop.capture"),
        ("source", ", retention: {keep: 3d}", "sources.shop.retention"),
        ("pipeline", "\n    net: spark", "pipelines.shop.net"),
        ("pipeline", "\n    net: server", "pipelines.shop.net"),
        ("pipeline", "\n    partitions: 2", "pipelines.shop.partitions"),
        ("pipeline", "\n    lag_limit: 2h", "pipelines.shop.lag_limit"),
        ("pipeline", "\n    backfill: touched", "pipelines.shop.backfill"),
        ("pipeline", "\n    drift: {unknown: hold}", "pipelines.shop.drift.unknown"),
        ("pipeline", "\n    drift: {column_added: propose}", "pipelines.shop.drift.column_added"),
        ("pipeline", "\n    style: snapshot", "pipelines.shop.style"),
        ("table", ", style: snapshot", "pipelines.shop.tables[0].style"),
        ("table", ', style: log, where: "A > 0"', "pipelines.shop.tables[0].where"),
        ("table", ", style: log, before_images: true", "pipelines.shop.tables[0].before_images"),
        ("table", ", net: server", "pipelines.shop.tables[0].net"),
        ("table", ", partitions: 2", "pipelines.shop.tables[0].partitions"),
        ("table", ", backfill: all", "pipelines.shop.tables[0].backfill"),
        ("table", ", capture_instance: v2", "pipelines.shop.tables[0].capture_instance"),
        ("table", ", drift: {column_added: propose}", "pipelines.shop.tables[0].drift.column_added"),
    ],
)
def test_key_that_does_not_apply_is_refused_with_its_kind(write: Write, part: str, text: str, place: str) -> None:
    [problem] = problems(write(**{part: text}))
    assert problem.startswith(f"{place}: ")
    assert "does not apply to a source of kind change_tracking: " in problem
    assert load_config(write("cdc", **{part: text})).sources["shop"].kind == "cdc"


def test_table_has_the_style_of_its_pipeline_for_what_a_style_refuses(write: Write) -> None:
    pipeline, table = "\n    style: log", ', where: "A > 0"'
    [problem] = problems(write(pipeline=pipeline, table=table))
    assert problem.startswith("pipelines.shop.tables[0].where: does not apply to a source of kind change_tracking: ")
    load_config(write(pipeline=pipeline, table=f"{table}, style: history"))
    load_config(write(table=table))


@pytest.mark.parametrize("kind", sorted({*KINDS} - {"cdc"}))
def test_snapshots_are_for_change_data_capture_alone(kind: str) -> None:
    rules = find_kind(kind).rules
    assert "so far" in (rules.of_table() | rules.styles.get("snapshot", {}))["style"]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_devices_alone_have_no_times_of_commits(kind: str) -> None:
    assert ("commit_times" in find_kind(kind).rules.of_table()) == (kind == "compact")


def test_promise_about_spellings_is_for_change_tracking_alone(write: Write) -> None:
    [problem] = problems(write("cdc", table=", key_spelling: fixed"))
    assert problem.startswith("pipelines.shop.tables[0].key_spelling: does not apply to a source of kind cdc: ")
    [table] = load_config(write(table=", key_spelling: fixed")).settings("shop").tables
    assert table.key_spelling is KeySpelling.FIXED


def test_keys_that_are_left_out_have_the_defaults_of_the_kind(write: Write) -> None:
    [tracked] = load_config(write()).settings("shop").tables
    assert tracked.net is NetSource.SERVER
    assert tracked.drift.of(DriftClass.COLUMN_ADDED) is DriftPolicy.ALERT
    [captured] = load_config(write("cdc")).settings("shop").tables
    assert captured.net is NetSource.SPARK
    assert captured.drift.of(DriftClass.COLUMN_ADDED) is ALLOWED[DriftClass.COLUMN_ADDED][0]


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("table", ["", ", drift: {column_added: hold}"])
def test_dumped_configuration_loads_to_the_same_settings(write: Write, tmp_path: Path, kind: str, table: str) -> None:
    source = ", stream_conn_id: hub" if kind == "event_stream" else ""
    config = load_config(write(kind, source=source, table=table))
    (tmp_path / "again.yaml").write_text(dump_config(config), encoding="utf-8")
    again = load_config(tmp_path / "again.yaml")
    assert again.settings("shop") == config.settings("shop")
    assert again.sources == config.sources


def test_every_kind_has_its_rules_and_its_adapters() -> None:
    assert get_args(SourceConfig.model_fields["kind"].annotation) == tuple(KINDS)
    assert {name: find_kind(name).name for name in KINDS} == {name: name for name in KINDS}


def test_unknown_kind_is_one_problem(write: Write) -> None:
    [problem] = problems(write("compact_disc", source=", capture: {}"))
    assert problem.startswith("sources.shop.kind: input should be ")


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"event_stream"}))
def test_heartbeat_of_another_kind_is_refused(write: Write, kind: str) -> None:
    path = write(kind, source=", heartbeat: {table: dbo.Orders}")
    assert problems(path)[0].startswith(f"sources.shop.heartbeat: does not apply to a source of kind {kind}: ")
