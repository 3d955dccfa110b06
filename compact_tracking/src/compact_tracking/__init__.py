"""SQL Server Compact's change tracking on SQLite.

``ChangeTracking`` is the original's SqlCeChangeTracking, ``Transaction`` its SqlCeTransaction. See README.md.
"""

from compact_tracking.access import guard
from compact_tracking.changes import Anchor, Change
from compact_tracking.enabling import TrackedTable
from compact_tracking.enumerations import Operation, PurgeType, TrackingKeyType, TrackingOptions
from compact_tracking.errors import (
    AnchorError,
    AnchorExpiredError,
    AnchorReplacedError,
    AnchorRewoundError,
    DamagedFileError,
    InvalidOperationError,
    TrackingArgumentError,
    TrackingError,
    TrackingLostError,
    TrackingRangeError,
    TransactionLostError,
    UnsupportedError,
)
from compact_tracking.receipts import Receipt
from compact_tracking.shipping import is_read, open_shipped, ship_copy
from compact_tracking.snapshots import Snapshot, TableAnchor, is_unchanged, open_snapshot, read_device
from compact_tracking.tracking import ChangeTracking
from compact_tracking.transaction import Transaction

__all__ = [
    "Anchor",
    "AnchorError",
    "AnchorExpiredError",
    "AnchorReplacedError",
    "AnchorRewoundError",
    "Change",
    "ChangeTracking",
    "DamagedFileError",
    "InvalidOperationError",
    "Operation",
    "PurgeType",
    "Receipt",
    "Snapshot",
    "TableAnchor",
    "TrackedTable",
    "TrackingArgumentError",
    "TrackingError",
    "TrackingKeyType",
    "TrackingLostError",
    "TrackingOptions",
    "TrackingRangeError",
    "Transaction",
    "TransactionLostError",
    "UnsupportedError",
    "guard",
    "is_read",
    "is_unchanged",
    "open_shipped",
    "open_snapshot",
    "read_device",
    "ship_copy",
]
