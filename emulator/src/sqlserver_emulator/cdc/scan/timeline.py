"""``cdc.lsn_time_mapping``: which transaction was committed when. Owns its rows (docs/reference/sqlserver_cdc.md, "Time
mapping"), their order.

Rows of one scan gather here and are written with the changes. Times are the server's local time, as datetime rounds it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlserver_emulator.cdc.instances import CdcDatabase
from sqlserver_emulator.cdc.lsn import ZERO_LSN
from sqlserver_emulator.cdc.postgres import SqlConnection
from sqlserver_emulator.clock import LoggedClock

# docs/reference/sqlserver_cdc.md, "Time mapping": `tran_id` of an entry without a transaction is 0x0.
_NO_TRANSACTION = b"\0"
_TRANSACTION_ID_BYTES = 6
_DISORDER_SECONDS = 1.0
"""Far more than what commits are out of order by; beyond it, where the clock was ever set back, it was just that."""
_INSERT = """
INSERT INTO :cdc.lsn_time_mapping (start_lsn, tran_begin_time, tran_end_time, tran_id, tran_begin_lsn)
SELECT lsn, to_timestamp(seconds)::timestamp, to_timestamp(seconds)::timestamp, id, begin_lsn
FROM unnest($1::bytea[], $2::float8[], $3::bytea[], $4::bytea[]) AS t(lsn, seconds, id, begin_lsn)
"""
_NEWEST = """
SELECT start_lsn, extract(epoch FROM tran_end_time AT TIME ZONE current_setting('TimeZone'))::float8
FROM :cdc.lsn_time_mapping ORDER BY start_lsn DESC LIMIT 1
"""


def datetime_seconds(microseconds: int) -> float:
    """Return a moment in seconds, rounded to datetime's ticks of 1/300 s, in whole milliseconds (.000, .003, .007)."""
    # A tick is 10,000 / 3 microseconds; half of one is added to round to the nearest.
    ticks = (microseconds * 3 + 5_000) // 10_000
    return round(ticks * 10 / 3) / 1000


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One row of ``cdc.lsn_time_mapping``. ``seconds``: since 1970."""

    lsn: bytes
    seconds: float
    transaction_id: bytes
    begin_lsn: bytes


class Timeline:
    """The entries of one scan. ``newest_lsn``: the highest LSN written or gathered, b"" when there is none."""

    def __init__(self, connection: SqlConnection, database: CdcDatabase, clock: LoggedClock) -> None:
        self._connection = connection
        self._database = database
        self._clock = clock
        self._entries: list[TimelineEntry] = []
        row = connection.execute(database.sql(_NEWEST).encode()).fetchone()
        self.newest_lsn, self._newest_seconds = (bytes(row[0]), float(row[1])) if row else (b"", 0.0)

    def add_transaction(self, lsn: bytes, begin_lsn: bytes, transaction_id: int, committed_at: int) -> None:
        """Add a captured transaction; ``committed_at`` in microseconds since 1970.

        PostgreSQL takes the time just before it writes the commit record, so two commits may come in the other order;
        the time shown goes back only when the clock was set back.
        """
        seconds = datetime_seconds(committed_at)
        if self._is_out_of_order(seconds):
            # LSN order is commit order (docs/reference/sqlserver_cdc.md, "Time mapping").
            seconds = self._newest_seconds
        identity = transaction_id.to_bytes(_TRANSACTION_ID_BYTES, "big")
        self._add(TimelineEntry(lsn, seconds, identity, begin_lsn))

    def add_mark(self, lsn: bytes, seconds: float) -> None:
        """Add an entry without a transaction: idle, or an instance was enabled."""
        self._add(TimelineEntry(lsn, seconds, _NO_TRANSACTION, ZERO_LSN))

    def seconds_since_newest(self, now: float) -> float:
        """Return the age of the newest entry at ``now``."""
        return now - self._newest_seconds

    def flush(self) -> None:
        """Write the gathered entries."""
        entries, self._entries = self._entries, []
        if not entries:
            return
        self._connection.execute(
            self._database.sql(_INSERT).encode(),
            (
                [entry.lsn for entry in entries],
                [entry.seconds for entry in entries],
                [entry.transaction_id for entry in entries],
                [entry.begin_lsn for entry in entries],
            ),
        )

    def _add(self, entry: TimelineEntry) -> None:
        self._entries.append(entry)
        self.newest_lsn = entry.lsn
        if not self._is_out_of_order(entry.seconds):
            self._newest_seconds = entry.seconds

    def _is_out_of_order(self, seconds: float) -> bool:
        behind = self._newest_seconds - seconds
        return behind > 0 and (behind < _DISORDER_SECONDS or not self._clock.may_go_back)
