"""See docs/reference/sqlserver_cdc.md, "Enabling a table" and "Disabling a table": making and dropping capture
instances, what is checked, what is said, what is made."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance_server import Server, Source, new_database

_ENABLE = "EXEC sys.sp_cdc_enable_table"
_INNER = "sp_cdc_enable_table_internal"


@pytest.fixture(scope="module")
def refusing(server: Server) -> Iterator[Source]:
    with new_database(server) as made:
        many = ", ".join(f"k{i} int NOT NULL" for i in range(15))
        made.admin.run(
            "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v int, w int NOT NULL)",
            "CREATE INDEX ix_plain ON dbo.t (w)",
            "CREATE UNIQUE INDEX ux_nullable ON dbo.t (v)",
            "CREATE TABLE dbo.heap (id int)",
            "CREATE TABLE dbo.reserved (id int NOT NULL PRIMARY KEY, [__$operation] int)",
            f"CREATE TABLE dbo.wide ({many}, CONSTRAINT pk_wide PRIMARY KEY ({many.replace(' int NOT NULL', '')}))",
            "CREATE TABLE dbo.twice (id int NOT NULL PRIMARY KEY)",
        )
        made.enable("twice")
        made.enable("twice", capture_instance="N'second'")
        yield made


@pytest.mark.parametrize(
    ("arguments", "number", "text"),
    [
        ("NULL, N't', @role_name = NULL", 22963, "Parameter '@source_schema' cannot be null or empty."),
        ("N'dbo', N'', @role_name = NULL", 22963, "Parameter '@source_name' cannot be null or empty."),
        ("N'dbo', N'absent', @role_name = NULL", 22931, "Source table 'dbo.absent' does not exist"),
        ("N'cdc', N'change_tables', @role_name = NULL", 22974, "Tables contained in the cdc schema"),
        ("N'dbo', N't', @role_name = N''", 22907, "Parameter @role_name cannot be empty."),
        (f"N'dbo', N't', N'{'x' * 101}', @role_name = NULL", 22927, "exceeds the length limit of 100 characters."),
        ("N'dbo', N'heap', @supports_net_changes = 1, @role_name = NULL", 22939, "@supports_net_changes is set to 1"),
        ("N'dbo', N't', @role_name = NULL, @index_name = N'absent'", 22928, "Index name 'absent' is not an index"),
        ("N'dbo', N't', @role_name = NULL, @index_name = N'ix_plain'", 22929, "either a primary key or a unique"),
        ("N'dbo', N't', @role_name = NULL, @index_name = N'ux_nullable'", 22838, "must be defined as NOT NULL."),
        ("N'dbo', N't', @role_name = NULL, @captured_column_list = N'id, absent'", 22930, "Could not locate 'absent'"),
        ("N'dbo', N't', @role_name = NULL, @captured_column_list = N'[id'", 22965, "is not properly terminated."),
        ("N'dbo', N't', @role_name = NULL, @captured_column_list = N'v', @supports_net_changes = 1", 22943, ""),
        ("N'dbo', N't', @role_name = NULL, @filegroup_name = N'absent'", 22973, "The specified filegroup 'absent'"),
        ("N'dbo', N'reserved', @role_name = NULL", 22975, "one of the following reserved column names"),
        ("N'dbo', N'wide', @role_name = NULL", 22865, "exceeds the limit of 14 columns."),
        ("N'dbo', N'twice', N'third', @role_name = NULL", 22962, "'dbo.twice'. A table can have at most two capture"),
        ("N'dbo', N't', N'SECOND', @role_name = NULL", 22926, "capture instance name"),
        ("N'dbo', N't', @role_name = N'DOMAIN\\role'", 22938, "Role name 'DOMAIN\\role' is invalid."),
        ("N'dbo', N't', @role_name = NULL, @captured_column_list = N' , '", 22942, ""),
    ],
)
def test_argument_of_enable_table_is_refused(refusing: Source, arguments: str, number: int, text: str) -> None:
    error = refusing.admin.error(f"{_ENABLE} {arguments}")
    assert (error.number, error.severity, error.state, error.procedure) == (number, 16, 1, _INNER)
    assert text in error.text
    assert refusing.admin.rows(
        f"DECLARE @r int; BEGIN TRY EXEC @r = sys.sp_cdc_enable_table {arguments} END TRY"
        " BEGIN CATCH SELECT ERROR_NUMBER(), ERROR_SEVERITY(), ERROR_STATE() END CATCH"
    ) == [(number, 16, 1)]


def test_nine_parameters_are_given_by_position(source: Source) -> None:
    source.admin.run(
        "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, u int NOT NULL, v int)",
        "CREATE UNIQUE INDEX ux ON dbo.t (u)",
        f"{_ENABLE} N'dbo', N't', N'named', 1, N'gate', N'ux', N'[u], \"v\"', N'PRIMARY', 1",
    )
    (row,) = source.admin.query("EXEC sys.sp_cdc_help_change_data_capture")
    assert (row["capture_instance"], row["supports_net_changes"], row["role_name"], row["index_name"]) == (
        "named",
        True,
        "gate",
        "ux",
    )
    assert (row["captured_column_list"], row["index_column_list"], row["filegroup_name"]) == (
        "[u], [v]",
        "[u]",
        "PRIMARY",
    )


def test_extended_handling_of_ddl_is_refused_after_rights_and_database(source: Source, server: Server) -> None:
    """See docs/reference/sqlserver_cdc.md, "Enabling a table": undocumented, and behind a switch."""
    call = f"{_ENABLE} N'dbo', N'absent', @role_name = NULL, @enable_extended_ddl_handling = 1"
    assert source.admin.error(call).number == 22874
    reader = source.log_in()
    assert reader.error(call).number == 22904
    reader.close()
    with new_database(server, with_cdc=False) as plain:
        assert plain.admin.error(call).number == 22901


def test_failed_call_returns_one(refusing: Source) -> None:
    reply = refusing.admin.send(
        "DECLARE @r int; EXEC @r = sys.sp_cdc_enable_table N'dbo', N'x', @role_name = NULL; SELECT @r"
    )
    assert reply.results[-1].rows == [(1,)]


@pytest.mark.parametrize("missing", ["N'dbo', N't'", "@source_name = N't', @role_name = NULL"])
def test_required_parameters_are_error_201(refusing: Source, missing: str) -> None:
    error = refusing.admin.error(f"{_ENABLE} {missing}")
    assert (error.number, error.severity, error.state) == (201, 16, 4)


def test_enable_table_checks_rights_before_the_database(server: Server) -> None:
    with new_database(server, with_cdc=False) as plain:
        reader = plain.log_in()
        arguments = "N'dbo', N't', @role_name = NULL"
        denied = reader.error(f"{_ENABLE} {arguments}")
        assert (denied.number, denied.severity, denied.state) == (22904, 16, 1)
        off = plain.admin.error(f"{_ENABLE} {arguments}")
        assert (off.number, off.severity, off.state) == (22901, 16, 1)
        assert plain.admin.error("EXEC sys.sp_cdc_disable_table N'dbo', N't', N'all'").number == 22901
        assert reader.error("EXEC sys.sp_cdc_disable_table N'dbo', N't', N'all'").number == 22904
        reader.close()


def test_database_owner_who_is_not_sysadmin_may_enable_a_table(source: Source) -> None:
    owner = source.log_in()
    source.admin.run(
        f"ALTER ROLE db_owner ADD MEMBER [{source.logins[-1]}]", "CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)"
    )
    owner.run(f"{_ENABLE} N'dbo', N't', @role_name = NULL")
    assert len(owner.query("EXEC sys.sp_cdc_help_change_data_capture")) == 1
    owner.close()


def test_first_table_brings_both_jobs_and_says_so(source: Source) -> None:
    """G25 (R) SCR."""
    source.admin.run("CREATE TABLE dbo.a (id int NOT NULL PRIMARY KEY)", "CREATE TABLE dbo.b (id int NOT NULL)")
    first = source.admin.send(f"{_ENABLE} N'dbo', N'a', @role_name = NULL")
    assert [m.text for m in first.messages] == [
        "Update mask evaluation will be disabled in net_changes_function because the CLR configuration option is"
        " disabled.",
        f"Job 'cdc.{source.name}_capture' started successfully.",
        f"Job 'cdc.{source.name}_cleanup' started successfully.",
    ]
    assert (first.messages[0].number, first.messages[0].severity) == (22969, 0)
    assert source.admin.send(f"{_ENABLE} N'dbo', N'b', @role_name = NULL").messages == []


def test_partition_switch_is_ignored_with_a_warning_where_there_are_no_partitions(source: Source) -> None:
    source.admin.run("CREATE TABLE dbo.t (id int NOT NULL)")
    reply = source.enable("t", allow_partition_switch="0")
    assert (reply.infos[0].number, reply.infos[0].severity) == (22857, 0)


def test_defaults_of_an_instance(source: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "Enabling a table": net changes where there is a key, the name made of
    schema and table, the key's index."""
    source.admin.run(
        "CREATE TABLE dbo.keyed (id int NOT NULL, CONSTRAINT pk_keyed PRIMARY KEY (id))",
        "CREATE TABLE dbo.loose (id int NOT NULL)",
        "CREATE UNIQUE INDEX ux ON dbo.loose (id)",
    )
    source.enable("keyed")
    source.enable("loose")
    source.enable("loose", capture_instance="N'by_index  '", index_name="N'ux'")
    rows = source.admin.rows(
        "SELECT capture_instance, supports_net_changes, index_name, filegroup_name, role_name, partition_switch,"
        " version, end_lsn FROM cdc.change_tables ORDER BY create_date"
    )
    assert rows == [
        ("dbo_keyed", True, "pk_keyed", None, None, True, 0, None),
        ("dbo_loose", False, None, None, None, True, 0, None),
        ("by_index", True, "ux", None, None, True, 0, None),
    ]
    assert source.admin.error("SELECT * FROM cdc.fn_cdc_get_net_changes_dbo_loose(0x01, 0x01, N'all')").number == 208


def test_instance_brings_a_change_table_and_functions(source: Source) -> None:
    source.admin.run("CREATE TABLE dbo.t (id int IDENTITY NOT NULL PRIMARY KEY, v varchar(10) NOT NULL)")
    source.enable("t")
    admin = source.admin
    assert admin.rows("SELECT is_ms_shipped, is_tracked_by_cdc FROM sys.tables WHERE name = N'dbo_t_CT'") == [
        (True, False)
    ]
    assert admin.rows("SELECT is_tracked_by_cdc FROM sys.tables WHERE name = N't'") == [(True,)]
    functions = "SELECT name, type, is_ms_shipped FROM sys.objects WHERE name LIKE N'fn[_]cdc%' ORDER BY name"
    assert admin.rows(functions) == [
        ("fn_cdc_get_all_changes_dbo_t", "IF", False),
        ("fn_cdc_get_net_changes_dbo_t", "IF", False),
    ]


def test_change_table_has_a_clustered_unique_index_in_the_order_of_changes(source: Source) -> None:
    source.admin.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    source.enable("t")
    rows = source.admin.rows(
        "SELECT i.type_desc, i.is_unique, c.name FROM sys.indexes i"
        " JOIN sys.index_columns ic ON ic.object_id = i.object_id AND ic.index_id = i.index_id"
        " JOIN sys.columns c ON c.object_id = i.object_id AND c.column_id = ic.column_id"
        " WHERE i.object_id = OBJECT_ID(N'cdc.dbo_t_CT') AND i.index_id = 1 ORDER BY ic.key_ordinal"
    )
    assert rows == [
        ("CLUSTERED", True, name) for name in ("__$start_lsn", "__$command_id", "__$seqval", "__$operation")
    ]


def test_role_is_made_where_it_is_missing(source: Source) -> None:
    source.admin.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    source.enable("t", role_name="N'gate'")
    assert source.admin.rows("SELECT type FROM sys.database_principals WHERE name = N'gate'") == [("R",)]
    source.enable("t", role_name="N'gate'", capture_instance="N'second'")
    assert [row["role_name"] for row in source.admin.query("EXEC sys.sp_cdc_help_change_data_capture")] == ["gate"] * 2


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        ("N'dbo', N'absent', N'all'", 22931),
        ("N'dbo', N'untracked', N'all'", 22985),
        ("N'dbo', N't', N'other'", 22960),
        ("N'dbo', N't', NULL", 22963),
    ],
)
def test_argument_of_disable_table_is_refused(shared: Source, arguments: str, number: int) -> None:
    if shared.admin.scalar("OBJECT_ID(N'dbo.t')") is None:
        shared.admin.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)", "CREATE TABLE dbo.untracked (id int)")
        shared.enable("t")
    error = shared.admin.error(f"EXEC sys.sp_cdc_disable_table {arguments}")
    assert (error.number, error.severity, error.state) == (number, 16, 1)


def test_disabled_instance_is_gone_at_once_with_its_history(source: Source) -> None:
    admin = source.admin
    admin.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY)")
    source.enable("t")
    source.enable("t", capture_instance="N'second'")
    admin.run("ALTER TABLE dbo.t ADD v int NULL", "INSERT dbo.t (id) VALUES (1)")
    source.scan()
    assert len(admin.rows("SELECT * FROM cdc.ddl_history")) == 2
    admin.run("EXEC sys.sp_cdc_disable_table N'dbo', N't', N'DBO_T'")
    assert len(admin.rows("SELECT * FROM cdc.ddl_history")) == 1
    error = admin.error("SELECT * FROM cdc.fn_cdc_get_all_changes_dbo_t(0x01, 0x01, N'all')")
    assert (error.number, error.text) == (208, "Invalid object name 'cdc.fn_cdc_get_all_changes_dbo_t'.")
    assert admin.scalar("sys.fn_cdc_get_min_lsn(N'dbo_t')") == bytes(10)
    assert admin.rows("SELECT is_tracked_by_cdc FROM sys.tables WHERE name = N't'") == [(True,)]
    admin.run("EXEC sys.sp_cdc_disable_table N'dbo', N't', N'all'")
    assert admin.rows("SELECT is_tracked_by_cdc FROM sys.tables WHERE name = N't'") == [(False,)]
    assert admin.rows("SELECT * FROM cdc.lsn_time_mapping") == []


def test_metadata_is_changed_by_one_session_at_a_time(source: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "Errors": 22840 when the lock is not granted in time."""
    source.admin.run(*(f"CREATE TABLE dbo.{name} (id int NOT NULL PRIMARY KEY)" for name in "ab"))
    source.enable("a")
    first = source.server.connect(source.name)
    first.run("BEGIN TRAN", "EXEC sys.sp_cdc_disable_table N'dbo', N'a', N'all'")
    for call in (
        f"{_ENABLE} N'dbo', N'b', @role_name = NULL",
        "EXEC sys.sp_cdc_disable_table N'dbo', N'a', N'all'",
        "EXEC sys.sp_cdc_disable_db",
    ):
        error = source.admin.error(f"SET LOCK_TIMEOUT 50; {call}")
        assert (error.number, error.severity, error.state) == (22840, 16, 1)
        assert "The value returned from the request was -1:" in error.text
    first.run("ROLLBACK")
    first.close()
    source.admin.run(f"SET LOCK_TIMEOUT -1; {_ENABLE} N'dbo', N'b', @role_name = NULL")


@pytest.mark.parametrize(
    ("call", "number", "subject"),
    [
        ("sp_cdc_disable_table N'dbo', N'a', N'all'", 22833, "table [dbo].[a] is not enabled"),
        ("sp_cdc_disable_db", 22831, "database {0} is not enabled"),
    ],
)
def test_disabling_waits_for_a_reader_and_quotes_why_it_failed(
    source: Source, call: str, number: int, subject: str
) -> None:
    """See docs/reference/sqlserver_cdc.md, "Disabling a database", "Disabling a table": a long open reader is in the
    way."""
    source.admin.run("CREATE TABLE dbo.a (id int NOT NULL PRIMARY KEY)")
    source.enable("a")
    reader = source.server.connect(source.name)
    reader.run("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN TRAN; SELECT * FROM cdc.dbo_a_CT")
    error = source.admin.error(f"SET LOCK_TIMEOUT 50; EXEC sys.{call}")
    assert (error.number, error.severity, error.state) == (number, 16, 1)
    assert f"indicates {subject.format(source.name)} for Change Data Capture. The failure occurred" in error.text
    assert source.admin.rows("SELECT is_tracked_by_cdc FROM sys.tables WHERE name = N'a'") == [(True,)]
    reader.run("ROLLBACK")
    reader.close()
    source.admin.run(f"SET LOCK_TIMEOUT -1; EXEC sys.{call}")


def test_enabling_waits_for_a_transaction_that_wrote_the_table(source: Source) -> None:
    """See docs/reference/sqlserver_cdc.md, "Enabling a table" (MCP23)."""
    source.admin.run(*(f"CREATE TABLE dbo.{name} (id int NOT NULL PRIMARY KEY)" for name in "ab"))
    source.enable("a")
    writer = source.server.connect(source.name)
    writer.run("BEGIN TRAN", "INSERT dbo.b VALUES (1)")
    enable = f"{_ENABLE} N'dbo', N'b', @role_name = NULL"
    error = source.admin.error(f"SET LOCK_TIMEOUT 50; {enable}")
    assert (error.number, error.severity, error.state, error.procedure) == (22832, 16, 1, _INNER)
    assert error.text.startswith("Could not update the metadata that indicates table [dbo].[b] is enabled for Change")
    assert "The error returned was 1222: '" in error.text
    writer.run("COMMIT")
    writer.close()
    source.admin.run(f"SET LOCK_TIMEOUT -1; {enable}")
    source.scan()
    assert source.changes("dbo_b") == []
