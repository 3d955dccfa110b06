"""The enumerations of the original's interface.

The values of ``TrackingKeyType`` and ``PurgeType`` are documented. Those of the single flags of ``TrackingOptions``
are not; they follow the order in which the documentation lists them. ``Max`` has no member: Python refuses other
values itself.
"""

from enum import Enum, IntEnum, IntFlag


class TrackingKeyType(IntEnum):
    """The key that identifies a row to the tracking (original: TrackingKeyType)."""

    NONE = 0
    """No key; refused (original: None)."""
    PRIMARY_KEY = 1
    """The primary key of the table (original: PrimaryKey)."""
    GUID = 2
    """The column declared ``uniqueidentifier ROWGUIDCOL`` (original: Guid)."""


class TrackingOptions(IntFlag):
    """The operations that are tracked (original: TrackingOptions)."""

    NONE = 0
    """Nothing; refused (original: None)."""
    INSERT = 1
    """Inserts (original: Insert)."""
    UPDATE = 2
    """Updates (original: Update)."""
    DELETE = 4
    """Deletes (original: Delete)."""
    ALL = 7
    """Inserts, updates and deletes; an exact enumeration needs it (original: All)."""


class PurgeType(IntEnum):
    """The measure of a purge (original: PurgeType)."""

    NONE = 0
    """No measure; refused (original: None)."""
    TIME_BASED = 1
    """Days since the delete or the commit (original: TimeBased)."""
    CSN_BASED = 2
    """The CSN of the transaction (original: CsnBased)."""


class Operation(Enum):
    """The net operation on a row within a window."""

    INSERT = "I"
    """The key was not there at the window's start."""
    UPDATE = "U"
    """The key was there at both ends."""
    DELETE = "D"
    """The key is no longer there at the window's end."""
