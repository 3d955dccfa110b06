"""The alerts of a configuration, with its ledger and its channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from floodmark.sync.alerts import AlertService
from floodmark.wiring.channels import ConnectedChannel
from floodmark.wiring.pipelines import wire_ledger

if TYPE_CHECKING:
    from floodmark.config.models import Config
    from floodmark.sync.alerts import AlertLedger, AlertNotes, Alerts, Channel


def wire_alerts(config: Config, notes: AlertNotes) -> Alerts:
    """Return the alerts about the sources and pipelines of the configuration.

    No connection is opened before an alert is raised or ended.
    """

    def ledger() -> AlertLedger:
        return wire_ledger(config).alerts()

    return AlertService(ledger, wire_channels(config), notes, {*config.pipelines, *config.sources})


def wire_channels(config: Config) -> Sequence[Channel]:
    """Return the channels besides the log."""
    return [ConnectedChannel(channel) for channel in config.alerts.channels]
