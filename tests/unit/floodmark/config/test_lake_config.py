"""A configuration with a lake: what it needs, and what it does not support."""

from pathlib import Path

import pytest

from floodmark.config import load_config, models
from floodmark.core.errors import ConfigError

LAKE = """
sources: {{shop: {{conn_id: shop_mssql{kind}}}}}
warehouse: {{kind: iceberg, conn_id: lake}}
{ledger}
pipelines:
  shop:
    source: shop
    tables: [{{source: {source}, target: {target}{settings}}}]
"""


def load(path: Path, settings: str = "", **other: str) -> None:
    values = {"kind": "", "ledger": "ledger: {conn_id: warehouse}", "source": "dbo.Orders", "target": "shop.orders"}
    (path / "pipelines.yaml").write_text(LAKE.format(**values | other, settings=settings), "utf-8")
    load_config(path / "pipelines.yaml")


def test_lake_takes_current_rows_with_rules(tmp_path: Path) -> None:
    load(tmp_path, ", rules: [{name: r, sql: 'Id > 0', on_failure: stop}]")
    load(tmp_path, ", rules: [{name: r, sql: 'Id > 0', on_failure: quarantine}]")
    load(tmp_path, ", rules: [{name: r, sql: 'Id > 0', on_failure: warn}]", source='"dbo.*"', target='"shop.*"')
    load(tmp_path, ", deletes: hard, naming: snake_case, columns: {Amount: {mask: redact}}, on_gap: repair")
    load(tmp_path, ", new_columns: drop, first_load: {when_added: in_parallel}")
    load(tmp_path, ", where: Id > 0")
    load(tmp_path, ", style: log, before_images: true, snapshot: false")
    load(tmp_path, ", style: history, keep_versions: 7y, on_gap: repair")
    load(tmp_path, ", expectations: [{type: expect_column_values_to_not_be_null, kwargs: {column: Id}}]")
    load(tmp_path, ", commit_times: true, columns: {At: {cast: date}}")


def test_lake_needs_a_ledger_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a warehouse of kind iceberg needs a ledger in PostgreSQL"):
        load(tmp_path, ledger="")


def test_lake_takes_no_source_of_another_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A kind that it does not take may be left out of the tree (bin/check-kinds).
    monkeypatch.setattr(models, "LAKE_SOURCES", ("cdc",))
    with pytest.raises(ConfigError, match="takes no source of kind change_tracking so far"):
        load(tmp_path, kind=", kind: change_tracking")


def test_lake_takes_tables_with_change_tracking(tmp_path: Path) -> None:
    load(tmp_path, ", style: history", kind=", kind: change_tracking")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (", style: history, open_end: 9999-12-31", "open_end"),
        (", style: history, track: [Amount]", "track"),
        (", live_view: true", "live_view"),
        (", derived: {doubled: Id * 2}", "derived"),
        (", unstorable: replace", "unstorable: replace"),
    ],
)
def test_what_a_lake_lacks_is_refused_by_name(tmp_path: Path, settings: str, words: str) -> None:
    with pytest.raises(ConfigError, match=rf"pipelines\.shop, dbo\.Orders: a lake does not support {words}"):
        load(tmp_path, settings)


@pytest.mark.parametrize("target", ["'shop.my orders'", "sh-op.orders"])
def test_target_whose_name_other_readers_cannot_write_is_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(ConfigError, match="its names may have letters, digits and _"):
        load(tmp_path, target=target)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("shop.orders", "shop.Orders", "shop.Orders differs in case alone from shop.orders"),
        ("shop.orders", "Shop.items", "Shop differs in case alone from shop"),
        ("shop.orders, style: history", "shop.Orders_Versions", "shop.Orders_Versions differs in case alone from shop"),
        ("shop.orders", "sales.Orders", ""),
    ],
)
def test_names_that_differ_in_case_alone_are_refused(tmp_path: Path, first: str, second: str, same: str) -> None:
    source = f"dbo.Orders, target: {first}}}, {{source: dbo.Items"
    if not same:
        load(tmp_path, source=source, target=second)
        return
    with pytest.raises(ConfigError, match=rf"pipelines\.shop\.tables\[1\]\.target: {same}"):
        load(tmp_path, source=source, target=second)
    in_postgres = (tmp_path / "pipelines.yaml").read_text("utf-8").replace("kind: iceberg, ", "")
    (tmp_path / "pipelines.yaml").write_text(in_postgres, "utf-8")
    load_config(tmp_path / "pipelines.yaml")
