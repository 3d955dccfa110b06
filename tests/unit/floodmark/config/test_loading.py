from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from floodmark.config import dump_config, load_config
from floodmark.core.errors import ConfigError
from floodmark.core.schema import TableName
from floodmark.core.settings import (
    Deletes,
    FirstLoad,
    NetSource,
    OnFailure,
    OnGap,
    Rule,
    Style,
    TableSettings,
    TemporalPolicy,
    WhenAdded,
)

REPOSITORY = Path(__file__).resolve().parents[4]

Write = Callable[[str], Path]
GOOD = """
sources: {shop: {conn_id: shop_mssql}}
warehouse: {conn_id: warehouse}
pipelines:
  shop:
    source: shop
    schedule: "*/5 * * * *"
    deletes: hard
    temporal: text
    first_load: {chunk_rows: 1000}
    freshness: 30m
    tables:
      - source: dbo.Orders
        target: shop.orders
        rules: [{name: amount_not_negative, sql: "Amount >= 0"}]
      - {source: dbo.Log, target: shop.log, key: [At, No], capture_instance: log_v2,
         deletes: soft, net: server, partitions: 4}
"""
BAD = """
sources: {shop: {conn_id: shop_mssql, x: 1}}
warehouse: {}
pipelines:
  shop:
    source: shopp
    schedule: "*/5 * * *"
    deletes: medium
    freshness: 3 weeks
    tabels: []
    tables:
      - {source: dbo.Orders, target: orders, rules: [{name: a b, sql: "Amount >=", on_failure: die}]}
      - {source: dbo.orders, target: floodmark.x, rules: [{name: a, sql: "1=1"}, {name: a, sql: "x > 0"}], key: Id}
      - {source: dbo.A, target: s.a}
      - {source: dbo.B, target: s.a, first_load: {chunk_rows: 0}}
"""
PROBLEMS = [
    "pipelines.shop.deletes: input should be 'soft' or 'hard'",
    "pipelines.shop.freshness: not a duration: '3 weeks' (expected a number and s, m, h or d, such as 30m)",
    "pipelines.shop.schedule: not a cron expression: '*/5 * * *' (expected five fields, such as '*/5 * * * *')",
    "pipelines.shop.source: there is no source shopp (there are: shop)",
    "pipelines.shop.tabels: unknown key (did you mean tables?)",
    "pipelines.shop.tables[0].rules[0].name: 'a b' is not a valid name",
    "pipelines.shop.tables[0].rules[0].on_failure: input should be 'quarantine', 'stop' or 'warn'",
    "pipelines.shop.tables[0].rules[0].sql: not a condition: it is incomplete",
    "pipelines.shop.tables[0].target: not a table name: 'orders' (expected schema.table)",
    "pipelines.shop.tables[1].key: input should be a list",
    "pipelines.shop.tables[1].rules[1].name: a is already the name of rule 0",
    "pipelines.shop.tables[1].source: dbo.orders is already read by pipelines.shop.tables[0]",
    "pipelines.shop.tables[1].target: schema floodmark is reserved: choose another schema for the target",
    "pipelines.shop.tables[3].first_load.chunk_rows: input should be greater than 0",
    "pipelines.shop.tables[3].target: s.a is already filled by pipelines.shop.tables[2]",
    "sources.shop.x: unknown key",
    "warehouse.conn_id: is missing",
]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "pipelines.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_every_problem_is_in_one_report_with_its_place(write: Write) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config(write(BAD))
    assert str(raised.value).splitlines()[1:] == [f"  {problem}" for problem in PROBLEMS]
    assert "17 problems" in str(raised.value)


@pytest.mark.parametrize(
    ("tables", "problems"),
    [
        ("[]", ["pipelines.shop.tables: has no entry"]),
        (
            "[{source: dbo.A, targt: s.a, max_reads: 8}]",
            [
                "pipelines.shop.tables[0].max_reads: unknown key in this place; another section has it",
                "pipelines.shop.tables[0].target: is missing",
                "pipelines.shop.tables[0].targt: unknown key (did you mean target?)",
            ],
        ),
    ],
)
def test_list_without_entries_is_a_problem_only_where_it_has_none(
    write: Write, tables: str, problems: list[str]
) -> None:
    pipelines = f"{{shop: {{source: shop, tables: {tables}}}}}"
    text = f"sources: {{shop: {{conn_id: x}}}}\nwarehouse: {{conn_id: w}}\npipelines: {pipelines}\n"
    with pytest.raises(ConfigError) as raised:
        load_config(write(text))
    assert [line.strip() for line in str(raised.value).splitlines()[1:]] == problems


def test_tables_take_what_they_do_not_say_from_their_pipeline(write: Write) -> None:
    config = load_config(write(GOOD))
    assert config.pipeline("shop").freshness == timedelta(minutes=30)
    orders = TableSettings(
        TableName("dbo", "Orders"),
        TableName("shop", "orders"),
        deletes=Deletes.HARD,
        net=NetSource.SPARK,
        temporal=TemporalPolicy.TEXT,
        rules=(Rule("amount_not_negative", "Amount >= 0", OnFailure.QUARANTINE),),
        first_load=FirstLoad(chunk_rows=1000),
    )
    log = replace(
        orders,
        source=TableName("dbo", "Log"),
        target=TableName("shop", "log"),
        rules=(),
        key=("At", "No"),
        capture_instance="log_v2",
        deletes=Deletes.SOFT,
        net=NetSource.SERVER,
        partitions=4,
    )
    assert config.settings("shop").tables == (orders, log)
    assert config.settings("shop").lag_limit_seconds == 900


@pytest.mark.parametrize(
    ("table", "cause"),
    [
        ("deletes: hard", "deletes: hard deletes rows"),
        ("deletes: soft, net: server", "net: server leaves out changes"),
        ("deletes: soft, live_view: true", "live_view: true shows the rows that are not deleted"),
    ],
)
def test_settings_that_lose_changes_are_refused_with_a_log(write: Write, table: str, cause: str) -> None:
    text = GOOD.replace("deletes: hard", "style: log").replace("deletes: soft, net: server", table)
    with pytest.raises(ConfigError, match=rf"tables\[1\]: style: log, but {cause}"):
        load_config(write(text))
    orders, log = load_config(write(text.replace(table, "style: current"))).settings("shop").tables
    assert (orders.style, log.style) == (Style.LOG, Style.CURRENT)


def test_dumped_configuration_loads_to_the_same_settings(write: Write) -> None:
    config = load_config(write(GOOD))
    again = load_config(write(dump_config(config)))
    assert again.settings("shop") == config.settings("shop")
    assert again.pipeline("shop").freshness == config.pipeline("shop").freshness


def test_loads_and_gaps_of_a_table_are_its_own_or_the_pipelines(write: Write) -> None:
    text = GOOD.replace("{chunk_rows: 1000}", "{parallel_reads: 2}\n    on_gap: repair")
    tables = load_config(write(text)).settings("shop").tables
    assert {(table.on_gap, table.first_load.parallel_reads) for table in tables} == {(OnGap.REPAIR, 2)}
    assert load_config(write(GOOD)).settings("shop").tables[0].on_gap is OnGap.FAIL


@pytest.mark.parametrize(("given", "parallel_reads", "max_reads"), [("", 2, 4), ("", 9, 9), (", max_reads: 3", 9, 3)])
def test_reads_of_a_source_are_limited(write: Write, given: str, parallel_reads: int, max_reads: int) -> None:
    text = GOOD.replace("chunk_rows: 1000", f"parallel_reads: {parallel_reads}").replace("_mssql}", f"_mssql{given}}}")
    assert {table.max_reads for table in load_config(write(text)).settings("shop").tables} == {max_reads}


def test_added_table_is_loaded_by_the_next_window_unless_it_says_otherwise(write: Write) -> None:
    orders, log = (
        load_config(write(GOOD.replace("{chunk_rows: 1000}", "{when_added: in_parallel}"))).settings("shop").tables
    )
    assert (orders.first_load.when_added, orders.first_load.chunk_rows) == (WhenAdded.IN_PARALLEL, 500_000)
    assert (log.first_load.when_added, log.first_load.chunk_rows) == (WhenAdded.IN_PARALLEL, 500_000)
    assert load_config(write(GOOD)).settings("shop").tables[0].first_load.when_added is WhenAdded.IN_WINDOW


def test_configuration_may_use_the_earlier_name_of_in_parallel(write: Write) -> None:
    tables = load_config(write(GOOD.replace("{chunk_rows: 1000}", "{when_added: beside}"))).settings("shop").tables
    assert {table.first_load.when_added for table in tables} == {WhenAdded.IN_PARALLEL}


def test_configuration_that_comes_with_floodmark_is_valid() -> None:
    assert load_config(REPOSITORY / "include" / "pipelines.yaml").settings("shop").tables


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", r"not YAML: line 1, column \d+"),
        ("sources: {}\nsources: {}", "duplicate key sources"),
        ("- 1", "the file: input should be a mapping"),
        ("", "the file: input should be a mapping"),
    ],
)
def test_file_that_is_no_configuration_is_refused_in_one_message(write: Write, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config(write(text))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: the file could not be read: No such file"):
        load_config(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("name", "source", "owner"),
    [
        ("load_shop", "", "the loads of pipeline shop"),
        ("drift_erp", "", "the drift of source erp"),
        ("switch_erp", "", "the switches of source erp"),
        ("switch_erp", ", kind: change_tracking", ""),
        ("capture_erp", ", capture: {}", "the capture job of source erp"),
        ("capture_erp", "", ""),
        ("retention_erp", ", retention: {}", "the retention of source erp"),
        ("load_erp", "", ""),
    ],
)
def test_pipeline_with_the_dag_of_another_is_refused(write: Write, name: str, source: str, owner: str) -> None:
    path = write(
        f"sources: {{erp: {{conn_id: erp{source}}}}}\nwarehouse: {{conn_id: warehouse}}\npipelines:\n"
        "  shop: {source: erp, tables: [{source: dbo.A, target: shop.a}]}\n"
        f"  {name}: {{source: erp, tables: [{{source: dbo.A, target: other.a}}]}}\n"
    )
    if not owner:
        load_config(path)
        return
    with pytest.raises(ConfigError, match=f"pipelines.{name}: cdc_{name} is the DAG of {owner}: choose another name"):
        load_config(path)


def test_unknown_pipeline_is_answered_with_those_there_are(write: Write) -> None:
    with pytest.raises(ConfigError, match=r"shopp: there is no such pipeline\. There are: shop"):
        load_config(write(GOOD)).settings("shopp")


@pytest.mark.parametrize(
    ("shared", "own", "is_refused"),
    [
        ("true", "", True),
        ("false", ", live_view: true", True),
        ("true", ", live_view: false", False),
        ("false", "", False),
    ],
)
def test_view_with_the_name_of_a_target_is_refused(write: Write, shared: str, own: str, is_refused: bool) -> None:
    text = f"""
sources: {{shop: {{conn_id: shop_mssql}}}}
warehouse: {{conn_id: warehouse}}
pipelines:
  shop:
    source: shop
    tables: [{{source: dbo.Live, target: shop.orders_live}}]
  other:
    source: shop
    live_view: {shared}
    tables: [{{source: dbo.Orders, target: shop.orders{own}}}]
"""
    words = "pipelines.other.tables[0].live_view: the view shop.orders_live would have the name of the target of pip"
    if not is_refused:
        load_config(write(text))
        return
    with pytest.raises(ConfigError) as found:
        load_config(write(text))
    assert words in str(found.value)
