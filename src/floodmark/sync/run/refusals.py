"""The errors of a load or a check that concern one table alone: it leaves the window, and the others go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from floodmark.core.errors import (
    CaptureStoppedError,
    FloodmarkError,
    LoadStartError,
    OtherDatabaseError,
    SourceLoginError,
    TargetRefusedError,
    WarehouseAdminError,
    WatermarkConflictError,
)
from floodmark.core.schema import TableName
from floodmark.core.source.snapshot import Validity, Verdict
from floodmark.core.source.verdicts import incident
from floodmark.core.window.plan import TablePlan

_CONCERN_ALL = (
    WatermarkConflictError,
    OtherDatabaseError,
    SourceLoginError,
    CaptureStoppedError,
    LoadStartError,
    WarehouseAdminError,
)


def concerns_one_table(error: FloodmarkError) -> bool:
    """Return whether an error, met while one table was staged or merged, need not stop the others.

    An error that is retried stops all: the next try may have no loss. Login, space and fences are the same for all.
    """
    return not error.retryable and (isinstance(error, TargetRefusedError) or not isinstance(error, _CONCERN_ALL))


def refused_verdict(table: TablePlan, error: FloodmarkError) -> Validity:
    """Return the verdict on a table that a load or a check has refused. It contains no value of a row."""
    verdict = Validity(table.source, Verdict.REFUSED, error.message, error.hint, table.watermark)
    return verdict if error.hint else replace(verdict, hint="The log of the load has the details.")


def refusal(pipeline: str, verdicts: Sequence[Validity], errors: Mapping[TableName, FloodmarkError]) -> FloodmarkError:
    """Return the error about a window of which all tables are refused."""
    found = incident(pipeline, tuple(verdicts))
    return found if found and len(errors) > 1 else next(iter(errors.values()))
