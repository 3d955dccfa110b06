"""Which checks a table gets."""

from __future__ import annotations

from datetime import datetime

import pytest

from floodmark.core.errors import ConfigError
from floodmark.core.plan import LoadKind, TableCounts, TablePlan, WindowPlan, staging_table
from floodmark.core.position import Lsn
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.settings import Deletes, OnFailure, Rule, TableSettings
from floodmark.core.snapshot import Feed, FeedIdentity
from floodmark.quality.checks import Batch, Check, NoneMeets, NoRows, RowCount, Severity, Unique, build_batches
from floodmark.sync.ports import CheckedRows

SOURCE = TableName("dbo", "Order Lines")


def batches(*rules: Rule, deletes: Deletes = Deletes.SOFT) -> dict[str, Batch]:
    lsn = Lsn.parse("0x0000002D000005800001")
    columns = (
        SourceColumn("OrderID", "bigint", 1),
        SourceColumn('Line"No', "int", 2),
        SourceColumn("Quantity", "int", 3),
    )
    table = SourceTable(SOURCE, columns, ("OrderID", 'Line"No'))
    instance = Feed(FeedIdentity("i", 1, datetime(2026, 1, 1)), table, lsn, False, True)
    planned = TablePlan(
        TableSettings(SOURCE, TableName("shop", "lines"), deletes=deletes, rules=rules),
        LoadKind.FIRST_LOAD,
        instance,
        None,
        None,
    )
    plan = WindowPlan(7, "shop", lsn, (planned,), attempt=2)
    staged, target = build_batches(
        plan,
        0,
        TableCounts(staged_rows=5, quarantined_rows=2),
        60,
        CheckedRows(plan.tables[0].target, staging_table(plan, 0)),
    )
    return {"staged": staged, "target": target}


def check(batch: Batch, name: str) -> Check:
    (found,) = [one for one in batch.checks if one.name == name]
    return found


def sql_of(found: Check) -> str:
    assert isinstance(found.what, NoneMeets | NoRows)
    return found.what.rows.sql if isinstance(found.what, NoneMeets) else found.what.sql


def test_batches_read_the_staging_table() -> None:
    found = batches()
    assert found["staged"].sql == 'SELECT * FROM "floodmark_staging"."w7_load_307a89f431f28bf5"'
    assert 'FROM "shop"."lines" AS target WHERE EXISTS' in found["target"].sql


def test_staged_rows_are_counted_against_the_ledger_less_those_in_quarantine() -> None:
    assert check(batches()["staged"], "staged_row_count").what == RowCount(5 - 2)


def test_with_soft_deletes_no_tombstone_is_asked() -> None:
    assert "tombstones" not in sql_of(check(batches()["staged"], "every_staged_row_merged"))


def test_with_hard_deletes_the_tombstones_are_asked() -> None:
    sql = sql_of(check(batches(deletes=Deletes.HARD)["staged"], "every_staged_row_merged"))
    assert """jsonb_build_array(staged."OrderID", staged."Line""No")""" in sql


def test_every_key_column_is_checked_for_null_and_the_key_as_a_whole_for_uniqueness() -> None:
    target = batches()["target"]
    assert [one.name for one in target.checks].count("key_not_null") == 2
    assert check(target, "key_unique").what == Unique(("OrderID", 'Line"No'))


@pytest.mark.parametrize(
    ("on_failure", "severity"),
    [
        (OnFailure.QUARANTINE, Severity.CRITICAL),
        (OnFailure.STOP, Severity.CRITICAL),
        (OnFailure.WARN, Severity.WARNING),
    ],
)
def test_a_rule_is_as_severe_as_declared(on_failure: OnFailure, severity: Severity) -> None:
    found = check(batches(Rule("positive", "quantity > 0", on_failure))["target"], "positive")
    assert found.severity is severity
    assert found.declared
    assert '"Quantity" > 0) IS FALSE' in sql_of(found)
    assert '"__window_id" = 7' in sql_of(found)


def test_a_rule_on_an_unknown_column_is_a_config_error_that_names_it() -> None:
    with pytest.raises(ConfigError, match=r"dbo\.Order Lines: rule r: there is no column nothing"):
        batches(Rule("r", "nothing > 0", OnFailure.STOP))


def test_freshness_only_warns() -> None:
    assert check(batches()["target"], "fresh").severity is Severity.WARNING
