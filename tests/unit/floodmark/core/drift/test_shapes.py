"""Classes of drift, their policies, and the DDL behind them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from floodmark.core.capture import SourceUser
from floodmark.core.drift import LivingInstance, advise, build_proposal, describe, describe_effect
from floodmark.core.schema import MAX_LENGTH, SourceColumn, SourceTable, TableName
from floodmark.core.settings import ALLOWED, DriftClass, DriftPolicies, DriftPolicy, TemporalPolicy
from floodmark.core.shapes import (
    Absence,
    DdlEntry,
    Difference,
    TableShape,
    TypeChange,
    added_column,
    classify_absence,
    classify_type,
    compare_shapes,
    explain,
    holds,
    is_as_known,
    mentions,
    select_policy,
    shape_from_json,
    shape_to_json,
)
from floodmark.core.snapshot import Feed, FeedIdentity, TableSnapshot
from floodmark.core.types import Kind, WarehouseType
from floodmark.postgres.warehouse.targets import postgres_type, type_holds
from lsns import lsn

ORDERS = TableName("dbo", "Orders")
IDENTITY = FeedIdentity("dbo_Orders", 42, datetime(2026, 1, 2, 3, 4, 5))
ID = SourceColumn("Id", "int", 1, nullable=False)
NOTE = SourceColumn("Note", "nvarchar", 2, 50)
SHAPE = TableShape(ORDERS, IDENTITY, (ID, NOTE), (), (), ("Id",), 2)


def column(text: str) -> SourceColumn:
    """``decimal(18,2)``, ``nvarchar(max)``, ``int``."""
    name, _, rest = text.rstrip(")").partition("(")
    if name in ("decimal", "numeric"):
        precision, scale = map(int, rest.split(","))
        return SourceColumn("C", name, 1, precision=precision, scale=scale)
    if name in ("datetime2", "time", "datetimeoffset"):
        return SourceColumn("C", name, 1, scale=int(rest))
    length = MAX_LENGTH if rest == "max" else int(rest or 0)
    return SourceColumn("C", name, 1, max_length=length)


TYPES = [
    ("int", "bigint", TypeChange.WIDENED), ("bigint", "int", TypeChange.NARROWED),
    ("tinyint", "smallint", TypeChange.WIDENED), ("smallint", "tinyint", TypeChange.NARROWED),
    ("nvarchar(10)", "nvarchar(max)", TypeChange.WIDENED), ("nvarchar(max)", "nvarchar(10)", TypeChange.NARROWED),
    ("varbinary(10)", "varbinary(20)", TypeChange.WIDENED), ("varbinary(max)", "varbinary(20)", TypeChange.NARROWED),
    ("decimal(10,2)", "decimal(12,2)", TypeChange.WIDENED), ("decimal(10,2)", "decimal(10,4)", TypeChange.CHANGED),
    ("decimal(18,2)", "decimal(10,2)", TypeChange.NARROWED), ("int", "decimal(12,2)", TypeChange.WIDENED),
    ("real", "float", TypeChange.WIDENED), ("int", "nvarchar(20)", TypeChange.CHANGED),
    ("date", "datetime2(3)", TypeChange.CHANGED), ("datetime2(3)", "datetime2(6)", TypeChange.WIDENED),
    ("datetime2(6)", "datetime2(3)", TypeChange.NARROWED), ("int", "sql_variant", TypeChange.CHANGED),
    ("bit", "int", TypeChange.CHANGED), ("nvarchar(20)", "varchar(20)", TypeChange.NARROWED),
    ("nvarchar(20)", "varchar(max)", TypeChange.NARROWED), ("varchar(20)", "nvarchar(20)", TypeChange.WIDENED),
    ("char(20)", "varchar(20)", TypeChange.WIDENED), ("nvarchar(max)", "varchar(max)", TypeChange.NARROWED),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "expected"), TYPES, ids=[f"{a} to {b}" for a, b, _ in TYPES])
def test_a_type_is_wider_where_it_holds_every_value_that_there_was(
    before: str, after: str, expected: TypeChange
) -> None:
    assert classify_type(column(before), column(after), TemporalPolicy.TRUNCATE) is expected


def test_a_finer_time_is_another_kind_of_value_where_it_is_kept_as_text() -> None:
    change = classify_type(column("datetime2(6)"), column("datetime2(7)"), TemporalPolicy.TEXT)
    assert change is TypeChange.CHANGED


def test_a_key_that_becomes_finer_than_a_microsecond_is_another_kind_of_value() -> None:
    before, after = column("datetime2(6)"), column("datetime2(7)")
    assert classify_type(before, after, TemporalPolicy.TRUNCATE, (after.name,)) is TypeChange.CHANGED
    assert classify_type(before, after, TemporalPolicy.TRUNCATE, ("Other",)) is TypeChange.WIDENED


warehouse_types = st.one_of(
    st.sampled_from([WarehouseType(kind) for kind in Kind if kind is not Kind.DECIMAL]),
    st.builds(lambda length: WarehouseType(Kind.TEXT, length=length), st.integers(1, 9)),
    st.builds(
        lambda whole, scale: WarehouseType(Kind.DECIMAL, whole + scale, scale), st.integers(1, 22), st.integers(0, 5)
    ),
)


@given(warehouse_types, warehouse_types)
def test_what_counts_as_wider_is_what_the_target_can_be_widened_to(wide: WarehouseType, narrow: WarehouseType) -> None:
    assert holds(wide, narrow) == type_holds(postgres_type(wide), postgres_type(narrow))


@given(st.sampled_from(list(DriftClass)), st.sampled_from(list(DriftPolicy)))
def test_every_class_has_a_default_that_is_allowed_and_words_for_all_of_them(
    kind: DriftClass, policy: DriftPolicy
) -> None:
    difference = Difference(kind, "Note", "before", "after")
    assert DriftPolicies().of(kind) in ALLOWED[kind]
    assert "{" not in describe(difference)
    assert "shop" in describe_effect(difference, {"shop": policy})
    assert "floodmark drift approve 7" in advise(difference, 7, "shop", is_held=False, proposal="")


def test_a_shape_that_is_the_same_has_no_difference() -> None:
    assert compare_shapes(SHAPE, SHAPE, TemporalPolicy.TRUNCATE) == ()


def test_differences_are_named_each_by_its_class() -> None:
    seen = replace(
        SHAPE, captured=(replace(ID, type_name="bigint"),), lost=("Note",), key=("Id", "Other"),
        uncaptured=(SourceColumn("Note", "nvarchar", 3, 50),), name=TableName("dbo", "Purchases"),
    )  # fmt: skip
    found = [(each.kind, each.column) for each in compare_shapes(SHAPE, seen, TemporalPolicy.TRUNCATE)]
    assert found == [
        (DriftClass.TABLE_RENAMED, None), (DriftClass.KEY_CHANGED, None), (DriftClass.TYPE_WIDENED, "Id"),
        (DriftClass.COLUMN_DROPPED, "Note"), (DriftClass.COLUMN_ADDED, "Note"),
    ]  # fmt: skip


def test_a_replaced_instance_is_one_difference_whatever_else_changed() -> None:
    seen = replace(SHAPE, identity=replace(IDENTITY, object_id=43), captured=(ID,))
    (difference,) = compare_shapes(SHAPE, seen, TemporalPolicy.TRUNCATE)
    assert difference.kind is DriftClass.INSTANCE_REPLACED


@pytest.mark.parametrize(
    ("absence", "kind"),
    [
        (Absence(cdc_enabled=False, exists=True), DriftClass.CDC_DISABLED),
        (Absence(cdc_enabled=True, exists=True), DriftClass.CDC_DISABLED),
        (Absence(cdc_enabled=True, exists=False), DriftClass.TABLE_DROPPED),
        (Absence(cdc_enabled=True, exists=False, renamed_to=TableName("dbo", "B")), DriftClass.TABLE_RENAMED),
    ],
)
def test_a_table_that_is_not_to_be_seen_was_renamed_dropped_or_disabled(absence: Absence, kind: DriftClass) -> None:
    assert classify_absence(SHAPE, absence).kind is kind


def test_a_hold_needs_something_to_stop_for() -> None:
    never_captured = Difference(DriftClass.TYPE_CHANGED, "Secret", "int", "xml", is_captured=False)
    assert select_policy(DriftPolicies(), never_captured) is DriftPolicy.ALERT
    key = Difference(DriftClass.KEY_CHANGED, None, "(Id)", "(Other)")
    assert select_policy(DriftPolicies(), key) is DriftPolicy.HOLD
    assert select_policy(DriftPolicies(), key, declares_key=True) is DriftPolicy.ALERT


@pytest.mark.parametrize(
    ("added", "why"),
    [
        (SourceColumn("Twice", "int", 3, is_computed=True), "computed"), (SourceColumn("V", "sql_variant", 3), "type"),
        (SourceColumn("ä" * 32, "int", 3), "63 bytes"), (SourceColumn("__lsn", "int", 3), "is reserved"),
        (SourceColumn("__part", "int", 3), "is reserved"), (SourceColumn("XMIN", "int", 3), "is reserved"),
        (SourceColumn("ä" * 31, "int", 3), ""), (SourceColumn("datetimes", "datetimeoffset", 3, scale=7), ""),
    ],
)  # fmt: skip
def test_a_column_that_can_never_arrive_is_not_proposed_and_says_why(added: SourceColumn, why: str) -> None:
    difference = added_column(added)
    assert (why in difference.obstacle) if why else not difference.obstacle
    expected = DriftPolicy.ALERT if why else DriftPolicy.PROPOSE
    assert select_policy(DriftPolicies(), difference) is expected
    assert ("cannot be loaded" in describe(difference)) is bool(why)


def test_a_column_dropped_and_added_again_is_seen_by_the_highest_column_id() -> None:
    instance = Feed(IDENTITY, SourceTable(ORDERS, (ID, NOTE), ("Id",)), lsn(1), False, True)
    table_seen = TableSnapshot(ORDERS, True, instance, lsn(1), max_column_id=2)
    assert is_as_known(table_seen, SHAPE)
    assert not is_as_known(replace(table_seen, max_column_id=3), SHAPE)
    assert is_as_known(table_seen, replace(SHAPE, captured=(ID,), lost=("Note",)))


def entry(number: int, text: str) -> DdlEntry:
    return DdlEntry(lsn(number), datetime(2026, 1, 1), text)


def test_each_statement_is_listed_with_its_difference_or_is_unknown() -> None:
    added = Difference(DriftClass.COLUMN_ADDED, "Colour", "", "int", is_captured=False)
    entries = [
        entry(3, "ALTER TABLE dbo.Orders REBUILD"), entry(1, "alter table Orders add [Colour] int -- not Note"),
        entry(2, "ALTER TABLE dbo.Orders DROP COLUMN Colour2"),
    ]  # fmt: skip
    found = explain([added], entries)
    assert [(each.difference.kind, [e.position for e in each.entries]) for each in found] == [
        (DriftClass.COLUMN_ADDED, [lsn(1)]), (DriftClass.UNKNOWN, [lsn(2)]), (DriftClass.UNKNOWN, [lsn(3)]),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("ADD [a b] int", "a b", True), ('ADD "a" int', "A", True), ("ADD a int", "a", True),
        ("ADD ab int", "a", False),
        ("ADD [a]]b] int", "a]b", True), ("ADD #a int", "a", False),
    ],
)  # fmt: skip
def test_a_column_is_named_in_brackets_quotation_marks_or_as_a_word(text: str, name: str, expected: bool) -> None:
    assert mentions(text, name) is expected


def test_a_proposal_takes_over_what_the_first_instance_was_made_with() -> None:
    first = LivingInstance(IDENTITY, ORDERS, True, "read'er", "PK_Orders", "FG1")
    other = LivingInstance(replace(IDENTITY, name="dbo_Orders_2"), ORDERS)
    text = build_proposal(first, ["Id", "a]b"], ["Colour"], [first, other]).text
    lines = text.splitlines()
    assert "sp_cdc_disable_table" in lines[1]
    assert "@capture_instance = N'dbo_Orders_2';" in lines[3]
    assert "@capture_instance = N'dbo_Orders_3'," in text
    assert f"@capture_instance = N'{IDENTITY.name}';" in lines[-1]
    for part in (
        "@supports_net_changes = 1,", "@role_name = N'read''er',", "@index_name = N'PK_Orders',",
        "@filegroup_name = N'FG1',", "@captured_column_list = N'[Id], [a]]b], [Colour]';",
    ):  # fmt: skip
        assert part in text


def test_all_of_a_proposal_is_in_sight_where_a_person_reads_it_however_many_columns_there_are() -> None:
    columns = [f"A column with a long name {number}" for number in range(300)]
    first = LivingInstance(IDENTITY, ORDERS)
    text = build_proposal(first, columns, ["it's new"], [first]).text
    assert max(map(len, text.splitlines())) < 110
    pieces = [line.split(" N'")[1][:-2] for line in text.splitlines() if line.startswith(("DECLARE", "SET"))]
    assert "".join(pieces).replace("''", "'") == ", ".join(f"[{name}]" for name in [*columns, "it's new"])
    assert "@captured_column_list = @columns;" in text


def test_an_instance_that_captures_the_columns_already_is_not_made() -> None:
    first = LivingInstance(IDENTITY, ORDERS)
    other = LivingInstance(replace(IDENTITY, name="by_hand"), ORDERS)
    text = build_proposal(first, ["Id"], ["Colour"], [first, other], other).text
    assert text.splitlines()[0] == "-- by_hand exists and captures them."
    assert "sp_cdc_enable_table" not in text


def test_proposal_for_a_login_without_the_right_is_a_script_for_a_dba() -> None:
    first = LivingInstance(IDENTITY, ORDERS)
    owner = SourceUser("Shop", "dbo", is_owner=True)
    plain = build_proposal(first, ["Id"], ["Colour"], [first])
    assert build_proposal(first, ["Id"], ["Colour"], [first], user=owner).text == plain.text
    reader = SourceUser("Sh]op", "read]er", is_owner=False)
    proposal = build_proposal(first, ["Id"], ["Colour"], [first], user=reader)
    grant = "GRANT SELECT ON [cdc].[dbo_Orders_2_CT] TO [read]]er];"
    assert proposal.enabling == f"USE [Sh]]op];\n{plain.enabling}\n{grant}"
    statements = [line for line in proposal.text.splitlines() if not line.startswith("--")]
    # The first instance is read until each pipeline has switched.
    assert "\n".join(statements) == proposal.enabling
    made = build_proposal(first, ["Id"], ["Colour"], [first, first], first, user=reader)
    assert made.text.splitlines()[0] == "USE [Sh]]op];"


def test_a_shape_is_the_same_after_json() -> None:
    shape = replace(SHAPE, lost=("Old",), uncaptured=(replace(NOTE, ordinal=7),), last_ddl=lsn(9))
    assert shape_from_json(shape_to_json(shape)) == shape
