"""Whatever is encoded is decoded to the same change: every generation, encoding, split and order of segments."""

from __future__ import annotations

import json
import re
import tracemalloc
from dataclasses import replace
from io import BytesIO
from random import Random
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer, writer
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from event_strategies import FORMS, HALVES, as_messages, message_form, numbered_ids, outgoing_changes
from floodmark.sources.event_stream.change import ChangeEvent, parse_change
from floodmark.sources.event_stream.envelope import (
    DATA_SCHEMA,
    ENVELOPE_SCHEMA,
    PREVIEW_DATA_SCHEMA,
    EventFaultError,
    PoisonError,
    parse_envelope,
)
from floodmark.sources.event_stream.rows import FaultyGroup, JoinedEvent, SegmentJoiner
from sqlserver_emulator.event_stream.encoding import (
    Generation,
    MessageForm,
    OutgoingChange,
    encode_change,
    split_escaped,
)

VALID = st.text(st.characters(codec="utf-8"), max_size=20)


def assert_same(found: ChangeEvent, sent: OutgoingChange, generation: Generation) -> None:
    assert (found.database, found.schema, found.table) == (sent.database, sent.schema, sent.table)
    assert tuple((each.name, each.declared_type, each.index) for each in found.columns) == sent.columns
    assert found.transaction.commit_lsn.value == sent.commit_lsn
    begin = found.transaction.begin_lsn
    assert (begin and begin.value) == (None if generation is Generation.G1 else sent.begin_lsn)
    assert (found.transaction.sequence, found.committed_at) == (sent.sequence, sent.committed_at)
    assert (found.operation.value, found.old, found.current) == (sent.operation, sent.old, sent.current)


def decode_whole(bodies: list[bytes]) -> ChangeEvent:
    (body,) = bodies
    return parse_change(parse_envelope(body))


@settings(deadline=None)
@given(outgoing_changes())
@pytest.mark.parametrize("form", FORMS)
def test_decoding_inverts_encoding(form: tuple[Generation, bool], change: OutgoingChange) -> None:
    found = decode_whole(encode_change(change, message_form(form), numbered_ids()))
    assert_same(found, change, form[0])
    if not form[1]:
        assert tuple(found.key.items()) == change.key
    else:  # Avro has no halves of surrogate pairs outside of the images
        shown = tuple((name, value.encode("utf-8", "replace").decode()) for name, value in change.key)
        assert tuple(found.key.items()) == shown


@settings(deadline=None)
@given(outgoing_changes(), st.integers(0, 400), st.randoms(use_true_random=False), st.booleans())
@pytest.mark.parametrize("form", FORMS)
def test_segments_of_any_size_order_and_number_are_joined(
    form: tuple[Generation, bool], change: OutgoingChange, more: int, random: Random, repeats: bool
) -> None:
    limit = (500 if not form[1] else 330) + more
    bodies = encode_change(change, message_form(form, limit_bytes=limit), numbered_ids())
    assert all(len(body) <= limit for body in bodies)
    messages = as_messages(bodies * 2 if repeats else bodies)
    random.shuffle(messages)
    joiner = SegmentJoiner()
    outcomes = [outcome for each in messages for outcome in joiner.add(each)]
    assert joiner.take_incomplete() == ()
    assert outcomes
    assert len(outcomes) == 1 or len(bodies) == 1
    for outcome in outcomes:
        assert isinstance(outcome, JoinedEvent)
        assert_same(parse_change(outcome.envelope), change, form[0])


def test_last_image_of_a_datum_is_no_event_by_itself() -> None:
    """Cut where it begins, it is the second of two segments, and an object of JSON."""
    change = some_change()
    (whole,) = encode_change(change, MessageForm(is_avro=True), numbered_ids())
    cuts = (
        encode_change(change, MessageForm(is_avro=True, limit_bytes=len(whole) - less), numbered_ids())
        for less in range(1, 60)
    )
    bodies = next(found for found in cuts if len(found) == 2 and parse_envelope(found[1]).data == IMAGE)
    joiner = SegmentJoiner()
    outcomes = [outcome for each in reversed(as_messages(bodies)) for outcome in joiner.add(each)]
    (outcome,) = outcomes
    assert isinstance(outcome, JoinedEvent)
    assert_same(parse_change(outcome.envelope), change, Generation.G3)


@settings(deadline=None)
@given(outgoing_changes(), st.randoms(use_true_random=False))
@pytest.mark.parametrize("form", FORMS)
def test_missing_segment_is_waited_for_across_windows(
    form: tuple[Generation, bool], change: OutgoingChange, random: Random
) -> None:
    messages = as_messages(
        encode_change(change, message_form(form, limit_bytes=345 if form[1] else 540), numbered_ids())
    )
    assume(len(messages) > 1)
    random.shuffle(messages)
    missing = messages.pop()
    joiner, later = SegmentJoiner(), SegmentJoiner()
    assert [outcome for each in messages for outcome in joiner.add(each)] == []
    carried = joiner.take_incomplete()
    assert carried == (tuple(messages),)
    assert later.put_back(carried) == ()
    (outcome,) = later.add(missing)
    assert isinstance(outcome, JoinedEvent)
    assert_same(parse_change(outcome.envelope), change, form[0])


@settings(deadline=None)
@given(outgoing_changes(VALID))
def test_data_is_json_in_json_in_json(change: OutgoingChange) -> None:
    """The standard library reads the three levels as the documented format has them."""
    (body,) = encode_change(change, MessageForm(), numbered_ids())
    message = json.loads(body)
    data = json.loads(message["data"])
    assert json.loads(data["eventrow"]["old"]) == change.old
    assert json.loads(data["eventrow"]["current"]) == change.current
    assert message["logicalid"].split(":")[1] == data["eventsource"]["transaction"]["commitlsn"].replace(":", "")
    assert (message["segmentindex"], message["finalsegment"]) == (0, True)


@settings(deadline=None)
@given(outgoing_changes(VALID))
@pytest.mark.parametrize("generation", [Generation.G2, Generation.G3])
def test_avro_is_what_fastavro_reads_with_the_documented_schemas(
    generation: Generation, change: OutgoingChange
) -> None:
    (body,) = encode_change(change, MessageForm(generation, is_avro=True), numbered_ids())
    envelope: Any = schemaless_reader(BytesIO(body), ENVELOPE_SCHEMA, None)
    schema = DATA_SCHEMA if generation is Generation.G3 else PREVIEW_DATA_SCHEMA
    data: Any = schemaless_reader(BytesIO(envelope["data"]), schema, None)
    assert json.loads(data["eventrow"]["current"]) == change.current
    assert ("finalevent" in data["eventsource"]["transaction"]) == (generation is Generation.G3)


@settings(deadline=None)
@given(HALVES | st.text('\\"\n\x00\x1fé€\U0001f600'), st.integers(6, 12))
def test_cut_is_never_inside_an_escape_or_a_code_point(text: str, room: int) -> None:
    escaped = json.dumps(text.encode("utf-8", "replace").decode(), ensure_ascii=False)[1:-1].encode()
    parts = list(split_escaped(escaped, room))
    assert b"".join(parts) == escaped
    assert all(0 < len(part) <= room for part in parts)
    assert "".join(json.loads(b'"' + part + b'"') for part in parts) == json.loads(b'"' + escaped + b'"')


def some_change() -> OutgoingChange:
    return OutgoingChange(
        database="db",
        schema="dbo",
        table="T",
        columns=(("Id", "int", 0), ("Name", "nvarchar(max)", 1)),
        key=(("Id", "8"),),
        guid="9c8d4ad2-bf54-4f10-a96f-038af496997f",
        commit_lsn=bytes.fromhex("000000B1000008A80007"),
        begin_lsn=bytes.fromhex("000000B1000008A80003"),
        sequence=1,
        committed_at=parse_envelope(LITERAL).time,
        operation="INS",
        old={},
        current={"Id": "8", "Name": 'a "quoted" \u20ac'},
    )


IMAGE = '{"Id":"8","Name":"a \\"quoted\\" \u20ac"}'.encode()
LITERAL = (
    rb'{"specversion":"1.0","type":"com.microsoft.SQL.CES.DML.V1","source":"\/",'
    rb'"id":"00000000-0000-0000-0000-000000000001",'
    rb'"logicalid":"9c8d4ad2-bf54-4f10-a96f-038af496997f:000000B1000008A80007:00000000000000000001",'
    rb'"time":"2026-08-07T16:25:00.883Z","datacontenttype":"application\/json","operation":"INS",'
    rb'"segmentindex":0,"finalsegment":true,"data":"{\"eventsource\":{\"db\":\"db\",\"schema\":\"dbo\",\"tbl\":\"T\",'
    rb"\"cols\":[{\"name\":\"Id\",\"type\":\"int\",\"index\":0},"
    rb"{\"name\":\"Name\",\"type\":\"nvarchar(max)\",\"index\":1}],"
    rb"\"pkkey\":[{\"columnname\":\"Id\",\"value\":\"8\"}],"
    rb"\"transaction\":{\"commitlsn\":\"000000B1:000008A8:0007\",\"beginlsn\":\"000000B1:000008A8:0003\","
    rb"\"sequencenumber\":1,\"finalevent\":false,\"committime\":\"2026-08-07T16:25:00.883Z\"}},"
    rb"\"eventrow\":{\"old\":\"{}\","
    rb"\"current\":\"{\\\"Id\\\":\\\"8\\\",\\\"Name\\\":\\\"a \\\\\\\"quoted\\\\\\\" "
    + b"\xe2\x82\xac"
    + rb'\\\"}\"}}"}'
)


def test_third_generation_is_written_byte_by_byte() -> None:
    """One quotation mark in a value has eight bytes on the wire."""
    assert encode_change(some_change(), MessageForm(), numbered_ids()) == [LITERAL]


def test_other_generations_have_their_places_and_layouts() -> None:
    first, second = (
        [
            json.loads(body)
            for body in encode_change(some_change(), MessageForm(generation, limit_bytes=600), numbered_ids())
        ]
        for generation in (Generation.G1, Generation.G2)
    )
    assert [each["splitindex"] for each in first] == list(range(len(first)))
    assert {each["splittotalcnt"] for each in first} == {len(first)}
    assert [(each["segmentindex"], each["finalsegment"]) for each in second] == [
        (place + 1, place == len(second) - 1) for place in range(len(second))
    ]
    assert {each["datacontenttype"] for each in second} == {"application/avro-json"}
    assert len({each["id"] for each in second}) == len(second) > 2
    data = json.loads("".join(each["data"] for each in first))
    assert "transaction" not in data["eventsource"]
    assert re.match(r"\{\n +\"eventsource\"", first[0]["data"])


def test_limit_without_room_is_refused() -> None:
    for is_avro in (False, True):
        with pytest.raises(ValueError, match="no room"):
            encode_change(some_change(), MessageForm(is_avro=is_avro, limit_bytes=200), numbered_ids())
    with pytest.raises(ValueError, match="no Avro schema"):
        encode_change(some_change(), MessageForm(Generation.G1, is_avro=True), numbered_ids())


def test_data_of_the_preview_is_not_read_with_the_later_schema() -> None:
    (body,) = encode_change(some_change(), MessageForm(Generation.G2, is_avro=True), numbered_ids())
    assert parse_change(parse_envelope(body)).current == some_change().current


def test_envelope_in_an_object_container_is_read() -> None:
    (body,) = encode_change(some_change(), MessageForm(is_avro=True), numbered_ids())
    envelope: Any = schemaless_reader(BytesIO(body), ENVELOPE_SCHEMA, None)
    one, two = BytesIO(), BytesIO()
    writer(one, ENVELOPE_SCHEMA, [envelope])
    writer(two, ENVELOPE_SCHEMA, [envelope, envelope])
    assert decode_whole([one.getvalue()]) == decode_whole([body])
    with pytest.raises(PoisonError, match="exactly one record"):
        parse_envelope(two.getvalue())


def test_container_with_a_schema_of_its_own_is_not_read() -> None:
    items = {"type": "record", "name": "X", "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}
    file = BytesIO()
    writer(file, parse_schema(items), [{"a": [None] * 3}])
    with pytest.raises(PoisonError, match="exactly one record"):
        parse_envelope(file.getvalue())


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz"])
def test_compressed_container_is_refused_before_it_is_unpacked(codec: str) -> None:
    (body,) = encode_change(some_change(), MessageForm(is_avro=True), numbered_ids())
    envelope: Any = schemaless_reader(BytesIO(body), ENVELOPE_SCHEMA, None)
    file = BytesIO()
    writer(file, ENVELOPE_SCHEMA, [envelope | {"data": bytes(1 << 24)}], codec=codec)
    assert read_within(1 << 20, file.getvalue()) == "the message is an Avro container with compressed blocks"


def test_container_with_many_records_is_refused_before_they_are_read() -> None:
    schema = parse_schema({"type": "record", "name": "X", "fields": [{"name": "a", "type": "null"}]})
    file = BytesIO()
    writer(file, schema, [{"a": None}] * 100_000)
    assert "exactly one record" in read_within(1 << 20, file.getvalue())
    one = BytesIO()
    writer(one, schema, [{"a": None}])
    assert "exactly one record" in read_within(1 << 20, one.getvalue() + b"left over")


def test_size_that_a_container_or_a_datum_declares_reserves_no_memory() -> None:
    file = BytesIO()
    writer(file, ENVELOPE_SCHEMA, [])
    huge = b"\xfe\xff\xff\xff\xff\x3f"  # a long of 40 bits
    assert "cannot be read" in read_within(1 << 20, file.getvalue() + b"\x02" + huge + b"rest")
    assert "neither" in read_within(1 << 20, huge + b"rest")


def read_within(limit_bytes: int, body: bytes) -> str:
    """Return the fault of a message, whose reading takes no more memory than a limit."""
    tracemalloc.start()
    try:
        with pytest.raises(PoisonError) as fault:
            parse_envelope(body)
        assert tracemalloc.get_traced_memory()[1] < limit_bytes
    finally:
        tracemalloc.stop()
    return str(fault.value)


def test_avro_with_bytes_left_is_poison() -> None:
    (body,) = encode_change(some_change(), MessageForm(is_avro=True), numbered_ids())
    with pytest.raises(PoisonError):
        parse_envelope(body + b"\x00")
    envelope: Any = schemaless_reader(BytesIO(body), ENVELOPE_SCHEMA, None)
    file = BytesIO()
    schemaless_writer(file, ENVELOPE_SCHEMA, envelope | {"data": envelope["data"] + b"\x00"})
    with pytest.raises(PoisonError, match="no Avro datum"):
        decode_whole([file.getvalue()])


def decode_anything(body: bytes) -> None:
    """Decode a body as a reader does. Every fault must be one of the format's own."""
    joiner = SegmentJoiner()
    try:
        for outcome in joiner.add(as_messages([body])[0]):
            if isinstance(outcome, JoinedEvent):
                parse_change(outcome.envelope)
            else:
                assert isinstance(outcome, FaultyGroup)
    except EventFaultError as fault:
        assert SECRET not in str(fault)


SECRET = "Geheimnis"


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda text: ("{" + text).encode(errors="surrogatepass")))
def test_garbage_is_a_fault(body: bytes) -> None:
    decode_anything(body)
    decode_anything(b"Obj\x01" + body)


@settings(deadline=None)
@given(st.data())
@pytest.mark.parametrize("form", [*FORMS, None])
def test_damaged_message_is_a_fault_that_names_no_value(
    form: tuple[Generation, bool] | None, data: st.DataObject
) -> None:
    change = replace(some_change(), current={"Id": "8", "Name": SECRET}, old={"Id": "8", "Name": SECRET})
    (body,) = encode_change(change, message_form(form or (Generation.G3, True)), numbered_ids())
    if form is None:
        file = BytesIO()
        writer(file, ENVELOPE_SCHEMA, [schemaless_reader(BytesIO(body), ENVELOPE_SCHEMA, None)])
        body = file.getvalue()
    start = data.draw(st.integers(0, len(body)))
    length = data.draw(st.integers(0, 20) | st.just(len(body)))
    inserted = data.draw(st.binary(max_size=4) | st.sampled_from([b'"', b"{", b"null", b"[", b"1.5"]))
    decode_anything(body[:start] + inserted + body[start + length :])


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=5), each, max_size=3),
    ),
    st.data(),
)
def test_any_json_in_any_place_is_a_fault_or_a_change(value: Any, data: st.DataObject) -> None:
    message = json.loads(LITERAL)
    inside = json.loads(message["data"])
    places: list[tuple[Any, Any]] = [(message, name) for name in message]
    places += [(inside["eventsource"], name) for name in inside["eventsource"]]
    places += [(inside["eventrow"], name) for name in inside["eventrow"]]
    places += [(inside["eventsource"]["cols"][0], name) for name in inside["eventsource"]["cols"][0]]
    places += [(inside["eventsource"]["transaction"], name) for name in inside["eventsource"]["transaction"]]
    places += [(inside["eventsource"]["pkkey"][0], name) for name in inside["eventsource"]["pkkey"][0]]
    place, name = data.draw(st.sampled_from(places))
    is_text = data.draw(st.booleans())
    place[name] = json.dumps(value) if is_text else value
    if place is not message or name != "data":
        message["data"] = inside if data.draw(st.booleans()) else json.dumps(inside)
    decode_anything(json.dumps(message).encode())
