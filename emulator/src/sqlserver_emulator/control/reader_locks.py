"""Readers that wait for locks, as with READ_COMMITTED_SNAPSHOT OFF: which tables a statement has to wait for.

A reader waits until no other transaction has written the table, and reads then; it holds no lock itself. A read of the
catalog waits until no other transaction has open DDL on it. ``emulator.wait_for_lock`` waits (``control/sql``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from sqlserver_emulator.faults import Fault, table_pattern

_READS: Final = re.compile(r"^\s*(?:SELECT|WITH)\b", re.IGNORECASE)
_HINT: Final = re.compile(
    r"(?:\s+(?:AS\s+)?(?!WITH\b)[\w@#$\[\]\"]+)?\s*(?:WITH\s*)?\([^()]*\b(?:NOLOCK|READUNCOMMITTED|READPAST)\b",
    re.IGNORECASE,
)
_CATALOG: Final = re.compile(
    r"\bINFORMATION_SCHEMA\s*\.|"
    r"\bsys\s*\.\s*\[?(?:all_)?(?:objects|tables|views|columns|indexes|index_columns|key_constraints|foreign_keys|"
    r"check_constraints|default_constraints|computed_columns|identity_columns|masked_columns|triggers|partitions)\b|"
    r"\b(?:OBJECT_ID|OBJECT_NAME|OBJECT_SCHEMA_NAME|OBJECTPROPERTY|OBJECTPROPERTYEX|COL_NAME|COL_LENGTH|COLUMNPROPERTY|"
    r"INDEXPROPERTY|HAS_PERMS_BY_NAME)\s*\(",
    re.IGNORECASE,
)
WRITERS: Final = "SHARE"
DDL: Final = "ACCESS SHARE"


def locks_to_wait_for(faults: Sequence[Fault], statement: str) -> Iterator[tuple[int, str]]:
    """Return the tables, by their ids, and the lock of PostgreSQL that is to be had on each of them."""
    is_catalog = _CATALOG.search(statement) is not None
    for fault in faults:
        if _READS.match(statement) and _reads_locked(fault.match.table, statement):
            yield fault.object_id, WRITERS
        elif is_catalog:
            yield fault.object_id, DDL


def _reads_locked(table: str, statement: str) -> bool:
    """Whether the statement names the table without a hint that takes no shared locks."""
    found = table_pattern(table).finditer(statement)
    return any(_HINT.match(statement, name.end()) is None for name in found)
