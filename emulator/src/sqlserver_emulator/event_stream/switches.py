"""Controls of a stream that tests use from outside: the generation of its messages, and the epoch.

The build of a server decides on the first. A restore or a failover begins a new epoch: the stream is set up again.
"""

from __future__ import annotations

from sqlserver_emulator.cdc.lsn import lsn_at, parse_position, shift_to
from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.event_stream.encoding import Generation


def read_generation(run: Run, database_id: int) -> Generation:
    """Return the generation in which a database's messages are written. Raises LookupError where it has no stream."""
    rows = run("SELECT generation FROM emulator.event_stream_databases WHERE database_id = $1::int", (database_id,))
    if not rows:
        raise LookupError(database_id)
    return Generation(rows[0][0])


def write_generation(run: Run, database_id: int, generation: Generation) -> None:
    """Set the generation of the messages that are written from here on.

    Raises LookupError where the database has no stream, and ValueError where a group of it has no such form.
    """
    read_generation(run, database_id)
    if generation is Generation.G1 and run(_HAS_BINARY, (database_id,)):
        raise ValueError("a stream group has @encoding = 'Binary', which the first generation has not")
    sql = "UPDATE emulator.event_stream_databases SET generation = $2::int WHERE database_id = $1::int"
    run(sql, (database_id, generation.value))


def shown_positions(run: Run, database_id: int) -> list[int]:
    """Return how far a database's changes are published, as its LSNs have it; nothing where it has no stream."""
    return [parse_position(text) for (text,) in run(_POSITION, (database_id,))]


def begin_epoch(run: Run, database_id: int, lsn: bytes | None) -> None:
    """Give the tables other identifiers, and stream what commits from here on. lsn: their LSNs begin above it.

    Raises LookupError where the database has no stream, and ValueError for an LSN that is not below its end.
    """
    rows = run(_END, (database_id,))
    if not rows:
        raise LookupError(database_id)
    ((here, shift),) = rows
    if lsn is not None:
        end = lsn_at(parse_position(here) - shift)
        if not lsn_at(0) <= lsn < end:
            raise ValueError(
                f"it must be from 0x{lsn_at(0).hex().upper()} to 0x{end.hex().upper()}, where the log ends"
            )
        shift = shift_to(parse_position(here), lsn)
    for statement, value in ((_NEW_TABLES, here), (_NEW_POSITION, here), (_NEW_SHIFT, shift)):
        run(statement, (database_id, value))


_POSITION = """
SELECT (e.position - d.stream_lsn_shift)::text FROM emulator.event_stream_databases e
JOIN emulator.databases d USING (database_id) WHERE e.database_id = $1::int
"""
_END = """
SELECT pg_current_wal_insert_lsn()::text, d.stream_lsn_shift FROM emulator.event_stream_databases e
JOIN emulator.databases d USING (database_id) WHERE e.database_id = $1::int
"""
_NEW_TABLES = """
UPDATE emulator.event_stream_tables SET table_id = gen_random_uuid(), enabled_at = $2::pg_lsn
WHERE database_id = $1::int
"""
_NEW_POSITION = """
UPDATE emulator.event_stream_databases SET position = $2::pg_lsn, is_behind = false WHERE database_id = $1::int
"""
_NEW_SHIFT = "UPDATE emulator.databases SET stream_lsn_shift = $2::bigint WHERE database_id = $1::int"
_HAS_BINARY = "SELECT 1 FROM emulator.event_stream_groups WHERE database_id = $1::int AND is_binary LIMIT 1"
