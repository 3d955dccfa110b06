"""Who is told of an alert, and when: once per event on every channel, and once more when it is over.

``Alerts`` is the port for whoever has something to say; ``AlertDesk`` is it, over a ledger that remembers what was said
and channels that say it. Telling somebody never fails the work that it is about: what goes wrong here is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from floodmark.core.alert import Alert, AlertMessage, build_over_message, build_raised_message
from floodmark.core.errors import FloodmarkError

_LOG = logging.getLogger(__name__)


class Alerts(Protocol):
    """What the rest of Floodmark knows of alerts. No method raises from ``core.errors``."""

    def raise_alert(self, alert: Alert) -> None:
        """Tell every channel that does not know yet. Repeat it for as long as the event lasts: a channel that could
        not be reached is told the next time."""

    def end_alert(self, event_key: str) -> None:
        """The event is over: tell those who were told of it. Harmless when there was none."""

    def end_alerts(self, kind: str, subject: str) -> None:
        """The same for every open alert of a kind about a subject."""


@dataclass(frozen=True, slots=True)
class OpenAlert:
    """An alert that is not over. times: how often it was raised."""

    alert: Alert
    raised_at: datetime
    seen_at: datetime
    times: int


@dataclass(slots=True)
class Delivery:
    """One message on its way. told: names of the channels that have it; add to it what was sent.

    due: the channels that are to have it, None for all there are.
    """

    alert: Alert
    raised_at: datetime
    ended_at: datetime | None = None
    due: frozenset[str] | None = None
    told: set[str] = field(default_factory=set)


class AlertLedger(Protocol):
    """Remembers alerts and who was told. While a delivery is open, nobody else delivers the same alert."""

    def raised(self, alert: Alert) -> AbstractContextManager[Delivery]:
        """Keeps the alert, and at the end of the block the channels that were told."""

    def ended(self, event_key: str) -> AbstractContextManager[Delivery | None]:
        """None: there is no such alert, or everybody has been told that it is over."""

    def list_open(self) -> Sequence[OpenAlert]:
        """The oldest first."""


class Channel(Protocol):
    """name: of the channel in the ledger; of two channels never the same."""

    @property
    def name(self) -> str: ...

    def send(self, message: AlertMessage) -> None:
        """Raises AlertNotSentError."""


class LogChannel:
    """The log of whoever runs: always there."""

    name = "log"

    def send(self, message: AlertMessage) -> None:
        _LOG.log(logging.INFO if message.is_over else logging.ERROR, "%s", message)


class AlertDesk:
    """``Alerts``. ledger: made when it is first needed, since reaching it can fail as well."""

    def __init__(self, ledger: Callable[[], AlertLedger], channels: Sequence[Channel]) -> None:
        self._ledger = ledger
        self._channels = (LogChannel(), *channels)

    def raise_alert(self, alert: Alert) -> None:
        delivery = Delivery(alert, datetime.now(UTC))
        try:
            with self._ledger().raised(alert) as delivery:
                self._deliver(delivery, build_raised_message(alert, delivery.raised_at))
        except FloodmarkError as error:
            # Without its memory the desk rather says it in every run than never. Whom this call has told is known.
            _LOG.warning("The ledger cannot keep alert %s: %s", alert.event_key, error)
            self._deliver(delivery, build_raised_message(alert, delivery.raised_at))

    def end_alert(self, event_key: str) -> None:
        try:
            with self._ledger().ended(event_key) as delivery:
                if delivery is not None and delivery.ended_at is not None:
                    message = build_over_message(delivery.alert, delivery.raised_at, delivery.ended_at)
                    self._deliver(delivery, message)
        except FloodmarkError as error:
            _LOG.warning("The end of alert %s waits for the next time: %s", event_key, error)

    def end_alerts(self, kind: str, subject: str) -> None:
        try:
            found = self._ledger().list_open()
        except FloodmarkError as error:
            _LOG.warning("The end of alerts of kind %s about %s waits for the next time: %s", kind, subject, error)
            return
        for each in found:
            if (each.alert.kind, each.alert.subject) == (kind, subject):
                self.end_alert(each.alert.event_key)

    def _deliver(self, delivery: Delivery, message: AlertMessage) -> None:
        for channel in self._channels:
            if channel.name in delivery.told or (delivery.due is not None and channel.name not in delivery.due):
                continue
            try:
                channel.send(message)
            except FloodmarkError as error:
                _LOG.warning("Channel %s was not told of alert %s: %s", channel.name, delivery.alert.event_key, error)
            else:
                delivery.told.add(channel.name)
