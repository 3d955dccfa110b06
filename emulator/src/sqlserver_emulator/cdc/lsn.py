"""Log sequence numbers: how a position of PostgreSQL's write-ahead log is shown as SQL Server's ten bytes.

Owns the arithmetic only. SQL Server's LSN is VLF (4 bytes), log block (4 bytes), slot (2 bytes), compared bytewise.
A PostgreSQL position is a byte offset, and records begin at multiples of eight, so nothing is lost by

    VLF = offset / 16 MiB + 0x20    block = (offset mod 16 MiB) / 8    slot = what happened there

The slot distinguishes what shares a record: 0 is the idle mark just before a record, 1 is the record itself (a commit,
the start of a transaction), 2 and above count the rows of one record (a bulk insert writes many rows in one). The first
VLF is 0x20 because no LSN that means something may be 0x00….
"""

from __future__ import annotations

from struct import Struct

LSN_BYTES = 10
ZERO_LSN = bytes(LSN_BYTES)

IDLE_SLOT = 0
RECORD_SLOT = 1
FIRST_ROW_SLOT = 2

_LAYOUT = Struct(">IIH")
_ALIGNMENT = 8
_FIRST_VLF = 0x20
_VLF_BITS = 24
_BLOCK_MASK = (1 << _VLF_BITS) - 1


def lsn_at(position: int, slot: int = RECORD_SLOT) -> bytes:
    """Return the ten-byte LSN of ``slot`` at a write-ahead log position."""
    # The offset in blocks of eight bytes fits the log block's four bytes; the slot has the two that are left.
    return _LAYOUT.pack((position >> _VLF_BITS) + _FIRST_VLF, (position & _BLOCK_MASK) >> 3, slot)


def position_of(lsn: bytes) -> int:
    """Return the write-ahead log position that ``lsn`` was made from; the slot is dropped."""
    vlf: int
    block: int
    vlf, block, _ = _LAYOUT.unpack(lsn)
    return ((vlf - _FIRST_VLF) << _VLF_BITS) | (block << 3)


def shift_to(here: int, lsn: bytes) -> int:
    """Return how far positions from ``here`` on are moved, so that their LSNs begin just above ``lsn``."""
    # Positions of commit records are multiples of eight; one step less keeps the next one above ``lsn``.
    return (here - position_of(lsn)) // _ALIGNMENT * _ALIGNMENT - _ALIGNMENT


def lsn_text(lsn: bytes) -> str:
    """Return the LSN as the management views print it: ``0000002D:00000580:001D``."""
    digits = lsn.hex().upper()
    return f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"


def parse_position(text: str) -> int:
    """Return the position of a PostgreSQL ``pg_lsn`` such as ``16/B374D848``."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def position_text(position: int) -> str:
    """Return the ``pg_lsn`` text of a position."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
