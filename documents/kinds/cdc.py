"""The kind ``cdc``."""

from documents.situations import CAPTURE_JOB, LOG, SERVER, TRACKING, Kind
from floodmark.core.position import Lsn
from floodmark.core.snapshot import CDC_WORDS

KIND = Kind(
    "cdc",
    CDC_WORDS,
    "dbo_Orders",
    lambda number: Lsn(bytes.fromhex(f"0000002D{number:08X}0003")),
    (SERVER, LOG, TRACKING, CAPTURE_JOB),
)
