"""Published behaviour of types and DDL under CDC. Keys are those of docs/reference/sqlserver_cdc.md, "Published
transcripts"."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal

from cdc_database import CdcDatabase, shape


def test_g26_deleted_text_is_null(database: CdcDatabase) -> None:
    """G26 (R) EST."""
    database.run(
        "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v_text text NOT NULL, v_varchar varchar(32), v_int int)",
        "INSERT dbo.t VALUES (1, 'one', 'one', 101)",
    )
    database.enable("t")
    database.run("INSERT dbo.t VALUES (2, 'two', 'two', 102)", "DELETE dbo.t WHERE id = 1", "DELETE dbo.t WHERE id = 2")
    database.scan()
    assert shape(database.change_table("dbo_t"), "id", "v_text", "v_varchar", "v_int") == [
        (2, "0F", 2, "two", "two", 102),
        (1, "0F", 1, None, "one", 101),
        (1, "0F", 2, None, "two", 102),
    ]


def test_max_types_are_null_in_the_before_image_unless_changed(database: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "Types" (measured, FAB); long enough to be stored out of line."""
    database.run(
        "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, n int, big nvarchar(max), bin varbinary(max))",
        "INSERT dbo.t VALUES (1, 1, REPLICATE(CAST(N'x' AS nvarchar(max)), 50000), 0x0102)",
    )
    database.enable("t")
    database.run("UPDATE dbo.t SET n = 2", "UPDATE dbo.t SET bin = 0x03", "DELETE dbo.t")
    database.scan()
    rows = [(r["__$operation"], r["n"], r["big"] and len(r["big"]), r["bin"]) for r in database.change_table("dbo_t")]
    assert rows == [
        (3, 1, None, None),
        (4, 2, 50000, b"\1\2"),
        (3, 2, None, b"\1\2"),
        (4, 2, 50000, b"\3"),
        (1, 2, 50000, b"\3"),
    ]


def test_g28_computed_primary_key_is_null_and_its_bit_set_on_insert_and_delete(database: CdcDatabase) -> None:
    """G28 (R) EST; docs/reference/sqlserver_cdc.md, "Types": not set on updates."""
    database.run(
        "CREATE TABLE dbo.t (actual_id int NOT NULL, data varchar(10), id AS (actual_id + 0) PERSISTED NOT NULL,"
        " CONSTRAINT pk_t PRIMARY KEY (id))"
    )
    database.enable("t")
    database.run("INSERT dbo.t (actual_id, data) VALUES (3, 'c')", "UPDATE dbo.t SET data = 'd'", "DELETE dbo.t")
    database.scan()
    assert shape(database.change_table("dbo_t"), "actual_id", "id") == [
        (2, "07", 3, None),
        (3, "02", 3, None),
        (4, "02", 3, None),
        (1, "07", 3, None),
    ]


def test_g29_update_sets_the_bit_of_rowversion_too(database: CdcDatabase) -> None:
    """G29 (R) EST."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, data varchar(10), rv rowversion)")
    database.enable("t")
    database.run("INSERT dbo.t (id, data) VALUES (1, 'a')", "UPDATE dbo.t SET data = 'b'")
    database.scan()
    rows = database.change_table("dbo_t")
    assert shape(rows) == [(2, "07"), (3, "06"), (4, "06")]
    assert all(len(row["rv"]) == 8 for row in rows)
    assert rows[1]["rv"] < rows[2]["rv"]


def test_g31_literal_values_arrive_as_on_a_real_server(database: CdcDatabase) -> None:
    """G31 (R) EST; no hierarchyid."""
    database.run(
        "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, c char(6), m money, s smallmoney, n numeric(10,5),"
        " b binary(8), x xml, o datetimeoffset(7), i image, nt ntext)"
    )
    database.enable("t")
    database.run(
        "INSERT dbo.t VALUES (1, 'xyz', 922337203685477.5807, 214748.3647, 99999.99999, 0xABCDEF0123456789,"
        " '<data>replication</data>', '2000-06-15T06:30:00-07:00', 0x0102, N'text')"
    )
    database.scan()
    (row,) = database.change_table("dbo_t")
    offset = timezone(timedelta(hours=-7))
    assert (row["c"], row["m"], row["s"], row["n"]) == (
        "xyz   ",
        Decimal("922337203685477.5807"),
        Decimal("214748.3647"),
        Decimal("99999.99999"),
    )
    assert row["b"] == bytes.fromhex("ABCDEF0123456789")
    assert row["x"] == "<data>replication</data>"
    assert row["o"] == datetime(2000, 6, 15, 6, 30, tzinfo=offset)
    assert (row["i"], row["nt"]) == (b"\1\2", "text")


def test_g34_each_instance_shows_the_columns_it_was_made_with(database: CdcDatabase) -> None:
    """G34 (R) EST."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, data varchar(10))")
    database.enable("t", capture_instance="N'v1'")
    database.run("INSERT dbo.t VALUES (2, 'a'), (3, 'b')", "ALTER TABLE dbo.t ADD extra varchar(10)")
    database.enable("t", capture_instance="N'v2'")
    database.run("INSERT dbo.t VALUES (4, 'c', 'ccc'), (5, 'd', 'ddd')")
    database.scan()
    assert shape(database.change_table("v1"), "id") == [(2, "03", 2), (2, "03", 3), (2, "03", 4), (2, "03", 5)]
    assert shape(database.change_table("v2"), "id", "extra") == [(2, "07", 4, "ccc"), (2, "07", 5, "ddd")]


def test_update_of_an_uncaptured_column_writes_nothing(database: CdcDatabase) -> None:
    """G37 (R) MCP23."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, data varchar(10))", "INSERT dbo.t VALUES (1, 'a')")
    database.enable("t")
    database.run(
        "ALTER TABLE dbo.t ADD extra int", "UPDATE dbo.t SET extra = 1", "UPDATE dbo.t SET data = 'b', extra = 2"
    )
    database.scan()
    assert shape(database.change_table("dbo_t"), "data") == [(3, "02", "a"), (4, "02", "b")]


def test_g35_ddl_history_in_order_with_the_only_required_update_at_a_new_type(database: CdcDatabase) -> None:
    """G35 (R) FAB; G37 for whole minutes."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, a nvarchar(50), b int)")
    database.enable("t")
    statements = (
        "ALTER TABLE dbo.t ADD c INT NULL",
        "ALTER TABLE dbo.t ALTER COLUMN a NVARCHAR(200)",
        "ALTER TABLE dbo.t DROP COLUMN b",
    )
    database.run(*statements)
    database.scan()
    rows = database.query("EXEC sys.sp_cdc_get_ddl_history N'dbo_t'")
    assert [(row["ddl_command"], row["required_column_update"]) for row in rows] == [
        (statements[0], False),
        (statements[1], True),
        (statements[2], False),
    ]
    assert [row["ddl_lsn"] for row in rows] == sorted(row["ddl_lsn"] for row in rows)
    assert all(row["ddl_time"].second == 0 for row in rows)
    assert rows[-1]["ddl_lsn"] <= database.scalar("sys.fn_cdc_get_max_lsn()")


def test_a_statement_about_several_columns_is_one_row_of_the_ddl_history(database: CdcDatabase) -> None:
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    database.enable("t")
    statements = ("ALTER TABLE dbo.t ADD a int, b nvarchar(20)", "ALTER TABLE dbo.t DROP COLUMN a, b")
    database.run(*statements)
    database.scan()
    rows = database.query("EXEC sys.sp_cdc_get_ddl_history N'dbo_t'")
    assert [row["ddl_command"] for row in rows] == list(statements)


def test_g37_dropped_column_is_null_from_then_on_even_if_added_again(database: CdcDatabase) -> None:
    """G37 (R) MCP23."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, a int, b int)", "INSERT dbo.t VALUES (1, 1, 1)")
    database.enable("t")
    database.run(
        "UPDATE dbo.t SET a = 2",
        "ALTER TABLE dbo.t DROP COLUMN b",
        "UPDATE dbo.t SET a = 3",
        "ALTER TABLE dbo.t ADD b int",
        "UPDATE dbo.t SET a = 4, b = 9",
    )
    database.scan()
    assert shape(database.change_table("dbo_t"), "a", "b") == [
        (3, "02", 1, 1),
        (4, "02", 2, 1),
        (3, "02", 2, None),
        (4, "02", 3, None),
        (3, "02", 3, None),
        (4, "02", 4, None),
    ]
    captured = database.query("EXEC sys.sp_cdc_get_captured_columns N'dbo_t'")
    assert [row["column_name"] for row in captured] == ["id", "a", "b"]


def test_altered_column_is_converted_in_every_instance(database: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "DDL": asynchronously, stored rows too; also when retyped twice before the
    scan."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, a int)")
    database.enable("t")
    database.enable("t", capture_instance="N'second'")
    database.run(
        "INSERT dbo.t VALUES (1, 1)",
        "ALTER TABLE dbo.t ALTER COLUMN a bigint",
        "INSERT dbo.t VALUES (2, 5000000000)",
        "ALTER TABLE dbo.t ALTER COLUMN a nvarchar(40)",
        "INSERT dbo.t VALUES (3, N'three')",
    )
    database.scan()
    for instance in ("dbo_t", "second"):
        assert [row["a"] for row in database.change_table(instance)] == ["1", "5000000000", "three"]
        captured = database.query(f"EXEC sys.sp_cdc_get_captured_columns N'{instance}'")
        assert [(row["data_type"], row["character_maximum_length"]) for row in captured][1] == ("nvarchar", 40)
        assert [row["a"] for row in database.all_changes(instance)] == ["1", "5000000000", "three"]


def test_g38_captured_column_cannot_be_renamed_and_the_table_not_truncated(database: CdcDatabase) -> None:
    """G38 (R) FAB, CW; docs/reference/sqlserver_cdc.md, "DDL"."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL, a int, CONSTRAINT pk_t PRIMARY KEY (id))")
    database.enable("t", captured_column_list="N'id'")
    assert database.error_of("EXEC sp_rename N'dbo.t.id', N'x', N'COLUMN'") == 4928
    database.run("EXEC sp_rename N'dbo.t.a', N'x', N'COLUMN'")
    assert database.error_of("TRUNCATE TABLE dbo.t") == 4711
    assert database.error_of("ALTER TABLE dbo.t DROP CONSTRAINT pk_t") == 22979


def test_renamed_table_goes_on_under_its_instance_name(database: CdcDatabase) -> None:
    """G37 (R) MCP23."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    database.enable("t")
    database.run("EXEC sp_rename N'dbo.t', N'renamed'", "INSERT dbo.renamed VALUES (1)")
    database.scan()
    assert len(database.change_table("dbo_t")) == 1
    shown = database.query("EXEC sys.sp_cdc_help_change_data_capture")
    assert [(row["source_table"], row["capture_instance"]) for row in shown] == [("renamed", "dbo_t")]
    assert database.query("EXEC sys.sp_cdc_get_ddl_history N'dbo_t'") == []


def test_g40_dropped_and_recreated_table_is_captured_only_when_enabled_again(database: CdcDatabase) -> None:
    """G40 (R) EST."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, data varchar(10))")
    database.enable("t")
    database.run("INSERT dbo.t VALUES (3, 'a')")
    database.scan()
    assert shape(database.change_table("dbo_t"), "id") == [(2, "03", 3)]
    database.run(
        "DROP TABLE dbo.t",
        "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, data varchar(10))",
        "INSERT dbo.t VALUES (8, 'never')",
    )
    assert database.error_of("SELECT * FROM cdc.dbo_t_CT") == 208
    assert database.error_of("SELECT * FROM cdc.fn_cdc_get_all_changes_dbo_t(0x01, 0x02, N'all')") == 208
    database.enable("t")
    database.run("INSERT dbo.t VALUES (9, 'b')")
    database.scan()
    assert shape(database.change_table("dbo_t"), "id") == [(2, "03", 9)]
