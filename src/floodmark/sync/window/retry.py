"""Opening a window beside others who open one: whoever was overtaken looks again, and finds what the other has written.

The other may be a run that is gone: what a process had asked of the warehouse when it was killed may be committed a
moment later, after the next run has looked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from floodmark.core.errors import WatermarkConflictError

_LOG = logging.getLogger(__name__)
_TRIES = 5
_Opened = TypeVar("_Opened")


def retry_on_conflict(open_once: Callable[[], _Opened]) -> _Opened:
    """open_once: writes nothing where it raises WatermarkConflictError. Raises that of the last try."""
    for _ in range(_TRIES - 1):
        try:
            return open_once()
        except WatermarkConflictError as error:
            _LOG.info("Planned anew: %s", error)
    return open_once()
