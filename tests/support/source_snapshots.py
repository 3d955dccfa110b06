"""Capture instances, snapshots and states for the tests of verdicts and planning. Positions are small numbers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from floodmark.core.position import NoPosition
from floodmark.core.schema import SourceColumn, SourceTable, TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.core.snapshot import Feed, FeedIdentity, SourceSnapshot, TableSnapshot, TableState
from lsns import lsn

ORDERS, ITEMS = TableName("dbo", "Orders"), TableName("dbo", "Items")
NOON = datetime(2026, 5, 1, 12)


def instance(name: TableName = ORDERS, **other: Any) -> Feed:
    columns = (SourceColumn("Id", "int", 1), SourceColumn("Amount", "decimal", 2, precision=18, scale=2))
    made = Feed(
        FeedIdentity(f"dbo_{name.name}", 42, NOON),
        SourceTable(name, columns, ("Id",)),
        lsn(5),
        supports_net_changes=False,
        has_command_id=True,
    )
    return replace(made, **other)


def table_seen(table: TableName = ORDERS, **other: Any) -> TableSnapshot:
    return replace(TableSnapshot(table, True, instance(table), lsn(5)), **other)


def snapshot(*tables: TableSnapshot, newest: int | NoPosition = 100, **other: Any) -> SourceSnapshot:
    position = newest if isinstance(newest, NoPosition) else lsn(newest)
    made = SourceSnapshot("Shop", True, position, NOON, NOON, 1.0, True, tables)
    return replace(made, **other)


def state(watermark: int | None = 50, table: TableName = ORDERS, **other: Any) -> TableState:
    made = TableState(table, lsn(watermark) if watermark else None, instance(table).identity, consistent=True)
    return replace(made, **other)


def settings(*tables: TableName, **other: Any) -> PipelineSettings:
    return PipelineSettings(
        "shop", tuple(TableSettings(table, TableName("shop", table.name.lower()), **other) for table in tables)
    )
