"""Long lists in pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Page(Generic[_Item]):
    """One page of a list. Pages are counted from 1."""

    items: Sequence[_Item]
    number: int
    count: int


def page_of(items: Sequence[_Item], number: int, size: int) -> Page[_Item]:
    """Return the page of that number: the first or the last where the list has no such page."""
    count = max(-(-len(items) // size), 1)
    number = min(max(number, 1), count)
    return Page(items[(number - 1) * size : number * size], number, count)
