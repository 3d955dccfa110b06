"""``GuardedPipeline`` over SQL Server: change data capture, change tracking and event streams."""

from __future__ import annotations

import itertools
import uuid
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

from guarded_pipeline import GuardedPipeline

from cdc_database import CdcDatabase, cdc_database
from change_log import ChangeLog
from emulator_process import Emulator
from floodmark.core.position import Interval, Lsn
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sources.cdc.operations import SqlServerReplaySource
from floodmark.sources.cdc.reader import CdcReader
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.change_tracking.reader import TrackingReader, plan_reads
from floodmark.sources.change_tracking.source import TrackingSource
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.sync.ports import OpenReader, PlanReads
from floodmark.sync.replay import Replay
from sql_client import SqlClient
from stream_rig import COLUMNS, TABLE, StreamRig, stream_rig
from tracking_rig import tracking_database

_ORDERS = "dbo.Orders (Id int NOT NULL{}, Amount decimal(9,2), Note nvarchar(max))"


def _written(key: int, note: str) -> str:
    text = note.replace("'", "''")
    return f"DELETE dbo.Orders WHERE Id = {key}; INSERT dbo.Orders VALUES ({key}, {key}, N'{text}')"


class _OnServer(GuardedPipeline):
    """A pipeline over a database, with another one that has tables of the same names and fewer commits."""

    elsewhere: ClassVar = {"other_database"}
    began_again: ClassVar = {"instance_replaced"}
    restored: ClassVar = {"ahead_of_source"}

    def __init__(self, warehouse: WarehouseConnection, at: SqlServerConnection, other: SqlServerConnection) -> None:
        super().__init__(warehouse)
        self.at = at
        self.other = other
        self.rows_at = at
        """Where rows are read."""

    @abstractmethod
    def execute(self, *statements: str) -> None:
        """Run statements at the source, each in a commit of its own, and let their changes be captured."""

    def put(self, *rows: tuple[int, str]) -> None:
        self.execute(f"BEGIN TRAN; {'; '.join(_written(*row) for row in rows)}; COMMIT")

    def remove(self, key: int) -> None:
        self.execute(f"DELETE dbo.Orders WHERE Id = {key}")

    def put_other(self, key: int) -> None:
        self.execute(f"INSERT dbo.Others VALUES ({key})")

    def pass_keys_on(self) -> None:
        self.execute("UPDATE dbo.Orders SET Id = Id % 3 + 1 WHERE Id IN (1, 2, 3)")

    @contextmanager
    def lag(self) -> Iterator[None]:
        self.rows_at = self.other
        yield
        self.rows_at = self.at

    @contextmanager
    def lead_elsewhere(self) -> Iterator[None]:
        kept = self.at
        self.at = self.rows_at = self.other
        yield
        self.at = self.rows_at = kept

    def spoil(self) -> None:
        self.execute("INSERT dbo.Orders VALUES (9, 9, N'a' + NCHAR(0) + N'b')")

    def correct(self) -> None:
        self.put((9, "corrected"))

    def write_under_another_case(self) -> None:
        """The emulator has no database in which two tables have such names."""


class CdcPipeline(_OnServer):
    """Orders has no key at the server, but a declared one: one statement may pass it from row to row."""

    kind = "cdc"
    orders_settings: ClassVar = {"key": ("Id",)}

    def __init__(
        self, warehouse: WarehouseConnection, emulator: Emulator, own: CdcDatabase, other: CdcDatabase
    ) -> None:
        at = SqlServerConnection(
            emulator.host, emulator.port, own.name, emulator.user, emulator.password, ca_file=str(emulator.ca_file)
        )
        super().__init__(warehouse, at, replace(at, database=other.name))
        self.database = own

    @property
    def source(self) -> SqlServerSource:
        return SqlServerSource(self.at)

    def open_reader(self) -> OpenReader:
        return lambda plan, end: CdcReader(plan, self.rows_at, end)

    def execute(self, *statements: str) -> None:
        self.database.run(*statements)
        self.database.scan()

    def begin_again(self) -> None:
        self.database.run(
            "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'Orders',"
            " @capture_instance = N'dbo_Orders'",
            _written(1, "between"),
        )
        self.database.enable("Orders")

    def back_up(self) -> str:
        found: bytes = self.database.scalar("sys.fn_cdc_get_max_lsn()")
        return found.hex()

    def restore(self, backup: Any) -> None:
        self.database.run(f"EXEC emulator.restore_database @to_lsn = 0x{backup}")

    def break_feed(self) -> None:
        self.database.run(
            "EXEC sys.sp_cdc_disable_table @source_schema = N'dbo', @source_name = N'Orders',"
            " @capture_instance = N'dbo_Orders'"
        )

    def bring_late(self) -> None:
        self.put((1, "older"))
        self.run()
        older = Lsn(bytes(self.database.scalar("sys.fn_cdc_get_max_lsn()")))
        self.put((1, "newer"))
        self.run()
        log = SqlServerReplaySource(self.at)
        replay = Replay(self.settings, self.source, log, self.ledger, PostgresWarehouse(self.warehouse))
        before = Lsn((int.from_bytes(older.value) - 1).to_bytes(10))
        opened = replay.open(Interval(before, older))
        assert opened.window_id is not None
        self.load(opened)
        self.publish(opened)


class TrackingPipeline(_OnServer):
    """Over change tracking."""

    kind = "change_tracking"

    def __init__(
        self, warehouse: WarehouseConnection, client: SqlClient, at: SqlServerConnection, other: SqlServerConnection
    ) -> None:
        super().__init__(warehouse, at, other)
        self.client = client

    @property
    def source(self) -> TrackingSource:
        return TrackingSource(self.at)

    def open_reader(self) -> OpenReader:
        return lambda plan, end: TrackingReader(plan, self.rows_at, end)

    def plan_reads(self) -> PlanReads:
        return partial(plan_reads, source=self.rows_at)

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.client.run(statement)

    def begin_again(self) -> None:
        self.execute(
            "ALTER TABLE dbo.Orders DISABLE CHANGE_TRACKING",
            _written(1, "between"),
            "ALTER TABLE dbo.Orders ENABLE CHANGE_TRACKING",
        )

    def back_up(self) -> None:
        self.execute("EXEC emulator.take_backup")

    def restore(self, backup: Any) -> None:
        self.execute("EXEC emulator.restore_backup")
        for number in range(5):
            self.execute("EXEC emulator.advance_clock 1", f"INSERT dbo.Orders VALUES ({100 + number}, 1, N'since')")

    def break_feed(self) -> None:
        self.execute("ALTER TABLE dbo.Orders DISABLE CHANGE_TRACKING")

    def bring_late(self) -> None:
        with self.hushing():
            self.put((1, "hushed"))
            self.run()
            self.put((1, "newer"))
            self.run()
        # The merge has settled it. Versions before that did not, and left it to the release.
        assert self.set_aside() == 0
        self.rows("UPDATE floodmark.quarantine SET settled_at = NULL, settled_by = NULL, outcome = NULL RETURNING 1")
        assert self.release().overtaken == 1


class StreamPipeline(_OnServer):
    """Over an event stream, which the test writes. Rows of loads are read from the database."""

    kind = "event_stream"
    restored: ClassVar = {"instance_replaced"}

    def __init__(self, rig: StreamRig, other: SqlServerConnection) -> None:
        super().__init__(rig.warehouse, rig.at, other)
        self.rig = rig
        rig.partitions = 1
        rig.log.commits = itertools.count(1000)

    @property
    def source(self) -> Any:
        self.rig.at = self.at
        return self.rig.source

    def open_reader(self) -> OpenReader:
        self.rig.at = self.rows_at
        return self.rig.open_reader()

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.rig.client.run(statement)

    def put(self, *rows: tuple[int, str]) -> None:
        self.rig.stream(*self.rig.change(*((key, f"{key}.00", note) for key, note in rows)))

    def remove(self, key: int) -> None:
        self.rig.stream(*self.rig.change(key))

    def put_other(self, key: int) -> None:
        super().put_other(key)
        self.rig.stream(*self._others_log().commit(({}, {"Id": str(key)})))

    def pass_keys_on(self) -> None:
        super().pass_keys_on()
        rows = dict(self.rig.rows)
        moved = [(rows[old], rows[old] | {"Id": str(new)}) for old, new in ((1, 2), (2, 3), (3, 1))]
        self.rig.rows |= {int(str(row["Id"])): row for _, row in moved}
        # As if no index of the server knew the key: then an update of it is one event.
        self.rig.stream(*replace(self.rig.log, key="").commit(*moved))

    @contextmanager
    def lag(self) -> Iterator[None]:
        self.execute("EXEC emulator.hold_secondary")
        self.rows_at = replace(self.at, application_intent="ReadOnly")
        yield
        self.rows_at = self.at
        self.execute("EXEC emulator.release_secondary")

    def begin_again(self) -> None:
        self._write_unstreamed(1, "between")
        self.rig.log = replace(self.rig.log, guid=str(uuid.uuid4()))
        self._step(timedelta(minutes=1))
        self.put((2, "first of the new stream"))

    def back_up(self) -> int:
        return next(self.rig.log.commits)

    def restore(self, backup: Any) -> None:
        self._write_unstreamed(1, "as it was then")
        self.rig.log.commits = itertools.count(backup)
        self._step(timedelta(minutes=1))
        self.put((2, "since"))

    def spoil(self) -> None:
        good = self.rig.change((9, "9.00", "spoilt"))
        self.rig.stream(b"not an event", *(body.replace(b"9.00", b"nine") for body in good))

    def break_feed(self) -> None:
        bodies = self.rig.change((8, "8.00", "of a later format"))
        self.rig.stream(*(body.replace(b"DML.V1", b"DML.V2") for body in bodies))

    def bring_late(self) -> None:
        older = self.rig.change((1, "1.00", "older"))
        self.put((1, "newer"))
        self.run()
        self.rig.stream(*older)
        self.run()

    def write_under_another_case(self) -> None:
        row = {"Id": "9", "Amount": None, "Note": "foreign"}
        for each in (replace(self.rig.log, table="ORDERS"), replace(self.rig.log, database=self.at.database.lower())):
            self.rig.stream(*each.commit(({}, row)))

    def _others_log(self) -> ChangeLog:
        return replace(self.rig.log, table="Others", columns=COLUMNS[:1])

    def _write_unstreamed(self, key: int, note: str) -> None:
        """Write a row whose event nobody gets."""
        self.rig.change((key, f"{key}.00", note))

    def _step(self, time: timedelta) -> None:
        self.rig.log = replace(self.rig.log, began_at=self.rig.log.began_at + time)


_OTHERS = "CREATE TABLE dbo.Others (Id int NOT NULL PRIMARY KEY)"
_TRACKED = (
    f"CREATE TABLE {_ORDERS.format(' PRIMARY KEY')}",
    _OTHERS,
    "ALTER TABLE dbo.Orders ENABLE CHANGE_TRACKING",
    "ALTER TABLE dbo.Others ENABLE CHANGE_TRACKING",
    "INSERT dbo.Others VALUES (0)",
)


class Elsewhere:
    """The databases to which a connection leads by mistake, or that lag behind: one of each kind for all tests, of
    which none writes to it."""

    def __init__(self, emulator: Emulator, stack: ExitStack) -> None:
        """Each is made when it is needed. stack: ends them."""
        self._emulator = emulator
        self._stack = stack

    @cached_property
    def cdc(self) -> CdcDatabase:
        return self._stack.enter_context(_captured_database(self._emulator))

    @cached_property
    def tracked(self) -> SqlServerConnection:
        return self._stack.enter_context(tracking_database(self._emulator, _TRACKED))[1]

    @cached_property
    def streamed(self) -> SqlServerConnection:
        return self._stack.enter_context(tracking_database(self._emulator, (TABLE, _OTHERS)))[1]


@contextmanager
def _captured_database(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as database:
        database.run(f"CREATE TABLE {_ORDERS.format('')}", _OTHERS)
        database.enable("Orders", "Others")
        database.run("INSERT dbo.Others VALUES (0)")
        database.scan()
        yield database


@contextmanager
def cdc_pipeline(
    emulator: Emulator, warehouse: WarehouseConnection, folder: Path, elsewhere: Elsewhere
) -> Iterator[CdcPipeline]:
    other = elsewhere.cdc
    with _captured_database(emulator) as own:
        yield CdcPipeline(warehouse, emulator, own, other)


@contextmanager
def tracking_pipeline(
    emulator: Emulator, warehouse: WarehouseConnection, folder: Path, elsewhere: Elsewhere
) -> Iterator[TrackingPipeline]:
    with tracking_database(emulator, _TRACKED) as (client, at):
        yield TrackingPipeline(warehouse, client, at, elsewhere.tracked)


@contextmanager
def stream_pipeline(
    emulator: Emulator, warehouse: WarehouseConnection, folder: Path, elsewhere: Elsewhere
) -> Iterator[StreamPipeline]:
    with stream_rig(emulator, warehouse, folder) as rig:
        rig.client.run(_OTHERS)
        made = StreamPipeline(rig, elsewhere.streamed)
        rig.settings = made.settings
        yield made
