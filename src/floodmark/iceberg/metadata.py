"""The file of metadata of a table: whether it is still the one that was published last.

Commits of other programs may come after that one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from floodmark.core.errors import TargetLostError, command_line
from floodmark.core.plan import TablePlan

_NO_SNAPSHOT = -1
"""The number that some writers give to the newest snapshot of a table without one."""


def refuse_lost(table: TablePlan, published: str | None, found: str | None) -> None:
    """Raise TargetLostError where the changes of a table would not be merged into all that was loaded before.

    published: the location that Floodmark published last. found: the one that readers see now; None: there is no table.
    """
    if found is None:
        raise _lost(table, "does not exist, and was loaded before")
    if published is None:
        raise _lost(table, "is not the one that was loaded: no window has published it")
    now = _require_metadata(table, found)
    if published == found:
        return
    before = _require_metadata(table, published)
    if before["table-uuid"] != now["table-uuid"]:
        raise _lost(table, "was dropped and made again")
    if not _follows(before, now):
        raise _lost(table, "was set back to an earlier state")
    if gone := sorted(_columns(before) - _columns(now)):
        raise _lost(table, f"has lost columns: {', '.join(name for _, name in gone)}")


def _lost(table: TablePlan, what: str) -> TargetLostError:
    return TargetLostError(
        str(table.source),
        f"the table {table.target} of the lake {what}.",
        "Nothing was merged. Restore the table, by Iceberg's rollback_to_snapshot or from a backup of the catalog. Or "
        f"reload it: {command_line('reload', 'PIPELINE', table.source)}.",
    )


def read_metadata(location: str) -> dict[str, Any] | None:
    """Return the metadata of a table; None where it cannot be read: then Iceberg cannot even drop the table."""
    try:
        return dict(json.loads(local_path(location).read_bytes()))
    except (OSError, ValueError):
        return None


def local_path(location: str) -> Path:
    """Return the path of a file that Iceberg names as a URI or as a path."""
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def _require_metadata(table: TablePlan, location: str) -> dict[str, Any]:
    if (found := read_metadata(location)) is None:
        raise _lost(table, f"has no readable metadata in {local_path(location)}")
    return found


def _follows(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether the newest snapshot of a table is, or has come after, that of an earlier state of it."""
    wanted = before.get("current-snapshot-id")
    if wanted in (None, _NO_SNAPSHOT):
        return True
    snapshots = {each["snapshot-id"]: each for each in now.get("snapshots", ())}
    newest = current = now.get("current-snapshot-id")
    while current in snapshots:
        if current == wanted:
            return True
        current = snapshots[current].get("parent-snapshot-id")
    if current is None or newest not in snapshots:
        return False
    # Its ancestors are expired. What a table is set back to has a lower number.
    [then] = [each for each in before["snapshots"] if each["snapshot-id"] == wanted]
    return bool(snapshots[newest]["sequence-number"] > then["sequence-number"])


def _columns(metadata: Mapping[str, Any]) -> set[tuple[int, str]]:
    """Return the columns of a table. One that is made again has another number."""
    [schema] = [each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"]]
    return {(each["id"], each["name"]) for each in schema["fields"]}
