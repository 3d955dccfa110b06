"""Noticing, while a request runs, that the client wants it to stop (attention) or has gone."""

from __future__ import annotations

import threading
from types import TracebackType

from sqlserver_emulator.server.transport import InputState, Transport
from sqlserver_emulator.session import Session


class Interruption:
    """Entered around each request. ``check`` may be called by any thread at any time.

    The lock makes sure that a cancel never hits the request after the one it was meant for.
    """

    def __init__(self, transport: Transport, session: Session) -> None:
        self._transport = transport
        self._session = session
        self._lock = threading.Lock()
        self._watching = False
        self._requested = False

    @property
    def requested(self) -> bool:
        return self._requested

    def __enter__(self) -> Interruption:
        with self._lock:
            # Reset together: an attention of the last request must not end this one.
            self._watching, self._requested = True, False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            # Under the lock: a cancel that is on its way is finished before the next request begins.
            self._watching = False

    def forget(self) -> None:
        """Before a request that is not watched: what the last one was asked is over."""
        with self._lock:
            self._watching, self._requested = False, False

    def check(self) -> None:
        """Cancel the running request when the client has sent an attention or hung up."""
        with self._lock:
            if not self._watching:
                return
            state = self._transport.input_state()
            if state is InputState.NOTHING:
                return
            # One check is enough: what arrived stays in the socket until the connection's thread reads it.
            self._watching = False
            # Another message before the answer is the connection's thread's to refuse.
            if state is not InputState.OTHER:
                self._requested = True
                self._session.cancel()

    def stop(self) -> None:
        """The server stops: end the running request as if the client had asked."""
        with self._lock:
            if self._watching:
                self._watching = False
                self._requested = True
                self._session.cancel()
