"""Decoding of change events on one core: from the bytes of messages to rows and to Arrow batches, 8 columns an event.

``python -m benchmarks.event_decode`` measures this section alone; it needs no source and no warehouse. Seconds are
those of the processor. The floor parses the three levels of JSON with orjson, and does nothing with them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count

import orjson
import pyarrow as pa

from benchmarks.measuring import Report
from floodmark.core.schema import SourceTable, TableName
from floodmark.core.settings import TemporalPolicy
from floodmark.sources.event_stream.change import parse_change, parse_column
from floodmark.sources.event_stream.envelope import parse_envelope
from floodmark.sources.event_stream.epochs import BatchDecoder
from floodmark.sources.event_stream.rows import TableRows
from floodmark_laptop import shop
from sqlserver_emulator.event_stream.encoding import MessageForm, OutgoingChange, encode_change

EVENTS = 50_000
TARGET = 100_000
_ROUNDS = 7
_BATCH = 5_000
_BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)
COLUMNS = tuple(
    (name, declared, place)
    for place, (name, declared) in enumerate(
        {
            "ID": "int",
            "Quantity": "bigint",
            "Name": "nvarchar(40)",
            "Amount": "decimal(18,2)",
            "ChangedAt": "datetime2(7)",
            "IsActive": "bit",
            "ExternalID": "uniqueidentifier",
            "Payload": "varbinary(32)",
        }.items()
    )
)
TABLE = SourceTable(TableName("dbo", "Wide"), tuple(parse_column(*each) for each in COLUMNS), ("ID",))


def _image(number: int, version: int) -> dict[str, str | None]:
    return {
        "ID": str(number),
        "Quantity": str(number * 7_000_000_001 + version),
        "Name": f"näme {number:06}",
        "Amount": f"{number + version}.25",
        "ChangedAt": f"2026-03-01 12:00:00.{number % 10**7:07}",
        "IsActive": str(number % 2),
        "ExternalID": f"00000000-0000-0000-0000-{number:012}",
        "Payload": f"0x{number:016X}",
    }


def _change(number: int, operation: str) -> OutgoingChange:
    return OutgoingChange(
        database=shop.DATABASE,
        schema="dbo",
        table="Wide",
        columns=COLUMNS,
        key=(("ID", str(number)),),
        guid="9c8d4ad2-bf54-4f10-a96f-038af496997f",
        commit_lsn=(0xB1 << 64 | number << 16 | 7).to_bytes(10),
        begin_lsn=(0xB1 << 64 | number << 16 | 1).to_bytes(10),
        sequence=1,
        committed_at=_BEGAN + timedelta(milliseconds=number),
        operation=operation,
        old={} if operation == "INS" else _image(number, 0),
        current={} if operation == "DEL" else _image(number, 1),
    )


def make_messages(events: int, operation: str, form: MessageForm) -> list[bytes]:
    """Return the messages of events, each in a transaction of its own."""
    ids = count()
    return [
        body
        for number in range(events)
        for body in encode_change(_change(number, operation), form, lambda: f"{next(ids):036}")
    ]


def _floor(bodies: list[bytes]) -> None:
    for body in bodies:
        row = orjson.loads(orjson.loads(body)["data"])["eventrow"]
        orjson.loads(row["old"])
        orjson.loads(row["current"])


def _decode(bodies: list[bytes], *, builds: bool = False) -> None:
    decoder, rows = BatchDecoder(), TableRows(TABLE, TemporalPolicy.TRUNCATE)
    for first in range(0, len(bodies), _BATCH):
        batch = decoder.decode(bodies[first : first + _BATCH])
        assert not batch.faults
        for form, found in batch.rows.items() if builds else ():
            assert all(isinstance(each, pa.RecordBatch) for each in rows.build(form, found))


def _decode_one_by_one(bodies: list[bytes]) -> None:
    for body in bodies:
        parse_change(parse_envelope(body))


def _events_per_second(action: Callable[[list[bytes]], None], bodies: list[bytes], rounds: int = _ROUNDS) -> float:
    """Return the rate of the best round: other processes of the machine only ever slow it down."""
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        began = time.process_time()
        action(bodies)
        best = min(best, time.process_time() - began)
    return len(bodies) / best


def measure(report: Report) -> None:
    """Measure inserts and updates with both images in JSON, and inserts in Avro, which has no short way."""
    report.add(f"## Change events of {len(COLUMNS)} columns, decoded on one core")
    rows: list[tuple[object, ...]] = []
    for operation, form in (("INS", MessageForm()), ("UPD", MessageForm()), ("INS", MessageForm(is_avro=True))):
        bodies = make_messages(EVENTS, operation, form)
        rate = _events_per_second(_decode, bodies)
        built = _events_per_second(partial(_decode, builds=True), bodies)
        alone = _events_per_second(_decode_one_by_one, bodies[: EVENTS // 10], 3)
        floor = None if form.is_avro else _events_per_second(_floor, bodies)
        rows.append(
            (
                f"{operation}, {'Avro' if form.is_avro else 'JSON'}",
                len(bodies[0]),
                f"{rate:,.0f}",
                f"{built:,.0f}",
                f"{floor:,.0f}" if floor else "",
                f"{floor / rate:.1f}" if floor else "",
                f"{alone:,.0f}",
            )
        )
    header = (
        "events",
        "bytes each",
        f"events/s ({TARGET:,})",
        "and as Arrow batches, events/s",
        "orjson alone, events/s",
        "ratio",
        "one by one, events/s",
    )
    report.table(header, rows)


if __name__ == "__main__":
    measure(Report())
