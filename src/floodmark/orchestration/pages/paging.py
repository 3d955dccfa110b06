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
    number, count = page_numbers(len(items), number, size)
    return Page(items[(number - 1) * size : number * size], number, count)


def page_numbers(items: int, number: int, size: int) -> tuple[int, int]:
    """Return the number of the page that is shown for ``number``, and the number of pages."""
    count = max(-(-items // size), 1)
    return min(max(number, 1), count), count
