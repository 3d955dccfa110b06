"""``StreamSchedule``: a table's changes, the way of their messages, and runs, in an order that a seed draws.

The server is the emulator, and the messages are those that it writes. Here they travel: they wait in the queue of a
partition, partitions are late, and messages come again. At the end each table equals the source, or a verdict that the
schedule expects has left it out, and a load repairs it.
"""

from __future__ import annotations

import random
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from benchmarks.capture_files import CaptureWriter
from change_log import ChangeLog
from emulator_process import Emulator
from floodmark.core.columns import describe_column, hides_values
from floodmark.core.errors import (
    ConfigError,
    FloodmarkError,
    InstanceReplacedError,
    TableRefusedError,
    UnknownFormatError,
    WindowBusyError,
    WindowExpiredError,
)
from floodmark.core.plan import WindowState
from floodmark.core.position import POSITION_BYTES
from floodmark.core.schema import TableName
from floodmark.core.settings import (
    ColumnSettings,
    Deletes,
    Mask,
    NewColumns,
    OnGap,
    PipelineSettings,
    Style,
    TableSettings,
)
from floodmark.core.snapshot import Verdict
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sources.event_stream.change import LOWEST
from floodmark.sources.event_stream.envelope import parse_envelope
from floodmark.sources.event_stream.epochs import PartitionMark
from floodmark.sources.event_stream.transport import CaptureFolder, PartitionEnds
from floodmark.sources.sqlserver.driver import SqlServerConnection
from floodmark.sync.filters import parse_filter
from floodmark.sync.repair import LoadPlanner
from floodmark.sync.window import OpenResult
from shared_pass_stager import SharedPassStager
from sql_client import SqlClient
from stream_rig import COLUMNS, ORDERS, PIPELINE, StreamRig

LINES = TableName("dbo", "Lines")
_TABLES = {
    ORDERS: "CREATE TABLE dbo.Orders (Id int NOT NULL PRIMARY KEY, Amount decimal(9,2), Note nvarchar(max))",
    LINES: "CREATE TABLE dbo.Lines (Id int NOT NULL, V int NOT NULL, W nvarchar(20))",
}
_SET_UP = (
    "ALTER DATABASE SCOPED CONFIGURATION SET PREVIEW_FEATURES = ON",
    "CREATE DATABASE SCOPED CREDENTIAL c WITH IDENTITY = 'Managed Identity'",
    "EXEC sys.sp_enable_event_stream",
)
DATABASE = "Streaming"
_NAMESPACE = "floods"
_FLOOD = 210
"""More messages than those at the end of a partition that a load reads first."""
_KEYS = range(1, 9)
_TOUCHED_KEY = 1000
"""Above it are rows that are written once, for their events."""
_VERDICTS: Mapping[type[FloodmarkError], Verdict] = {
    InstanceReplacedError: Verdict.INSTANCE_REPLACED,
    WindowExpiredError: Verdict.EXPIRED,
    TableRefusedError: Verdict.REFUSED,
    UnknownFormatError: Verdict.REFUSED,
}
_SECONDARY = "a copy of the database that cannot be written"
_GUID = "9c8d4ad2-bf54-4f10-a96f-038af496997f"
_MASK_KEY, _SECRET = "mask_key", "a secret of more than sixteen characters"
_MOST_RUNS = 10
"""The runs that read all messages that have come."""
_EPOCH_SECONDS = 20
"""The time between the last commit of a stream and the first one of the next: more than ``EPOCH_SLACK``."""


@dataclass(frozen=True)
class Sent:
    """A message on its way."""

    body: bytes
    fault: TableName | None = None
    """The table of the event that was damaged; None for a whole one."""


@dataclass
class StreamingDatabase:
    """A database that streams. ``hubs``: the emulator's ``--event-hubs-folder``, with one partition for each hub."""

    emulator: Emulator
    client: SqlClient
    hubs: Path

    @property
    def at(self) -> SqlServerConnection:
        found = self.emulator
        return SqlServerConnection(
            found.host, found.port, DATABASE, found.user, found.password, ca_file=str(found.ca_file)
        )


@contextmanager
def streaming_database(emulator: Emulator, hubs: Path) -> Iterator[StreamingDatabase]:
    """Let a database of an emulator stream."""
    with emulator.connect_pymssql(DATABASE, autocommit=True) as connection:
        client = SqlClient(connection)
        for statement in _SET_UP:
            client.run(statement)
        yield StreamingDatabase(emulator, client, hubs)


@dataclass
class StreamSchedule:
    """One schedule. ``run`` may be called once."""

    server: StreamingDatabase
    warehouse: WarehouseConnection
    folder: Path
    seed: int
    style: Style = Style.CURRENT
    """Of the table with a primary key; logs are for both tables."""
    journal: list[str] = field(default_factory=list)
    keys: dict[TableName, set[int]] = field(default_factory=lambda: {name: set() for name in _TABLES})
    """The keys of living rows."""
    queues: dict[int, deque[Sent]] = field(default_factory=lambda: defaultdict(deque))
    """By partition: messages that have not come yet."""
    sent: list[tuple[int, Sent]] = field(default_factory=list)
    """Messages of the server with their partitions, in its order."""
    allowed: dict[TableName, set[Verdict]] = field(default_factory=lambda: {name: set() for name in _TABLES})
    """The verdicts that something in the schedule explains."""
    unreadable: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """Messages that nobody can read, by partition and offset."""
    old: set[bytes] = field(default_factory=set)
    """Events of streams that ended: they may go to quarantine."""
    dark: set[TableName] = field(default_factory=set)
    """The tables with lost changes that no event shows yet."""
    to_load: set[TableName] = field(default_factory=set)
    """The tables that an operator loads again: quarantine, or an error, says so."""

    def __post_init__(self) -> None:
        self.chance = chance = random.Random(self.seed)
        self.scheme = chance.choice(["Table", "StreamGroup", "None"])
        self.is_partial = self.scheme != "None" and chance.random() < 0.6
        self.partitions = chance.randint(1, 3)
        self.has_identifiers = chance.random() < 0.75
        """Whether the identifier in ``logicalid`` is that of a table in its group. Otherwise it never changes."""
        self.generation = chance.randint(1, 3)
        self.encoding = chance.choice(["JSON", "Binary"]) if self.generation > 1 else "JSON"
        self.columns: dict[TableName, list[str]] = {name: [] for name in _TABLES}
        """The columns that were added."""
        self.amounts: dict[TableName, str] = {}
        """The filters, by table."""
        self.is_marked = False
        self.clock_behind = 0
        self.values = 0
        hub = self.folder / "topic"
        hub.mkdir()
        on_gap, deletes = chance.choice(list(OnGap)), chance.choice(list(Deletes))
        deletes = deletes if self.style is Style.CURRENT else Deletes.SOFT
        of_lines = self.style if self.style is Style.LOG else Style.CURRENT
        orders = TableSettings(ORDERS, TableName("shop", "orders"), style=self.style)
        lines = TableSettings(LINES, TableName("shop", "lines"), key=("Id",), style=of_lines)
        tables = tuple(
            replace(
                self.with_columns(each),
                on_gap=on_gap,
                deletes=deletes,
                commit_times=each.style is Style.CURRENT,
                new_columns=NewColumns.FOLLOW,
            )
            for each in (orders, lines)
        )
        # As the file says it: a window may lack the table that hides values.
        keeps = not any(map(hides_values, tables))
        tables = tuple(replace(each, keeps_messages=keeps) for each in tables)
        self.rig = StreamRig(
            self.server.client,
            self.server.at,
            self.warehouse,
            CaptureWriter(hub),
            ChangeLog("Elsewhere", COLUMNS, "Id"),
            PipelineSettings(PIPELINE, tables),
            mask_keys={_MASK_KEY: _SECRET},
        )
        self.hub = f"hub-{self.style.value}-{self.seed}"
        self.produced = CaptureFolder(str(self.server.hubs / _NAMESPACE / self.hub))
        self.taken = 0
        self.note(
            f"scheme {self.scheme}, {self.partitions} partitions, {'partial' if self.is_partial else 'whole'} events,"
            f" {'an identifier of each table' if self.has_identifiers else 'one identifier'},"
            f" on_gap {on_gap.value}, deletes {deletes.value}"
        )
        for table in tables:
            chosen = ", ".join(f"{each.name}: {describe_column(each)}" for each in table.columns)
            self.note(f"{table.source}: columns {{{chosen}}}, where {table.where.sql if table.where else 'none'}")

    def with_columns(self, table: TableSettings) -> TableSettings:
        """Draw settings of columns, and a filter, for a table whose events have all columns."""
        drawn = self.chance.random()
        if drawn < 0.35:
            return table
        hidden = "Note" if table.source == ORDERS else "W"
        ways = (
            ColumnSettings(hidden, is_dropped=True),
            ColumnSettings(hidden, "hidden", mask=Mask.HASH),
            ColumnSettings(hidden, mask=Mask.LAST4),
        )
        columns = [self.chance.choice(ways)]
        if table.style is not Style.LOG and self.chance.random() < 0.5:
            columns.append(ColumnSettings("Id", mask=Mask.HASH))
        if self.is_partial or self.chance.random() < 0.4:
            return replace(table, columns=tuple(columns), mask_key_conn_id=_MASK_KEY)
        number = "Amount" if table.source == ORDERS else "V"
        limits = ", ".join(map(str, self.chance.sample(range(1, 120), 80)))
        self.amounts[table.source] = f"({number} IN ({limits}) OR {number} IS NULL)"
        where = parse_filter(self.amounts[table.source])
        return replace(table, columns=tuple(columns), mask_key_conn_id=_MASK_KEY, where=where)

    def note(self, line: str) -> None:
        self.journal.append(line)

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.note(statement)
            self.server.client.run(statement)

    # The server

    def set_up(self) -> None:
        for name, statement in _TABLES.items():
            self.server.client.run(f"DROP TABLE IF EXISTS {name}")
            self.execute(statement)
        self.execute(
            # First, since the schedule before may have left one that does not know the encoding.
            f"EXEC emulator.set_event_stream_generation @generation = {self.generation}",
            f"EXEC sys.sp_create_event_stream_group N'{self.hub}', N'AzureEventHubsApacheKafka',"
            f" N'{_NAMESPACE}.servicebus.windows.net/{self.hub}', N'c', @max_message_size_kb = 128,"
            f" @partition_key_scheme = N'{self.scheme}', @encoding = N'{self.encoding}'",
        )
        for name in _TABLES:
            self.add(name)

    def add(self, name: TableName) -> None:
        """Stream a table."""
        whole = 0 if self.is_partial and name == ORDERS else 1
        self.execute(
            f"EXEC sys.sp_add_object_to_event_stream_group N'{self.hub}', N'{name}', @include_all_columns = {whole}"
        )

    def remove(self, name: TableName) -> None:
        self.execute(f"EXEC sys.sp_remove_object_from_event_stream_group N'{self.hub}', N'{name}'")

    def tear_down(self) -> None:
        for name in _TABLES:
            self.remove(name)
            self.server.client.run(f"DROP TABLE {name}")
        self.server.client.run(f"EXEC sys.sp_drop_event_stream_group N'{self.hub}'")
        self.server.client.run("EXEC emulator.reset")

    def write(self) -> None:
        """Change rows, in one transaction or in several."""
        statements = [self.statement() for _ in range(self.chance.randint(1, 4))]
        if self.chance.random() < 0.5:
            statements = [f"BEGIN TRAN; {'; '.join(statements)}; COMMIT"]
        self.execute(*statements)

    def statement(self) -> str:
        name = self.chance.choice(list(_TABLES))
        if (added := self.columns[name]) and self.chance.random() < 0.3:
            column, key = self.chance.choice(added), self.chance.choice(_KEYS)
            return f"UPDATE {name} SET {column} = {self.value()} WHERE Id >= {key}"
        return self.change_order() if name == ORDERS else self.change_line()

    def value(self) -> int:
        """Return a number that no row has had."""
        self.values += 1
        return self.values

    def note_text(self) -> str:
        drawn = self.chance.random()
        if drawn < 0.15:
            return "NULL"
        if drawn < 0.2:
            return f"REPLICATE(CAST(N'{self.value()} ' AS nvarchar(max)), 60000)"
        return f"N'n{self.value()}'"

    def change_order(self) -> str:
        living, key = self.keys[ORDERS], self.chance.choice(_KEYS)
        if key not in living:
            living.add(key)
            return f"INSERT dbo.Orders (Id, Amount, Note) VALUES ({key}, {self.value()}, {self.note_text()})"
        drawn = self.chance.random()
        if drawn < 0.25:
            living.discard(key)
            return f"DELETE dbo.Orders WHERE Id = {key}"
        if drawn < 0.35 and (free := [each for each in _KEYS if each not in living]):
            new = self.chance.choice(free)
            living.discard(key)
            living.add(new)
            return f"UPDATE dbo.Orders SET Id = {new} WHERE Id = {key}"
        if drawn < 0.6:
            return f"UPDATE dbo.Orders SET Amount = {self.value()} WHERE Id = {key}"
        if drawn < 0.85:
            return f"UPDATE dbo.Orders SET Note = {self.note_text()} WHERE Id = {key}"
        return f"UPDATE dbo.Orders SET Amount = NULL, Note = {self.note_text()} WHERE Id >= {key}"

    def change_line(self) -> str:
        living, key = self.keys[LINES], self.chance.choice(_KEYS)
        if key not in living:
            living.add(key)
            return f"INSERT dbo.Lines (Id, V, W) VALUES ({key}, {self.value()}, N'w')"
        drawn = self.chance.random()
        if drawn < 0.25:
            living.discard(key)
            return f"DELETE dbo.Lines WHERE Id = {key}"
        if drawn < 0.45:
            # No index knows the key, so the log has the rows one by one.
            self.allowed[LINES].add(Verdict.EXPIRED)
            factor, summand = self.chance.choice([(1, 1), (1, -1), (-1, 9)])
            self.keys[LINES] = {factor * each + summand for each in living}
            expression = f"{factor} * Id + {summand}"
            return f"UPDATE dbo.Lines SET Id = {expression}"
        return f"UPDATE dbo.Lines SET V = {self.value()} WHERE Id = {key}"

    def touch(self, name: TableName) -> None:
        """Change a row of a table, so that an event of it comes."""
        key = _TOUCHED_KEY + self.value()
        column = "Id, Amount" if name == ORDERS else "Id, V"
        self.execute(f"INSERT {name} ({column}) VALUES ({key}, {self.value()})")

    def alter(self) -> None:
        """Add, drop or widen a column."""
        self.collect()
        name, drawn = self.chance.choice(list(_TABLES)), self.chance.random()
        added = self.columns[name]
        if added and drawn < 0.3:
            self.execute(f"ALTER TABLE {name} DROP COLUMN {added.pop(self.chance.randrange(len(added)))}")
        elif drawn < 0.8:
            column, kind = f"X{self.value()}", self.chance.choice(["int", "nvarchar(30)", "decimal(9,2)"])
            self.execute(f"ALTER TABLE {name} ADD {column} {kind} NULL")
            added.append(column)
        elif name == ORDERS:
            self.execute(f"ALTER TABLE dbo.Orders ALTER COLUMN Amount decimal({self.chance.randint(9, 12)},2)")
        else:
            self.execute(f"ALTER TABLE dbo.Lines ALTER COLUMN W nvarchar({self.chance.randint(20, 40)})")

    def begin_epoch(self) -> None:
        """Set up the stream of a table, or of all, again. Changes in between are in no event."""
        self.mark_identifiers()
        if self.chance.random() < 0.5:
            self.deliver()
        self.advance_clock(self.clock_behind + _EPOCH_SECONDS)
        self.clock_behind = 0
        names = list(_TABLES)
        self.collect()
        if self.has_identifiers and self.chance.random() < 0.5:
            names = [self.chance.choice(names)]
            self.remove(names[0])
            self.write()
            self.collect()
            self.add(names[0])
        else:
            self.write()
            self.lose()
            self.fail_over()
        self.old.update(each.body for _, each in self.sent)
        for name in names:
            self.allowed[name].add(Verdict.INSTANCE_REPLACED)
        self.dark.update(names)
        if not self.has_identifiers:
            # A log that has grown past its old end before an event comes shows nothing.
            self.light()
            self.deliver()

    def fail_over(self) -> None:
        lsns = [parse_envelope(each.body).logical_id.commit_lsn.value for _, each in self.sent if not each.fault]
        if self.has_identifiers and self.chance.random() < 0.5:
            self.execute("EXEC emulator.start_event_stream_epoch")
        else:
            self.execute(f"EXEC emulator.start_event_stream_epoch @lsn = 0x{min(lsns).hex()}")

    def lose(self) -> None:
        """Take what the server has written, and lose it."""
        self.server.client.run("EXEC emulator.run_event_stream")
        self.taken = max((each.high for each in self.read_ends()), default=0)

    def mark_identifiers(self) -> None:
        """Let runs read two commits of one identifier: until then it shows nothing."""
        if self.is_marked:
            return
        for name in (*_TABLES, *_TABLES):
            self.touch(name)
        self.settle()
        for name in (*_TABLES, *_TABLES):
            self.touch(name)
        self.settle()
        self.is_marked = True

    def light(self) -> None:
        """Let events show what was lost."""
        for name in sorted(self.dark, key=str):
            self.touch(name)
        self.dark.clear()

    def advance_clock(self, seconds: int) -> None:
        self.execute(f"EXEC emulator.advance_clock {seconds}")

    def set_clock_back(self) -> None:
        """Let the clock step back, as after a failover to another server. Nothing of an epoch is unread then."""
        if self.has_identifiers:
            self.settle()
            self.execute(
                "DECLARE @back datetime2(6) = DATEADD(second, -120, SYSDATETIME()); EXEC emulator.set_clock @back"
            )
            self.clock_behind += 120

    # The way of the messages

    def collect(self) -> None:
        """Take what the server has written into the queues."""
        self.server.client.run("EXEC emulator.run_event_stream")
        for ends in self.read_ends():
            for messages in self.produced.read(0, self.taken, ends.high):
                for each in messages:
                    self.enqueue(each.body or b"")
            self.taken = ends.high

    def read_ends(self) -> list[PartitionEnds]:
        """Return the end of what the server has written; nothing before its first message."""
        return list(self.produced.read_ends().values()) if Path(self.produced.path).exists() else []

    def enqueue(self, body: bytes) -> None:
        if not self.has_identifiers:
            body = body.replace(parse_envelope(body).logical_id.guid.encode(), _GUID.encode())
        partition = self.partition_of(body)
        self.queues[partition].append(Sent(body))
        self.sent.append((partition, Sent(body)))

    def partition_of(self, body: bytes) -> int:
        if self.scheme == "None":
            return self.chance.randrange(self.partitions)
        if self.scheme == "StreamGroup":
            return zlib.crc32(self.hub.encode()) % self.partitions
        return zlib.crc32(parse_envelope(body).logical_id.guid.encode()) % self.partitions

    def deliver(self, share: float = 1.0) -> None:
        """Let messages come. share: of those of each partition, in their order."""
        self.collect()
        for partition, queue in self.queues.items():
            count = len(queue) if share >= 1.0 else self.chance.randint(0, len(queue))
            if count:
                self.note(f"{count} messages come in partition {partition}")
                self.append(partition, [queue.popleft() for _ in range(count)])

    def append(self, partition: int, messages: Sequence[Sent]) -> None:
        first = self.rig.capture.next.get(partition, 0)
        for offset, each in enumerate(messages, first):
            if each.fault:
                self.note(f"message {offset} of partition {partition} is damaged")
                self.unreadable[partition, offset] = each.body
                self.to_load.add(each.fault)
        self.rig.capture.write(partition, [each.body for each in messages])

    def damage(self) -> None:
        """Cut a message that waits."""
        self.collect()
        places = [(partition, at) for partition, queue in self.queues.items() for at in range(len(queue))]
        if places:
            partition, at = self.chance.choice(places)
            whole = self.queues[partition][at]
            names = [name for name in _TABLES if name.name.encode() in whole.body]
            if len(names) == 1 and not whole.fault:
                self.queues[partition][at] = Sent(whole.body[: len(whole.body) // 2], names[0])

    def write_later_version(self) -> None:
        """Let an event come in a version of the format that nobody can read yet."""
        name = self.chance.choice(list(_TABLES))
        if self.generation == 1 or self.encoding != "JSON":
            return
        self.collect()
        own = [each for _, each in self.sent if f'tbl\\":\\"{name.name}'.encode() in each.body]
        if own:
            partition = self.chance.randrange(self.partitions)
            self.note(f"an event of {name} comes in partition {partition} in a later version")
            self.allowed[name].add(Verdict.REFUSED)
            self.rig.capture.write(partition, [own[-1].body.replace(b"DML.V1", b"DML.V2")])

    def leave_hole(self) -> None:
        """Leave an offset out, as compaction or a transaction of Kafka does."""
        partition = self.chance.randrange(self.partitions)
        offset = self.rig.capture.next.get(partition, 0)
        self.note(f"partition {partition} has no message {offset}")
        self.rig.capture.next[partition] = offset + 1
        self.write_elsewhere(partition)
        for allowed in self.allowed.values():
            allowed.update((Verdict.EXPIRED, Verdict.REFUSED))

    def repeat(self) -> None:
        """Send the last messages again, as a server does that does not know how far it came."""
        self.collect()
        count = self.chance.randint(1, 12)
        again = self.sent[-count:]
        self.note(f"the last {len(again)} messages are sent again")
        for partition, each in again:
            at = self.chance.randrange(self.partitions) if self.scheme == "None" else partition
            self.queues[at].append(each)

    def write_unreadable(self) -> None:
        """Let a message come that is no event."""
        partition, body = self.chance.randrange(self.partitions), f"no event {self.value()}".encode()
        offset = self.rig.capture.next.get(partition, 0)
        self.note(f"message {offset} of partition {partition} is no event")
        self.unreadable[partition, offset] = body
        self.rig.capture.write(partition, [body])

    def write_elsewhere(self, partition: int | None = None) -> None:
        """Let events of another database come."""
        partition = self.chance.randrange(self.partitions) if partition is None else partition
        images = {"Id": str(self.chance.choice(_KEYS)), "Amount": None, "Note": "elsewhere"}
        self.note(f"an event of another database comes in partition {partition}")
        self.rig.capture.write(partition, self.rig.log.commit(({}, images)))

    def flood(self) -> None:
        """Let so many events of another database come that a load does not see its own among the last ones."""
        images = {"Id": "1", "Amount": None, "Note": "elsewhere"}
        self.note(f"{_FLOOD} events of another database come in each partition")
        for partition in range(self.partitions):
            self.rig.capture.write(partition, self.rig.log.commit(({}, images)) * _FLOOD)

    def refuse_events_in_part(self) -> None:
        """Stream a table with events in part in any order: nothing may be read until they are whole."""
        self.collect()
        self.is_partial = True
        self.remove(ORDERS)
        self.add(ORDERS)
        try:
            self.rig.open()
        except ConfigError as error:
            self.note(str(error))
            assert "leave out columns" in str(error), str(error)
        states = self.rig.ledger.read_tables(PIPELINE)
        assert states.get(ORDERS) is None or states[ORDERS].watermark is None
        verdicts = {each.table: each.verdict for each in self.rig.ledger.list_stopped(PIPELINE)}
        assert verdicts.get(ORDERS) is Verdict.NOT_PLANNABLE, f"events in part in any order: {verdicts}"
        self.is_partial = False
        self.remove(ORDERS)
        self.add(ORDERS)
        # Its events have another identifier now, and those with the one before may still come.
        self.allowed[ORDERS].update((Verdict.NOT_PLANNABLE, Verdict.INSTANCE_REPLACED))

    # Runs

    def stager(self) -> SharedPassStager:
        at, stream = self.rig.at.database, self.rig.connection.open_stream()
        readers = self.chance.choice([0, 1, 2])
        return SharedPassStager(self.rig.open_reader(), at, stream, readers, self.rig.mask_keys)

    def sync(self, between: Callable[[], None] = lambda: None) -> bool:
        """Run the pipeline once. between: called between its steps. Return whether something was read."""
        self.note("a run")
        before = self.marks()
        self.rig.stager = self.stager()
        try:
            opened = self.rig.open()
            if opened.window_id is None:
                return False
            self.finish(opened, between)
        except FloodmarkError as error:
            self.expect(error)
            return False
        finally:
            self.require_quarantined(before)
            self.require_explained()
        return True

    def sync_from_secondary(self) -> None:
        """Run over a connection that leads to a copy that lags: nothing may be read there."""
        self.rig.ledger.ensure_schema()
        unfinished = self.rig.ledger.unfinished_window(PIPELINE)
        if unfinished is not None and unfinished.state is not WindowState.PLANNED:
            return  # it is read already
        self.note("a run reads a secondary")
        at = self.rig.at
        before = self.marks()
        self.server.client.run("EXEC emulator.hold_secondary")
        self.interlude()
        try:
            if self.chance.random() < 0.5:
                self.refuse_secondary(self.rig.open)
            elif (opened := self.try_open()) is not None and opened.window_id is not None:
                self.rig.stager = self.stager()
                self.rig.at = replace(at, application_intent="ReadOnly")
                self.rig.stager = self.stager()
                self.refuse_secondary(lambda: self.rig.load(opened))
        finally:
            self.rig.at = at
            self.server.client.run("EXEC emulator.release_secondary")
        assert self.marks() == before

    def try_open(self) -> OpenResult | None:
        try:
            return self.rig.open()
        except FloodmarkError as error:
            self.expect(error)
            return None

    def refuse_secondary(self, step: Callable[[], object]) -> None:
        self.rig.at = replace(self.rig.at, application_intent="ReadOnly")
        try:
            step()
        except FloodmarkError as error:
            if not (isinstance(error, ConfigError | TableRefusedError) and _SECONDARY in str(error)):
                self.expect(error)  # such as a missing message, which is found before
        else:
            raise AssertionError("a secondary was read")

    def abandon(self) -> None:
        """Begin a run that dies between its steps."""
        self.note("a run that dies")
        self.rig.stager = self.stager()
        opened = self.try_open()
        if opened is not None and opened.window_id is not None and self.chance.random() < 0.6:
            try:
                self.rig.load(opened)
            except FloodmarkError as error:
                self.expect(error)

    def finish(self, opened: OpenResult, between: Callable[[], None]) -> None:
        between()
        self.rig.load(opened)
        between()
        self.rig.publish(opened)

    def expect(self, error: FloodmarkError) -> None:
        """Require that something in the schedule explains an error."""
        self.note(f"{type(error).__name__}: {error}")
        verdict = _VERDICTS.get(type(error))
        names = {name for name, allowed in self.allowed.items() if verdict in allowed}
        if not names:
            raise error
        if verdict is not Verdict.INSTANCE_REPLACED:
            self.to_load.update(names)

    def marks(self) -> dict[TableName, dict[int, PartitionMark]]:
        self.rig.ledger.ensure_schema()
        return {
            name: {int(each.member): PartitionMark.parse(each.mark) for each in found if each.mark}
            for name, found in self.rig.ledger.list_marks(PIPELINE).items()
        }

    def require_quarantined(self, before: Mapping[TableName, Mapping[int, PartitionMark]]) -> None:
        """Require that each unreadable message that a mark has passed is in quarantine."""
        quarantined = {(int(member), int(place)) for member, place, _, _ in self.rig.quarantined()}
        for name, marks in self.marks().items():
            for partition, mark in marks.items():
                known = before.get(name, {}).get(partition)
                passed = {
                    place
                    for place in self.unreadable
                    if known is not None and place[0] == partition and known.next <= place[1] < mark.next
                }
                assert passed <= quarantined, f"{name}: {passed - quarantined} vanished"

    def stopped(self) -> dict[TableName, set[Verdict]]:
        """Return the verdicts on tables and their partitions that leave tables out."""
        found: dict[TableName, set[Verdict]] = defaultdict(set)
        for table, each in self.rig.ledger.list_stopped_members(PIPELINE):
            found[table].add(each.verdict)
        for each in self.rig.ledger.list_stopped(PIPELINE):
            if each.verdict is not Verdict.REPAIRING and _SECONDARY not in each.cause:
                found[each.table].add(each.verdict)
        return found

    def require_explained(self) -> None:
        for name, verdicts in self.stopped().items():
            assert verdicts <= self.allowed[name], f"{name} is {verdicts}, and nothing explains it"

    def load(self, name: TableName, between: Callable[[], None] = lambda: None) -> None:
        """Load a table again."""
        self.note(f"a load of {name}")
        self.rig.stager = self.stager()
        try:
            opened = self.planner().open_reload(name)
        except WindowBusyError:
            self.note("a window holds the table")
            return
        self.finish(opened, between)

    def planner(self) -> LoadPlanner:
        return LoadPlanner(self.rig.settings, self.rig.source, self.rig.ledger, PostgresWarehouse(self.warehouse))

    def repair(self) -> None:
        """Finish the loads that runs have planned, and load each table that is left out."""
        while True:
            opened = self.planner().open_pending()
            if opened.window_id is None:
                break
            self.note("a load that a run has planned")
            self.rig.stager = self.stager()
            self.finish(opened, lambda: None)
        for name in self.stopped():
            self.load(name)

    def interlude(self) -> None:
        """Anything that may happen while a run or a load is on its way."""
        choices: list[Callable[[], None]] = [self.write, partial(self.deliver, 0.5)]
        for _ in range(self.chance.randint(0, 2)):
            self.chance.choice(choices)()

    # Schedules

    def run(self, steps: int) -> None:
        self.set_up()
        try:
            self.write()
            if self.scheme == "None" and self.chance.random() < 0.3:
                self.refuse_events_in_part()
            for _ in range(steps):
                self.step()
            self.settle()
        finally:
            self.tear_down()

    def step(self) -> None:
        steps: Sequence[tuple[Callable[[], object], int]] = [
            (self.write, 30),
            (partial(self.deliver, 0.5), 20),
            (self.sync, 15),
            (lambda: self.sync(self.interlude), 10),
            (self.repeat, 6),
            (self.write_unreadable, 4),
            (self.write_elsewhere, 4),
            (self.flood, 2),
            (self.repair, 3),
            (self.load_any, 2),
            (self.settle, 2),
            (self.alter, 3),
            (self.begin_epoch, 2),
            (self.set_clock_back, 1),
            (self.damage, 2),
            (self.write_later_version, 1),
            (self.leave_hole, 1),
            (self.sync_from_secondary, 2),
            (self.abandon, 3),
        ]
        chosen, weights = zip(*steps, strict=True)
        self.chance.choices(chosen, weights)[0]()

    def load_any(self) -> None:
        if self.marks():
            self.load(self.chance.choice(list(_TABLES)), self.interlude)

    def require_entries(self) -> None:
        """Require that the newest entry of each primary key in the log is the row of the source, or a delete.

        A declared key that one statement passes on from row to row may exist behind a delete of it.
        """
        value = "Id" if self.is_partial else "Amount"
        where = self.amounts.get(ORDERS, "1 = 1")
        source = self.server.client.rows(f"SELECT Id, {value} FROM dbo.Orders WHERE {where} ORDER BY Id")
        found = self.rig.query(
            f'SELECT "Id", "{value}" FROM (SELECT DISTINCT ON ("Id") * FROM shop.orders '
            "WHERE __load = (SELECT max(__load) FROM shop.orders) "
            'ORDER BY "Id", __lsn DESC, __command_id DESC, __seq DESC, __op DESC) AS newest '
            'WHERE __op <> 1 ORDER BY "Id"'
        )
        assert found == [tuple(row) for row in source]

    def require_times(self) -> None:
        """Require that each row of a target has the time of the event that its position names.

        A load before any event has the time of its plan, and one that finds no row sweeps without a time. LSNs may come
        again in a later stream.
        """
        known: dict[bytes, set[datetime]] = defaultdict(set)
        for _, each in self.sent:
            found = parse_envelope(each.body)
            known[found.logical_id.commit_lsn.value].add(found.time)
        for target in (table.target for table in self.rig.settings.tables if table.commit_times):
            for lsn, at, is_deleted in self.rig.query(f"SELECT __lsn, __committed_at, __deleted FROM {target}"):
                times = known[lsn[:POSITION_BYTES]]
                assert at in times or (at is None and is_deleted) or (at and lsn == LOWEST), (lsn.hex(), at, times)

    def settle(self) -> None:
        """Bring all to its end: every message comes, and runs and loads follow until nothing is left to do."""
        self.note("all is brought to its end")
        self.light()
        self.deliver()
        for _ in range(8):
            # A table that each run plans and leaves out again would keep runs going.
            for _ in range(_MOST_RUNS):
                if not self.sync():
                    break
            self.repair()
            for name in sorted(self.to_load, key=str):
                self.load(name)
            self.to_load.clear()
            if not self.stopped() and not self.sync():
                break
        assert not self.stopped()
        assert not self.to_load
        if self.style is Style.LOG:
            self.require_entries()
        else:
            assert self.rig.differing() == []
            self.require_times()
        known: set[bytes | None] = {*self.old, *self.unreadable.values()}
        if not all(each.keeps_messages for each in self.rig.settings.tables):
            known = {None}
        assert {body for *_, body in self.rig.quarantined()} <= known
