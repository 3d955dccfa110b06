"""Rows with LOBs, read from a real server in batches of a bounded size."""

from __future__ import annotations

from switch_rig import ORDERS, SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.plan import LoadChunk
from floodmark.core.schema import TableName
from floodmark.core.settings import PipelineSettings, TableSettings
from floodmark.postgres.session import WarehouseConnection
from row_verification import reading

MEGABYTE = 1_000_000


def test_batches_of_large_values_are_bounded_in_bytes(emulator: Emulator, database: WarehouseConnection) -> None:
    with cdc_database(emulator) as source:
        source.run("CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Doc varbinary(max))")
        source.run(
            *(
                f"INSERT INTO dbo.Orders VALUES ({number}, CAST(REPLICATE(CAST('x' AS varchar(max)), {MEGABYTE}) AS"
                " varbinary(max)))"
                for number in range(12)
            )
        )
        source.enable("Orders")
        rig = SwitchRig(emulator, source, database)
        orders = TableSettings(ORDERS, TableName("shop", "orders"), lob_batch=4 * MEGABYTE)
        rig.pipelines = [PipelineSettings("shop", (orders,))]
        opened = rig.open()
        assert opened.window_id is not None
        plan = rig.ledger.read_window(opened.window_id).plan
        reader = reading(rig.at)(plan.tables[0], plan.end)
        sizes = [batch.nbytes for batch in reader.read_chunk(LoadChunk(0, None, None))]
        assert sum(sizes) > 12 * MEGABYTE
        assert max(sizes) < 6 * MEGABYTE
        rig.finish(opened)
        assert rig.differing() == []
