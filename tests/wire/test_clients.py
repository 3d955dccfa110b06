"""The whole emulator under real, unmodified drivers: one body of tests, the same for each of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy

from emulator_process import Emulator

DATABASE = "Clients"
OFFSET = timezone(timedelta(hours=-3, minutes=-30))

# declared type, literal, what a driver must return
TYPES: list[tuple[str, str, object]] = [
    ("bit", "1", True),
    ("tinyint", "255", 255),
    ("smallint", "-32768", -32768),
    ("int", "-2147483648", -2147483648),
    ("bigint", "9223372036854775807", 9223372036854775807),
    ("decimal(18,2)", "-9999999999999999.99", Decimal("-9999999999999999.99")),
    (
        "numeric(38,10)",
        "1234567890123456789012345678.0123456789",
        Decimal("1234567890123456789012345678.0123456789"),
    ),
    ("money", "-922337203685477.5808", Decimal("-922337203685477.5808")),
    ("smallmoney", "214748.3647", Decimal("214748.3647")),
    ("real", "1.5", 1.5),
    ("float", "-1.7976931348623157E308", -1.7976931348623157e308),
    ("date", "'0001-01-01'", date(1, 1, 1)),
    ("time(6)", "'23:59:59.999999'", time(23, 59, 59, 999999)),
    ("datetime2(7)", "'9999-12-31 23:59:59.999999'", datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ("datetime2(0)", "'0001-01-01 00:00:00'", datetime(1, 1, 1)),
    (
        "datetimeoffset(6)",
        "'2024-02-29 12:30:00.000001 -03:30'",
        datetime(2024, 2, 29, 12, 30, 0, 1, OFFSET),
    ),
    ("datetime", "'1753-01-01 23:59:59.997'", datetime(1753, 1, 1, 23, 59, 59, 997000)),
    ("smalldatetime", "'2079-06-06 23:59'", datetime(2079, 6, 6, 23, 59)),
    ("char(5)", "'abc'", "abc  "),
    ("varchar(20)", "'Größe €'", "Größe €"),
    ("varchar(max)", "replicate(cast('ü' as varchar(max)), 9000)", "ü" * 9000),
    ("nchar(4)", "N'日本'", "日本  "),
    ("nvarchar(20)", "N'naïve 🌊'", "naïve 🌊"),
    ("nvarchar(max)", "replicate(cast(N'é' as nvarchar(max)), 5000)", "é" * 5000),
    ("sysname", "N'dbo'", "dbo"),
    ("binary(4)", "0x0001FEFF", b"\x00\x01\xfe\xff"),
    ("varbinary(10)", "0x", b""),
    ("varbinary(max)", "0x" + "00FF" * 5000, b"\x00\xff" * 5000),
    ("uniqueidentifier", "'12345678-9ABC-DEF0-1234-56789ABCDEF0'", UUID("12345678-9abc-def0-1234-56789abcdef0")),
    ("xml", "N'<a>é</a>'", "<a>é</a>"),
    ("text", "'old text'", "old text"),
    ("ntext", "N'old é'", "old é"),
    ("image", "0x89504E47", b"\x89PNG"),
]


@dataclass(frozen=True)
class Client:
    """A driver. ``mark`` is its sign for a parameter."""

    mark: str
    connect: Callable[..., Any]


def _sqlalchemy_connection(server: Emulator, database: str) -> Any:
    url = sqlalchemy.URL.create(
        "mssql+pymssql", server.user, server.password, server.host, server.port, database, {"charset": "utf8"}
    )
    return sqlalchemy.create_engine(url, poolclass=sqlalchemy.NullPool).raw_connection()


CLIENTS = {
    "pymssql": Client("%s", lambda server, database: server.connect_pymssql(database)),
    "mssql-python-tls": Client("?", lambda server, database: server.connect_mssql_python(database, encrypt="yes")),
    "mssql-python-plain": Client("?", lambda server, database: server.connect_mssql_python(database, encrypt="no")),
    "sqlalchemy-pymssql": Client("%s", _sqlalchemy_connection),
}


@pytest.fixture(scope="module")
def server(emulator: Emulator) -> Iterator[Emulator]:
    connection = emulator.connect_pymssql("master", autocommit=True)
    connection.cursor().execute(f"IF DB_ID('{DATABASE}') IS NULL CREATE DATABASE {DATABASE}")
    connection.close()
    yield emulator


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Client:
    return CLIENTS[request.param]


@pytest.fixture
def connection(client: Client, server: Emulator) -> Iterator[Any]:
    connection = client.connect(server, DATABASE)
    yield connection
    with contextlib.suppress(Exception):  # a test may have broken it
        connection.rollback()
    connection.close()


@pytest.fixture
def table(server: Emulator, request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty table (Id int identity primary key, Name nvarchar(50) not null unique)."""
    admin = server.connect_pymssql(DATABASE, autocommit=True)
    admin.cursor().execute("DROP TABLE IF EXISTS dbo.Things")
    admin.cursor().execute(
        "CREATE TABLE dbo.Things (Id int IDENTITY PRIMARY KEY, Name nvarchar(50) NOT NULL CONSTRAINT UQ_Name UNIQUE)"
    )
    admin.close()
    yield "dbo.Things"


def rows_of(connection: Any, statement: str, *parameters: object) -> list[tuple[object, ...]]:
    cursor = connection.cursor()
    cursor.execute(statement, parameters) if parameters else cursor.execute(statement)
    rows = [tuple(row) for row in cursor.fetchall()]
    cursor.close()
    return rows


def error_of(statement: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:
        statement()
    return str(caught.value)


def names_in(server: Emulator) -> list[object]:
    other = server.connect_pymssql(DATABASE)
    names = [row[0] for row in rows_of(other, "SELECT Name FROM dbo.Things ORDER BY Name")]
    other.close()
    return names


def test_login_is_in_the_database_it_asked_for(connection: Any) -> None:
    assert rows_of(connection, "SELECT DB_NAME(), SUSER_SNAME()") == [(DATABASE, "sa")]


def test_a_wrong_password_is_refused_with_18456(client: Client, server: Emulator) -> None:
    stranger = Emulator(**{**vars(server), "password": "wrong"})
    # pymssql shows the text of the first refusal in a process only, but always the number.
    assert_refused(client, stranger, DATABASE, "18456|Login failed for user 'sa'")


def test_an_unknown_database_is_refused_with_4060(client: Client, server: Emulator) -> None:
    # As from the real server 18456 follows 4060, and pymssql and msodbcsql18 show what is more severe: 18456.
    assert_refused(client, server, "Nowhere", 'Login failed for user|18456|Cannot open database "Nowhere"')


def assert_refused(client: Client, server: Emulator, database: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        client.connect(server, database)


@pytest.mark.parametrize(("declared", "literal", "value"), TYPES, ids=[declared for declared, _, _ in TYPES])
def test_a_type_comes_back_as_it_went_in(connection: Any, declared: str, literal: str, value: object) -> None:
    cursor = connection.cursor()
    cursor.execute(f"CREATE TABLE #t (Id int NOT NULL PRIMARY KEY, Value {declared} NULL)")
    cursor.execute(f"INSERT INTO #t (Id, Value) VALUES (1, {literal}), (2, NULL)")
    assert rows_of(connection, "SELECT Value FROM #t ORDER BY Id") == [(value,), (None,)]
    assert rows_of(connection, "SELECT Value FROM #t WHERE Id > 2") == []
    cursor.execute("DROP TABLE #t")


def test_all_types_come_back_in_one_row(connection: Any) -> None:
    columns = ", ".join(f"c{i} {declared} NULL" for i, (declared, _, _) in enumerate(TYPES))
    cursor = connection.cursor()
    cursor.execute(f"CREATE TABLE #all (Id int NOT NULL, {columns}, Version rowversion)")
    names = ", ".join(f"c{i}" for i in range(len(TYPES)))
    values = ", ".join(literal for _, literal, _ in TYPES)
    cursor.execute(f"INSERT INTO #all (Id, {names}) VALUES (1, {values})")
    cursor.execute("INSERT INTO #all (Id) VALUES (2)")
    full, empty = rows_of(connection, "SELECT * FROM #all ORDER BY Id")
    assert full[1:-1] == tuple(value for _, _, value in TYPES)
    assert empty[1:-1] == (None,) * len(TYPES)
    assert isinstance(full[-1], bytes)
    assert len(full[-1]) == 8
    assert full[-1] < empty[-1]


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ("int", 5),
        ("bigint", -(2**40)),
        ("nvarchar(50)", "O'Brien é 🌊"),
        ("nvarchar(50)", ""),
        ("decimal(18,2)", Decimal("-12.50")),
        ("float", 0.1),
        ("bit", True),
        ("datetime2(3)", datetime(2024, 1, 2, 3, 4, 5, 120000)),
        ("date", date(2024, 2, 29)),
        ("uniqueidentifier", UUID("12345678-9abc-def0-1234-56789abcdef0")),
        ("varbinary(10)", bytearray(b"\x00\xff")),
        ("int", None),
    ],
)
def test_a_parameter_arrives_as_it_was_given(connection: Any, client: Client, declared: str, value: object) -> None:
    assert rows_of(connection, f"SELECT CAST({client.mark} AS {declared})", value) == [(value,)]


def test_rows_are_found_by_parameters(connection: Any, client: Client, table: str) -> None:
    cursor = connection.cursor()
    cursor.executemany(f"INSERT INTO {table} (Name) VALUES ({client.mark})", [("a",), ("é",), ("日本",)])
    assert rows_of(connection, f"SELECT Name FROM {table} WHERE Name = {client.mark}", "日本") == [("日本",)]
    for name in ("a", "é", "b"):
        found = rows_of(connection, f"SELECT COUNT(*) FROM {table} WHERE Name = {client.mark} OR Id = 0", name)
        assert found == [(int(name != "b"),)]


def test_row_counts_and_identity_are_told(connection: Any, table: str) -> None:
    cursor = connection.cursor()
    cursor.execute(f"INSERT INTO {table} (Name) VALUES (N'a'), (N'b'), (N'c')")
    assert cursor.rowcount == 3
    assert rows_of(connection, "SELECT @@ROWCOUNT, CAST(SCOPE_IDENTITY() AS int)") == [(3, 3)]
    cursor.execute(f"UPDATE {table} SET Name = Name + N'x' WHERE Id < 3")
    assert cursor.rowcount == 2
    cursor.execute(f"DELETE FROM {table}")
    assert cursor.rowcount == 3


def test_several_results_come_one_after_the_other(connection: Any, table: str) -> None:
    cursor = connection.cursor()
    cursor.execute(
        f"SELECT 1 AS a; INSERT INTO {table} (Name) VALUES (N'x'); SELECT N'zwei' AS b, 2 AS c; PRINT 'done'"
    )
    results = []
    while True:
        if cursor.description:
            results.append(([column[0] for column in cursor.description], [tuple(row) for row in cursor.fetchall()]))
        if not cursor.nextset():
            break
    assert results == [(["a"], [(1,)]), (["b", "c"], [("zwei", 2)])]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT * FROM dbo.Missing", "Invalid object name 'dbo.Missing'"),
        ("SELECT Missing FROM dbo.Things", "Invalid column name 'Missing'"),
        ("SELEC 1", "Incorrect syntax near|Could not find stored procedure"),
        ("SELECT 1/0", "Divide by zero error encountered"),
        ("INSERT INTO dbo.Things (Name) VALUES (NULL)", "Cannot insert the value NULL into column 'Name'"),
        ("INSERT INTO dbo.Things (Name) VALUES (N'a'), (N'a')", "Violation of UNIQUE KEY constraint 'UQ_Name'"),
        ("RAISERROR('my own words', 16, 1)", "my own words"),
        ("THROW 51000, 'thrown', 1", "thrown"),
        ("EXEC dbo.NoSuchProcedure", "Could not find stored procedure 'dbo.NoSuchProcedure'"),
    ],
)
def test_an_error_is_raised_in_the_servers_words(connection: Any, table: str, statement: str, message: str) -> None:
    def run() -> None:
        cursor = connection.cursor()
        cursor.execute(statement)
        cursor.fetchall()

    with pytest.raises(Exception, match=message):
        run()
    assert rows_of(connection, "SELECT 1") == [(1,)]


def test_a_commit_is_seen_by_others_and_a_rollback_is_not(connection: Any, server: Emulator, table: str) -> None:
    cursor = connection.cursor()
    cursor.execute(f"INSERT INTO {table} (Name) VALUES (N'kept')")
    connection.commit()
    cursor.execute(f"INSERT INTO {table} (Name) VALUES (N'lost')")
    connection.rollback()
    cursor.execute(f"INSERT INTO {table} (Name) VALUES (N'also kept')")
    connection.commit()
    assert names_in(server) == ["also kept", "kept"]


def test_an_error_ends_the_statement_and_not_the_transaction(connection: Any, server: Emulator, table: str) -> None:
    cursor = connection.cursor()
    cursor.execute(f"INSERT INTO {table} (Name) VALUES (N'first')")
    error_of(lambda: cursor.execute(f"INSERT INTO {table} (Name) VALUES (N'first')"))
    cursor = connection.cursor()
    cursor.execute(f"INSERT INTO {table} (Name) VALUES (N'second')")
    assert rows_of(connection, "SELECT @@TRANCOUNT") == [(1,)]
    connection.commit()
    assert names_in(server) == ["first", "second"]


def test_closing_without_commit_rolls_back(client: Client, server: Emulator, table: str) -> None:
    connection = client.connect(server, DATABASE)
    connection.cursor().execute(f"INSERT INTO {table} (Name) VALUES (N'lost')")
    connection.close()
    assert names_in(server) == []


def test_a_large_result_may_be_left_unread(connection: Any, table: str) -> None:
    cursor = connection.cursor()
    many = "WITH n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 300000) SELECT i, N'{}' AS t FROM n"
    cursor.execute(many.format("x" * 30) + " OPTION (MAXRECURSION 0)")
    assert tuple(cursor.fetchone()) == (1, "x" * 30)
    cursor.close()
    assert rows_of(connection, "SELECT 2") == [(2,)]
    connection.cursor().execute(f"INSERT INTO {table} (Name) VALUES (N'after')")
    connection.commit()


def test_long_text_and_bytes_travel_in_both_directions(connection: Any, client: Client) -> None:
    text = "🌊é" * 100_000
    [row] = rows_of(connection, f"SELECT LEN({client.mark}) AS n, {client.mark} AS t", text, text)
    assert row == (300_000, text)


def test_another_database_can_be_used(connection: Any) -> None:
    connection.cursor().execute("USE master")
    assert rows_of(connection, "SELECT DB_NAME()") == [("master",)]
    connection.cursor().execute(f"USE {DATABASE}")
    assert rows_of(connection, "SELECT DB_NAME()") == [(DATABASE,)]
