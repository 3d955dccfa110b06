"""The rows in quarantine, and the operator's decisions about them."""

from __future__ import annotations

import getpass
import logging
from typing import TYPE_CHECKING

from floodmark.core.errors import ConfigError
from floodmark.core.schema import TableName
from floodmark.wiring.pipelines import wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from floodmark.app.context import AppContext
    from floodmark.core.recovery.release import Release
    from floodmark.core.settings import TableSettings
    from floodmark.core.status.history import RuleCount

_LOG = logging.getLogger(__name__)


def list_quarantined(app: AppContext, pipeline: str) -> Sequence[RuleCount]:
    """Return what waits in quarantine of a pipeline, by table and rule, the newest first."""
    return wire(app.config, pipeline).ledger.status().list_quarantined(pipeline)


def release_rows(app: AppContext, pipeline: str, table: str) -> Release:
    """Merge the rows of a table in quarantine that break no rule of the configuration any more.

    Raises ConfigError for an unknown pipeline or table, and the errors of ``Quarantine.release``.
    """
    wiring = wire(app.config, pipeline)
    found = wiring.warehouse.quarantine().release(pipeline, _settings_of(app, pipeline, table), getpass.getuser())
    _LOG.info("%s: %s of quarantine released, window %s.", table, found.released, found.window_id or "none")
    return found


def discard_rows(app: AppContext, pipeline: str, table: str, rule: str | None) -> int:
    """Settle the rows of a table in quarantine without a merge. rule: only of this one. Return the number of entries.

    Raises ConfigError for an unknown pipeline or table.
    """
    source = _settings_of(app, pipeline, table).source
    return wire(app.config, pipeline).warehouse.quarantine().discard(pipeline, source, rule, getpass.getuser())


def _settings_of(app: AppContext, pipeline: str, table: str) -> TableSettings:
    tables = app.config.settings(pipeline).tables
    try:
        name = TableName.parse(table)
    except ValueError as error:
        raise ConfigError(pipeline, f"{error}.") from None
    for settings in tables:
        if settings.source.folded == name.folded:
            return settings
    raise ConfigError(
        pipeline, f"it has no table {table}.", f"Its tables: {', '.join(str(each.source) for each in tables)}."
    )
