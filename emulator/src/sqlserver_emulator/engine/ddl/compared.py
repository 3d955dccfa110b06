"""The expression that an index compares in place of a column: its strings are equal where the server's are."""

from __future__ import annotations

from sqlserver_emulator.engine.names import quote
from sqlserver_emulator.engine.translation import CatalogColumn
from sqlserver_emulator.system_types import names_where

# char(n) is PostgreSQL's own and ignores blanks.
_VARYING = names_where(lambda type: type.storage.startswith("varchar"))


def compared_sql(column: CatalogColumn) -> str:
    """The expression over a column that an index compares as the server does; the column itself where that does."""
    name = quote(column.postgres_name)
    if column.collation is not None and not column.collation.is_binary:
        return f"(tsql.key_{column.collation.style}({name}))"
    return f"({name}::bpchar)" if column.type.name in _VARYING else name
