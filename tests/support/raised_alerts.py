"""``RaisedAlerts``: what a channel would have been sent."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from floodmark.core.alert import Alert
from floodmark.sync.alerts import Alerts


@dataclass
class RaisedAlerts(Alerts):
    """``sync.alerts.Alerts`` that keeps what is raised and ended, one by one."""

    raised: list[Alert] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def raise_alert(self, alert: Alert) -> None:
        self.raised.append(alert)

    def end_alert(self, event_key: str, outcome: str = "") -> None:
        self.ended.append(event_key)

    def end_alerts(self, kind: str, subject: str, outcome: str = "", *, keep: Collection[str] = ()) -> None:
        of_kind = {alert.event_key for alert in self.raised if (alert.kind, alert.subject) == (kind, subject)}
        self.ended += sorted(of_kind.difference(keep, self.ended))

    def end_part(self, kind: str, subject: str, part: str) -> None:
        raise AssertionError("nobody asks for that here")
