"""The kills of ``test_kills`` with change tracking, a fleet of devices and event streams, and of the Kafka broker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from torture_fleet import FleetTortureRig
from torture_kafka import KafkaTortureRig
from torture_rig import CHANGE_TRACKING, KillableRig, TortureRig
from torture_stream import StreamTortureRig
from torturer import TIMEOUT_SECONDS, torture_source

pytestmark = pytest.mark.timeout(TIMEOUT_SECONDS)

RIGS = {
    "tracking": partial(TortureRig, recording=CHANGE_TRACKING),
    "compact": FleetTortureRig,
    "stream": StreamTortureRig,
    "kafka": KafkaTortureRig,
}
"""How to make the servers of each kind of source."""


@pytest.mark.parametrize("make_rig", RIGS.values(), ids=RIGS)
def test_whatever_is_killed_source_and_warehouse_end_equal(
    open_dir: Path, make_rig: Callable[..., KillableRig], request: pytest.FixtureRequest
) -> None:
    torture_source(make_rig, open_dir / request.node.callspec.id, share=3)
