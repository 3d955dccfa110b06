"""The rows in quarantine, and the operator's decisions about them."""

from __future__ import annotations

import getpass
import logging
from typing import TYPE_CHECKING

from floodmark.app.tables import find_table_settings
from floodmark.wiring.pipelines import wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.app.context import AppContext
    from floodmark.core.recovery.release import Release
    from floodmark.core.schema import TableName
    from floodmark.core.status.history import QuarantinedKey, RuleCount

_LOG = logging.getLogger(__name__)


def list_quarantined(app: AppContext, pipeline: str) -> Sequence[RuleCount]:
    """Return what waits in quarantine of a pipeline, by table and rule, the newest first."""
    return wire(app.config, pipeline).ledger.status().list_quarantined(pipeline)


def list_keys(
    app: AppContext, pipeline: str, table: TableName, rule: str | None, *, skipped: int, at_most: int
) -> Sequence[QuarantinedKey]:
    """Return rows of a table in quarantine with their keys, the newest first: only for users who may see values."""
    return (
        wire(app.config, pipeline)
        .ledger.status()
        .list_quarantined_keys(pipeline, table, rule, skipped=skipped, at_most=at_most)
    )


def release_rows(app: AppContext, pipeline: str, table: str) -> Release:
    """Merge the rows of a table in quarantine that break no rule of the configuration any more.

    Raises ConfigError for an unknown pipeline or table, and the errors of ``Quarantine.release``.
    """
    settings = find_table_settings(app, pipeline, table)
    found = wire(app.config, pipeline).warehouse.quarantine().release(pipeline, settings, getpass.getuser())
    _LOG.info("%s: %s of quarantine released, window %s.", table, found.released, found.window_id or "none")
    return found


def discard_rows(app: AppContext, pipeline: str, table: str, rule: str | None) -> int:
    """Settle the rows of a table in quarantine without a merge. rule: only of this one. Return the number of entries.

    Raises ConfigError for an unknown pipeline or table.
    """
    source = find_table_settings(app, pipeline, table).source
    return wire(app.config, pipeline).warehouse.quarantine().discard(pipeline, source, rule, getpass.getuser())
