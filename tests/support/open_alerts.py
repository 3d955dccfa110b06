"""``Alerts`` that only remembers what is open."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from floodmark.core.alert import Alert
from floodmark.sync.alerts import Alerts


@dataclass
class OpenAlerts(Alerts):
    """open: by event key. outcomes: what was said at the end of those that had something to say, by the same key."""

    open: dict[str, Alert] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)

    def raise_alert(self, alert: Alert) -> None:
        self.open[alert.event_key] = alert

    def end_alert(self, event_key: str, outcome: str = "") -> None:
        self.open.pop(event_key, None)
        if outcome:
            self.outcomes[event_key] = outcome

    def end_alerts(self, kind: str, subject: str, outcome: str = "", *, keep: Collection[str] = ()) -> None:
        for key in [key for key, alert in self.open.items() if (alert.kind, alert.subject) == (kind, subject)]:
            if key not in keep:
                self.end_alert(key, outcome)

    def end_part(self, kind: str, subject: str, part: str) -> None:
        raise AssertionError("nobody asks for that here")

    @property
    def kinds(self) -> list[str]:
        return sorted(alert.kind for alert in self.open.values())
