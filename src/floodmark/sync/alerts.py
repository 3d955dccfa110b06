"""Alerts: one message per event on every channel, and one more when the event has ended.

``Alerts`` is the port for code that raises alerts. ``AlertService`` implements it over a ledger, which records what
was sent, and over channels. An error while sending never fails the work that an alert is about: it is logged.

A channel that could not be reached is still owed the message, also when the alert is not raised again or has ended
meanwhile. Owed messages are sent together with the next message about any subject of the service.

The alerts about tables that are left out of windows, and about what is in quarantine, are raised here from the ledger.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from floodmark.core.alert import Alert, AlertMessage, build_ended_message, build_raised_message
from floodmark.core.alerts import (
    MESSAGES_QUARANTINED,
    ROWS_QUARANTINED,
    TABLE_LEFT_OUT,
    left_out,
    left_out_keys,
    messages_quarantined,
    rows_quarantined,
)
from floodmark.core.errors import FloodmarkError
from floodmark.core.plan import WindowPlan, is_load_lane
from floodmark.core.settings import PipelineSettings
from floodmark.core.snapshot import Validity
from floodmark.core.verdicts import incident

if TYPE_CHECKING:
    from floodmark.postgres.ledger.ledger import PostgresLedger
    from floodmark.postgres.ledger.status import PostgresAlertLedger

_LOG = logging.getLogger(__name__)
_PATIENCE = 3
"""The number of owed messages that a channel may refuse before it is skipped until the next time."""


class Alerts:
    """The port for raising and ending alerts. This class notifies no channel. No method raises from ``core.errors``."""

    def raise_alert(self, alert: Alert) -> None:
        """Notify every channel that has not been notified yet. Repeat the call for as long as the event lasts."""

    def end_alert(self, event_key: str, outcome: str = "") -> None:
        """Notify the channels that received an alert that its event has ended. Harmless where there is no such alert.

        outcome: how the event ended, where that is not obvious, such as a decision of the operator.
        """

    def end_alerts(self, kind: str, subject: str, outcome: str = "", *, keep: Collection[str] = ()) -> None:
        """Do the same for every open alert of a kind about a subject.

        keep: the event keys of those that last.
        """

    def end_part(self, kind: str, subject: str, part: str) -> None:
        """End one part of the open alerts of a kind about a subject, and the alerts that have no part left."""


@dataclass(frozen=True, slots=True)
class OpenAlert:
    """An alert that has not ended."""

    alert: Alert
    raised_at: datetime
    seen_at: datetime
    times: int
    """How often it was raised."""


@dataclass(frozen=True, slots=True)
class OwedAlert:
    """An alert of which a channel has still to be notified."""

    alert_id: int
    event_key: str
    subject: str


@dataclass(slots=True)
class Delivery:
    """One message that is being sent."""

    alert: Alert
    raised_at: datetime
    ended_at: datetime | None = None
    due: frozenset[str] | None = None
    """The channels that are to receive it, None for all."""
    notified: set[str] = field(default_factory=set)
    """The channels that have received it. Add to it each channel that the message was sent to."""
    outcome: str = ""
    """How the event ended."""


class AlertNotes:
    """A record of the channels that were notified while the ledger could not be reached: few alerts, no history.

    This class is for processes that cannot store notes.
    """

    def read(self) -> dict[str, Delivery]:
        """Return the notes by event key. Empty where they cannot be read."""
        return {}

    def write(self, notes: Mapping[str, Delivery]) -> None:
        """Replace all notes."""


class Channel(Protocol):
    """A receiver of messages."""

    @property
    def name(self) -> str:
        """The unique name of the channel in the ledger."""

    def send(self, message: AlertMessage) -> None:
        """Send a message. Raises AlertNotSentError."""


class LogChannel:
    """The log of the current process. It is always available."""

    name = "log"

    def send(self, message: AlertMessage) -> None:
        _LOG.log(logging.INFO if message.is_over else logging.ERROR, "%s", message)


class AlertService(Alerts):
    """``Alerts`` over a ledger and channels.

    ledger: called when it is first needed, because connecting can fail. notes: used while the ledger cannot be reached.
    subjects: owed messages are limited to these, since several configurations may share a ledger; None for all.
    links: returns headings and addresses for the end of a message.
    """

    def __init__(
        self,
        ledger: Callable[[], PostgresAlertLedger],
        channels: Sequence[Channel],
        notes: AlertNotes | None = None,
        subjects: Collection[str] | None = None,
        *,
        links: Callable[[Alert], Sequence[tuple[str, str]]] = lambda _: (),
    ) -> None:
        self._ledger = ledger
        self._links = links
        self._channels = (LogChannel(), *channels)
        self._notes = notes or AlertNotes()
        self._subjects = subjects

    def raise_alert(self, alert: Alert) -> None:
        notes = self._notes.read()
        noted = notes.get(alert.event_key)
        delivery = noted or Delivery(alert, datetime.now(UTC))
        try:
            with self._ledger().raised(alert) as delivery:
                if noted is not None:
                    delivery.notified |= noted.notified
                self._deliver(delivery, self._message(delivery))
        except FloodmarkError as error:
            # Without a record the alert is sent in every run rather than never. The delivery has the channels of this
            # call.
            _LOG.warning("Could not record alert %s in the ledger: %s", alert.event_key, error)
            self._deliver(delivery, self._message(delivery))
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
                    self._deliver(delivery, self._message(delivery))
        except FloodmarkError as error:
            _LOG.warning("Could not record the end of alert %s, it is tried again later: %s", event_key, error)

    def end_alerts(self, kind: str, subject: str, outcome: str = "", *, keep: Collection[str] = ()) -> None:
        def is_over(alert: Alert) -> bool:
            return (alert.kind, alert.subject) == (kind, subject) and alert.event_key not in keep

        self._end_noted(lambda delivery: is_over(delivery.alert), outcome)
        try:
            found = self._ledger().list_open()
        except FloodmarkError as error:
            _LOG.warning("Could not end alerts %s of %s, it is tried again later: %s", kind, subject, error)
            return
        ended = [each.alert.event_key for each in found if is_over(each.alert)]
        for event_key in ended:
            self._end_kept(event_key, outcome)
        self._notify_owed(ended)

    def end_part(self, kind: str, subject: str, part: str) -> None:
        wanted = (kind, subject, part)
        self._end_noted(lambda delivery: (delivery.alert.kind, delivery.alert.subject, delivery.alert.part) == wanted)
        try:
            ended = self._ledger().end_part(kind, subject, part)
        except FloodmarkError as error:
            _LOG.warning("Could not record that part %s of alert %s (%s) has ended: %s", part, kind, subject, error)
            return
        for event_key in ended:
            self._end_kept(event_key)
        self._notify_owed(ended)

    def _notify_owed(self, just_tried: Sequence[str]) -> None:
        """Send what channels are owed. just_tried: event keys of the alerts that were sent a moment ago."""
        refused: Counter[str] = Counter()
        try:
            ledger = self._ledger()
            for owed in ledger.list_owed([channel.name for channel in self._channels]):
                if owed.event_key in just_tried or (self._subjects is not None and owed.subject not in self._subjects):
                    continue
                with ledger.owed(owed.alert_id) as delivery:
                    if delivery is not None:
                        refused.update(self._deliver(delivery, self._message(delivery), refused))
        except FloodmarkError as error:
            _LOG.warning("Could not send owed messages, they are tried again later: %s", error)

    def _end_noted(self, is_over: Callable[[Delivery], bool], outcome: str = "") -> None:
        """End the alerts that only the notes hold. A channel that cannot be reached now is never notified of the
        end."""
        notes = self._notes.read()
        ended = [key for key, delivery in notes.items() if is_over(delivery)]
        for key in ended:
            raised = notes[key]
            delivery = Delivery(
                raised.alert, raised.raised_at, datetime.now(UTC), due=frozenset(raised.notified), outcome=outcome
            )
            self._deliver(delivery, self._message(delivery))
        self._forget(notes, ended)

    def _message(self, delivery: Delivery) -> AlertMessage:
        """Return the message about an open or an ended alert."""
        alert, links = delivery.alert, tuple(self._links(delivery.alert))
        if delivery.ended_at is None:
            return build_raised_message(alert, delivery.raised_at, links)
        return build_ended_message(alert, delivery.raised_at, delivery.ended_at, delivery.outcome, links)

    def _forget(self, notes: Mapping[str, Delivery], keys: Sequence[str]) -> None:
        left = {key: delivery for key, delivery in notes.items() if key not in keys}
        if left != notes:
            self._notes.write(left)

    def _deliver(
        self, delivery: Delivery, message: AlertMessage, refused: Mapping[str, int] | None = None
    ) -> list[str]:
        """Send a message to the channels that need it. Return the channels that refused it.

        refused: the number of refusals per channel so far; channels with too many are skipped.
        """
        refusing = []
        for channel in self._channels:
            if channel.name in delivery.notified or (delivery.due is not None and channel.name not in delivery.due):
                continue
            if refused and refused.get(channel.name, 0) >= _PATIENCE:
                continue
            try:
                channel.send(message)
            except FloodmarkError as error:
                _LOG.warning(
                    "Could not notify channel %s of alert %s: %s", channel.name, delivery.alert.event_key, error
                )
                refusing.append(channel.name)
            else:
                delivery.notified.add(channel.name)
        return refusing


# --------------------------------------------------------------------------------------------------------------------
# Tables that are left out of windows: by a gap (``on_gap: fail``), or because they cannot be read, planned or merged.
#
# They are reported at the end of each run, after the other tables have been published: by the error of the run, and by
# an alert for each table, which lasts from the first such run until the table is in a window again or has been loaded.


def find_stopped(settings: PipelineSettings, ledger: PostgresLedger) -> FloodmarkError | None:
    """Return the error of the gravest verdict, which names all stopped tables; None where no table is stopped."""
    return incident(settings.name, _list_stopped(settings, ledger))


def report_left_out(settings: PipelineSettings, ledger: PostgresLedger, alerts: Alerts) -> tuple[str, ...]:
    """Raise the alert about each table that is left out. Return the event keys."""
    found = [left_out(settings.name, validity) for validity in _list_stopped(settings, ledger)]
    for alert in found:
        alerts.raise_alert(alert)
    return tuple(alert.event_key for alert in found)


def update_left_out(settings: PipelineSettings, ledger: PostgresLedger, alerts: Alerts) -> None:
    """Raise the alert about each table that is left out, and end those about the others.

    For the end of a run, when the verdicts are those of the run. A table that is being loaded keeps its alert.
    """
    raised = report_left_out(settings, ledger, alerts)
    loads = [each.plan.tables for each in ledger.list_unfinished(settings.name) if is_load_lane(each.plan.lane)]
    loading = [key for (table,) in loads for key in left_out_keys(settings.name, table.source)]
    alerts.end_alerts(TABLE_LEFT_OUT, settings.name, keep=(*raised, *loading))


def end_left_out(plan: WindowPlan, alerts: Alerts) -> None:
    """End the alerts about a table after a load of the whole table has been published."""
    for table in plan.tables:
        for key in left_out_keys(plan.pipeline, table.source) if not table.where else ():
            alerts.end_alert(key)


def _list_stopped(settings: PipelineSettings, ledger: PostgresLedger) -> tuple[Validity, ...]:
    tables = [each for each in ledger.list_stopped(settings.name) if each.table in settings.sources]
    members = [each for table, each in ledger.list_stopped_members(settings.name) if table in settings.sources]
    return (*tables, *members)


# --------------------------------------------------------------------------------------------------------------------
# Rows that broke a rule, and messages of members that could not be read, are in quarantine: an alert lasts as long as
# they are.


def update_waiting(settings: PipelineSettings, ledger: PostgresLedger, alerts: Alerts) -> None:
    """Raise the alert about each table with rows that wait in quarantine, and end those about the others."""
    found = [each for each in ledger.count_waiting(settings.name) if each.table in settings.sources]
    raised = [rows_quarantined(settings.name, each) for each in found]
    for alert in raised:
        alerts.raise_alert(alert)
    alerts.end_alerts(ROWS_QUARANTINED, settings.name, keep=[alert.event_key for alert in raised])


def update_quarantined(pipeline: str, ledger: PostgresLedger, alerts: Alerts) -> None:
    """Raise the alert about messages in quarantine, or end it where there are none any more."""
    found = ledger.count_quarantined_messages(pipeline)
    if found.count:
        alerts.raise_alert(messages_quarantined(pipeline, found))
    else:
        alerts.end_alerts(MESSAGES_QUARANTINED, pipeline)
