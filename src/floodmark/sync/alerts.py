"""Alerts: one message per event on every channel, and one more when the event has ended.

``Alerts`` is the port for code that has something to report. ``AlertService`` implements it over a ledger, which
remembers what was sent, and over channels. Sending never fails the work that an alert is about: what goes wrong here
is logged.

A channel that could not be reached is owed the message, also when the alert is not raised again, or has ended since.
It is offered what it is owed with the next message about any subject of the service.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

from floodmark.core.alert import Alert, AlertMessage, build_ended_message, build_raised_message
from floodmark.core.errors import FloodmarkError

_LOG = logging.getLogger(__name__)
_PATIENCE = 3
"""How often a channel may refuse while it is offered what it is owed, before it is left alone until the next time."""


class Alerts(Protocol):
    """What the rest of Floodmark knows of alerts. No method raises from ``core.errors``."""

    def raise_alert(self, alert: Alert) -> None:
        """Tell every channel that does not know yet. Repeat it for as long as the event lasts."""

    def end_alert(self, event_key: str, outcome: str = "") -> None:
        """The event is over: tell those who were told of it. Harmless when there was none. outcome: how it ended, where
        that is not clear from its being over, such as what somebody has decided."""

    def end_alerts(self, kind: str, subject: str, outcome: str = "") -> None:
        """The same for every open alert of a kind about a subject."""

    def end_part(self, kind: str, subject: str, part: str) -> None:
        """One part of the open alerts of a kind about a subject is over; and so is an alert that has none left."""


class NoAlerts:
    """``Alerts`` that notify nobody."""

    def raise_alert(self, alert: Alert) -> None:
        """Do nothing."""

    def end_alert(self, event_key: str, outcome: str = "") -> None:
        """Do nothing."""

    def end_alerts(self, kind: str, subject: str, outcome: str = "") -> None:
        """Do nothing."""

    def end_part(self, kind: str, subject: str, part: str) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class OpenAlert:
    """An alert that is not over. times: how often it was raised."""

    alert: Alert
    raised_at: datetime
    seen_at: datetime
    times: int


@dataclass(frozen=True, slots=True)
class OwedAlert:
    alert_id: int
    event_key: str
    subject: str


@dataclass(slots=True)
class Delivery:
    """One message on its way. told: names of the channels that have it; add to it what was sent.

    due: the channels that are to have it, None for all there are. outcome: how it ended.
    """

    alert: Alert
    raised_at: datetime
    ended_at: datetime | None = None
    due: frozenset[str] | None = None
    notified: set[str] = field(default_factory=set)
    outcome: str = ""


class AlertLedger(Protocol):
    """Remembers alerts and who was told. While a delivery is open, nobody else delivers the same alert."""

    def raised(self, alert: Alert) -> AbstractContextManager[Delivery]:
        """Keeps the alert, and at the end of the block the channels that were told."""

    def ended(self, event_key: str, outcome: str) -> AbstractContextManager[Delivery | None]:
        """None: there is no such alert, or it has parts left, or everybody has been told that it is over."""

    def end_part(self, kind: str, subject: str, part: str) -> Sequence[str]:
        """Takes the part out of every open alert that has it. Returns the event keys of those without any left."""

    def list_open(self) -> Sequence[OpenAlert]:
        """The oldest first."""

    def list_owed(self, channels: Sequence[str]) -> Sequence[OwedAlert]:
        """Which alerts one of these channels has still to hear of: that they are open, or that they are over."""

    def owed(self, alert_id: int) -> AbstractContextManager[Delivery | None]:
        """One of ``list_owed``, however it stands now. None: somebody else delivers it."""


class AlertNotes(Protocol):
    """Who was told of what while the ledger could not be reached. A small memory, of few alerts and no history."""

    def read(self) -> dict[str, Delivery]:
        """By event key. Empty where notes cannot be read."""

    def write(self, notes: Mapping[str, Delivery]) -> None:
        """All of them anew."""


class NoNotes:
    """For who has no place to keep them."""

    def read(self) -> dict[str, Delivery]:
        return {}

    def write(self, notes: Mapping[str, Delivery]) -> None:
        """They are gone."""


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


class AlertService:
    """``Alerts``. ledger: made when it is first needed, since reaching it can fail too; notes: in its place then.

    subjects: of the alerts that these channels are owed, since several configurations may share a ledger; None: of all.
    """

    def __init__(
        self, ledger: Callable[[], AlertLedger], channels: Sequence[Channel], notes: AlertNotes | None = None,
        subjects: Collection[str] | None = None,
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._channels = (LogChannel(), *channels)
        self._notes = notes or NoNotes()
        self._subjects = subjects

    def raise_alert(self, alert: Alert) -> None:
        notes = self._notes.read()
        noted = notes.get(alert.event_key)
        delivery = noted or Delivery(alert, datetime.now(UTC))
        try:
            with self._ledger().raised(alert) as delivery:
                if noted is not None:
                    delivery.notified |= noted.notified
                self._deliver(delivery, _message(delivery))
        except FloodmarkError as error:
            # Without any memory the desk rather says it in every run than never. Whom this call has told is known.
            _LOG.warning("The ledger cannot keep alert %s: %s", alert.event_key, error)
            self._deliver(delivery, _message(delivery))
            self._notes.write(notes | {alert.event_key: delivery})
        else:
            self._forget(notes, [alert.event_key])
            self._notify_owed([alert.event_key])

    def end_alert(self, event_key: str, outcome: str = "") -> None:
        self._end_noted(lambda delivery: delivery.alert.event_key == event_key, outcome)
        self._end_kept(event_key, outcome)

    def _end_kept(self, event_key: str, outcome: str = "") -> None:
        try:
            with self._ledger().ended(event_key, outcome) as delivery:
                if delivery is not None:
                    self._deliver(delivery, _message(delivery))
        except FloodmarkError as error:
            _LOG.warning("The end of alert %s waits for the next time: %s", event_key, error)

    def end_alerts(self, kind: str, subject: str, outcome: str = "") -> None:
        self._end_noted(lambda delivery: (delivery.alert.kind, delivery.alert.subject) == (kind, subject), outcome)
        try:
            found = self._ledger().list_open()
        except FloodmarkError as error:
            _LOG.warning("The end of alerts of kind %s about %s waits for the next time: %s", kind, subject, error)
            return
        ended = [
            each.alert.event_key for each in found if (each.alert.kind, each.alert.subject) == (kind, subject)
        ]  # fmt: skip
        for event_key in ended:
            self._end_kept(event_key, outcome)
        self._notify_owed(ended)

    def end_part(self, kind: str, subject: str, part: str) -> None:
        meant = (kind, subject, part)
        self._end_noted(lambda delivery: (delivery.alert.kind, delivery.alert.subject, delivery.alert.part) == meant)
        try:
            ended = self._ledger().end_part(kind, subject, part)
        except FloodmarkError as error:
            _LOG.warning("That %s is over of %s about %s is not kept: %s", part, kind, subject, error)
            return
        for event_key in ended:
            self._end_kept(event_key)
        self._notify_owed(ended)

    def _notify_owed(self, just_tried: Sequence[str]) -> None:
        """just_tried: event keys of what has been offered a moment ago."""
        refused: Counter[str] = Counter()
        try:
            ledger = self._ledger()
            for owed in ledger.list_owed([channel.name for channel in self._channels]):
                if owed.event_key in just_tried or (self._subjects is not None and owed.subject not in self._subjects):
                    continue
                with ledger.owed(owed.alert_id) as delivery:
                    if delivery is not None:
                        refused.update(self._deliver(delivery, _message(delivery), refused))
        except FloodmarkError as error:
            _LOG.warning("What channels are owed waits for the next time: %s", error)

    def _end_noted(self, is_over: Callable[[Delivery], bool], outcome: str = "") -> None:
        """Of what only the notes know. Who cannot be reached now never hears that it is over."""
        notes = self._notes.read()
        ended = [key for key, delivery in notes.items() if is_over(delivery)]
        for key in ended:
            raised = notes[key]
            delivery = Delivery(
                raised.alert, raised.raised_at, datetime.now(UTC), due=frozenset(raised.notified), outcome=outcome
            )
            self._deliver(delivery, _message(delivery))
        self._forget(notes, ended)

    def _forget(self, notes: Mapping[str, Delivery], keys: Sequence[str]) -> None:
        left = {key: delivery for key, delivery in notes.items() if key not in keys}
        if left != notes:
            self._notes.write(left)

    def _deliver(
        self, delivery: Delivery, message: AlertMessage, refused: Mapping[str, int] | None = None
    ) -> list[str]:
        """refused: how often channels did so already, to leave out who did too often. Returns who did now."""
        refusing = []
        for channel in self._channels:
            if channel.name in delivery.notified or (delivery.due is not None and channel.name not in delivery.due):
                continue
            if refused and refused.get(channel.name, 0) >= _PATIENCE:
                continue
            try:
                channel.send(message)
            except FloodmarkError as error:
                _LOG.warning("Channel %s was not told of alert %s: %s", channel.name, delivery.alert.event_key, error)
                refusing.append(channel.name)
            else:
                delivery.notified.add(channel.name)
        return refusing


def _message(delivery: Delivery) -> AlertMessage:
    """Of an alert that is open, or is over."""
    if delivery.ended_at is None:
        return build_raised_message(delivery.alert, delivery.raised_at)
    return build_ended_message(delivery.alert, delivery.raised_at, delivery.ended_at, delivery.outcome)
