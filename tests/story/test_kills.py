"""kill -9 of commands, their loads, the source and the warehouse, in each step of runs, loads, replays and switches of
capture instances, under a workload that also adds columns. Commands are also paused, and woken after another run.
Troubles begin between two kills and last for some more: targets are dropped, emptied or renamed, the ledger is lost or
older than they are, warehouse or source are restored, rules fail and are corrected, triggers refuse rows, a clock is
set. A second pipeline reads the same source. In the end source and warehouse are equal, row by row.

The variables of ``torturer`` say how often, and with what. Other kinds of source: ``test_tracking_and_stream_kills``.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from torture_rig import CDC_NET, TortureRig
from torturer import TIMEOUT_SECONDS, torture_source

pytestmark = pytest.mark.timeout(TIMEOUT_SECONDS)


def test_whatever_is_killed_source_and_warehouse_end_equal(open_dir: Path) -> None:
    torture_source(partial(TortureRig, recording=CDC_NET), open_dir / "cdc", share=8)
