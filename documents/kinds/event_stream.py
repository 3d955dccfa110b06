"""The kind ``event_stream``, with the verdicts on its partitions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from documents.situations import SERVER, TABLE, Kind, Situation
from floodmark.core.position import Version
from floodmark.core.snapshot import Validity
from floodmark.sources.event_stream.envelope import StreamOptions
from floodmark.sources.event_stream.epochs import Epoch, PartitionMark
from floodmark.sources.event_stream.source import NOT_IN_SIGHT, STREAM_WORDS, find_faults, missed_fault
from floodmark.sources.event_stream.transport import PartitionEnds


def _of_partitions() -> Iterator[Validity]:
    mark = PartitionMark(500)
    lost = PartitionMark(500, lost="an event of the table may be lost: a segment did not arrive")
    replaced = PartitionMark(500, replaced="the stream was set up again")
    renamed = PartitionMark(500, database="Orders")
    for known, ends in (
        (mark, {0: PartitionEnds(700, 900)}),
        (lost, {0: PartitionEnds(100, 900)}),
        (replaced, {0: PartitionEnds(100, 900)}),
        (renamed, {0: PartitionEnds(100, 900)}),
        (mark, {0: PartitionEnds(0, 20)}),
        (mark, {}),
    ):
        for fault in find_faults({0: known}, ends, "Sales"):
            yield Situation(table={"fault": fault}).classify(KIND)
    began_at = datetime(2026, 1, 1, tzinfo=UTC)
    missed = missed_fault(Epoch("", bytes(10), began_at, began_at))
    yield Situation(table={"fault": missed}).classify(KIND)
    partly = StreamOptions(has_all_columns=False, has_old_values=True, group="floodmark", keeps_order=False)
    for each in (NOT_IN_SIGHT, partly.fault):
        if each is not None:
            yield Validity(TABLE, each.verdict, each.cause, each.hint)


KIND = Kind("event_stream", STREAM_WORDS, "dbo.Orders", Version.of, (SERVER,), _of_partitions)
