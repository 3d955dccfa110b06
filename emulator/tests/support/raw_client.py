"""A client that sends what a test gives it, byte by byte: for what no well-behaved driver sends."""

from __future__ import annotations

import socket
import ssl
import struct
from types import TracebackType

HEADERS = struct.pack("<IIHQI", 22, 18, 2, 0, 1)
PLAIN_PRELOGIN = b"\x01\x00\x06\x00\x01\xff\x02"
OFF_PRELOGIN = PLAIN_PRELOGIN[:-1] + b"\x00"
LAST = 0x01
BATCH, RPC, ATTENTION, BULK, TRANSACTION, LOGIN, PRELOGIN = 0x01, 0x03, 0x06, 0x07, 0x0E, 0x10, 0x12
ATTENTION_DONE = b"\xfd\x20\x00" + b"\x00" * 10
APPLICATION = "raw client"
COUNT_SESSIONS = f"SELECT COUNT(*) FROM sys.dm_exec_sessions WHERE program_name = N'{APPLICATION}'"
"""Those of raw clients alone: the session of another client may end at any time after its connection is closed."""


_LIMIT_SECONDS = 120
"""Two million statements are refused after seven seconds on an idle core."""


class RawClient:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_LIMIT_SECONDS)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, packet_type: int, payload: bytes, status: int = LAST) -> None:
        """One message, in as many packets as it needs; ``status`` without LAST leaves it unfinished."""
        self.socket.sendall(packets(packet_type, payload, status))

    def _receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def read(self) -> bytes:
        """One message. Raises EOFError when the server has closed the connection."""
        payload = b""
        while True:
            _type, status, length, *_ = struct.unpack(">BBHHBB", self._receive(8))
            payload += self._receive(length - 8)
            if status & LAST:
                return payload

    def is_closed_by_server(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def log_in(self, password: str, user: str = "sa", packet_bytes: int = 4096, features: bytes = b"") -> bytes:
        self.send(PRELOGIN, PLAIN_PRELOGIN)
        self.read()
        self.send(LOGIN, login_message(user, password, packet_bytes, features))
        return self.read()

    def log_in_under_tls(self, password: str, *, whole: bool, packet_bytes: int = 512) -> bytes:
        """Ask for no encryption, which puts TLS around the first packet of the login, or around the ``whole`` login."""
        self.send(PRELOGIN, OFF_PRELOGIN)
        self.read()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.send(PRELOGIN, outgoing.read())
                incoming.write(self.read())
        login = packets(LOGIN, login_message("sa", password, 4096), packet_bytes=packet_bytes)
        sealed = len(login) if whole else packet_bytes + 8
        tls.write(login[:sealed])
        self.socket.sendall(outgoing.read() + login[sealed:])
        return self.read()

    def batch(self, text: str, status: int = LAST) -> bytes:
        self.send(BATCH, HEADERS + text.encode("utf-16-le", "surrogatepass"), status)
        return self.read()


def packets(packet_type: int, payload: bytes, status: int = LAST, packet_bytes: int = 32_000) -> bytes:
    """Return a message as it is on the wire. Every packet has the bits of ``status``, LAST only the last one."""
    pieces = [payload[start : start + packet_bytes] for start in range(0, len(payload), packet_bytes)] or [b""]
    framed = [
        struct.pack(">BBHHBB", packet_type, status & ~LAST, len(piece) + 8, 0, 1, 0) + piece for piece in pieces[:-1]
    ]
    last = pieces[-1]
    framed.append(struct.pack(">BBHHBB", packet_type, status, len(last) + 8, 0, 1, 0) + last)
    return b"".join(framed)


def login_message(user: str, password: str, packet_bytes: int, features: bytes = b"") -> bytes:
    """``features``: each with its number, the length of its data, and these."""
    hidden = bytes((byte << 4 | byte >> 4) & 0xFF ^ 0xA5 for byte in password.encode("utf-16-le"))
    data, pairs = b"", b""
    application = APPLICATION.encode("utf-16-le")
    for text in (b"", user.encode("utf-16-le"), hidden, application, b"", b"", b"", b"", b""):
        pairs += struct.pack("<HH", 94 + len(data), len(text) // 2)
        data += text
    if features:
        pairs = pairs[:20] + struct.pack("<HH", 94 + len(data), 4) + pairs[24:]
        data += struct.pack("<I", 98 + len(data)) + features + b"\xff"
    flags = 0x10 if features else 0
    head = struct.pack("<IIIIIIBBBBiI", 94 + len(data), 0x74000004, packet_bytes, 0, 0, 0, 0, 0, 0, flags, 0, 0)
    return head + pairs + b"\x00" * 6 + struct.pack("<6HI", 0, 0, 0, 0, 0, 0, 0) + data
