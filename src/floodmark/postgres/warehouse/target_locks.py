"""The locks of targets: merges into one target run one after another, whatever their lanes and pipelines."""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

import psycopg

from floodmark.core.schema import TableName

# Separates Floodmark's advisory locks from those of other programs. Arbitrary, and fixed.
_MERGE_LOCK = 0x46_4C_4F_45


def lock_targets(session: psycopg.Connection, targets: Iterable[TableName]) -> None:
    """Lock targets until the transaction ends, so that each merge counts correctly. Readers are not blocked."""
    # In the order of the numbers, without duplicates: two targets may share a number.
    for number in sorted({crc32(str(target).encode()) - 2**31 for target in targets}):
        session.execute("SELECT pg_advisory_xact_lock(%s, %s)", [_MERGE_LOCK, number])
