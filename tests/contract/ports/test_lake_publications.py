"""A thousand publications of a lake, and a reader that asks for all tables all the time: it never sees two windows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import psycopg
import pytest
from warehouse_shop import changes, first_load

from floodmark.core.errors import WatermarkConflictError
from floodmark.core.plan import TableCounts, TablePlan, WindowPlan
from floodmark.core.position import Interval
from floodmark.core.schema import TableName
from floodmark.iceberg.folder import LakeFolder
from floodmark.iceberg.lake import PUBLISHED, UNPUBLISHED, LakeCatalog
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection, open_transaction
from lsns import lsn
from table_plans import with_settings

PIPELINE = "lake"
NAMES = ("orders", "lines", "notes")
PUBLICATIONS = 1_000
# As Iceberg's JDBC catalog of version V1 makes it.
CATALOG = """
CREATE TABLE floodmark_lake.iceberg_tables (
  catalog_name varchar(255) NOT NULL, table_namespace varchar(255) NOT NULL, table_name varchar(255) NOT NULL,
  metadata_location varchar(1000), previous_metadata_location varchar(1000), iceberg_type varchar(5),
  PRIMARY KEY (catalog_name, table_namespace, table_name)
)
"""
CREATE = "INSERT INTO floodmark_lake.iceberg_tables VALUES (%s, 'shop', %s, %s, NULL, 'TABLE')"
MERGE = """
UPDATE floodmark_lake.iceberg_tables SET metadata_location = %s WHERE catalog_name = %s AND table_name = ANY (%s)
"""
CHECK = "UPDATE floodmark_lake.lake_tables SET base = published, checked = %s"
PAUSE_SECONDS = 0.002
# One statement sees one state of the database.
READ = """
SELECT metadata_location FROM floodmark_lake.iceberg_tables WHERE catalog_name = %s
UNION SELECT encode(watermark, 'hex') FROM floodmark.tables
"""


@dataclass
class Reader:
    """Reads the locations of all tables, and their watermarks, until it is ended."""

    at: WarehouseConnection
    seen: dict[tuple[str, ...], int] = field(default_factory=dict)
    """How often each answer came, in the order in which they came first. An answer has each value once."""

    @contextmanager
    def reading(self) -> Iterator[None]:
        ended = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            result = pool.submit(self._read, ended)
            try:
                yield
            finally:
                ended.set()
            result.result()

    def _read(self, ended: threading.Event) -> None:
        with psycopg.connect(self.at.conninfo(), autocommit=True) as session:
            # Without a pause it would use most of the processor.
            while not ended.wait(PAUSE_SECONDS):
                answer = tuple(sorted(row[0] for row in session.execute(READ, [PUBLISHED])))
                self.seen[answer] = self.seen.get(answer, 0) + 1


@dataclass
class Publisher:
    """Publishes three tables. The location of a table is the watermark that is published with it."""

    ledger: PostgresLedger
    catalog: LakeCatalog
    session: psycopg.Connection
    at: WarehouseConnection
    last: int = 0

    def publish_window(self) -> WindowPlan:
        """Run a whole window without rows. It is refused at first."""
        self.last += 1
        opened = self.ledger.open_window(PIPELINE, lsn(self.last), [_planned(name, self.last) for name in NAMES])
        plan = self.ledger.begin_load(opened.window_id).plan
        self.catalog.begin(plan)
        self.merge(self.last, *NAMES)
        self.ledger.record_merge(plan, {table.source: TableCounts() for table in plan.tables})
        self.catalog.record_checked(plan, {table.target: location(self.last) for table in plan.tables})
        self.ledger.mark_checked(opened.window_id)
        # A program that writes where it must not: the other two tables are not published either.
        self.merge(0, NAMES[opened.window_id % len(NAMES)])
        with pytest.raises(WatermarkConflictError, match="1 of 3 tables of window"):
            self.ledger.advance(opened.window_id, self.catalog.publish)
        self.merge(self.last, *NAMES)
        self.ledger.advance(opened.window_id, self.catalog.publish)
        return plan

    def publish_again(self, plan: WindowPlan) -> None:
        """Publish the tables of a window at the next position. It costs a tenth of a window."""
        self.last += 1
        self.merge(self.last, *NAMES)
        self.session.execute(CHECK, [location(self.last)])
        with open_transaction(self.at) as transaction:
            self.catalog.publish(plan, transaction)
            transaction.execute("UPDATE floodmark.tables SET watermark = %s", [lsn(self.last).value])

    def merge(self, number: int, *names: str) -> None:
        """Do what a merge does in the catalog."""
        self.session.execute(MERGE, [location(number), UNPUBLISHED, list(names)])


def location(number: int) -> str:
    """Return the location of a table whose last window ends at a number: the watermark of that window."""
    return lsn(number).value.hex()


def _planned(name: str, number: int) -> TablePlan:
    planned = with_settings(first_load(), source=TableName("dbo", name), target=TableName("shop", name))
    if number == 1:
        return planned
    after = lsn(number - 1)
    later = changes(number - 1, number)
    return replace(planned, kind=later.kind, interval=Interval(after, lsn(number)), watermark=after)


def test_reader_never_sees_tables_of_two_windows(database: WarehouseConnection, ledger: PostgresLedger) -> None:
    catalog, reader = LakeCatalog(database, LakeFolder("/lake")), Reader(database)
    catalog.ensure_schema()
    with psycopg.connect(database.conninfo(), autocommit=True) as session:
        session.execute(CATALOG)
        for name in NAMES:
            session.execute(CREATE, [UNPUBLISHED, name, location(0)])
        publisher = Publisher(ledger, catalog, session, database)
        plan = publisher.publish_window()
        with reader.reading():
            while publisher.last < PUBLICATIONS:
                publisher.publish_again(plan)
                if publisher.last % 100 == 0:
                    plan = publisher.publish_window()
    assert [answer for answer in reader.seen if len(answer) != 1] == []
    assert list(reader.seen) == sorted(reader.seen)
    assert len(reader.seen) > PUBLICATIONS // 20
