"""Actors: threads that stop before every call of a port, so that calls interleave and each happens alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_LIMIT_SECONDS = 120.0


class KilledError(Exception):
    """A substitute for kill -9 of an actor between two calls."""


@dataclass(eq=False)
class Actor:
    """A thread that does one call of a port at a time, on request. kills: ends before its next call."""

    work: Callable[[Actor], None]
    name: str = ""
    outcome: BaseException | None = None
    done: bool = False
    kills: bool = False
    calls: list[str] = field(default_factory=list)
    _may_go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _waits: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()
        self._await()

    def step(self) -> None:
        self._may_go.release()
        self._await()

    def port(self, port: Any, loses_hold: bool = False) -> Any:
        actor = self

        class Stepwise:
            def __getattr__(self, name: str) -> Any:
                method = getattr(port, name)
                if not callable(method):
                    return method

                def call(*arguments: Any, **named: Any) -> Any:
                    actor.pause(name)
                    return method(*arguments, **named)

                return _lost if loses_hold and name == "hold_load" else call

        return Stepwise()

    def pause(self, before: str) -> None:
        """Wait for the next turn. before: the call that comes then."""
        self._waits.release()
        self._may_go.acquire()
        self.calls.append(before)
        if self.kills:
            raise KilledError

    def _run(self) -> None:
        try:
            self.work(self)
        except Exception as error:  # noqa: BLE001  (whatever it is, the history decides whether it may be)
            self.outcome = error
        finally:
            self.done = True
            self._waits.release()

    def _await(self) -> None:
        assert self._waits.acquire(timeout=_LIMIT_SECONDS), "an actor waits for another, who waits for its turn"


@contextmanager
def _lost(window_id: int) -> Iterator[None]:
    """A hold that went with its connection: the load goes on all the same."""
    yield


def run_alone(work: Callable[[Actor], None]) -> BaseException | None:
    """Let an actor do all its calls without another in between. Return its error."""
    actor = Actor(work)
    actor.start()
    while not actor.done:
        actor.step()
    return actor.outcome
