"""See docs/reference/sqlserver_cdc.md, "Metadata tables", "Windows" and G52: who may read what, and what others
receive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance_server import Client, Server, Source, new_database

_WINDOW = "(sys.fn_cdc_get_min_lsn(N'dbo_{0}'), sys.fn_cdc_get_max_lsn(), N'all')"
_METADATA = ("change_tables", "captured_columns", "index_columns", "ddl_history")


def _call(kind: str, table: str = "t") -> str:
    # The window is the administrator's: who may not read an instance has no low end of it either.
    return (
        f"DECLARE @to binary(10) = sys.fn_cdc_get_max_lsn(); SELECT * FROM cdc.fn_cdc_get_{kind}_changes_dbo_{table}"
        "(@to, @to, N'all')"
    )


@pytest.fixture(scope="module")
def tables(server: Server) -> Iterator[Source]:
    """t without a gating role, gated with one."""
    with new_database(server) as made:
        made.admin.run(
            "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v varchar(10))",
            "CREATE TABLE dbo.gated (id int NOT NULL PRIMARY KEY)",
        )
        made.enable("t")
        made.enable("gated", role_name="N'gate'")
        made.admin.run("BEGIN TRAN; INSERT dbo.t VALUES (1, 'a'); INSERT dbo.gated VALUES (1); COMMIT")
        made.scan()
        yield made


@pytest.fixture(scope="module")
def reader(tables: Source) -> Iterator[Client]:
    """May SELECT the source table."""
    client = tables.log_in("SELECT ON dbo.t")
    yield client
    client.close()


@pytest.fixture(scope="module")
def stranger(tables: Source) -> Iterator[Client]:
    """May SELECT the change table only."""
    client = tables.log_in("SELECT ON cdc.dbo_t_CT")
    yield client
    client.close()


def test_select_on_the_source_opens_procedures_and_functions(reader: Client) -> None:
    """G52 (T) MCP9/MCP23."""
    assert [row["source_table"] for row in reader.query("EXEC sys.sp_cdc_help_change_data_capture")] == ["t"]
    assert len(reader.query("EXEC sys.sp_cdc_get_captured_columns N'dbo_t'")) == 2
    assert reader.query("EXEC sys.sp_cdc_get_ddl_history N'dbo_t'") == []
    assert len(reader.query(f"SELECT * FROM cdc.fn_cdc_get_all_changes_dbo_t{_WINDOW.format('t')}")) == 1
    assert len(reader.query(f"SELECT * FROM cdc.fn_cdc_get_net_changes_dbo_t{_WINDOW.format('t')}")) == 1
    assert len(reader.query("SELECT * FROM cdc.lsn_time_mapping")) > 0
    assert reader.scalar("sys.fn_cdc_get_min_lsn(N'dbo_t')") > bytes(10)


@pytest.mark.parametrize("table", [*_METADATA, "dbo_t_CT"])
def test_select_on_the_source_opens_no_table_of_cdc(reader: Client, table: str) -> None:
    error = reader.error(f"SELECT * FROM cdc.{table}")
    assert (error.number, error.severity, error.state) == (229, 14, 5)
    assert error.text.startswith(f"The SELECT permission was denied on the object '{table}', database '")
    assert error.text.endswith("', schema 'cdc'.")


@pytest.mark.parametrize("call", ["sp_cdc_get_captured_columns N'dbo_gated'", "sp_cdc_get_ddl_history N'dbo_gated'"])
def test_instance_that_one_may_not_read_does_not_exist_or_is_denied(reader: Client, call: str) -> None:
    assert reader.error(f"EXEC sys.{call}").number == 22981


def test_select_on_the_change_table_opens_it_alone(stranger: Client) -> None:
    """G52 (T) MCP9/MCP23."""
    assert len(stranger.query("SELECT * FROM cdc.dbo_t_CT")) == 1
    assert stranger.query("EXEC sys.sp_cdc_help_change_data_capture") == []
    assert stranger.error("EXEC sys.sp_cdc_get_captured_columns N'dbo_t'").number == 22981
    assert stranger.scalar("sys.fn_cdc_get_min_lsn(N'dbo_t')") == bytes(10)
    for table in _METADATA:
        assert stranger.error(f"SELECT * FROM cdc.{table}").number == 229


@pytest.mark.parametrize("kind", ["all", "net"])
def test_changes_of_what_one_may_not_read_are_denied_on_a_placeholder(
    tables: Source, stranger: Client, kind: str
) -> None:
    """See docs/reference/sqlserver_cdc.md, "Errors": with literal dots."""
    error = stranger.error(_call(kind))
    assert (error.number, error.severity, error.state) == (229, 14, 5)
    assert error.text == (
        f"The SELECT permission was denied on the object 'fn_cdc_get_{kind}_changes_...', database '{tables.name}',"
        " schema 'cdc'."
    )


def test_select_on_some_captured_columns_is_not_enough(tables: Source) -> None:
    partial = tables.log_in("SELECT (id) ON dbo.t")
    assert partial.query("EXEC sys.sp_cdc_help_change_data_capture") == []
    assert partial.error(_call("all")).number == 229
    partial.close()


def test_gating_role_is_needed_in_addition_to_select(tables: Source) -> None:
    member = tables.log_in("SELECT ON dbo.gated")
    assert member.error("EXEC sys.sp_cdc_get_captured_columns N'dbo_gated'").number == 22981
    assert member.error(_call("all", "gated")).number == 229
    assert member.scalar("sys.fn_cdc_get_min_lsn(N'dbo_gated')") == bytes(10)
    tables.admin.run(f"ALTER ROLE gate ADD MEMBER [{tables.logins[-1]}]")
    assert len(member.query("EXEC sys.sp_cdc_get_captured_columns N'dbo_gated'")) == 1
    assert len(member.query(_call("all", "gated"))) == 1
    assert [row["capture_instance"] for row in member.query("EXEC sys.sp_cdc_help_change_data_capture")] == [
        "dbo_gated"
    ]
    member.close()


@pytest.mark.parametrize("kind", ["all", "net"])
def test_select_on_the_function_without_its_columns_gives_one_row_of_nulls(tables: Source, kind: str) -> None:
    """See docs/reference/sqlserver_cdc.md, "Windows" (EST, GEN)."""
    granted = tables.log_in(f"SELECT ON cdc.fn_cdc_get_{kind}_changes_dbo_t")
    (row,) = granted.rows(_call(kind))
    assert set(row) == {None}
    granted.close()


def test_database_owner_reads_everything(tables: Source) -> None:
    owner = tables.log_in()
    tables.admin.run(f"ALTER ROLE db_owner ADD MEMBER [{tables.logins[-1]}]")
    assert len(owner.query("EXEC sys.sp_cdc_help_change_data_capture")) == 2
    for table in _METADATA:
        owner.query(f"SELECT * FROM cdc.{table}")
    assert len(owner.query(_call("all", "gated"))) == 1
    owner.close()


@pytest.fixture(scope="module")
def nobody(tables: Source) -> Iterator[Client]:
    """A user without any right."""
    client = tables.log_in()
    yield client
    client.close()


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("sp_cdc_enable_db", 22902),
        ("sp_cdc_disable_db", 22902),
        ("sp_cdc_enable_table N'dbo', N't', @role_name = NULL", 22904),
        ("sp_cdc_disable_table N'dbo', N't', N'dbo_t'", 22904),
        ("sp_cdc_cleanup_change_table N'dbo_t', NULL", 22904),
        ("sp_cdc_add_job N'capture'", 22904),
        ("sp_cdc_change_job @maxscans = 5", 22904),
        ("sp_cdc_drop_job N'capture'", 22904),
        ("sp_cdc_start_job", 22904),
        ("sp_cdc_stop_job", 22904),
        ("sp_cdc_help_jobs", 22904),
        ("sp_cdc_scan", 22904),
        ("sp_cdc_get_captured_columns N'dbo_t'", 22981),
        ("sp_cdc_get_ddl_history N'dbo_t'", 22981),
        ("sp_cdc_generate_wrapper_function N'dbo_t'", 22920),
    ],
)
def test_procedure_refuses_a_caller_without_rights_and_returns_one(nobody: Client, call: str, number: int) -> None:
    error = nobody.error(f"EXEC sys.{call}")
    assert (error.number, error.severity, error.state) == (number, 16, 1)
    name, _, arguments = call.partition(" ")
    reply = nobody.send(f"DECLARE @r int; EXEC @r = sys.{name} {arguments}; SELECT @r")
    assert reply.results[-1].rows == [(1,)]


@pytest.mark.parametrize("call", ["sp_cdc_help_change_data_capture", "sp_cdc_generate_wrapper_function"])
def test_report_on_all_instances_is_empty_for_a_caller_without_rights(nobody: Client, call: str) -> None:
    assert nobody.rows(f"EXEC sys.{call}") == []


def test_scalar_functions_answer_everyone_and_know_of_no_instance(tables: Source, nobody: Client) -> None:
    """See docs/reference/sqlserver_cdc.md, "Scalar functions": the low end of what one may not read is zero; the time
    line is for all."""
    assert nobody.scalar("sys.fn_cdc_get_min_lsn(N'dbo_t')") == bytes(10)
    newest = tables.admin.scalar("sys.fn_cdc_get_max_lsn()")
    assert nobody.scalar("sys.fn_cdc_get_max_lsn()") == newest
    assert nobody.scalar("sys.fn_cdc_decrement_lsn(sys.fn_cdc_increment_lsn(sys.fn_cdc_get_max_lsn()))") == newest
    assert nobody.scalar("sys.fn_cdc_map_lsn_to_time(sys.fn_cdc_get_max_lsn())") is not None
    assert nobody.scalar("sys.fn_cdc_map_time_to_lsn(N'largest less than', '2999-01-01')") == newest
    assert nobody.scalar("sys.fn_cdc_is_bit_set(1, 0x01)") is True


@pytest.mark.parametrize("view", ["dm_cdc_log_scan_sessions", "dm_cdc_errors"])
def test_management_views_are_for_who_may_view_the_database_s_state(tables: Source, view: str) -> None:
    """See docs/reference/sqlserver_cdc.md, "Dynamic views"."""
    client = tables.log_in("SELECT ON dbo.t")
    error = client.error(f"SELECT * FROM sys.{view}")
    assert (error.number, error.severity) == (262, 14)
    assert error.text.startswith("VIEW DATABASE ")
    assert error.text.endswith(f"STATE permission denied in database '{tables.name}'.")
    asked = "HAS_PERMS_BY_NAME(DB_NAME(), N'DATABASE', N'VIEW DATABASE STATE')"
    assert client.scalar(asked) == 0
    tables.admin.run(f"GRANT VIEW DATABASE STATE TO [{tables.logins[-1]}]")
    assert client.scalar(asked) == 1
    client.rows(f"SELECT * FROM sys.{view}")
    tables.admin.run(
        f"REVOKE VIEW DATABASE STATE FROM [{tables.logins[-1]}]",
        "CREATE ROLE watching",
        "GRANT VIEW DATABASE STATE TO watching",
    )
    assert client.error(f"SELECT * FROM sys.{view}").number == 262
    tables.admin.run(f"ALTER ROLE watching ADD MEMBER [{tables.logins[-1]}]")
    client.rows(f"SELECT * FROM sys.{view}")
    tables.admin.run(f"ALTER ROLE watching DROP MEMBER [{tables.logins[-1]}]", "DROP ROLE watching")
    client.close()


def test_right_to_alter_one_table_is_not_enough_where_it_is_tracked(source: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "Errors", "DDL": 22914; a member of db_ddladmin may."""
    source.admin.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)", "CREATE TABLE dbo.free (id int NOT NULL)")
    source.enable("t")
    client = source.log_in("ALTER ON dbo.t", "ALTER ON dbo.free")
    asked = "HAS_PERMS_BY_NAME(N'dbo.free', N'OBJECT', N'ALTER')"
    assert client.scalar(asked) == 1
    client.run("ALTER TABLE dbo.free ADD v int NULL")
    error = client.error("ALTER TABLE dbo.t ADD v int NULL")
    assert (error.number, error.severity, error.state) == (22914, 16, 1)
    assert error.text.startswith("Only members of the sysadmin or db_owner or db_ddladmin roles can perform this")
    source.admin.run(f"ALTER ROLE db_ddladmin ADD MEMBER [{source.logins[-1]}]")
    client.run("ALTER TABLE dbo.t ADD v int NULL")
    client.close()
    stranger = source.log_in("SELECT ON dbo.free")
    assert stranger.scalar(asked) == 0
    assert stranger.error("ALTER TABLE dbo.free ADD w int NULL").number != 22914
    stranger.close()
