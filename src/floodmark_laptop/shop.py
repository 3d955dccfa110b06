"""The sample database ``Shop``: its tables, created and tracked through an ordinary driver.

This module has the DDL; ``workload`` writes the rows. Nothing here is special to the emulator: the same statements run
on SQL Server 2016 and later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pymssql

DATABASE = "Shop"

TABLES: dict[str, str] = {
    "Customers": """
        CustomerID int IDENTITY(1,1) NOT NULL CONSTRAINT PK_Customers PRIMARY KEY,
        Name nvarchar(100) NOT NULL,
        Email nvarchar(200) NULL,
        BirthDate date NULL,
        IsActive bit NOT NULL,
        Notes nvarchar(max) NULL,
        CreatedAt datetime2(7) NOT NULL,
        ExternalID uniqueidentifier NOT NULL,
        Version rowversion""",
    "Products": """
        ProductCode nvarchar(20) NOT NULL CONSTRAINT PK_Products PRIMARY KEY,
        Name nvarchar(100) NOT NULL,
        Price money NOT NULL,
        Weight decimal(9,3) NULL,
        Picture varbinary(max) NULL,
        Discontinued bit NOT NULL,
        ModifiedAt datetime2(7) NOT NULL""",
    "Orders": """
        OrderID bigint IDENTITY(1000000000000,1) NOT NULL CONSTRAINT PK_Orders PRIMARY KEY,
        CustomerID int NOT NULL,
        OrderDate date NOT NULL,
        Amount decimal(18,2) NOT NULL,
        Status nvarchar(20) NOT NULL,
        Remark nvarchar(max) NULL,
        PlacedAt datetime2(7) NOT NULL,
        Version rowversion""",
    "OrderLines": """
        OrderID bigint NOT NULL,
        LineNumber int NOT NULL,
        ProductCode nvarchar(20) NOT NULL,
        Quantity int NOT NULL,
        UnitPrice money NOT NULL,
        Discount decimal(5,4) NULL,
        CONSTRAINT PK_OrderLines PRIMARY KEY (OrderID, LineNumber)""",
    "Payments": """
        PaymentID uniqueidentifier NOT NULL CONSTRAINT PK_Payments PRIMARY KEY,
        OrderID bigint NOT NULL,
        Amount money NOT NULL,
        Currency nchar(3) NOT NULL,
        PaidAt datetime2(7) NOT NULL,
        Receipt varbinary(max) NULL,
        Note nvarchar(200) NULL""",
}
"""The text between the parentheses of CREATE TABLE, by table name in schema dbo."""


def create_database(connection: pymssql.Connection) -> None:
    """Create ``Shop`` if it does not exist. The connection is to ``master``, in autocommit."""
    cursor = connection.cursor()
    cursor.execute("SELECT COUNT(*) FROM sys.databases WHERE name = %s", (DATABASE,))
    (found,) = cursor.fetchone() or (0,)
    if not found:
        cursor.execute(f"CREATE DATABASE [{DATABASE}]")


def create_tables(connection: pymssql.Connection) -> None:
    """Create the tables in ``Shop``. The connection is in autocommit."""
    cursor = connection.cursor()
    for name, definition in TABLES.items():
        cursor.execute(f"CREATE TABLE dbo.{name} ({definition})")


def enable_cdc(connection: pymssql.Connection) -> None:
    """Enable change data capture for the database and each table, without the net-changes index (field notes 30)."""
    cursor = connection.cursor()
    cursor.execute("EXEC sys.sp_cdc_enable_db")
    for name in TABLES:
        cursor.execute(
            "EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = %s, @role_name = NULL, "
            "@supports_net_changes = 0",
            (name,),
        )


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
