"""Which database a source is, whatever address leads to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DatabaseIdentity:
    """The identity of a database (docs/reference/sqlserver_cdc.md, "Identity of a database")."""

    server: str
    """The name of the server. Replicas of one database have different ones."""
    database: str
    guid: str | None
    """It survives renames, restores and failovers, so that a restored copy has it too; None where it is not shown."""
    group_id: str | None = None
    """The identifier within an availability group: that of all replicas, and of no other copy. None outside of one."""

    def __str__(self) -> str:
        return f"{self.database} on {self.server} ({self.guid or 'without a GUID'})"


def explain_other_database(known: DatabaseIdentity, found: DatabaseIdentity) -> str | None:
    """Return a sentence on why ``found`` is not certainly the database ``known``; None where it is.

    A restored copy has the same GUID, and may have the same name. Only the server distinguishes it from the original.
    Between the replicas of an availability group the server changes without anyone's doing.
    """
    reason = _differs(known, found)
    return f"the connection leads to {found}, and the watermark is that of {known}: {reason}." if reason else None


def _differs(known: DatabaseIdentity, found: DatabaseIdentity) -> str | None:
    if None not in (known.guid, found.guid) and known.guid != found.guid:
        return "another database"
    if known.database.casefold() != found.database.casefold():
        return "the same one renamed, or a copy"
    is_same_group = known.group_id is not None and known.group_id == found.group_id
    if known.server.casefold() != found.server.casefold() and not is_same_group:
        return "the same one moved to another server, or a copy"
    return None
