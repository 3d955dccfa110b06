"""The page of the alerts: when each kind is raised, when it ends, and who must act."""

from __future__ import annotations

from documents.source_text import table
from floodmark.core.alerts import ALERT_KINDS


def alerts_page() -> str:
    """Return the page."""
    rows = [
        [f"`{name}`<br>{kind.standing.name.lower()}", kind.raised, kind.ends, kind.acts]
        for name, kind in sorted(ALERT_KINDS.items())
    ]
    return (
        "\n".join(
            [
                "# Alerts",
                "",
                "An alert is sent once when its event begins, and once when it ends. Its message says what happened,",
                "what it means and what to do. Under its name is the least status that `floodmark status` gives a",
                "pipeline while the alert is open. [Alerts](../operations.md#alerts) has the channels and the table of",
                "the ledger.",
                "",
                *table(["alert", "raised when", "ends when", "who acts"], rows),
            ]
        ).rstrip()
        + "\n"
    )
