"""Which columns can reach a target."""

from __future__ import annotations

import pytest

from floodmark.core.naming import why_not_named
from floodmark.core.schema import OPERATION_COLUMN, PART_COLUMN, SourceColumn, keep_column
from floodmark.core.settings import Naming
from floodmark.core.shapes import unsupported_reason


@pytest.mark.parametrize("name", ["__lsn", "__deleted", OPERATION_COLUMN, PART_COLUMN, keep_column("Notes"), "CTID"])
def test_name_that_the_warehouse_keeps_for_itself_is_refused(name: str) -> None:
    assert why_not_named(name) == "has a name that is reserved in the warehouse"
    assert "is reserved" in unsupported_reason(SourceColumn(name, "int", 1))


@pytest.mark.parametrize("name", ["Notes", "part", "keep_Notes", "__row", "__$seqval", "ä" * 31])
def test_other_names_can_be_carried(name: str) -> None:
    assert why_not_named(name) == unsupported_reason(SourceColumn(name, "int", 1)) == ""


def test_name_is_no_obstacle_where_the_target_has_another_one() -> None:
    column = SourceColumn("x" * 64, "int", 1)
    assert "longer than the 63 bytes" in unsupported_reason(column)
    assert unsupported_reason(column, Naming.SNAKE_CASE) == ""
