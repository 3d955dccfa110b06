"""Open alerts as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from floodmark.cli.grid import print_line

if TYPE_CHECKING:
    from floodmark.sync.alerts import OpenAlert

_INDENT = "  "


def print_alerts(console: Console, alerts: Sequence[OpenAlert]) -> None:
    """Print a paragraph for each alert."""
    if not alerts:
        print_line(console, "There is no open alert.")
    for each in alerts:
        alert = each.alert
        table = f", {alert.table}" if alert.table else ""
        heading = f"{alert.kind}: {alert.subject}{table}, since {each.raised_at:%Y-%m-%d %H:%M:%S %Z}"
        print_line(console, heading, "bold red")
        for text in (alert.what, alert.means, f"What to do: {alert.do}"):
            print_line(console, text, indent=_INDENT)


def alerts_json(alerts: Sequence[OpenAlert]) -> str:
    """Return the alerts as JSON."""
    return json.dumps([_document(each) for each in alerts], indent=2)


def _document(each: OpenAlert) -> dict[str, Any]:
    alert = each.alert
    return {
        "kind": alert.kind,
        "subject": alert.subject,
        "table": str(alert.table) if alert.table else None,
        "what": alert.what,
        "means": alert.means,
        "do": alert.do,
        "raised_at": each.raised_at.isoformat(),
        "seen_at": each.seen_at.isoformat(),
        "times": each.times,
    }
