"""Cards that say what is killed at which moment of which command; a seed shuffles them, so that few kills reach every
pair.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

# session: the command with all that it has started.
_IN_ALL = ("session", "source", "warehouse")
# command: alone, so that its load goes on without it. paused: stopped while another run goes on, and woken after it.
# cut off: the same, and its sessions in the warehouse are ended meanwhile, as by a network that is partitioned.
# company: nothing is killed; a run of the other pipeline works at the same time.
# locked: nothing is killed; a session of a person holds a lock of a target for a while.
_IN_LOADS = (*_IN_ALL, "command", "paused", "cut off", "company", "locked")
# The load alone; with Spark it is three kinds of processes, each of which may die alone.
_LOADS = ("load",)
_SPARK_LOADS = ("driver", "jvm", "worker")

# A line that the command says when a step begins or has ended; "" is its start.
_LOAD_LINES = (
    r"^Window \d+ opened|is unfinished",
    r", attempt \d+",
    r"rows read",
    r"still had all",
    r"is merged",
    r"checks passed|have passed",
)
AIMS = {
    "run": ("", *_LOAD_LINES, r"is published"),
    "copy": ("", *_LOAD_LINES, r"is published"),
    "reload": ("", *_LOAD_LINES),
    "replay": ("", *_LOAD_LINES),
    "backfill": ("", *_LOAD_LINES),
    "approve": ("",),
    "release": ("",),
    "discard": ("",),
    "switch": ("", r" exists\.", r" reads \S+ after ", r"window \d+ loads", "Switch of "),
}
_WITHOUT_LOAD = ("approve", "switch", "release", "discard")
_ONLY = re.compile(os.environ.get("FLOODMARK_TORTURE_CARDS", ""))
# While the load is at work.
_LOAD_AIMS = (r", attempt \d+", r"rows read", r"still had all")


@dataclass(frozen=True, order=True)
class Card:
    victim: str
    kind: str
    aim: str

    def __str__(self) -> str:
        return f"{self.victim} in {self.kind} after {self.aim or 'start'!r}"


class Cards:
    """Dealt by ``draw``, those first whose kind of command is possible; ``put_back`` one that killed nothing.

    kinds: how often each kind of command is killed. troubles: each begins when a command was killed. early: the number
    of cards that they are among.
    """

    def __init__(
        self, chance: random.Random, kinds: Mapping[str, int], troubles: Sequence[str], early: int, *, with_spark: bool
    ) -> None:
        self._random = chance
        self._kinds = kinds
        self._troubles = tuple(troubles)
        self._early = early
        self._alone = _SPARK_LOADS if with_spark else _LOADS
        self._left = self._deck()
        self.size = len(self._left)
        self.victims = {victim for victim, _ in self._left}
        self.kinds = {kind for _, kind in self._left}

    @property
    def wanted(self) -> set[str]:
        """The kinds of the cards that are left."""
        return {kind for _, kind in self._left}

    def draw(self, possible: set[str]) -> Card | None:
        """None: all that is left is of other kinds."""
        if not self._left:
            self._left = self._deck()
        victim, kind = next(((v, k) for v, k in self._left if k in possible), (None, None))
        if victim is None or kind is None:
            return None
        self._left.remove((victim, kind))
        aims = _LOAD_AIMS if victim in self._alone else AIMS[kind]
        return Card(victim, kind, self._random.choice(aims))

    def put_back(self, card: Card) -> None:
        self._left.append((card.victim, card.kind))

    def _deck(self) -> list[tuple[str, str]]:
        """Each victim and each kind of command is among them."""
        everyone = len((*_IN_LOADS, *self._alone))
        kinds = dict(self._kinds) | {"run": max(self._kinds["run"], everyone)}
        deck = [(victim, kind) for kind, count in kinds.items() for victim in self._victims_of(kind, count)]
        self._random.shuffle(deck)
        for trouble in self._troubles:
            # Among the first, where few kills shall meet few troubles.
            at = self._random.randrange(min(self._early, len(deck) + 1))
            deck.insert(at, (trouble, self._random.choice(("run", "reload"))))
        return [(victim, kind) for victim, kind in deck if _ONLY.search(f"{victim} in {kind}")]

    def _victims_of(self, kind: str, count: int) -> Iterator[str]:
        chosen = _IN_ALL if kind in _WITHOUT_LOAD else (*_IN_LOADS, *self._alone)
        yield from (self._random.sample(chosen, len(chosen)) * 2)[:count]
