"""Hazards of change data capture, where no server of the tests can be made to show them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from floodmark.core.doctor import Finding, Grade, about
from floodmark.core.schema import SourceColumn, TableName
from floodmark.sources.cdc.doctor import Hazards, examine_database, examine_table_hazards, examine_taken_names
from floodmark.sources.sqlserver.tables import find_truncated
from source_snapshots import ORDERS, instance

SOUND = Hazards(has_schema=True, has_user=True, is_user_owner=True, accelerated_recovery=False, switchable={})


def of_database(hazards: Hazards, *, chooses_recovery: bool = True, sees_users: bool = True) -> list[Finding]:
    return about("Shop", examine_database(hazards, "Sh]op", chooses_recovery=chooses_recovery, sees_users=sees_users))


@pytest.mark.parametrize(
    ("definition", "tables"),
    [
        ("CREATE PROC dbo.p AS truncate\n table Orders;", {("sales", "Orders")}),
        ('TRUNCATE TABLE [Shop] . [dbo].[Order ]]s]; TRUNCATE TABLE "a".b', {("dbo", "Order ]s"), ("a", "b")}),
        ("-- TRUNCATE TABLE dbo.Orders\n/* TRUNCATE TABLE\ndbo.Orders */ SELECT 1", set()),
        ("TRUNCATE TABLE #work; SELECT truncated FROM table_of", {("sales", "#work")}),
    ],
)
def test_tables_that_a_module_truncates_are_read_from_its_text(definition: str, tables: set[tuple[str, str]]) -> None:
    assert find_truncated(definition, "sales") == {TableName(*name) for name in tables}


def test_accelerated_recovery_is_a_risk_where_it_is_a_choice() -> None:
    on = replace(SOUND, accelerated_recovery=True)
    (found,) = of_database(on)
    assert (found.grade, found.fix) == (Grade.RISK, "ALTER DATABASE [Sh]]op] SET ACCELERATED_DATABASE_RECOVERY = OFF;")
    assert of_database(on, chooses_recovery=False) == []
    assert of_database(SOUND) == of_database(replace(SOUND, accelerated_recovery=None)) == []


def test_user_of_capture_is_missed_only_by_who_would_see_it() -> None:
    gone, demoted = replace(SOUND, has_user=False, is_user_owner=None), replace(SOUND, is_user_owner=False)
    assert [each.fix for each in of_database(gone)] == [
        "CREATE USER [cdc] WITHOUT LOGIN WITH DEFAULT_SCHEMA = [cdc]; ALTER ROLE [db_owner] ADD MEMBER [cdc];"
    ]
    assert [each.fix for each in of_database(demoted)] == ["ALTER ROLE [db_owner] ADD MEMBER [cdc];"]
    assert of_database(gone, sees_users=False) == []


def test_names_that_are_taken_are_a_problem_each() -> None:
    assert [check for _, check, _, _ in examine_taken_names(SOUND)] == ["cdc schema", "cdc user"]
    assert list(examine_taken_names(Hazards())) == []


@pytest.mark.parametrize(
    ("switchable", "grade"),
    [({"dbo_Orders": True}, Grade.RISK), ({"dbo_Orders": False}, Grade.GOOD), (None, Grade.NOTE)],
)
def test_partitions_that_may_be_switched_are_a_risk(switchable: dict[str, bool] | None, grade: Grade) -> None:
    hazards = Hazards(partitioned=frozenset({ORDERS}), switchable=switchable)
    (found,) = about(ORDERS, examine_table_hazards(ORDERS, instance(), hazards))
    assert (found.check, found.grade) == ("partitions", grade)
    assert ("@allow_partition_switch = 0" in found.fix) == (grade is Grade.RISK)


def test_partitioned_table_that_is_not_captured_yet_comes_with_how_to_enable_it() -> None:
    (found,) = about(ORDERS, examine_table_hazards(ORDERS, None, Hazards(partitioned=frozenset({ORDERS}))))
    assert (found.grade, found.fix.endswith("@allow_partition_switch = 0;")) == (Grade.NOTE, True)


def test_column_of_a_clr_type_is_a_note_on_ddl() -> None:
    found = instance()
    columns = (*found.table.columns, SourceColumn("Place", "geography", 9))
    seen = replace(found, table=replace(found.table, columns=columns))
    (note,) = about(ORDERS, examine_table_hazards(ORDERS, seen, SOUND))
    assert (note.check, note.grade, note.text.startswith("Place: ")) == ("clr types", Grade.NOTE, True)
