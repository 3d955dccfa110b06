"""The comparison of source and warehouse, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from floodmark.sync.status.verify import verify_tables
from floodmark.wiring.pipelines import wire

if TYPE_CHECKING:
    from floodmark.app.context import AppContext
    from floodmark.core.status.verification import TableVerification


def verify_pipeline(app: AppContext, pipeline: str) -> Iterator[TableVerification]:
    """Compare every table of a pipeline with its target, in the order of the configuration. Raises from
    ``core.errors``."""
    wiring = wire(app.config, pipeline)
    return verify_tables(
        wiring.settings,
        wiring.source.snapshots(),
        wiring.source.reader(),
        wiring.ledger.windows(),
        wiring.warehouse.comparer(),
        progress=app.progress,
    )
