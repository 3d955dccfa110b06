"""Hypothesis strategies for changes of the event stream, and the way from a change to what a reader must return."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

from hypothesis import strategies as st

from floodmark.sources.event_stream.envelope import parse_envelope
from floodmark.sources.event_stream.rows import StreamMessage
from sqlserver_emulator.event_stream.encoding import Generation, MessageForm, OutgoingChange

TYPES = ("int", "nvarchar(50)", "nvarchar(max)", "varbinary(max)", "decimal(18,2)", "datetime2(7)")
HALVES = st.text(st.characters(categories=["Cs"]) | st.characters(codec="utf-8"), max_size=20)
"""Texts with any code unit, also halves of surrogate pairs."""
_NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
_MILLISECONDS = st.integers(0, 10**12).map(lambda each: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=each))
_LSNS = st.integers(1 << 48, (1 << 80) - 1).map(lambda each: each.to_bytes(10))
FORMS = [
    *((generation, False) for generation in Generation),
    (Generation.G2, True),
    (Generation.G3, True),
]
"""The generations and whether they are written as Avro."""


@st.composite
def outgoing_changes(draw: st.DrawFn, texts: st.SearchStrategy[str] = HALVES) -> OutgoingChange:
    """Return changes that a server can send: with images that their operations have, and a key or none."""
    names = draw(st.lists(_NAMES, min_size=1, max_size=5, unique=True))
    columns = tuple((name, draw(st.sampled_from(TYPES)), index) for index, name in enumerate(names))
    has_key = draw(st.booleans())
    operation = draw(st.sampled_from(["INS", "UPD", "DEL"]))
    value = st.none() | texts

    def image() -> dict[str, str | None]:
        return {name: draw(texts if has_key and name == names[0] else value) for name in names}

    old = image() if operation == "DEL" or (operation == "UPD" and draw(st.booleans())) else {}
    current = {} if operation == "DEL" else image()
    key_value = (current or old)[names[0]]
    return OutgoingChange(
        database=draw(_NAMES),
        schema=draw(_NAMES),
        table=draw(_NAMES),
        columns=columns,
        key=((names[0], key_value),) if has_key and key_value is not None else (),
        guid=str(draw(st.uuids())),
        commit_lsn=draw(_LSNS),
        begin_lsn=draw(_LSNS),
        sequence=draw(st.integers(1, (1 << 31) - 1)),
        committed_at=draw(_MILLISECONDS),
        operation=operation,
        old=old,
        current=current,
    )


def message_form(form: tuple[Generation, bool], **settings: int) -> MessageForm:
    return MessageForm(form[0], form[1], **settings)


def numbered_ids() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"00000000-0000-0000-0000-{next(numbers):012}"


def as_messages(bodies: list[bytes], first_offset: int = 0) -> list[StreamMessage]:
    return [StreamMessage("t", 0, first_offset + i, body, parse_envelope(body)) for i, body in enumerate(bodies)]
