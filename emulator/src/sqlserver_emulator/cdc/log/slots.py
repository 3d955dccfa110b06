"""Replication slots: one for each CDC-enabled database, and a spare one that new slots are copied from.

A new logical slot has to wait for every transaction that is running, its caller's included; a copy of a slot does not.
So the supervisor keeps a spare slot near the end of the log, and ``sp_cdc_enable_db`` copies it. Slots know no
transactions: what a rolled-back enable or a committed disable leaves behind is dropped here.
"""

from __future__ import annotations

import contextlib

from psycopg import errors

from sqlserver_emulator.cdc.metadata import Run
from sqlserver_emulator.cdc.postgres import connect, runner

SPARE_SLOT = "cdc_spare"
_SLOT_PREFIX = "cdc_db"
_SPARE_LAG_BYTES = 1 << 20
"""The largest part of the log that the first reader of a copy has to skip."""
_CREATE_TIMEOUT = "10s"
_LOCK_SPACE = 0x43444331
"""First key of the advisory locks that say "this slot's transaction is still open"."""
_ABANDONED = """
    SELECT slot_name::text, split_part(slot_name::text, '_', 3)::int FROM pg_replication_slots s
    WHERE slot_name::text LIKE $1::text AND NOT active
      AND NOT EXISTS (SELECT 1 FROM emulator.cdc_databases c WHERE c.slot_name = s.slot_name::text)
      AND NOT EXISTS (SELECT 1 FROM emulator.event_stream_databases e WHERE e.slot_name = s.slot_name::text)
"""


def create_slot(run: Run, conninfo: str, database_id: int) -> str:
    """Make a slot that holds the log from now on; returns its name. ``run`` is the caller's transaction: while it is
    open, ``drop_abandoned`` leaves the slot alone.

    Without a spare slot (no supervisor runs) a transaction that wrote something elsewhere delays this; after a limit it
    fails with LockNotAvailable. The number is taken on the other connection, or the caller itself would be such a one.
    """
    with connect(conninfo) as connection:
        other = runner(connection)
        ((number,),) = other("SELECT nextval('emulator.cdc_slot_numbers')::int", ())
        # Taken before the slot exists, so that `drop_abandoned` never finds the slot of an open transaction unlocked.
        run("SELECT pg_advisory_xact_lock($1::int, $2::int)", (_LOCK_SPACE, number))
        name = f"{_SLOT_PREFIX}{database_id}_{number}"
        # PostgreSQL waits for running transactions by locks on them, so that this bounds the wait.
        other(f"SET lock_timeout = '{_CREATE_TIMEOUT}'", ())
        if _exists(other, SPARE_SLOT):
            # A copy starts where the spare slot is: moved forward first, it leaves the new reader little to skip.
            keep_spare(other)
            other("SELECT pg_copy_logical_replication_slot($1::text::name, $2::text::name)", (SPARE_SLOT, name))
        else:
            other("SELECT pg_create_logical_replication_slot($1::text::name, 'pgoutput')", (name,))
    return name


def keep_spare(run: Run) -> None:
    """Make the spare slot, or move it to near the end of the log, so that it holds little. ``run`` must be in
    autocommit."""
    if not _exists(run, SPARE_SLOT):
        run("SELECT pg_create_logical_replication_slot($1::text::name, 'pgoutput')", (SPARE_SLOT,))
        return
    if not run(
        "SELECT 1 FROM pg_replication_slots"
        " WHERE slot_name = $1::text::name AND pg_current_wal_flush_lsn() - restart_lsn > $2::bigint",
        (SPARE_SLOT, _SPARE_LAG_BYTES),
    ):
        return
    # The restart point moves from one such record to another, and PostgreSQL itself writes one every 15 s.
    run("SELECT pg_log_standby_snapshot()", ())
    with contextlib.suppress(errors.ObjectInUse):  # another session is just moving it
        run("SELECT pg_replication_slot_advance($1::text::name, pg_current_wal_flush_lsn())", (SPARE_SLOT,))


def drop_abandoned(run: Run) -> None:
    """Drop the slots, origins and publications of no database. ``run`` must be in autocommit."""
    for name, number in run(_ABANDONED, (f"{_SLOT_PREFIX}%",)):
        ((is_free,),) = run("SELECT pg_try_advisory_lock($1::int, $2::int)", (_LOCK_SPACE, number))
        # The transaction that made the slot is still open, and may yet enter it into the table.
        if not is_free:
            continue
        try:
            # Before this lock the transaction may have committed, or another session may have dropped the slot; the
            # name is a pattern that matches itself.
            if run(_ABANDONED, (name,)):
                _drop(run, str(name))
        finally:
            run("SELECT pg_advisory_unlock($1::int, $2::int)", (_LOCK_SPACE, number))


def _drop(run: Run, name: str) -> None:
    try:
        # The slot goes first: while it is in use a job still reads, and needs its origin and its publication.
        run("SELECT pg_drop_replication_slot($1::text::name)", (name,))
    except errors.ObjectInUse:
        return  # its capture job is just ending; next time
    run("SELECT pg_replication_origin_drop(roname) FROM pg_replication_origin WHERE roname = $1::text", (name,))
    run(f'DROP PUBLICATION IF EXISTS "{name}"', ())


def _exists(run: Run, slot: str) -> bool:
    return bool(run("SELECT 1 FROM pg_replication_slots WHERE slot_name = $1::text::name", (slot,)))
