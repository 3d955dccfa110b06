"""Packets, PRELOGIN, LOGIN7, transaction requests: what comes in whole, cut, or wrong."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.release import SQL_SERVER_2022
from sqlserver_emulator.tds.login import FEATURE_UTF8, parse_login
from sqlserver_emulator.tds.packets import (
    HEADER_BYTES,
    PacketCutter,
    PacketType,
    frame_message,
    negotiate_packet_bytes,
    parse_header,
)
from sqlserver_emulator.tds.prelogin import Encryption, answer_encryption, build_prelogin_answer, parse_prelogin
from sqlserver_emulator.tds.reading import MessageReader, ProtocolError, skip_all_headers
from sqlserver_emulator.tds.transaction import TransactionKind, TransactionRequest, parse_transaction

HEADERS = struct.pack("<IIHQI", 22, 18, 2, 0, 1)


def join(packets: bytes) -> tuple[bytes, list[int], list[bool]]:
    payload, sizes, ends = b"", [], []
    while packets:
        header = parse_header(packets)
        payload += packets[HEADER_BYTES : header.length]
        sizes.append(header.length)
        ends.append(header.is_last)
        packets = packets[header.length :]
    return payload, sizes, ends


@given(st.lists(st.binary(max_size=3000), max_size=8), st.integers(512, 1500))
def test_a_message_cut_into_packets_is_whole_again_when_joined(chunks: list[bytes], packet_bytes: int) -> None:
    cutter = PacketCutter(PacketType.RESPONSE, packet_bytes)
    sent = b""
    for chunk in chunks:
        cutter.add(chunk)
        sent += cutter.cut()
    payload, sizes, ends = join(sent + cutter.finish())
    assert payload == b"".join(chunks)
    assert all(size == packet_bytes for size in sizes[:-1])
    assert sizes[-1] <= packet_bytes
    assert ends == [False] * (len(ends) - 1) + [True]


def test_a_message_that_fills_its_packet_needs_no_empty_one() -> None:
    _payload, sizes, _ends = join(frame_message(PacketType.RESPONSE, b"x" * 504, 512))
    assert sizes == [512]


@pytest.mark.parametrize("header", [b"\x99\x01\x00\x08\x00\x00\x00\x00", b"\x01\x01\x00\x07\x00\x00\x00\x00"])
def test_an_impossible_packet_header_is_a_protocol_error(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_header(header)


@pytest.mark.parametrize(
    ("requested", "tls", "granted"),
    [(0, False, 4096), (100, False, 512), (8000, True, 8000), (32767, True, 16000), (99999, False, 32767)],
)
def test_packet_size_is_granted_within_bounds(requested: int, tls: bool, granted: int) -> None:
    assert negotiate_packet_bytes(requested, tls=tls) == granted


@pytest.mark.parametrize(("asked", "answered"), [(0, 0), (1, 1), (2, 2), (3, 1)])
def test_encryption_is_answered_as_by_a_server_that_does_not_force_it(asked: int, answered: int) -> None:
    request = parse_prelogin(b"\x01\x00\x06\x00\x01\xff" + bytes((asked,)))
    assert answer_encryption(request.encryption) == answered
    assert parse_prelogin(build_prelogin_answer(request, SQL_SERVER_2022)).encryption == answered


def test_federated_option_is_answered_only_when_asked() -> None:
    plain = parse_prelogin(b"\xff")
    assert plain.encryption is Encryption.NOT_SUPPORTED
    assert not parse_prelogin(build_prelogin_answer(plain, SQL_SERVER_2022)).asks_federated
    asking = parse_prelogin(b"\x06\x00\x06\x00\x01\xff\x01")
    assert parse_prelogin(build_prelogin_answer(asking, SQL_SERVER_2022)).asks_federated


@given(st.binary(max_size=60))
def test_noise_for_prelogin_is_a_protocol_error_or_read(noise: bytes) -> None:
    try:
        parse_prelogin(noise)
    except ProtocolError:
        return


PASSWORD = "Sécret"


def login_message(*, features: bytes = b"") -> bytes:
    hidden = bytes((byte << 4 | byte >> 4) & 0xFF ^ 0xA5 for byte in PASSWORD.encode("utf-16-le"))
    texts = [b"host", "sa", hidden, "app", "server", b"", "lib", "", "Shop"]
    data, pairs = b"", []
    for text in texts:
        raw = text.encode("utf-16-le") if isinstance(text, str) else text
        if text == b"host":
            raw = "host".encode("utf-16-le")
        pairs.append((94 + len(data), len(raw) // 2))
        data += raw
    if features:
        pairs[5] = (94 + len(data), 4)
        data += struct.pack("<I", 94 + len(data) + 4) + features
    head = struct.pack("<IIIIIIBBBBiI", 0, 0x74000004, 8000, 0, 0, 0, 0, 0, 0, 0x10 if features else 0, 0, 0)
    fields = b"".join(struct.pack("<HH", *pair) for pair in pairs)
    return head + fields + b"\x00" * 6 + struct.pack("<6HI", 0, 0, 0, 0, 0, 0, 0) + data


def test_login_is_read_with_its_hidden_password() -> None:
    login = parse_login(login_message(features=b"\x0a\x01\x00\x00\x00\x01\x01\x00\x00\x00\x00\xff"))
    assert (login.user, login.password, login.database, login.application) == ("sa", "Sécret", "Shop", "app")
    assert (login.packet_bytes, login.integrated_security, login.changes_password) == (8000, False, False)
    assert login.feature_ids == {FEATURE_UTF8, 0x01}


def test_a_login_does_not_show_its_password() -> None:
    assert "Sécret" not in repr(parse_login(login_message()))


@given(st.data())
def test_a_cut_login_is_a_protocol_error(data: st.DataObject) -> None:
    whole = login_message(features=b"\x0a\x01\x00\x00\x00\x01\xff")
    with pytest.raises(ProtocolError):
        parse_login(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.binary(max_size=200))
def test_noise_for_a_login_is_a_protocol_error_or_read(noise: bytes) -> None:
    try:
        parse_login(login_message()[:36] + noise)
    except ProtocolError:
        return


def name(text: str) -> bytes:
    return bytes((2 * len(text),)) + text.encode("utf-16-le")


@pytest.mark.parametrize(
    ("body", "request_"),
    [
        (b"\x05\x00\x02" + name("t"), TransactionRequest(TransactionKind.BEGIN, "t", 2)),
        (b"\x05\x00\x00\x00", TransactionRequest(TransactionKind.BEGIN)),
        (b"\x07\x00\x00\x00", TransactionRequest(TransactionKind.COMMIT)),
        (b"\x08\x00" + name("s") + b"\x00", TransactionRequest(TransactionKind.ROLLBACK, "s")),
        (
            b"\x08\x00\x00\x01\x03" + name("n"),
            TransactionRequest(TransactionKind.ROLLBACK, "", 3, begins_another=True, next_name="n"),
        ),
        (b"\x09\x00" + name("p"), TransactionRequest(TransactionKind.SAVE, "p")),
    ],
)
def test_transaction_requests_are_read(body: bytes, request_: TransactionRequest) -> None:
    assert parse_transaction(HEADERS + body) == request_


def test_distributed_transactions_are_refused_by_name() -> None:
    with pytest.raises(NotSupportedByEmulatorError, match="distributed"):
        parse_transaction(HEADERS + b"\x06\x00")


def test_all_headers_are_skipped_by_their_length() -> None:
    trace = struct.pack("<IIHQI", 22 + 26, 18, 2, 0, 1) + struct.pack("<IH", 26, 3) + b"\x00" * 20
    reader = MessageReader(trace + b"rest")
    skip_all_headers(reader)
    assert reader.read_bytes(4) == b"rest"
