"""One alert for each table that is left out: raised once for each verdict, ended when the table is loaded again."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import pytest
from two_tables import ITEMS, PairRunner, pair
from warehouse_shop import ORDERS, PIPELINE, Shop

from floodmark.core.alert import AlertMessage
from floodmark.core.errors import FloodmarkError
from floodmark.core.settings import OnFailure, PipelineSettings, Rule
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.ledger.status import PostgresAlertLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.alerts import AlertService, end_left_out, report_left_out, update_left_out

STRICT = {"rules": (Rule("small", "Amount < 100", OnFailure.STOP),)}
KEYLESS = {"key": ("Nope",)}
BAD = 4711


@dataclass
class Received:
    """A channel that keeps the titles of its messages."""

    name: str = "received"
    messages: list[AlertMessage] = field(default_factory=list)

    def send(self, message: AlertMessage) -> None:
        self.messages.append(message)

    def take(self) -> list[str]:
        titles = [message.title.removeprefix("Floodmark: ") for message in self.messages]
        self.messages.clear()
        return titles


@dataclass
class Reported:
    """A pipeline of two tables whose runs report as ``app.run`` and the callback of its DAG do."""

    runner: PairRunner
    alerts: AlertService
    received: Received

    def run(self, settings: PipelineSettings | None = None) -> list[str]:
        """Return the titles of the messages about one run."""
        chosen, ledger = settings or pair(), self.runner.shop.ledger
        try:
            self.runner.run(chosen)
        except FloodmarkError:
            report_left_out(chosen, ledger, self.alerts)
        if ledger.unfinished_window(PIPELINE) is None:
            update_left_out(chosen, ledger, self.alerts)
        return self.received.take()


@pytest.fixture
def reported(database: WarehouseConnection, ledger: PostgresLedger) -> Reported:
    received = Received()
    service = AlertService(lambda: PostgresAlertLedger(database), [received])
    return Reported(PairRunner(Shop(database, ledger)), service, received)


RAISED, OVER = "table left out: shop, dbo.Items", "ended: table left out: shop, dbo.Items"


def test_refused_table_is_reported_once_with_verdict_and_hint_and_ends_when_it_is_merged(reported: Reported) -> None:
    strict = pair(items=STRICT)
    assert reported.run(strict) == []
    reported.runner.source.write(ITEMS, 2, BAD)
    with suppress(FloodmarkError):
        reported.runner.run(strict)
    report_left_out(strict, reported.runner.shop.ledger, reported.alerts)
    (message,) = reported.received.messages
    lines = dict(message.lines)
    assert (message.title, lines["Where"]) == (f"Floodmark: {RAISED}", "shop, table dbo.Items")
    assert lines["What"].startswith("refused: rows of the window broke rule small")
    assert lines["What to do"].startswith("Nothing of the table was merged;")
    assert str(BAD) not in str(message)
    reported.received.take()
    for amount in (11, 12):
        reported.runner.source.write(ORDERS, 1, amount)
        assert reported.run(strict) == []
    reported.runner.source.write(ITEMS, 2, 22)
    assert reported.run(strict) == [OVER]
    assert reported.run(strict) == []


def test_another_verdict_is_another_alert(reported: Reported) -> None:
    reported.run()
    reported.runner.source.write(ITEMS, 2, BAD)
    assert reported.run(pair(items=KEYLESS)) == [RAISED]
    reported.runner.source.write(ORDERS, 1, 11)
    assert reported.run(pair(items=STRICT)) == [RAISED, OVER]
    assert reported.run() == [OVER]


def test_window_that_loses_all_tables_reports_each(reported: Reported) -> None:
    reported.run()
    strict = pair(orders=STRICT, items=STRICT)
    for table in (ORDERS, ITEMS):
        reported.runner.source.write(table, 2, BAD)
    assert reported.run(strict) == ["table left out: shop, dbo.Items", "table left out: shop, dbo.Orders"]
    assert reported.run(strict) == []
    for table in (ORDERS, ITEMS):
        reported.runner.source.write(table, 2, 22)
    assert sorted(reported.run(strict)) == [OVER, "ended: table left out: shop, dbo.Orders"]


def test_table_that_is_reloaded_keeps_its_alert_until_the_load_is_published(reported: Reported) -> None:
    reported.run()
    reported.runner.source.write(ITEMS, 2, BAD)
    strict = pair(items=STRICT)
    assert reported.run(strict) == [RAISED]
    reported.runner.source.write(ITEMS, 2, 22)
    opened = reported.runner.planner(strict).open_reload(ITEMS)
    reported.runner.source.write(ORDERS, 1, 11)
    assert reported.run(strict) == []
    reported.runner.finish(opened)
    assert opened.window_id is not None
    end_left_out(reported.runner.shop.ledger.read_window(opened.window_id).plan, reported.alerts)
    assert reported.received.take() == [OVER]


def test_table_that_is_removed_from_the_configuration_has_no_alert(reported: Reported) -> None:
    reported.run()
    reported.runner.source.write(ITEMS, 2, BAD)
    assert reported.run(pair(items=STRICT)) == [RAISED]
    only = PipelineSettings(PIPELINE, tuple(each for each in pair().tables if each.source == ORDERS))
    assert reported.run(only) == [OVER]
