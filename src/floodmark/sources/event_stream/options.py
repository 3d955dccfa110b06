"""How the server streams tables: ``sys.sp_help_change_feed_table`` (docs/reference/event_stream.md, "Columns")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from floodmark.core.source.snapshot import FeedFault, Verdict
from floodmark.sources.sqlserver.driver import SourceSession
from floodmark.sources.sqlserver.sql_files import read_sql

_IN_ORDER = (1, 2)
"""The partition schemes StreamGroup and Table. With the others, the events of a row may be in several partitions."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options with which a table was added to its stream group."""

    has_all_columns: bool
    """An update has all columns, and not only the key and those that changed."""
    has_old_values: bool
    """An update and a delete have the values before it; without them, a delete has the key alone."""
    group: str = ""
    """The stream group."""
    keeps_order: bool = True
    """The events of a row are in one partition, in the order of their changes."""

    @property
    def is_partial(self) -> bool:
        """Return whether events leave out values."""
        return not (self.has_all_columns and self.has_old_values)

    @property
    def fault(self) -> FeedFault | None:
        """Return why the table cannot be read: a late event would lose the values that a newer one leaves out."""
        if self.has_all_columns or self.keeps_order:
            return None
        return FeedFault(
            Verdict.NOT_PLANNABLE,
            f"its events leave out columns, and stream group {self.group} spreads the events of a row over partitions."
            " An event that comes late would be lost.",
            "Add the table to a stream group with @partition_key_scheme = N'Table' or N'StreamGroup', or add it again"
            " with @include_all_columns = 1.",
        )


WHOLE = StreamOptions(has_all_columns=True, has_old_values=True)


def read_options(session: SourceSession, tables: Iterable[int]) -> Mapping[int, StreamOptions]:
    """Return the options of tables by their object_ids, as far as the login may see them."""
    objects = b"".join(table.to_bytes(4) for table in tables)
    rows = session.fetch_named(read_sql("read_stream_options"), (objects,)) if objects else []
    in_order: set[str] = set()
    if not all(row["include_all_columns"] for row in rows):
        groups = session.fetch_named(read_sql("read_stream_settings"))
        in_order.update(each["table_group_name"] for each in groups if each.get("partition_scheme") in _IN_ORDER)
    return {
        row["table_object_id"]: StreamOptions(
            bool(row["include_all_columns"]),
            bool(row["include_old_values"]),
            row["table_group_name"],
            row["table_group_name"] in in_order,
        )
        for row in rows
    }
