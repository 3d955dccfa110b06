"""A pass over a stream: what one table or one message shows does not stop the others, and nothing vanishes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from change_log import ChangeLog
from floodmark.core.errors import FloodmarkBugError, FloodmarkError
from floodmark.core.interval import Interval
from floodmark.core.policies import Deletes, NetSource, TemporalPolicy
from floodmark.core.schema import SourceTable, TableName
from floodmark.core.source.feed import InstanceIdentity, MemberMark
from floodmark.core.source.snapshot import CaptureInstance
from floodmark.core.version import Version
from floodmark.core.window.members import MemberRead
from floodmark.core.window.plan import LoadKind, TablePlan
from floodmark.sources.event_stream.declared import parse_column
from floodmark.sources.event_stream.marks import PartitionMark
from floodmark.sources.event_stream.stream_pass import StreamPass
from floodmark.sources.event_stream.table_rows import TableRows
from floodmark.sources.event_stream.transport import PartitionEnds, RawMessage
from floodmark.sync.ports.members import noted

COLUMNS = (("Id", "int", 0), ("W", "int", 1))
ORDERS, OTHERS = "Orders", "Others"


@dataclass
class MemoryStream:
    """``transport.EventStream`` in memory."""

    bodies: dict[int, list[bytes]]
    topic: str = "hub"

    def read_ends(self) -> Mapping[int, PartitionEnds]:
        return {number: PartitionEnds(0, len(found)) for number, found in self.bodies.items()}

    def read(self, partition: int, begin: int, end: int) -> Iterator[Sequence[RawMessage]]:
        yield [RawMessage(offset, self.bodies[partition][offset]) for offset in range(begin, end)]

    def read_retention(self, places: object) -> None:
        raise NotImplementedError


@dataclass
class Outcome:
    """The results of a pass, by the name of the table."""

    keys: dict[str, list[int]] = field(default_factory=dict)
    errors: dict[str, FloodmarkError] = field(default_factory=dict)
    reads: dict[str, list[MemberRead]] = field(default_factory=dict)

    def quarantined(self, table: str) -> list[tuple[str, str]]:
        """Return the partitions and the offsets of the messages that a table reports."""
        return [(read.member, each.place) for read in self.reads[table] for each in read.quarantined]


def log(table: str = ORDERS, database: str = "Shop", **chosen: Any) -> ChangeLog:
    return ChangeLog(database, COLUMNS, "Id", table=table, **chosen)


def insert(of: ChangeLog, key: int, w: str = "1") -> list[bytes]:
    return of.commit(({}, {"Id": str(key), "W": w}))


def plan_of(name: str, stream: MemoryStream) -> TablePlan:
    """Return the plan of a table that has read nothing, up to the present ends."""
    columns = tuple(parse_column(column, kind, place) for column, kind, place in COLUMNS)
    table = SourceTable(TableName("dbo", name), columns, ("Id",))
    feed = CaptureInstance(
        InstanceIdentity(f"dbo.{name}", 7, datetime(1970, 1, 1)),
        table,
        Version.of(0),
        supports_net_changes=False,
        has_command_id=False,
        has_members=True,
    )
    return TablePlan(
        source=table.name,
        target=TableName("shop", name.lower()),
        kind=LoadKind.CHANGES,
        feed=feed,
        interval=Interval(Version.of(0), Version.of(1)),
        watermark=Version.of(0),
        deletes=Deletes.SOFT,
        net=NetSource.SPARK,
        temporal=TemporalPolicy.TRUNCATE,
        ends=tuple(MemberMark(str(number), str(PartitionMark(end.high))) for number, end in stream.read_ends().items()),
        marks=tuple(MemberMark(str(number), str(PartitionMark(0))) for number in stream.bodies),
    )


def run(*bodies: list[bytes], tables: Sequence[str] = (ORDERS, OTHERS), database: str = "Shop") -> Outcome:
    """Read the messages of partitions for tables."""
    stream = MemoryStream(dict(enumerate(bodies)))
    plans = {number: plan_of(name, stream) for number, name in enumerate(tables)}
    outcome = Outcome({name: [] for name in tables})
    for number, found in StreamPass(database, stream, plans).run():
        name = tables[number]
        if isinstance(found, FloodmarkError):
            outcome.errors[name] = found
            continue
        for batch in noted([found], outcome.reads.setdefault(name, [])):
            outcome.keys[name] += batch.column("Id").to_pylist()
    return outcome


def test_any_error_while_rows_are_built_refuses_their_table_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    build = TableRows.build

    def fail(self: TableRows, form: Any, rows: Any) -> Any:
        if form.table == ORDERS:
            raise TypeError("a value of a row")
        return build(self, form, rows)

    monkeypatch.setattr(TableRows, "build", fail)
    found = run([*insert(log(), 1), *insert(log(OTHERS), 2), *insert(log(), 3)])
    assert found.keys == {ORDERS: [], OTHERS: [2]}
    assert found.reads.keys() == {OTHERS}
    error = found.errors[ORDERS]
    assert isinstance(error, FloodmarkBugError)
    assert error.subject == "dbo.Orders"
    assert "floodmark reload" in str(error)
    assert "value of a row" not in str(error)


def test_event_of_a_column_that_has_another_type_now_is_set_aside_and_the_others_are_read() -> None:
    altered = ChangeLog("Shop", (("Id", "int", 0), ("W", "nvarchar(9)", 1)), "Id", table=ORDERS)
    found = run([*insert(altered, 1, "one"), *insert(log(), 2), *insert(log(OTHERS), 3)])
    assert (found.keys, found.errors) == ({ORDERS: [2], OTHERS: [3]}, {})
    assert found.quarantined(ORDERS) == [("0", "0")]
