"""The requirements of ``net: server`` on a capture instance."""

from __future__ import annotations

from floodmark.core.errors import ConfigError
from floodmark.core.window.plan import TablePlan
from floodmark.sources.cdc.rows.feed import instance_of

_NEVER_IN_OLD_IMAGES = ("text", "ntext", "image")


def require_server_net(plan: TablePlan) -> None:
    """Raise ConfigError where the server's net changes cannot distinguish a value that was left out from NULL."""
    if not instance_of(plan).supports_net_changes:
        raise ConfigError(
            str(plan.source),
            f"net: server, but capture instance {plan.feed.identity.name} does not support net changes.",
            "Set net: spark, or enable the table with @supports_net_changes = 1.",
        )
    stored = plan.feed.table.stored_columns
    old = ", ".join(column.name for column in stored if column.type_name in _NEVER_IN_OLD_IMAGES)
    if old:
        raise ConfigError(
            str(plan.source),
            f"net: server cannot distinguish an unchanged value from NULL in text, ntext and image columns ({old}).",
            "Set net: spark.",
        )
