"""See docs/reference/sqlserver_cdc.md, "Scalar functions" and "Update mask": the scalar functions of schema sys, at
their edges."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from conformance_server import Server, Source, new_database, text_of

_LSN = "DECLARE @lsn binary(10) = {0}; SELECT sys.fn_cdc_{1}_lsn(@lsn)"


@pytest.fixture(scope="module")
def tables(server: Server) -> Iterator[Source]:
    """Table t with three commits apart in time, its columns out of the table's order in the instance."""
    with new_database(server) as made:
        made.admin.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, skipped int, [a b] int, c int)")
        made.enable("t", captured_column_list="N'c, [a b], id'")
        for i in range(3):
            made.admin.run(f"INSERT dbo.t (id) VALUES ({i})", "WAITFOR DELAY '00:00:00.020'")
        made.scan()
        yield made


@pytest.mark.parametrize(
    ("expression", "type_"),
    [
        ("sys.fn_cdc_get_min_lsn(N'dbo_t')", "binary(10)"),
        ("sys.fn_cdc_get_max_lsn()", "binary(10)"),
        ("sys.fn_cdc_increment_lsn(0x00)", "binary(10)"),
        ("sys.fn_cdc_decrement_lsn(0x00)", "binary(10)"),
        ("sys.fn_cdc_map_time_to_lsn(N'largest less than', GETDATE())", "binary(10)"),
        ("sys.fn_cdc_map_lsn_to_time(0x00)", "datetime"),
        ("sys.fn_cdc_get_column_ordinal(N'dbo_t', N'id')", "int"),
        ("sys.fn_cdc_is_bit_set(1, 0x01)", "bit"),
        ("sys.fn_cdc_has_column_changed(N'dbo_t', N'id', 0x01)", "bit"),
    ],
)
def test_function_has_its_type(tables: Source, expression: str, type_: str) -> None:
    assert tables.admin.result(f"SELECT {expression} AS value").types == (type_,)


@pytest.mark.parametrize(
    ("function", "lsn", "expected"),
    [
        ("increment", "0x000000000000000000FF", "00000000000000000100"),
        ("increment", "0x0000002D00000580FFFF", "0000002D000005810000"),
        ("increment", "0xFFFFFFFFFFFFFFFFFFFF", "00000000000000000000"),
        ("decrement", "0x00000000000000000100", "000000000000000000FF"),
        ("decrement", "0x00000000000000000000", "FFFFFFFFFFFFFFFFFFFF"),
    ],
)
def test_lsn_is_a_whole_number_that_wraps_at_its_ends(tables: Source, function: str, lsn: str, expected: str) -> None:
    assert tables.admin.rows(_LSN.format(lsn, function)) == [(bytes.fromhex(expected),)]


@pytest.mark.parametrize(
    "expression",
    [
        "sys.fn_cdc_increment_lsn(NULL)",
        "sys.fn_cdc_decrement_lsn(NULL)",
        "sys.fn_cdc_map_lsn_to_time(NULL)",
        "sys.fn_cdc_map_time_to_lsn(N'largest less than', NULL)",
        "sys.fn_cdc_map_time_to_lsn(N'largest less than', '1999-01-01')",
        "sys.fn_cdc_map_time_to_lsn(N'smallest greater than', '2099-01-01')",
        "sys.fn_cdc_get_column_ordinal(N'dbo_t', N'skipped')",
        "sys.fn_cdc_get_column_ordinal(N'nothing', N'id')",
    ],
)
def test_there_is_no_answer(tables: Source, expression: str) -> None:
    assert tables.admin.scalar(expression) is None


@pytest.mark.parametrize("instance", ["N'nothing'", "NULL", "N''"])
def test_low_end_of_no_instance_is_zero(tables: Source, instance: str) -> None:
    assert tables.admin.scalar(f"sys.fn_cdc_get_min_lsn({instance})") == bytes(10)


def test_names_are_found_in_any_case(tables: Source) -> None:
    """MCP16, with the collation most databases have."""
    low = tables.admin.scalar("sys.fn_cdc_get_min_lsn(N'dbo_t')")
    assert tables.admin.scalar("SYS.FN_CDC_GET_MIN_LSN(N'DBO_T')") == low > bytes(10)
    assert tables.admin.scalar("sys.fn_cdc_get_column_ordinal(N'DBO_T', N'A B')") == 2


def test_ordinals_are_of_the_instance_in_the_table_s_order(tables: Source) -> None:
    ordinals = [tables.admin.scalar(f"sys.fn_cdc_get_column_ordinal(N'dbo_t', N'{c}')") for c in ("id", "a b", "c")]
    assert ordinals == [1, 2, 3]


@pytest.mark.parametrize(
    ("position", "mask", "expected"),
    [
        (1, "0x01", True),
        (2, "0x01", False),
        (4, "0x0008", True),
        (9, "0x0100", True),
        (9, "0x01FF", True),
        (10, "0x01FF", False),
        (1, "0x0100", False),
    ],
)
def test_bit_of_an_ordinal_is_counted_from_the_right(tables: Source, position: int, mask: str, expected: bool) -> None:
    assert tables.admin.scalar(f"sys.fn_cdc_is_bit_set({position}, {mask})") is expected


def test_changed_column_is_found_from_its_mask(tables: Source) -> None:
    changed = "sys.fn_cdc_has_column_changed(N'dbo_t', N'{0}', 0x05)"
    assert [tables.admin.scalar(changed.format(c)) for c in ("id", "a b", "c")] == [True, False, True]


def test_lsn_maps_to_the_time_of_its_own_entry_only(tables: Source) -> None:
    entries = tables.admin.rows("SELECT start_lsn, tran_end_time FROM cdc.lsn_time_mapping ORDER BY start_lsn")
    for lsn, time in entries:
        assert tables.admin.scalar(f"sys.fn_cdc_map_lsn_to_time({text_of(lsn)})") == time
        between = f"sys.fn_cdc_map_lsn_to_time(sys.fn_cdc_increment_lsn({text_of(lsn)}))"
        assert tables.admin.scalar(between) is None
    assert tables.admin.scalar("sys.fn_cdc_get_max_lsn()") == entries[-1][0]


def test_time_maps_to_the_entries_around_it(tables: Source) -> None:
    entries = tables.admin.rows(
        "SELECT start_lsn, CONVERT(varchar(23), tran_end_time, 121), tran_end_time FROM cdc.lsn_time_mapping"
        " ORDER BY start_lsn"
    )
    (before, _, earlier), (middle, at, time), (after, _, later) = entries[-3:]
    assert earlier < time < later

    def mapped(operator: str, moment: str) -> bytes:
        return bytes(tables.admin.scalar(f"sys.fn_cdc_map_time_to_lsn(N'{operator}', '{moment}')"))

    assert mapped("largest less than", at) == before
    assert mapped("largest less than or equal", at) == middle
    assert mapped("smallest greater than", at) == after
    assert mapped("smallest greater than or equal", at) == middle
    assert mapped("LARGEST less than or equal", at) == middle
    # The time is a datetime: a millisecond that is no tick is rounded to the tick of the entry.
    near = (time + timedelta(milliseconds=1)).isoformat(timespec="milliseconds")
    assert mapped("largest less than or equal", near) == middle
    assert mapped("smallest greater than or equal", near) == middle


def test_entries_of_one_time_give_the_lowest_or_the_highest(source: Source) -> None:
    admin = source.admin
    admin.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    source.enable("t")
    admin.run("INSERT dbo.t VALUES (1)", "INSERT dbo.t VALUES (2)")
    source.scan()
    admin.run("UPDATE cdc.lsn_time_mapping SET tran_end_time = '2026-01-01T12:00:00'")
    low, high = admin.rows("SELECT MIN(start_lsn), MAX(start_lsn) FROM cdc.lsn_time_mapping")[0]
    at = "'2026-01-01T12:00:00'"
    assert admin.scalar(f"sys.fn_cdc_map_time_to_lsn(N'smallest greater than or equal', {at})") == low
    assert admin.scalar(f"sys.fn_cdc_map_time_to_lsn(N'largest less than or equal', {at})") == high
    assert admin.scalar(f"sys.fn_cdc_map_time_to_lsn(N'largest less than', {at})") is None


def test_new_instance_has_its_low_end_only_when_the_log_was_read(source: Source) -> None:
    """FAB, ING, RPC, MCP16; the report of instances shows it at once (docs/reference/sqlserver_cdc.md, "Reports")."""
    admin = source.admin
    admin.run("CREATE TABLE dbo.a (id int NOT NULL PRIMARY KEY)", "CREATE TABLE dbo.b (id int NOT NULL PRIMARY KEY)")
    source.enable("a")
    admin.run("EXEC sys.sp_cdc_enable_table N'dbo', N'b', @role_name = NULL")
    assert admin.scalar("sys.fn_cdc_get_min_lsn(N'dbo_b')") in (None, bytes(10))
    (shown,) = admin.query("EXEC sys.sp_cdc_help_change_data_capture N'dbo', N'b'")
    source.scan()
    assert admin.scalar("sys.fn_cdc_get_min_lsn(N'dbo_b')") == shown["start_lsn"]


def test_before_the_first_scan_there_is_no_highest_lsn(source: Source) -> None:
    assert source.admin.scalar("sys.fn_cdc_get_max_lsn()") is None


@pytest.mark.parametrize(
    "expression", ["sys.fn_cdc_get_max_lsn()", "sys.fn_cdc_map_time_to_lsn(N'largest less than', GETDATE())"]
)
def test_time_line_is_missing_where_cdc_is_off(server: Server, expression: str) -> None:
    with new_database(server, with_cdc=False) as plain:
        error = plain.admin.error(f"SELECT {expression}")
        assert (error.number, error.text) == (208, "Invalid object name 'cdc.lsn_time_mapping'.")
        assert plain.admin.scalar("sys.fn_cdc_get_min_lsn(N'dbo_t')") == bytes(10)


def test_functions_are_called_with_three_part_names(tables: Source) -> None:
    """Debezium asks from another database."""
    master = tables.server.connect("master")
    assert master.scalar(f"[{tables.name}].sys.fn_cdc_get_max_lsn()") == tables.admin.scalar("sys.fn_cdc_get_max_lsn()")
    master.close()
