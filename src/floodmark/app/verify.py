"""The comparison of source and warehouse, row by row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from floodmark.wiring.pipelines import wire

if TYPE_CHECKING:
    from floodmark.app.context import AppContext
    from floodmark.spark.verify import TableVerification


def verify_pipeline(app: AppContext, pipeline: str) -> Iterator[TableVerification]:
    """Compare every table of a pipeline with its target, in the order of the configuration. Raises from
    ``core.errors``."""
    return wire(app.config, pipeline).verify_tables()
