"""The settings of columns in the file: their forms, what is refused by name, and what no kind but a database has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from floodmark.config import dump_config, load_config
from floodmark.core.definition import with_columns
from floodmark.core.errors import ConfigError
from floodmark.core.schema import SourceColumn
from floodmark.core.settings import Cast, ColumnSettings, Mask, NetSource, NewColumns, TableSettings
from floodmark.sources.kind import find_kind
from floodmark.sync.filters import parse_filter
from source_snapshots import ORDERS, instance

Write = Callable[..., Path]
CONFIG = """
sources: {{shop: {{conn_id: shop_mssql, kind: {kind}{source}}}}}
warehouse: {{conn_id: warehouse}}
pipelines:
  shop:
    source: shop
    tables:
      - source: {table}
        target: {target}
        {settings}
"""
DATABASES = ("cdc", "change_tracking")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(settings: str, kind: str = "cdc", table: str = "dbo.Orders", target: str = "shop.orders") -> Path:
        path = tmp_path / "pipelines.yaml"
        source = "".join(f", {key}: of_it" for key in find_kind(kind).rules.required)
        text = CONFIG.format(kind=kind, source=source, table=table, target=target, settings=settings)
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("written", "column"),
    [
        ("drop", ColumnSettings("Note", is_dropped=True)),
        ("keep", ColumnSettings("Note")),
        ("{as: remark}", ColumnSettings("Note", "remark")),
        ("{mask: redact}", ColumnSettings("Note", mask=Mask.REDACT)),
        ("{mask: null}", ColumnSettings("Note", mask=Mask.NULL)),
        ('{mask: "null", as: x}', ColumnSettings("Note", "x", mask=Mask.NULL)),
        ("{mask: {round: -2}}", ColumnSettings("Note", mask=Mask.ROUND, digits=-2)),
        ("{cast: date}", ColumnSettings("Note", cast=Cast.DATE)),
        ("{as: x, mask: year, cast: text}", ColumnSettings("Note", "x", mask=Mask.YEAR, cast=Cast.TEXT)),
    ],
)
def test_column_is_read_and_written_in_one_form(write: Write, tmp_path: Path, written: str, column: object) -> None:
    config = load_config(write(f"columns: {{Note: {written}}}"))
    assert config.settings("shop").tables[0].columns == (column,)
    (tmp_path / "again.yaml").write_text(dump_config(config), encoding="utf-8")
    assert load_config(tmp_path / "again.yaml").settings("shop") == config.settings("shop")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("columns: {Note: hide}", "column Note is drop, keep, or a mapping with as, mask and cast"),
        ("columns: {Note: {}}", "column Note is drop, keep, or a mapping"),
        ("columns: {Note: {masks: hash}}", "column Note is drop, keep, or a mapping"),
        ("columns: {Note: {cast: float}}", "the cast of Note is date, text, int, bigint"),
        ("columns: {Note: {cast: null}}", "the cast of Note is date, text, int, bigint"),
        ("columns: {Note: {mask: redact, cast: text}}", "mask: redact of Note makes a text, which has no cast"),
        ("columns: {Note: {cast: text}}\n        key: [note]", "Note is part of the key, by which rows are merged"),
        ("columns: {Note: {mask: md5}}", "the mask of Note is hash, redact, null, last4, year, or {round: n}"),
        ("columns: {Note: {mask: round}}", "the mask of Note is hash"),
        ("columns: {Note: {mask: {round: 99}}}", "the mask of Note is hash"),
        ("columns: {Note: {as: ''}}", "as of Note is no name"),
        ("columns: {Note: {as: __lsn}}", "as: __lsn of Note has a name that is reserved"),
        ("columns: {Note: {mask: hash}}", "mask: hash needs mask_key_conn_id"),
        ("{key: [note], columns: {Note: drop}}", "Note is part of the key"),
        (
            "columns: {Note: {mask: last4}}\n        key: [note]",
            "mask: last4 may give two keys one value: use mask: hash",
        ),
        ("derived: {__lsn: Id}", "derived: __lsn has a name that is reserved"),
        ("derived: {total: Id, Total: Id}", "derived: Total is the name of two columns"),
        ("columns: {Note: {as: Total}}\n        derived: {total: Id}", "derived: total is the name of two columns"),
        ("derived: {total: 'Id; SELECT 1'}", "total: "),
        ("new_columns: never", "new_columns"),
        ("where: UPPER(Note) = 'X'", "where: a filter cannot have UPPER(Note): it has comparisons"),
        ("where: ''", "where: not one condition in T-SQL"),
    ],
)
def test_other_forms_are_refused_by_name(write: Write, settings: str, words: str) -> None:
    lines = settings.strip("{}").replace("], columns", "]\n        columns") if settings.startswith("{") else settings
    with pytest.raises(ConfigError) as raised:
        load_config(write(lines + "}" * (settings.startswith("{key"))))
    assert words in str(raised.value)


def test_columns_belong_to_one_table_and_not_to_a_pattern(write: Write) -> None:
    with pytest.raises(ConfigError, match="write an entry for that table"):
        load_config(write("columns: {Note: drop}", table="dbo.*", target="shop.*"))
    with pytest.raises(ConfigError, match="write an entry for that table"):
        load_config(write("derived: {doubled: Id * 2}", table="dbo.*", target="shop.*"))
    (pattern,) = load_config(write("new_columns: drop", table="dbo.*", target="shop.*")).pipelines["shop"].patterns
    assert pattern.table(ORDERS).new_columns is NewColumns.DROP


@pytest.mark.parametrize("kind", DATABASES)
def test_filter_is_read_and_written_in_one_form(write: Write, tmp_path: Path, kind: str) -> None:
    config = load_config(write("where: Region='N' AND [Id]>1", kind))
    assert config.settings("shop").tables[0].where == parse_filter("[Region] = 'N' AND [Id] > 1")
    (tmp_path / "again.yaml").write_text(dump_config(config), encoding="utf-8")
    assert load_config(tmp_path / "again.yaml").settings("shop") == config.settings("shop")


def test_filter_needs_changes_with_the_image_before_them(write: Write) -> None:
    with pytest.raises(ConfigError, match=r"where: net: server has no image before a change.* use net: spark"):
        load_config(write("where: Id > 1\n        net: server"))
    table = TableSettings(ORDERS, ORDERS, where=parse_filter("Id > 1"), net=NetSource.SERVER)
    with pytest.raises(ConfigError, match="use net: spark"):
        with_columns(table, instance(), None)


def test_filter_belongs_to_one_table_and_not_to_a_pattern(write: Write) -> None:
    with pytest.raises(ConfigError, match="a filter is over the columns of one table: write an entry"):
        load_config(write("where: Id > 1", table="dbo.*", target="shop.*"))


def test_event_stream_has_filters_over_types_whose_values_events_show() -> None:
    stream = replace(instance(), has_members=True)
    table = TableSettings(ORDERS, ORDERS, where=parse_filter("Id > 1"), columns=(ColumnSettings("Amount", "total"),))
    found = with_columns(table, stream, None)
    assert [column.name for column in found.filtering] == ["Id"]
    assert with_columns(table, instance(), None).filtering == ()
    columns = (*stream.table.columns, SourceColumn("Share", "real", 9), SourceColumn("At", "time", 10, scale=7))
    unlike = replace(stream, table=replace(stream.table, columns=columns))
    for where, kind in (("Share > 1", "real"), ("At > '10:00'", r"time\(7\)")):
        with pytest.raises(ConfigError, match=f"is {kind}, which a filter of events does not compare"):
            with_columns(replace(table, where=parse_filter(where)), unlike, None)
    partial = replace(stream, table=replace(stream.table, is_partial=True))
    with pytest.raises(ConfigError, match=r"where: its events leave out columns.*@include_all_columns = 1"):
        with_columns(table, partial, None)


@pytest.mark.parametrize(
    "settings", [{"columns": (ColumnSettings("Amount", is_dropped=True),)}, {"new_columns": NewColumns.HOLD}]
)
def test_every_feed_has_settings_of_columns(settings: dict[str, object]) -> None:
    table = replace(TableSettings(ORDERS, ORDERS), **settings)  # type: ignore[arg-type]
    for feed in (instance(), replace(instance(), has_members=True)):
        assert with_columns(table, feed, None).table.key == ("Id",)
    fleet = replace(instance(), has_members=True, member_column="__device", delivers_net=True)
    assert with_columns(table, fleet, None).table.key == ("Id",)
