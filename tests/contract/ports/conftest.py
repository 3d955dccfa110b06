"""The adapters that the contract suites run on. A new adapter is one entry of a list here."""

from __future__ import annotations

import pytest
from warehouse_rig import WarehouseRig, rows_of

from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from memory_warehouse import CataloguedWarehouse, MemoryWarehouse

WAREHOUSES = ["postgres", "memory", "catalogued"]
LEDGERS = ["postgres"]

pytest.register_assert_rewrite(
    "warehouse_contract", "sink_contract", "ledger_contract", "channel_contract", "source_contract"
)


@pytest.fixture(params=WAREHOUSES)
def rig(request: pytest.FixtureRequest, database: WarehouseConnection, ledger: PostgresLedger) -> WarehouseRig:
    """A warehouse of each kind, with the ledger that its windows are in."""
    if request.param == "memory":
        memory = MemoryWarehouse()
        return WarehouseRig(ledger, memory, memory.read)
    if request.param == "catalogued":
        catalogued = CataloguedWarehouse(database)
        return WarehouseRig(ledger, catalogued, catalogued.read)
    return WarehouseRig(ledger, PostgresWarehouse(database), rows_of(database))


@pytest.fixture(params=LEDGERS)
def any_ledger(ledger: PostgresLedger) -> PostgresLedger:
    """A ledger of each kind, with its tables made."""
    return ledger
