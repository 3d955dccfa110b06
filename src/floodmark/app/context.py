"""``AppContext``: the configuration of a use case, and what the calling edge lends it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from floodmark.sync.alerts import Alerts, NoNotes
from floodmark.sync.ports.metrics import Metrics, NoMetrics
from floodmark.wiring.alerts import wire_alerts

if TYPE_CHECKING:
    from floodmark.config.models import Config
    from floodmark.sync.alerts import AlertNotes


@dataclass(frozen=True)
class AppContext:
    """Made once per command or task."""

    config: Config
    notes: AlertNotes = field(default_factory=NoNotes)
    """Remembers who was notified while the ledger cannot be reached."""
    metrics: Metrics = field(default_factory=NoMetrics)

    def alerts(self) -> Alerts:
        """Return the alerts of the configuration. Nothing is connected to before one is raised or ended."""
        return wire_alerts(self.config, self.notes)

    def pipelines_of(self, source: str) -> list[str]:
        """Return the names of the pipelines that read a source."""
        return [name for name, pipeline in self.config.pipelines.items() if pipeline.source == source]
