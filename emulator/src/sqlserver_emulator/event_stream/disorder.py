"""Deliveries that are not as the log has them: in another order, or with a message that is cut.

A server does the first without a partition key; the second is what a broken producer or broker leaves behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlserver_emulator.faults import FaultBoard, FaultKind

Messages = Mapping[tuple[str, int], Sequence[bytes]]
"""Bodies by hub and partition."""


def disturb(messages: Messages, partitions: int, faults: FaultBoard, database_id: int) -> Messages:
    """Return a delivery as the active faults leave it. Each fault counts the delivery."""
    if faults.meets_stream(FaultKind.STREAM_REORDERED, database_id):
        messages = scatter(messages, partitions)
    if faults.meets_stream(FaultKind.STREAM_MESSAGE_CUT, database_id):
        messages = cut_first(messages)
    return messages


def scatter(messages: Messages, partitions: int) -> Messages:
    """Return messages of each hub from last to first, dealt to its partitions in turn. Final segments come first."""
    dealt: dict[tuple[str, int], list[bytes]] = {}
    for hub in dict.fromkeys(hub for hub, _ in messages):
        bodies = [body for (each, _), found in messages.items() if each == hub for body in found]
        for place, body in enumerate(reversed(bodies)):
            dealt.setdefault((hub, place % partitions), []).append(body)
    return dealt


def cut_first(messages: Messages) -> Messages:
    """Return the messages with half of the first one."""
    (first, (body, *others)), *rest = messages.items()
    return {first: [body[: len(body) // 2], *others], **dict(rest)}
