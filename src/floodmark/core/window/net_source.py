"""The check of ``net: server``: whether the server's net changes are those that Floodmark would compute."""

from __future__ import annotations

from floodmark.core.errors import ConfigError
from floodmark.core.policies import NetSource, TemporalPolicy
from floodmark.core.settings import TableSettings
from floodmark.core.source.snapshot import CaptureInstance


def check_net(settings: TableSettings, instance: CaptureInstance, server_key: tuple[str, ...]) -> None:
    """Raise ConfigError where the server's net changes cannot be merged.

    server_key: the key by which the server computes net changes, and so the only one by which they can be merged.
    """
    if settings.net is not NetSource.SERVER:
        return
    if not instance.supports_net_changes:
        raise ConfigError(
            str(settings.source),
            f"net: server, but capture instance {instance.identity.name} has no net changes.",
            "Use net: spark, or enable the instance with @supports_net_changes = 1.",
        )
    if set(instance.table.key) != set(server_key):
        raise ConfigError(
            str(settings.source),
            f"net: server, but the key is ({', '.join(instance.table.key)}), and capture "
            f"instance {instance.identity.name} has net changes by ({', '.join(server_key)}).",
            "Use net: spark, or enable an instance whose @index_name is an index of the key.",
        )
    _check_key_values(settings, instance)


def _check_key_values(settings: TableSettings, instance: CaptureInstance) -> None:
    """Raise ConfigError where the server may take two values of the key for one that are two in a warehouse.

    Of two such keys in one window, the net function returns the last: the row of the other would stay alive.
    """
    columns = [instance.table.column(name) for name in instance.table.key]
    # As text, a moment has its offset; for the server, two offsets of one moment are one key.
    is_text = settings.temporal is TemporalPolicy.TEXT
    unlike = [
        column
        for column in columns
        if not column.is_compared_by_bytes or (is_text and column.type_name == "datetimeoffset")
    ]
    if not unlike:
        return
    named = ", ".join(f"{each.name} {' '.join(filter(None, (each.declared_type, each.collation)))}" for each in unlike)
    raise ConfigError(
        str(settings.source),
        f"net: server, but the server may take two values of the key ({named}) for one, because it ignores case, an "
        "offset, or what pads the end; in the warehouse they are two.",
        "Use net: spark. The server's net changes need a key of numbers, times, uniqueidentifier, binary(n), or of "
        "char(n) and nchar(n) with a binary collation (_BIN, _BIN2).",
    )
