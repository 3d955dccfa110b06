"""Alerts over the ledger on a real PostgreSQL: once per event and channel, once more at the end, whatever fails."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from floodmark.core.alert import Alert, AlertMessage
from floodmark.core.errors import AlertNotSentError, WarehouseUnavailableError
from floodmark.core.schema import TableName
from floodmark.postgres.ledger.status import PostgresAlertLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.alerts import AlertNotes, AlertService, Delivery

ALERT = Alert(
    kind="run_failed",
    subject="shop",
    table=TableName("dbo", "Orders"),
    what="The run failed.",
    means="No new rows arrive.",
    do="Read the log.",
    event_key="run_failed:shop",
)
OTHER = replace(ALERT, kind="lag", table=None, event_key="lag:shop")
RAISED = "Floodmark: run failed: shop, dbo.Orders"
OVER = "Floodmark: ended: run failed: shop, dbo.Orders"


@dataclass
class ListChannel:
    """Keeps the titles of what it is sent; refuses while it is broken."""

    name: str = "list"
    titles: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    broken: bool = False
    tried: int = 0

    def send(self, message: AlertMessage) -> None:
        self.tried += 1
        if self.broken:
            raise AlertNotSentError(self.name, "it is broken.")
        self.titles.append(message.title)
        self.outcomes += [text for heading, text in message.lines if heading == "How it ended"]


@pytest.fixture
def channel() -> ListChannel:
    return ListChannel()


@pytest.fixture
def service(database: WarehouseConnection, channel: ListChannel) -> AlertService:
    return AlertService(lambda: PostgresAlertLedger(database), [channel])


def test_alert_is_sent_once_while_it_is_open_and_once_when_it_is_over(
    service: AlertService, channel: ListChannel
) -> None:
    for _ in range(3):
        service.raise_alert(ALERT)
    assert channel.titles == [RAISED]
    for _ in range(2):
        service.end_alert(ALERT.event_key)
    assert channel.titles == [RAISED, OVER]
    service.raise_alert(ALERT)
    assert channel.titles == [RAISED, OVER, RAISED]


def test_outcome_is_reported_also_to_a_channel_that_hears_of_it_later(
    service: AlertService, channel: ListChannel
) -> None:
    service.raise_alert(ALERT)
    channel.broken = True
    service.end_alert(ALERT.event_key, "ada rejected it.")
    channel.broken = False
    service.end_alert(ALERT.event_key)
    assert channel.titles == [RAISED, OVER]
    assert channel.outcomes == ["ada rejected it."]


def test_message_ends_with_links(database: WarehouseConnection) -> None:
    kept: list[AlertMessage] = []

    class Kept(ListChannel):
        def send(self, message: AlertMessage) -> None:
            kept.append(message)

    links = [("Page", "https://airflow.example.com/floodmark/status/shop")]
    service = AlertService(lambda: PostgresAlertLedger(database), [Kept()], links=lambda alert: links)
    service.raise_alert(ALERT)
    service.end_alert(ALERT.event_key)
    assert [message.lines[-1] for message in kept] == links * 2


def test_events_of_other_keys_are_alerts_of_their_own(service: AlertService, channel: ListChannel) -> None:
    service.raise_alert(ALERT)
    service.raise_alert(replace(ALERT, event_key="run_failed:hr", subject="hr", table=None))
    assert channel.titles == [RAISED, "Floodmark: run failed: hr"]
    service.end_alert(ALERT.event_key)
    assert channel.titles[2:] == [OVER]


def test_end_of_what_never_began_is_silent(service: AlertService, channel: ListChannel) -> None:
    service.end_alert(ALERT.event_key)
    service.end_alerts(ALERT.kind, ALERT.subject)
    assert channel.titles == []


def test_all_alerts_of_a_kind_about_a_subject_end_together(service: AlertService, channel: ListChannel) -> None:
    others = [replace(ALERT, event_key="run_failed:shop:2"), replace(ALERT, event_key="lag:shop", kind="lag")]
    for alert in (ALERT, *others):
        service.raise_alert(alert)
    service.end_alerts(ALERT.kind, ALERT.subject)
    assert channel.titles[3:] == [OVER, OVER]


def test_channel_that_was_out_of_reach_is_notified_the_next_time(
    database: WarehouseConnection, channel: ListChannel
) -> None:
    other = ListChannel("other", broken=True)
    service = AlertService(lambda: PostgresAlertLedger(database), [other, channel])
    service.raise_alert(ALERT)
    assert (channel.titles, other.titles) == ([RAISED], [])
    other.broken = False
    service.raise_alert(ALERT)
    assert (channel.titles, other.titles) == ([RAISED], [RAISED])
    channel.broken = True
    service.end_alert(ALERT.event_key)
    channel.broken = False
    service.end_alert(ALERT.event_key)
    assert (channel.titles, other.titles) == ([RAISED, OVER], [RAISED, OVER])


def test_channel_that_never_heard_of_an_alert_does_not_hear_of_its_end(
    service: AlertService, channel: ListChannel
) -> None:
    channel.broken = True
    service.raise_alert(ALERT)
    channel.broken = False
    service.end_alert(ALERT.event_key)
    assert channel.titles == []


def test_channel_that_was_out_of_reach_is_notified_although_nobody_raises_the_alert_again(
    service: AlertService, channel: ListChannel
) -> None:
    channel.broken = True
    service.raise_alert(ALERT)
    channel.broken = False
    service.raise_alert(OTHER)
    assert channel.titles == ["Floodmark: lag: shop", RAISED]
    service.raise_alert(OTHER)
    assert channel.titles == ["Floodmark: lag: shop", RAISED]


def test_channel_that_missed_the_end_hears_of_it_with_whatever_is_said_or_over_next(
    service: AlertService, channel: ListChannel
) -> None:
    service.raise_alert(ALERT)
    channel.broken = True
    service.end_alerts(ALERT.kind, ALERT.subject)
    channel.broken = False
    service.end_alerts(ALERT.kind, ALERT.subject)
    service.end_alerts("lag", "shop")
    assert channel.titles == [RAISED, OVER]


def test_channel_that_missed_the_end_of_what_has_come_again_hears_that_it_is_there(
    service: AlertService, channel: ListChannel
) -> None:
    service.raise_alert(ALERT)
    channel.broken = True
    service.end_alert(ALERT.event_key)
    channel.broken = False
    service.raise_alert(ALERT)
    service.end_alerts("lag", "shop")
    assert channel.titles == [RAISED, RAISED]


def test_channel_that_stays_silent_is_not_offered_everything_each_time(
    service: AlertService, channel: ListChannel
) -> None:
    channel.broken = True
    for number in range(8):
        service.raise_alert(replace(ALERT, event_key=f"run_failed:{number}"))
    channel.tried = 0
    service.end_alerts("lag", "shop")
    assert channel.tried == 3
    channel.broken = False
    service.end_alerts("lag", "shop")
    assert channel.titles == [RAISED] * 8


def test_channels_of_a_configuration_are_owed_nothing_about_the_subjects_of_another(
    database: WarehouseConnection, channel: ListChannel
) -> None:
    AlertService(lambda: PostgresAlertLedger(database), []).raise_alert(ALERT)
    others = AlertService(lambda: PostgresAlertLedger(database), [channel], subjects={"hr"})
    others.end_alerts("lag", "hr")
    assert channel.titles == []


def test_event_of_several_parts_is_reported_once_and_is_over_with_the_last_of_them(
    service: AlertService, channel: ListChannel
) -> None:
    for part in ("a", "b", "a", "c"):
        service.raise_alert(replace(ALERT, part=part))
    assert channel.titles == [RAISED]
    service.end_alert(ALERT.event_key)
    for part in ("c", "b", "b"):
        service.end_part(ALERT.kind, ALERT.subject, part)
    service.end_part(ALERT.kind, "hr", "a")
    service.end_part("lag", ALERT.subject, "a")
    assert channel.titles == [RAISED]
    service.end_part(ALERT.kind, ALERT.subject, "a")
    service.end_part(ALERT.kind, ALERT.subject, "a")
    assert channel.titles == [RAISED, OVER]


def test_open_alerts_are_listed_with_what_was_said_last(service: AlertService, database: WarehouseConnection) -> None:
    service.raise_alert(ALERT)
    changed = replace(ALERT, what="It failed again.", do="Read it again.")
    service.raise_alert(changed)
    (found,) = PostgresAlertLedger(database).list_open()
    assert (found.alert, found.times) == (changed, 2)
    assert found.seen_at > found.raised_at
    service.end_alert(ALERT.event_key)
    assert PostgresAlertLedger(database).list_open() == []


def test_of_many_that_find_the_same_event_at_once_one_notifies(service: AlertService, channel: ListChannel) -> None:
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: service.raise_alert(ALERT), range(6)))
    assert channel.titles == [RAISED]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: service.end_alert(ALERT.event_key), range(6)))
    assert channel.titles == [RAISED, OVER]


def test_every_alert_is_in_the_log(service: AlertService, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        service.raise_alert(ALERT)
        service.end_alert(ALERT.event_key)
    notified = [(record.levelname, record.getMessage().splitlines()[0]) for record in caplog.records]
    assert notified == [("ERROR", RAISED), ("INFO", OVER)]


def test_alert_is_sent_although_the_ledger_is_out_of_reach(channel: ListChannel, database: WarehouseConnection) -> None:
    service = AlertService(lambda: PostgresAlertLedger(replace(database, host="/nowhere")), [channel])
    service.raise_alert(ALERT)
    service.end_alert(ALERT.event_key)
    service.end_alerts(ALERT.kind, ALERT.subject)
    assert channel.titles == [RAISED]


def test_alert_is_sent_once_although_the_ledger_fails_after_it(
    channel: ListChannel, database: WarehouseConnection
) -> None:
    class Forgetful(PostgresAlertLedger):
        @contextmanager
        def raised(self, alert: Alert) -> Iterator[Delivery]:
            with super().raised(alert) as delivery:
                yield delivery
                raise WarehouseUnavailableError("shop", "it is gone.")

    AlertService(lambda: Forgetful(database), [channel]).raise_alert(ALERT)
    assert channel.titles == [RAISED]


@dataclass
class DictNotes(AlertNotes):
    """``AlertNotes`` in memory."""

    kept: dict[str, Delivery] = field(default_factory=dict)

    def read(self) -> dict[str, Delivery]:
        return dict(self.kept)

    def write(self, notes: Mapping[str, Delivery]) -> None:
        self.kept = dict(notes)


def test_notes_stand_in_for_a_ledger_that_is_away_and_are_handed_over_when_it_is_back(
    channel: ListChannel, database: WarehouseConnection
) -> None:
    notes = DictNotes()
    away = AlertService(lambda: PostgresAlertLedger(replace(database, host="/nowhere")), [channel], notes)
    back = AlertService(lambda: PostgresAlertLedger(database), [channel], notes)
    away.raise_alert(ALERT)
    away.raise_alert(ALERT)
    assert channel.titles == [RAISED]
    back.raise_alert(ALERT)
    assert (channel.titles, notes.kept) == ([RAISED], {})
    back.end_alert(ALERT.event_key)
    assert channel.titles == [RAISED, OVER]


@pytest.mark.parametrize("ends_by_kind", [True, False])
def test_end_of_an_alert_that_only_the_notes_know_is_reported_once(
    channel: ListChannel, database: WarehouseConnection, ends_by_kind: bool
) -> None:
    notes = DictNotes()
    AlertService(lambda: PostgresAlertLedger(replace(database, host="/nowhere")), [channel], notes).raise_alert(ALERT)
    other = replace(ALERT, kind="lag", event_key="lag:shop")
    notes.kept[other.event_key] = Delivery(other, datetime.now(UTC), notified={"list"})
    service = AlertService(lambda: PostgresAlertLedger(database), [channel], notes)
    for _ in range(2):
        if ends_by_kind:
            service.end_alerts(ALERT.kind, ALERT.subject)
        else:
            service.end_alert(ALERT.event_key)
    assert channel.titles == [RAISED, OVER]
    assert list(notes.kept) == ["lag:shop"]
