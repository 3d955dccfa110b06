"""Identifiers in T-SQL. They come from the server's own results; values are bound and never written into a text."""

from __future__ import annotations

from floodmark.core.schema import TableName
from floodmark.core.source.scripts import bracket_table

CDC_SCHEMA = "cdc"


def change_table(instance: str) -> str:
    """Return the quoted name of an instance's change table."""
    return bracket_table(TableName(CDC_SCHEMA, f"{instance}_CT"))


def net_changes_function(instance: str) -> str:
    """Return the quoted name of an instance's net changes function."""
    return bracket_table(TableName(CDC_SCHEMA, f"fn_cdc_get_net_changes_{instance}"))
