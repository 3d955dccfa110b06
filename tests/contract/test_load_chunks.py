"""The chunks of a first load on a real PostgreSQL: kept over attempts, fenced off from loads believed dead."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from fuse import Fuse
from small_source import SmallSource, SmallStager
from warehouse_shop import INSERT, ORDERS, PIPELINE, Row, Shop, first_load

from cdc_database import wait_until
from floodmark.core.errors import ConfigError, DataQualityError, SourceUnavailableError, WatermarkConflictError
from floodmark.core.plan import Bound, LoadChunk, LoadProgress, WindowPlan, plan_chunks, staging_table
from floodmark.core.schema import TableName, quote_table
from floodmark.core.settings import OnFailure, Rule
from floodmark.core.snapshot import Validity
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.cdc.reader import CdcReader
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.spark.stage import StageWriter, write_chunks
from floodmark.sync.load import ReadSlots, load_window, stage_first_load
from floodmark.sync.load_progress import progress_reported
from floodmark.sync.ports import LoggedProgress
from lsns import lsn
from table_plans import with_settings

BOUNDS = [(2,), (4,)]


@pytest.fixture
def shop(database: WarehouseConnection, ledger: PostgresLedger) -> Shop:
    return Shop(database, ledger)


@pytest.fixture
def source() -> SmallSource:
    made = SmallSource()
    for key in range(1, 7):
        made.write(key, key * 10)
    return made


def planned(shop: Shop) -> WindowPlan:
    """A window with three chunks, prepared."""
    plan = shop.begin(first_load(), 10)
    shop.ledger.store_chunks(plan, ORDERS, plan_chunks(BOUNDS))
    return plan


def next_attempt(shop: Shop, plan: WindowPlan) -> WindowPlan:
    later = shop.ledger.begin_load(plan.window_id).plan
    shop.warehouse.prepare_window(later)
    return later


def rows_of(keys: list[int]) -> pa.RecordBatch:
    rows = len(keys)
    return pa.RecordBatch.from_pydict(
        {
            "Id": pa.array(keys, pa.int32()),
            "Amount": pa.array([Decimal("1.00")] * rows, pa.decimal128(18, 2)),
            "Disc%": pa.array([None] * rows, pa.int32()),
            "Notes": pa.array(["n"] * rows, pa.string()),
        }
    )


@dataclass
class RowsReader:
    """A reader whose chunks have the given rows, by number. An exception among them is raised."""

    chunks: dict[int, list[pa.RecordBatch | Exception]]

    def read_chunk(self, chunk: LoadChunk) -> Iterator[pa.RecordBatch]:
        for each in self.chunks[chunk.number]:
            if isinstance(each, Exception):
                raise each
            yield each


def write(shop: Shop, plan: WindowPlan, chunks: dict[int, list[pa.RecordBatch | Exception]]) -> list[int]:
    """Write chunks by the writer of the Spark job, without Spark; return the rows of each chunk."""
    table = plan.tables[0]
    shape = CdcReader(table, SqlServerConnection("unused", 0, "", ""), plan.end).shape
    writer = StageWriter(table, shape, plan.rows_at(table), shop.warehouse.sink(plan, 0))
    reader: Any = RowsReader(chunks)
    counts = write_chunks(0, writer, reader, [LoadChunk(number, None, None) for number in chunks])
    return [batch["staged_rows"][0].as_py() for batch in counts]


def state(shop: Shop, plan: WindowPlan) -> list[int | None]:
    return [chunk.staged_rows for chunk in shop.ledger.list_chunks(plan.window_id, ORDERS)]


def staged(shop: Shop, plan: WindowPlan) -> list[tuple[int, int]]:
    found = shop.rows(f'SELECT __part, "Id" FROM {quote_table(staging_table(plan, 0))} ORDER BY 1, 2')
    return [(row["__part"], row["Id"]) for row in found]


def test_chunks_are_planned_once_and_outlast_the_attempt(shop: Shop) -> None:
    plan = planned(shop)
    later = next_attempt(shop, plan)
    kept = shop.ledger.store_chunks(later, ORDERS, plan_chunks([(99,)]))
    assert [each.chunk for each in kept] == [
        LoadChunk(0, None, (2,)),
        LoadChunk(1, (2,), (4,)),
        LoadChunk(2, (4,), None),
    ]


def test_bounds_with_characters_that_postgres_has_not_come_back_as_they_were(shop: Shop) -> None:
    plan = shop.begin(first_load(), 10)
    chunks = plan_chunks([("a\0b", b"\0\xff", Decimal("1.50"), 2**70), ("\ud83d", b"", Decimal(0), -1)])
    shop.ledger.store_chunks(plan, ORDERS, chunks)
    assert tuple(each.chunk for each in shop.ledger.list_chunks(plan.window_id, ORDERS)) == chunks


def test_rows_of_a_chunk_and_its_state_are_one_transaction(shop: Shop) -> None:
    plan = planned(shop)
    assert write(shop, plan, {0: [rows_of([1]), rows_of([2])], 2: []}) == [2, 0]
    assert staged(shop, plan) == [(0, 1), (0, 2)]
    assert state(shop, plan) == [2, None, 0]
    assert shop.ledger.read_load_progress(plan.window_id) == {ORDERS: LoadProgress(3, 2, 2)}


def test_chunk_whose_rows_break_off_leaves_nothing(shop: Shop) -> None:
    plan = planned(shop)
    with pytest.raises(SourceUnavailableError):
        write(shop, plan, {0: [rows_of([1, 2]), SourceUnavailableError("dbo.Orders", "gone")]})
    assert (staged(shop, plan), state(shop, plan)) == ([], [None, None, None])


def test_load_that_was_overtaken_can_stage_no_chunk_and_change_none(shop: Shop) -> None:
    zombie = planned(shop)
    later = next_attempt(shop, zombie)
    with pytest.raises(WatermarkConflictError, match="attempt 1, and attempt 2 has begun since"):
        write(shop, zombie, {0: [rows_of([1, 2])]})
    with pytest.raises(WatermarkConflictError, match="attempt 2 has begun"):
        shop.ledger.reset_chunks(zombie, ORDERS, [0])
    assert (staged(shop, later), state(shop, later)) == ([], [None, None, None])
    assert write(shop, later, {0: [rows_of([1, 2])]}) == [2]


def test_later_attempt_waits_for_a_chunk_that_is_about_to_be_committed(shop: Shop) -> None:
    plan = planned(shop)
    with psycopg.connect(shop.connection.conninfo()) as session, pytest.raises(psycopg.errors.LockNotAvailable):
        session.execute("SELECT FROM floodmark.windows WHERE window_id = %s FOR SHARE", [plan.window_id])
        with psycopg.connect(shop.connection.conninfo()) as other:
            other.execute("SET lock_timeout = '50ms'")
            other.execute("UPDATE floodmark.windows SET attempt = attempt + 1")


def test_chunk_that_two_tasks_of_a_load_stage_is_there_once(shop: Shop) -> None:
    plan = planned(shop)
    for _ in range(2):
        write(shop, plan, {0: [rows_of([1, 2])]})
    assert staged(shop, plan) == [(0, 1), (0, 2)]


def test_load_goes_on_with_the_chunks_that_are_missing(shop: Shop, source: SmallSource) -> None:
    window_id = planned(shop).window_id
    plan = shop.ledger.read_window(window_id).plan
    first = SmallStager(shop, source)
    first.stage_chunks(plan, 0, [plan_chunks(BOUNDS)[0]], 1)
    # Meanwhile the source goes on: the bounds stay, and what is staged is not read again.
    source.write(1, 11)
    source.write(7, 70)
    stager = SmallStager(shop, source)
    load_window(window_id, shop.ledger, shop.warehouse, source, stager)
    assert stager.chunks_read == 2
    assert {key: int(row[0]) for key, row in shop.target().items()} == {1: 10, 2: 20, 3: 30, 4: 40, 5: 50, 6: 60, 7: 70}


def test_chunks_that_a_crash_of_the_warehouse_took_from_staging_are_read_again(
    shop: Shop, source: SmallSource, caplog: pytest.LogCaptureFixture
) -> None:
    plan = planned(shop)
    first = SmallStager(shop, source)
    first.stage_chunks(plan, 0, plan_chunks(BOUNDS)[:2], 1)
    with psycopg.connect(shop.connection.conninfo()) as session:
        session.execute(f'DELETE FROM {quote_table(staging_table(plan, 0))} WHERE "Id" <> 1')
    stager = SmallStager(shop, source)
    with caplog.at_level(logging.INFO):
        load_window(plan.window_id, shop.ledger, shop.warehouse, source, stager)
    assert "2 chunks are no longer in staging as they were" in caplog.text
    assert stager.chunks_read == 3
    assert sorted(shop.target()) == [1, 2, 3, 4, 5, 6]


def test_rows_that_a_rule_refused_are_read_again_so_that_they_can_be_fixed(shop: Shop, source: SmallSource) -> None:
    strict = (Rule("small", "Amount < 100", OnFailure.STOP),)
    window_id = shop.ledger.open_window(PIPELINE, lsn(11), [first_load(rules=strict)]).window_id
    source.write(6, 600)
    with pytest.raises(DataQualityError, match="broke rule small"):
        load_window(window_id, shop.ledger, shop.warehouse, source, SmallStager(shop, source))
    source.write(6, 66)
    load_window(window_id, shop.ledger, shop.warehouse, source, SmallStager(shop, source))
    assert shop.target()[6][0] == 66


@pytest.mark.parametrize("is_begun_again", [False, True])
def test_refusal_is_what_a_load_reports_though_another_run_has_its_window_meanwhile(
    shop: Shop, source: SmallSource, monkeypatch: pytest.MonkeyPatch, is_begun_again: bool
) -> None:
    refuse_tables = PostgresLedger.refuse_tables

    def refuse_and_be_overtaken(ledger: PostgresLedger, plan: WindowPlan, refused: Sequence[Validity]) -> Any:
        left = refuse_tables(ledger, plan, refused)
        if is_begun_again:
            next_attempt(shop, plan)
        else:
            shop.warehouse.drop_staging(plan.window_id)
        return left

    monkeypatch.setattr(PostgresLedger, "refuse_tables", refuse_and_be_overtaken)
    strict = (Rule("small", "Amount < 10", OnFailure.STOP),)
    window_id = shop.ledger.open_window(PIPELINE, lsn(11), [first_load(rules=strict)]).window_id
    with pytest.raises(DataQualityError, match="broke rule small"):
        load_window(window_id, shop.ledger, shop.warehouse, source, SmallStager(shop, source))


def test_progress_is_logged_while_it_changes(shop: Shop, source: SmallSource, caplog: pytest.LogCaptureFixture) -> None:
    plan = planned(shop)
    often = LoggedProgress(every_seconds=0.01)
    with caplog.at_level(logging.INFO), progress_reported(plan, shop.ledger, shop.warehouse, often):
        SmallStager(shop, source).stage_chunks(plan, 0, plan_chunks(BOUNDS)[:2], 1)
        wait_until(lambda: "66 %, 4 rows, 2 of 3 chunks, " in caplog.text)
    assert re.search(r"2 of 3 chunks, [\d,]+ rows/s, about \d+ s left\.", caplog.text)


def test_rows_of_an_earlier_load_do_not_count_for_the_rate(
    shop: Shop, source: SmallSource, caplog: pytest.LogCaptureFixture
) -> None:
    plan = planned(shop)
    SmallStager(shop, source).stage_chunks(plan, 0, plan_chunks(BOUNDS)[:2], 1)
    readings, often = Fuse(), LoggedProgress(every_seconds=0.01)
    ledger = readings.guard(shop.ledger)
    with caplog.at_level(logging.INFO), progress_reported(plan, ledger, shop.warehouse, often):
        wait_until(lambda: len(readings.done) >= 3)
        assert "chunks" not in caplog.text
        SmallStager(shop, source).stage_chunks(plan, 0, plan_chunks(BOUNDS)[2:], 1)
        wait_until(lambda: "100 %, 6 rows, 3 of 3 chunks, " in caplog.text)


def test_chunks_of_a_window_go_with_it(shop: Shop) -> None:
    plan = planned(shop)
    other = with_settings(first_load(), source=TableName("dbo", "Items"), target=TableName("shop", "items"))
    both = shop.ledger.open_window("second", lsn(10), [with_settings(first_load(), target=TableName("s", "o")), other])
    for table in both.tables:
        shop.ledger.store_chunks(both, table.source, plan_chunks([]))
    assert shop.ledger.leave_out(both.window_id, [ORDERS]) is not None
    assert list(shop.ledger.read_load_progress(both.window_id)) == [other.source]
    assert shop.ledger.leave_out(plan.window_id, [ORDERS]) is None
    assert shop.ledger.read_load_progress(plan.window_id) == {}
    assert shop.ledger.unfinished_window(PIPELINE) is None


def test_slots_are_never_more_than_there_are() -> None:
    slots = ReadSlots(3)
    with slots.taken(2) as two, slots.taken(1) as one:
        assert (two, one) == (2, 1)
    with slots.taken(9) as all_of_them:
        assert all_of_them == 3


@dataclass
class MovedRows(SmallStager):
    """A scan of the first chunk meets row 1 again, as an update has moved it meanwhile."""

    double_key: tuple[Bound, int] | None = None

    def stage_chunks(
        self, plan: WindowPlan, index: int, chunks: Sequence[LoadChunk], parallel_reads: int, sink: Any = None
    ) -> None:
        super().stage_chunks(plan, index, chunks[1:], parallel_reads, sink)
        rows = [Row(1, INSERT, 10, amount=10), Row(2, INSERT, 10, amount=20), Row(1, INSERT, 10, amount=11)]
        self.shop.stage_chunk(plan, index, 0, rows)

    def find_double_key(self, plan: WindowPlan, index: int) -> tuple[Bound, int] | None:
        return self.double_key


def test_row_that_a_scan_met_twice_is_merged_once(
    shop: Shop, source: SmallSource, caplog: pytest.LogCaptureFixture
) -> None:
    window_id = planned(shop).window_id
    with caplog.at_level(logging.INFO):
        counts = load_window(window_id, shop.ledger, shop.warehouse, source, MovedRows(shop, source))
    assert sorted(shop.target()) == [1, 2, 3, 4, 5, 6]
    assert counts[ORDERS].staged_rows == 6
    assert "dbo.Orders: 1 rows were read twice" in caplog.text


def test_key_that_the_source_has_twice_is_refused_and_may_be_fixed(shop: Shop, source: SmallSource) -> None:
    window_id = planned(shop).window_id
    with pytest.raises(
        ConfigError, match=r"dbo\.Orders: the declared key \(Id\) is not unique: 2 rows have the same key"
    ):
        load_window(window_id, shop.ledger, shop.warehouse, source, MovedRows(shop, source, double_key=((1,), 2)))
    load_window(window_id, shop.ledger, shop.warehouse, source, SmallStager(shop, source))
    assert sorted(shop.target()) == [1, 2, 3, 4, 5, 6]


def test_tables_are_cut_into_chunks_within_the_limit_of_parallel_reads(shop: Shop, source: SmallSource) -> None:
    together = threading.Barrier(2)

    class Cutting(SmallStager):
        def read_chunk_bounds(self, plan: WindowPlan, index: int) -> Sequence[Bound]:
            with pytest.raises(threading.BrokenBarrierError):
                together.wait(timeout=0.2)
            return super().read_chunk_bounds(plan, index)

    other = with_settings(first_load(), source=TableName("dbo", "Items"), target=TableName("shop", "items"))
    opened = shop.ledger.open_window(PIPELINE, lsn(10), [first_load(), other])
    plan = shop.ledger.begin_load(opened.window_id).plan
    shop.warehouse.prepare_window(plan)
    stager, slots = Cutting(shop, source), ReadSlots(1)
    with ThreadPoolExecutor(2) as pool:
        loads = [
            pool.submit(stage_first_load, plan, index, shop.ledger, shop.warehouse, stager, slots=slots)
            for index in (0, 1)
        ]
        assert [load.result().staged_rows for load in loads] == [6, 6]


def test_plan_without_chunks_is_refused_for_an_old_attempt(shop: Shop) -> None:
    zombie = shop.begin(first_load(), 10)
    next_attempt(shop, zombie)
    with pytest.raises(WatermarkConflictError, match="attempt 2 has begun"):
        shop.ledger.store_chunks(replace(zombie, to=lsn(11)), ORDERS, plan_chunks(BOUNDS))
