"""Transaction manager requests (packet 0x0E): begin, commit, roll back, save. Distributed ones are refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from sqlserver_emulator.errors import NotSupportedByEmulatorError
from sqlserver_emulator.tds.reading import MessageReader, skip_all_headers

_BEGIN_ANOTHER = 0x01


class TransactionKind(IntEnum):
    BEGIN = 5
    COMMIT = 7
    ROLLBACK = 8
    SAVE = 9


_REFUSED = {
    0: "distributed transactions (TM_GET_DTC_ADDRESS)",
    1: "distributed transactions (TM_PROPAGATE_XACT)",
    6: "distributed transactions (TM_PROMOTE_XACT)",
}


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """``begins_another``: after COMMIT or ROLLBACK a new transaction is to begin at once, with ``isolation``."""

    kind: TransactionKind
    name: str = ""
    isolation: int = 0
    begins_another: bool = False
    next_name: str = ""


def parse_transaction(payload: bytes) -> TransactionRequest:
    reader = MessageReader(payload)
    skip_all_headers(reader)
    number = reader.read_u16()
    try:
        kind = TransactionKind(number)
    except ValueError:
        what = _REFUSED.get(number, f"transaction manager request {number}")
        raise NotSupportedByEmulatorError(what) from None
    if kind is TransactionKind.BEGIN:
        isolation = reader.read_u8()
        return TransactionRequest(kind, _read_name(reader), isolation)
    name = _read_name(reader)
    if kind is TransactionKind.SAVE or reader.at_end or not reader.read_u8() & _BEGIN_ANOTHER:
        return TransactionRequest(kind, name)
    isolation = reader.read_u8()
    return TransactionRequest(kind, name, isolation, begins_another=True, next_name=_read_name(reader))


def _read_name(reader: MessageReader) -> str:
    """B_VARBYTE holding UTF-16, unlike a B_VARCHAR: its length counts bytes."""
    if reader.at_end:
        return ""
    return reader.read_text(reader.read_u8() // 2)
