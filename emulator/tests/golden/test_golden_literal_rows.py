"""Published transcripts with their own tables and values, statement by statement. Keys are those of
docs/reference/sqlserver_cdc.md, "Published transcripts"."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest

from cdc_database import CdcDatabase, shape


def test_g05_merge_of_the_key_numbers_its_two_rows(database: CdcDatabase) -> None:
    """G05 (R) VAND: one commit, commands 1 and 2."""
    database.run("CREATE TABLE dbo.foo (id int NOT NULL PRIMARY KEY, a varchar(10))", "INSERT dbo.foo VALUES (1, 'a')")
    database.enable("foo")
    database.run(
        "MERGE dbo.foo AS t USING (SELECT 1 AS id, 'a' AS a) AS s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET id = s.id, a = s.a;"
    )
    database.scan()
    rows = database.change_table("dbo_foo")
    assert [(r["__$operation"], r["__$update_mask"].hex(), r["__$command_id"]) for r in rows] == [
        (1, "03", 1),
        (2, "03", 2),
    ]
    assert len({r["__$start_lsn"] for r in rows}) == 1


def test_g07_whole_window_of_the_department_table(database: CdcDatabase) -> None:
    """G07 (R) CN, SQL Server 2008 and 2012."""
    others = ", ".join(f"c{i} int" for i in range(5, 14))
    database.run(f"CREATE TABLE dbo.DepartDemo (DID int NOT NULL PRIMARY KEY, DName nvarchar(20), DCode int,"
                 f" Manager nvarchar(20), {others})")  # fmt: skip
    insert = "INSERT dbo.DepartDemo (DID, DName, Manager) VALUES ({0}, N'{1}', N'{2}')"
    database.run(
        insert.format(101, "银监会", "段正淳"),
        insert.format(103, "银监会", "云中鹤"),
        insert.format(104, "统计局", "神算子"),
    )
    database.enable("DepartDemo")
    database.run(
        insert.format(105, "银监会", "云中鹤"),
        insert.format(106, "统计局", "神算子"),
        *(f"DELETE dbo.DepartDemo WHERE DID = {key}" for key in (101, 103, 104, 105, 106)),
        insert.format(107, "银监会", "云中鹤"),
        insert.format(108, "统计局", "神算子"),
        "UPDATE dbo.DepartDemo SET Manager = N'段正淳' WHERE DID = 107",
        "DELETE dbo.DepartDemo WHERE DID = 108",
    )
    database.scan()
    assert shape(database.all_changes("dbo_DepartDemo"), "DID", "DName", "Manager") == [
        (2, "1FFF", 105, "银监会", "云中鹤"),
        (2, "1FFF", 106, "统计局", "神算子"),
        (1, "1FFF", 101, "银监会", "段正淳"),
        (1, "1FFF", 103, "银监会", "云中鹤"),
        (1, "1FFF", 104, "统计局", "神算子"),
        (1, "1FFF", 105, "银监会", "云中鹤"),
        (1, "1FFF", 106, "统计局", "神算子"),
        (2, "1FFF", 107, "银监会", "云中鹤"),
        (2, "1FFF", 108, "统计局", "神算子"),
        (4, "0008", 107, "银监会", "段正淳"),
        (1, "1FFF", 108, "统计局", "神算子"),
    ]


def test_g11_insert_and_update_each_below_its_commit(database: CdcDatabase) -> None:
    """G11 (R) SCR: the printed rows, with the relations of their LSNs."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, c1 varchar(20))",
                 "INSERT dbo.t VALUES (1, 'row one'), (2, 'row two')")  # fmt: skip
    database.enable("t")
    database.run("INSERT dbo.t VALUES (3, 'row three')", "UPDATE dbo.t SET c1 = 'row 2' WHERE id = 2")
    database.scan()
    inserted, before, _ = database.change_table("dbo_t")
    assert shape([inserted, before], "id", "c1") == [(2, "03", 3, "row three"), (3, "02", 2, "row two")]
    assert inserted["__$end_lsn"] is before["__$end_lsn"] is None
    assert inserted["__$seqval"] < inserted["__$start_lsn"] < before["__$seqval"] < before["__$start_lsn"]


@pytest.mark.parametrize(
    ("columns", "mask"),
    [
        ("id int NOT NULL PRIMARY KEY, v bit", "03"),
        ("id int NOT NULL PRIMARY KEY, g uniqueidentifier, x xml, m money", "0F"),
        ("id int NOT NULL PRIMARY KEY, b binary(8), v varbinary(8), i image", "0F"),
        ("id int NOT NULL PRIMARY KEY, d decimal(9, 2), n numeric(10, 5), m money, s smallmoney", "1F"),
        ("id int NOT NULL PRIMARY KEY, c char(6), v varchar(6), t text, nc nchar(6), nv nvarchar(6), nt ntext", "7F"),
        ("id int NOT NULL PRIMARY KEY, d date, t time, dt datetime, d2 datetime2, s smalldatetime, o datetimeoffset",
         "7F"),
        ("id int NOT NULL PRIMARY KEY, a int, b bigint, c bit, d date, e char(1), f float, g real, h money", "01FF"),
    ],
)  # fmt: skip
def test_g16_mask_of_an_insert_is_as_wide_as_the_table(database: CdcDatabase, columns: str, mask: str) -> None:
    """G16 (R) EST TestDatatypes: BooleanTypes, MiscTypes, BinaryTypes, DecimalTypes, StringTypes and others."""
    database.run(f"CREATE TABLE dbo.t ({columns})")
    database.enable("t")
    database.run("INSERT dbo.t (id) VALUES (1)")
    database.scan()
    assert shape(database.change_table("dbo_t")) == [(2, mask)]


def test_g17_two_key_updates_with_a_text_column(database: CdcDatabase) -> None:
    """G17 (R) EST: 1 to 6 and 4 to 7."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, data text)",
                 "INSERT dbo.t VALUES (1, 'one'), (4, 'four')")  # fmt: skip
    database.enable("t")
    database.run("UPDATE dbo.t SET id = 6 WHERE id = 1", "UPDATE dbo.t SET id = 7 WHERE id = 4")
    database.scan()
    assert shape(database.change_table("dbo_t"), "id", "data") == [
        (1, "03", 1, None), (2, "03", 6, "one"), (1, "03", 4, None), (2, "03", 7, "four"),
    ]  # fmt: skip


def test_g28_five_rows_of_a_computed_key(database: CdcDatabase) -> None:
    """G28 (R) EST."""
    database.run(
        "CREATE TABLE dbo.t (actual_id int NOT NULL, data varchar(10), id AS actual_id PRIMARY KEY)",
        "INSERT dbo.t (actual_id, data) VALUES (1, 'a')",
    )
    database.enable("t")
    database.run(
        *(f"INSERT dbo.t (actual_id, data) VALUES ({key}, 'x')" for key in (3, 4, 5)),
        *(f"DELETE dbo.t WHERE actual_id = {key}" for key in (1, 4)),
    )
    database.scan()
    assert shape(database.change_table("dbo_t"), "actual_id", "id") == [
        (2, "07", 3, None), (2, "07", 4, None), (2, "07", 5, None), (1, "07", 1, None), (1, "07", 4, None),
    ]  # fmt: skip


_PROBE = {
    "c_bit bit": ("1", True), "c_tiny tinyint": ("255", 255), "c_small smallint": ("-32768", -32768),
    "c_int int": ("2147483647", 2147483647), "c_big bigint": ("-9223372036854775808", -(2**63)),
    "c_dec decimal(38, 10)": ("1234567890.0123456789", Decimal("1234567890.0123456789")),
    "c_num numeric(5, 2)": ("-999.99", Decimal("-999.99")), "c_money money": ("1.2345", Decimal("1.2345")),
    "c_smoney smallmoney": ("-1.5", Decimal("-1.5000")), "c_real real": ("1.5", 1.5), "c_float float": ("2.5", 2.5),
    "c_date date": ("'2026-09-28'", date(2026, 9, 28)),
    "c_time time(7)": ("'13:50:01.123456'", time(13, 50, 1, 123456)),
    "c_dt datetime": ("'2026-09-28T13:50:01.123'", datetime(2026, 9, 28, 13, 50, 1, 123000)),
    "c_dt2 datetime2(7)": ("'2026-09-28T13:50:01.123456'", datetime(2026, 9, 28, 13, 50, 1, 123456)),
    "c_sdt smalldatetime": ("'2026-09-28T13:50:00'", datetime(2026, 9, 28, 13, 50)),
    "c_dto datetimeoffset(7)": (
        "'2026-09-28T13:50:01.123456+02:00'",
        datetime(2026, 9, 28, 13, 50, 1, 123456, timezone(timedelta(hours=2))),
    ),
    "c_char char(3)": ("'x'", "x  "), "c_vchar varchar(10)": ("'abc'", "abc"), "c_vmax varchar(max)": ("'abc'", "abc"),
    "c_nchar nchar(3)": ("N'ü'", "ü  "), "c_nvchar nvarchar(10)": ("N'日本'", "日本"),
    "c_nmax nvarchar(max)": ("N'日本'", "日本"), "c_text text": ("'t'", "t"), "c_ntext ntext": ("N'ñ'", "ñ"),
    "c_bin binary(3)": ("0x01", b"\1\0\0"), "c_vbin varbinary(10)": ("0x0102", b"\1\2"),
    "c_image image": ("0x03", b"\3"),
    "c_guid uniqueidentifier": (
        "'6F9619FF-8B86-D011-B42D-00C04FC964FF'", UUID("6F9619FF-8B86-D011-B42D-00C04FC964FF"),
    ),
    "c_xml xml": ("'<a/>'", "<a/>"), "c_name sysname": ("N'name'", "name"),
}  # fmt: skip


def test_g32_thirty_types_in_one_row(database: CdcDatabase) -> None:
    """G32 (T) MCP types_probe; without hierarchyid and spatial types, and with six digits where it has seven."""
    columns = ", ".join(_PROBE)
    database.run(f"CREATE TABLE dbo.probe (id int NOT NULL PRIMARY KEY, {columns}, c_rv rowversion)")
    database.enable("probe")
    names = ", ".join(column.split()[0] for column in _PROBE)
    database.run(f"INSERT dbo.probe (id, {names}) VALUES (1, {', '.join(text for text, _ in _PROBE.values())})")
    database.scan()
    (row,) = database.change_table("dbo_probe")
    for column, (_, value) in _PROBE.items():
        assert row[column.split()[0]] == value, column
    assert len(row["c_rv"]) == 8


def test_g34_instances_replaced_as_columns_are_added(database: CdcDatabase) -> None:
    """G34 (R) EST TestAlterationAddColumn-Manual."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, data varchar(10))")
    database.enable("t", capture_instance="N'v1'")
    database.run("INSERT dbo.t VALUES (2, 'a')", "INSERT dbo.t VALUES (3, 'b')")
    database.run("ALTER TABLE dbo.t ADD extra varchar(10)")
    database.enable("t", capture_instance="N'v2'")
    assert shape(database.change_table("v1"), "id", "data") == [(2, "03", 2, "a"), (2, "03", 3, "b")]
    database.run("EXEC sys.sp_cdc_disable_table N'dbo', N't', N'v1'")
    database.run("INSERT dbo.t VALUES (4, 'c', 'ccc')", "INSERT dbo.t VALUES (5, 'd', 'ddd')")
    database.run("ALTER TABLE dbo.t ADD evenmore varchar(10)")
    database.run("INSERT dbo.t VALUES (6, 'e', 'eee', 'foo')", "INSERT dbo.t VALUES (7, 'f', 'fff', 'bar')")
    database.enable("t", capture_instance="N'v3'")
    assert shape(database.change_table("v2"), "id", "extra") == [
        (2, "07", 4, "ccc"), (2, "07", 5, "ddd"), (2, "07", 6, "eee"), (2, "07", 7, "fff"),
    ]  # fmt: skip
    database.run("INSERT dbo.t VALUES (8, 'g', 'ggg', 'baz')", "INSERT dbo.t VALUES (9, 'h', 'hhh', 'asdf')")
    database.scan()
    assert shape(database.change_table("v3"), "id", "evenmore") == [(2, "0F", 8, "baz"), (2, "0F", 9, "asdf")]


def test_g37_not_null_is_recorded_without_an_update_of_the_column(database: CdcDatabase) -> None:
    """G37 (R) MCP23."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, a int)")
    database.enable("t")
    database.run("ALTER TABLE dbo.t ALTER COLUMN a int NOT NULL")
    database.scan()
    rows = database.query("EXEC sys.sp_cdc_get_ddl_history N'dbo_t'")
    assert [row["required_column_update"] for row in rows] == [False]


def test_g43_second_instance_begins_where_the_first_one_may_end(database: CdcDatabase) -> None:
    """G43 (D) Debezium: the second start is the first one's stop; each event lies at or after its instance's start."""
    database.run("CREATE TABLE dbo.customers (id int NOT NULL PRIMARY KEY, name varchar(20))")
    database.enable("customers")
    database.run("INSERT dbo.customers VALUES (1001, 'a')", "ALTER TABLE dbo.customers ADD phone varchar(20)")
    database.enable("customers", capture_instance="N'dbo_customers_v2'")
    database.run("INSERT dbo.customers VALUES (1005, 'b', '1')", "UPDATE dbo.customers SET phone = '2' WHERE id = 1005",
                 "DELETE dbo.customers WHERE id = 1005")  # fmt: skip
    database.scan()
    first, second = database.query("SELECT start_lsn, end_lsn, object_id FROM cdc.change_tables ORDER BY start_lsn")
    assert (first["end_lsn"], second["end_lsn"]) == (None, None)
    assert first["object_id"] != second["object_id"]
    old = [row["__$start_lsn"] for row in database.change_table("dbo_customers")]
    new = database.change_table("dbo_customers_v2")
    assert first["start_lsn"] <= old[0] < second["start_lsn"] <= new[0]["__$start_lsn"]
    assert [row["__$operation"] for row in new] == [2, 3, 4, 1]
    assert all(row["__$seqval"] < row["__$start_lsn"] for row in new)
