"""Published transcripts that ask by time, or that a clock runs through. Keys are those of
docs/reference/sqlserver_cdc.md, "Published transcripts"."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from cdc_database import CdcDatabase, shape


def test_g08_window_of_a_day_given_by_its_times(database: CdcDatabase) -> None:
    """G08 (R) BOOK: both ends come from sys.fn_cdc_map_time_to_lsn."""
    database.run(
        "CREATE TABLE dbo.Equipment (EquipmentID int NOT NULL PRIMARY KEY IDENTITY, EquipmentDESC varchar(100))"
    )
    database.enable("Equipment")
    (began,) = database.query("SELECT DATEADD(minute, -1, GETDATE()) AS at")
    database.run("INSERT dbo.Equipment VALUES ('Projector A')", "INSERT dbo.Equipment VALUES ('HR File Cabinet')")
    database.scan()
    ended = began["at"] + timedelta(minutes=30)
    rows = database.query(
        "DECLARE @f binary(10) = sys.fn_cdc_map_time_to_lsn(N'smallest greater than or equal', %s),"
        " @t binary(10) = sys.fn_cdc_map_time_to_lsn(N'largest less than or equal', %s);"
        " SELECT * FROM cdc.fn_cdc_get_all_changes_dbo_Equipment(@f, @t, N'all') ORDER BY [__$start_lsn]",
        (began["at"], ended),
    )
    assert shape(rows, "EquipmentID", "EquipmentDESC") == [
        (2, "03", 1, "Projector A"),
        (2, "03", 2, "HR File Cabinet"),
    ]


def test_g41_second_instance_is_read_from_its_start(database: CdcDatabase) -> None:
    """G41 (R) FAB 2.2: captured columns of both, counts of both, the row that only the new one shows whole."""
    database.run(
        "CREATE TABLE dbo.orders (id int NOT NULL PRIMARY KEY, customer nvarchar(50), amount decimal(18,4),"
        " notes nvarchar(max), updated datetime2(3))"
    )
    database.enable("orders")
    database.run(*(f"INSERT dbo.orders (id) VALUES ({i})" for i in range(10, 15)))
    database.scan()
    database.run("ALTER TABLE dbo.orders ADD region nvarchar(10)")
    database.enable("orders", capture_instance="N'dbo_orders_v2'")
    counts = [len(database.change_table(name)) for name in ("dbo_orders", "dbo_orders_v2")]
    database.run("INSERT dbo.orders (id, amount, region) VALUES (3, 5, N'eu')")
    database.scan()
    assert [counts, [len(database.change_table(name)) for name in ("dbo_orders", "dbo_orders_v2")]] == [[5, 0], [6, 1]]
    captured = database.query(
        "SELECT t.capture_instance, c.column_name FROM cdc.captured_columns c JOIN cdc.change_tables t"
        " ON t.object_id = c.object_id ORDER BY t.create_date, c.column_ordinal"
    )
    old = ["id", "customer", "amount", "notes", "updated"]
    assert [(row["capture_instance"], row["column_name"]) for row in captured] == [
        *(("dbo_orders", name) for name in old),
        *(("dbo_orders_v2", name) for name in [*old, "region"]),
    ]
    (row,) = database.query(
        "DECLARE @f binary(10) = (SELECT start_lsn FROM cdc.change_tables WHERE capture_instance = N'dbo_orders_v2'),"
        " @t binary(10) = sys.fn_cdc_get_max_lsn();"
        " SELECT * FROM cdc.fn_cdc_get_all_changes_dbo_orders_v2(@f, @t, N'all')"
    )
    assert (row["__$operation"], row["id"], row["amount"], row["region"]) == (2, 3, Decimal("5.0000"), "eu")


def test_g47_changes_of_a_tracked_table_move_the_newest_lsn_each_time(database: CdcDatabase) -> None:
    """G47 (R) MCP10, its last scenario."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v int)", "INSERT dbo.t VALUES (1, 0)")
    database.enable("t")
    newest = [database.scalar("sys.fn_cdc_get_max_lsn()")]
    for _ in range(3):
        database.run("UPDATE dbo.t SET v = v + 1")
        database.scan()
        newest.append(database.scalar("sys.fn_cdc_get_max_lsn()"))
    assert newest == sorted(set(newest))
