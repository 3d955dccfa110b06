"""Which databases count as the one that a pipeline follows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from floodmark.core.snapshot import DatabaseIdentity, explain_other_database

SHOP = DatabaseIdentity("SQL1", "Shop", "guid-1")
REPLICATED = replace(SHOP, group_id="group-1")


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (SHOP, SHOP),
        (SHOP, replace(SHOP, server="sql1", database="SHOP")),
        (SHOP, replace(SHOP, guid=None)),
        (SHOP, REPLICATED),
        (REPLICATED, SHOP),
        (REPLICATED, replace(REPLICATED, server="SQL2")),
    ],
)
def test_same_database_is_followed(known: DatabaseIdentity, found: DatabaseIdentity) -> None:
    assert explain_other_database(known, found) is None


@pytest.mark.parametrize(
    ("known", "found", "reason"),
    [
        (SHOP, replace(SHOP, guid="guid-2"), "another database"),
        (REPLICATED, replace(REPLICATED, guid="guid-2"), "another database"),
        (SHOP, replace(SHOP, database="ShopTest"), "renamed, or a copy"),
        (SHOP, replace(SHOP, server="SQL2"), "moved to another server, or a copy"),
        (REPLICATED, replace(SHOP, server="SQL2"), "moved to another server, or a copy"),
        (REPLICATED, replace(REPLICATED, server="SQL2", group_id="group-2"), "moved to another server, or a copy"),
    ],
)
def test_any_other_database_is_not(known: DatabaseIdentity, found: DatabaseIdentity, reason: str) -> None:
    cause = explain_other_database(known, found)
    assert cause is not None
    assert reason in cause
    assert str(known) in cause
    assert str(found) in cause
