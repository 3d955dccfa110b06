"""The table that is measured: 8 columns of the usual kinds, 74 bytes a row or so, filled by the server itself."""

from __future__ import annotations

import pymssql

TABLE = "dbo.Wide"
CREATE = """
CREATE TABLE dbo.Wide (
    ID int NOT NULL CONSTRAINT PK_Wide PRIMARY KEY,
    Quantity bigint NOT NULL,
    Name nvarchar(40) NOT NULL,
    Amount decimal(18,2) NOT NULL,
    ChangedAt datetime2(7) NOT NULL,
    IsActive bit NOT NULL,
    ExternalID uniqueidentifier NULL,
    Payload varbinary(32) NULL)
"""
COLUMNS = "ID, Quantity, Name, Amount, ChangedAt, IsActive, ExternalID, Payload"
_SEED_ROWS = 1000


def create(connection: pymssql.Connection, *, tracked: bool) -> None:
    cursor = connection.cursor()
    cursor.execute(CREATE)
    if tracked:
        cursor.execute("EXEC sys.sp_cdc_enable_table N'dbo', N'Wide', @role_name = NULL, @supports_net_changes = 0")


def fill(connection: pymssql.Connection, rows: int) -> None:
    """A thousand literal rows, then copies of them, one transaction of at most 100,000 rows at a time."""
    cursor = connection.cursor()
    values = ",\n".join(
        f"({i}, {i * 7_000_000_001}, N'näme {i:06d}', {i}.25, '2026-03-01T12:00:00.{i:07d}', {i % 2}, "
        f"'00000000-0000-0000-0000-{i:012d}', 0x{i:016X})"
        for i in range(_SEED_ROWS)
    )
    cursor.execute(f"INSERT INTO {TABLE} ({COLUMNS}) VALUES {values}")
    have = _SEED_ROWS
    while have < rows:
        take = min(have, rows - have, 100_000)
        cursor.execute(
            f"INSERT INTO {TABLE} ({COLUMNS}) SELECT ID + {have}, Quantity, Name, Amount, ChangedAt, IsActive, "
            f"ExternalID, Payload FROM {TABLE} WHERE ID < {take}"
        )
        have += take


def change_all(connection: pymssql.Connection, rows: int) -> None:
    """Update every row once, 100,000 a transaction."""
    cursor = connection.cursor()
    for begin in range(0, rows, 100_000):
        cursor.execute(
            f"UPDATE {TABLE} SET Quantity = Quantity + 1, Amount = Amount + 1 "
            f"WHERE ID >= {begin} AND ID < {begin + 100_000}"
        )
