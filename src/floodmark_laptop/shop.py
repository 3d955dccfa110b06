"""The sample database ``Shop``: its tables, created and tracked through an ordinary driver.

``shop.sql`` has the DDL, and first rows for another server; ``workload`` writes the rows here. Nothing is special to
the emulator: the same statements run on SQL Server 2016 and later.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pymssql

DATABASE = "Shop"

_BATCHES = re.split(r"^GO$", resources.files(__package__).joinpath("shop.sql").read_text("utf-8"), flags=re.MULTILINE)
TABLES = tuple(re.findall(r"CREATE TABLE dbo\.(\w+)", "".join(_BATCHES)))
"""The names of the tables in schema dbo."""


def create_database(connection: pymssql.Connection) -> None:
    """Create ``Shop`` if it does not exist. The connection is to ``master``, in autocommit."""
    _run(connection, "CREATE DATABASE")


def create_tables(connection: pymssql.Connection) -> None:
    """Create the tables in ``Shop``. The connection is in autocommit."""
    _run(connection, "CREATE TABLE")


def enable_cdc(connection: pymssql.Connection) -> None:
    """Enable change data capture for the database and each table, without the net-changes index (field notes 30)."""
    _run(connection, "sp_cdc_enable_db")
    _run(connection, "sp_cdc_enable_table")


def _run(connection: pymssql.Connection, words: str) -> None:
    """Run the batch of the script that has the words."""
    (batch,) = (batch for batch in _BATCHES if words in batch)
    connection.cursor().execute(batch)


def enable_event_stream(connection: pymssql.Connection, location: str, message_kb: int = 256) -> None:
    """Stream the changes of each table to an event hub. It needs SQL Server 2025 and the recovery model FULL.

    location: ``<namespace>.servicebus.windows.net[:port]/<event hub>``. A table's events may come to any partition.
    """
    cursor = connection.cursor()
    cursor.execute("ALTER DATABASE SCOPED CONFIGURATION SET PREVIEW_FEATURES = ON")
    cursor.execute("CREATE DATABASE SCOPED CREDENTIAL hub WITH IDENTITY = 'Managed Identity'")
    cursor.execute("EXEC sys.sp_enable_change_event_stream")
    cursor.execute(
        "EXEC sys.sp_create_change_event_stream_group @stream_group_name = N'floodmark',"
        " @destination_type = N'AzureEventHubsApacheKafka', @destination_location = %s,"
        " @destination_credential = N'hub', @partition_key_scheme = N'None', @max_message_size_kb = %d",
        (location, message_kb),
    )
    for name in TABLES:
        cursor.execute(
            "EXEC sys.sp_add_object_to_change_event_stream_group @stream_group_name = N'floodmark', @object_name = %s",
            (f"dbo.{name}",),
        )


def enable_change_tracking(connection: pymssql.Connection) -> None:
    """Enable change tracking for the database and each table, and allow the reading of all tables at one moment."""
    cursor = connection.cursor()
    cursor.execute(f"ALTER DATABASE [{DATABASE}] SET CHANGE_TRACKING = ON (CHANGE_RETENTION = 7 DAYS)")
    cursor.execute(f"ALTER DATABASE [{DATABASE}] SET ALLOW_SNAPSHOT_ISOLATION ON")
    for name in TABLES:
        cursor.execute(f"ALTER TABLE dbo.{name} ENABLE CHANGE_TRACKING WITH (TRACK_COLUMNS_UPDATED = ON)")
