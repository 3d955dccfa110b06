"""``AppContext``: the configuration of a use case, and the services that its caller provides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from floodmark.sync.alerts import Alerts, NoNotes
from floodmark.sync.ports.metrics import Metrics, NoMetrics
from floodmark.sync.ports.progress import LoggedProgress, Progress
from floodmark.wiring.alerts import wire_alerts

if TYPE_CHECKING:
    from floodmark.config.models import Config
    from floodmark.sync.alerts import AlertNotes


@dataclass(frozen=True)
class AppContext:
    """The context of one command or task."""

    config: Config
    notes: AlertNotes = field(default_factory=NoNotes)
    """Records which channels were notified while the ledger cannot be reached."""
    metrics: Metrics = field(default_factory=NoMetrics)
    progress: Progress = field(default_factory=LoggedProgress)
    """Receives the progress of reads that take long."""

    def alerts(self) -> Alerts:
        """Return the alerts of the configuration. It connects only when an alert is raised or ended."""
        return wire_alerts(self.config, self.notes)

    def pipelines_of(self, source: str) -> list[str]:
        """Return the names of the pipelines that read a source."""
        return [name for name, pipeline in self.config.pipelines.items() if pipeline.source == source]
