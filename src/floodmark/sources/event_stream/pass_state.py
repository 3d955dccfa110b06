"""The state of a table in one pass over a stream: where it begins, what is set aside, and its marks at the end."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from floodmark.core.source.snapshot import Verdict
from floodmark.core.window.members import MemberRead, QuarantinedMessage
from floodmark.core.window.plan import TablePlan
from floodmark.sources.event_stream.change import find_names
from floodmark.sources.event_stream.epochs import Epoch, EpochWatch, epochs_of_partitions
from floodmark.sources.event_stream.joining import StreamMessage
from floodmark.sources.event_stream.marks import MOST_CARRIED_BYTES, CarriedSegment, LoadedCommit, PartitionMark
from floodmark.sources.event_stream.rows import EventRow, TableForm
from floodmark.sources.event_stream.table_rows import TableRows
from floodmark.sources.event_stream.transport import RawMessage

SEGMENTS_WITHIN = timedelta(hours=1)
"""The time within which all segments of an event must arrive."""
REPLACED = "the stream was set up again, and changes in between are lost: other events arrive"
_OLDER = "the event is older than the stream in use, by its commit time, and no identifier shows which stream it is of"
MOST_BODIES_BYTES = 16 << 20
"""The bytes of messages in quarantine that one pass keeps."""
Place = tuple[int, int, bytes | None]
"""A message: partition, offset and body."""


@dataclass
class PassState:
    """A table in a pass."""

    number: int
    """Its place in the plan of the window."""
    plan: TablePlan
    topic: str
    """The name of the topic that is read."""
    rows: TableRows
    marks: Mapping[int, PartitionMark]
    """By partition: where the table was read to. A new partition has none."""
    begins: dict[int, int]
    """By partition: the offset of the first message."""
    ends: Mapping[int, int]
    """By partition: the offset behind the last message."""
    watches: dict[int, EpochWatch]
    """By partition."""
    loaded: LoadedCommit | None = None
    """What the last load of the whole table has read."""
    newest_lsn: bytes = b""
    """The newest commit LSN of which earlier windows have read events of the table."""
    database: str = ""
    """The name of the database as the server spelled it for the plan; "" in a plan of an earlier version."""
    most_bytes: int = MOST_BODIES_BYTES
    """The bytes of messages in quarantine that are kept."""
    is_refused: bool = False
    """Whether the window goes on without the table."""
    _quarantined: dict[int, list[QuarantinedMessage]] = field(default_factory=dict)
    _kept_bytes: int = 0
    _lost: dict[int, str] = field(default_factory=dict)
    """By partition: why a change of the table may be lost."""

    @classmethod
    def of(cls, number: int, plan: TablePlan, topic: str, only: Collection[int] | None = None) -> PassState:
        """Return the state at the begin of a pass. only: the partitions that it reads; None for all.

        The epochs are those of all partitions: each is evidence for the others.
        """
        marks = {int(each.member): PartitionMark.parse(each.mark) for each in plan.marks if each.mark}
        planned = {int(end.member): PartitionMark.parse(str(end.mark)) for end in plan.ends}
        ends = {number: mark.next for number, mark in planned.items()}
        epochs = epochs_of_partitions({number: mark.epoch for number, mark in marks.items()}, ends)
        own = {number: mark for number, mark in marks.items() if only is None or number in only}
        return cls(
            number,
            plan,
            topic,
            TableRows(plan.feed.table, plan.temporal),
            own,
            {number: mark.next for number, mark in own.items()},
            {number: end for number, end in ends.items() if only is None or number in only},
            {number: EpochWatch(epoch) for number, epoch in epochs.items()},
            next((mark.loaded for mark in marks.values() if mark.loaded), None),
            max((mark.epoch.lsn for mark in marks.values() if mark.epoch), default=b""),
            next((mark.database for mark in planned.values()), ""),
        )

    @property
    def epochs(self) -> list[Epoch]:
        """Return the epochs of the table's events."""
        return [each for watch in self.watches.values() for each in (watch.known, watch.later) if each is not None]

    def select_unread(self, partition: int, messages: Sequence[RawMessage], rows: Iterable[EventRow]) -> list[EventRow]:
        """Return the rows of the epoch that the marks have, without those that a load has read.

        Rows of a later epoch are in the load that must follow. Older ones go to quarantine, unless a load has them. An
        event that the load has read may come after it: it came by a slower partition, or again. The row that it changed
        may be deleted since, and nothing in the target shows that.
        """
        watch, loaded = self.watches[partition], self.loaded
        belongs, newest = watch.belongs, loaded.lsn if loaded else b""
        own: list[EventRow] = []
        others: list[EventRow] = []
        for row in rows:
            if not belongs(row):
                others.append(row)
            # Nearly all events are newer: for them a call would cost more than the comparison.
            elif row.commit_lsn > newest:
                own.append(row)
            elif loaded is not None and not loaded.covers(row.commit_lsn, row.committed_at):
                watch.begin(row, steps_back=True)  # newer, with a lower LSN: it would lose against the rows of the load
            elif self.plan.keeps_unread:
                own.append(row)
        older = [
            messages[row.place]
            for row in others
            if watch.is_older(row) and not self._covers(row.commit_lsn, row.committed_at)
        ]
        if older:
            self.quarantine([(partition, each.offset, each.body) for each in older], _OLDER)
        return own

    def find_late_moves(self, partition: int, form: TableForm, rows: Iterable[EventRow]) -> None:
        """Note that rows may be lost where an earlier window has read another part of a commit that changed keys.

        One statement may pass keys on from row to row. The image of a row that gives up a key does not say whether
        another row has it by then: that needs all changes of the commit (``spark.net``). A server that knows the key
        writes no such pairs.
        """
        key = self.plan.feed.table.key
        places = [place for place, each in enumerate(form.columns) if each.name in key]
        for row in rows:
            if row.commit_lsn > self.newest_lsn or row.old is None or row.current is None:
                continue
            is_moved = any(row.old[place] != row.current[place] for place in places)
            if is_moved and {name for name, _ in row.key} != set(key):
                self._lost[partition] = (
                    "rows may be lost: a transaction gave rows other keys, its events came in several windows,"
                    " and the table has no primary key"
                )

    def _covers(self, commit_lsn: bytes, committed_at: datetime) -> bool:
        """Return whether the load has read all rows of a commit, which it has not if the source hides some of them."""
        return self.loaded is not None and not self.plan.keeps_unread and self.loaded.covers(commit_lsn, committed_at)

    def needs(self, partition: int) -> bool:
        """Return whether the window of the table has messages of a partition."""
        return partition in self.ends and self.begins[partition] < self.ends[partition]

    def has_in_window(self, partition: int, offset: int) -> bool:
        """Return whether a message belongs to the window of the table."""
        return self.begins[partition] <= offset < self.ends[partition]

    def quarantine(self, messages: Iterable[Place], reason: str) -> None:
        """Set messages of the table aside. The reason contains no value of a row."""
        for partition, offset, body in messages:
            self._kept_bytes += len(body or b"")
            kept = body if self._kept_bytes <= self.most_bytes else None
            message = QuarantinedMessage(str(offset), reason, kept, self.topic)
            self._quarantined.setdefault(partition, []).append(message)

    def has_unread(self, partition: int, offset: int) -> bool:
        """Return whether a message belongs to the window of the table, or to an event that the table waits for."""
        mark = self.marks.get(partition)
        is_carried = mark is not None and any(each.offset == offset for each in mark.carried)
        return is_carried or (partition in self.ends and self.has_in_window(partition, offset))

    def carry(self, groups: Sequence[Sequence[StreamMessage]], now: datetime) -> dict[int, list[CarriedSegment]]:
        """Return the segments to carry, by partition. Those that came too long ago go to quarantine.

        groups: the segments of each event that is not whole, oldest first.
        """
        met_at = {(number, each.offset): each.met_at for number, mark in self.marks.items() for each in mark.carried}
        carried: dict[int, list[CarriedSegment]] = {}
        room = MOST_CARRIED_BYTES
        for group in reversed([each for each in groups if self._may_be_own(each)]):
            since = min(met_at.get((each.partition, each.offset), now) for each in group)
            room -= sum(len(each.body) for each in group)
            if now - since > SEGMENTS_WITHIN or room < 0:
                self._lose(group, since)
                continue
            for each in group:
                carried.setdefault(each.partition, []).append(CarriedSegment(each.offset, since, each.body))
        return carried

    def report(self, carried: Mapping[int, Sequence[CarriedSegment]]) -> list[MemberRead]:
        """Return how each partition was read."""
        known = {each.member: each.mark for each in self.plan.marks}
        reads = []
        for partition, end in self.ends.items():
            mark = self._mark_at(partition, end, carried.get(partition, ()))
            verdict = Verdict.INSTANCE_REPLACED if mark.replaced else Verdict.EXPIRED if mark.lost else None
            cause = mark.replaced or mark.lost
            reads.append(
                MemberRead(
                    str(partition),
                    known.get(str(partition)),
                    str(mark),
                    verdict=verdict,
                    cause=f"{cause}." if cause else "",
                    hint="Reload the table (floodmark reload)." if cause else "",
                    quarantined=tuple(self._quarantined.get(partition, ())),
                )
            )
        return reads

    def _mark_at(self, partition: int, end: int, carried: Sequence[CarriedSegment]) -> PartitionMark:
        watch = self.watches[partition]
        replaced = f"{REPLACED} since {watch.later.begins_at:%Y-%m-%d %H:%M:%S} UTC" if watch.later else ""
        epoch = watch.later or watch.known
        lost = self._lost.get(partition, "")
        return PartitionMark(end, tuple(carried), lost, replaced, epoch, self.loaded, self.database)

    def _may_be_own(self, group: Sequence[StreamMessage]) -> bool:
        """Return whether the event of some segments may be an unread one of the table: its first segment names it."""
        first = group[0].envelope
        if self._covers(first.logical_id.commit_lsn.value, first.time):
            return False
        name = self.plan.feed.table.name
        for each in group:
            if names := find_names(each.envelope.data):
                return names[1:] == (name.schema, name.name) and names[0] == (self.database or names[0])
        return True

    def _lose(self, group: Sequence[StreamMessage], since: datetime) -> None:
        reason = f"segments of the event have not arrived since {since:%Y-%m-%d %H:%M:%S} UTC"
        self.quarantine([(each.partition, each.offset, each.body) for each in group], reason)
        for each in group:
            self._lost[each.partition] = f"an event of the table may be lost: {reason}"
