"""How a reader says which members of a table it has read: in the metadata of the batches with their rows.

So the position of a member travels with the rows that it is the position of.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from floodmark.core.source.snapshot import Verdict
from floodmark.core.window.members import MemberRead, QuarantinedMessage

_KEY = b"floodmark.members"


def attach_members(batch: pa.RecordBatch, reads: Sequence[MemberRead]) -> pa.RecordBatch:
    """Return a batch, which may be empty, that says which members are read with its rows and those before it."""
    return batch.replace_schema_metadata({_KEY: format_members(reads).encode()})


def noted(batches: Iterable[pa.RecordBatch], reads: list[MemberRead]) -> Iterator[pa.RecordBatch]:
    """Yield batches, and add to ``reads`` what they say about members."""
    for batch in batches:
        if found := (batch.schema.metadata or {}).get(_KEY):
            reads += parse_members(found.decode())
        yield batch


def format_members(reads: Sequence[MemberRead]) -> str:
    """Return a text that ``parse_members`` reads."""
    rows = [
        [
            read.member,
            read.before,
            read.after,
            read.is_whole,
            read.verdict and read.verdict.value,
            read.cause,
            read.hint,
            [[each.place, each.reason, _to_text(each.body), each.topic] for each in read.quarantined],
        ]
        for read in reads
    ]
    return json.dumps(rows)


def parse_members(text: str) -> list[MemberRead]:
    """Return what ``format_members`` wrote."""
    return [
        MemberRead(
            member,
            before,
            after,
            is_whole,
            Verdict(verdict) if verdict else None,
            cause,
            hint,
            tuple(
                QuarantinedMessage(place, reason, _to_bytes(body), topic) for place, reason, body, topic in quarantined
            ),
        )
        for member, before, after, is_whole, verdict, cause, hint, quarantined in json.loads(text)
    ]


def _to_text(body: bytes | None) -> str | None:
    return None if body is None else b64encode(body).decode()


def _to_bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
