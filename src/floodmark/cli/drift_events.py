"""Drift events as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from floodmark.cli.grid import Column, Grid, GridRow
from floodmark.core.drift.messages import describe, describe_ddl, describe_effect
from floodmark.sync.drift.events import describe_shared_proposal, proposed_with

if TYPE_CHECKING:
    from floodmark.core.drift.switch import InstanceSwitch
    from floodmark.core.drift.words import DriftWords
    from floodmark.sync.ports.drift import DriftEvent


_COLUMNS = (
    Column("event", 9, is_number=True),
    Column("table", 8),
    Column("what", 7),
    Column("held in", 6),
    Column("decided", 4),
    Column("found (UTC)", 3),
    Column("policy", 2),
    Column("source", 1),
)


def print_drift(console: Console, events: Sequence[DriftEvent], *, wide: bool) -> None:
    """Print one row per event. The proposed statements are in ``drift_details``."""
    rows = []
    for event in events:
        policies = ", ".join(f"{pipeline}: {policy.value}" for pipeline, policy in sorted(event.policies.items()))
        how = "rejected" if event.is_rejected else "approved"
        decided = f"{how} {event.approved_at:%Y-%m-%d %H:%M} by {event.approved_by}" if event.approved_at else "-"
        cells = (
            str(event.event_id),
            str(event.table),
            describe(event.explained.difference),
            ", ".join(event.held) or "-",
            decided,
            f"{event.found_at:%Y-%m-%d %H:%M}",
            policies,
            event.source,
        )
        rows.append(GridRow(cells, "red" if event.held else ""))
    Grid("schema drift", _COLUMNS, rows).print(console, wide=wide)


def drift_details(events: Sequence[DriftEvent], words_of: Callable[[DriftEvent], DriftWords]) -> str:
    """Return the DDL behind each event, its effect, and the proposed T-SQL. words_of: by the kind of its source."""
    lines = []
    for event in events:
        words = words_of(event)
        lines.append(f"Event {event.event_id}, {event.table}: {describe_ddl(event.explained, words)}")
        lines.append(f"  {describe_effect(event.explained.difference, event.policies, words)}")
        if event.proposal and event.approved_at is None:
            lines += [f"  {shared}"] if (shared := describe_shared_proposal(proposed_with(event, events))) else []
            lines += [f"  To capture it, floodmark drift approve {event.event_id} runs:", event.proposal]
    return "\n".join(lines)


def switch_lines(switches: Sequence[InstanceSwitch]) -> str:
    """Return the progress of each switch according to the ledger."""
    lines = []
    for switch in switches:
        lines.append(
            f"Switch {switch.switch_id} of {switch.table}: from {switch.old.name} to {switch.name}, with "
            f"{', '.join(switch.added)}; {switch.state.value}, approved by {switch.approved_by}."
        )
        for each in switch.pipelines:
            filled = (
                "its new columns are loaded" if each.is_filled else f"window {each.window_id} loads the new columns"
            )
            lines.append(f"  {each.pipeline} reads {switch.name} after {each.watermark}; {filled}.")
    return "\n".join(lines)


def drift_json(events: Sequence[DriftEvent]) -> str:
    """Return the drift events as JSON."""
    return json.dumps([_document(event) for event in events], indent=2)


def _document(event: DriftEvent) -> dict[str, Any]:
    difference = event.explained.difference
    return {
        "event_id": event.event_id,
        "source": event.source,
        "table": str(event.table),
        "capture_instance": event.identity.name,
        "kind": difference.kind.value,
        "column": difference.column,
        "before": difference.before,
        "after": difference.after,
        "obstacle": difference.obstacle,
        "ddl": [
            {"lsn": str(entry.lsn), "at": entry.at.isoformat(), "text": entry.text} for entry in event.explained.entries
        ],
        "policies": {pipeline: policy.value for pipeline, policy in event.policies.items()},
        "held": list(event.held),
        "proposal": event.proposal,
        "found_at": event.found_at.isoformat(),
        "approved_at": event.approved_at.isoformat() if event.approved_at else None,
        "approved_by": event.approved_by,
        "is_rejected": event.is_rejected,
    }
