"""Small inputs that broke other tools, by public reports: names, values, DDL and transactions, through whole runs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from decimal import Decimal, localcontext
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from switch_rig import SwitchRig

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.naming import map_columns
from floodmark.core.position import Interval
from floodmark.core.schema import TableName, quote
from floodmark.core.settings import (
    Deletes,
    FirstLoad,
    Naming,
    OnFailure,
    PipelineSettings,
    Rule,
    TableSettings,
    TemporalPolicy,
)
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.release import PostgresQuarantine
from floodmark.postgres.warehouse.sink import ArrowSession
from floodmark.sources.cdc.operations import SqlServerReplaySource
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sync.replay import Replay
from tracking_rig import tracked_tables, tracking_rig

COLUMN_NAMES = [
    "No_", "Qty. (Base)", "Humidity(%)", "%", "%s", "%(x)s", 'a"b', "x]y", "$systemId", "{curly}", "{0}", " leading",
    "tab\tname", "it's", "back\\slash", "t", "d", "g", "q", "key", "user", "order", "SELECT", "a,b", "a;b", "é", "表",
    "?", "a.b", "a`b", "--x", "/*c*/", "rule", "lsn", "row_data", "window_id", "line\nbreak", "old", "excluded", "part",
]  # fmt: skip
TABLE_NAMES = [
    "Inc$Location$01234567-89ab-cdef-0123-456789abcdef", "a.b", "it's", "100%", "x]y", 'q"q', "表", "{t}",
    "Order Details", "T" * 90, "ü" * 60, "select", "t ", "a?b", "--c",
]  # fmt: skip
VALUES = {
    "bit": "1", "tinyint": "255", "bigint": "9223372036854775807", "money": "-922337203685477.5808",
    "decimal(38,10)": "-1234567890123456789012345678.0123456789", "real": "3.4E38", "float": "-1.7976931348623157E308",
    "date": "'0001-01-01'", "datetime": "'9999-12-31 23:59:59.997'", "datetime2(7)": "'0001-01-01 00:00:00.1234567'",
    "smalldatetime": "'2079-06-06 23:59'", "time(7)": "'23:59:59.9999999'", "char(5)": "'ab'", "varchar(max)": "'€'",
    "datetimeoffset(7)": "'0001-01-01 14:00:00.1234567 +14:00'", "varchar(10)": "'a\"b''\\'", "nchar(3)": "N'表'",
    "nvarchar(20)": "N'😀 \u2028{}'", "text": "'t'", "ntext": "N'n'", "binary(4)": "0x0100", "varbinary(8)": "0x",
    "varbinary(max)": "0x00FF", "image": "0x01", "uniqueidentifier": "'12345678-9abc-def0-1234-56789abcdef0'",
    "xml": "N'<a/>'",
}  # fmt: skip
KEYS = {
    "real": ["1.1", "-2.5", "3.4E38", "0", "0.30000001"],
    "money": ["922337203685477.5807", "0.0001", "1"],
    "decimal(38,0)": ["99999999999999999999999999999999999999", "0", "5"],
    "char(5)": ["'a'", "'é'", "'z'"],
    "datetime": ["'2024-01-01 00:00:00.003'", "'2024-01-01 00:00:00.007'", "'1753-01-01'"],
    "time(7)": ["'00:00:00.0000001'", "'00:00:00.0000002'"],
    "nvarchar(20)": ["N'😀'", "N'a'", "N''"],
    "bit": ["0", "1"],
    "varbinary(8)": ["0x01", "0xFFFF", "0x"],
}


def bracketed(name: str) -> str:
    return "[" + name.replace("]", "]]") + "]"


def in_text(name: str) -> str:
    return name.replace("'", "''")


def table(source: str, target: str = "", schema: str = "dbo", **chosen: Any) -> TableSettings:
    return TableSettings(TableName(schema, source), TableName("shop", target or source.lower()), **chosen)


def rule(sql: str, name: str = "mine") -> Rule:
    return Rule(name, sql, OnFailure.QUARANTINE)


def pipeline(
    emulator: Emulator, source: CdcDatabase, warehouse: WarehouseConnection, *tables: TableSettings
) -> SwitchRig:
    made = SwitchRig(emulator, source, warehouse)
    made.pipelines = [PipelineSettings("shop", tables)]
    made.tables = {"shop": tables[0].source}
    return made


def verdicts(rig: SwitchRig) -> dict[str, str]:
    return dict(rig.rows("SELECT source_name, verdict FROM floodmark.verdicts"))


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        yield made


@contextmanager
def database_named(emulator: Emulator, name: str) -> Iterator[CdcDatabase]:
    with emulator.connect_pymssql("master", autocommit=True) as server:
        with server.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {bracketed(name)}")
        with emulator.connect_pymssql("master", autocommit=True) as connection:
            made = CdcDatabase(name, connection)
            made.run(f"USE {bracketed(name)}", "EXEC sys.sp_cdc_enable_db")
            yield made
            made.run("USE master")
        with server.cursor() as cursor:
            cursor.execute(f"ALTER DATABASE {bracketed(name)} SET SINGLE_USER WITH ROLLBACK IMMEDIATE")
            cursor.execute(f"DROP DATABASE {bracketed(name)}")


@pytest.mark.parametrize("naming", Naming)
@pytest.mark.parametrize("deletes", Deletes)
def test_columns_of_any_name_are_loaded_judged_and_followed(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection, naming: Naming, deletes: Deletes
) -> None:
    in_target = {each.source: each.target for each in map_columns(naming, ["Id", *COLUMN_NAMES])}
    columns = ", ".join(f"{bracketed(name)} nvarchar(40)" for name in COLUMN_NAMES)
    source.run(f"CREATE TABLE dbo.T (Id int PRIMARY KEY, {columns}, L nvarchar(max))")
    values = ", ".join(f"N'v{number}'" for number in range(len(COLUMN_NAMES)))
    source.run(*(f"INSERT dbo.T VALUES ({key}, {values}, N'l')" for key in (1, 2, 3)))
    source.enable("T")
    judged = [quote(in_target.get(name, name)) for name in COLUMN_NAMES]
    rules = tuple(rule(f"{name} <> 'bad'", f"r{number}") for number, name in enumerate(judged))
    first_load = FirstLoad(chunk_rows=2)
    chosen = table("T", rules=rules, first_load=first_load, deletes=deletes, naming=naming)
    rig = pipeline(emulator, source, database, chosen)
    rig.run()
    places = range(len(COLUMN_NAMES))
    bad = [", ".join("N'bad'" if place == each else "N'v'" for each in places) for place in places]
    rig.change(*(f"INSERT dbo.T VALUES ({100 + place}, {row}, NULL)" for place, row in enumerate(bad)))
    rig.change("DELETE dbo.T WHERE Id = 2", f"UPDATE dbo.T SET {bracketed('%')} = N'good', L = N'new' WHERE Id = 3")
    rig.run()
    assert rig.rows("SELECT count(DISTINCT rule) FROM floodmark.quarantine") == [(len(COLUMN_NAMES),)]
    source.run("DELETE dbo.T WHERE Id >= 100")
    assert rig.differing() == []


def test_tables_of_any_name_are_loaded_and_followed(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection
) -> None:
    tables = []
    for number, name in enumerate(TABLE_NAMES):
        source.run(f"CREATE TABLE dbo.{bracketed(name)} (Id int PRIMARY KEY, A int, L nvarchar(max))")
        source.run(f"INSERT dbo.{bracketed(name)} VALUES (1, 1, N'l')")
        source.enable(in_text(name))
        target = name if len(name.encode()) <= 63 else f"t{number}"
        tables.append(table(name, target, rules=(rule("A <> 99"),)))
    rig = pipeline(emulator, source, database, *tables)
    rig.run()
    for name in TABLE_NAMES:
        source.run(f"INSERT dbo.{bracketed(name)} VALUES (3, 3, NULL)", f"UPDATE dbo.{bracketed(name)} SET A = 5")
    source.scan()
    rig.run()
    assert rig.differing() == []
    assert rig.rows("SELECT count(*) FROM floodmark.window_tables WHERE read_rows = 3") == [(len(TABLE_NAMES),)]


@pytest.mark.parametrize("name", ["Base-Library$Test", "my db.v2", "a]b;c{x}", "名前", "tail "])
def test_database_and_schema_of_any_name_are_followed(
    emulator: Emulator, database: WarehouseConnection, name: str
) -> None:
    schema = f"it's {name} 100%"
    with database_named(emulator, name) as source:
        source.run(
            f"CREATE SCHEMA {bracketed(schema)}",
            f"CREATE TABLE {bracketed(schema)}.T (Id int PRIMARY KEY, L nvarchar(max))",
            f"EXEC sys.sp_cdc_enable_table N'{in_text(schema)}', N'T', @role_name = NULL",
            "EXEC sys.sp_cdc_stop_job",
        )
        source.scan()
        settings = TableSettings(TableName(schema, "T"), TableName(schema, "t"))
        rig = pipeline(emulator, source, database, settings)
        rig.run()
        rig.change(f"INSERT {bracketed(schema)}.T VALUES (2, N'x')")
        rig.run()
        assert rig.rows(f"SELECT count(*) FROM {quote(schema)}.t") == [(1,)]
        assert rig.differing() == []


def test_table_with_special_characters_is_switched_to_a_second_instance(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection
) -> None:
    name = "x]y {0} it's"
    source.run(f"CREATE TABLE dbo.{bracketed(name)} (Id int PRIMARY KEY, A int)")
    source.run(f"INSERT dbo.{bracketed(name)} VALUES (1, 1)")
    source.enable(in_text(name))
    rig = pipeline(emulator, source, database, table(name, name))
    rig.run()
    source.run(f"ALTER TABLE dbo.{bracketed(name)} ADD {bracketed(name)} nvarchar(20) NOT NULL DEFAULT N'd'")
    rig.change(f"INSERT dbo.{bracketed(name)} (Id, A) VALUES (3, 3)")
    rig.watch_closely()
    rig.run()
    rig.approve()
    for _ in range(12):
        if not rig.switches.take():
            break
        source.scan()
        if rig.pinned() is not None:
            rig.change(f"UPDATE dbo.{bracketed(name)} SET A = A + 1")
        rig.run()
        rig.finish(rig.load_planner().open_pending())
    assert rig.instances() == [f"dbo_{name}_2"]
    rig.change(f"UPDATE dbo.{bracketed(name)} SET A = A + 1")
    rig.run()
    assert rig.differing() == []


def test_tables_that_cannot_be_planned_or_made_stop_no_other(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection
) -> None:
    """A key that is not captured or computed, and two columns that are one in the warehouse."""
    source.run(
        "CREATE TABLE dbo.NotCaptured (Id int PRIMARY KEY, A int)",
        "CREATE TABLE dbo.Computed (A int NOT NULL, K AS (A * 10) PERSISTED NOT NULL PRIMARY KEY)",
        f"CREATE TABLE dbo.Long (Id int PRIMARY KEY, [{'x' * 63}_a] int, [{'x' * 63}_b] int)",
        "CREATE TABLE dbo.Good (Id int PRIMARY KEY)",
        "INSERT dbo.Good VALUES (1)",
    )
    source.enable("NotCaptured", captured_column_list="N'A'", supports_net_changes="0")
    names = ("NotCaptured", "Computed", "Long", "Good")
    for name in names[1:]:
        source.enable(name)
    rig = pipeline(emulator, source, database, *(table(name) for name in names))
    rig.run()
    assert verdicts(rig) == {
        "NotCaptured": "not_plannable",
        "Computed": "not_plannable",
        "Long": "refused",
        "Good": "not_started",
    }
    assert rig.rows('SELECT "Id" FROM shop.good') == [(1,)]


@pytest.mark.parametrize("sql", ["100 / A >= 0", "CAST(S AS integer) > 0"])
def test_rule_that_fails_on_one_value_stops_its_table_until_the_value_is_right(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection, sql: str
) -> None:
    source.run(
        "CREATE TABLE dbo.T (Id int PRIMARY KEY, A int, S nvarchar(10))", "CREATE TABLE dbo.U (Id int PRIMARY KEY)"
    )
    source.enable("T")
    source.enable("U")
    rig = pipeline(emulator, source, database, table("T", rules=(rule(sql),)), table("U"))
    rig.run()
    rig.change("INSERT dbo.T VALUES (3, 0, N'n/a')", "INSERT dbo.U VALUES (1)")
    rig.run()
    assert verdicts(rig) == {"T": "refused", "U": "ready"}
    assert rig.rows('SELECT "Id" FROM shop.u') == [(1,)]
    rig.change("UPDATE dbo.T SET A = 5, S = N'5' WHERE Id = 3")
    rig.run()
    assert rig.differing() == []


def test_clock_that_is_set_back_loses_no_change_and_no_replay(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection
) -> None:
    source.run("CREATE TABLE dbo.T (Id int PRIMARY KEY)", "INSERT dbo.T VALUES (1)")
    source.enable("T")
    rig = pipeline(emulator, source, database, table("T"))
    rig.run()
    try:
        for key, time in ((2, "12:00"), (3, "12:10"), (4, "11:15"), (5, "11:20")):
            source.run(f"EXEC emulator.set_clock '2026-06-01T{time}:00'")
            rig.change(f"INSERT dbo.T VALUES ({key})")
            rig.run()
        assert rig.differing() == []
        log = SqlServerReplaySource(rig.at)
        replay = Replay(rig.pipelines[0], SqlServerSource(rig.at), log, rig.ledger, rig.warehouse)
        found = replay.find_times(datetime(2026, 6, 1, 11, 55), datetime(2026, 6, 1, 12, 15))
        assert isinstance(found, Interval)
        commits = {row["Id"]: bytes(row["__$start_lsn"]) for row in source.change_table("dbo_T")}
        assert all(found.after.value < commits[key] <= found.to.value for key in (2, 3))
    finally:
        source.run("EXEC emulator.reset_clock")


def test_table_that_is_captured_by_another_unique_index_is_followed(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection
) -> None:
    source.run(
        "CREATE TABLE dbo.T (Id int PRIMARY KEY, Code varchar(10) NOT NULL, L nvarchar(max))",
        "CREATE UNIQUE INDEX ux ON dbo.T (Code)",
        "INSERT dbo.T VALUES (1, 'a', N'la'), (2, 'b', N'lb'), (3, 'c', N'lc')",
    )
    source.enable("T", index_name="N'ux'")
    rig = pipeline(emulator, source, database, table("T", deletes=Deletes.HARD, first_load=FirstLoad(chunk_rows=1)))
    rig.run()
    rig.change(
        "UPDATE dbo.T SET Code = CASE Code WHEN 'a' THEN 'b' WHEN 'b' THEN 'a' ELSE Code END",
        "UPDATE dbo.T SET Id = Id + 10",
        "DELETE dbo.T WHERE Code = 'b'",
        "INSERT dbo.T VALUES (99, 'b', NULL)",
    )
    rig.run()
    assert rig.differing() == []


def test_statements_over_all_rows_in_one_transaction_end_in_its_last_state(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection
) -> None:
    source.run("CREATE TABLE dbo.T (Id int PRIMARY KEY, V int)")
    source.run("INSERT dbo.T SELECT value, value FROM GENERATE_SERIES(1, 2000)")
    source.enable("T")
    rig = pipeline(emulator, source, database, table("T"))
    rig.run()
    rig.change(
        "BEGIN TRAN; UPDATE dbo.T SET V = V + 1; UPDATE dbo.T SET Id = Id + 1000000; UPDATE dbo.T SET V = V * 2;"
        " DELETE dbo.T WHERE Id % 2 = 0; COMMIT"
    )
    rig.run()
    assert rig.rows("SELECT count(*) FROM shop.t WHERE NOT __deleted") == [(1000,)]
    assert rig.differing() == []


def test_merge_statement_is_followed_by_change_tracking(emulator: Emulator, database: WarehouseConnection) -> None:
    made = (
        "CREATE TABLE dbo.T (Id int PRIMARY KEY, A int)",
        "INSERT dbo.T VALUES (1, 1), (2, 2)",
        "ALTER TABLE dbo.T ENABLE CHANGE_TRACKING",
    )
    with tracking_rig(emulator, database, tracked_tables("T"), made) as rig:
        rig.sync()
        rig.run(
            "MERGE dbo.T AS t USING (VALUES (1, 5), (9, 9)) AS s (Id, A) ON t.Id = s.Id WHEN MATCHED THEN UPDATE"
            " SET A = s.A WHEN NOT MATCHED BY TARGET THEN INSERT (Id, A) VALUES (s.Id, s.A)"
            " WHEN NOT MATCHED BY SOURCE THEN DELETE;"
        )
        rig.sync()
        assert rig.rows('SELECT "Id", "A" FROM shop.t WHERE NOT __deleted ORDER BY 1') == [(1, 5), (9, 9)]
        assert rig.differing() == []


@pytest.mark.parametrize("temporal", TemporalPolicy)
def test_values_of_every_type_come_out_of_quarantine_as_they_went_in(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection, temporal: TemporalPolicy
) -> None:
    columns = ", ".join(f"C{number} {kind}" for number, kind in enumerate(VALUES))
    source.run(f"CREATE TABLE dbo.T (Id int PRIMARY KEY, Flag int, {columns}, v rowversion)")
    names = "Id, Flag, " + ", ".join(f"C{number}" for number in range(len(VALUES)))
    rows = [
        f"INSERT dbo.T ({names}) VALUES ({key}, {flag}, {', '.join(VALUES.values())})"
        for key, flag in ((1, 1), (2, -1), (3, -1), (4, 1))
    ]
    source.run(*rows[:2])
    source.enable("T")
    chosen = table("T", rules=(rule("Flag > 0"),), temporal=temporal)
    rig = pipeline(emulator, source, database, chosen)
    rig.run()
    rig.change(*rows[2:], "UPDATE dbo.T SET Flag = -1 WHERE Id = 1")
    rig.run()
    assert PostgresQuarantine(database).release("shop", replace(chosen, rules=()), "operator").released == 3
    assert rig.differing() == []


def test_columns_of_alias_types_and_sparse_columns_are_followed(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection
) -> None:
    source.run(
        "CREATE TYPE dbo.Code FROM varchar(20) NOT NULL",
        "CREATE TYPE dbo.Price FROM money",
        "CREATE TYPE dbo.Long FROM nvarchar(max)",
        "CREATE TABLE dbo.T (Id dbo.Code PRIMARY KEY, A dbo.Price, L dbo.Long, Y sysname NULL,"
        " S int SPARSE NULL, D varbinary(max) SPARSE NULL)",
        "INSERT dbo.T VALUES ('a', -922337203685477.5808, N'long', N'sys', 1, 0x01), ('c', 1, NULL, NULL, NULL, NULL)",
    )
    source.enable("T")
    rig = pipeline(emulator, source, database, table("T"))
    rig.run()
    rig.change(
        "UPDATE dbo.T SET A = 1.0001, S = NULL, D = NULL WHERE Id = 'a'",
        "UPDATE dbo.T SET S = 5, D = 0x02 WHERE Id = 'c'",
        "INSERT dbo.T VALUES ('b', NULL, NULL, NULL, NULL, NULL)",
        "UPDATE dbo.T SET L = NULL WHERE Id = 'a'",
    )
    rig.run()
    assert rig.differing() == []


def test_keys_of_every_type_are_chunked_updated_and_deleted(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection
) -> None:
    tables = []
    for number, (kind, values) in enumerate(KEYS.items()):
        source.run(f"CREATE TABLE dbo.T{number} (K {kind} NOT NULL, J int NOT NULL, V int, PRIMARY KEY (K, J))")
        rows = ", ".join(f"({value}, {each}, 0)" for value in values for each in (1, 2))
        source.run(f"INSERT dbo.T{number} VALUES {rows}")
        source.enable(f"T{number}")
        tables.append(table(f"T{number}", first_load=FirstLoad(chunk_rows=1)))
    rig = pipeline(emulator, source, database, *tables)
    rig.run()
    assert rig.differing() == []
    for number in range(len(KEYS)):
        source.run(f"DELETE dbo.T{number} WHERE J = 1", f"UPDATE dbo.T{number} SET V = -1")
    source.scan()
    rig.run()
    assert rig.differing() == []


@pytest.mark.parametrize(("precision", "scale"), [(18, 6), (19, 4), (38, 0), (38, 38), (38, 10), (28, 3), (5, 5)])
def test_decimals_arrive_through_copy_with_every_group_of_digits(
    database: WarehouseConnection, precision: int, scale: int
) -> None:
    """A writer of this format once lost groups of zeros."""
    drawn, units = random.Random(5), {0, 1, -1, 10**precision - 1}
    additions = (0, 1, -1, 7 * 10 ** (scale // 2))
    units |= {m * 10**k + each for k in range(precision) for m in (1, 5, -3) for each in additions}
    units |= {
        drawn.randint(-(10**precision), 10**precision) // 10**z * 10**z for z in range(precision) for _ in range(50)
    }
    with localcontext(prec=80):
        values = [Decimal(unit).scaleb(-scale) for unit in sorted(units) if abs(unit) < 10**precision]
    column = pa.array([f"{value:f}" for value in values]).cast(pa.decimal128(precision, scale))
    batch = pa.record_batch({"i": pa.array(range(len(values)), pa.int32()), "v": column})
    with psycopg.connect(database.conninfo(), autocommit=True) as session:
        session.execute(f"CREATE TABLE d (i int, v numeric({precision},{scale}))")
        with ArrowSession(database, "d") as sink:
            sink.copy(TableName("public", "d"), batch.schema, [batch])
            sink.commit()
        found = dict(session.execute("SELECT i, v FROM d").fetchall())
    assert [value for number, value in enumerate(values) if found[number] != value] == []
