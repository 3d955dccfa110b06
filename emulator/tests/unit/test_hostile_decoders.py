"""All that reads a client's bytes: noise, and mutated inputs of the fuzzer's corpus, raise only what they may."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz.targets import TARGETS, read_anything
from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.server.channel import Channel
from sqlserver_emulator.server.limits import Allowance, Capacity, Limits
from sqlserver_emulator.syntax import lexer
from sqlserver_emulator.tds.bulk import BulkReader
from sqlserver_emulator.tds.packets import HEADER_BYTES, PacketType, frame_message
from sqlserver_emulator.tds.reading import ProtocolError
from sqlserver_emulator.tds.rpc import MOST_PARAMETERS, parse_calls

CORPUS = sorted((Path(__file__).parents[2] / "fuzz" / "corpus").iterdir())
HEADERS = struct.pack("<IIHQI", 22, 18, 2, 0, 1)
MANY = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


class Received:
    """A transport that has received these pieces."""

    encrypted = False

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    def receive(self) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""


def channel_of(limits: Limits, *pieces: bytes, capacity: Capacity | None = None) -> Any:
    transport: Any = Received(*pieces)
    channel = Channel(transport, capacity or Capacity(limits))
    channel.largest_message_bytes = limits.message_bytes
    return channel


def test_the_corpus_has_an_input_for_every_target() -> None:
    assert {path.read_bytes()[0] % len(TARGETS) for path in CORPUS} == set(range(len(TARGETS)))


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_the_corpus_raises_nothing_else(path: Path) -> None:
    read_anything(path.read_bytes())


@MANY
@given(st.sampled_from([path.read_bytes() for path in CORPUS]), st.data())
def test_mutated_inputs_raise_nothing_else(original: bytes, data: st.DataObject) -> None:
    mutated = bytearray(original)
    for _ in range(data.draw(st.integers(1, 4))):
        mutated[data.draw(st.integers(1, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    read_anything(bytes(mutated[: data.draw(st.integers(1, len(mutated)))]))


@MANY
@given(st.binary(max_size=100))
def test_noise_raises_nothing_else(noise: bytes) -> None:
    for number in range(len(TARGETS)):
        read_anything(bytes((number,)) + noise)


def test_a_message_beyond_the_limit_is_a_protocol_error_before_it_is_complete() -> None:
    limits = Limits(message_bytes=10_000)
    unfinished = frame_message(PacketType.SQL_BATCH, b"x" * 16_000)[: 13_000 + HEADER_BYTES]
    with pytest.raises(ProtocolError, match="more than 10000 bytes"):
        channel_of(limits, unfinished).read_message()


def test_messages_of_several_clients_share_their_memory_and_give_it_back() -> None:
    limits = Limits(message_bytes=8 << 20, all_messages_bytes=8 << 20)
    capacity = Capacity(limits)
    message = frame_message(PacketType.SQL_BATCH, b"x" * (6 << 20), 32_000)
    first, second = (channel_of(limits, message, capacity=capacity) for _ in range(2))
    assert len(first.read_message().payload) == 6 << 20
    with pytest.raises(ProtocolError, match="messages of all clients"):
        second.read_message()
    first.close()
    second.close()
    assert capacity.message_bytes.taken == 0
    assert channel_of(limits, message, capacity=capacity).read_message() is not None


def test_what_is_not_left_is_not_taken() -> None:
    allowance = Allowance(3)
    assert allowance.take(2)
    assert not allowance.take(2)
    assert allowance.taken == 2
    allowance.give_back(2)
    assert allowance.take(3)


def test_one_parameter_too_many_is_error_8003() -> None:
    calls = HEADERS + struct.pack("<HHH", 0xFFFF, 10, 0) + b"\x00\x00\x30\x01" * (MOST_PARAMETERS + 1)
    with pytest.raises(SqlServerError) as caught:
        list(parse_calls(calls))
    assert caught.value.number == 8003
    (call,) = parse_calls(calls[:-4])
    assert len(call.arguments) == MOST_PARAMETERS


@pytest.mark.parametrize("count", [0, 1025, 0xFFFF])
def test_a_bulk_load_has_a_sane_number_of_columns(count: int) -> None:
    with pytest.raises(ProtocolError, match=f"bulk load of {count} columns"):
        BulkReader(iter((b"\x81" + struct.pack("<H", count) + b"\x00" * 40,)))


def test_one_token_too_many_is_error_701(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexer, "MOST_TOKENS", 10)
    assert len(lexer.tokenize("; " * 10)) == 10
    with pytest.raises(SqlServerError) as caught:
        lexer.tokenize("; " * 11)
    assert caught.value.number == 701
