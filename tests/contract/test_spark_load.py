"""Whole loads with Spark: from an emulator through tasks of Spark, net changes and COPY into a real PostgreSQL.

Each test runs on Spark in a Java of the load's own. Those that cover what the engines do differently run behind a Spark
Connect server too: jobs with their results, small tables, chunks, a cut, and an error of a worker. There is one session
of each for the module.
"""

from __future__ import annotations

import contextlib
import hmac
import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc_database import CdcDatabase, cdc_database
from change_histories import assert_net_is_true, change_batch, histories_plan, random_history, shape_of
from connect_server import ConnectServer
from emulator_process import Emulator
from fleet_rig import FleetRig, fleet_settings
from floodmark.core.errors import CdcNotEnabledError, TargetRefusedError
from floodmark.core.plan import LoadChunk, WindowPlan, WindowState, staging_table
from floodmark.core.position import Version
from floodmark.core.schema import Operation, TableName, quote_table
from floodmark.core.settings import (
    REMOTE_VARIABLE,
    SOURCE_VARIABLE,
    ColumnSettings,
    FirstLoad,
    Mask,
    NetSource,
    PipelineSettings,
    Style,
    TableSettings,
    TemporalPolicy,
)
from floodmark.core.snapshot import Verdict
from floodmark.core.status import TableVerification
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.sink import PostgresSink
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sources.cdc import reader
from floodmark.sources.cdc.reader import open_cdc_reader, plan_cdc_reads
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.compact.reader import open_compact_reader, plan_compact_reads
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.spark import stager
from floodmark.spark.connect import open_connect_engine
from floodmark.spark.engine import Engine
from floodmark.spark.net import PACKED_SCHEMA, entries, gather_changes, pack, unpack
from floodmark.spark.stage import StageWriter
from floodmark.spark.stager import SparkStager
from floodmark.sync import load
from floodmark.sync.filters import parse_filter
from floodmark.sync.finish import advance_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.ports import StagedRows, StagingSink
from in_process_stager import no_engine
from refusing_sink import RefusingSink
from row_verification import verify_tables
from spark_engine import SUPPORT, classic_engine, stager_of_spark
from task_work import one_row_each
from tracking_rig import TrackingRig, tracked_tables, tracking_rig

# py4j leaves its sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

HISTORIES = 400
_tables = itertools.count(1)

EVERY_TYPE = (
    "Id int IDENTITY NOT NULL PRIMARY KEY, Big bigint, Small smallint, Tiny tinyint, Flag bit, Price decimal(18,2),"
    " Wide decimal(38,10), Cash money, Change smallmoney, Real4 real, Float8 float, Name nvarchar(50),"
    " Code varchar(20), Fixed nchar(6), Note nvarchar(max), Old ntext, Doc xml, Day date, Clock time(7),"
    " At datetime2(7), Moment datetime, Minute smalldatetime, Zoned datetimeoffset(7), Guid uniqueidentifier,"
    " Bytes varbinary(max), Bin binary(4), Version rowversion"
)
EVERY_VALUE = (
    "(Big, Small, Tiny, Flag, Price, Wide, Cash, Change, Real4, Float8, Name, Code, Fixed, Note, Old, Doc, Day, Clock,"
    " At, Moment, Minute, Zoned, Guid, Bytes, Bin) VALUES (9223372036854775807, -32768, 255, 1, -12345.67,"
    " 1234567890123456789012345678.0123456789, 922337203685477.5807, -214748.3648, 1.5, 0.1, N'näme 日本', 'code',"
    " N'abc', N'long', N'old', N'<a>b</a>', '9999-12-31', '23:59:59.9999999', '0001-01-01 00:00:00.1234567',"
    " '2026-01-01T12:00:00.997', '2026-01-01T12:34:00', '2026-06-01 12:00:00.1234567 -07:00',"
    " '6F9619FF-8B86-D011-B42D-00C04FC964FF', 0x00FF10, 0xDEADBEEF)"
)


@pytest.fixture(scope="module")
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        yield made


@pytest.fixture(scope="module")
def at(emulator: Emulator, source: CdcDatabase) -> SqlServerConnection:
    return SqlServerConnection(
        emulator.host, emulator.port, source.name, emulator.user, emulator.password, ca_file=str(emulator.ca_file)
    )


@contextlib.contextmanager
def connect_engine(log: Path) -> Iterator[Engine]:
    server = ConnectServer(log, PYTHONPATH=SUPPORT)
    with server.running(), pytest.MonkeyPatch.context() as patch:
        patch.setenv(REMOTE_VARIABLE, server.url)
        engine = open_connect_engine()
        yield engine
        engine.stop()


ON_BOTH_ENGINES = {
    "test_load_brings_the_target_to_the_state_of_the_table",
    "test_first_load_in_chunks_reads_every_row_once",
    "test_small_tables_are_staged_by_one_job_unless_they_are_large",
    "test_error_in_a_worker_arrives_as_what_it_was",
    "test_tables_of_change_tracking_are_staged_at_one_moment_or_each_by_itself",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on the engines that it is for."""
    if "engine" in metafunc.fixturenames:
        name = metafunc.function.__name__
        engines = ("classic", "connect") if name in ON_BOTH_ENGINES else ("classic",)
        metafunc.parametrize("engine", engines, indirect=True, scope="module")


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest, open_dir: Path, at: SqlServerConnection) -> Iterator[Engine]:
    is_classic = request.param == "classic"
    with pytest.MonkeyPatch.context() as patch:
        # Parts are planned in this process.
        patch.setenv(SOURCE_VARIABLE, at.to_json())
        with classic_engine() if is_classic else connect_engine(open_dir / "load-server.log") as opened:
            yield opened


@pytest.fixture
def spark(engine: Engine) -> SparkSession:
    return engine.session


class Pipeline:
    """A pipeline of one table, run step by step."""

    def __init__(
        self, settings: TableSettings, at: SqlServerConnection, engine: Engine, warehouse: WarehouseConnection
    ) -> None:
        self.settings = PipelineSettings("tests", (settings,))
        self.at, self.warehouse = at, warehouse
        self.source, self.ledger = SqlServerSource(at), PostgresLedger(warehouse)
        self.stager = stager_of_spark(lambda: engine, open_cdc_reader, plan_cdc_reads)

    def run(self) -> Any:
        """One whole window; its counts."""
        window_id = self.open().window_id
        counts = load_window(window_id, self.ledger, PostgresWarehouse(self.warehouse), self.source, self.stager)
        self.ledger.mark_checked(window_id)
        advance_window(window_id, self.ledger, PostgresWarehouse(self.warehouse))
        return counts[self.settings.tables[0].source]

    def open(self) -> WindowPlan:
        opened = open_window(self.settings, self.source, self.ledger)
        assert opened.window_id is not None, opened.reason
        assert opened.state is WindowState.PLANNED
        return self.ledger.read_window(opened.window_id).plan

    def verify(self) -> TableVerification:
        return next(iter(verify_tables(self.settings, self.at, self.warehouse)))

    def rows(self, sql: str) -> list[tuple]:
        with psycopg.connect(self.warehouse.conninfo()) as session:
            return session.execute(sql).fetchall()


@pytest.fixture
def make_pipeline(source: CdcDatabase, at: SqlServerConnection, engine: Engine, database: WarehouseConnection) -> Any:
    """Make a table, track it, and return its name and a pipeline for it."""

    def make(columns: str, net_changes: str = "1", /, **options: Any) -> tuple[str, Pipeline]:
        name = f"T{next(_tables)}"
        source.run(f"CREATE TABLE dbo.{name} ({columns})")
        source.enable(name, supports_net_changes=net_changes)
        settings = TableSettings(TableName("dbo", name), TableName("shop", name.lower()), **options)
        return name, Pipeline(settings, at, engine, database)

    return make


def test_net_changes_in_spark_are_true_to_random_histories(spark: SparkSession) -> None:
    plan = histories_plan()
    histories = [random_history(number, seed=number) for number in range(HISTORIES)]
    changes = change_batch([change for history in histories for change in history.changes])
    pieces = [changes.slice(first, 500) for first in range(0, changes.num_rows, 500)]
    packed = [batch for piece in pieces for batch in pack([piece], plan.feed.table.key, lambda rows: rows)]
    frame = spark.createDataFrame(
        [tuple(row.values()) for batch in packed for row in batch.to_pylist()], PACKED_SCHEMA
    ).repartition(5)
    shape = shape_of(plan)
    writer = StageWriter(plan, shape, b"\x01" * 10, RefusingSink(plan.source))
    columns = "history int, id string, a int, lob string, old string, __lsn binary, __op short, __keep_lob boolean,"
    net = (
        gather_changes(frame)
        .mapInArrow(lambda batches: writer.net_rows(unpack(entries(batches))), f"{columns} __keep_old boolean")
        .collect()
    )
    found: dict[int, list[dict]] = {history.number: [] for history in histories}
    for row in net:
        found[row.history].append(row.asDict() | {"__lsn": bytes(row["__lsn"])})
    for history in histories:
        assert_net_is_true(history, found[history.number])


@pytest.mark.parametrize(("max_reads", "tasks"), [(1, 1), (3, 3), (9, 4)])
def test_parts_are_read_by_no_more_tasks_than_the_source_allows(
    max_reads: int, tasks: int, source: CdcDatabase, make_pipeline: Any, engine: Engine
) -> None:
    name, pipeline = make_pipeline("Id int NOT NULL PRIMARY KEY, V int", partitions=4, max_reads=max_reads)
    pipeline.run()
    source.run(*(f"INSERT INTO dbo.{name} VALUES ({i}, {i})" for i in range(1, 40)))
    source.scan()
    seen: list[int] = []

    class CountingStager(SparkStager):
        def _run(self, groups: Sequence[Any], work: Any, schema: str) -> DataFrame:
            made = super()._run(groups, work, schema)
            if schema == PACKED_SCHEMA:
                seen.append(made.mapInArrow(one_row_each, "one int").count())
            return made

    pipeline.stager = CountingStager(lambda: engine, open_cdc_reader, plan_cdc_reads, driver_changes=0)
    assert pipeline.run().inserted_rows == 39
    assert seen == [tasks]
    assert pipeline.verify().equal


@pytest.mark.parametrize(
    ("net", "whole_changes"), [(NetSource.SPARK, 50_000), (NetSource.SPARK, 1), (NetSource.SERVER, 50_000)]
)
def test_load_brings_the_target_to_the_state_of_the_table(
    net: NetSource, whole_changes: int, source: CdcDatabase, make_pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WHOLE_CHANGES", whole_changes)
    name, pipeline = make_pipeline(
        "Id int NOT NULL, Line int NOT NULL, V nvarchar(20), Note nvarchar(max), PRIMARY KEY (Id, Line)", net=net
    )
    source.run(*(f"INSERT INTO dbo.{name} VALUES ({i}, {j}, N'v{i}', N'n{j}')" for i in range(5) for j in range(2)))
    source.scan()
    assert pipeline.run().inserted_rows == 10
    assert pipeline.verify().equal
    # After a window that was committed after the load the table is consistent, and the server may compute net changes.
    source.run(f"INSERT INTO dbo.{name} VALUES (6, 0, N'x', N'y')")
    source.scan()
    assert pipeline.run().inserted_rows == 1
    source.run(
        f"UPDATE dbo.{name} SET V = N'new' WHERE Id = 0",
        f"UPDATE dbo.{name} SET Note = NULL WHERE Id = 1",
        f"DELETE FROM dbo.{name} WHERE Id = 2",
        f"UPDATE dbo.{name} SET Line = 9 WHERE Id = 3 AND Line = 1",
        f"DELETE FROM dbo.{name} WHERE Id = 4 AND Line = 0",
        f"INSERT INTO dbo.{name} VALUES (4, 0, N'again', N'again')",
        f"BEGIN TRAN; INSERT INTO dbo.{name} VALUES (7, 0, N'x', N'y');"
        f" UPDATE dbo.{name} SET V = N'z' WHERE Id = 7; COMMIT",
        f"BEGIN TRAN; INSERT INTO dbo.{name} VALUES (8, 0, N'x', N'y'); DELETE FROM dbo.{name} WHERE Id = 8; COMMIT",
    )
    source.scan()
    assert pipeline.open().tables[0].settings.net is net
    pipeline.run()
    verified = pipeline.verify()
    assert verified.equal, verified.differences
    assert verified.source_rows == 10
    # What came and went leaves a tombstone only where net changes were computed from all changes (ADR 26).
    left = pipeline.rows(f'SELECT __deleted FROM shop.{name.lower()} WHERE "Id" = 8')
    assert left == ([(True,)] if net is NetSource.SPARK else [])


def test_log_of_a_table_without_a_key_has_both_images_of_every_update(source: CdcDatabase, make_pipeline: Any) -> None:
    name, pipeline = make_pipeline("V int", "0", style=Style.LOG, partitions=3, first_load=FirstLoad(chunk_rows=4))
    source.run(f"INSERT INTO dbo.{name} VALUES {', '.join(['(1)'] * 10)}")
    source.scan()
    assert pipeline.run().inserted_rows == 10
    source.run(*(f"UPDATE dbo.{name} SET V = {v}" for v in (2, 3, 4)), f"DELETE TOP (2) dbo.{name}")
    source.scan()
    counts = pipeline.run()
    assert (counts.read_rows, counts.inserted_rows) == (62, 62)
    log = f'SELECT __op, "V", __changed, count(*)::int FROM shop.{name.lower()} GROUP BY 1, 2, 3 ORDER BY 2, 1'
    updates = [(op, v, ["V"], 10) for v in (1, 2, 3) for op, v in ((3, v), (4, v + 1))]
    assert pipeline.rows(log) == sorted([(0, 1, None, 10), *updates, (1, 4, None, 2)], key=lambda row: (row[1], row[0]))


def test_log_has_every_change_whatever_parts_and_chunks_it_is_read_in(source: CdcDatabase, make_pipeline: Any) -> None:
    name, pipeline = make_pipeline(
        "Id int NOT NULL PRIMARY KEY, V int", style=Style.LOG, partitions=3, first_load=FirstLoad(chunk_rows=4)
    )
    source.run(*(f"INSERT INTO dbo.{name} VALUES ({i}, 0)" for i in range(10)))
    source.scan()
    assert pipeline.run().inserted_rows == 10
    source.run(*(f"UPDATE dbo.{name} SET V = {v} WHERE Id = {i}" for v in (1, 2) for i in range(10)))
    source.run(f"DELETE FROM dbo.{name} WHERE Id > 7")
    source.scan()
    counts = pipeline.run()
    assert (counts.read_rows, counts.inserted_rows) == (22, 22)
    log = f'SELECT __op, "Id", "V", __changed FROM shop.{name.lower()} ORDER BY __lsn, __command_id, __seq, __op'
    updates = [(4, i, v, ["V"]) for v in (1, 2) for i in range(10)]
    loaded, logged = pipeline.rows(log)[:10], pipeline.rows(log)[10:]
    assert loaded == [(0, i, 0, None) for i in range(10)]
    assert (logged[:20], sorted(logged[20:])) == (updates, [(1, 8, 2, None), (1, 9, 2, None)])


def test_history_has_a_version_for_each_commit_whatever_parts_it_is_read_in(
    source: CdcDatabase, make_pipeline: Any
) -> None:
    name, pipeline = make_pipeline(
        "Id int NOT NULL PRIMARY KEY, V int", style=Style.HISTORY, partitions=3, first_load=FirstLoad(chunk_rows=4)
    )
    source.run(*(f"INSERT INTO dbo.{name} VALUES ({i}, 0)" for i in range(10)))
    source.scan()
    assert pipeline.run().inserted_rows == 10
    source.run(
        *(f"UPDATE dbo.{name} SET V = {v} WHERE Id = {i}" for v in (1, 2) for i in range(10)),
        f"BEGIN TRAN; UPDATE dbo.{name} SET V = 3 WHERE Id = 1; UPDATE dbo.{name} SET V = 4 WHERE Id = 1; COMMIT",
        f"DELETE FROM dbo.{name} WHERE Id > 7",
    )
    source.scan()
    counts = pipeline.run()
    assert (counts.read_rows, counts.updated_rows, counts.deleted_rows) == (24, 21, 2)
    versions = pipeline.rows(f'SELECT "Id", "V", __op FROM shop.{name.lower()}_history ORDER BY "Id", __lsn')
    expected = [(i, v, 4 if v else 2) for i in range(10) for v in range(3)]
    assert versions == sorted([*expected, (1, 4, 4), (8, 2, 1), (9, 2, 1)], key=lambda row: (row[0], row[2] == 1))


@pytest.mark.parametrize("temporal", list(TemporalPolicy))
def test_values_of_every_type_arrive_in_a_first_load_and_in_a_window(
    temporal: TemporalPolicy, source: CdcDatabase, make_pipeline: Any
) -> None:
    name, pipeline = make_pipeline(EVERY_TYPE, temporal=temporal)
    source.run(f"INSERT INTO dbo.{name} {EVERY_VALUE}", f"INSERT INTO dbo.{name} (Name) VALUES (NULL)")
    source.scan()
    pipeline.run()
    source.run(f"INSERT INTO dbo.{name} {EVERY_VALUE}", f"UPDATE dbo.{name} SET Big = 1 WHERE Id = 2")
    source.scan()
    pipeline.run()
    verified = pipeline.verify()
    assert verified.equal, verified.differences
    [first, third] = pipeline.rows(
        'SELECT "Price"::text, "Wide"::text, "Cash"::text, "Clock"::text, "At"::text, "Guid"::text, "Bytes"'
        f' FROM shop.{name.lower()} WHERE "Id" <> 2 ORDER BY "Id"'
    )
    assert first == third
    assert first[:3] == ("-12345.67", "1234567890123456789012345678.0123456789", "922337203685477.5807")
    digit = "7" if temporal is TemporalPolicy.TEXT else ""
    assert first[3] == f"23:59:59.999999{'9' if digit else ''}"
    assert first[4] == f"0001-01-01 00:00:00.123456{digit}"
    assert first[5:] == ("6f9619ff-8b86-d011-b42d-00c04fc964ff", b"\x00\xff\x10")


@pytest.mark.parametrize(
    ("columns", "insert"),
    [
        ("A int NOT NULL, B nvarchar(10) NOT NULL, PRIMARY KEY (A, B)", "VALUES ({0} / 7, N'k{0}')"),
        ("A uniqueidentifier NOT NULL PRIMARY KEY, B int", "VALUES (NEWID(), {0})"),
        ("A datetime2(7) NOT NULL PRIMARY KEY, B int", "VALUES ('2026-01-01 00:00:00.{0:06d}', {0})"),
        ("A decimal(10,3) NOT NULL PRIMARY KEY, B int", "VALUES ({0} / 10.0 - 2, {0})"),
    ],
)
def test_first_load_in_chunks_reads_every_row_once(
    columns: str, insert: str, source: CdcDatabase, make_pipeline: Any
) -> None:
    name, pipeline = make_pipeline(columns, first_load=FirstLoad(chunk_rows=7))
    source.run(*(f"INSERT INTO dbo.{name} {insert.format(i)}" for i in range(40)))
    source.scan()
    counts = pipeline.run()
    assert (counts.read_rows, counts.inserted_rows) == (40, 40)
    assert pipeline.verify().equal


def writer_of(pipeline: Pipeline, plan: WindowPlan) -> StageWriter:
    """Into the sink of changes, whatever the kind of the load: it keeps no record of chunks."""
    table = plan.tables[0]
    sink = PostgresSink(table, staging_table(plan, 0), pipeline.warehouse, replace(plan, tables=()))
    return StageWriter(table, shape_of(table), plan.rows_at(table), sink)


def test_rows_of_each_try_of_a_part_have_its_receipt(source: CdcDatabase, make_pipeline: Any) -> None:
    name, pipeline = make_pipeline("Id int PRIMARY KEY")
    source.run(f"INSERT INTO dbo.{name} VALUES (1)")
    source.scan()
    plan = pipeline.open()
    PostgresWarehouse(pipeline.warehouse).prepare_window(plan)
    writer = writer_of(pipeline, plan)
    expected = []
    for part, keys in ((0, [1, 2]), (1, [3]), (0, [1, 2])):
        batch = pa.RecordBatch.from_pydict({"Id": pa.array(keys, pa.int32())})
        staged = writer.sink.write(part, writer.net_rows([batch]))
        assert staged.rows == len(keys)
        expected += [(key, part, staged.receipt) for key in keys]
    found = pipeline.rows(f'SELECT "Id", __part, xmin::text FROM {quote_table(staging_table(plan, 0))}')
    assert sorted(found) == sorted(expected)
    assert len({receipt for *_, receipt in found}) == 3


def test_text_that_postgres_cannot_hold_is_staged_with_a_note_of_it(source: CdcDatabase, make_pipeline: Any) -> None:
    name, pipeline = make_pipeline("Id int PRIMARY KEY, V nvarchar(10)")
    source.run(f"INSERT INTO dbo.{name} VALUES (1, N'a')")
    source.scan()
    plan = pipeline.open()
    PostgresWarehouse(pipeline.warehouse).prepare_window(plan)
    writer = writer_of(pipeline, plan)
    rows = {"Id": pa.array([1, 2], pa.int32()), "V": pa.array(["good", "b\0d"])}
    writer.sink.write(0, writer.net_rows([pa.RecordBatch.from_pydict(rows)]))
    staged = pipeline.rows(f'SELECT "V", __unstorable FROM {quote_table(staging_table(plan, 0))} ORDER BY "Id"')
    assert staged == [("good", None), ("b\ufffdd", '{"V": "U+0000"}')]


@pytest.mark.parametrize("is_loaded", [False, True], ids=["first load", "window"])
def test_row_with_a_value_that_postgres_cannot_hold_goes_to_quarantine(
    is_loaded: bool, source: CdcDatabase, make_pipeline: Any
) -> None:
    name, pipeline = make_pipeline("Id int PRIMARY KEY, V nvarchar(10)")
    if is_loaded:
        source.run(f"INSERT INTO dbo.{name} VALUES (1, N'good')")
        source.scan()
        pipeline.run()
    source.run(f"INSERT INTO dbo.{name} VALUES (2, N'b' + NCHAR(0) + N'd')")
    source.scan()
    pipeline.run()
    assert pipeline.rows("SELECT rule, key FROM floodmark.quarantine") == [("text_can_be_stored", [2])]
    assert pipeline.rows(f'SELECT "Id" FROM shop.{name.lower()}') == ([(1,)] if is_loaded else [])


def make_small_tables(source: CdcDatabase, make_pipeline: Any, tables: int) -> tuple[list[str], Pipeline]:
    """Make a pipeline of several tables, first-loaded, with changes in all of them."""
    made = [make_pipeline("Id int NOT NULL PRIMARY KEY, V nvarchar(20), Note nvarchar(max)") for _ in range(tables)]
    names, pipeline = [name for name, _ in made], made[0][1]
    pipeline.settings = PipelineSettings("tests", tuple(each.settings.tables[0] for _, each in made))
    source.run(*(f"INSERT INTO dbo.{name} VALUES (1, N'a', N'n'), (2, N'b', NULL)" for name in names))
    source.scan()
    pipeline.run()
    for name in names:
        source.run(
            f"UPDATE dbo.{name} SET V = N'x' WHERE Id = 1",
            f"UPDATE dbo.{name} SET Id = 3 WHERE Id = 2",
            f"INSERT INTO dbo.{name} VALUES (4, N'd', REPLICATE(CAST(N'lang' AS nvarchar(max)), 9000))",
            f"DELETE FROM dbo.{name} WHERE Id = 1; INSERT INTO dbo.{name} VALUES (1, N'again', NULL)",
        )
    source.scan()
    return names, pipeline


@pytest.mark.parametrize(
    ("most_bytes", "asks_spark"), [((64 << 20, 512 << 20), False), ((1, 512 << 20), False), ((1, 1), True)]
)
def test_few_changes_are_staged_without_spark_unless_they_are_large(
    most_bytes: tuple[int, int],
    asks_spark: bool,
    source: CdcDatabase,
    make_pipeline: Any,
    *,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A table that is too large for a task is netted in buckets, by the driver or, where it is too large for that, by
    Spark."""
    names, pipeline = make_small_tables(source, make_pipeline, 5)
    asked: list[int] = []
    pipeline.stager = SparkStager(lambda: asked.append(1) or engine, open_cdc_reader, plan_cdc_reads)
    monkeypatch.setattr(stager, "MOST_BYTES", most_bytes[0])
    monkeypatch.setattr(stager, "DRIVER_BYTES", most_bytes[1])
    pipeline.run()
    assert bool(asked) is asks_spark
    verified = verify_tables(pipeline.settings, pipeline.at, pipeline.warehouse)
    assert [each.differences for each in verified] == [()] * len(names)


def test_table_that_its_target_refuses_leaves_the_others_to_the_driver(source: CdcDatabase, make_pipeline: Any) -> None:
    _, pipeline = make_small_tables(source, make_pipeline, 3)
    plan = pipeline.open()
    PostgresWarehouse(pipeline.warehouse).prepare_window(plan)
    sinks: dict[int, StagingSink] = {i: PostgresWarehouse(pipeline.warehouse).sink(plan, i) for i in range(3)}
    sinks[1] = RefusingSink(plan.tables[1].source)
    staged = SparkStager(no_engine, open_cdc_reader, plan_cdc_reads).stage_changes(plan, sinks)
    assert [type(staged[index]) for index in range(3)] == [StagedRows, TargetRefusedError, StagedRows]


@pytest.mark.parametrize(("most_rows", "asks_spark"), [(47, False), (27, True)])
def test_chunks_are_staged_without_spark_unless_the_rows_of_a_window_are_many(
    most_rows: int,
    asks_spark: bool,
    source: CdcDatabase,
    make_pipeline: Any,
    *,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """40 rows take 6 chunks of 7, which may have 42. Of another table with 5 rows, there was a chunk before."""
    made = [make_pipeline("Id int NOT NULL PRIMARY KEY", first_load=FirstLoad(chunk_rows=7)) for _ in range(2)]
    pipeline = made[0][1]
    pipeline.settings = PipelineSettings("tests", tuple(each.settings.tables[0] for _, each in made))
    for (name, _), rows in zip(made, (5, 40), strict=True):
        source.run(*(f"INSERT INTO dbo.{name} VALUES ({number})" for number in range(rows)))
    source.scan()
    asked: list[int] = []
    pipeline.stager = SparkStager(lambda: asked.append(1) or engine, open_cdc_reader, plan_cdc_reads)
    monkeypatch.setattr(stager, "DRIVER_ROWS", most_rows)
    monkeypatch.setattr(load, "TABLES_AT_ONCE", 1)
    pipeline.run()
    assert bool(asked) is asks_spark
    verified = verify_tables(pipeline.settings, pipeline.at, pipeline.warehouse)
    assert [(each.equal, each.target_rows) for each in verified] == [(True, 5), (True, 40)]


def test_threads_of_the_driver_end_at_the_first_error() -> None:
    """The error is raised when no thread writes any more, and those that are left do not write all they have."""
    began, written = threading.Event(), []

    def work(group: Sequence[int]) -> Iterator[pa.RecordBatch]:
        for number in group:
            if number < 0:
                assert began.wait(60)
                raise TargetRefusedError("dbo.T", "no")
            yield pa.RecordBatch.from_pylist([{"part": number}])
            written.append(number)
            began.set()
            threading.Event().wait(0.01)

    with pytest.raises(TargetRefusedError):
        stager._run_here([range(10_000), [-1]], work)
    assert 0 < len(written) < 10_000


@pytest.mark.parametrize("most_bytes", [64 << 20, 1])
def test_small_tables_are_staged_by_one_job_unless_they_are_large(
    most_bytes: int, source: CdcDatabase, make_pipeline: Any, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, pipeline = make_small_tables(source, make_pipeline, 5)
    assert engine.cores() == 2
    monkeypatch.setattr(stager, "MOST_BYTES", most_bytes)
    kind, jobs = type(engine.session.range(0)), []
    collect = kind.collect
    monkeypatch.setattr(kind, "collect", lambda frame: jobs.append(1) or collect(frame))
    pipeline.run()
    assert (len(jobs) == 1) is (most_bytes > 1)
    assert [verified.differences for verified in verify_tables(pipeline.settings, pipeline.at, pipeline.warehouse)] == [
        ()
    ] * len(names)


def test_small_table_that_is_refused_does_not_stop_the_others(source: CdcDatabase, make_pipeline: Any) -> None:
    names, pipeline = make_small_tables(source, make_pipeline, 3)
    window_id = pipeline.open().window_id

    class Refusing(PostgresWarehouse):
        def sink(self, plan: WindowPlan, index: int) -> StagingSink:
            table = plan.tables[index].source
            return RefusingSink(table) if table.name == names[1] else super().sink(plan, index)

    warehouse = Refusing(pipeline.warehouse)
    counts = load_window(window_id, pipeline.ledger, warehouse, pipeline.source, pipeline.stager)
    assert [name.name for name in counts] == [names[0], names[2]]
    pipeline.ledger.mark_checked(window_id)
    advance_window(window_id, pipeline.ledger, warehouse)
    found = list(verify_tables(pipeline.settings, pipeline.at, pipeline.warehouse))
    # The changes of the refused table are still to come.
    assert [(each.equal, each.changed_rows > 0) for each in found] == [(True, False), (True, True), (True, False)]
    source.run(*(f"INSERT INTO dbo.{name} VALUES (9, N'i', N'n')" for name in names))
    source.scan()
    pipeline.run()
    assert all(each.equal for each in verify_tables(pipeline.settings, pipeline.at, pipeline.warehouse))


def test_error_in_a_worker_arrives_as_what_it_was(source: CdcDatabase, make_pipeline: Any) -> None:
    name, pipeline = make_pipeline("Id int PRIMARY KEY")
    source.run(f"INSERT INTO dbo.{name} VALUES (1)")
    source.scan()
    plan = pipeline.open()
    PostgresWarehouse(pipeline.warehouse).prepare_window(plan)
    source.run(f"DROP TABLE dbo.{name}")
    with pytest.raises(CdcNotEnabledError, match=rf"^dbo\.{name}: .*208"):
        pipeline.stager.stage_chunks(plan, 0, [LoadChunk(0, None, None)], 1, writer_of(pipeline, plan).sink)


def test_verification_names_what_differs(source: CdcDatabase, make_pipeline: Any) -> None:
    name, pipeline = make_pipeline("Id int PRIMARY KEY, V nvarchar(10), W int")
    source.run(f"INSERT INTO dbo.{name} VALUES (1, NULL, 1), (2, N'b', 2), (3, N'c', NULL)")
    source.scan()
    pipeline.run()
    with psycopg.connect(pipeline.warehouse.conninfo()) as session:
        target = f"shop.{name.lower()}"
        session.execute(f'UPDATE {target} SET "V" = \'\', "W" = NULL WHERE "Id" = 1')
        session.execute(f'UPDATE {target} SET __deleted = true WHERE "Id" = 2')
        session.execute(
            f'INSERT INTO {target} SELECT 9, "V", "W", __lsn, 2, 1, now(), false FROM {target} WHERE "Id" = 3'
        )
    verified = pipeline.verify()
    assert (verified.equal, verified.source_rows, verified.target_rows) == (False, 3, 3)
    assert [str(each) for each in verified.differences] == [
        "key (1) is different in V, W",
        "key (2) is missing",
        "key (9) is extra",
    ]


@pytest.fixture
def tracked(emulator: Emulator, engine: Engine, database: WarehouseConnection) -> Iterator[TrackingRig]:
    """A pipeline of two tables over change tracking, with Spark."""
    tables = (
        f"CREATE TABLE dbo.Tracked ({EVERY_TYPE})",
        "ALTER TABLE dbo.Tracked ENABLE CHANGE_TRACKING",
        "CREATE TABLE dbo.Broken (Id int NOT NULL PRIMARY KEY, V int)",
        "ALTER TABLE dbo.Broken ENABLE CHANGE_TRACKING",
        f"INSERT dbo.Tracked {EVERY_VALUE}",
        "INSERT dbo.Broken VALUES (1, 1)",
    )
    with tracking_rig(emulator, database, tracked_tables("Tracked", "Broken"), tables) as rig:
        rig.stager = stager_of_spark(lambda: engine, rig.open_reader(), rig.plan_reads)
        yield rig


@pytest.mark.parametrize("stages", ["Spark", "driver"])
@pytest.mark.parametrize("snapshot", ["ON", "OFF"])
def test_tables_of_change_tracking_are_staged_at_one_moment_or_each_by_itself(
    tracked: TrackingRig, snapshot: str, stages: str
) -> None:
    tracked.sync()
    assert tracked.differing() == []
    if stages == "driver":
        tracked.stager = SparkStager(no_engine, tracked.open_reader(), tracked.plan_reads)
    tracked.run(
        f"ALTER DATABASE CURRENT SET ALLOW_SNAPSHOT_ISOLATION {snapshot}",
        f"INSERT dbo.Tracked {EVERY_VALUE}",
        "UPDATE dbo.Tracked SET Big = 1, Note = NULL WHERE Id = 1",
        "UPDATE dbo.Broken SET V = 2",
    )
    opened = tracked.open()
    tracked.run("DELETE dbo.Tracked WHERE Id = 2", "UPDATE dbo.Broken SET V = 3")
    tracked.finish(opened)
    assert tracked.differing() == []
    assert tracked.watermark("Tracked") == Version.of(7 if snapshot == "ON" else 5)


@pytest.mark.parametrize("style", [Style.HISTORY, Style.LOG])
def test_changes_of_change_tracking_are_kept_with_values_of_every_type(tracked: TrackingRig, style: Style) -> None:
    tracked.settings = tracked_tables("Tracked", style=style)
    tracked.sync()
    tracked.run("UPDATE dbo.Tracked SET Big = 1, Note = NULL WHERE Id = 1")
    tracked.sync()
    tracked.run("DELETE dbo.Tracked WHERE Id = 1")
    tracked.sync()
    entries = "shop.tracked_history" if style is Style.HISTORY else "shop.tracked"
    changes = tracked.rows(f'SELECT __op, "Big", __committed_at IS NULL FROM {entries} WHERE __op <> 0 ORDER BY __lsn')
    last = 1 if style is Style.HISTORY else None
    assert changes[-2:] == [(4, 1, False), (1, last, False)]


@pytest.mark.parametrize("stages", ["Spark", "driver"])
def test_table_that_is_refused_at_one_moment_does_not_stop_the_other(tracked: TrackingRig, stages: str) -> None:
    tracked.sync()
    tracked.run("UPDATE dbo.Broken SET V = 2", "UPDATE dbo.Tracked SET Big = 1")
    opened = tracked.open()
    if stages == "driver":
        # A read whose changes could be counted, of a table that is truncated then.
        planned = tracked.plan_reads(tracked.ledger.read_window(opened.window_id).plan, 1)
        tracked.stager = SparkStager(no_engine, tracked.open_reader(), lambda *_: planned)
    tracked.run("TRUNCATE TABLE dbo.Broken")
    tracked.finish(opened)
    assert tracked.rows('SELECT "Big" FROM shop.tracked') == [(1,)]
    assert tracked.watermark("Broken") == Version.of(2)
    assert tracked.verdicts()["Broken"] is Verdict.INSTANCE_REPLACED


def test_devices_of_a_fleet_are_read_as_a_whole_and_then_by_their_changes(
    engine: Engine, database: WarehouseConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = FleetRig(tmp_path, database, fleet_settings())
    monkeypatch.setenv(SOURCE_VARIABLE, rig.fleet.to_json())
    rig.stager = stager_of_spark(lambda: engine, open_compact_reader, plan_compact_reads)
    for device in ("van-1", "van-2"):
        rig.make(device, "INSERT INTO orders (id, amount) VALUES (1, 1.5), (2, NULL)")
    assert rig.sync() == {}
    rig.run("van-1", "UPDATE orders SET note = 'changed'", "DELETE FROM orders WHERE id = 2")
    rig.remove("van-2")
    rig.path("van-2").write_bytes(b"no database at all" * 100)
    rig.make("van-3", "INSERT INTO orders (id) VALUES (7)")
    assert rig.sync() == {"van-2": Verdict.DAMAGED}
    assert [(device, key, note) for device, key, _, note in rig.living()] == [
        ("van-1", 1, "changed"),
        ("van-2", 1, None),
        ("van-2", 2, None),
        ("van-3", 7, None),
    ]


@pytest.mark.parametrize("style", [Style.HISTORY, Style.LOG])
def test_changes_of_devices_become_versions_and_entries(
    engine: Engine, database: WarehouseConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: Style
) -> None:
    where = parse_filter("note IS NULL OR note <> 'hidden'") if style is Style.HISTORY else None
    rig = FleetRig(tmp_path, database, fleet_settings(style=style, where=where))
    monkeypatch.setenv(SOURCE_VARIABLE, rig.fleet.to_json())
    rig.stager = stager_of_spark(lambda: engine, open_compact_reader, plan_compact_reads)
    rig.make("van-1", "INSERT INTO orders (id, amount, note) VALUES (1, 1.5, NULL), (2, NULL, 'b')")
    assert rig.sync() == {}
    rig.run("van-1", "UPDATE orders SET note = 'changed' WHERE id = 1", "DELETE FROM orders WHERE id = 2")
    rig.make("van-2", "INSERT INTO orders (id, note) VALUES (7, 'new')")
    assert rig.sync() == {}
    rig.run("van-2", "UPDATE orders SET note = 'hidden'")
    assert rig.sync() == {}
    target = "edge.orders_history" if style is Style.HISTORY else "edge.orders"
    found = rig.rows(f"SELECT __device, id, __op, note FROM {target} ORDER BY 1, 2, __lsn")
    whole = Operation.INSERT if style is Style.HISTORY else Operation.LOADED
    assert found == [
        ("van-1", 1, whole, None),
        ("van-1", 1, 4, "changed"),
        ("van-1", 2, whole, "b"),
        ("van-1", 2, 1, "b" if style is Style.HISTORY else None),
        ("van-2", 7, whole, "new"),
        ("van-2", 7, *((1, "new") if style is Style.HISTORY else (4, "hidden"))),
    ]


def test_columns_are_masked_in_the_tasks_that_read(make_pipeline: Any, source: CdcDatabase) -> None:
    secret = "a secret of sixteen characters"
    columns = (
        ColumnSettings("Email", "mail", Mask.HASH),
        ColumnSettings("Phone", mask=Mask.LAST4),
        ColumnSettings("Notes", is_dropped=True),
    )
    name, pipeline = make_pipeline(
        "Id int PRIMARY KEY, Email nvarchar(50), Phone varchar(20), Notes nvarchar(max)",
        columns=columns,
        mask_key_conn_id="mask_key",
        first_load=FirstLoad(chunk_rows=2),
    )
    pipeline.stager = stager_of_spark(
        pipeline.stager._open_engine, open_cdc_reader, plan_cdc_reads, {"mask_key": secret}
    )
    source.run(
        f"INSERT INTO dbo.{name} VALUES (1, N'a@x.com', '5551234567', N'n'), (2, N'b@x.com', NULL, NULL)",
        f"INSERT INTO dbo.{name} VALUES (3, NULL, '', N'')",
    )
    source.scan()
    pipeline.run()
    source.run(f"UPDATE dbo.{name} SET Email = N'a@x.com' WHERE Id = 3", f"DELETE dbo.{name} WHERE Id = 2")
    source.scan()
    pipeline.run()
    hashes = [hmac.digest(secret.encode(), mail.encode("utf-16-le"), "sha256").hex() for mail in ("a@x.com", "b@x.com")]
    assert pipeline.rows(f'SELECT "Id", mail, "Phone", __deleted FROM shop.{name.lower()} ORDER BY 1') == [
        (1, hashes[0], "******4567", False),
        (2, hashes[1], None, True),
        (3, hashes[0], "", False),
    ]
    assert pipeline.rows(f"SELECT to_jsonb(t) ? 'Notes' FROM shop.{name.lower()} AS t LIMIT 1") == [(False,)]
