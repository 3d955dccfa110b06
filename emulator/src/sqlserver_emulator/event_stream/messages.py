"""The errors of change event streaming by number. The numbers are Microsoft's; the inner texts are the emulator's own,
since only their meaning was taken from the list of errors."""

from __future__ import annotations

from sqlserver_emulator.errors import SqlServerError
from sqlserver_emulator.events import Info

_TEXTS = {
    23613: "The credential with the identity '%s' has no secret, and the broker wants a login.",
    23616: "The parameter '%s' can be given only with the partition key scheme 'Column'.",
    23617: "The partition key scheme 'Column' requires the parameter '%s'.",
    23618: "The value '%s' of the parameter '%s' is not one of: %s.",
    23619: "The stream group '%s' exists already.",
    23620: "The %s '%s' does not exist.",
    23621: "The parameter '%s' must not be null or empty.",
    23623: "The database '%s' does not have PREVIEW_FEATURES = ON, which change event streaming requires.",
    23624: "The caller needs the permission CONTROL on the database '%s'.",
    23628: "The name '%s' is not of the form schemaName.objectName.",
    23634: "%s is not supported for change event streaming.",
    23636: "Change event streaming is not enabled in the database '%s'.",
    23641: "@include_old_lob_values = 1 requires @include_old_values = 1.",
    23642: "The destination location '%s' is not of the form <namespace>.servicebus.windows.net[:port]/<hub>.",
    23643: "The table '%s' is in a stream group already.",
    23644: "The table '%s' is not in the stream group '%s'.",
    23646: "A message for the destination '%s' is larger than the broker takes: %s",
    23648: "Change event streaming cannot be enabled in the system database '%s'.",
    23650: "Change event streaming cannot be enabled: the database '%s' has change data capture.",
    23653: "Change event streaming is enabled in the database '%s' already.",
    23659: "The table '%s' is streamed. This change of its schema is not supported.",
    23661: "The table '%s' is streamed, and cannot be renamed. Remove it from its stream group first.",
    23662: "The table '%s' is streamed, and cannot be dropped. Remove it from its stream group first.",
    23663: "The table '%s' is streamed, and cannot be truncated. Remove it from its stream group first.",
    23664: "The table '%s' is streamed: a primary key cannot be added. Remove it from its stream group first.",
    23665: "The table '%s' is streamed: its primary key cannot be dropped. Remove it from its stream group first.",
    23666: "The maximal size of a message must be from %d to %d KB.",
    23677: "The broker of the destination '%s' reported: %s",
    23679: "The destination '%s' cannot be reached: %s",
    23680: "The destination '%s' does not exist: %s",
    23681: "The destination '%s' refused the login: %s",
    23690: "The login may not write to the destination '%s': %s",
    23692: "The end of a delivery to the destination '%s' is not known: %s",
    23693: "The broker of the destination '%s' did not answer in time: %s",
    23694: "There is no secure connection to the destination '%s': %s",
    23803: "The credential '%s' is used by a stream group.",
    23805: "The procedure '%s' is deprecated. Use '%s'.",
}


def stream_error(number: int, *values: object) -> SqlServerError:
    """Return the error with its text filled in; severity 16, state 1."""
    text = _TEXTS[number]
    return SqlServerError(number, text % values if values else text)


def deprecation(name: str, newer: str) -> Info:
    """Return the notice 23805 of a procedure that has a newer name."""
    return Info(23805, _TEXTS[23805] % (name, newer), severity=10)


def wrapped(error: SqlServerError) -> SqlServerError:
    """Return the error 23626 that the procedures raise around another."""
    text = "An error occurred. The error/state returned was %d/%d: '%s'."
    return SqlServerError(23626, text % (error.number, error.state, error.message))
