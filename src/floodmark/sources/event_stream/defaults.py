"""The rules that Microsoft does not document, and the answers that Floodmark assumes.

Each is an entry of ``DEFAULTS``, with the number of the open question that it answers and the code that holds it. A
capture of a real server settles a question: then that code changes, and its entry. A test compares the entries with the
table in docs/reference/event_stream.md, "Defaults".
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

CUT_LENGTH = 1 << 20
"""The length at which the server cuts a value of a LOB."""
BIT_TEXTS = {"1": True, "0": False, "true": True, "false": False}
"""The texts of a bit, in lower case. The first of a value is the one that is written."""
HEX_PREFIX = "0x"
"""The beginning of a binary value in hexadecimal digits; without it, the value is read as base64."""

EPOCH_SLACK = timedelta(seconds=10)
"""The time by which the commits of a server may be out of the order of their LSNs."""


@dataclass(frozen=True, slots=True)
class FormatDefault:
    """A rule on which the code relies without a document."""

    question: int
    """The number of the open question; several rules may answer one."""
    rule: str
    """The rule, as a short noun."""
    default: str
    """The answer that is assumed."""
    place: str
    """The module and the name that hold it."""


DEFAULTS = (
    FormatDefault(1, "NULL", "`null`, or absent from an image that has values", "change.complete_image"),
    FormatDefault(1, "an absent old LOB", "unknown, not NULL", "change.complete_old"),
    FormatDefault(2, "text of bit", "written `1` or `0`, also read `true` or `false`", "defaults.BIT_TEXTS"),
    FormatDefault(
        2, "text of binary types", "written as `0x` and hexadecimal digits, also read as base64", "defaults.HEX_PREFIX"
    ),
    FormatDefault(
        2, "text of other types", "one form per type, read with more or fewer digits than declared", "values.FORMS"
    ),
    FormatDefault(
        3,
        "the identifier in `logicalid`",
        "once two commits had the same one, a newer event with another one begins an epoch",
        "epochs.Epoch",
    ),
    FormatDefault(
        3,
        "a commit LSN below the newest one",
        "begins an epoch if its commit is newer by more than 10 seconds",
        "defaults.EPOCH_SLACK",
    ),
    FormatDefault(
        4,
        "`id` of a message that is sent again",
        "may be new: segments are known by topic, `logicalid` and index",
        "rows.StreamMessage",
    ),
    FormatDefault(
        5,
        "first index of segments",
        "0 or 1 is read, by the data of each group",
        "rows.SegmentJoiner",
    ),
    FormatDefault(
        6,
        "length of a cut value",
        "1,048,576 bytes in UTF-8 or UTF-16, characters or bytes of a binary value",
        "defaults.CUT_LENGTH",
    ),
    FormatDefault(
        7,
        "update of a key",
        "either an update whose images have different keys, or a delete and an insert",
        "change.parse_change",
    ),
    FormatDefault(
        8, "framing of Avro", "a bare datum; an object container file is read too", "envelope.read_avro_envelope"
    ),
    FormatDefault(9, "headers and key of a message", "not used", "rows.StreamMessage"),
    FormatDefault(
        10,
        "numbers of changes that are not streamed",
        "none: holes in sequence numbers mean nothing",
        "change.EventTransaction",
    ),
    FormatDefault(11, "delete without old values", "known by `pkkey` alone", "change.check_images"),
    FormatDefault(
        12,
        "alias types and computed columns",
        "read by their declared type; a type without a form is refused",
        "change.parse_column",
    ),
)
"""In the order of their questions."""


def describe_defaults() -> str:
    """Return the table of the defaults in Markdown."""
    rows = [f"| {each.question} | {each.rule} | {each.default} | `{each.place}` |" for each in DEFAULTS]
    return "\n".join(["| question | rule | default | held by |", "|---|---|---|---|", *rows])
