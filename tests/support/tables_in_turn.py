"""The changes of a window, staged one table after the other, for stagers without read tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from floodmark.core.errors import FloodmarkError
from floodmark.core.plan import WindowPlan
from floodmark.sync.load import concerns_one_table
from floodmark.sync.ports import StagedRows, StagingSink


def stage_in_turn(
    plan: WindowPlan, sinks: Mapping[int, StagingSink], stage: Callable[[int, StagingSink], StagedRows]
) -> dict[int, StagedRows | FloodmarkError]:
    """Return what ``Stager.stage_changes`` returns. stage: reads and stages the table of an index."""
    results: dict[int, StagedRows | FloodmarkError] = {}
    for index, sink in sinks.items():
        try:
            results[index] = StagedRows(0, 0) if plan.tables[index].quiet else stage(index, sink)
        except FloodmarkError as error:
            if not concerns_one_table(error):
                raise
            results[index] = error
    return results
