"""The printed examples of Microsoft's page become changes, and what breaks the rules of the format is poison."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema
from fastavro.schema import to_parsing_canonical_form

from floodmark.core.position import Lsn
from floodmark.sources.event_stream.change import ChangeEvent, parse_change
from floodmark.sources.event_stream.envelope import (
    DATA_SCHEMA,
    ENVELOPE_SCHEMA,
    PREVIEW_DATA_SCHEMA,
    EventOperation,
    PoisonError,
    Segment,
    Split,
    UnknownVersionError,
    parse_envelope,
)

EXAMPLES = Path(__file__).parent / "examples"
SECRET = "Anna Doe"
BEFORE = {
    "purchase_id": "105",
    "customer_name": SECRET,
    "product_id": "100",
    "product_name": "Game 2066",
    "price_per_item": "50",
    "quantity": "2",
    "purchase_date": "2025-03-14 16:45:01.000",
    "payment_method": "Credit Card",
}
INSERTED = BEFORE | {"product_id": "101", "product_name": "Game 2077", "price_per_item": "60", "quantity": "1"}


def decode(body: bytes) -> ChangeEvent:
    return parse_change(parse_envelope(body))


def example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EXAMPLES / f"{name}.json").read_bytes())
    return found


def with_data(change: dict[str, Any], name: str = "update") -> bytes:
    """Return an example with another part of its data; None removes one."""
    message = example(name)
    data = json.loads(message["data"])
    for path, value in change.items():
        *parents, last = path.split(".")
        place = data
        for parent in parents:
            place = place[parent]
        place[last] = value
    message["data"] = json.dumps(data)
    return json.dumps(message).encode()


def with_attributes(change: dict[str, Any], name: str = "update") -> bytes:
    message = example(name) | change
    return json.dumps({key: value for key, value in message.items() if value is not ...}).encode()


@pytest.mark.parametrize(
    ("name", "operation", "at", "lsn", "old", "current"),
    [
        ("insert", EventOperation.INSERT, (45, 20, 650_000), "0000002C:00000300:017C", {}, INSERTED),
        ("update", EventOperation.UPDATE, (49, 59, 567_000), "0000002C:00000350:0004", {}, BEFORE),
        ("delete", EventOperation.DELETE, (51, 39, 613_000), "0000002C:00000360:0019", BEFORE, {}),
    ],
)
def test_printed_example_is_a_change(
    *,
    name: str,
    operation: EventOperation,
    at: tuple[int, int, int],
    lsn: str,
    old: dict[str, str],
    current: dict[str, str],
) -> None:
    envelope = parse_envelope((EXAMPLES / f"{name}.json").read_bytes())
    change = parse_change(envelope)
    assert envelope.version == 1
    assert envelope.logical_id.guid == "9c8d4ad2-bf54-4f10-a96f-038af496997f"
    assert envelope.place == Split(0, 0)
    assert (change.database, change.schema, change.table) == ("db1", "dbo", "Purchases")
    assert change.operation is operation
    assert change.committed_at == datetime(2025, 3, 14, 16, *at, tzinfo=UTC)
    assert change.transaction.commit_lsn == Lsn.parse(lsn)
    assert (change.transaction.begin_lsn, change.transaction.sequence) == (None, 1)
    assert change.key == {"purchase_id": "105"}
    assert (change.old, change.current) == (old, current)
    assert [(each.name, each.declared_type, each.index) for each in change.columns[:2]] == [
        ("purchase_id", "int", 0),
        ("customer_name", "varchar(100)", 1),
    ]
    assert (len(change.columns), change.absent_values, change.suspected_cuts) == (8, 0, frozenset())


@pytest.mark.parametrize("name", ["insert", "update", "delete"])
def test_printed_example_in_avro_is_the_same_change(name: str) -> None:
    """The files have the values of the printed examples, written with the printed schemas (see ``examples``)."""
    body = (EXAMPLES / f"{name}.avro").read_bytes()
    assert parse_envelope(body).place == Segment(0, True)
    change, printed = decode(body), decode((EXAMPLES / f"{name}.json").read_bytes())
    begin = Lsn(printed.transaction.commit_lsn.value[:8] + b"\x00\x01")
    assert change == replace(printed, transaction=replace(printed.transaction, begin_lsn=begin))


def test_schemas_are_the_printed_ones() -> None:
    printed = {
        name: parse_schema(json.loads((EXAMPLES / f"{name}.avsc").read_bytes())) for name in ("envelope", "data")
    }
    forms = {name: to_parsing_canonical_form(schema) for name, schema in printed.items()}
    assert to_parsing_canonical_form(ENVELOPE_SCHEMA) == forms["envelope"]
    assert to_parsing_canonical_form(PREVIEW_DATA_SCHEMA) == forms["data"]
    added = '{"name":"finalevent","type":"boolean"},'
    assert to_parsing_canonical_form(DATA_SCHEMA).replace(added, "") == forms["data"]


TRANSACTION = {"commitlsn": "0000002C:00000350:0004", "beginlsn": "0000002C:00000350:0003", "sequencenumber": 1}


@pytest.mark.parametrize("more", [{}, {"finalevent": False, "committime": "2025-03-14T16:49:59.567Z"}])
def test_transaction_of_later_generations_is_read(more: dict[str, Any]) -> None:
    change = decode(with_data({"eventsource.transaction": TRANSACTION | more}))
    assert change.transaction.begin_lsn == Lsn.parse("0000002C:00000350:0003")


@pytest.mark.parametrize("index", [0, 1])
def test_segment_of_later_generations_is_read(index: int) -> None:
    body = with_attributes({"segmentindex": index, "finalsegment": True, "splitindex": ..., "splittotalcnt": ...})
    assert parse_envelope(body).place == Segment(index, True)
    assert decode(body).current == BEFORE


def test_data_may_be_an_object_and_so_may_images() -> None:
    message = example("update")
    data = json.loads(message["data"])
    data["eventrow"] = {"old": None, "current": BEFORE | {"price_per_item": 50, "quantity": True}}
    data["eventsource"]["cols"][1]["type"] = "decimal(38,20)"
    data["eventrow"]["current"]["customer_name"] = "DIGITS"
    message["data"] = data
    body = json.dumps(message).replace('"DIGITS"', "12345678901234567.12345678901234567890")
    change = decode(body.encode())
    assert change.current["customer_name"] == "12345678901234567.12345678901234567890"
    assert (change.current["price_per_item"], change.current["quantity"]) == ("50", "1")
    assert change.old == {}


def test_null_is_null_or_an_absent_value() -> None:
    image = BEFORE | {"payment_method": None, "product_name": "NULL", "customer_name": ""}
    del image["purchase_date"]
    change = decode(with_data({"eventrow.current": json.dumps(image), "eventrow.old": None}))
    assert change.current == image | {"purchase_date": None}
    assert (change.current["product_name"], change.current["customer_name"]) == ("NULL", "")
    assert (change.absent_values, change.old) == (1, {})


def test_absent_old_lob_is_unknown_and_not_null() -> None:
    cols = json.loads(example("update")["data"])["eventsource"]["cols"]
    cols[1]["type"] = "nvarchar(max)"
    old = {name: value for name, value in BEFORE.items() if name not in ("customer_name", "quantity")}
    change = decode(with_data({"eventsource.cols": cols, "eventrow.old": json.dumps(old)}))
    assert change.old == old | {"quantity": None}
    assert change.absent_values == 1


@pytest.mark.parametrize(
    ("declared", "value", "is_suspected"),
    [
        ("nvarchar(max)", "x" * 1_048_576, True),
        ("nvarchar(max)", "é" * 524_288, True),
        ("varchar(max)", "x" * 524_288, True),
        ("nvarchar(max)", "€" * 349_525 + "x", True),
        ("nvarchar(max)", "x" * 1_048_575, False),
        ("nvarchar(max)", "x" * 1_048_577, False),
        ("varbinary(max)", "0x" + "00" * 1_048_576, True),
        ("varbinary(max)", "0x" + "00" * 1_048_574, False),
        ("nvarchar(4000)", "x" * 1_048_576, False),
    ],
)
def test_value_of_the_length_of_a_cut_is_suspected(declared: str, value: str, is_suspected: bool) -> None:
    cols = json.loads(example("update")["data"])["eventsource"]["cols"]
    cols[1]["type"] = declared
    image = json.dumps(BEFORE | {"customer_name": value})
    change = decode(with_data({"eventsource.cols": cols, "eventrow.current": image}))
    assert change.suspected_cuts == ({"customer_name"} if is_suspected else set())


@pytest.mark.parametrize("escaped", ["\\ud83d", "\\uDC00x", "a\\ud83db"])
def test_half_of_a_surrogate_pair_is_kept(escaped: str) -> None:
    image = json.dumps(BEFORE | {"customer_name": "HALF"}).replace("HALF", escaped)
    change = decode(with_data({"eventrow.current": image}))
    assert change.current["customer_name"] == json.loads(f'"{escaped}"')


def test_half_of_a_surrogate_pair_may_be_an_escape_of_an_outer_level() -> None:
    image = json.dumps(BEFORE | {"customer_name": "a\ud83d"}, ensure_ascii=False)
    assert decode(with_data({"eventrow.current": image})).current["customer_name"] == "a\ud83d"


@pytest.mark.parametrize("found", ["com.microsoft.SQL.CES.DML.V2", "com.microsoft.SQL.CES.DML.V1.1"])
def test_other_version_of_the_format_is_no_poison(found: str) -> None:
    with pytest.raises(UnknownVersionError):
        parse_envelope(with_attributes({"type": found}))


@pytest.mark.parametrize(
    "change",
    [
        {"specversion": "2.0"},
        {"specversion": ...},
        {"type": "com.example.other"},
        {"type": 1},
        {"id": ""},
        {"source": ...},
        {"datacontenttype": "application/xml"},
        {"datacontenttype": 7},
        {"logicalid": "9c8d4ad2:0000002C00000350000:00000000000000000001"},
        {"logicalid": "9c8d4ad2:00000000000000000000:00000000000000000001"},
        {"time": "yesterday"},
        {"time": "2025-03-14T16:49:59.567"},
        {"time": "0001-01-01T00:00:00+14:00"},
        {"operation": "MERGE"},
        {"splitindex": -1},
        {"splitindex": True},
        {"splitindex": 3, "splittotalcnt": 2},
        {"splitindex": ...},
        {"segmentindex": 0},
        {"segmentindex": 0, "finalsegment": "true"},
        {"segmentindex": 0, "finalsegment": False, "data": {}},
        {"data": ...},
        {"data": 5},
        {"data": "5"},
        {"data": "{"},
        {"data": "{}"},
        {"data": {"eventsource": {}, "eventrow": {}}},
    ],
)
def test_broken_attribute_is_poison(change: dict[str, Any]) -> None:
    with pytest.raises(PoisonError) as caught:
        decode(with_attributes(change))
    assert SECRET not in str(caught.value)
    # The exception of a parser holds the text that it parsed.
    assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.parametrize(
    "change",
    [
        {"eventsource": None},
        {"eventrow": "text"},
        {"eventsource.db": ""},
        {"eventsource.schema": 1},
        {"eventsource.tbl": None},
        {"eventsource.cols": []},
        {"eventsource.cols": {"name": "purchase_id"}},
        {"eventsource.cols": [{"name": "purchase_id", "type": "int"}]},
        {"eventsource.cols": [{"name": "purchase_id", "type": "int", "index": 0}]},
        {"eventsource.cols": [{"name": "purchase_id", "type": "int", "index": -1}]},
        {"eventsource.cols": [{"name": "purchase_id", "type": "i-n-t", "index": 0}]},
        {"eventsource.cols": [{"name": "purchase_id", "type": "int", "index": 0}] * 2},
        {"eventsource.pkkey": "105"},
        {"eventsource.pkkey": [{"columnname": "purchase_id"}]},
        {"eventsource.pkkey": [{"columnname": "purchase_id", "value": "105"}] * 2},
        {"eventsource.pkkey": [{"columnname": "purchase_id", "value": 1.5}]},
        {"eventsource.transaction": "x"},
        {"eventsource.transaction": TRANSACTION | {"sequencenumber": 2}},
        {"eventsource.transaction": TRANSACTION | {"commitlsn": "0000002C:00000350:0005"}},
        {"eventsource.transaction": TRANSACTION | {"commitlsn": "0000002C:00000350"}},
        {"eventsource.transaction": TRANSACTION | {"beginlsn": SECRET}},
        {"eventrow.current": SECRET},
        {"eventrow.current": "[]"},
        {"eventrow.current": "{}"},
        {"eventrow.current": None},
        {"eventrow.current": json.dumps(BEFORE | {"purchase_id": None})},
        {"eventrow.current": json.dumps(BEFORE | {"customer_name": [SECRET]})},
        {"eventrow.current": json.dumps(BEFORE | {SECRET: "1"})},
        {"eventrow.old": json.dumps({SECRET: "1"})},
        {"eventrow.old": 5},
        {"eventrow.current": '{"customer_name": "\\ud83d'},
        {"eventrow.current": '{"customer_name": ' + "[" * 100_000 + '"\\ud83d"'},
    ],
)
def test_broken_data_is_poison(change: dict[str, Any]) -> None:
    with pytest.raises(PoisonError) as caught:
        decode(with_data(change))
    assert SECRET not in str(caught.value)
    # The exception of a parser holds the text that it parsed.
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_delete_is_known_by_its_key_alone() -> None:
    change = decode(with_data({"eventrow.old": "{}"}, "delete"))
    assert (change.key, change.old, change.current) == ({"purchase_id": "105"}, {}, {})
    with pytest.raises(PoisonError, match="neither values nor a key"):
        decode(with_data({"eventrow.old": "{}", "eventsource.pkkey": []}, "delete"))


def test_table_without_a_key_has_changes() -> None:
    change = decode(with_data({"eventsource.pkkey": []}))
    assert (change.key, change.current) == ({}, BEFORE)


@pytest.mark.parametrize("body", [b"", b"x", b"[]", b"{", b'{"a":', b'{"data":"\xff"}', b"{}", b'{"type":"\\ud800"}'])
def test_garbage_is_poison(body: bytes) -> None:
    with pytest.raises(PoisonError):
        parse_envelope(body)


@pytest.mark.parametrize("named", ["105", "106"])
def test_update_of_a_key_has_images_with_different_keys(named: str) -> None:
    images = {"eventrow.old": json.dumps(BEFORE), "eventrow.current": json.dumps(BEFORE | {"purchase_id": "106"})}
    change = decode(with_data(images | {"eventsource.pkkey": [{"columnname": "purchase_id", "value": named}]}))
    assert (change.old["purchase_id"], change.current["purchase_id"]) == ("105", "106")
