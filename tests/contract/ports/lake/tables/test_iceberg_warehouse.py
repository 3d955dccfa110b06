"""The contract of a warehouse on a lake with a real Spark, where it does not need what a lake refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from lake_rig import LakeRig, LakeSwitchRig, read_by_duckdb
from warehouse_contract import ONE, WarehouseContract, one
from warehouse_shop import (
    COLUMNS,
    DELETE,
    INSERT,
    ORDERS,
    UPDATE,
    Row,
    changes,
    first_load,
    instance,
    reload,
    staged_batch,
)

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.errors import (
    ConfigError,
    DataQualityError,
    OperatorError,
    TargetLostError,
    TargetRefusedError,
    WatermarkConflictError,
    WindowBusyError,
)
from floodmark.core.plan import TableCounts, WindowState
from floodmark.core.schema import MappedColumn, TableName
from floodmark.core.settings import Deletes, Expectation, OnFailure, Rule
from floodmark.iceberg.checks import IcebergQuality
from floodmark.iceberg.folder import LakeFolder, plain_location
from floodmark.iceberg.lake import PUBLISHED, UNPUBLISHED
from floodmark.iceberg.metadata import read_metadata
from floodmark.iceberg.staging import LakeStaging
from floodmark.iceberg.tables import spark_name
from floodmark.iceberg.targets import LakeTargets
from floodmark.postgres.session import open_transaction
from floodmark.sync.load import TABLES_AT_ONCE
from table_plans import with_settings

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


class TestContract:
    """The tests of the contract that need soft deletes and the main lane alone."""

    test_lob = WarehouseContract.test_left_out_lob_keeps_its_value
    test_visible = WarehouseContract.test_rows_are_visible_when_the_traits_say_so
    test_publication = WarehouseContract.test_publication_may_be_repeated_at_any_time
    test_in_ledger = WarehouseContract.test_window_in_the_ledger_is_published_with_its_watermarks_or_not_at_all
    test_repeated = WarehouseContract.test_merge_that_is_repeated_at_once_changes_nothing
    test_killed = WarehouseContract.test_load_that_was_killed_after_its_merge_is_repeated_and_changes_nothing
    test_overtaken_rows = WarehouseContract.test_rows_of_an_overtaken_attempt_never_count
    test_overtaken_merge = WarehouseContract.test_merge_of_an_overtaken_attempt_is_not_published
    test_lost = WarehouseContract.test_staging_that_lost_rows_is_not_merged
    test_twice = WarehouseContract.test_key_that_is_in_staging_twice_is_refused
    test_duplicates = WarehouseContract.test_duplicates_of_a_first_load_are_dropped_but_for_one
    test_all_or_none = WarehouseContract.test_tables_of_a_window_are_merged_all_or_none
    test_parts = WarehouseContract.test_parts_of_a_first_load_outlast_attempts_and_those_of_changes_do_not
    test_cleared = WarehouseContract.test_parts_are_counted_and_cleared_by_number
    test_counted = WarehouseContract.test_rows_in_staging_are_counted_while_the_window_is_loaded


def test_rows_are_counted_by_what_became_of_them(rig: LakeRig) -> None:
    first = rig.run(first_load(), 10, [Row(key, INSERT, 10, key * 10, notes=f"n{key}") for key in (1, 2, 3)])
    assert first == TableCounts(staged_rows=3, inserted_rows=3)
    rows = [Row(1, UPDATE, 11, 11, notes="m"), Row(2, DELETE, 12), Row(4, INSERT, 13, 40, 5), Row(9, DELETE, 14)]
    counts = rig.run(changes(10, 20), 20, rows)
    assert counts == TableCounts(staged_rows=4, inserted_rows=1, updated_rows=1, deleted_rows=1, unchanged_rows=1)
    assert rig.visible() == {
        1: (Decimal("11.00"), None, "m"),
        3: (Decimal("30.00"), None, "n3"),
        4: (Decimal("40.00"), 5, None),
    }
    assert read_by_duckdb(str(rig.locations()[0])) == rig.visible()


def test_table_that_another_program_has_written_is_not_published(rig: LakeRig) -> None:
    rig.run(first_load(), 10, one())
    plan = rig.open(changes(10, 20), to=20)
    rig.stage(plan, [Row(1, DELETE, 15)])
    rig.merge(plan)
    rig.check(plan)
    rig.sql("UPDATE {} SET Notes = 'foreign'")
    with pytest.raises(WatermarkConflictError, match="1 of 1 tables of window"):
        rig.publish(plan)
    assert rig.ledger.read_window(plan.window_id).state is WindowState.CHECKED
    assert [row[2] for row in rig.visible().values()] == ["foreign"]
    # As the page says; after the publication it changes nothing.
    page = (Path(__file__).parents[5] / "docs" / "lakehouse.md").read_text(encoding="utf-8")
    [back] = re.findall(r"^UPDATE floodmark_lake[^;]+;", page, re.MULTILINE)
    with open_transaction(rig.at) as session:
        session.execute(back.replace("'orders'", f"'{rig.target.name}'"))
    rig.publish(plan)
    assert rig.visible() == {}
    rig.sql("UPDATE {} SET Notes = 'foreign'")
    found = rig.locations()
    with open_transaction(rig.at) as session:
        session.execute(back.replace("'orders'", f"'{rig.target.name}'"))
    assert rig.locations() == found


def test_table_that_was_merged_again_after_its_checks_is_not_published(rig: LakeRig) -> None:
    plan = rig.open(first_load(), to=10)
    rig.stage(plan, one())
    rig.merge(plan)
    rig.check(plan)
    rig.sql("UPDATE {} SET Notes = 'later'", UNPUBLISHED)
    with pytest.raises(WatermarkConflictError, match="1 of 1 tables of window"):
        rig.publish(plan)
    assert rig.visible() == {}


def test_refused_window_leaves_no_trace_in_the_next(rig: LakeRig) -> None:
    rig.run(first_load(), 10, one())
    before = rig.locations()
    rule = Rule("small", '"Amount" < 100', OnFailure.STOP)
    plan = rig.open(changes(10, 20, rules=(rule,)), to=20)
    rig.stage(plan, [Row(1, UPDATE, 15, 500), Row(2, INSERT, 16, 5)])
    with pytest.raises(DataQualityError, match="broke rule small") as refused:
        rig.merge(plan)
    assert "500" not in str(refused.value)
    assert rig.locations() == before
    plan = rig.prepare(plan.window_id)
    rig.stage(plan, [Row(1, UPDATE, 15, 50), Row(2, INSERT, 16, 5)])
    counts = rig.merge(plan)
    rig.sql("UPDATE {} SET Amount = 500 WHERE Id = 1", UNPUBLISHED)
    found = IcebergQuality(rig.lake, lambda: None).check_window(plan, counts)
    assert "small" in str(found[ORDERS])
    assert "500" not in str(found[ORDERS])
    assert rig.locations()[0] == before[0]
    rig.ledger.drop_merged(plan.window_id)
    after = rig.open(changes(10, 30), to=30)
    assert rig.locations() == before
    rig.stage(after, [Row(3, INSERT, 25, 5, notes="n")])
    rig.merge(after)
    rig.finish(after)
    assert rig.visible() == {**ONE, 3: (Decimal("5.00"), None, "n")}


def test_first_load_that_a_check_refused_is_made_again(rig: LakeRig) -> None:
    rule = Rule("small", '"Amount" < 100', OnFailure.STOP)
    plan = rig.open(first_load(rules=(rule,)), to=10)
    rig.stage(plan, [Row(1, INSERT, 10, 50), Row(2, INSERT, 10, 5)])
    counts = rig.merge(plan)
    rig.sql("UPDATE {} SET Amount = 500 WHERE Id = 1", UNPUBLISHED)
    assert list(IcebergQuality(rig.lake, lambda: None).check_window(plan, counts)) == [ORDERS]
    rig.ledger.drop_merged(plan.window_id)
    rig.run(first_load(rules=(rule,)), 20, one())
    assert rig.visible() == ONE


# Importing Great Expectations warns.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_expectations_are_judged_before_readers_see_the_rows(
    rig: LakeRig, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    small = Expectation("expect_column_values_to_be_between", '{"column": "Amount", "max_value": 100}')
    filled = Expectation("expect_column_values_to_not_be_null", '{"column": "Notes"}', severity="warning")
    whole = Expectation("expect_column_sum_to_be_between", '{"column": "Amount", "max_value": 60}', rows="table")

    def merge(*declared: Expectation, amount: int) -> str:
        plan = rig.open(with_settings(changes(10, 20), expectations=declared), to=20)
        rig.stage(plan, [Row(2, INSERT, 15, amount), Row(3, DELETE, 16, 4711)])
        counts = rig.merge(plan)
        found = IcebergQuality(rig.lake, lambda: None).check_window(plan, counts)
        rig.ledger.drop_merged(plan.window_id)
        return " ".join(f"{error} {error.detail}" for error in found.values())

    load = with_settings(first_load(), expectations=(small, filled, whole))
    rig.run(load, 10, [Row(1, INSERT, 10, 50, notes="n"), Row(3, INSERT, 10, 5, notes="n")])
    assert "Notes" not in caplog.text
    words = merge(small, filled, whole, amount=4711)
    assert "expect_column_values_to_be_between: expected that it holds for Amount of the window; found 1 of 1" in words
    assert (
        "expect_column_sum_to_be_between: expected that it holds for Amount of the table; found that it does" in words
    )
    assert (
        "expect_column_values_to_not_be_null: expected that it holds for Notes of the window; found 1 of 1"
        in caplog.text
    )
    assert "4711" not in words + caplog.text
    assert list(rig.visible()) == [1, 3]
    assert merge(small, filled, whole, amount=5) == ""
    words = merge(replace(small, kwargs='{"column": "Lost", "max_value": 100}'), amount=4711)
    assert "expectation expect_column_values_to_be_between cannot be evaluated" in words
    # Spark's message quotes the value that is no number. PySpark prints the message, unless it is kept from that.
    query = '{"unexpected_rows_query": "SELECT * FROM {batch} WHERE CAST(CONCAT(Amount, Id) AS int) > 0"}'
    words = merge(Expectation("unexpected_rows_expectation", query), amount=4711)
    assert "unexpected_rows_expectation cannot be evaluated" in words
    assert "4711" not in words + caplog.text + capfd.readouterr().err


def test_table_that_was_renamed_is_made_again_also_by_a_new_ledger(rig: LakeRig) -> None:
    rig.run(first_load(), 10, one())
    for catalog in (PUBLISHED, UNPUBLISHED):
        rig.sql(f"ALTER TABLE {{}} RENAME TO shop.{rig.target.name}_before", catalog)
    with open_transaction(rig.at) as session:
        change = "UPDATE floodmark_lake.lake_tables SET window_id = 1000000 WHERE target_name = %s"
        session.execute(change, [rig.target.name])
        session.execute("DELETE FROM floodmark.tables WHERE target_name = %s", [rig.target.name])
    again = replace(rig, pipeline=f"{rig.pipeline}_again", reported={})
    again.run(first_load(), 20, [Row(2, INSERT, 20, 5, notes="n")])
    assert list(again.visible()) == [2]


def test_two_ledgers_with_one_folder_do_not_see_each_others_staged_rows(rig: LakeRig, tmp_path: Path) -> None:
    """Both count their windows from one."""
    folder, plan = LakeFolder(str(tmp_path)), rig.open(first_load(), to=10)
    ours, theirs = (LakeStaging(folder.staging(replace(rig.at, database=name))) for name in ("ours", "theirs"))
    for staging, keys in ((ours, (1, 2)), (theirs, (3,))):
        staging.prepare(plan, [])
        staging.sink(plan, 0).write(0, iter([staged_batch([Row(key, INSERT, 10, 5) for key in keys])]))
    theirs.drop(plan.window_id)
    assert ours.count_parts(plan, 0) == {0: 2}
    assert theirs.count_parts(plan, 0) == {}


def test_warning_of_a_rule_publishes_the_rows(
    rig: LakeRig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks that all pass are one statement: none is asked alone."""
    rule = Rule("small", '"Amount" < 5', OnFailure.WARN)
    rig.run(first_load(rules=(rule,)), 10, one())
    assert rig.visible() == ONE
    assert "small: expected that no row of this window breaks" in caplog.text
    monkeypatch.delattr("floodmark.iceberg.checks._ask_each")
    rig.run(changes(10, 20, rules=(rule,)), 20, [Row(1, UPDATE, 15, 4, notes="n")])
    assert rig.visible() == {1: (Decimal("4.00"), None, "n")}


def test_column_that_comes_later_is_added_and_another_type_is_refused(rig: LakeRig) -> None:
    rig.run(first_load(), 10, one())
    rig.sql("ALTER TABLE {} DROP COLUMN Notes")
    with open_transaction(rig.at) as session:
        # As if it had never had the column.
        session.execute(
            "UPDATE floodmark_lake.lake_tables SET published = %s WHERE target_name = %s",
            [rig.locations()[0], rig.target.name],
        )
    rig.run(changes(10, 20), 20, [Row(2, INSERT, 15, 5, notes="n")])
    assert rig.visible() == {1: (Decimal("5.00"), None, None), 2: (Decimal("5.00"), None, "n")}
    rig.sql("ALTER TABLE {} DROP COLUMN `Disc%`")
    rig.sql("ALTER TABLE {} ADD COLUMN `Disc%` string")
    with pytest.raises(TargetRefusedError, match="Disc% is string and would be int"):
        rig.open(reload(20), to=30, lane="load dbo.Orders")
    with pytest.raises(ConfigError, match="Disc% is string and would be int"):
        LakeTargets(rig.lake.catalog).check_target(with_settings(reload(20), target=rig.target))


def test_table_that_is_not_the_one_that_was_loaded_gets_no_changes(rig: LakeRig) -> None:
    """Otherwise its older rows would be missing, and nothing would say so."""
    rig.run(first_load(), 10, one())
    rig.run(changes(10, 20), 20, [Row(2, INSERT, 15, 5, notes="n")])
    published = rig.locations()[0]
    snapshots = f"{spark_name(PUBLISHED, rig.target.schema, rig.target.name)}.snapshots"
    [first, *_] = rig.lake.session().sql(f"SELECT snapshot_id FROM {snapshots} ORDER BY committed_at").collect()

    plan = rig.open(changes(20, 30), to=30)

    targets = LakeTargets(rig.lake.catalog)

    def refused(words: str) -> None:
        with pytest.raises(TargetLostError, match=words):
            rig.warehouse.prepare_window(plan)
        with pytest.raises(ConfigError, match=words):
            targets.check_target(plan.tables[0])

    def restore() -> None:
        with open_transaction(rig.at) as session:
            change = "UPDATE floodmark_lake.iceberg_tables SET metadata_location = %s WHERE table_name = %s"
            session.execute(change, [published, rig.target.name])

    rig.lake.session().sql(
        f"CALL {PUBLISHED}.system.rollback_to_snapshot('{rig.target.schema}.{rig.target.name}', {first[0]})"
    )
    refused("was set back to an earlier state")
    restore()
    rig.sql("ALTER TABLE {} DROP COLUMN Notes")
    refused("has lost columns: Notes")
    restore()
    rig.sql("UPDATE {} SET Notes = 'foreign' WHERE Id = 2")
    rig.warehouse.prepare_window(plan)
    rig.stage(plan, [Row(3, INSERT, 25, 5, notes="n")])
    rig.merge(plan)
    rig.finish(plan)
    assert [row[2] for _, row in sorted(rig.visible().items())] == [ONE[1][2], "foreign", "n"]
    plan = rig.open(changes(30, 40), to=40)
    rig.sql("DROP TABLE {}")
    refused("does not exist, and was loaded before")
    assert rig.locations()[0] is None
    rig.sql("CREATE TABLE {} (Id int) USING iceberg")
    refused("was dropped and made again")


@pytest.mark.parametrize("deletes", Deletes)
def test_reload_deletes_what_the_source_no_longer_has_and_nothing_else(rig: LakeRig, deletes: Deletes) -> None:
    """Some rows have a position that the source lost when it was restored: later changes must win over them."""
    rig.run(first_load(deletes), 50, [Row(key, INSERT, 50, key, notes="n") for key in (1, 2, 3, 4)])
    rig.run(changes(50, 90, deletes), 90, [Row(4, DELETE, 90), Row(5, INSERT, 90, 5, notes="n")])
    again = reload(90, deletes)
    plan = rig.open(again, to=60, lane="load dbo.Orders")
    staged = rig.stage(plan, [Row(1, INSERT, 60, 10, notes="m"), Row(2, INSERT, 60, 2, notes="n")])
    [counts] = rig.merge(plan, staged.rows).values()
    assert counts == TableCounts(staged_rows=2, updated_rows=2, swept_rows=2)
    assert sorted(rig.visible()) == [1, 2, 3, 5]
    rig.finish(plan)
    assert rig.visible() == {1: (Decimal("10.00"), None, "m"), 2: (Decimal("2.00"), None, "n")}
    rows = [Row(key, INSERT, 65, 7, notes="n") for key in (3, 4, 5)]
    assert rig.run(changes(60, 70, deletes), 70, rows).inserted_rows == 3
    assert sorted(rig.visible()) == [1, 2, 3, 4, 5]


def test_reload_of_a_table_without_rows_deletes_all_but_those_that_may_be_hidden(rig: LakeRig) -> None:
    rig.run(first_load(), 10, one())
    hidden = replace(reload(10), keeps_unread=True)
    assert rig.run(hidden, 20, [], lane="load dbo.Orders").swept_rows == 0
    assert rig.visible() == ONE
    assert rig.run(reload(20), 30, [], lane="load dbo.Orders").swept_rows == 1
    assert rig.visible() == {}


def test_reload_of_some_rows_deletes_nothing(rig: LakeRig) -> None:
    rig.run(first_load(), 10, one())
    some = replace(reload(10), is_reload=False, where="Id = 2")
    rig.run(some, 20, [Row(2, INSERT, 20, 5, notes="n")], lane="load dbo.Orders")
    assert sorted(rig.visible()) == [1, 2]
    rig.sql("DROP TABLE {}")
    with pytest.raises(TargetLostError, match="does not exist, and was loaded before"):
        rig.open(some, to=30, lane="load dbo.Orders")


def test_first_load_of_another_ledger_sweeps_the_rows_of_the_one_before(
    rig: LakeRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.run(first_load(), 10, [*one(), Row(2, INSERT, 10, 5)])
    with open_transaction(rig.at) as session:
        session.execute("DELETE FROM floodmark.tables WHERE target_name = %s", [rig.target.name])
        change = "UPDATE floodmark_lake.lake_tables SET window_id = 1000000 WHERE target_name = %s"
        session.execute(change, [rig.target.name])
    other = replace(rig, pipeline=f"{rig.pipeline}_again", reported={})
    assert other.run(first_load(), 20, one()).swept_rows == 1
    assert rig.visible() == ONE
    assert "has rows that no window of the ledger brought" in caplog.text


@pytest.mark.parametrize("loss", ["dropped", "dropped for readers", "without metadata"])
def test_table_that_is_lost_is_made_again_by_a_reload(rig: LakeRig, loss: str) -> None:
    rig.run(first_load(), 10, one())
    plan = rig.open(changes(10, 20), to=20)
    if loss == "without metadata":
        for location in rig.locations():
            assert location is not None
            Path(plain_location(location)).unlink(missing_ok=True)
    else:
        for catalog in (PUBLISHED, UNPUBLISHED)[: 1 if loss == "dropped for readers" else 2]:
            rig.sql("DROP TABLE {}", catalog)
    with pytest.raises(TargetLostError, match=r"does not exist|no readable metadata"):
        rig.warehouse.prepare_window(plan)
    rig.ledger.leave_out(plan.window_id, [ORDERS])
    rig.run(reload(10), 30, one(2), lane="load dbo.Orders")
    assert list(rig.visible()) == [2]


def test_table_and_pipeline_go_on_under_other_names(rig: LakeRig) -> None:
    rig.run(first_load(), 10, one())
    before, to = rig.target, TableName("sales", rig.target.name)
    move, name = rig.lake.catalog.rename, f"{rig.pipeline}_renamed"
    plan = rig.open(changes(10, 20), to=20)
    with pytest.raises(WindowBusyError, match=f"window {plan.window_id} of the table is unfinished"):
        rig.ledger.rename_target(rig.pipeline, ORDERS, to, move)
    assert rig.visible() == ONE
    rig.ledger.leave_out(plan.window_id, [ORDERS])
    assert rig.ledger.rename_target(rig.pipeline, ORDERS, to, move) == before
    assert rig.ledger.rename_pipeline(rig.pipeline, name) == [ORDERS]
    assert rig.read(before) == []
    renamed = replace(rig, pipeline=name, target=to)
    assert renamed.visible() == ONE
    renamed.run(changes(10, 20), 20, [Row(1, UPDATE, 15, 6, notes="m")])
    assert renamed.visible() == {1: (Decimal("6.00"), None, "m")}
    # It was renamed by the operator, and then another one has the name.
    for catalog in (PUBLISHED, UNPUBLISHED):
        renamed.sql(f"ALTER TABLE {{}} RENAME TO {before}", catalog)
    assert rig.ledger.rename_target(name, ORDERS, before, move) == to
    assert replace(renamed, target=before).visible() == {1: (Decimal("6.00"), None, "m")}
    rig.sql(f"CREATE TABLE {PUBLISHED}.{to} (Id int) USING iceberg")
    with pytest.raises(OperatorError, match=f"the lake has a table {to} already"):
        rig.ledger.rename_target(name, ORDERS, to, move)


def test_columns_are_renamed_and_widened(rig: LakeRig) -> None:
    rig.run(first_load(), 10, one())
    rig.sql("ALTER TABLE {} RENAME COLUMN Notes TO Remarks")
    rig.sql("ALTER TABLE {} RENAME COLUMN `Disc%` TO Notes")
    names = (MappedColumn("Notes", "Notes", "Remarks"), MappedColumn("Disc%", "Disc%", "Notes"))
    plan = rig.open(replace(reload(10), columns=names), to=20, lane="load dbo.Orders")
    staged = rig.stage(plan, [Row(1, INSERT, 20, 5, 4, "n")])
    rig.merge(plan, staged.rows)
    rig.finish(plan)
    assert rig.visible() == {1: (Decimal("5.00"), 4, "n")}
    columns = tuple(replace(each, type_name="bigint") if each.name == "Disc%" else each for each in COLUMNS)
    wide = replace(changes(20, 30), feed=instance(columns))
    check = LakeTargets(rig.lake.catalog).check_target
    own = {"__lsn", "__op", "__window_id", "__loaded_at", "__deleted"}
    assert check(with_settings(wide, target=rig.target)) == {"Id", "Amount", "Disc%", "Notes", *own}
    assert check(with_settings(reload(20), target=TableName("shop", "none"))) == frozenset()
    plan = rig.open(wide, to=30)
    rig.merge(plan, 0)
    rig.finish(plan)
    rig.run(changes(30, 40), 40, [Row(1, UPDATE, 35, 6, 5, "m")])
    assert rig.visible() == {1: (Decimal("6.00"), 5, "m")}
    assert dict(rig.lake.session().table(f"{PUBLISHED}.{rig.target}").dtypes)["Disc%"] == "bigint"


def test_times_of_commits_are_not_left_as_they_are_in_rows_that_change(rig: LakeRig) -> None:
    plan = rig.open(with_settings(first_load(), commit_times=True), to=10)
    without = tuple(with_settings(table, commit_times=False) for table in plan.tables)
    with pytest.raises(TargetRefusedError, match="commit_times: false: rows would keep the time of a change before"):
        rig.lake.prepare_window(replace(plan, tables=without))


def test_mask_that_is_new_refuses_a_table_with_rows(rig: LakeRig) -> None:
    rig.run(first_load(), 10, one())
    masked = replace(reload(10), renewed=("Notes",))
    plan = rig.open(masked, to=20, lane="load dbo.Orders")
    rig.stage(plan, one())
    with pytest.raises(TargetRefusedError, match="other values of Notes"):
        rig.merge(plan)


def test_setting_that_a_lake_lacks_is_refused_by_name(rig: LakeRig) -> None:
    with pytest.raises(ConfigError, match="a lake does not support live_view"):
        rig.open(with_settings(first_load(), live_view=True), to=10)
    assert rig.locations() == [None, None]


def test_name_that_differs_in_case_alone_from_another_one_is_refused(rig: LakeRig) -> None:
    rig.run(first_load(), 10, one())
    other = TableName("shop", rig.target.name.capitalize())
    for target in (TableName("shop", rig.target.name.upper()), TableName("Shop", "others")):
        with pytest.raises(TargetRefusedError, match="differs in case alone, or its schema does") as refused:
            replace(rig.fresh_lake(), target=target).open(first_load(), to=10)
        assert refused.value.subject == str(ORDERS)
    assert "Shop" not in [row[0] for row in rig.lake.session().sql(f"SHOW NAMESPACES IN {UNPUBLISHED}").collect()]
    fresh = rig.fresh_lake()
    fresh.run(first_load(), 10, one())
    with pytest.raises(OperatorError, match=f"the lake has the table {rig.target}, from which {other} differs"):
        fresh.ledger.rename_target(fresh.pipeline, ORDERS, other, fresh.lake.catalog.rename)
    rig.ledger.rename_target(rig.pipeline, ORDERS, other, rig.lake.catalog.rename)
    assert replace(rig, target=other).visible() == ONE


def test_columns_that_differ_in_case_alone_are_refused(rig: LakeRig) -> None:
    table = first_load()
    amount = next(column for column in table.feed.table.columns if column.name == "Amount")
    columns = (*table.feed.table.columns, replace(amount, name="amount"))
    feed = replace(table.feed, table=replace(table.feed.table, columns=columns))
    with pytest.raises(TargetRefusedError, match="the columns Amount, amount differ in case alone"):
        rig.open(replace(table, feed=feed), to=10)


def test_tables_are_merged_on_read_and_keep_the_metadata_that_readers_have(rig: LakeRig) -> None:
    rig.run(first_load(), 10, [Row(1, INSERT, 10, 5, notes="n"), Row(2, INSERT, 10, 5, notes="n")])
    [location, _] = rig.locations()
    before = read_metadata(rig.lake.catalog.folder, location)
    assert before is not None
    # Version 3 lets a Java that lives long grow, and the metadata of readers is one of before of the next window.
    assert before["format-version"] == 2
    assert before["properties"]["write.metadata.delete-after-commit.enabled"] == "false"
    plan = rig.open(changes(10, 20), to=20)
    rig.stage(plan, [Row(1, UPDATE, 15, 7), Row(2, DELETE, 16, 5)])
    rig.merge(plan)
    assert rig.locations()[0] == location
    after = read_metadata(rig.lake.catalog.folder, rig.locations()[1])
    assert after is not None
    summary = after["snapshots"][-1]["summary"]
    assert summary["added-position-deletes"] == "2"
    assert "deleted-data-files" not in summary


def test_new_column_comes_to_a_lake_by_a_second_capture_instance(lake: LakeRig, emulator: Emulator) -> None:
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int)",
            "INSERT INTO dbo.Orders VALUES (1, 10), (2, 20), (3, 30)",
        )
        source.enable("Orders")
        rig = LakeSwitchRig(emulator, source, lake)
        rig.run()
        rig.change("ALTER TABLE dbo.Orders ADD Note nvarchar(20) NULL", "UPDATE dbo.Orders SET Note = N'x'")
        rig.run()
        rig.approve()
        rig.switches.take()
        rig.change("UPDATE dbo.Orders SET Amount = 12, Note = N'y' WHERE Id = 2")
        rig.run()
        rig.switches.take()
        rig.finish(rig.load_planner().open_pending())
        assert rig.switches.take()[0].endswith("done; dbo_Orders was dropped.")
        rows = lake.read(TableName("shop", "orders"))
        assert sorted((row["Id"], row["Amount"], row["Note"]) for row in rows) == [
            (1, 10, "x"),
            (2, 12, "y"),
            (3, 30, "x"),
        ]


def test_windows_of_many_tables_have_a_few_sessions_and_no_more_with_each_window(lake: LakeRig) -> None:
    sessions = lake.lake.sessions(TABLES_AT_ONCE)
    assert len({id(each) for each in sessions}) == TABLES_AT_ONCE
    assert list(lake.lake.sessions(TABLES_AT_ONCE)) == list(sessions)
    assert list(lake.lake.sessions(1)) == sessions[:1]
    assert all(each.conf.get("spark.sql.catalog.next.type") == "jdbc" for each in sessions)
