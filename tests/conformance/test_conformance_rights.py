"""Reference cdc.md A.14, B.4 and G52: who may read what, and what others are told."""

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
    """A.16: with literal dots."""
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


def test_gating_role_is_needed_beside_select(tables: Source) -> None:
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
    """B.4 (EST, GEN)."""
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
