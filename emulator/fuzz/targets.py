"""What is fuzzed: each target takes bytes, and may only raise the errors that it is allowed to.

The first byte of an input chooses the target, so that one corpus serves all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.release import SQL_SERVER_2025
from sqlserver_emulator.server.channel import Channel, MessageCancelledError
from sqlserver_emulator.server.limits import Capacity, Limits
from sqlserver_emulator.session import TableValue
from sqlserver_emulator.syntax.lexer import tokenize
from sqlserver_emulator.syntax.parsing.batch import parse_batch
from sqlserver_emulator.tds.bulk import BulkReader
from sqlserver_emulator.tds.login import parse_login
from sqlserver_emulator.tds.packets import HEADER_BYTES, PacketType, parse_header
from sqlserver_emulator.tds.prelogin import build_prelogin_answer, parse_prelogin
from sqlserver_emulator.tds.reading import ProtocolError
from sqlserver_emulator.tds.rpc import parse_calls
from sqlserver_emulator.tds.transaction import parse_transaction

ALLOWED: Final = (ProtocolError, SqlServerError, RecursionError)
"""RecursionError: the session answers it with error 191."""

_LIMITS = Limits(message_bytes=1 << 20)


class _Canned:
    """A transport that has received just these bytes."""

    encrypted = False

    def __init__(self, data: bytes) -> None:
        self._pieces = [data, b""]

    def receive(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    def send(self, data: bytes) -> None:
        raise AssertionError("a decoder answers nobody")


def read_packets(data: bytes) -> None:
    channel = Channel(_Canned(data), Capacity(_LIMITS))  # type: ignore[arg-type]
    try:
        while (message := channel.read_message()) is not None:
            if message.type is PacketType.BULK_LOAD:
                for _ in channel.read_stream():
                    pass
    except MessageCancelledError:
        return
    finally:
        channel.close()


def read_header(data: bytes) -> None:
    if len(data) >= HEADER_BYTES:
        parse_header(data)


def read_prelogin(data: bytes) -> None:
    build_prelogin_answer(parse_prelogin(data), SQL_SERVER_2025)


def read_login(data: bytes) -> None:
    repr(parse_login(data))


def read_calls(data: bytes) -> None:
    for call in parse_calls(data):
        repr(call)
        for argument in call.arguments:
            if isinstance(argument.value, TableValue):
                list(argument.value.rows)


def read_transaction(data: bytes) -> None:
    parse_transaction(data)


def read_bulk_rows(data: bytes) -> None:
    """In two pieces, as packets would cut it."""
    middle = len(data) // 2
    reader = BulkReader(iter((data[:middle], data[middle:])))
    for batch in reader.batches():
        batch.validate(full=True)


def read_tokens(data: bytes) -> None:
    text = data.decode("utf-16-le", "replace")
    for token in tokenize(text):
        if text[token.start : token.end] != token.text:
            raise AssertionError(f"{token} is not where it says")


def read_batch(data: bytes) -> None:
    parse_batch(data.decode("utf-8", "replace"))


TARGETS: Final[tuple[Callable[[bytes], None], ...]] = (
    read_packets,
    read_header,
    read_prelogin,
    read_login,
    read_calls,
    read_transaction,
    read_bulk_rows,
    read_tokens,
    read_batch,
)


def read_anything(data: bytes) -> None:
    if not data:
        return
    target = TARGETS[data[0] % len(TARGETS)]
    try:
        target(data[1:])
    except ALLOWED:
        return
