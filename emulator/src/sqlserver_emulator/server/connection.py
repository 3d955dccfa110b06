"""One client from accept to close: the body of its thread, and what other threads may do to it."""

from __future__ import annotations

import contextlib
import logging
import socket
import time

from sqlserver_emulator.server.channel import Channel
from sqlserver_emulator.server.handshake import TlsContexts, log_in, open_channel
from sqlserver_emulator.server.interruption import Interruption
from sqlserver_emulator.server.limits import Capacity
from sqlserver_emulator.server.requests import RequestRunner
from sqlserver_emulator.session import Session, SessionFactory
from sqlserver_emulator.tds.reading import ProtocolError

_LOG = logging.getLogger(__name__)


class ClientConnection:
    """``run`` is the thread's body; ``watch`` and ``shut_down`` are for other threads."""

    def __init__(
        self,
        client: socket.socket,
        peer: str,
        factory: SessionFactory,
        contexts: TlsContexts,
        capacity: Capacity,
    ) -> None:
        self._socket = client
        self._peer = peer
        self._factory = factory
        self._contexts = contexts
        self._capacity = capacity
        self._login_deadline: float | None = time.monotonic() + capacity.limits.login_seconds
        self._interruption: Interruption | None = None

    def run(self) -> None:
        try:
            self._serve()
        except ProtocolError as error:
            _LOG.warning("%s: closed: %s", self._peer, error)
        except OSError as error:
            _LOG.info("%s: connection lost: %s", self._peer, error)
        except Exception:  # noqa: BLE001 - the edge of the thread: a bug ends this connection only
            _LOG.exception("%s: closed after an internal error", self._peer)
        finally:
            # The other threads may still hold the object; a closed socket is harmless for them.
            self.shut_down()
            self._socket.close()

    def _serve(self) -> None:
        channel = open_channel(self._socket, self._contexts, self._capacity, self._factory.product)
        if channel is None:
            return
        with contextlib.closing(channel):
            session = log_in(channel, self._factory, self._capacity)
            if session is not None:
                self._serve_session(channel, session)

    def _serve_session(self, channel: Channel, session: Session) -> None:
        with contextlib.ExitStack() as at_end:
            # Pushed first and therefore run last: the place is free only when the session is closed.
            at_end.callback(self._capacity.sessions.give_back, 1)
            at_end.callback(session.close)
            # The login is done in time; from here on a client may be silent for days.
            self._login_deadline = None
            self._interruption = Interruption(channel.transport, session)
            runner = RequestRunner(channel, session, self._interruption)
            while (message := channel.read_message()) is not None:
                if not runner.run(message):
                    return

    def watch(self) -> None:
        """Called every few milliseconds: cancel what the client gave up, end a login that takes too long."""
        # Read once: the connection's own thread changes both.
        deadline, interruption = self._login_deadline, self._interruption
        if interruption is not None:
            interruption.check()
        elif deadline is not None and time.monotonic() > deadline:
            _LOG.warning("%s: closed: no login in time", self._peer)
            # Once is enough: the thread ends by the shutdown.
            self._login_deadline = None
            self.shut_down()

    def shut_down(self) -> None:
        """Wake the thread out of any wait for the client, and let it end."""
        # A request that runs does not read the socket, so it is cancelled as well.
        if self._interruption is not None:
            self._interruption.stop()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
