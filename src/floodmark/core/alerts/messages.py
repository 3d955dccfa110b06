"""The alert about messages that could not be read as changes."""

from __future__ import annotations

from floodmark.core.alert import Alert
from floodmark.core.window.members import QuarantinedMessages

MESSAGES_QUARANTINED = "messages_quarantined"
_SHOWN = 3


def messages_quarantined(pipeline: str, found: QuarantinedMessages) -> Alert:
    """Return the alert about the messages of a pipeline in quarantine: one while there are any."""
    shown = "; ".join(f"{reason} ({count:,})" for reason, count in found.reasons[:_SHOWN])
    more = "; and other reasons" if len(found.reasons) > _SHOWN else ""
    return Alert(
        kind=MESSAGES_QUARANTINED,
        subject=pipeline,
        what=f"{found.count:,} messages of the stream could not be read as changes: {shown}{more}.",
        means="The rows that they changed may be wrong in the target until their next change. The others are correct.",
        do=(
            f"See the rows of pipeline {pipeline} in floodmark.quarantined_messages. Run `floodmark verify {pipeline}`,"
            " and `floodmark reload` for a table that differs. Then delete the rows."
        ),
        event_key=f"{MESSAGES_QUARANTINED}:{pipeline}",
    )
