"""The short way of a batch gives what the long way gives, for changes of all kinds and for whatever is unusual."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from event_strategies import FORMS, message_form, numbered_ids, outgoing_changes
from floodmark.sources.event_stream.change import find_names, parse_change
from floodmark.sources.event_stream.envelope import PoisonError, parse_envelope
from floodmark.sources.event_stream.epochs import BatchDecoder, DecodedBatch
from floodmark.sources.event_stream.rows import is_whole
from floodmark.sources.event_stream.usual_form import UNUSUAL, UsualMessages
from sqlserver_emulator.event_stream.encoding import Generation, MessageForm, OutgoingChange, encode_change

BIG = 300_000


def decode_slowly(bodies: Sequence[bytes]) -> DecodedBatch:
    """Decode without the short way."""
    batch = DecodedBatch()
    for place, body in enumerate(bodies):
        try:
            envelope = parse_envelope(body)
            if is_whole(envelope):
                batch.add_change(place, parse_change(envelope))
            else:
                batch.segments.append((place, envelope))
        except PoisonError as fault:
            batch.faults.append((place, fault))
    return batch


def assert_equal(found: DecodedBatch, expected: DecodedBatch) -> None:
    assert (found.rows, found.segments) == (expected.rows, expected.segments)
    assert [(place, str(fault)) for place, fault in found.faults] == [
        (place, str(fault)) for place, fault in expected.faults
    ]


def knowing(*bodies: bytes) -> UsualMessages:
    """Return the reader of the short way that has met the identifiers of some messages."""
    usual = UsualMessages()
    for body in bodies:
        usual.learn_guid(json.loads(body)["logicalid"].split(":")[0])
    return usual


@settings(deadline=None)
@given(st.lists(st.tuples(outgoing_changes(), st.sampled_from(FORMS), st.sampled_from([400, 1 << 18])), max_size=6))
def test_both_ways_give_the_same(sent: list[tuple[OutgoingChange, tuple[Generation, bool], int]]) -> None:
    bodies = [
        body
        for change, form, limit in sent
        for body in encode_change(change, message_form(form, limit_bytes=limit + 300), numbered_ids())
    ]
    decoder, expected = BatchDecoder(), decode_slowly(bodies)
    for _ in range(3):  # the later ones know tables and identifiers
        assert_equal(decoder.decode(bodies), expected)


@settings(deadline=None)
@given(
    outgoing_changes(st.text(st.characters(codec="utf-8"), max_size=20)),
    st.sampled_from([Generation.G2, Generation.G3]),
)
def test_whole_message_of_the_later_generations_takes_the_short_way(
    change: OutgoingChange, generation: Generation
) -> None:
    (body,) = encode_change(change, MessageForm(generation), numbered_ids())
    head, row = knowing(body).read(0, body)
    assert {head.form: [row]} == decode_slowly([body]).rows


def altered(body: bytes, path: tuple[str, ...], value: Any) -> bytes:
    """Return a message with another value at a place of the envelope, the data or an image."""
    message = json.loads(body)
    data = json.loads(message["data"])
    images = {name: json.loads(text) for name, text in data["eventrow"].items()}
    roots = {"envelope": message, "source": data["eventsource"], "row": data["eventrow"], **images}
    place = roots[path[0]]
    for each in path[1:-1]:
        place = place[int(each) if isinstance(place, list) else each]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    if path[0] in images:
        data["eventrow"][path[0]] = json.dumps(images[path[0]], separators=(",", ":"))
    if path != ("envelope", "data"):
        message["data"] = json.dumps(data, separators=(",", ":"))
    return json.dumps(message).encode()


def update() -> bytes:
    change = OutgoingChange(
        database="db",
        schema="dbo",
        table="T",
        columns=(("Id", "int", 0), ("Name", "nvarchar(max)", 1)),
        key=(("Id", "8"),),
        guid="9c8d4ad2",
        commit_lsn=bytes.fromhex("000000B1000008A80007"),
        begin_lsn=bytes.fromhex("000000B1000008A80003"),
        sequence=1,
        committed_at=parse_envelope(EXAMPLE).time,
        operation="UPD",
        old={"Id": "8", "Name": None},
        current={"Id": "8", "Name": "x"},
    )
    (body,) = encode_change(change, MessageForm(), numbered_ids())
    return body


EXAMPLE = json.dumps(
    {
        "specversion": "1.0",
        "type": "com.microsoft.SQL.CES.DML.V1",
        "source": "/",
        "id": "x",
        "logicalid": "9c8d4ad2:000000B1000008A80007:00000000000000000001",
        "time": "2026-08-07T16:25:00.883Z",
        "operation": "INS",
        "segmentindex": 0,
        "finalsegment": True,
        "data": "",
    }
).encode()

UNUSUAL_VALUES: list[tuple[tuple[str, ...], Any]] = [
    (("envelope", "specversion"), "2.0"),
    (("envelope", "type"), "other"),
    (("envelope", "datacontenttype"), "application/json; charset=utf-8"),
    (("envelope", "datacontenttype"), ["application/json"]),
    (("envelope", "finalsegment"), 1),
    (("envelope", "finalsegment"), False),
    (("envelope", "segmentindex"), False),
    (("envelope", "segmentindex"), 2),
    (("envelope", "id"), ""),
    (("envelope", "source"), 1),
    (("envelope", "logicalid"), "9c8d4ad2:000000B1000008A80007;00000000000000000001"),
    (("envelope", "logicalid"), "9c8d4ad2:000000B1000008A80007:0000000000000000000１"),
    (("envelope", "logicalid"), "9c8d4ad2:000000B1000008A80008:00000000000000000001"),
    (("envelope", "logicalid"), "9c8d 4ad2:000000B1000008A80007:00000000000000000001"),
    (("envelope", "time"), "2026-08-07T16:25:00.883+02:00"),
    (("envelope", "time"), "Z"),
    (("envelope", "operation"), "NOP"),
    (("envelope", "operation"), "DEL"),
    (("envelope", "data"), {}),
    (("envelope", "data"), '{"eventsource":{"pkkey":[]}}'),
    (("source", "db"), 1),
    (("source", "more"), "1"),
    (("source", "cols"), []),
    (("source", "cols", "0", "type"), ";"),
    (("source", "transaction"), ...),
    (("source", "transaction", "commitlsn"), "000000B1:000008A8:0008"),
    (("source", "transaction", "commitlsn"), "000000B1:000008A8:0007:"),
    (("source", "transaction", "commitlsn"), "000000B10:00008A8:0007"),
    (("source", "transaction", "beginlsn"), "00000000:000008A8:0007"),
    (("source", "transaction", "beginlsn"), ""),
    (("source", "transaction", "sequencenumber"), True),
    (("source", "transaction", "sequencenumber"), 1.0),
    (("source", "pkkey"), []),
    (("source", "pkkey"), ...),
    (("source", "pkkey", "0", "value"), 8),
    (("source", "pkkey", "0", "value"), None),
    (("source", "pkkey", "0", "columnname"), "Name"),
    (("source", "pkkey"), [{"columnname": "Id", "value": "8"}] * 2),
    (("row", "old"), None),
    (("row", "old"), "{}"),
    (("row", "old"), "[1,2]"),
    (("row", "current"), "{}"),
    (("row", "current"), " {} "),
    (("row", "current"), {"Id": "8", "Name": "x"}),
    (("row", "more"), "{}"),
    (("old", "Name"), ...),
    (("old", "Id"), None),
    (("current", "Id"), ...),
    (("current", "Id"), None),
    (("current", "Id"), 8),
    (("current", "Id"), 8.5),
    (("current", "More"), "8"),
    (("current", "Name"), "\ud83d"),
    (("current", "Name"), "x" * BIG),
    (("current", "Name"), '"pkkey":'),
]


@pytest.mark.parametrize(("path", "value"), UNUSUAL_VALUES)
def test_unusual_value_gives_the_same_on_both_ways(path: tuple[str, ...], value: Any) -> None:
    usual, changed = update(), altered(update(), path, value)
    expected = decode_slowly([usual, changed, usual])
    decoder = BatchDecoder()
    for _ in range(2):
        assert_equal(decoder.decode([usual, changed, usual]), expected)
    assert len(expected.rows[next(iter(expected.rows))]) >= 2


@pytest.mark.parametrize(("path", "value"), UNUSUAL_VALUES)
def test_short_way_alone_takes_no_message_that_is_a_fault(path: tuple[str, ...], value: Any) -> None:
    changed = altered(update(), path, value)
    expected = decode_slowly([changed])
    try:
        head, row = knowing(update()).read(0, changed)
    except UNUSUAL:
        return
    assert {head.form: [row]} == expected.rows


def test_message_in_another_version_shows_the_names_that_it_has() -> None:
    newer = altered(update(), ("envelope", "type"), "com.microsoft.SQL.CES.DML.V2")
    found = BatchDecoder().decode([update(), newer, update()])
    assert sum(map(len, found.rows.values())) == 2
    ((place, unknown),) = found.unknown
    (form,) = found.rows
    assert (place, find_names(unknown.data)) == (1, (form.database, form.schema, form.table))
    assert "V2 of the format" in str(unknown)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ('{"eventsource": {"db": "a", "schema": "b", "tbl" : "c", "co', ("a", "b", "c")),
        (r'{"eventsource":{"db":"a\"","schema":"b\u00e9","tbl":"c"}', ('a"', "b\u00e9", "c")),
        (r'{"eventsource":{"db":"a\q","schema":"b","tbl":"c"}', None),
        ({"eventsource": {"db": "a", "schema": "b", "tbl": "c"}}, ("a", "b", "c")),
        ({"eventsource": {"db": 1, "schema": "b", "tbl": "c"}}, None),
        ({"eventsource": None}, None),
        (r'"current":"{\"db\":\"a\",\"schema\":\"b\",\"tbl\":\"c\"}"', None),
        (b'{"eventsource":{"db":"a","schema":"b","tbl":"c"}', None),
        (None, None),
    ],
)
def test_names_are_those_of_the_table_and_never_a_value(data: object, expected: object) -> None:
    assert find_names(data) == expected


def test_memory_of_tables_and_identifiers_is_bounded() -> None:
    usual = UsualMessages(most_heads=2, most_guids=1)
    for name in ("a", "b", "c", "d"):
        body = altered(update(), ("source", "tbl"), name)
        usual.learn_guid("9c8d4ad2")
        usual.learn_guid(name)
        assert usual.read(0, body)[0].form.table == name
    assert (len(usual._heads), usual._guids) == (2, {"9c8d4ad2"})
