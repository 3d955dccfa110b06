"""How the server streams tables: ``sys.sp_help_change_feed_table`` (docs/reference/event_stream.md, "Columns")."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from floodmark.sources.sqlserver.driver import SourceSession
from floodmark.sources.sqlserver.sql_files import read_sql


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options with which a table was added to its stream group."""

    has_all_columns: bool
    """An update has all columns, and not only the key and those that changed."""
    has_old_values: bool
    """An update and a delete have the values before it; without them, a delete has the key alone."""
    group: str = ""
    """The stream group."""

    @property
    def is_partial(self) -> bool:
        """Return whether events leave out values."""
        return not (self.has_all_columns and self.has_old_values)


WHOLE = StreamOptions(has_all_columns=True, has_old_values=True)


def read_options(session: SourceSession, tables: Iterable[int]) -> Mapping[int, StreamOptions]:
    """Return the options of tables by their object_ids, as far as the login may see them."""
    objects = b"".join(table.to_bytes(4) for table in tables)
    rows = session.fetch_named(read_sql("read_stream_options"), (objects,)) if objects else []
    return {
        row["table_object_id"]: StreamOptions(
            bool(row["include_all_columns"]), bool(row["include_old_values"]), row["table_group_name"]
        )
        for row in rows
    }
