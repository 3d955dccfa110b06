"""Deliveries that are not as the log has them: in another order, or with a message that is cut.

A server does the first without a partition key; the second is what a broken producer or broker leaves behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlserver_emulator.event_stream.destination import Hub, HubMessage
from sqlserver_emulator.faults import FaultBoard, FaultKind

Messages = Mapping[Hub, Sequence[HubMessage]]


def disturb(messages: Messages, faults: FaultBoard, database_id: int) -> Messages:
    """Return a delivery as the active faults leave it. Each fault counts the delivery."""
    if faults.meets_stream(FaultKind.STREAM_REORDERED, database_id):
        messages = scatter(messages)
    if faults.meets_stream(FaultKind.STREAM_MESSAGE_CUT, database_id):
        messages = cut_first(messages)
    return messages


def scatter(messages: Messages) -> Messages:
    """Return messages of each hub from last to first, without a key: they are dealt to its partitions."""
    return {hub: [HubMessage(None, body) for _, body in reversed(found)] for hub, found in messages.items()}


def cut_first(messages: Messages) -> Messages:
    """Return the messages with half of the first one."""
    (first, (message, *others)), *rest = messages.items()
    half = message._replace(body=message.body[: len(message.body) // 2])
    return {first: [half, *others], **dict(rest)}
