"""The contract of a staging sink, on the sinks of every warehouse there is (``conftest.WAREHOUSES``)."""

from __future__ import annotations

import pickle

import pytest
from sink_contract import StagingSinkContract
from warehouse_contract import both_kinds, one, planned
from warehouse_rig import WarehouseRig
from warehouse_shop import staged_batch

from floodmark.core.plan import LoadKind


class TestStagingSink(StagingSinkContract):
    """With the fixture ``rig`` of every adapter."""


@both_kinds
@pytest.mark.parametrize("rig", ["postgres"], indirect=True)  # the one in memory cannot leave its process
def test_sink_travels_to_a_worker(rig: WarehouseRig, kind: LoadKind) -> None:
    plan = rig.open(planned(rig, kind), to=10)
    travelled = pickle.loads(pickle.dumps(rig.warehouse.sink(plan, 0)))  # noqa: S301
    assert travelled.write(0, iter([staged_batch(one())])).rows == 1
    assert rig.warehouse.count_parts(plan, 0) == {0: 1}
