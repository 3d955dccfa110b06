"""The names of a target's columns: the rules of snake_case, and what keeps a name for good."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from floodmark.core.naming import live_view_name, map_columns, rename_columns, snake_case, why_not_named
from floodmark.core.schema import TARGET_COLUMNS, MappedColumn, TableName
from floodmark.core.settings import Naming

EXAMPLES = {
    "CustomerID": "customer_id",
    "Order Lines": "order_lines",
    "XMLDocument": "xml_document",
    "Address1": "address1",
    "Address1Line": "address1_line",
    "UTF8Text": "utf8_text",
    "CustomerIDs": "customer_ids",
    "OrderIDsOpen": "order_ids_open",
    "IDsale": "i_dsale",
    "USState": "us_state",
    "already_snake": "already_snake",
    "Mixed_CASE_Name": "mixed_case_name",
    "a.b": "a_b",
    "No_": "no",
    "Qty. (Base)": "qty_base",
    "Rate %": "rate",
    "$systemId": "system_id",
    "  two  blanks ": "two_blanks",
    "_rowId": "_row_id",
    "__lsn": "_lsn",
    "__keep_x": "_keep_x",
    "2ndLine": "_2nd_line",
    "GrößeÄnderung": "größe_änderung",
    "Cafe\u0301": "café",
    "表名": "表名",
    "select": "select",
}
NAMES = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=130), unique=True)
CLASHING = st.lists(st.sampled_from(["ID", "Id", "id", "iD", "I D", "i_d", "xmin", "%", "$", "A" * 70]), unique=True)


def names_of(columns: tuple[MappedColumn, ...]) -> dict[str, str]:
    return {column.source: column.target for column in columns}


@pytest.mark.parametrize(("name", "spelled"), EXAMPLES.items())
def test_name_is_spelled_in_lower_case_with_words_apart(name: str, spelled: str) -> None:
    assert snake_case(name) == spelled
    assert names_of(map_columns(Naming.SNAKE_CASE, [name])) == {name: spelled}


@given(NAMES | CLASHING)
@example(["ID", "Id", "id"])
@example([*TARGET_COLUMNS, "__part", "__keep_a", "ctid"])
def test_every_column_has_a_name_of_its_own_that_a_target_can_have(names: list[str]) -> None:
    found = names_of(map_columns(Naming.SNAKE_CASE, names))
    assert list(found) == names
    assert len(set(found.values())) == len(names)
    assert not any(map(why_not_named, found.values()))
    assert all(name == name.lower() or not name.isascii() for name in found.values())


@given(NAMES | CLASHING, NAMES | CLASHING)
def test_column_keeps_its_name_whatever_columns_come_and_go(first: list[str], then: list[str]) -> None:
    """A column that was dropped keeps its name as well: it never becomes that of another one."""
    before = map_columns(Naming.SNAKE_CASE, first)
    after = names_of(map_columns(Naming.SNAKE_CASE, then, before))
    assert names_of(before).items() <= after.items()
    assert set(then) <= after.keys()
    assert len(set(after.values())) == len(after)


def test_suffix_of_a_name_depends_on_the_name_alone() -> None:
    alone = names_of(map_columns(Naming.SNAKE_CASE, ["Id", "ID"]))
    among = names_of(map_columns(Naming.SNAKE_CASE, ["id", "Name", "ID"], map_columns(Naming.SNAKE_CASE, ["Id"])))
    assert alone["Id"] == among["Id"] == "id"
    assert alone["ID"] == among["ID"] == "id_384397"


def test_long_names_that_begin_alike_stay_apart() -> None:
    names = ["ü" * 40 + "a", "ü" * 40 + "b"]
    found = names_of(map_columns(Naming.SNAKE_CASE, names))
    assert len(set(found.values())) == 2
    assert all(len(name.encode()) <= 63 and name.startswith("ü" * 28) for name in found.values())


def test_keep_maps_no_column() -> None:
    assert map_columns(Naming.KEEP, ["CustomerID", "__lsn"]) == ()


def test_columns_of_a_loaded_target_are_renamed_both_ways() -> None:
    names = ["CustomerID", "name"]
    there = rename_columns(Naming.SNAKE_CASE, names)
    assert there == (MappedColumn("CustomerID", "customer_id", "CustomerID"), MappedColumn("name", "name"))
    back = rename_columns(Naming.KEEP, names, there)
    assert back == (MappedColumn("CustomerID", "CustomerID", "customer_id"), MappedColumn("name", "name"))


def test_column_of_floodmark_keeps_its_name() -> None:
    names = ["__device", "_device", "Id"]
    found = map_columns(Naming.SNAKE_CASE, names, own="__device")
    assert names_of(found) == {"__device": "__device", "_device": "_device", "Id": "id"}
    assert names_of(rename_columns(Naming.SNAKE_CASE, names, own="__device")) == names_of(found)


@pytest.mark.parametrize(
    ("target", "view"),
    [
        ("orders", "orders_live"),
        ("Order Lines", "Order Lines_live"),
        ("a" * 58, "a" * 58 + "_live"),
        ("a" * 59, "a" * 51 + "_111bb2_live"),
    ],
)
def test_view_has_the_name_of_its_target_shortened_where_it_is_too_long(target: str, view: str) -> None:
    assert live_view_name(TableName("shop", target)) == TableName("shop", view)


def test_views_of_long_names_that_begin_alike_differ() -> None:
    views = {live_view_name(TableName("shop", "ä" * 31 + end)).name for end in ("", "1", "2")}
    assert len(views) == 3
    assert not any(map(why_not_named, views))
