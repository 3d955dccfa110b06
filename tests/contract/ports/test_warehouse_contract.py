"""The contract of a warehouse, on every warehouse there is (``conftest.WAREHOUSES``)."""

from __future__ import annotations

from warehouse_contract import WarehouseContract


class TestWarehouse(WarehouseContract):
    """With the fixture ``rig`` of every adapter."""
