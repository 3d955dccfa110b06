"""``RaisedAlerts``: what a channel would have been sent."""

from __future__ import annotations

from dataclasses import dataclass, field

from floodmark.core.alert import Alert


@dataclass
class RaisedAlerts:
    """``sync.alerts.Alerts`` that keeps what is raised and ended, one by one."""

    raised: list[Alert] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def raise_alert(self, alert: Alert) -> None:
        self.raised.append(alert)

    def end_alert(self, event_key: str, outcome: str = "") -> None:
        self.ended.append(event_key)

    def end_alerts(self, kind: str, subject: str) -> None:
        raise AssertionError("alerts are ended one by one here")
