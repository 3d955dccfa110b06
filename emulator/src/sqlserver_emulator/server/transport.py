"""A client's socket, plain or under TLS, and the TLS handshake that TDS 7.4 hides inside PRELOGIN packets.

Reading and writing belong to the connection's thread; only ``input_state`` may be called from another.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
from enum import Enum

from sqlserver_emulator.tds.packets import HEADER_BYTES, PacketType, frame_message, parse_header
from sqlserver_emulator.tds.reading import ProtocolError

# The largest packet has 32,767 bytes; a read takes two of them.
_RECEIVE_BYTES = 65_536
TLS_RECORD = 0x16
"""The first byte of TDS 8 (Encrypt=strict), which begins with TLS."""
_RECORD_TYPES = range(0x14, 0x18)
_RECORD_HEADER_BYTES = 5
# POLLRDHUP is Linux's; where it is missing a half-closed socket is noticed by reading.
_GONE = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR | select.POLLNVAL
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""A client whose machine has gone is noticed after two minutes, where the system allows to say so."""


class InputState(Enum):
    """The state of a client's input that is not read yet."""

    NOTHING = "nothing"
    CLOSED = "closed"
    ATTENTION = "attention"
    OTHER = "other"


class Transport:
    """``receive`` returns b"" when the client has gone. ``stalled_seconds``: how long it may leave an answer unread."""

    def __init__(self, connection: socket.socket, stalled_seconds: float) -> None:
        self._socket = connection
        self._stalled_seconds = stalled_seconds
        # Requests and answers are single writes: Nagle's algorithm would only delay them.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        # The system's own limit: a Python timeout would hold for reading too, where a client may be silent for days.
        seconds, rest = divmod(stalled_seconds, 1)
        limit = struct.pack("@ll", int(seconds), int(rest * 1_000_000))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    @property
    def encrypted(self) -> bool:
        return False

    def receive(self) -> bytes:
        try:
            return self._socket.recv(_RECEIVE_BYTES)
        except ConnectionError:
            return b""

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        # SO_SNDTIMEO ends a blocking send with EAGAIN, which Python raises as this error.
        except BlockingIOError as error:
            raise ProtocolError(f"the client read nothing for {self._stalled_seconds:g} seconds") from error

    def input_state(self) -> InputState:
        """Return what waits unread, without taking it. A closed or broken socket is CLOSED, whatever it still holds."""
        # Before peeking: bytes that arrived before the close would hide it.
        if self._is_gone():
            return InputState.CLOSED
        try:
            # MSG_PEEK leaves the byte for the connection's thread.
            first = self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return InputState.NOTHING
        except OSError:
            return InputState.CLOSED
        if not first:
            return InputState.CLOSED
        return self._classify(first[0])

    def _is_gone(self) -> bool:
        number = self._socket.fileno()
        if number < 0:
            return True
        waiter = select.poll()
        waiter.register(number, _GONE)
        return any(events & _GONE for _number, events in waiter.poll(0))

    def _classify(self, first_byte: int) -> InputState:
        return InputState.ATTENTION if first_byte == PacketType.ATTENTION else InputState.OTHER

    def first_byte(self) -> int | None:
        """Wait for it, and leave it there: it shows how the client begins. None: the client has gone."""
        first = self._socket.recv(1, socket.MSG_PEEK)
        return first[0] if first else None


class TlsTransport(Transport):
    """TLS over the same socket through memory buffers, because the handshake may travel inside TDS packets."""

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, stalled_seconds: float) -> None:
        super().__init__(connection, stalled_seconds)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    @property
    def encrypted(self) -> bool:
        return True

    def handshake_in_packets(self, received: bytes) -> None:
        """The handshake of TDS 7.4: records inside packets of type PRELOGIN. ``received``: bytes read ahead."""
        buffer = bytearray(received)
        while not self._shake_hands():
            # Each turn of the handshake is one packet of type PRELOGIN in each direction.
            self._send_handshake(in_packets=True)
            self._incoming.write(self._read_packet(buffer))
        self._send_handshake(in_packets=True)
        # Bytes behind the last packet are TLS records already.
        if buffer:
            self._take_early(bytes(buffer))

    def _take_early(self, records: bytes) -> None:
        self._incoming.write(records)

    def handshake(self) -> None:
        """The handshake of TDS 8: bare records."""
        while not self._shake_hands():
            self._send_handshake(in_packets=False)
            self._incoming.write(self._receive_some())
        self._send_handshake(in_packets=False)

    def _shake_hands(self) -> bool:
        try:
            # The memory buffer has no further record: the client's next bytes are needed.
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise ProtocolError(f"TLS handshake failed: {error.reason}") from error
        return True

    def _send_handshake(self, *, in_packets: bool) -> None:
        if data := self._outgoing.read():
            super().send(frame_message(PacketType.PRELOGIN, data) if in_packets else data)

    def _receive_some(self) -> bytes:
        if data := super().receive():
            return data
        raise ProtocolError("the client left during the TLS handshake")

    def _read_packet(self, buffer: bytearray) -> bytes:
        while len(buffer) < HEADER_BYTES:
            buffer += self._receive_some()
        header = parse_header(buffer)
        if header.type is not PacketType.PRELOGIN:
            raise ProtocolError(f"packet {header.type.name} during the TLS handshake")
        while len(buffer) < header.length:
            buffer += self._receive_some()
        payload = bytes(buffer[HEADER_BYTES : header.length])
        del buffer[: header.length]
        return payload

    def receive(self) -> bytes:
        while True:
            try:
                return self._tls.read(_RECEIVE_BYTES)
            except ssl.SSLWantReadError:
                if not (data := super().receive()):
                    return b""
                self._incoming.write(data)
            # The client closed TLS properly.
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLError as error:
                raise ProtocolError(f"TLS failed: {error.reason}") from error

    def send(self, data: bytes) -> None:
        # The memory buffer takes everything, so no partial write has to be handled.
        self._tls.write(data)
        super().send(self._outgoing.read())

    def _classify(self, first_byte: int) -> InputState:
        # Records are sealed. While a request runs a client has nothing to send but an attention or its farewell.
        return InputState.ATTENTION


class LoginTunnel(TlsTransport):
    """TLS around the login packet only, as a client asks for that does not want encryption (ENCRYPT_OFF).

    Answers are plain. A login of several packets comes under TLS in its first packet (FreeTDS) or in all of them: what
    is no record ends TLS for ever.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, stalled_seconds: float) -> None:
        super().__init__(connection, context, stalled_seconds)
        self._records = bytearray()
        self._over = False

    @property
    def encrypted(self) -> bool:
        return False

    def _take_early(self, records: bytes) -> None:
        self._records += records

    def receive(self) -> bytes:
        while not self._over:
            if data := self._open_records():
                return data
            if not (received := Transport.receive(self)):
                return b""
            self._records += received
        return Transport.receive(self)

    def _open_records(self) -> bytes:
        """Return what whole records hold, and what comes in plain text behind them."""
        opened = bytearray()
        while self._records:
            if self._records[0] not in _RECORD_TYPES:
                self._over = True
                return bytes(opened + self._records)
            end = _RECORD_HEADER_BYTES + int.from_bytes(self._records[3:_RECORD_HEADER_BYTES], "big")
            if len(self._records) < max(end, _RECORD_HEADER_BYTES):
                break
            self._incoming.write(self._records[:end])
            del self._records[:end]
            try:
                opened += self._tls.read(_RECEIVE_BYTES)
            # A record without text, or the client's farewell to TLS.
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                continue
            except ssl.SSLError as error:
                raise ProtocolError(f"TLS failed: {error.reason}") from error
        return bytes(opened)

    def send(self, data: bytes) -> None:
        Transport.send(self, data)

    def _classify(self, first_byte: int) -> InputState:
        return Transport._classify(self, first_byte)
