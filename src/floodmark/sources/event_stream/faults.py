"""The faults of messages. No text of them contains a value of a row.

A name of a column or of an attribute may be in a text, and a declared type: they are the shape of a table, not a row.
"""

from __future__ import annotations


class EventFaultError(Exception):
    """The base of all faults of a message or of what it contains."""


class PoisonError(EventFaultError):
    """A message that cannot be read: it belongs in quarantine, and the others are read."""


class UnknownVersionError(EventFaultError):
    """A message in another version of the format: it may be a change that a table must not miss."""

    def __init__(self, text: str, data: object) -> None:
        super().__init__(text)
        self.data = data
        """The attribute of the message."""
