"""A pipeline over the events that the emulator itself streams to a capture folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.capture_files import CaptureWriter
from change_log import ChangeLog
from emulator_process import running_emulator
from floodmark.core.schema import TableName
from floodmark.core.settings import OnGap, PipelineSettings, TableSettings
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.sqlserver.driver import SqlServerConnection
from sql_client import SqlClient
from stream_rig import COLUMNS, ORDERS, PIPELINE, TABLE, StreamRig

OTHERS = TableName("dbo", "Others")
GROUP = "g"
SET_UP = (
    TABLE,
    "CREATE TABLE dbo.Others (Id int PRIMARY KEY)",
    "ALTER DATABASE SCOPED CONFIGURATION SET PREVIEW_FEATURES = ON",
    "CREATE DATABASE SCOPED CREDENTIAL c WITH IDENTITY = 'Managed Identity'",
    "EXEC sys.sp_enable_event_stream",
    f"EXEC sys.sp_create_event_stream_group N'{GROUP}', N'AzureEventHubsApacheKafka',"
    " N'floods.servicebus.windows.net/hub', N'c', @partition_key_scheme = N'Table'",
    f"EXEC sys.sp_add_object_to_event_stream_group N'{GROUP}', N'dbo.Orders'",
    f"EXEC sys.sp_add_object_to_event_stream_group N'{GROUP}', N'dbo.Others'",
)


@contextmanager
def emulated_stream(folder: Path, warehouse: WarehouseConnection) -> Iterator[StreamRig]:
    """Start an emulator with the tables Orders and Others, both streamed. Changes are made with the rig's client."""
    captures = folder / "captures"
    hub = captures / "floods" / "hub"
    hub.mkdir(parents=True)
    with (
        running_emulator(folder / "source", "--event-hubs-folder", str(captures), databases=("Sales",)) as emulator,
        emulator.connect_pymssql("Sales", autocommit=True) as connection,
    ):
        client = SqlClient(connection)
        for batch in SET_UP:
            client.run(batch)
        at = SqlServerConnection(
            emulator.host, emulator.port, "Sales", emulator.user, emulator.password, ca_file=str(emulator.ca_file)
        )
        tables = tuple(
            TableSettings(name, TableName("shop", name.name.lower()), on_gap=OnGap.REPAIR) for name in (ORDERS, OTHERS)
        )
        settings = PipelineSettings(PIPELINE, tables)
        yield StreamRig(client, at, warehouse, CaptureWriter(hub), ChangeLog("Sales", COLUMNS, "Id"), settings)
