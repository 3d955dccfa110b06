"""See docs/reference/sqlserver_cdc.md, "Change functions", "Windows", "Net changes": the functions that list changes,
their windows, net changes with every option."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance_server import Server, Source, new_database

_LOW, _HIGH = "sys.fn_cdc_get_min_lsn(N'dbo_t')", "sys.fn_cdc_get_max_lsn()"
_CALL = "SELECT * FROM cdc.fn_cdc_get_{0}_changes_dbo_t({1}, {2}, {3})"


@pytest.fixture(scope="module")
def table(server: Server) -> Iterator[Source]:
    with new_database(server) as made:
        made.admin.run(
            "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v varchar(10), n nvarchar(5), d decimal(9, 2))"
        )
        made.enable("t")
        made.admin.run("INSERT dbo.t (id, v) VALUES (1, 'a')", "UPDATE dbo.t SET v = 'b'", "DELETE dbo.t")
        made.scan()
        yield made


def test_functions_have_their_columns_in_order_with_their_types(table: Source) -> None:
    captured = (("id", "int"), ("v", "varchar(10)"), ("n", "nvarchar(5)"), ("d", "decimal(9,2)"))
    every = table.admin.result(_CALL.format("all", _LOW, _HIGH, "N'all'"))
    assert tuple(zip(every.columns, every.types, strict=True)) == (
        ("__$start_lsn", "binary(10)"),
        ("__$seqval", "binary(10)"),
        ("__$operation", "int"),
        ("__$update_mask", "varbinary(128)"),
        *captured,
    )
    net = table.admin.result(_CALL.format("net", _LOW, _HIGH, "N'all'"))
    assert net.columns == ("__$start_lsn", "__$operation", "__$update_mask", *(name for name, _ in captured))
    assert net.types[:2] + net.types[3:] == ("binary(10)", "int", *(type_ for _, type_ in captured))


@pytest.mark.parametrize("column", ["__$command_id", "__$end_lsn"])
def test_functions_have_no_column_for_commands_or_ends(table: Source, column: str) -> None:
    error = table.admin.error(_CALL.format("all", _LOW, _HIGH, "N'all'").replace("*", f"[{column}]"))
    assert (error.number, error.text) == (207, f"Invalid column name '{column}'.")


@pytest.mark.parametrize(
    ("option", "operations"),
    [("N'all'", [2, 4, 1]), ("N'all update old'", [2, 3, 4, 1]), ("N' ALL Update OLD '", [2, 3, 4, 1])],
)
def test_option_says_whether_old_images_are_listed(table: Source, option: str, operations: list[int]) -> None:
    sql = _CALL.format("all", _LOW, _HIGH, option) + " ORDER BY [__$start_lsn], [__$seqval], [__$operation]"
    assert [row["__$operation"] for row in table.admin.query(sql)] == operations


def test_both_ends_of_a_window_are_in_it(table: Source) -> None:
    commits = [row[0] for row in table.admin.rows("SELECT DISTINCT [__$start_lsn] FROM cdc.dbo_t_CT ORDER BY 1")]
    first, second = (f"0x{lsn.hex()}" for lsn in commits[:2])
    assert len(table.admin.rows(_CALL.format("all", first, second, "N'all'"))) == 2
    assert len(table.admin.rows(_CALL.format("all", second, second, "N'all'"))) == 1


@pytest.mark.parametrize("kind", ["all", "net"])
@pytest.mark.parametrize(
    ("low", "high", "option"),
    [
        ("0x00000000000000000001", _HIGH, "N'all'"),
        (f"sys.fn_cdc_decrement_lsn({_LOW})", _HIGH, "N'all'"),
        (_LOW, "0xFFFFFFFFFFFFFFFFFFFF", "N'all'"),
        (_LOW, f"sys.fn_cdc_increment_lsn({_HIGH})", "N'all'"),
        (f"sys.fn_cdc_increment_lsn({_HIGH})", f"sys.fn_cdc_increment_lsn({_HIGH})", "N'all'"),
        ("NULL", _HIGH, "N'all'"),
        (_LOW, "NULL", "N'all'"),
        (_HIGH, _LOW, "N'all'"),
        (_LOW, _HIGH, "N'everything'"),
        (_LOW, _HIGH, "NULL"),
    ],
)
def test_window_that_is_not_valid_is_error_313(table: Source, kind: str, low: str, high: str, option: str) -> None:
    error = table.admin.error(_CALL.format(kind, low, high, option))
    assert (error.number, error.severity, error.state) == (313, 16, 3)
    assert error.text == (
        "An insufficient number of arguments were supplied for the procedure or function "
        f"cdc.fn_cdc_get_{kind}_changes_ ... ."
    )


def test_option_of_one_function_is_none_of_the_other(table: Source) -> None:
    assert table.admin.error(_CALL.format("all", _LOW, _HIGH, "N'all with mask'")).number == 313
    assert table.admin.error(_CALL.format("net", _LOW, _HIGH, "N'all update old'")).number == 313


def test_error_in_an_insert_ends_the_statement(table: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "Errors" (CTEST): 3621 follows."""
    call = _CALL.format("all", "NULL", _HIGH, "N'all'").replace("*", "[__$operation]")
    reply = table.admin.send(f"CREATE TABLE #o (o int); INSERT #o {call}; SELECT COUNT(*) FROM #o; DROP TABLE #o")
    assert [m.number for m in reply.messages] == [313, 3621]
    assert reply.infos[0].text == "The statement has been terminated."
    assert reply.results[-1].rows == [(0,)]


@pytest.mark.parametrize("name", ["CDC.FN_CDC_GET_ALL_CHANGES_DBO_T", "[cdc].[fn_cdc_get_all_changes_dbo_t]"])
def test_function_is_found_in_any_case(table: Source, name: str) -> None:
    assert len(table.admin.rows(f"SELECT * FROM {name}({_LOW}, {_HIGH}, N'all')")) == 3


def test_direct_read_is_never_validated(table: Source) -> None:
    rows = table.admin.rows(
        "SELECT * FROM cdc.dbo_t_CT WHERE [__$start_lsn] BETWEEN 0x00000000000000000000 AND 0xFFFFFFFFFFFFFFFFFFFF"
    )
    assert len(rows) == 4


def test_functions_do_not_wait_for_who_writes_the_change_table(table: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "Change functions": it is read NOLOCK."""
    blocking = table.server.connect(table.name)
    blocking.run("BEGIN TRAN", "UPDATE cdc.dbo_t_CT SET d = 0")
    found = table.admin.rows("SET LOCK_TIMEOUT 50; " + _CALL.format("all", _LOW, _HIGH, "N'all'"))
    blocking.run("ROLLBACK")
    blocking.close()
    table.admin.run("SET LOCK_TIMEOUT -1")
    assert len(found) == 3


def test_function_of_no_instance_is_error_208(table: Source) -> None:
    error = table.admin.error(f"SELECT * FROM cdc.fn_cdc_get_all_changes_nothing({_LOW}, {_HIGH}, N'all')")
    assert (error.number, error.text) == (208, "Invalid object name 'cdc.fn_cdc_get_all_changes_nothing'.")


_STEPS = (
    "INSERT dbo.t VALUES (1, 'a', 0)",
    "INSERT dbo.t VALUES (2, 'a', 0)",
    "UPDATE dbo.t SET v = 'b' WHERE id = 2",
    "INSERT dbo.t VALUES (3, 'a', 0)",
    "DELETE dbo.t WHERE id = 3",
    "UPDATE dbo.t SET v = 'new' WHERE id = 4",
    "DELETE dbo.t WHERE id = 5",
    "DELETE dbo.t WHERE id = 6",
    "INSERT dbo.t VALUES (6, 'again', 0)",
    "UPDATE dbo.t SET v = 'doomed' WHERE id = 7",
    "DELETE dbo.t WHERE id = 7",
    "INSERT dbo.t VALUES (8, 'a', 0)",
    "DELETE dbo.t WHERE id = 8",
    "INSERT dbo.t VALUES (8, 'again', 0)",
    "BEGIN TRAN; INSERT dbo.t VALUES (9, 'a', 0); DELETE dbo.t WHERE id = 9; COMMIT",
    "UPDATE dbo.t SET v = 'x' WHERE id = 10",
    "UPDATE dbo.t SET n = 1 WHERE id = 10",
    "UPDATE dbo.t SET id = 12 WHERE id = 11",
)
_NET = {
    1: (2, "a"),
    2: (2, "b"),
    4: (4, "new"),
    5: (1, "old"),
    6: (4, "again"),
    7: (1, "doomed"),
    8: (2, "again"),
    10: (4, "x"),
    11: (1, "old"),
    12: (2, "old"),
}
"""See docs/reference/sqlserver_cdc.md, "Net changes": the operation and the value of each key with the option all."""


@pytest.fixture(scope="module")
def netted(server: Server) -> Iterator[Source]:
    with new_database(server) as made:
        made.admin.run(
            "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v varchar(10), n int)",
            "INSERT dbo.t VALUES (4, 'old', 0), (5, 'old', 0), (6, 'old', 0), (7, 'old', 0), (10, 'old', 0),"
            " (11, 'old', 0)",
        )
        made.enable("t")
        made.admin.run(*_STEPS)
        made.scan()
        yield made


def _net(source: Source, option: str) -> dict[int, Any]:
    rows = source.admin.query(_CALL.format("net", _LOW, _HIGH, f"N'{option}'"))
    found = {row["id"]: (row["__$operation"], row["v"], row["__$update_mask"]) for row in rows}
    assert len(found) == len(rows)
    return found


def test_net_changes_are_the_last_state_of_each_key(netted: Source) -> None:
    assert _net(netted, "all") == {key: (*change, None) for key, change in _NET.items()}


def test_net_changes_with_merge_are_deletes_and_fives(netted: Source) -> None:
    merged = {key: (1 if operation == 1 else 5, value, None) for key, (operation, value) in _NET.items()}
    assert _net(netted, "all with merge") == merged


def test_net_changes_with_mask_have_none_while_the_option_is_off(netted: Source) -> None:
    """22969 said so when the table was enabled."""
    assert _net(netted, "all with mask") == {key: (*change, None) for key, change in _NET.items()}


def test_net_changes_with_mask_unite_the_masks_of_updates(netted: Source) -> None:
    netted.admin.run("EXEC sp_configure 'clr enabled', 1", "RECONFIGURE")
    try:
        masks = {key: mask and mask.hex() for key, (_, _, mask) in _net(netted, "all with mask").items()}
    finally:
        netted.admin.run("EXEC sp_configure 'clr enabled', 0", "RECONFIGURE")
    assert masks == {1: None, 2: None, 4: "02", 5: None, 6: "07", 7: None, 8: None, 10: "06", 11: None, 12: None}


def test_net_row_carries_the_lsn_of_its_last_change(netted: Source) -> None:
    last = dict(netted.admin.rows("SELECT id, MAX([__$start_lsn]) FROM cdc.dbo_t_CT GROUP BY id"))
    rows = netted.admin.query(_CALL.format("net", _LOW, _HIGH, "N'all'"))
    assert {row["id"]: row["__$start_lsn"] for row in rows} == {key: last[key] for key in _NET}
