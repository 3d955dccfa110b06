"""The library's errors, sorted by who must act.

    TrackingError
    ├── TrackingArgumentError     the caller: an argument is wrong (ArgumentException)
    │   └── TrackingRangeError    the caller: a number or a choice is out of range (ArgumentOutOfRangeException)
    ├── InvalidOperationError     the caller: not possible in this state (InvalidOperationException)
    │   └── TransactionLostError  the caller: begin the transaction again
    ├── UnsupportedError          the owner of the device: what this file or this SQLite cannot do
    ├── DamagedFileError          the owner of the device: copy the file again
    └── AnchorError               the consumer: the anchor cannot be continued from, load the table again
        ├── TrackingLostError     the table lost its triggers or columns
        ├── AnchorReplacedError   the table's tracking was enabled again, or the file belongs to another device
        ├── AnchorExpiredError    a purge removed what the window needs
        └── AnchorRewoundError    the file is older than the anchor: it was put back from a copy

Errors of SQLite itself, such as "database is locked", arrive as they are: ``sqlite3.Error``.
"""


class TrackingError(Exception):
    """The root of all errors of this library."""


class TrackingArgumentError(TrackingError, ValueError):
    """An argument that cannot be used (original: ArgumentException)."""


class TrackingRangeError(TrackingArgumentError):
    """A number or a choice out of its range (original: ArgumentOutOfRangeException)."""


class InvalidOperationError(TrackingError):
    """A call that the present state does not allow (original: InvalidOperationException)."""


class TransactionLostError(InvalidOperationError):
    """A transaction that can no longer commit under its number; nothing was written, begin it again."""


class UnsupportedError(TrackingError):
    """A table, a file or a SQLite that the library cannot work with."""


class DamagedFileError(TrackingError):
    """A copy that is cut off, whose pages do not belong together, or whose own tables were replaced."""


class AnchorError(TrackingError):
    """An anchor from which changes cannot be enumerated exactly; the table has to be loaded again."""


class TrackingLostError(AnchorError):
    """A tracked table that lost its columns or triggers, so that changes may be missing."""


class AnchorReplacedError(AnchorError):
    """A table whose tracking began again after the anchor, or a file of another device."""


class AnchorExpiredError(AnchorError):
    """An anchor below the CSN up to which tracking data was purged."""


class AnchorRewoundError(AnchorError):
    """A file that does not hold the receipt of the anchor, as after a restore from an older copy."""
