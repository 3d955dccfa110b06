"""See docs/reference/sqlserver_cdc.md, "DDL": DDL on a tracked table."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from conformance_server import Server, Source, new_database, shape

_numbers = count(1)


@pytest.fixture(scope="module")
def database(server: Server) -> Iterator[Source]:
    with new_database(server) as made:
        yield made


@pytest.fixture
def name(database: Source) -> str:
    """A tracked table with a named key, two plain columns and a unique index."""
    table = f"t{next(_numbers)}"
    database.admin.run(
        f"CREATE TABLE dbo.{table} (id int NOT NULL, a nvarchar(50), b int, u int NOT NULL,"
        f" CONSTRAINT pk_{table} PRIMARY KEY (id))",
        f"CREATE UNIQUE INDEX ux_{table} ON dbo.{table} (u)",
    )
    database.enable(table)
    return table


def _history(source: Source, table: str) -> list[tuple[object, object]]:
    rows = source.admin.query(f"EXEC sys.sp_cdc_get_ddl_history N'dbo_{table}'")
    return [(row["ddl_command"], row["required_column_update"]) for row in rows]


def test_added_column_is_recorded_and_not_captured(database: Source, name: str) -> None:
    add = f"ALTER TABLE dbo.{name} ADD extra int NULL"
    database.admin.run(
        add,
        f"INSERT dbo.{name} (id, u, extra) VALUES (1, 1, 7)",
        f"UPDATE dbo.{name} SET extra = 8",
        f"UPDATE dbo.{name} SET b = 1, extra = 9",
    )
    database.scan()
    assert shape(database.changes(f"dbo_{name}"), "b") == [(2, "0F", None), (3, "04", None), (4, "04", 1)]
    assert _history(database, name) == [(add, False)]


def test_dropped_column_stays_in_the_change_table_as_null(database: Source, name: str) -> None:
    """MCP23: a commit before the DROP keeps its value though it is captured later."""
    drop = f"ALTER TABLE dbo.{name} DROP COLUMN b"
    database.admin.run(
        f"INSERT dbo.{name} VALUES (1, N'x', 5, 1)",
        drop,
        f"UPDATE dbo.{name} SET a = N'y'",
        f"ALTER TABLE dbo.{name} ADD b int NULL",
        f"UPDATE dbo.{name} SET b = 6, a = N'z'",
    )
    database.scan()
    assert shape(database.changes(f"dbo_{name}"), "a", "b") == [
        (2, "0F", "x", 5),
        (3, "02", "x", None),
        (4, "02", "y", None),
        (3, "02", "y", None),
        (4, "02", "z", None),
    ]
    assert _history(database, name)[0] == (drop, False)
    columns = database.admin.query(f"EXEC sys.sp_cdc_get_captured_columns N'dbo_{name}'")
    assert [row["column_name"] for row in columns] == ["id", "a", "b", "u"]


def test_retyped_column_is_converted_by_the_capture_job_in_every_instance(database: Source, name: str) -> None:
    database.enable(name, capture_instance=f"N'second_{name}'")
    alter = f"ALTER TABLE dbo.{name} ALTER COLUMN b bigint"
    database.admin.run(f"INSERT dbo.{name} VALUES (1, N'x', 5, 1)")
    database.scan()
    database.admin.run(alter)
    before = f"SELECT TYPE_NAME(system_type_id) FROM sys.columns WHERE object_id = OBJECT_ID(N'cdc.dbo_{name}_CT')"
    assert database.admin.rows(f"{before} AND name = N'b'") == [("int",)]
    database.scan()
    assert database.admin.rows(f"{before} AND name = N'b'") == [("bigint",)]
    for instance in (f"dbo_{name}", f"second_{name}"):
        columns = database.admin.query(f"EXEC sys.sp_cdc_get_captured_columns N'{instance}'")
        assert [row["data_type"] for row in columns] == ["int", "nvarchar", "bigint", "int"]
        assert [row["b"] for row in database.changes(instance)] == [5]
        rows = database.admin.query(f"EXEC sys.sp_cdc_get_ddl_history N'{instance}'")
        assert [(row["ddl_command"], row["required_column_update"]) for row in rows] == [(alter, True)]


def test_scan_by_hand_fails_where_a_change_table_cannot_follow_and_goes_on_when_it_can(source: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "DDL", "Errors": narrowing, while the change table holds what is too
    long."""
    source.admin.run("CREATE TABLE dbo.narrow (id int NOT NULL PRIMARY KEY, v varchar(10))")
    source.enable("narrow")
    source.admin.run("INSERT dbo.narrow VALUES (1, 'long value')", "DELETE dbo.narrow")
    source.scan()
    source.admin.run("ALTER TABLE dbo.narrow ALTER COLUMN v varchar(3)", "INSERT dbo.narrow VALUES (2, 'abc')")
    error = source.admin.error("EXEC sys.sp_cdc_scan")
    assert (error.severity, error.state) == (16, 1)
    assert len(source.changes("dbo_narrow")) == 2
    source.admin.run("DELETE cdc.dbo_narrow_CT")
    source.scan()
    assert [(row["id"], row["v"]) for row in source.changes("dbo_narrow")] == [(2, "abc")]


def test_change_of_nullability_alone_is_recorded_with_0(database: Source, name: str) -> None:
    alter = f"ALTER TABLE dbo.{name} ALTER COLUMN b int NOT NULL"
    database.admin.run(alter)
    database.scan()
    assert _history(database, name) == [(alter, False)]


def test_captured_column_cannot_be_renamed(database: Source, name: str) -> None:
    """G38 (R) FAB, CW."""
    error = database.admin.error(f"EXEC sp_rename N'dbo.{name}.a', N'x', N'COLUMN'")
    assert (error.number, error.severity, error.state, error.procedure) == (4928, 16, 1, "sp_rename")
    assert error.text == "Cannot alter column 'a' because it is 'REPLICATED'."


def test_column_that_is_not_captured_may_be_renamed_and_that_is_not_recorded(database: Source) -> None:
    database.admin.run("CREATE TABLE dbo.partly (id int NOT NULL PRIMARY KEY, a int)")
    database.enable("partly", captured_column_list="N'id'")
    database.admin.run("EXEC sp_rename N'dbo.partly.a', N'x', N'COLUMN'")
    database.scan()
    assert _history(database, "partly") == []


def test_renamed_table_goes_on_under_the_name_of_its_instance(database: Source, name: str) -> None:
    database.admin.run(f"EXEC sp_rename N'dbo.{name}', N'new_{name}'", f"INSERT dbo.new_{name} (id, u) VALUES (1, 1)")
    database.scan()
    assert len(database.changes(f"dbo_{name}")) == 1
    (row,) = database.admin.query(f"EXEC sys.sp_cdc_help_change_data_capture N'dbo', N'new_{name}'")
    assert (row["source_table"], row["capture_instance"]) == (f"new_{name}", f"dbo_{name}")
    assert _history(database, name) == []


def test_tracked_table_cannot_be_truncated(database: Source, name: str) -> None:
    error = database.admin.error(f"TRUNCATE TABLE dbo.{name}")
    assert (error.number, error.severity, error.state) == (4711, 16, 1)
    assert error.text.startswith("Cannot truncate table '")
    assert error.text.endswith(f"{name}' because it is published for replication or enabled for Change Data Capture.")


def test_key_that_identifies_rows_is_held(database: Source, name: str) -> None:
    error = database.admin.error(f"ALTER TABLE dbo.{name} DROP CONSTRAINT pk_{name}")
    assert (error.number, error.severity, error.state) == (22979, 16, 1)
    assert error.text == (
        f"The unique index 'pk_{name}' on table 'dbo.{name}' is used by Change Data Capture. The constraint using this"
        " index cannot be dropped or disabled."
    )
    assert database.admin.send(f"ALTER TABLE dbo.{name} ALTER COLUMN id bigint NOT NULL").errors


def test_index_that_identifies_rows_is_held_and_others_are_not(database: Source) -> None:
    database.admin.run(
        "CREATE TABLE dbo.loose (id int NOT NULL, v int NOT NULL)",
        "CREATE UNIQUE INDEX ux ON dbo.loose (id)",
        "CREATE UNIQUE INDEX other ON dbo.loose (v)",
    )
    database.enable("loose", index_name="N'ux'")
    error = database.admin.error("DROP INDEX ux ON dbo.loose")
    assert (error.number, error.severity, error.state) == (22983, 16, 1)
    assert error.text.startswith("The unique index 'ux' on source table 'dbo.loose' is used by Change Data Capture.")
    database.admin.run("DROP INDEX other ON dbo.loose")


@pytest.mark.parametrize(("index", "number"), [("pk_{0}", 22979), ("ux_{0}", 22983)])
def test_index_that_identifies_rows_cannot_be_disabled(database: Source, name: str, index: str, number: int) -> None:
    database.enable(name, capture_instance=f"N'second_{name}'", index_name=f"N'ux_{name}'")
    error = database.admin.error(f"ALTER INDEX {index.format(name)} ON dbo.{name} DISABLE")
    assert (error.number, error.severity, error.state) == (number, 16, 1)


def test_dropped_table_takes_its_instances_along(database: Source, name: str) -> None:
    database.admin.run(f"DROP TABLE dbo.{name}")
    assert database.admin.error(f"SELECT * FROM cdc.dbo_{name}_CT").number == 208
    call = f"SELECT * FROM cdc.fn_cdc_get_all_changes_dbo_{name}(0x01, 0x01, N'all')"
    assert database.admin.error(call).number == 208
    instances = f"SELECT capture_instance FROM cdc.change_tables WHERE capture_instance = N'dbo_{name}'"
    assert database.admin.rows(instances) == []
    assert database.admin.scalar(f"sys.fn_cdc_get_min_lsn(N'dbo_{name}')") == bytes(10)


def test_several_statements_of_one_transaction_are_recorded_one_by_one(database: Source, name: str) -> None:
    database.admin.run(
        f"BEGIN TRAN; ALTER TABLE dbo.{name} ADD x int NULL; ALTER TABLE dbo.{name} ADD y int NULL; COMMIT"
    )
    database.scan()
    assert len(_history(database, name)) == 2
    database.admin.run(f"BEGIN TRAN; ALTER TABLE dbo.{name} ADD z int NULL; ROLLBACK")
    database.scan()
    assert len(_history(database, name)) == 2


def test_second_instance_begins_with_the_columns_of_then(database: Source, name: str) -> None:
    """See docs/reference/sqlserver_cdc.md, "Two instances"."""
    database.admin.run(f"ALTER TABLE dbo.{name} ADD c int NULL", f"INSERT dbo.{name} (id, u, c) VALUES (1, 1, 1)")
    database.enable(name, capture_instance=f"N'second_{name}'")
    database.admin.run(f"INSERT dbo.{name} (id, u, c) VALUES (2, 2, 2)")
    database.scan()
    old, new = database.changes(f"dbo_{name}"), database.changes(f"second_{name}")
    assert ([row["id"] for row in old], [(row["id"], row["c"]) for row in new]) == ([1, 2], [(2, 2)])
    start = database.admin.scalar(f"sys.fn_cdc_get_min_lsn(N'second_{name}')")
    assert old[0]["__$start_lsn"] < start < old[1]["__$start_lsn"] == new[0]["__$start_lsn"]
    rows = database.admin.rows(
        "SELECT m.tran_id, m.tran_begin_lsn, CASE WHEN m.tran_begin_time = c.create_date AND m.tran_end_time ="
        " c.create_date THEN 1 ELSE 0 END, c.end_lsn FROM cdc.change_tables c JOIN cdc.lsn_time_mapping m"
        f" ON m.start_lsn = c.start_lsn WHERE c.capture_instance = N'second_{name}'"
    )
    assert rows == [(b"\0", bytes(10), 1, None)]
