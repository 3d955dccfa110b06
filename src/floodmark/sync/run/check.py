"""The third step of a run: the checks between merge and advance. If one fails, the watermark does not move."""

from __future__ import annotations

import logging

from floodmark.core.errors import OperatorError
from floodmark.core.window.plan import WindowState
from floodmark.sync.ports.ledger import Ledger
from floodmark.sync.ports.quality import Quality

_LOG = logging.getLogger(__name__)


def check_window(window_id: int, ledger: Ledger, quality: Quality) -> bool:
    """Run the checks of a window. Return False when it has passed them before. Raises DataQualityError."""
    opened = ledger.read_window(window_id)
    if opened.state is WindowState.PLANNED:
        raise OperatorError(
            opened.plan.pipeline, f"window {window_id} is not merged, so there is nothing to check.", "Run load first."
        )
    if opened.state is not WindowState.MERGED:
        _LOG.info("Window %s is already %s; its checks have passed.", window_id, opened.state.value)
        return False
    quality.check_window(opened.plan, ledger.read_counts(window_id))
    ledger.mark_checked(window_id)
    _LOG.info("Window %s: all checks passed.", window_id)
    return True
