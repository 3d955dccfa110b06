"""Runs and loads of the small source, as the DAGs do them, with alerts that are only remembered."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from small_source import NoChecks, SmallSource, SmallStager, settings
from warehouse_shop import ORDERS, PIPELINE, Shop

from floodmark.core.alert import Alert
from floodmark.core.settings import OnGap
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.sync.alerts import Alerts
from floodmark.sync.finish import advance_window, check_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.repair import LoadPlanner, end_repair
from floodmark.sync.window import OpenResult
from lsns import number_of

REPAIR = {"on_gap": OnGap.REPAIR}


@dataclass
class RememberedAlerts(Alerts):
    """``Alerts`` that only remember."""

    open: dict[str, Alert] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)

    def raise_alert(self, alert: Alert) -> None:
        self.open[alert.event_key] = alert

    def end_alert(self, event_key: str, outcome: str = "") -> None:
        if self.open.pop(event_key, None):
            self.ended.append(event_key)

    def end_alerts(self, kind: str, subject: str, outcome: str = "", *, keep: Collection[str] = ()) -> None:
        for key in [key for key, alert in self.open.items() if (alert.kind, alert.subject) == (kind, subject)]:
            if key not in keep:
                self.end_alert(key)

    def end_part(self, kind: str, subject: str, part: str) -> None:
        raise AssertionError("nobody asks for that here")


@dataclass
class Runner:
    shop: Shop
    source: SmallSource
    reported: RememberedAlerts = field(default_factory=RememberedAlerts)
    stager: SmallStager = field(init=False)

    def __post_init__(self) -> None:
        self.stager = SmallStager(self.shop, self.source)

    def run(self, **chosen: Any) -> OpenResult:
        """One run of the pipeline, as its DAG does it."""
        opened = open_window(settings(**chosen), self.source, self.shop.ledger, alerts=self.reported)
        self.finish(opened)
        return opened

    def planner(self, **chosen: Any) -> LoadPlanner:
        return LoadPlanner(settings(**chosen), self.source, self.shop.ledger, self.shop.warehouse, alerts=self.reported)

    def load(self, **chosen: Any) -> OpenResult:
        """One run of the load DAG without params."""
        opened = self.planner(**chosen).open_pending()
        self.finish(opened)
        return opened

    def reload(self, where: str = "", **chosen: Any) -> None:
        self.finish(self.planner(**chosen).open_reload(ORDERS, where))

    def finish(self, opened: OpenResult) -> None:
        if opened.window_id is None:
            return
        ledger = self.shop.ledger
        load_window(opened.window_id, ledger, self.shop.warehouse, self.source, self.stager)
        check_window(opened.window_id, ledger, NoChecks())
        advance_window(opened.window_id, ledger, self.shop.warehouse)
        end_repair(ledger.read_window(opened.window_id).plan, self.reported)

    def equal(self) -> bool:
        found = {key: row[0] for key, row in self.shop.target().items()}
        return found == {key: Decimal(amount) for key, amount in self.source.rows.items()}

    def watermark(self) -> int:
        state = self.shop.ledger.read_tables(PIPELINE)[ORDERS]
        assert state.watermark is not None
        return number_of(state.watermark)

    def expire(self) -> None:
        """Changes that nobody has read, and that cleanup then took."""
        self.source.write(1, 111)
        self.source.write(2, None)
        self.source.write(9, 90)
        self.source.oldest = self.source.position
        self.source.idle()

    def verdict(self) -> tuple[str, str]:
        (found,) = self.shop.rows("SELECT verdict, cause FROM floodmark.verdicts")
        return found["verdict"], found["cause"]


def small_runner(database: WarehouseConnection, ledger: PostgresLedger) -> Runner:
    """Five rows, not loaded yet."""
    source = SmallSource()
    for key in range(1, 6):
        source.write(key, key * 10)
    return Runner(Shop(database, ledger), source)
