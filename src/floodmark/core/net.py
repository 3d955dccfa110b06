"""The checks of what a feed delivers: whether its net changes can be merged, and its changes be kept."""

from __future__ import annotations

from floodmark.core.errors import ConfigError
from floodmark.core.schema import SourceTable
from floodmark.core.settings import KeySpelling, NetSource, SecurityFiltered, Style, TableSettings, TemporalPolicy
from floodmark.core.snapshot import Feed

# --------------------------------------------------------------------------------------------------------------------
# Net changes that the source computes: whether they are those that Floodmark would compute.
#
# A pipeline chooses them with ``net: server``, or its kind of source has no others.


def check_net(settings: TableSettings, feed: Feed, server_key: tuple[str, ...]) -> None:
    """Raise ConfigError where the source's net changes cannot be merged.

    server_key: the key by which the source computes net changes, and so the only one by which they can be merged.
    """
    if feed.delivers_net:
        _check_delivered(settings, feed, server_key)
    elif settings.net is NetSource.SERVER:
        _check_chosen(settings, feed, server_key)


def _check_delivered(settings: TableSettings, feed: Feed, server_key: tuple[str, ...]) -> None:
    """Raise ConfigError for a table of a source that has one change for each key, and no other changes."""
    if set(feed.table.key) != set(server_key):
        raise ConfigError(
            str(settings.source),
            f"the key is ({', '.join(feed.table.key)}), and the source has changes by the primary key, "
            f"({', '.join(server_key)}).",
            "Remove key from the table in pipelines.yaml.",
        )
    if (named := _unlike(settings, feed)) and settings.key_spelling is not KeySpelling.FIXED:
        raise ConfigError(
            str(settings.source),
            f"the server may take two values of the key ({named}) for one, because it ignores case, an offset, or what "
            "pads the end. An update from one to the other is reported as one key: in the warehouse, the row with the "
            "old spelling would stay.",
            "Where no key is ever updated to another spelling, set key_spelling: fixed for the table.",
        )


def _check_chosen(settings: TableSettings, feed: Feed, server_key: tuple[str, ...]) -> None:
    if not feed.supports_net_changes:
        raise ConfigError(
            str(settings.source),
            f"net: server, but capture instance {feed.identity.name} has no net changes.",
            "Use net: spark, or enable the instance with @supports_net_changes = 1.",
        )
    if set(feed.table.key) != set(server_key):
        raise ConfigError(
            str(settings.source),
            f"net: server, but the key is ({', '.join(feed.table.key)}), and capture "
            f"instance {feed.identity.name} has net changes by ({', '.join(server_key)}).",
            "Use net: spark, or enable an instance whose @index_name is an index of the key.",
        )
    # Of two such keys in one window, the net function returns the last: the row of the other would stay alive.
    if named := _unlike(settings, feed):
        raise ConfigError(
            str(settings.source),
            f"net: server, but the server may take two values of the key ({named}) for one, because it ignores case, "
            "an offset, or what pads the end; in the warehouse they are two.",
            "Use net: spark. The server's net changes need a key of numbers, times, uniqueidentifier, binary(n), or of "
            "char(n) and nchar(n) with a binary collation (_BIN, _BIN2).",
        )


def _unlike(settings: TableSettings, feed: Feed) -> str:
    """Return the columns of the key of which the server may take two values for one that are two in a warehouse."""
    columns = [feed.table.column(name) for name in feed.table.key]
    # As text, a moment has its offset; for the server, two offsets of one moment are one key.
    is_text = settings.temporal is TemporalPolicy.TEXT
    unlike = [
        column
        for column in columns
        if not column.is_compared_by_bytes or (is_text and column.type_name == "datetimeoffset")
    ]
    return ", ".join(f"{each.name} {' '.join(filter(None, (each.declared_type, each.collation)))}" for each in unlike)


# --------------------------------------------------------------------------------------------------------------------
# The styles that keep changes: whether a feed has what they need.


def why_no_style_of(settings: TableSettings, feed: Feed) -> str:
    """Return why a feed has not what a style other than ``current`` needs, as a clause; "" where it has."""
    style = settings.style
    if style is Style.SNAPSHOT and (feed.delivers_net or feed.has_members):
        captured = "changes that change data capture has recorded"
        return f"only {captured} begin the reads of a snapshot so far: use style: current"
    if feed.delivers_net:
        return _why_not_of_net(settings, "a device keeps" if feed.member_column else "change tracking has")
    return _why_not_of_events(settings, feed.table) if feed.has_members else ""


def _why_not_of_net(settings: TableSettings, source_has: str) -> str:
    """Return why net changes lack what a log or a history needs. source_has: the source and its verb, in the text."""
    if settings.before_images:
        return f"before_images: true, and {source_has} no row before an update: leave it out"
    if settings.style is Style.LOG and settings.where is not None:
        return (
            "where, and nothing shows whether a row that does not pass the filter had passed it before, so that the log"
            " would have the key of each: use style: history, or remove where"
        )
    return ""


def _why_not_of_events(settings: TableSettings, table: SourceTable) -> str:
    """Return why the events of a stream lack what a log or a history needs, as a clause; "" where they have it."""
    if settings.style is Style.HISTORY and settings.key:
        return (
            "key, and one statement may pass such keys on from row to row, where only all events of its transaction"
            " show which row has a key at the end: remove key, or use style: log"
        )
    if settings.style is Style.HISTORY and settings.security_filtered is SecurityFiltered.ACCEPT:
        return (
            "security_filtered: accept, and nothing shows whether a load has read what an event changed that comes"
            " late: let the login see all rows, or use style: log"
        )
    if table.is_partial and settings.style is Style.LOG and (settings.before_images or not table.key):
        return (
            "the log is to have the row before an update, which its events have in part, or not at all: add the table"
            " to its stream group again with @include_all_columns = 1 and @include_old_values = 1"
        )
    return ""
