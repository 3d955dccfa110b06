"""The names that fill the statements of a history."""

from __future__ import annotations

from dataclasses import replace

from change_histories import histories_plan
from floodmark.core.plan import WindowPlan
from floodmark.core.position import Position
from floodmark.core.schema import HISTORY_COLUMNS, SourceColumn
from floodmark.core.settings import Style
from floodmark.postgres.warehouse import history
from floodmark.postgres.warehouse.merge import merge_of
from table_plans import with_settings


def statement_names(*, delivers_net: bool) -> dict[str, str]:
    """Return the names for a table with two LOBs and two other columns."""
    plan = with_settings(histories_plan(), style=Style.HISTORY)
    source = replace(plan.feed.table, columns=(*plan.feed.table.columns, SourceColumn("b", "int", 6)))
    plan = replace(plan, feed=replace(plan.feed, table=source, delivers_net=delivers_net))
    assert isinstance(plan.watermark, Position)
    merge = merge_of(WindowPlan(1, "shop", plan.watermark, (plan,)), 0, has_tombstones=False)
    names = history._Names(plan, merge, (*merge.columns, *HISTORY_COLUMNS))
    return names.of_events(is_late=False, heals=True)


def test_columns_that_deletes_leave_out_at_once_take_one_pass() -> None:
    found = statement_names(delivers_net=True)
    assert found["owners"].count("count(*)") == 3
    assert found["healed"].count('PARTITION BY "history", "id", "__keep_a" ORDER BY') == 2
    assert found["leaves_out"].count(" OR s.__op = 1 OR ") == 2


def test_columns_of_changes_with_all_values_take_none() -> None:
    found = statement_names(delivers_net=False)
    assert found["owners"].count("count(*)") == 2
    assert '"a"' in found["healed"]
    assert "__keep_a" not in found["healed"]
