"""A pass over a stream: what one table or one message shows does not stop the others, and nothing vanishes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import itemgetter
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from change_log import ChangeLog
from floodmark.core.errors import FloodmarkBugError, FloodmarkError, UnknownFormatError
from floodmark.core.plan import LoadKind, MemberRead, TablePlan
from floodmark.core.position import Interval, Version
from floodmark.core.schema import Operation, SourceTable, TableName
from floodmark.core.settings import ColumnSettings, Mask, TableSettings
from floodmark.core.snapshot import Feed, FeedIdentity, MemberMark, Verdict
from floodmark.sources.event_stream import stream_pass
from floodmark.sources.event_stream.change import parse_column
from floodmark.sources.event_stream.envelope import parse_envelope
from floodmark.sources.event_stream.epochs import CarriedSegment, PartitionMark
from floodmark.sources.event_stream.rows import OPERATION, POSITION, TableRows
from floodmark.sources.event_stream.stream_pass import StreamPass
from floodmark.sources.event_stream.transport import PartitionEnds, RawMessage, StreamGapError
from floodmark.sync.filters import parse_filter
from floodmark.sync.records import noted
from sqlserver_emulator.event_stream.encoding import MessageForm

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
        if end > len(self.bodies[partition]):
            raise StreamGapError("it has no such message")
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


def insert_long(of: ChangeLog, key: int) -> list[bytes]:
    """Return the segments of an event."""
    of.columns, of.form = (*COLUMNS, ("Note", "nvarchar(max)", 2)), MessageForm(limit_bytes=2000)
    return of.commit(({}, {"Id": str(key), "W": "1", "Note": "note " * 1000}))


def plan_of(
    name: str, stream: MemoryStream, begin: int, carried: tuple[CarriedSegment, ...], database: str, **chosen: Any
) -> TablePlan:
    """Return the plan of a table that has read each partition up to an offset, up to the present ends."""
    columns = tuple(parse_column(column, kind, place) for column, kind, place in COLUMNS)
    table = SourceTable(TableName("dbo", name), columns, ("Id",))
    feed = Feed(
        FeedIdentity(f"dbo.{name}", 7, datetime(1970, 1, 1)),
        table,
        Version.of(0),
        supports_net_changes=False,
        has_command_id=False,
        has_members=True,
    )
    return TablePlan(
        settings=TableSettings(table.name, TableName("shop", name.lower()), **chosen),
        kind=LoadKind.CHANGES,
        feed=feed,
        interval=Interval(Version.of(0), Version.of(1)),
        watermark=Version.of(0),
        ends=tuple(
            MemberMark(str(number), str(PartitionMark(end.high, database=database)))
            for number, end in stream.read_ends().items()
        ),
        marks=tuple(MemberMark(str(number), str(PartitionMark(begin, carried))) for number in stream.bodies),
    )


def run(
    *bodies: list[bytes],
    tables: Sequence[str] = (ORDERS, OTHERS),
    begins: Mapping[str, int] = MappingProxyType({}),
    carried: tuple[CarriedSegment, ...] = (),
    database: str = "Shop",
    **chosen: Any,
) -> Outcome:
    """Read the messages of partitions for tables."""
    stream = MemoryStream(dict(enumerate(bodies)))
    plans = {
        number: plan_of(name, stream, begins.get(name, 0), carried, database, **chosen)
        for number, name in enumerate(tables)
    }
    outcome = Outcome({name: [] for name in tables})
    for number, found in StreamPass("SHOP", stream, plans).run():
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


def test_message_of_no_known_table_is_reported_by_each_table(monkeypatch: pytest.MonkeyPatch) -> None:
    good = insert(log(OTHERS), 2)
    keyless = ChangeLog("Shop", COLUMNS[1:], "", table=ORDERS)
    refusing = keyless.commit(({}, {"W": "1"}))
    found = run([b"no event"], [*refusing, *good])
    assert found.errors.keys() == {ORDERS}
    assert (found.keys[OTHERS], found.quarantined(OTHERS)) == ([2], [("0", "0")])
    monkeypatch.setattr(stream_pass, "MOST_BODIES_BYTES", 12)
    assert len(b"no event") < 12
    found = run([b"no event"], good)
    bodies = [each.body for reads in found.reads.values() for read in reads for each in read.quarantined]
    assert bodies == [None, None]  # both together would be too long


def test_message_is_reported_by_the_tables_that_have_not_read_it_before() -> None:
    found = run([b"no event", *insert(log(), 1)], begins={ORDERS: 0, OTHERS: 1})
    assert (found.quarantined(ORDERS), found.quarantined(OTHERS)) == ([("0", "0")], [])


def test_faulty_segments_that_a_table_carries_are_reported_by_it() -> None:
    first, second, *_ = insert_long(log(), 1)
    other = second.replace(b"note ", b"nota ")
    found = run([first, second, other], begins={ORDERS: 0, OTHERS: 2})
    assert found.quarantined(ORDERS) == [("0", "0"), ("0", "1"), ("0", "2")]
    assert found.quarantined(OTHERS) == [("0", "2")]
    carried = (CarriedSegment(0, datetime.now(UTC), first), CarriedSegment(1, datetime.now(UTC), second))
    found = run([first, second, other], begins={ORDERS: 2, OTHERS: 2}, carried=carried)
    assert found.quarantined(OTHERS) == [("0", "0"), ("0", "1"), ("0", "2")]


def test_names_that_differ_in_case_are_other_tables_and_other_databases() -> None:
    others = [log("ORDERS"), log(database="shop"), log("Ordersſ"), log("Straße"), log("STRASSE")]
    bodies = [body for number, each in enumerate(others, 10) for body in insert(each, number)]
    found = run([*bodies, *insert(log(), 1)], tables=(ORDERS, "Strasse"))
    assert (found.keys, found.errors) == ({ORDERS: [1], "Strasse": []}, {})


def test_plan_of_an_earlier_version_has_the_database_of_the_connection_in_any_case() -> None:
    assert run([*insert(log(), 1), *insert(log(database="Other"), 2)], database="").keys[ORDERS] == [1]


def test_segments_of_another_database_are_not_waited_for() -> None:
    first, *_ = insert_long(log(database="shop"), 1)
    second, *_ = insert_long(log(commits=itertools.count(5)), 2)
    found = run([first, second])
    marks = {name: PartitionMark.parse(reads[0].after or "") for name, reads in found.reads.items()}
    assert [each.offset for each in marks[ORDERS].carried] == [1]
    assert marks[OTHERS].carried == ()


def newer(bodies: list[bytes]) -> list[bytes]:
    """Return messages in a later version of the format."""
    return [body.replace(b"DML.V1", b"DML.V2") for body in bodies]


@pytest.mark.parametrize("foreign", [log(database="shop"), log("Unfollowed")])
def test_message_in_a_later_version_of_what_is_not_followed_goes_by(foreign: ChangeLog) -> None:
    found = run([*newer(insert(foreign, 1)), *insert(log(), 2)])
    assert (found.keys[ORDERS], found.errors) == ([2], {})
    assert found.quarantined(ORDERS) == []


def test_message_in_a_later_version_refuses_the_table_that_it_names() -> None:
    found = run([*insert(log(OTHERS), 7), *newer(insert(log(), 1))])
    assert (found.keys[OTHERS], found.errors.keys()) == ([7], {ORDERS})
    error = found.errors[ORDERS]
    assert isinstance(error, UnknownFormatError)
    assert str(error).startswith("dbo.Orders: message 1 of partition 0 of hub has V2 of the format")
    assert "floodmark reload" in str(error)


def test_message_in_a_later_version_without_names_refuses_the_tables_that_have_not_read_it() -> None:
    nameless = b'{"type": "com.microsoft.SQL.CES.DML.V2", "rows": []}'
    assert run([nameless]).errors.keys() == {ORDERS, OTHERS}
    assert run([nameless, *insert(log(), 1)], begins={OTHERS: 1}).errors.keys() == {ORDERS}


def test_message_of_a_stream_with_hidden_values_is_not_kept_and_a_segment_is_read_again() -> None:
    *early, last = insert_long(log(), 1)
    kept = run([b"no event", *early])
    bodies = [each.body for each in kept.reads[ORDERS][0].quarantined]
    assert bodies == [b"no event"]
    for chosen in ({"keeps_messages": False}, {"columns": (ColumnSettings("W", mask=Mask.REDACT),)}):
        found = run([b"no event", *early], **chosen)
        [read] = found.reads[ORDERS]
        assert [each.body for each in read.quarantined] == [None]
        mark = PartitionMark.parse(read.after or "")
        assert [each.body for each in mark.carried] == [b""] * len(early)
        assert {each.event for each in mark.carried} == {parse_envelope(early[0]).logical_id.text}
        begins = dict.fromkeys((ORDERS, OTHERS), len(early) + 1)
        joined = run([b"no event", *early, last], begins=begins, carried=mark.carried, **chosen)
        assert joined.keys[ORDERS] == [1]
        gone = tuple(replace(each, offset=99) for each in mark.carried[:1])
        lost = run([b"no event"], begins=dict.fromkeys(begins, 1), carried=gone, **chosen)
        assert [each.verdict for each in lost.reads[ORDERS]] == [Verdict.EXPIRED]
        assert "is no longer in the stream" in lost.reads[ORDERS][0].cause


FILTERS: dict[str, Callable[[int, int | None], bool]] = {
    "W > 2": lambda _, w: w is not None and w > 2,
    "NOT (W BETWEEN 1 AND 3)": lambda _, w: w is not None and not 1 <= w <= 3,
    "W IS NULL OR W = 1": lambda _, w: w is None or w == 1,
    "NOT (W = 2 AND Id > 1)": lambda key, w: key <= 1 or (w is not None and w != 2),
    "W <> 2 AND Id IN (1, 3)": lambda key, w: w is not None and w != 2 and key in (1, 3),
}
"""Filters, with what three-valued logic makes of them."""
_STEP = st.tuples(st.integers(1, 4), st.integers(1, 4), st.none() | st.integers(0, 4), st.integers(0, 5))


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.tuples(_STEP, st.booleans()), max_size=25),
    st.sampled_from(sorted((each, drops) for each in FILTERS for drops in (False, True))),
)
def test_target_has_the_filtered_rows_of_the_source_at_the_end_of_each_window(
    steps: list[tuple[tuple[int, int, int | None, int], bool]], chosen: tuple[str, bool]
) -> None:
    where, is_dropped = chosen
    source: dict[int, int | None] = {}
    target: dict[int, int | None] = {}
    bodies: list[bytes] = []
    of, begin = log(), 0
    for (key, new_key, w, kind), ends in [*steps, ((1, 1, None, 5), True)]:
        change = make_change(source, key, new_key, w, kind)
        bodies += of.commit(*([change] if any(change) else []))
        if ends:
            apply(target, MemoryStream({0: bodies}), begin, where, is_dropped=is_dropped)
            begin = len(bodies)
            expected = {each: value for each, value in source.items() if FILTERS[where](each, value)}
            assert target == (dict.fromkeys(expected) if is_dropped else expected)


def make_change(
    source: dict[int, int | None], key: int, new_key: int, w: int | None, kind: int
) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Change a row. Return the images before and after it: an insert, an update, at times of the key, or a delete."""

    def image(number: int) -> dict[str, str | None]:
        value = source[number]
        return {"Id": str(number), "W": None if value is None else str(value)}

    if key not in source:
        source[key] = w
        return {}, image(key)
    old = image(key)
    value = source.pop(key)
    if kind == 0:
        return old, {}
    is_moved = kind == 1 and new_key not in source
    source[new_key if is_moved else key] = value if is_moved and w == 4 else w
    current = image(new_key if is_moved else key)
    return (old, current) if current != old else ({}, {})


def apply(target: dict[int, int | None], stream: MemoryStream, begin: int, where: str, *, is_dropped: bool) -> None:
    """Apply the changes of a window to the rows of a target."""
    plan = plan_of(ORDERS, stream, begin, (), "Shop", where=parse_filter(where))
    table = plan.feed.table
    read = tuple(column for column in table.columns if column.name in where.replace("(", " ").split())
    shown = table.columns[:1] if is_dropped else table.columns
    plan = replace(plan, feed=replace(plan.feed, filtering=read, table=replace(table, columns=shown)))
    rows: list[dict[str, Any]] = []
    for _, found in StreamPass("SHOP", stream, {0: plan}).run():
        assert isinstance(found, pa.RecordBatch)
        rows += found.to_pylist()
    for row in sorted(rows, key=itemgetter(POSITION, OPERATION)):
        if row[OPERATION] in (Operation.DELETE, Operation.BEFORE_UPDATE):
            assert target.pop(row["Id"], ...) is not ..., "a delete of a row that the target does not have"
        else:
            target[row["Id"]] = row.get("W")
