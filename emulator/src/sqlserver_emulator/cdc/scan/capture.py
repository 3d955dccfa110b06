"""The capture job's scan: logged transactions in, rows of change tables out, exactly once.

Everything of one scan - rows, ``lsn_time_mapping``, history and the position reached - is one PostgreSQL transaction,
and a reader starts at the position that was stored, so a kill at any moment neither loses nor doubles a change.

Owns the connections, when a scan begins and ends, and what it stores. What a logged transaction means is
``transactions``'; scan bookkeeping for the management views is ``scan_sessions``'.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from psycopg import InterfaceError, errors

from sqlserver_emulator.cdc.instances import CdcDatabase, CdcDisabledError, read_database
from sqlserver_emulator.cdc.log.reader import LogReader, LogReaderError
from sqlserver_emulator.cdc.lsn import parse_position, position_text
from sqlserver_emulator.cdc.postgres import SqlConnection, connect, runner
from sqlserver_emulator.cdc.scan.scan_sessions import ScanSession, record_empty_scans, record_session
from sqlserver_emulator.cdc.scan.timeline import datetime_seconds
from sqlserver_emulator.cdc.scan.transactions import TransactionTaker

HELD_LOG_LOCK: Final = 0x4344434C
"""First key of the advisory locks, held shared, that say "changes in this database's log have to stay"."""
# docs/reference/sqlserver_cdc.md, "Time mapping": the age of the newest row after which an idle source gets a row.
IDLE_ROW_SECONDS: Final = 300.0
_WAIT_SECONDS: Final = 0.02
_COMMIT_BYTES: Final = 64 << 20
_RELEASE_SECONDS: Final = 5.0
_PAUSE_SECONDS: Final = 0.005
_HOLDS_SLOT: Final = "SELECT 1 FROM pg_replication_slots WHERE slot_name = $1::text::name AND active_pid = $2::int4"


class ScanStoppedError(Exception):
    """The scan was asked to stop in the middle of a transaction; what it had not stored is read again next time."""


@dataclass(frozen=True, slots=True)
class ScanResult:
    """transactions: captured ones. drained: nothing is left that had been committed when the scan began.
    is_held: what is left is too young for a scan that stays behind.
    """

    transactions: int
    drained: bool
    is_held: bool = False


class Capture:
    """Reads one database's log. ``is_stopped`` is asked between messages."""

    def __init__(
        self,
        conninfo: str,
        database_id: int,
        *,
        connection: SqlConnection | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Open the log. Raises CdcDisabledError; LogReaderError (``busy``) when another reader has the log.

        ``connection``: one that stays open, without autocommit; None: one of its own.
        """
        self._is_stopped = is_stopped
        self._is_lent = connection is not None
        self._has_origin = False
        self._connection = connection or connect(conninfo, autocommit=False)
        self._run = runner(self._connection)
        try:
            self.database = self._read_database(database_id)
            stored = self._read_position()
            self._mark_own_transactions()
            self._connection.commit()
            # From the stored position, not from the slot's: the slot is confirmed later and may be behind, and what
            # lies between would be captured twice.
            self._reader = LogReader(
                conninfo, slot=self.database.slot, publication=self.database.slot, after_position=stored
            )
        except BaseException:
            self._leave_connection()
            raise
        self._taker = TransactionTaker(self._connection, self.database)
        self._stored = stored
        self._seen_flush = 0
        self._shows_holding = False

    def close(self) -> None:
        """Close the reader; return when the log is free for the next one, which would be refused as busy otherwise."""
        sender_pid = self._reader.sender_pid
        self._reader.close()
        with contextlib.suppress(errors.OperationalError, InterfaceError):
            self._wait_for_release(sender_pid)
        self._leave_connection()

    def _leave_connection(self) -> None:
        if not self._is_lent:
            self._connection.close()
            return
        with contextlib.suppress(errors.OperationalError, InterfaceError):
            self._connection.rollback()
            if self._has_origin:
                self._run("SELECT pg_replication_origin_session_reset()", ())
            self._connection.commit()

    def _wait_for_release(self, sender_pid: int) -> None:
        self._connection.rollback()
        deadline = time.monotonic() + _RELEASE_SECONDS
        while self._run(_HOLDS_SLOT, (self.database.slot, sender_pid)) and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)

    def has_news(self) -> bool:
        """Return whether the log grew since the last scan that drained it. One cheap question, no transaction."""
        return self._taker.has_messages or self._flush_position() > self._seen_flush

    def scan(
        self, max_transactions: int, *, delay_seconds: float = 0.0, pause: Callable[[], object] = lambda: None
    ) -> ScanResult:
        """Capture up to ``max_transactions`` transactions of what is committed now.

        ``delay_seconds``: leave what was committed after that, by the emulator's clock. ``pause`` is called before
        what was found is committed.
        """
        # Fixed before the log is read: what commits meanwhile is the next scan's, so a scan ends on a busy server too.
        target = self._flush_position()
        session = ScanSession()
        taker = self._taker
        taker.begin_scan(max_transactions, session)
        try:
            if delay_seconds:
                taker.hold_after(self._now() - int(delay_seconds * 1_000_000))
            drained = self._read_until(target)
            if taker.has_written:
                # A slow scan has its locks on the change tables, as a real one.
                taker.flush()
                pause()
            self._store(session)
        except BaseException:
            self._connection.rollback()
            raise
        if drained:
            self._seen_flush = target
            # The log up to here holds nothing for this database, so the server need not keep it.
            self._reader.confirm(max(self._stored, self._reader.position))
        else:
            # Messages may have been received that are not stored yet; the log from there on has to stay.
            self._reader.confirm(self._stored)
        return ScanResult(taker.scan_transactions, drained, taker.is_holding)

    def write_idle_row(self) -> bool:
        """Mark in lsn_time_mapping how far the log has been read, after 300 s without an entry. Call when drained."""
        now = self._now()
        timeline = self._taker.open_timeline()
        lsn = self._taker.idle_lsn_at(self._reader.position)
        # No entry may appear below an LSN that `fn_cdc_get_max_lsn` has returned (docs/reference/sqlserver_cdc.md,
        # "Time mapping").
        is_due = timeline.seconds_since_newest(now / 1_000_000) > IDLE_ROW_SECONDS and lsn > timeline.newest_lsn
        if is_due:
            timeline.add_mark(lsn, datetime_seconds(now))
            timeline.flush()
        self._connection.commit()
        return is_due

    def show_holding(self, *, is_holding: bool) -> None:
        """Show in sys.databases.log_reuse_wait that changes wait in the log, or that they no longer do."""
        if is_holding != self._shows_holding:
            # A lock of the session: it ends with this process, however that ends.
            change = "lock" if is_holding else "unlock"
            self._run(
                f"SELECT pg_advisory_{change}_shared($1::int, $2::int)", (HELD_LOG_LOCK, self.database.database_id)
            )
            self._connection.commit()
            self._shows_holding = is_holding

    def record_empty_scans(self, count: int, started_at: datetime) -> None:
        """Show scans that found nothing in sys.dm_cdc_log_scan_sessions."""
        record_empty_scans(self._run, self.database.database_id, count, started_at)
        self._connection.commit()

    def _now(self) -> int:
        """Return the emulator's time in microseconds since 1970."""
        return self._taker.clock.shown(int(time.time() * 1_000_000))

    def _read_until(self, target: int) -> bool:
        """Take messages until the log is read up to ``target`` or the scan is full; True when it was read."""
        taker, reader = self._taker, self._reader
        asked = False
        while not taker.take():
            if self._is_stopped():
                # Half a transaction cannot be stored: its rows may appear only together with its commit.
                if taker.is_in_transaction:
                    raise ScanStoppedError
                return False
            if reader.position >= target and not taker.is_in_transaction:
                return True
            messages = reader.receive(_WAIT_SECONDS)
            taker.add_messages(messages)
            # Silence may mean that the publication left everything out, so the sender is asked how far it has read;
            # only after every second wait, as the answer comes during the next one.
            if not messages and not asked:
                reader.request_position()
            asked = not messages and not asked
        return False

    def _store(self, session: ScanSession) -> None:
        taker = self._taker
        taker.flush()
        if taker.has_written:
            end = taker.end_position
            self._run(
                "UPDATE emulator.cdc_positions SET position = $2::pg_lsn WHERE database_id = $1::int",
                (self.database.database_id, position_text(end)),
            )
            record_session(self._run, self.database.database_id, session)
            self._connection.commit()
            self._stored = end
        else:
            self._connection.rollback()
            # The new position is not written: each write would be news in the very log that is scanned. A restart reads
            # the skipped transactions again and finds nothing in them.
            self._stored = max(self._stored, taker.end_position)

    def _flush_position(self) -> int:
        # The sender sends only what is flushed.
        ((text,),) = self._run("SELECT pg_current_wal_flush_lsn()::text", ())
        self._connection.rollback()
        return parse_position(str(text))

    def _read_database(self, database_id: int) -> CdcDatabase:
        database = read_database(self._run, database_id)
        if database is None:
            raise CdcDisabledError(f"database {database_id} is not enabled for change data capture")
        return database

    def _read_position(self) -> int:
        ((text,),) = self._run(
            "SELECT position::text FROM emulator.cdc_positions WHERE database_id = $1::int",
            (self.database.database_id,),
        )
        return parse_position(str(text))

    def _mark_own_transactions(self) -> None:
        """Give this session a replication origin, so that no capture job reads back what capture jobs write."""
        name = self.database.slot
        self._run(
            "SELECT pg_replication_origin_create($1::text)"
            " WHERE NOT EXISTS (SELECT 1 FROM pg_replication_origin WHERE roname = $1::text)",
            (name,),
        )
        try:
            self._run("SELECT pg_replication_origin_session_setup($1::text)", (name,))
            self._has_origin = True
        except errors.ObjectInUse as error:
            raise LogReaderError(str(error), busy=True) from None
        except errors.ConfigurationLimitExceeded:
            # More databases than max_active_replication_origins: this job reads its own writes too, and skips them.
            self._connection.rollback()
