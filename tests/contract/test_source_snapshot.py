"""SqlServerSource over the wire: what it says of a source, and how what goes wrong is named."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cdc_database import CdcDatabase, cdc_database, wait_until
from emulator_process import Emulator
from floodmark.core.errors import (
    CdcNotEnabledError,
    FloodmarkBugError,
    SourceLoginError,
    SourceUnavailableError,
    WindowExpiredError,
)
from floodmark.core.position import Lsn, NoPosition
from floodmark.core.schema import SourceColumn, TableName
from floodmark.core.snapshot import TableSnapshot
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.sqlserver.driver import SourceSession, SqlServerConnection, connect

ORDERS = TableName("dbo", "Orders")
PLAIN = TableName("dbo", "Plain")
NOWHERE = TableName("dbo", "Nowhere")
_COLUMNS_OF_AN_INSTANCE = 15


@pytest.fixture(scope="module")
def database(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        made.run(
            "CREATE TABLE dbo.Orders (Id int IDENTITY NOT NULL PRIMARY KEY, Amount decimal(18,2), Note nvarchar(max),"
            " Code nvarchar(20) NOT NULL, At datetime2(7), Rv rowversion)",
            "CREATE TABLE dbo.Lines (OrderId int NOT NULL, Line int NOT NULL, PRIMARY KEY (OrderId, Line))",
            "CREATE TABLE dbo.Plain (Id int PRIMARY KEY)",
        )
        made.enable("Orders")
        made.enable("Lines")
        yield made


@pytest.fixture(scope="module")
def at(emulator: Emulator, database: CdcDatabase) -> SqlServerConnection:
    return SqlServerConnection(
        emulator.host, emulator.port, database.name, emulator.user, emulator.password, ca_file=str(emulator.ca_file)
    )


def _table_snapshot(at: SqlServerConnection, table: TableName, pinned: str | None = None) -> TableSnapshot:
    instances = {table: pinned} if pinned else None
    return SqlServerSource(at).read_snapshot([table], instances).tables[0]


def test_snapshot_describes_the_captured_columns_and_the_key(at: SqlServerConnection) -> None:
    instance = _table_snapshot(at, ORDERS).feed
    assert instance is not None
    assert instance.table.columns == (
        SourceColumn("Id", "int", 1, precision=10, nullable=False),
        SourceColumn("Amount", "decimal", 2, precision=18, scale=2),
        SourceColumn("Note", "nvarchar", 3, max_length=-1),
        SourceColumn("Code", "nvarchar", 4, max_length=20, nullable=False),
        SourceColumn("At", "datetime2", 5, precision=27, scale=7),
        SourceColumn("Rv", "timestamp", 6, nullable=False),
    )
    assert instance.table.key == ("Id",)
    assert (instance.identity.name, instance.has_command_id, instance.supports_net_changes) == (
        "dbo_Orders",
        True,
        True,
    )


def test_snapshot_reads_a_composite_key_in_key_order(at: SqlServerConnection) -> None:
    instance = _table_snapshot(at, TableName("dbo", "Lines")).feed
    assert instance is not None
    assert instance.table.key == ("OrderId", "Line")


def test_snapshot_follows_the_log(at: SqlServerConnection, database: CdcDatabase) -> None:
    database.run("INSERT INTO dbo.Orders (Code) VALUES (N'a')")
    database.scan()
    snapshot = SqlServerSource(at).read_snapshot([ORDERS])
    table_seen = snapshot.tables[0]
    assert snapshot.newest == Lsn(database.scalar("sys.fn_cdc_get_max_lsn()"))
    assert table_seen.last_change == snapshot.newest
    assert table_seen.oldest == Lsn(database.scalar("sys.fn_cdc_get_min_lsn(N'dbo_Orders')"))
    assert snapshot.seconds_behind is not None
    assert 0 <= snapshot.seconds_behind < 60


def test_snapshot_sees_that_the_capture_job_is_stopped(at: SqlServerConnection) -> None:
    # The fixture has stopped it; the agent takes its time to say so.
    wait_until(lambda: SqlServerSource(at).read_snapshot([ORDERS]).capture_running is False)


def test_job_with_a_schedule_of_its_own_is_not_said_to_stand_still_between_two_scans(
    at: SqlServerConnection, database: CdcDatabase
) -> None:
    assert SqlServerSource(at).read_snapshot([ORDERS]).capture_running is False
    database.run("EXEC sys.sp_cdc_change_job @job_type = N'capture', @continuous = 0")
    assert SqlServerSource(at).read_snapshot([ORDERS]).capture_running is None
    database.run("EXEC sys.sp_cdc_change_job @job_type = N'capture', @continuous = 1")


def test_snapshot_distinguishes_a_table_without_capture_from_one_that_does_not_exist(at: SqlServerConnection) -> None:
    plain, nowhere = SqlServerSource(at).read_snapshot([PLAIN, NOWHERE]).tables
    assert (plain.exists, plain.permitted, plain.feed) == (True, True, None)
    assert (nowhere.exists, nowhere.feed) == (False, None)


def test_snapshot_reads_the_pinned_instance_and_never_another(at: SqlServerConnection) -> None:
    assert _table_snapshot(at, ORDERS, "dbo_Orders").feed is not None
    gone = _table_snapshot(at, ORDERS, "dbo_Orders_gone")
    assert (gone.exists, gone.permitted, gone.feed) == (True, True, None)


def test_snapshot_of_a_database_without_cdc_says_so(emulator: Emulator, at: SqlServerConnection) -> None:
    snapshot = SqlServerSource(replace(at, database=emulator.databases[-1])).read_snapshot([NOWHERE])
    assert (snapshot.cdc_enabled, snapshot.newest, snapshot.newest_at) == (False, NoPosition.NULL, None)


def test_snapshot_takes_two_statements_whose_texts_stay_the_same(
    at: SqlServerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []
    fetch_sets = SourceSession.fetch_sets

    def recorded(session: SourceSession, text: str, parameters: tuple[object, ...] = ()) -> list:
        texts.append(text)
        return fetch_sets(session, text, parameters)

    monkeypatch.setattr(SourceSession, "fetch_sets", recorded)
    for _ in range(2):
        SqlServerSource(at).read_snapshot([ORDERS, TableName("dbo", "Lines"), PLAIN])
    assert texts[:2] == texts[2:]


def test_snapshot_sees_a_cleanup_that_comes_between_its_two_statements(
    at: SqlServerConnection, database: CdcDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    for code in ("b", "c"):
        database.run(f"INSERT INTO dbo.Orders (Code) VALUES (N'{code}')")
        database.scan()
    fetch_sets = SourceSession.fetch_sets
    asked = []

    def cleaned_up(session: SourceSession, text: str, parameters: tuple[object, ...] = ()) -> list:
        if asked:
            database.run(
                "DECLARE @low binary(10) = sys.fn_cdc_get_max_lsn() "
                "EXEC sys.sp_cdc_cleanup_change_table N'dbo_Orders', @low"
            )
        asked.append(text)
        return fetch_sets(session, text, parameters)

    before = _table_snapshot(at, ORDERS)
    monkeypatch.setattr(SourceSession, "fetch_sets", cleaned_up)
    after = _table_snapshot(at, ORDERS)
    assert isinstance(before.oldest, Lsn)
    assert isinstance(after.oldest, Lsn)
    assert before.oldest < after.oldest == Lsn(database.scalar("sys.fn_cdc_get_min_lsn(N'dbo_Orders')"))
    assert len(asked) == 2


def test_snapshot_without_tables_is_one_statement_about_the_log(
    at: SqlServerConnection, database: CdcDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch_sets = SourceSession.fetch_sets
    rows = []

    def recorded(session: SourceSession, text: str, parameters: tuple[object, ...] = ()) -> list:
        sets = fetch_sets(session, text, parameters)
        rows.append([len(each) for each in sets])
        return sets

    monkeypatch.setattr(SourceSession, "fetch_sets", recorded)
    snapshot = SqlServerSource(at).read_snapshot(())
    assert snapshot.newest == Lsn(database.scalar("sys.fn_cdc_get_max_lsn()"))
    assert snapshot.tables == ()
    assert rows == [[1, 1, 0]]


def test_newest_change_is_never_above_the_position_of_the_snapshot(
    at: SqlServerConnection, database: CdcDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("INSERT INTO dbo.Orders (Code) VALUES (N'd')")
    database.scan()
    fetch_sets = SourceSession.fetch_sets
    asked = []

    def scanned(session: SourceSession, text: str, parameters: tuple[object, ...] = ()) -> list:
        if asked:
            database.run("INSERT INTO dbo.Orders (Code) VALUES (N'e')")
            database.scan()
        asked.append(text)
        return fetch_sets(session, text, parameters)

    monkeypatch.setattr(SourceSession, "fetch_sets", scanned)
    snapshot = SqlServerSource(at).read_snapshot([ORDERS])
    assert snapshot.tables[0].last_change == snapshot.newest
    assert isinstance(snapshot.newest, Lsn)
    assert snapshot.newest < Lsn(database.scalar("sys.fn_cdc_get_max_lsn()"))


def test_change_table_that_is_locked_is_not_known_to_be_quiet(at: SqlServerConnection, database: CdcDatabase) -> None:
    database.run("INSERT INTO dbo.Lines VALUES (70, 1)")
    database.scan()
    database.run("EXEC emulator.fail_statements @error = 1222, @table = N'dbo_Orders_CT'")
    try:
        orders, lines = SqlServerSource(at).read_snapshot([ORDERS, TableName("dbo", "Lines")]).tables
    finally:
        database.run("EXEC emulator.clear_faults")
    assert orders.last_change is None
    assert isinstance(orders.oldest, Lsn)
    assert lines.last_change == Lsn(database.scalar("sys.fn_cdc_get_max_lsn()"))


def test_snapshot_asks_the_catalog_for_the_wanted_tables_only(
    at: SqlServerConnection, database: CdcDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch_sets = SourceSession.fetch_sets
    received = []

    def recorded(session: SourceSession, text: str, parameters: tuple[object, ...] = ()) -> list:
        sets = fetch_sets(session, text, parameters)
        received.extend(row for rows in sets for row in rows)
        return sets

    monkeypatch.setattr(SourceSession, "fetch_sets", recorded)
    SqlServerSource(at).read_snapshot([ORDERS])
    wanted = {database.scalar(f"OBJECT_ID(N'{name}')") for name in ("dbo.Orders", "cdc.dbo_Orders_CT")}
    others = {database.scalar(f"OBJECT_ID(N'{name}')") for name in ("dbo.Lines", "cdc.dbo_Lines_CT", "dbo.Plain")}
    assert wanted <= {value for row in received for value in row}
    catalog = [row for row in received if len(row) != _COLUMNS_OF_AN_INSTANCE]
    assert not others & {value for row in catalog for value in row}


def test_tracked_table_is_found_in_another_case_than_the_servers(at: SqlServerConnection) -> None:
    found = _table_snapshot(at, TableName("DBO", "orders"))
    assert (found.exists, found.server_name) == (True, ORDERS)
    assert found.feed is not None
    assert found.max_column_id == 6


def test_login_with_a_wrong_password_is_refused(at: SqlServerConnection) -> None:
    with pytest.raises(SourceLoginError, match=r"Shop|Golden") as caught:
        connect(replace(at, password="wrong};{PWD=x"))
    assert "wrong" not in str(caught.value)


def test_login_to_a_database_that_is_not_there_is_refused(at: SqlServerConnection) -> None:
    with pytest.raises(SourceLoginError):
        connect(replace(at, database="NoSuchDatabase"))


def test_source_that_does_not_answer_is_unavailable_and_worth_a_retry(at: SqlServerConnection) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else takes the port
        with pytest.raises(SourceUnavailableError) as caught:
            connect(replace(at, host="127.0.0.1", port=taken.getsockname()[1]))
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("SELECT * FROM cdc.dbo_Gone_CT", CdcNotEnabledError),
        (
            "SELECT * FROM cdc.fn_cdc_get_all_changes_dbo_Orders"
            "(0x00000000000000000001, 0x00000000000000000002, N'all')",
            WindowExpiredError,
        ),
        ("SELECT 1/0", FloodmarkBugError),
    ],
)
def test_error_of_the_server_is_known_by_its_number(at: SqlServerConnection, text: str, kind: type) -> None:
    with connect(at, subject="dbo.Orders") as session:
        with pytest.raises(kind, match=r"^dbo\.Orders: "):
            session.fetch(text)
        with pytest.raises(kind, match=r"^dbo\.Orders: "):
            list(session.read_batches("dbo.Orders", text, (), 100))


def test_session_goes_on_after_an_error(at: SqlServerConnection) -> None:
    with connect(at) as session:
        with pytest.raises(FloodmarkBugError):
            session.fetch("SELECT 1/0")
        assert session.fetch("SELECT 7") == [(7,)]
