"""Spark's own JDBC source with mssql-jdbc, both unmodified: schemas, values, filters, partitions, and writing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from itertools import count
from typing import Any

import pytest

from jdbc_jvm import Jdbc

# py4j leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

# declared type, literal, Spark's type, the value as Spark casts it to a string (binary: in hexadecimal digits)
TYPES: list[tuple[str, str, str, str]] = [
    ("bit", "1", "boolean", "true"),
    ("tinyint", "255", "smallint", "255"),
    ("smallint", "-32768", "smallint", "-32768"),
    ("int", "-2147483648", "int", "-2147483648"),
    ("bigint", "9223372036854775807", "bigint", "9223372036854775807"),
    ("decimal(18,2)", "-9999999999999999.99", "decimal(18,2)", "-9999999999999999.99"),
    ("numeric(38,10)", "1234567890123456789012345678.0123456789", "decimal(38,10)", ""),
    ("money", "-922337203685477.5808", "decimal(19,4)", "-922337203685477.5808"),
    ("smallmoney", "214748.3647", "decimal(10,4)", "214748.3647"),
    ("real", "1.5", "float", "1.5"),
    ("float", "-1.7976931348623157E308", "double", "-1.7976931348623157E308"),
    ("date", "'0001-01-01'", "date", "0001-01-01"),
    # Spark asks the driver for a java.sql.Time, which has whole seconds.
    ("time(6)", "'23:59:58'", "timestamp", "1970-01-01 23:59:58"),
    ("datetime2(7)", "'9999-12-31 23:59:59.999999'", "timestamp", "9999-12-31 23:59:59.999999"),
    ("datetime2(0)", "'0001-01-01'", "timestamp", "0001-01-01 00:00:00"),
    ("datetimeoffset(6)", "'2024-02-29 12:30:00.000001 -03:30'", "timestamp", "2024-02-29 16:00:00.000001"),
    ("datetime", "'1753-01-01 23:59:59.997'", "timestamp", "1753-01-01 23:59:59.997"),
    ("smalldatetime", "'2079-06-06 23:59'", "timestamp", "2079-06-06 23:59:00"),
    ("char(5)", "'abc'", "string", "abc  "),
    ("varchar(20)", "'Größe €'", "string", "Größe €"),
    ("varchar(max)", "replicate(cast('ü' as varchar(max)), 9000)", "string", "ü" * 9000),
    ("nchar(4)", "N'日本'", "string", "日本  "),
    ("nvarchar(20)", "N'naïve 🌊'", "string", "naïve 🌊"),
    ("nvarchar(max)", "replicate(cast(N'é' as nvarchar(max)), 5000)", "string", "é" * 5000),
    ("sysname", "N'dbo'", "string", "dbo"),
    ("binary(4)", "0x0001FEFF", "binary", "0001FEFF"),
    ("varbinary(10)", "0x", "binary", ""),
    ("varbinary(max)", "0x" + "00FF" * 5000, "binary", "00FF" * 5000),
    ("uniqueidentifier", "'12345678-9ABC-DEF0-1234-56789ABCDEF0'", "string", "12345678-9ABC-DEF0-1234-56789ABCDEF0"),
    ("xml", "N'<a>é</a>'", "string", "<a>é</a>"),
    ("text", "'old text'", "string", "old text"),
    ("ntext", "N'old é'", "string", "old é"),
    ("image", "0x89504E47", "binary", "89504E47"),
]
_names = count(1)


@pytest.fixture(scope="module")
def source(jdbc: Jdbc) -> Iterator[Any]:
    connection = jdbc.emulator.connect_pymssql(jdbc.database, autocommit=True)
    yield connection.cursor()
    connection.close()


@pytest.fixture
def make_table(source: Any) -> Callable[[str], str]:
    """Make a table with these columns; its name."""

    def make(columns: str) -> str:
        name = f"dbo.Spark{next(_names)}"
        source.execute(f"CREATE TABLE {name} ({columns})")
        return name

    return make


def rows_of(source: Any, statement: str) -> list[tuple[object, ...]]:
    source.execute(statement)
    return source.fetchall()


@pytest.fixture(scope="module")
def numbers(source: Any) -> str:
    source.execute("CREATE TABLE dbo.Numbers (Id int NOT NULL PRIMARY KEY, Name nvarchar(10), At datetime2(3))")
    source.execute(
        "WITH n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 100) INSERT INTO dbo.Numbers"
        " SELECT i, CONCAT(N'é', i % 10), DATEADD(hour, i, '2024-01-01') FROM n"
    )
    return "dbo.Numbers"


def test_spark_reads_every_type_with_its_own_type_and_value(
    jdbc: Jdbc, source: Any, make_table: Callable[[str], str]
) -> None:
    columns = ", ".join(f"c{i} {declared} NULL" for i, (declared, _, _, _) in enumerate(TYPES))
    table = make_table(f"Id int NOT NULL PRIMARY KEY, {columns}, Version rowversion")
    names = ", ".join(f"c{i}" for i in range(len(TYPES)))
    source.execute(f"INSERT INTO {table} (Id, {names}) VALUES (1, {', '.join(literal for _, literal, _, _ in TYPES)})")
    source.execute(f"INSERT INTO {table} (Id) VALUES (2)")
    frame = jdbc.read(dbtable=table)
    assert frame.dtypes == [
        ("Id", "int"),
        *((f"c{i}", kind) for i, (_, _, kind, _) in enumerate(TYPES)),
        ("Version", "binary"),
    ]
    as_text = [f"hex({name})" if kind == "binary" else f"CAST({name} AS string)" for name, kind in frame.dtypes]
    full, empty = frame.orderBy("Id").selectExpr(*as_text).collect()
    expected = [text or literal if kind.startswith("decimal") else text for _, literal, kind, text in TYPES]
    assert list(full)[1:-1] == expected
    assert list(empty)[1:-1] == [None] * len(TYPES)
    assert len(full[-1]) == 16
    assert full[-1] < empty[-1]


def test_spark_pushes_filters_down_to_the_server(jdbc: Jdbc, numbers: str) -> None:
    frame = jdbc.read(dbtable=numbers).where(
        "Id > 5 AND Name = 'é7' AND At >= TIMESTAMP '2024-01-02 00:00:00' AND Id NOT IN (27, 37) AND Name LIKE 'é%'"
    )
    plan = frame._jdf.queryExecution().executedPlan().toString()
    for pushed in ("GreaterThan(Id,5)", "EqualTo(Name,é7)", "GreaterThanOrEqual(At,", "Not(In(Id", "StringStartsWith"):
        assert pushed in plan
    assert sorted(row.Id for row in frame.select("Id").collect()) == [47, 57, 67, 77, 87, 97]
    assert jdbc.read(dbtable=numbers).where("Id <= 42").count() == 42


def test_spark_reads_in_partitions_by_a_number_and_by_a_time(jdbc: Jdbc, numbers: str) -> None:
    for column, low, high in (("Id", "1", "100"), ("At", "2024-01-01 00:00:00", "2024-01-05 04:00:00")):
        frame = jdbc.read(dbtable=numbers, partitionColumn=column, lowerBound=low, upperBound=high, numPartitions="4")
        assert frame.rdd.getNumPartitions() == 4
        assert sorted(row.Id for row in frame.collect()) == list(range(1, 101))


def test_spark_reads_a_query_of_changes(jdbc: Jdbc, source: Any, make_table: Callable[[str], str]) -> None:
    source.execute("SELECT is_cdc_enabled FROM sys.databases WHERE database_id = DB_ID()")
    if source.fetchone() == (False,):
        source.execute("EXEC sys.sp_cdc_enable_db")
    table = make_table("Id int NOT NULL PRIMARY KEY, Name nvarchar(20)")
    schema, name = table.split(".")
    source.execute(
        f"EXEC sys.sp_cdc_enable_table @source_schema = '{schema}', @source_name = '{name}', @role_name = NULL"
    )
    source.execute(f"INSERT INTO {table} VALUES (1, N'ä'), (2, N'b')")
    source.execute("EXEC sys.sp_cdc_stop_job 'capture'")
    source.execute("EXEC sys.sp_cdc_scan")
    window = f"sys.fn_cdc_get_min_lsn('dbo_{name}'), sys.fn_cdc_get_max_lsn()"
    changes = f"cdc.fn_cdc_get_all_changes_dbo_{name}({window}, N'all')"
    frame = jdbc.read(query=f"SELECT [__$operation] AS op, Id, Name FROM {changes}")
    assert sorted(tuple(row) for row in frame.collect()) == [(2, 1, "ä"), (2, 2, "b")]


def test_spark_appends_overwrites_and_truncates(jdbc: Jdbc, source: Any) -> None:
    table = f"dbo.Spark{next(_names)}"
    frame = jdbc.session.createDataFrame(
        [(1, "ä", Decimal("1.50"), True, 2.5, b"\x00\xff"), (2, None, None, None, None, None)],
        "Id int NOT NULL, Name string, Price decimal(10,2), Flag boolean, Share double, Bytes binary",
    )
    expected = [(1, "ä", Decimal("1.50"), True, 2.5, b"\x00\xff"), (2, None, None, None, None, None)]
    jdbc.writer(frame, table, "append").save()
    assert rows_of(source, f"SELECT * FROM {table} ORDER BY Id") == expected
    jdbc.writer(frame, table, "append", batchsize="1").save()
    assert rows_of(source, f"SELECT COUNT(*) FROM {table}") == [(4,)]
    jdbc.writer(frame.where("Id = 1"), table, "overwrite").save()
    assert rows_of(source, f"SELECT * FROM {table}") == expected[:1]
    source.execute(f"ALTER TABLE {table} ADD Extra int NULL")
    jdbc.writer(frame, table, "overwrite", truncate="true", isolationLevel="READ_COMMITTED").save()
    assert rows_of(source, f"SELECT Id, Extra FROM {table} ORDER BY Id") == [(1, None), (2, None)]
    with pytest.raises(Exception, match="already exists"):
        jdbc.writer(frame, table, "error").save()


def test_spark_writes_from_several_tasks_at_once(jdbc: Jdbc, source: Any) -> None:
    table = f"dbo.Spark{next(_names)}"
    jdbc.writer(jdbc.session.range(0, 5000, 1, 2).selectExpr("id", "repeat('ü', 10) AS t"), table, "append").save()
    assert rows_of(source, f"SELECT COUNT(*), SUM(id), MIN(t) FROM {table}") == [(5000, 12497500, "ü" * 10)]


def test_spark_writes_in_bulk(jdbc: Jdbc, source: Any, make_table: Callable[[str], str]) -> None:
    table = make_table(
        "id bigint NOT NULL PRIMARY KEY, t nvarchar(20) NULL, d decimal(12,2) NULL, at datetime2(6) NULL"
    )
    frame = jdbc.session.range(0, 5000, 1, 2).selectExpr(
        "id",
        "CASE WHEN id % 2 = 0 THEN concat('ü', id) END AS t",
        "CAST(id / 4 AS decimal(12,2)) AS d",
        "timestamp_micros(id * 1000001) AS at",
    )
    jdbc.writer(frame, table, "append", useBulkCopyForBatchInsert="true", batchsize="2000").save()
    summed = f"SELECT COUNT(*), COUNT(t), SUM(d), MAX(at) FROM {table}"
    assert rows_of(source, summed) == [(5000, 2500, Decimal("3124375.00"), datetime(1970, 1, 1, 1, 23, 19, 4999))]
    with pytest.raises(Exception, match="Violation of PRIMARY KEY constraint"):
        jdbc.writer(frame, table, "append", useBulkCopyForBatchInsert="true").save()
    assert rows_of(source, f"SELECT COUNT(*) FROM {table}") == [(5000,)]
