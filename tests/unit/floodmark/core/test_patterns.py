"""Patterns over the names of tables, and which tables they bring."""

from __future__ import annotations

import pytest

from floodmark.core.patterns import (
    Listed,
    ListedTable,
    PatternEntry,
    Patterns,
    TablePattern,
    fill_target,
    is_pattern,
    select_tables,
)
from floodmark.core.schema import IDENTIFIER_MAX_BYTES, TableName
from floodmark.core.settings import Naming

ALL = "dbo.*"
ORDERS, ITEMS, LOG = (TableName("dbo", name) for name in ("Orders", "Items", "Log"))


def entry(pattern: str = ALL, *exclude: str, target: str = "shop.*") -> PatternEntry:
    excluded = tuple(map(TablePattern.parse, exclude))
    return PatternEntry(TablePattern.parse(pattern), excluded, TableName.parse(target), Naming.KEEP)


def patterns(*entries: PatternEntry, named: str = "", adds: bool = False, filled: str = "") -> Patterns:
    own = frozenset({TableName.parse(named)} if named else ())
    targets = {TableName.parse(filled): "pipeline other"} if filled else {}
    return Patterns(entries or (entry(),), own, targets, adds)


def states(listed: tuple[ListedTable, ...]) -> dict[str, str]:
    return {each.table.name: each.state.value for each in listed}


@pytest.mark.parametrize(
    ("pattern", "table", "matches"),
    [
        ("dbo.*", "dbo.Orders", True),
        ("DBO.ord*", "dbo.Orders", True),
        ("dbo.*Lines", "dbo.OrderLines", True),
        ("dbo.*Lines", "dbo.OrderLinesOld", False),
        ("dbo.O*e*s", "dbo.Orders", True),
        ("dbo.*", "sales.Orders", False),
        ("dbo.Orders", "dbo.orders", True),
        ("dbo.Orders", "dbo.Orders2", False),
        ("[my.schema].*", "[my.schema].[a b]", True),
        ("dbo.[a*]", "dbo.[a*]", True),
        ("dbo.[a*]", "dbo.ab", False),
        ("dbo.a.*", "dbo.ab", None),
        ("*.a", "dbo.a", None),
    ],
)
def test_pattern_matches_names_of_one_schema_in_any_case(pattern: str, table: str, matches: bool | None) -> None:
    if matches is None:
        with pytest.raises(ValueError, match="not a"):
            TablePattern.parse(pattern)
    else:
        assert TablePattern.parse(pattern).matches(TableName.parse(table)) is matches


def test_asterisk_in_brackets_is_a_character() -> None:
    assert [is_pattern(text) for text in ("dbo.*", "dbo.[*]", "[a]]*].b", "dbo.Orders")] == [True, False, False, False]


def test_target_has_the_name_of_its_table_and_what_is_too_long_stays_distinct() -> None:
    template = TableName("shop", "t_*")
    assert fill_target(template, TableName("dbo", "OrderLines"), Naming.KEEP) == TableName("shop", "t_OrderLines")
    assert fill_target(template, TableName("dbo", "OrderLines"), Naming.SNAKE_CASE) == TableName(
        "shop", "t_order_lines"
    )
    long = [fill_target(template, TableName("dbo", "x" * 100 + end), Naming.KEEP).name for end in "ab"]
    assert long[0] != long[1]
    assert {len(name) for name in long} == {IDENTIFIER_MAX_BYTES}


def test_first_run_takes_what_it_finds_and_a_later_table_is_new() -> None:
    first = select_tables(patterns(), [ORDERS, ITEMS], [])
    assert states(first) == {"Items": "taken", "Orders": "taken"}
    later = select_tables(patterns(), [ORDERS, ITEMS, LOG], first)
    assert states(later) == {"Items": "taken", "Log": "new", "Orders": "taken"}
    assert states(select_tables(patterns(), [ORDERS, ITEMS, LOG], later))["Log"] == "new"
    assert states(select_tables(patterns(adds=True), [ORDERS, ITEMS, LOG], later))["Log"] == "taken"


def test_table_that_is_gone_stays_where_it_was_taken_and_is_forgotten_where_not() -> None:
    recorded = [ListedTable(ORDERS, ALL, Listed.TAKEN), ListedTable(LOG, ALL, Listed.NEW)]
    assert states(select_tables(patterns(), [], recorded)) == {"Orders": "taken"}


@pytest.mark.parametrize("known", [patterns(entry(ALL, "dbo.L*")), patterns(named="dbo.log")])
def test_excluded_and_named_table_is_known_and_taken_when_the_file_lets_it(known: Patterns) -> None:
    recorded = select_tables(known, [ORDERS, LOG], [])
    assert states(recorded) == {"Log": "known", "Orders": "taken"}
    assert known.list_taken(recorded) == [ORDERS]
    assert states(select_tables(patterns(), [ORDERS, LOG], recorded)) == {"Log": "taken", "Orders": "taken"}


def test_taken_table_that_the_file_excludes_is_none_of_the_pipeline_at_once() -> None:
    recorded = select_tables(patterns(), [ORDERS, LOG], [])
    now = patterns(entry(ALL, "dbo.Log"))
    assert now.list_taken(recorded) == [ORDERS]


def test_pattern_that_is_written_otherwise_takes_what_it_finds() -> None:
    recorded = select_tables(patterns(entry("dbo.O*")), [ORDERS, LOG], [])
    assert states(select_tables(patterns(entry("dbo.*")), [ORDERS, LOG], recorded)) == {
        "Log": "taken",
        "Orders": "taken",
    }


def test_excluded_from_one_pattern_may_be_taken_by_another() -> None:
    both = patterns(entry(ALL, "dbo.Log"), entry("dbo.L*", target="logs.*"))
    assert both.entry_of(LOG) == both.entries[1]
    assert states(select_tables(both, [LOG], [])) == {"Log": "taken"}


def test_target_that_another_fills_is_a_clash_until_it_is_free() -> None:
    found = select_tables(patterns(filled="shop.Orders"), [ORDERS, ITEMS], [])
    assert states(found) == {"Items": "taken", "Orders": "clashing"}
    assert [each.reason for each in found if each.reason] == [
        "the table matches dbo.*, and pipeline other fills its target shop.Orders"
    ]
    assert states(select_tables(patterns(), [ORDERS, ITEMS], found)) == {"Items": "taken", "Orders": "taken"}


def test_table_that_has_a_target_keeps_it_when_another_would_fill_it() -> None:
    two = patterns(entry(), entry("a.*"))
    other = TableName("a", "Orders")
    recorded = select_tables(two, [ORDERS], [])
    later = select_tables(Patterns(two.entries, two.named, two.filled, True), [other, ORDERS], recorded)
    assert {str(each.table): each.state for each in later} == {
        "a.Orders": Listed.CLASHING,
        "dbo.Orders": Listed.TAKEN,
    }


def test_entry_means_the_table_of_its_own_spelling_where_two_differ_in_case() -> None:
    lower = TableName("dbo", "orders")
    known = patterns(named="dbo.orders")
    recorded = select_tables(known, [lower, ORDERS], ())
    assert states(recorded) == {"Orders": "taken", "orders": "known"}
    assert known.list_taken(recorded) == [ORDERS]
    alone = select_tables(known, [ORDERS], ())
    assert states(alone) == {"Orders": "known"}
    assert known.list_taken(select_tables(patterns(), [ORDERS], ())) == []
