"""``Fuse``: a crash at the given call of any port."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

_Port = TypeVar("_Port")


class KilledError(Exception):
    """A substitute for kill -9."""


@dataclass
class Fuse:
    """Blows at the given call of any port: before it does its work, or after."""

    blows_at: int | None = None
    after: bool = False
    calls: int = 0
    done: list[str] = field(default_factory=list)
    """The names of the calls that did their work."""

    def guard(self, port: _Port) -> _Port:
        """Return a port whose calls count."""
        fuse = self

        class Guarded:
            def __getattr__(self, name: str) -> Any:
                method = getattr(port, name)
                if not callable(method):
                    return method

                def call(*arguments: Any, **named: Any) -> Any:
                    fuse.calls += 1
                    now = fuse.calls == fuse.blows_at
                    if now and not fuse.after:
                        raise KilledError(name)
                    result = method(*arguments, **named)
                    fuse.done.append(name)
                    if now:
                        raise KilledError(name)
                    return result

                return call

        return cast(_Port, Guarded())
