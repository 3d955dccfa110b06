"""The retry of an opening when another process was faster: the next attempt finds what the other has written.

The other may be a run that was killed: a statement that it had sent to the warehouse may be committed a moment later,
after the next run has read the ledger.
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
    """Open a window, again after a conflict. Raises the WatermarkConflictError of the last attempt.

    open_once: writes nothing where it raises WatermarkConflictError.
    """
    for _ in range(_TRIES - 1):
        try:
            return open_once()
        except WatermarkConflictError as error:
            _LOG.info("Planned again: %s", error)
    return open_once()
