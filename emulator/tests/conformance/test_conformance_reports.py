"""See docs/reference/sqlserver_cdc.md, "Reports": what describes instances, column by column, and to whom."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance_server import Server, Source, new_database

_HELP = (
    ("source_schema", "nvarchar(128)"),
    ("source_table", "nvarchar(128)"),
    ("capture_instance", "nvarchar(128)"),
    ("object_id", "int"),
    ("source_object_id", "int"),
    ("start_lsn", "binary(10)"),
    ("end_lsn", "binary(10)"),
    ("supports_net_changes", "bit"),
    ("has_drop_pending", "bit"),
    ("role_name", "nvarchar(128)"),
    ("index_name", "nvarchar(128)"),
    ("filegroup_name", "nvarchar(128)"),
    ("create_date", "datetime"),
    ("index_column_list", "nvarchar(max)"),
    ("captured_column_list", "nvarchar(max)"),
)
_CAPTURED = (
    ("source_schema", "nvarchar(128)"),
    ("source_table", "nvarchar(128)"),
    ("capture_instance", "nvarchar(128)"),
    ("column_name", "nvarchar(128)"),
    ("column_id", "int"),
    ("column_ordinal", "int"),
    ("data_type", "nvarchar(128)"),
    ("character_maximum_length", "int"),
    ("numeric_precision", "tinyint"),
    ("numeric_precision_radix", "smallint"),
    ("numeric_scale", "int"),
    ("datetime_precision", "smallint"),
)
_HISTORY = (
    ("source_schema", "nvarchar(128)"),
    ("source_table", "nvarchar(128)"),
    ("capture_instance", "nvarchar(128)"),
    ("required_column_update", "bit"),
    ("ddl_command", "nvarchar(max)"),
    ("ddl_lsn", "binary(10)"),
    ("ddl_time", "datetime"),
)


@pytest.fixture(scope="module")
def tables(server: Server) -> Iterator[Source]:
    with new_database(server) as made:
        made.admin.run(
            "CREATE TABLE dbo.keyed (id int NOT NULL, [a b] varchar(20), CONSTRAINT pk_keyed PRIMARY KEY (id))",
            "CREATE TABLE dbo.loose (v nvarchar(max), d decimal(9, 2), t datetime2(3), f float, b varbinary(8))",
        )
        made.enable("keyed")
        made.enable("loose")
        made.admin.run("ALTER TABLE dbo.keyed ADD c int NULL")
        made.scan()
        yield made


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("sys.sp_cdc_help_change_data_capture", _HELP),
        ("sys.sp_cdc_get_captured_columns N'dbo_keyed'", _CAPTURED),
        ("sys.sp_cdc_get_ddl_history N'dbo_keyed'", _HISTORY),
    ],
)
def test_report_has_its_columns_in_order_with_their_types(
    tables: Source, call: str, expected: tuple[tuple[str, str], ...]
) -> None:
    found = tables.admin.result(f"EXEC {call}")
    assert tuple(zip(found.columns, found.types, strict=True)) == expected
    assert found.rows


def test_help_lists_instances_with_quoted_column_lists(tables: Source) -> None:
    rows = tables.admin.query("EXEC sys.sp_cdc_help_change_data_capture N'dbo', N'keyed'")
    assert len(rows) == 1
    row = rows[0]
    assert (row["source_schema"], row["source_table"], row["capture_instance"]) == ("dbo", "keyed", "dbo_keyed")
    assert (row["index_name"], row["index_column_list"], row["captured_column_list"]) == (
        "pk_keyed",
        "[id]",
        "[id], [a b]",
    )
    assert (row["supports_net_changes"], row["end_lsn"], row["role_name"]) == (True, None, None)
    assert row["start_lsn"] == tables.admin.scalar("sys.fn_cdc_get_min_lsn(N'dbo_keyed')")


def test_help_without_arguments_repeats_the_key_of_the_row_before_where_there_is_no_index(tables: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "Reports", a quirk of the real procedure (FAB 15.14)."""
    shown = {row["source_table"]: row for row in tables.admin.query("EXEC sys.sp_cdc_help_change_data_capture")}
    assert (shown["loose"]["index_name"], shown["loose"]["index_column_list"]) == (None, "[id]")
    (alone,) = tables.admin.query("EXEC sys.sp_cdc_help_change_data_capture N'dbo', N'loose'")
    assert alone["index_column_list"] is None


@pytest.mark.parametrize("arguments", ["N'dbo', NULL", "NULL, N'keyed'", "N'', N'keyed'"])
def test_help_wants_both_names_or_neither(tables: Source, arguments: str) -> None:
    error = tables.admin.error(f"EXEC sys.sp_cdc_help_change_data_capture {arguments}")
    assert (error.number, error.severity, error.state) == (22972, 16, 1)


@pytest.mark.parametrize("call", ["sp_cdc_get_captured_columns", "sp_cdc_get_ddl_history"])
@pytest.mark.parametrize("instance", ["N'nothing'", "NULL"])
def test_unknown_instance_does_not_exist_or_is_denied(tables: Source, call: str, instance: str) -> None:
    error = tables.admin.error(f"EXEC sys.{call} {instance}")
    assert (error.number, error.severity, error.state) == (22981, 16, 1)


@pytest.mark.parametrize(
    "call", ["sp_cdc_help_change_data_capture", "sp_cdc_get_captured_columns N'x'", "sp_cdc_get_ddl_history N'x'"]
)
def test_reports_need_a_database_with_cdc(server: Server, call: str) -> None:
    master = server.connect("master")
    error = master.error(f"EXEC sys.{call}")
    master.close()
    assert (error.number, error.severity, error.state) == (22901, 16, 1)


def test_captured_columns_follow_information_schema(tables: Source) -> None:
    rows = tables.admin.rows("EXEC sys.sp_cdc_get_captured_columns N'DBO_LOOSE'")
    assert [row[3:] for row in rows] == [
        ("v", 1, 1, "nvarchar", -1, None, None, None, None),
        ("d", 2, 2, "decimal", None, 9, 10, 2, None),
        ("t", 3, 3, "datetime2", None, None, None, None, 3),
        ("f", 4, 4, "float", None, 53, 2, None, None),
        ("b", 5, 5, "varbinary", 8, None, None, None, None),
    ]


def test_history_holds_the_statement_word_for_word_at_a_whole_minute(tables: Source) -> None:
    (row,) = tables.admin.query("EXEC sys.sp_cdc_get_ddl_history N'dbo_keyed'")
    assert (row["ddl_command"], row["required_column_update"]) == ("ALTER TABLE dbo.keyed ADD c int NULL", False)
    assert (row["ddl_time"].second, row["ddl_time"].microsecond) == (0, 0)
    assert row["ddl_lsn"] <= tables.admin.scalar("sys.fn_cdc_get_max_lsn()")


@pytest.mark.parametrize(
    "call",
    [
        "sp_cdc_help_change_data_capture",
        "sp_cdc_get_captured_columns N'dbo_keyed'",
        "sp_cdc_get_ddl_history N'dbo_keyed'",
        "sp_cdc_generate_wrapper_function N'dbo_keyed'",
        "sp_cdc_help_jobs",
        "sp_cdc_change_job @maxscans = 10",
        "sp_cdc_drop_job N'cleanup'",
        "sp_cdc_add_job N'cleanup', @start_job = 0",
        "sp_cdc_scan",
        "sp_cdc_cleanup_change_table N'dbo_keyed', NULL",
        "sp_cdc_enable_table N'dbo', N'keyed', N'again', @role_name = NULL",
        "sp_cdc_disable_table N'dbo', N'keyed', N'again'",
    ],
)
def test_procedure_returns_zero_when_it_succeeds(tables: Source, call: str) -> None:
    name, _, arguments = call.partition(" ")
    assert tables.admin.rows(f"DECLARE @r int = 9; EXEC @r = sys.{name} {arguments}; SELECT @r") == [(0,)]
