"""The names that the library puts into a file, and the quoting of all others.

``__sys…`` are the original's names, for columns of user tables and for views. ``__ct_…`` are the library's own
tables, triggers and indexes. Both prefixes are closed to tables that are to be tracked.
"""

INSERT_BSN = "__sysInsertTxBsn"
CHANGE_BSN = "__sysChangeTxBsn"
CONTEXT = "__sysTrackingContext"
SYSTEM_COLUMNS = (CHANGE_BSN, INSERT_BSN, CONTEXT)
OWN_PREFIXES = ("__sys", "__ct_", "sqlite_")
KEY_COLUMNS_LIMIT = 16
"""The most columns that a key has, as an index of SQL Server Compact."""

NOW = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
"""The present time in UTC, as SQL; ISO 8601 with milliseconds, so that texts sort like times."""


def quote_name(name: str) -> str:
    """Return an identifier quoted for SQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return a string as an SQL literal, for the bodies of triggers, which take no parameters."""
    return "'" + text.replace("'", "''") + "'"


def list_keys(count: int, prefix: str = "") -> list[str]:
    """Return the columns that hold the values of a key in the library's own tables."""
    return [f"{prefix}k{number}" for number in range(count)]


def resolve_csn(bsn: str) -> str:
    """Return SQL for the CSN of a BSN: that of its row in the sequence table, else the BSN itself; NULL for NULL."""
    return f"coalesce((SELECT s.csn FROM __ct_sequence AS s WHERE s.bsn = {bsn}), {bsn})"
