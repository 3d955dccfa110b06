"""See docs/reference/sqlserver_cdc.md, "Enabling a database" and "Disabling a database": where change data capture of a
database begins and ends.

A server sends messages of severity 10 with severity 0.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance_server import Server, Source, new_database


@pytest.fixture
def plain(server: Server) -> Iterator[Source]:
    with new_database(server, with_cdc=False) as made:
        yield made


def test_enabling_makes_schema_user_and_tables(plain: Source) -> None:
    admin = plain.admin
    assert admin.rows("DECLARE @r int; EXEC @r = sys.sp_cdc_enable_db; SELECT @r") == [(0,)]
    assert admin.scalar("SCHEMA_ID(N'cdc')") is not None
    assert admin.rows("SELECT type, default_schema_name FROM sys.database_principals WHERE name = N'cdc'") == [
        ("S", "cdc")
    ]
    assert admin.rows(
        "SELECT r.name FROM sys.database_role_members m JOIN sys.database_principals r"
        " ON r.principal_id = m.role_principal_id JOIN sys.database_principals p"
        " ON p.principal_id = m.member_principal_id WHERE p.name = N'cdc'"
    ) == [("db_owner",)]
    tables = admin.rows("SELECT name FROM sys.tables WHERE schema_id = SCHEMA_ID(N'cdc') ORDER BY name")
    assert [name for (name,) in tables] == [
        "captured_columns",
        "change_tables",
        "ddl_history",
        "index_columns",
        "lsn_time_mapping",
    ]
    assert admin.rows("SELECT is_cdc_enabled FROM sys.databases WHERE database_id = DB_ID()") == [(True,)]


def test_enabling_twice_is_a_message_and_no_error(plain: Source) -> None:
    plain.admin.run("EXEC sys.sp_cdc_enable_db")
    reply = plain.admin.send("DECLARE @r int; EXEC @r = sys.sp_cdc_enable_db; SELECT @r")
    assert [(m.number, m.severity) for m in reply.messages] == [(22905, 0)]
    assert reply.results[-1].rows == [(0,)]


def test_disabling_where_it_is_off_is_a_message_and_no_error(plain: Source) -> None:
    reply = plain.admin.send("DECLARE @r int; EXEC @r = sys.sp_cdc_disable_db; SELECT @r")
    assert [(m.number, m.severity) for m in reply.messages] == [(22901, 0)]
    assert reply.results[-1].rows == [(0,)]


@pytest.mark.parametrize("call", ["sp_cdc_enable_db", "sp_cdc_disable_db"])
def test_database_is_enabled_and_disabled_by_sysadmin_only(plain: Source, call: str) -> None:
    owner = plain.log_in(user=f"owner_{plain.name}_{call}")
    plain.admin.run(f"ALTER ROLE db_owner ADD MEMBER [{plain.logins[-1]}]")
    error = owner.error(f"EXEC sys.{call}")
    assert (error.number, error.severity, error.state) == (22902, 16, 1)
    assert error.text.startswith("Caller is not authorized to initiate the requested action. Sysadmin privileges")
    reply = owner.send(f"DECLARE @r int; EXEC @r = sys.{call}; SELECT @r")
    assert reply.results[-1].rows == [(1,)]
    owner.close()


def test_system_databases_cannot_be_enabled(server: Server) -> None:
    master = server.connect("master")
    error = master.error("EXEC sys.sp_cdc_enable_db")
    master.close()
    assert (error.number, error.severity, error.state) == (22989, 16, 1)


@pytest.mark.parametrize("taken", ["CREATE SCHEMA cdc", "CREATE USER cdc WITHOUT LOGIN"])
def test_schema_or_user_of_the_name_is_in_the_way(plain: Source, taken: str) -> None:
    plain.admin.run(taken)
    error = plain.admin.error("EXEC sys.sp_cdc_enable_db")
    assert (error.number, error.severity, error.state) == (22906, 16, 1)


def test_disabling_takes_instances_jobs_and_schema_and_leaves_the_gating_role(source: Source) -> None:
    admin = source.admin
    admin.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    source.enable("t", role_name="N'gate'")
    admin.run("EXEC sys.sp_cdc_disable_db")
    assert admin.scalar("SCHEMA_ID(N'cdc')") is None
    assert admin.scalar("USER_ID(N'cdc')") is None
    assert admin.scalar("USER_ID(N'gate')") is not None
    assert admin.rows("SELECT is_tracked_by_cdc FROM sys.tables WHERE name = N't'") == [(False,)]
    assert admin.rows("SELECT is_cdc_enabled FROM sys.databases WHERE database_id = DB_ID()") == [(False,)]
    assert admin.rows(f"SELECT name FROM msdb.dbo.sysjobs WHERE name LIKE N'cdc.{source.name}%'") == []
    assert admin.error("SELECT sys.fn_cdc_get_max_lsn()").number == 208
    assert admin.error("SELECT * FROM cdc.fn_cdc_get_all_changes_dbo_t(0x01, 0x01, N'all')").number == 208


@pytest.mark.parametrize("call", ["sp_cdc_enable_db", "sp_cdc_disable_db"])
def test_database_procedures_have_no_parameters(plain: Source, call: str) -> None:
    error = plain.admin.error(f"EXEC sys.{call} 1")
    assert (error.number, error.severity) == (8146, 16)


def test_rights_are_checked_before_the_database(plain: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "Enabling a database": authorised, then enabled already."""
    plain.admin.run("EXEC sys.sp_cdc_enable_db")
    owner = plain.log_in()
    plain.admin.run(f"ALTER ROLE db_owner ADD MEMBER [{plain.logins[-1]}]")
    assert owner.error("EXEC sys.sp_cdc_enable_db").number == 22902
    owner.close()
