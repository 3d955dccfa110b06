"""``GuardedPipeline``: a pipeline over a source of any kind, in this process, and what may happen to its source.

Steps, readers, ledger and warehouse are real. ``guarded_servers.py`` and ``guarded_fleet.py`` have the kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import psycopg

from floodmark.core.errors import CaptureStoppedError, FloodmarkError
from floodmark.core.recovery import Release
from floodmark.core.schema import TableName
from floodmark.core.settings import Naming, OnFailure, PipelineSettings, Rule, TableSettings
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse.release import PostgresQuarantine
from floodmark.postgres.warehouse.verify import PostgresRowComparer
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sync import verify
from floodmark.sync.finish import advance_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.ports import LoggedProgress, OpenReader, PlanReads, Source
from floodmark.sync.repair import LoadPlanner
from floodmark.sync.window import OpenResult
from in_process_stager import InProcessStager
from tried_twice import Order, TriedTwice

PIPELINE = "guarded"
CALM = {"not_started", "ready", "caught_up", "capture_stopped"}
"""The verdicts that leave no table out; the last one, as tests scan the log in the place of the capture job."""
HUSHED = Rule("no_hushed_rows", "note <> 'hushed'", OnFailure.QUARANTINE)


class GuardedPipeline(ABC):
    """Orders (Id, Amount, Note) and Others (Id), with the targets shop.orders, in snake case, and shop.others.

    Where a source has members, all rows that a test writes are in the first one.
    """

    kind: ClassVar[str]
    elsewhere: ClassVar[set[str]]
    """The verdicts on Orders, or on its member, where the connection leads to another database."""
    began_again: ClassVar[set[str]]
    """Where the feed of Orders has begun again."""
    restored: ClassVar[set[str]]
    """Where the source was restored to an earlier state."""
    schema: ClassVar[str] = "dbo"
    orders_settings: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, warehouse: WarehouseConnection) -> None:
        self.warehouse = warehouse
        tables = (
            TableSettings(
                self.name("Orders"), TableName("shop", "orders"), naming=Naming.SNAKE_CASE, **self.orders_settings
            ),
            TableSettings(self.name("Others"), TableName("shop", "others")),
        )
        self.settings = PipelineSettings(PIPELINE, tables)

    # What a kind has.

    @property
    @abstractmethod
    def source(self) -> Source: ...

    @abstractmethod
    def open_reader(self) -> OpenReader: ...

    def plan_reads(self) -> PlanReads | None:
        """Return how the reads of a window are planned; None for each table in one part."""
        return None

    @abstractmethod
    def put(self, *rows: tuple[int, str]) -> None:
        """Insert or replace rows (key and note) of Orders in one commit, which a later run reads."""

    @abstractmethod
    def remove(self, key: int) -> None:
        """Delete a row of Orders."""

    @abstractmethod
    def put_other(self, key: int) -> None:
        """Insert a row of Others."""

    @abstractmethod
    def pass_keys_on(self) -> None:
        """Let the rows 1, 2 and 3 of Orders pass on their keys in one commit: 1 to 2, 2 to 3, 3 to 1."""

    @abstractmethod
    def lag(self) -> Any:
        """Return a context in which rows are read from a copy of the source that lags behind."""

    @abstractmethod
    def lead_elsewhere(self) -> Any:
        """Return a context in which the connection leads to another database with tables of the same names."""

    @abstractmethod
    def begin_again(self) -> None:
        """Let the feed of Orders begin again, with a row that changed meanwhile."""

    @abstractmethod
    def back_up(self) -> Any:
        """Remember the state of the source."""

    @abstractmethod
    def restore(self, backup: Any) -> None:
        """Return to that state, and write on."""

    @abstractmethod
    def spoil(self) -> None:
        """Write what cannot be read: a row of Orders with the key 9, or a message about it."""

    @abstractmethod
    def correct(self) -> None:
        """Correct what ``spoil`` has written, at the source."""

    @abstractmethod
    def break_feed(self) -> None:
        """Make the changes of Orders, or of its member, unreadable."""

    @abstractmethod
    def bring_late(self) -> None:
        """Write 'older' and then 'newer' to the row 1, and let the older change be merged last, or try to be."""

    @abstractmethod
    def write_under_another_case(self) -> None:
        """Let something whose name differs only in case write a row with the key 9."""

    # The same for every kind.

    @property
    def ledger(self) -> PostgresLedger:
        return PostgresLedger(self.warehouse)

    @property
    def planner(self) -> LoadPlanner:
        return LoadPlanner(self.settings, self.source, self.ledger, PostgresWarehouse(self.warehouse))

    def name(self, table: str) -> TableName:
        return TableName(self.schema, table)

    def stager(self) -> InProcessStager:
        return InProcessStager(self.open_reader(), self.plan_reads())

    def spell(self, change: Any) -> None:
        """Let the configuration spell the names of the tables in another way."""
        tables = tuple(
            replace(each, source=TableName(change(each.source.schema), change(each.source.name)))
            for each in self.settings.tables
        )
        self.settings = replace(self.settings, tables=tables)

    def open(self) -> OpenResult:
        return open_window(self.settings, self.source, self.ledger)

    def load(self, opened: OpenResult, stager: TriedTwice | None = None) -> None:
        if opened.window_id is not None:
            warehouse = PostgresWarehouse(self.warehouse)
            load_window(opened.window_id, self.ledger, warehouse, self.source, stager or self.stager())

    def publish(self, opened: OpenResult) -> None:
        if opened.window_id is not None:
            self.ledger.mark_checked(opened.window_id)
            advance_window(opened.window_id, self.ledger, PostgresWarehouse(self.warehouse))

    def run(self) -> set[str]:
        """Do one run. Return the verdicts that leave out tables or members."""
        try:
            opened = self.open()
            self.load(opened)
        except CaptureStoppedError:
            return self.left_out()
        except FloodmarkError:
            # About the last table that was left. The ledger has its verdict.
            if not (found := self.left_out()):
                raise
            return found
        self.publish(opened)
        return self.left_out()

    def run_twice_tried(self, order: Order, between: Any) -> None:
        """Do one run in which each task is tried twice. The try that nobody hears of writes the note 'unheard'."""
        opened = self.open()
        self.load(opened, TriedTwice(self.stager(), order, between, spoils="note"))
        self.publish(opened)

    def reload(self) -> None:
        """Load the tables again, as ``floodmark reload`` does."""
        for table in self.settings.tables:
            opened = self.planner.open_reload(table.source)
            self.load(opened)
            self.publish(opened)

    def release(self) -> Release:
        """Release the rows of Orders in quarantine, by the rules of now."""
        return PostgresQuarantine(self.warehouse).release(PIPELINE, self.settings.tables[0], "operator")

    @contextmanager
    def hushing(self) -> Iterator[None]:
        """Return a context in which rows of Orders with the note 'hushed' go to quarantine."""
        kept = self.settings
        self.settings = replace(kept, tables=(replace(kept.tables[0], rules=(HUSHED,)), kept.tables[1]))
        yield
        self.settings = kept

    def left_out(self) -> set[str]:
        tables = {verdict for (verdict,) in self.rows("SELECT verdict FROM floodmark.verdicts")}
        members = {each.verdict.value for _, each in self.ledger.list_stopped_members(PIPELINE)}
        return (tables | members) - CALM

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return rows of the warehouse."""
        with psycopg.connect(self.warehouse.conninfo()) as session:
            return session.execute(sql).fetchall()

    def change_warehouse(self, sql: str) -> None:
        with psycopg.connect(self.warehouse.conninfo()) as session:
            session.execute(sql)

    def notes(self) -> dict[int, str]:
        """Return the living rows of the target of Orders: notes by key."""
        if self.rows("SELECT to_regclass('shop.orders') IS NULL") == [(True,)]:
            return {}
        return dict(self.rows("SELECT id, note FROM shop.orders WHERE NOT __deleted ORDER BY 1"))

    def others(self) -> set[int]:
        return {key for (key,) in self.rows('SELECT "Id" FROM shop.others WHERE NOT __deleted')}

    def differing(self) -> list[str]:
        """Return the tables whose living rows are not those of the source, row by row."""
        comparer = PostgresRowComparer(self.warehouse)
        results = verify.verify_tables(
            self.settings,
            self.source,
            self.open_reader(),
            self.ledger,
            comparer,
            progress=LoggedProgress(),
            options=verify.VerifyOptions(patience_seconds=0),
        )
        return [str(each.source) for each in results if not each.equal]

    def set_aside(self) -> int:
        """Return the number of rows and messages in quarantine that are not settled."""
        counts = self.rows(
            "SELECT (SELECT count(*) FROM floodmark.quarantine WHERE settled_at IS NULL)"
            " + (SELECT count(*) FROM floodmark.quarantined_messages)"
        )
        return int(counts[0][0])
