"""The wire apart from the engine: canned sessions, asked by real drivers and by a client that breaks the rules."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import canned
from emulator_process import Emulator
from raw_client import (
    ATTENTION,
    ATTENTION_DONE,
    BATCH,
    HEADERS,
    LAST,
    LOGIN,
    PRELOGIN,
    RPC,
    TRANSACTION,
    RawClient,
)
from sqlserver_emulator.server.certificate import provide_certificate
from sqlserver_emulator.server.connection import ClientConnection
from sqlserver_emulator.server.handshake import TlsContexts
from sqlserver_emulator.server.limits import Capacity, Limits
from sqlserver_emulator.tds import tokens

FAILED_DONE = b"\xfd\x02\x00" + b"\x00" * 10


@pytest.fixture(scope="module")
def canned_server(emulator_dir: Path) -> Iterator[Emulator]:
    with canned.running_canned_server(emulator_dir / "tls") as server:
        yield server


@pytest.fixture
def raw(canned_server: Emulator) -> Iterator[RawClient]:
    with RawClient(canned_server.port) as client:
        client.log_in(canned.PASSWORD)
        yield client


Connect = Callable[[Emulator], Any]
DRIVERS: dict[str, Connect] = {
    "pymssql": lambda server: server.connect_pymssql(),
    "pymssql-tls": lambda server: server.connect_pymssql(encryption="require"),
    "mssql-python-tls": lambda server: server.connect_mssql_python(encrypt="yes"),
    "mssql-python-plain": lambda server: server.connect_mssql_python(encrypt="no"),
    "mssql-python-strict": lambda server: server.connect_mssql_python(encrypt="strict"),
}


@pytest.fixture(params=DRIVERS)
def connection(request: pytest.FixtureRequest, canned_server: Emulator) -> Iterator[Any]:
    connection = DRIVERS[request.param](canned_server)
    yield connection
    with contextlib.suppress(Exception):  # a test may have broken it
        connection.close()


def test_every_type_arrives_exactly(connection: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("select types")
    assert [column[0] for column in cursor.description] == list(canned.ALL_TYPES)
    full, empty = (dict(zip(canned.ALL_TYPES, row, strict=True)) for row in cursor.fetchall())
    assert full == {name: value for name, (_type, value) in canned.ALL_TYPES.items()}
    assert set(empty.values()) == {None}


def test_columns_from_arrow_arrive_exactly(connection: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("select arrow")
    rows = [tuple(row) for row in cursor.fetchall()]
    assert rows == [(i, None if i % 3 == 0 else f"ü{i}") for i in range(50_000)]


def test_results_follow_one_another(connection: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("select numbers 2; insert; select numbers 1")
    results = []
    while True:
        results.append([tuple(row) for row in cursor.fetchall()] if cursor.description else [])
        if not cursor.nextset():
            break
    assert [result for result in results if result] == [[(0,), (1,)], [(0,)]]


def test_a_result_left_unread_does_not_disturb_the_next(connection: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("select many")
    assert next(iter(cursor.fetchone())) == 0
    cursor.close()
    cursor = connection.cursor()
    cursor.execute("select numbers 1")
    assert [tuple(row) for row in cursor.fetchall()] == [(0,)]


def test_an_error_leaves_the_connection_usable(connection: Any) -> None:
    cursor = connection.cursor()
    with pytest.raises(Exception, match="Incorrect syntax near 'nonsense'"):
        cursor.execute("nonsense")
    cursor.execute("select numbers 1")
    assert len(cursor.fetchall()) == 1


def test_a_bug_in_the_engine_is_reported_and_closes_that_connection_only(
    connection: Any, canned_server: Emulator
) -> None:
    cursor = connection.cursor()
    with pytest.raises(Exception, match="Internal error of sqlserver_emulator"):
        cursor.execute("crash")
        cursor.fetchall()
    other = canned_server.connect_pymssql()
    other.cursor().execute("select numbers 1")
    other.close()


@pytest.mark.parametrize("version", ["7.0", "7.1", "7.2", "7.3", "7.4"])
def test_clients_of_older_protocol_versions_are_served(canned_server: Emulator, version: str) -> None:
    connection = canned_server.connect_pymssql(tds_version=version)
    cursor = connection.cursor()
    cursor.execute("select types")
    assert cursor.fetchall()[0] == canned.EXTREMES
    connection.close()


def test_mssql_python_parameters_arrive_typed(canned_server: Emulator) -> None:
    connection = canned_server.connect_mssql_python()
    values = [1, 2**40, "naïve 🌊", "", b"\x00\xff", None, True, Decimal("-12.340"), 1.5]
    cursor = connection.cursor()
    cursor.execute(f"select {', '.join('?' * len(values))}", values)
    assert list(cursor.fetchone()) == values
    connection.close()


def test_pymssql_calls_procedures_with_output_parameters(canned_server: Emulator) -> None:
    import pymssql

    connection = canned_server.connect_pymssql()
    cursor = connection.cursor()
    assert cursor.callproc("dbo.p", (1, pymssql.output(int, 41))) == (1, 41)
    connection.close()


@pytest.mark.parametrize("packet_bytes", [512, 4096, 32767])
def test_packets_have_the_size_that_was_granted(canned_server: Emulator, packet_bytes: int) -> None:
    with RawClient(canned_server.port) as client:
        client.log_in(canned.PASSWORD, packet_bytes=packet_bytes)
        client.send(BATCH, HEADERS + "select numbers 30000".encode("utf-16-le"))
        sizes = []
        while True:
            _type, status, length, *_ = struct.unpack(">BBHHBB", client._receive(8))
            client._receive(length - 8)
            sizes.append(length)
            if status & LAST:
                break
        assert set(sizes[:-1]) == {packet_bytes}


def test_login_answers_with_context_version_and_packet_size(canned_server: Emulator) -> None:
    with RawClient(canned_server.port) as client:
        answer = client.log_in(canned.PASSWORD, packet_bytes=8000)
    kinds = [answer[0]]
    assert kinds == [0xE3]
    for part in ("Changed database context to 'master'.", "us_english", "Microsoft SQL Server", "8000"):
        assert part.encode("utf-16-le") in answer
    assert answer[-13:] == b"\xfd" + b"\x00" * 12


@pytest.mark.parametrize("whole", [False, True], ids=["first packet", "whole"])
@pytest.mark.parametrize("packet_bytes", [64, 512])
def test_tls_of_a_client_that_wants_none_ends_with_the_login(
    canned_server: Emulator, whole: bool, packet_bytes: int
) -> None:
    with RawClient(canned_server.port) as client:
        answer = client.log_in_under_tls(canned.PASSWORD, whole=whole, packet_bytes=packet_bytes)
        assert "us_english".encode("utf-16-le") in answer
        assert client.batch("select numbers 1")[0] == 0x81  # COLMETADATA
        client.send(BATCH, HEADERS + "wait".encode("utf-16-le"))
        client.send(ATTENTION, b"")
        client.read()
        assert client.read() == ATTENTION_DONE


def test_attention_while_a_result_streams_is_acknowledged_after_it(raw: RawClient) -> None:
    raw.send(BATCH, HEADERS + "select many".encode("utf-16-le"))
    raw.send(ATTENTION, b"")
    assert raw.read().endswith(FAILED_DONE)
    assert raw.read() == ATTENTION_DONE
    assert raw.batch("select numbers 1").endswith(struct.pack("<BHHQ", 0xFD, 0x10, 0xC1, 1))


def test_attention_ends_a_statement_that_waits(raw: RawClient) -> None:
    started = time.monotonic()
    raw.send(BATCH, HEADERS + "wait".encode("utf-16-le"))
    raw.send(ATTENTION, b"")
    assert raw.read() == FAILED_DONE
    assert raw.read() == ATTENTION_DONE
    assert time.monotonic() - started < 10


def test_attention_after_a_complete_answer_is_acknowledged(raw: RawClient) -> None:
    assert raw.batch("set x")
    raw.send(ATTENTION, b"")
    assert raw.read() == ATTENTION_DONE


def test_a_client_that_never_logs_in_is_sent_away(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _address = listener.accept()
    contexts = TlsContexts.load(provide_certificate(tmp_path, "localhost"))
    capacity = Capacity(Limits(login_seconds=0))
    connection = ClientConnection(ours, "stranger", canned.CannedFactory(), contexts, capacity)
    thread = threading.Thread(target=connection.run)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    connection.watch()
    thread.join(20)
    assert not thread.is_alive()
    assert theirs.recv(1) == b""
    theirs.close()


def test_mssql_python_reads_every_type_as_arrow(canned_server: Emulator) -> None:
    connection = canned_server.connect_mssql_python(encrypt="yes")
    cursor = connection.cursor()
    cursor.execute("select types")
    table = cursor.arrow()
    connection.close()
    expected = {name: value for name, (_type, value) in canned.ALL_TYPES.items()}
    expected["c_uniqueidentifier"] = str(expected["c_uniqueidentifier"]).upper()
    assert table.slice(0, 1).to_pylist() == [expected]
    assert table.slice(1).to_pylist() == [dict.fromkeys(expected)]


def test_mssql_python_gives_up_a_statement_at_its_timeout(canned_server: Emulator) -> None:
    connection = canned_server.connect_mssql_python(encrypt="yes")
    connection.timeout = 1
    cursor = connection.cursor()
    with pytest.raises(Exception, match=r"(?i)timeout"):
        cursor.execute("wait")
    cursor.execute("select numbers 1")
    assert len(cursor.fetchall()) == 1
    connection.close()


def test_mssql_python_stops_reading_arrow_batches(canned_server: Emulator) -> None:
    connection = canned_server.connect_mssql_python(encrypt="yes")
    cursor = connection.cursor()
    cursor.execute("select many")
    with cursor.arrow_reader(1000) as reader:
        assert reader.read_next_batch().num_rows == 1000
    cursor.execute("select numbers 1")
    assert len(cursor.fetchall()) == 1
    connection.close()


def test_reset_comes_first_in_the_answer(raw: RawClient) -> None:
    raw.batch("use [Canned]")
    answer = raw.batch("set x", status=LAST | 0x08)
    assert answer.startswith(b"\xe3\x03\x00\x12\x00\x00")


def test_reset_names_the_transaction_that_it_ends(raw: RawClient) -> None:
    raw.send(TRANSACTION, HEADERS + b"\x05\x00\x00\x00")
    raw.read()
    rolled_back = b"\xe3\x0b\x00\x0a\x00\x08" + struct.pack("<Q", 77)
    assert rolled_back in raw.batch("set x", status=LAST | 0x08)
    assert rolled_back not in raw.batch("set x", status=LAST | 0x08)


def test_chained_calls_are_answered_in_one_message(raw: RawClient) -> None:
    call = struct.pack("<HHH", 0xFFFF, 15, 0) + b"\x00\x00\x26\x04\x04\x01\x00\x00\x00"
    raw.send(RPC, HEADERS + call + b"\xff" + call)
    answer = raw.read()
    assert answer.count(b"\x79\x07\x00\x00\x00") == 2
    assert answer.count(struct.pack("<BHHQ", 0xFE, 0x81, 0xE0, 0)) == 1
    assert answer.endswith(struct.pack("<BHHQ", 0xFE, 0x00, 0xE0, 0))


def test_transaction_requests_return_their_descriptor(raw: RawClient) -> None:
    raw.send(TRANSACTION, HEADERS + b"\x05\x00\x00\x00")
    assert raw.read().startswith(b"\xe3\x0b\x00\x08\x08" + struct.pack("<Q", 77))
    raw.send(TRANSACTION, HEADERS + b"\x07\x00\x00\x01\x00\x00")
    committed_and_begun = raw.read()
    assert committed_and_begun.startswith(b"\xe3\x0b\x00\x09\x00\x08" + struct.pack("<Q", 77))
    assert b"\xe3\x0b\x00\x08\x08" in committed_and_begun
    assert committed_and_begun.count(b"\xfd") == 1


@pytest.mark.parametrize(
    ("packet_type", "payload", "what"),
    [
        (TRANSACTION, HEADERS + b"\x06\x00", "distributed transactions"),
        (RPC, HEADERS + struct.pack("<H", 1) + b"p\x00\x00\x00" + b"\x00\x00\x62\x00", "values of the data type sql"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(raw: RawClient, packet_type: int, payload: bytes, what: str) -> None:
    raw.send(packet_type, payload)
    assert f"does not support {what}".encode("utf-16-le") in raw.read()
    assert raw.batch("set x")


def test_a_wrong_table_is_an_error_and_an_unfinished_one_ends_the_connection(raw: RawClient) -> None:
    beginning = HEADERS + struct.pack("<H", 1) + b"p\x00\x00\x00" + b"\x00\x00\xf3" + b"\x00\x00\x00"
    raw.send(RPC, beginning + struct.pack("<H", 1025))
    assert "has an invalid column count specified".encode("utf-16-le") in raw.read()
    assert raw.batch("set x")
    raw.send(RPC, beginning + struct.pack("<H", 1))
    assert raw.is_closed_by_server()


def test_an_error_of_severity_21_is_sent_and_closes_the_connection(raw: RawClient) -> None:
    assert "Cannot continue".encode("utf-16-le") in raw.batch("fatal")
    assert raw.is_closed_by_server()


@pytest.mark.parametrize(
    "packets",
    [
        b"\x99\x01\x00\x08\x00\x00\x01\x00",  # unknown type
        b"\x01\x01\x00\x02\x00\x00\x01\x00",  # shorter than its header
        struct.pack(">BBHHBB", BATCH, LAST, 10, 0, 1, 0) + b"\x01\x00",  # no ALL_HEADERS
        struct.pack(">BBHHBB", BATCH, LAST, 12, 0, 1, 0) + b"\xff\xff\xff\xff",  # ALL_HEADERS beyond the message
        struct.pack(">BBHHBB", RPC, LAST, 30 + 4, 0, 1, 0) + HEADERS + b"\xff\xff\x63\x00",  # unknown procedure
        struct.pack(">BBHHBB", LOGIN, LAST, 8, 0, 1, 0),  # a second login
    ],
)
def test_a_client_that_breaks_the_protocol_loses_its_connection_only(
    raw: RawClient, canned_server: Emulator, packets: bytes
) -> None:
    raw.socket.sendall(packets)
    assert raw.is_closed_by_server()
    with RawClient(canned_server.port) as other:
        other.log_in(canned.PASSWORD)
        assert other.batch("set x")


@pytest.mark.parametrize(
    "first_bytes",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x00\x05hello",
        struct.pack(">BBHHBB", PRELOGIN, LAST, 9, 0, 1, 0) + b"\x00",
        struct.pack(">BBHHBB", BATCH, LAST, 8, 0, 1, 0),
        b"",
    ],
)
def test_a_stranger_is_turned_away_before_the_login(canned_server: Emulator, first_bytes: bytes) -> None:
    with RawClient(canned_server.port) as client:
        client.socket.sendall(first_bytes)
        client.socket.shutdown(1)
        assert client.is_closed_by_server()


def test_an_endless_login_is_cut_off(canned_server: Emulator) -> None:
    with RawClient(canned_server.port) as client, pytest.raises((OSError, EOFError)):
        client.send(PRELOGIN, b"\x01\x00\x06\x00\x01\xff\x02")
        client.read()
        for _ in range(1000):
            client.send(LOGIN, b"x" * 4000, status=0)
        client.read()


COLUMN_ENCRYPTION = b"\x04\x01\x00\x00\x00\x03"
UTF8 = b"\x0a\x01\x00\x00\x00\x01"


@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        (b"", b""),
        (COLUMN_ENCRYPTION, b"\xae\x04\x01\x00\x00\x00\x01\xff"),
        (UTF8 + COLUMN_ENCRYPTION, b"\xae\x04\x01\x00\x00\x00\x01" + UTF8 + b"\xff"),
        (UTF8, b"\xae" + UTF8 + b"\xff"),
    ],
)
def test_column_encryption_is_granted_without_enclaves_to_those_who_ask(
    canned_server: Emulator, asked: bytes, granted: bytes
) -> None:
    with RawClient(canned_server.port) as client:
        answer = client.log_in(canned.PASSWORD, features=asked)
        assert answer.endswith(granted + b"\xfd" + b"\x00" * 12)
        assert (b"\xae\x04" in answer) == (COLUMN_ENCRYPTION in asked)
        result = client.batch("SELECT numbers 1")
    without_table = tokens.column_metadata(canned.columns(canned.INT))
    assert without_table in result or COLUMN_ENCRYPTION in asked
    assert (without_table[:3] + b"\x00\x00" + without_table[3:] in result) == (COLUMN_ENCRYPTION in asked)
