"""Random, cut and mutated bytes at every layer of the wire: an answer or a closed connection, and the others go on."""

from __future__ import annotations

import contextlib
import ssl
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hostile_client import Target, answer_to, begin_login
from raw_client import (
    ATTENTION,
    BATCH,
    BULK,
    HEADERS,
    LAST,
    LOGIN,
    PLAIN_PRELOGIN,
    PRELOGIN,
    RPC,
    TRANSACTION,
    RawClient,
    login_message,
    packets,
)

MANY = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
TLS_PRELOGIN = PLAIN_PRELOGIN[:-1] + b"\x01"
LOGIN_MESSAGE = login_message("sa", "wrong", 4096)
CALL = HEADERS + struct.pack("<HHH", 0xFFFF, 10, 0) + b"\x00\x00\xe7\x0a\x00\x09\x04\x00\x22\x00\x04\x00a\x00b\x00"
REQUESTS = {
    BATCH: HEADERS + "select numbers 3".encode("utf-16-le"),
    RPC: CALL,
    TRANSACTION: HEADERS + b"\x05\x00\x00\x00",
    BULK: b"\x81\x01\x00" + b"\x00" * 6 + b"\x26\x04\x01a\x00\xd1\x04\x01\x00\x00\x00\xfd" + b"\x00" * 12,
    ATTENTION: b"",
}


@pytest.fixture(autouse=True, scope="module")
def _bounded(canned_target: Target) -> Iterator[None]:
    with canned_target.memory_grows_by_less_than(120):
        yield
    assert canned_target.serves_others()


@st.composite
def mutated(draw: Any, original: bytes) -> bytes:
    """Some bytes replaced, and the rest cut off, doubled, or followed by noise."""
    data = bytearray(original)
    for _ in range(draw(st.integers(0, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFE, 0xFF]))
    end = draw(st.integers(0, len(data)))
    tail: Callable[[], bytes] = draw(st.sampled_from([lambda: b"", lambda: bytes(data), lambda: b"\xff" * 64]))
    return bytes(data[:end]) + tail() if draw(st.booleans()) else bytes(data)


@MANY
@given(st.binary(max_size=300))
def test_noise_instead_of_a_prelogin_closes_the_connection(canned_target: Target, noise: bytes) -> None:
    with RawClient(canned_target.port) as client:
        answer_to(client, noise)


@MANY
@given(st.sampled_from([LAST, 0, 0xFF]), st.integers(0, 0xFFFF), mutated(PLAIN_PRELOGIN))
def test_packet_headers_that_lie_close_the_connection(
    canned_target: Target, status: int, length: int, payload: bytes
) -> None:
    with RawClient(canned_target.port) as client:
        answer_to(client, struct.pack(">BBHHBB", PRELOGIN, status, length, 0, 1, 0) + payload)


@MANY
@given(mutated(packets(PRELOGIN, PLAIN_PRELOGIN) + packets(LOGIN, LOGIN_MESSAGE)))
def test_a_mutated_login_is_answered_or_closed(canned_target: Target, stream: bytes) -> None:
    with RawClient(canned_target.port) as client:
        answer_to(client, stream)


@MANY
@given(mutated(LOGIN_MESSAGE))
def test_a_mutated_login_message_is_refused_or_closed(canned_target: Target, message: bytes) -> None:
    with RawClient(canned_target.port) as client:
        begin_login(client)
        answer = answer_to(client, packets(LOGIN, message))
    assert not answer or "Internal error".encode("utf-16-le") not in answer


def client_hello() -> bytes:
    context = ssl.create_default_context()
    outgoing = ssl.MemoryBIO()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


HELLO = client_hello()


@MANY
@given(st.one_of(mutated(HELLO), st.binary(max_size=200)), st.booleans())
def test_tls_records_of_nonsense_close_the_connection(canned_target: Target, records: bytes, in_packets: bool) -> None:
    with RawClient(canned_target.port) as client:
        if not in_packets:
            answer_to(client, HELLO[:3] + records)
            return
        client.send(PRELOGIN, TLS_PRELOGIN)
        client.read()
        answer_to(client, packets(PRELOGIN, records))


@MANY
@given(st.binary(min_size=1, max_size=200))
def test_nonsense_inside_the_tls_tunnel_closes_the_connection(canned_target: Target, noise: bytes) -> None:
    context = ssl.create_default_context(cafile=str(canned_target.server.ca_file))
    with (
        RawClient(canned_target.port) as client,
        # TDS 8: TLS first, then whatever the client likes to send.
        context.wrap_socket(client.socket, server_hostname="localhost") as tls,
        contextlib.suppress(ssl.SSLError, ConnectionError),
    ):
        tls.sendall(noise + b"\x00" * 8)
        while tls.recv(4096):
            pass


@MANY
@given(st.sampled_from(sorted(REQUESTS)).flatmap(lambda kind: st.tuples(st.just(kind), mutated(REQUESTS[kind]))))
def test_a_mutated_request_is_answered_or_closes_the_connection(
    canned_target: Target, request_: tuple[int, bytes]
) -> None:
    kind, payload = request_
    with canned_target.client() as client:
        answer = answer_to(client, packets(kind, payload, packet_bytes=512))
    assert "Internal error".encode("utf-16-le") not in answer


@MANY
@given(st.lists(st.tuples(st.sampled_from(sorted(REQUESTS)), st.integers(0, 0x1F), st.binary(max_size=40)), max_size=8))
def test_any_mixture_of_packets_is_answered_or_closes_the_connection(
    canned_target: Target, mixture: list[tuple[int, int, bytes]]
) -> None:
    with canned_target.client() as client:
        answer_to(client, b"".join(packets(kind, body, status) for kind, status, body in mixture))


def test_an_attention_inside_a_message_gives_that_message_up(canned_target: Target) -> None:
    with canned_target.client() as client:
        client.send(BATCH, HEADERS + "select numbers 3".encode("utf-16-le"), status=0)
        client.send(ATTENTION, b"")
        assert client.read() == b"\xfd\x20\x00" + b"\x00" * 10
        assert client.batch("set x")


def test_a_packet_of_another_type_inside_a_message_closes_the_connection(canned_target: Target) -> None:
    with canned_target.client() as client:
        client.send(BATCH, HEADERS, status=0)
        client.send(RPC, CALL)
        assert client.is_closed_by_server()


@pytest.mark.parametrize(
    "claim",
    [
        struct.pack("<QI", 2**62, 2**31 - 1),  # a value of exabytes, its first piece of two gigabytes
        struct.pack("<QI", 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFF),
    ],
)
def test_absurd_lengths_of_a_value_are_not_believed(canned_target: Target, claim: bytes) -> None:
    parameter = b"\x00\x00\xa5\xff\xff" + claim
    with canned_target.client() as client, canned_target.memory_grows_by_less_than(20):
        assert answer_to(client, packets(RPC, HEADERS + struct.pack("<HHH", 0xFFFF, 10, 0) + parameter)) == b""


def test_more_than_2100_parameters_are_refused_with_8003(canned_target: Target) -> None:
    with canned_target.client() as client, canned_target.memory_grows_by_less_than(40):
        client.send(RPC, HEADERS + struct.pack("<HHH", 0xFFFF, 10, 0) + b"\x00\x00\x30\x01" * 1_000_000)
        assert b"\xaa" in (answer := client.read())
        assert struct.pack("<i", 8003) in answer
        assert client.batch("set x")


def test_a_message_beyond_the_limit_closes_the_connection(canned_target: Target) -> None:
    with canned_target.client() as client, canned_target.memory_grows_by_less_than(40):
        assert answer_to(client, packets(BATCH, b"\x00" * (9 << 20))) == b""


def test_messages_of_all_clients_share_one_limit(canned_target: Target) -> None:
    unfinished = packets(BATCH, b"\x00" * (7 << 20))[:-4]
    clients = [canned_target.client() for _ in range(4)]
    with canned_target.memory_grows_by_less_than(60):
        for client in clients[:2]:
            client.socket.sendall(unfinished)
        assert answer_to(clients[2], unfinished) == b""  # 21 MB where 16 are allowed
        assert clients[3].batch("set x")
    for client in clients:
        client.socket.close()
    with canned_target.client() as client:
        client.send(BATCH, HEADERS + "set x".encode("utf-16-le") + b" \x00" * (3 << 20))
        assert client.read()  # the memory of those who have gone is free again


def test_a_refused_client_is_one_line_in_the_log(canned_target: Target) -> None:
    before = canned_target.log_text().count("\n")
    with RawClient(canned_target.port) as client:
        answer_to(client, b"GET / HTTP/1.1\r\n\r\n")
    lines = canned_target.log_text().splitlines()[before:]
    assert len(lines) == 1
    assert "closed: unknown packet type 0x47" in lines[0]
