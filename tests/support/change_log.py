"""Changes of rows as messages of a topic, for ``benchmarks.capture_files`` or a broker."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sqlserver_emulator.event_stream.encoding import MessageForm, OutgoingChange, encode_change

GUID = "9c8d4ad2-bf54-4f10-a96f-038af496997f"


@dataclass
class ChangeLog:
    """The log of a database: gives changes of rows their places, and makes events of them."""

    database: str
    columns: tuple[tuple[str, str, int], ...]
    """Of the table: name, declared type and 0-based place."""
    key: str
    """Of the table: the name of the column; "" for a table without a primary key."""
    table: str = "Orders"
    guid: str = GUID
    began_at: datetime = datetime(2026, 3, 1, 12, tzinfo=UTC)
    form: MessageForm = field(default_factory=MessageForm)
    commits: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def commit(self, *changes: tuple[Mapping[str, str | None], Mapping[str, str | None]]) -> list[bytes]:
        """Return the messages of a transaction. Each change has the row before and after it, {} for none."""
        number = next(self.commits)
        return [
            body
            for sequence, (old, current) in enumerate(changes, 1)
            for body in self.event(number, sequence, old, current)
        ]

    def event(
        self, commit: int, sequence: int, old: Mapping[str, str | None], current: Mapping[str, str | None]
    ) -> list[bytes]:
        """Return the messages of one change."""
        ids = itertools.count()
        operation = "UPD" if old and current else "DEL" if old else "INS"
        change = OutgoingChange(
            database=self.database,
            schema="dbo",
            table=self.table,
            columns=self.columns,
            key=((self.key, str((current or old)[self.key])),) if self.key else (),
            guid=self.guid,
            commit_lsn=(0x2A << 48 | commit << 16 | 1).to_bytes(10),
            begin_lsn=(0x2A << 48 | commit << 16).to_bytes(10),
            sequence=sequence,
            committed_at=self.began_at + timedelta(milliseconds=commit),
            operation=operation,
            old=old,
            current=current,
        )
        return encode_change(change, self.form, lambda: f"{next(ids):036}")


def spread(bodies: Iterable[bytes], partitions: int) -> dict[int, list[bytes]]:
    """Return messages dealt to partitions in turn, as the server does without a key."""
    dealt: dict[int, list[bytes]] = {}
    for place, body in enumerate(bodies):
        dealt.setdefault(place % partitions, []).append(body)
    return dealt
