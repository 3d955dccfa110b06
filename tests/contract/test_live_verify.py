"""The comparison of a source that is written to: what was changed after the watermark is left out, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.plan import Bound, LoadChunk, TablePlan
from floodmark.core.settings import OnFailure, PipelineSettings, Rule, TableSettings
from floodmark.core.snapshot import LogEntry, SourceSnapshot
from floodmark.core.status import RowDifference, TableVerification
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.verify import PostgresRowComparer
from floodmark.sources.cdc.reader import CdcReader
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sync.ports import LoggedProgress
from floodmark.sync.verify import VerifyOptions, verify_tables

OF_ANOTHER = "INSERT INTO dbo.Others SELECT MAX(Id) + 1 FROM dbo.Others"
FOURTH = 4
PATIENT = VerifyOptions(patience_seconds=60)


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[SwitchRig]:
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount int)",
            "CREATE TABLE dbo.Others (Id int NOT NULL PRIMARY KEY)",
            "INSERT INTO dbo.Orders VALUES (1, 10), (2, 20), (3, 30), (4, 40)",
            "INSERT INTO dbo.Others VALUES (1)",
        )
        source.enable("Orders")
        source.enable("Others")
        made = SwitchRig(emulator, source, database)
        made.run()
        made.change(OF_ANOTHER)
        made.run()
        yield made


@dataclass(frozen=True)
class Watched(CdcReader):
    """A reader that does something before and after the rows of the table are read."""

    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None

    def read_chunk_bounds(self) -> Sequence[Bound]:
        return [(2,)]

    def read_chunk(self, chunk: LoadChunk) -> Iterator[pa.RecordBatch]:
        self.before()
        yield from super().read_chunk(chunk)
        self.after()


class Running(SqlServerSource):
    """A source whose capture job runs. on_snapshot: is called with the number of each snapshot before it is taken."""

    on_snapshot: Callable[[int], None] = staticmethod(lambda number: None)
    taken = 0

    def read_snapshot(self, *rest: Any, **named: Any) -> SourceSnapshot:
        self.taken += 1
        self.on_snapshot(self.taken)
        return replace(super().read_snapshot(*rest, **named), capture_running=True)


def verified(
    rig: SwitchRig,
    options: VerifyOptions = PATIENT,
    on_snapshot: Callable[[int], None] = lambda number: None,
    **hooks: Callable[[], None],
) -> TableVerification:
    def open_reader(plan: TablePlan, end: LogEntry) -> CdcReader:
        return Watched(plan, rig.at, end, **hooks)

    source = Running(rig.at)
    source.on_snapshot = on_snapshot  # type: ignore[method-assign]
    (found,) = verify_tables(
        rig.pipelines[0],
        source,
        open_reader,
        rig.ledger,
        PostgresRowComparer(rig.connection),
        progress=LoggedProgress(),
        options=options,
    )
    return found


def result(found: TableVerification) -> tuple[str, int, Sequence[RowDifference]]:
    return found.outcome, found.changed_rows, found.differences


def test_keys_that_were_changed_after_the_watermark_are_left_out_and_counted(rig: SwitchRig) -> None:
    rig.change(
        "UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1",
        "DELETE dbo.Orders WHERE Id = 2",
        "INSERT INTO dbo.Orders VALUES (5, 50)",
        "UPDATE dbo.Orders SET Id = 33 WHERE Id = 3",
    )
    assert result(verified(rig)) == ("equal", 5, ())


def test_difference_that_no_change_explains_is_one(rig: SwitchRig) -> None:
    rig.change("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    harm(rig, 'UPDATE shop.orders SET "Amount" = 0 WHERE "Id" = 2')
    found = verified(rig, on_snapshot=lambda number: rig.change(OF_ANOTHER))
    assert result(found) == ("DIFFERENT", 1, (RowDifference((2,), "different", ("Amount",)),))


def test_row_that_changes_while_rows_are_read_is_no_difference_when_capture_is_late(rig: SwitchRig) -> None:
    """The change is in the rows that were read, and is captured only when they have been compared."""
    rig.database.run("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    numbers: list[int] = []

    def capture_late(number: int) -> None:
        numbers.append(number)
        if number == FOURTH:
            rig.database.scan()

    assert result(verified(rig, on_snapshot=capture_late)) == ("equal", 1, ())
    assert FOURTH in numbers


def test_run_that_publishes_a_window_meanwhile_makes_no_difference(rig: SwitchRig) -> None:
    def run_another() -> None:
        rig.change("UPDATE dbo.Orders SET Amount = 12 WHERE Id = 1", "DELETE dbo.Orders WHERE Id = 2")
        rig.run()

    assert result(verified(rig, after=run_another)) == ("equal", 2, ())


def test_wait_for_capture_is_announced_once_with_its_limit_and_then_reported_as_often_as_wanted(
    rig: SwitchRig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "floodmark.sync.verify")
    rig.database.run("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    found = verified(rig, VerifyOptions(patience_seconds=1.5))
    assert found.outcome == "UNPROVEN"
    (said,) = [record.getMessage() for record in caplog.records if record.name == "floodmark.sync.verify"]
    assert said.startswith("A difference is left. dbo.Orders: waiting for the capture of all changes up to ")
    assert said.endswith(" by the source's clock, which takes 2 s at most.")


def test_difference_that_capture_may_explain_is_unproven(rig: SwitchRig) -> None:
    rig.database.run("UPDATE dbo.Orders SET Amount = 11 WHERE Id = 1")
    found = verified(rig, VerifyOptions(patience_seconds=0))
    assert (found.outcome, found.different_rows) == ("UNPROVEN", 1)
    assert "were recorded" in found.unproven


def test_rows_that_wait_in_quarantine_are_named_and_are_no_differences(rig: SwitchRig) -> None:
    small = Rule("small", '"Amount" < 100', OnFailure.QUARANTINE)
    (settings,) = rig.pipelines
    (table,) = settings.tables
    rig.pipelines = [PipelineSettings("shop", (replace(table, rules=(small,)),))]
    rig.change("UPDATE dbo.Orders SET Amount = 1000 WHERE Id = 1", "INSERT INTO dbo.Orders VALUES (5, 500)")
    rig.run()
    found = verified(rig)
    assert (result(found), found.waiting_rows) == (("equal", 0, ()), 2)
    # A row that is not the one that waits is a difference.
    harm(rig, "UPDATE floodmark.quarantine SET row_data = row_data || '{\"Amount\": 501}' WHERE key = '[5]'")
    found = verified(rig, on_snapshot=lambda number: rig.change(OF_ANOTHER))
    assert (result(found), found.waiting_rows) == (("DIFFERENT", 0, (RowDifference((5,), "missing"),)), 1)


def test_sample_compares_whole_chunks(rig: SwitchRig) -> None:
    found = verified(rig, VerifyOptions(sample_percent=50))
    assert (found.outcome, found.source_rows, found.target_rows, found.is_sample) == ("equal", 2, 4, True)


def test_only_some_tables_are_compared(rig: SwitchRig) -> None:
    others = TableSettings(replace(ORDERS, name="Others"), replace(ORDERS, schema="shop", name="others"))
    (settings,) = rig.pipelines
    rig.pipelines = [replace(settings, tables=(*settings.tables, others))]
    assert verified(rig, VerifyOptions(tables=[ORDERS])).source == ORDERS


def harm(rig: SwitchRig, statement: str) -> None:
    with psycopg.connect(rig.connection.conninfo()) as session:
        session.execute(statement)
