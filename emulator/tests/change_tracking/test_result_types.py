"""The columns of Change Tracking's results on the wire: names, types, lengths, order."""

from __future__ import annotations

import pytest

from emulator_process import Emulator
from sql_client import SqlClient

_DESCRIBED = """
SELECT name, system_type_name FROM sys.dm_exec_describe_first_result_set(N'{}', NULL, 0)
ORDER BY column_ordinal
"""


@pytest.fixture
def keyed(client: SqlClient) -> SqlClient:
    """A connection, and dbo.keyed, whose key has its columns in another order than the table."""
    client.run("DROP TABLE IF EXISTS dbo.keyed")
    client.run(
        "CREATE TABLE dbo.keyed (id int, k varchar(5), at datetimeoffset(3), n decimal(9, 2), u uniqueidentifier,"
        " d datetime2(7), a int, PRIMARY KEY (k, id, at, n, u, d))"
    )
    client.run("ALTER TABLE dbo.keyed ENABLE CHANGE_TRACKING WITH (TRACK_COLUMNS_UPDATED = ON)")
    return client


_KEY = [
    ("k", "varchar(5)"),
    ("id", "int"),
    ("at", "datetimeoffset(3)"),
    ("n", "decimal(9,2)"),
    ("u", "uniqueidentifier"),
    ("d", "datetime2(7)"),
]


def test_columns_of_changes(keyed: SqlClient) -> None:
    assert keyed.rows(_DESCRIBED.format("SELECT * FROM CHANGETABLE(CHANGES dbo.keyed, 0) AS c")) == [
        ("SYS_CHANGE_VERSION", "bigint"),
        ("SYS_CHANGE_CREATION_VERSION", "bigint"),
        ("SYS_CHANGE_OPERATION", "nchar(1)"),
        ("SYS_CHANGE_COLUMNS", "varbinary(4100)"),
        ("SYS_CHANGE_CONTEXT", "varbinary(128)"),
        *_KEY,
    ]


def test_columns_of_version(keyed: SqlClient) -> None:
    row = "(k, id, at, n, u, d), (''a'', 1, ''2020-01-01'', 1, NEWID(), ''2020-01-01'')"
    assert keyed.rows(_DESCRIBED.format(f"SELECT * FROM CHANGETABLE(VERSION dbo.keyed, {row}) AS c")) == [
        ("SYS_CHANGE_VERSION", "bigint"),
        ("SYS_CHANGE_CONTEXT", "varbinary(128)"),
        *_KEY,
    ]


def test_types_of_functions(client: SqlClient) -> None:
    query = (
        "SELECT CHANGE_TRACKING_CURRENT_VERSION() AS a, CHANGE_TRACKING_MIN_VALID_VERSION(1) AS b,"
        " CHANGE_TRACKING_IS_COLUMN_IN_MASK(1, NULL) AS c"
    )
    types = client.rows(_DESCRIBED.format(query))
    assert types == [("a", "bigint"), ("b", "bigint"), ("c", "bit")]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (
            "sys.change_tracking_databases",
            "database_id int, is_auto_cleanup_on bit, retention_period int, retention_period_units tinyint,"
            " retention_period_units_desc nvarchar(60), max_cleanup_version bigint",
        ),
        (
            "sys.change_tracking_tables",
            "object_id int, is_track_columns_updated_on bit, min_valid_version bigint, begin_version bigint,"
            " cleanup_version bigint",
        ),
        (
            "sys.dm_tran_commit_table",
            "commit_ts bigint, xdes_id bigint, commit_lbn bigint, commit_csn bigint, commit_time datetime",
        ),
        (
            "dbo.MSchange_tracking_history",
            "table_name nvarchar(128), start_time datetime, end_time datetime, rows_cleaned_up bigint,"
            " cleanup_version bigint, comments nvarchar(4000)",
        ),
    ],
)
def test_types_of_views(client: SqlClient, view: str, expected: str) -> None:
    rows = client.rows(_DESCRIBED.format(f"SELECT * FROM {view}"))
    assert ", ".join(f"{name} {type}" for name, type in rows) == expected


def test_values_of_every_key_type_arrive_as_they_are(keyed: SqlClient) -> None:
    key = (
        "'a', 1, '2020-01-02 03:04:05.678 +02:00', 1.25, '6F9619FF-8B86-D011-B42D-00C04FC964FF',"
        " '2020-01-02 03:04:05.1234567'"
    )
    base = keyed.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()")
    keyed.run(f"INSERT dbo.keyed (k, id, at, n, u, d) VALUES ({key}); UPDATE dbo.keyed SET id = 2")
    found = keyed.rows(
        "SELECT c.SYS_CHANGE_OPERATION, c.k, c.id, CONVERT(varchar(40), c.at, 121), c.n, CONVERT(varchar(36), c.u),"
        f" CONVERT(varchar(40), c.d, 121), t.id FROM CHANGETABLE(CHANGES dbo.keyed, {base}) AS c"
        " LEFT JOIN dbo.keyed AS t ON t.k = c.k AND t.id = c.id AND t.at = c.at AND t.n = c.n AND t.u = c.u"
        " AND t.d = c.d"
        " ORDER BY c.id"
    )
    same = (
        "2020-01-02 03:04:05.678 +02:00",
        "1.25",
        "6F9619FF-8B86-D011-B42D-00C04FC964FF",
        "2020-01-02 03:04:05.1234567",
    )
    rows = [(op, k, number, (at, str(n), u.upper(), d), live) for op, k, number, at, n, u, d, live in found]
    assert rows == [("D", "a", 1, same, None), ("I", "a", 2, same, 2)]


def test_driver_gets_the_values_in_its_own_types(keyed: SqlClient, emulator: Emulator, database: str) -> None:
    base = keyed.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()")
    key = "'a', 1, '2020-01-02', 1.25, '6F9619FF-8B86-D011-B42D-00C04FC964FF', '2020-01-02'"
    keyed.run(f"INSERT dbo.keyed (k, id, at, n, u, d) VALUES ({key})")
    keyed.run("WITH CHANGE_TRACKING_CONTEXT (0x0102) UPDATE dbo.keyed SET a = 1")
    with emulator.connect_mssql_python(database, autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT c.* FROM CHANGETABLE(CHANGES dbo.keyed, ?) AS c", (base + 1,))
        columns = [column[0] for column in cursor.description]
        (row,) = cursor.fetchall()
    assert columns[:5] == [
        "SYS_CHANGE_VERSION",
        "SYS_CHANGE_CREATION_VERSION",
        "SYS_CHANGE_OPERATION",
        "SYS_CHANGE_COLUMNS",
        "SYS_CHANGE_CONTEXT",
    ]
    assert tuple(row)[:7] == (base + 2, None, "U", None, b"\x01\x02", "a", 1)
