"""What tests switch in a stream from outside: the generation of its messages.

A server has no such switches: its build decides.
"""

from __future__ import annotations

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


_HAS_BINARY = "SELECT 1 FROM emulator.event_stream_groups WHERE database_id = $1::int AND is_binary LIMIT 1"
