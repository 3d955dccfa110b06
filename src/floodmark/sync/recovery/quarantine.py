"""Messages of members that could not be read: they are in quarantine, and an alert lasts as long as they are."""

from __future__ import annotations

from floodmark.core.alerts.messages import MESSAGES_QUARANTINED, messages_quarantined
from floodmark.sync.alerts import Alerts
from floodmark.sync.ports.ledger import Ledger


def update_quarantined(pipeline: str, ledger: Ledger, alerts: Alerts) -> None:
    """Raise the alert about messages in quarantine, or end it where there are none any more."""
    found = ledger.count_quarantined_messages(pipeline)
    if found.count:
        alerts.raise_alert(messages_quarantined(pipeline, found))
    else:
        alerts.end_alerts(MESSAGES_QUARANTINED, pipeline)
