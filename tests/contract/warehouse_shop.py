"""A small table, its plans, and the means to stage rows as the Spark job does and to read the result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import psycopg
import pyarrow as pa
from psycopg.rows import dict_row

from floodmark.core.plan import LoadKind, TableCounts, TablePlan, WindowPlan, staging_table
from floodmark.core.position import Interval
from floodmark.core.schema import MAX_LENGTH, SourceColumn, SourceTable, TableName, keep_column, quote, quote_table
from floodmark.core.settings import Deletes, Rule, TableSettings
from floodmark.core.snapshot import Feed, FeedIdentity
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.session import WarehouseConnection, open_transaction
from floodmark.postgres.sql import read_sql
from floodmark.postgres.warehouse.warehouse import PostgresWarehouse
from floodmark.sync.ports import StagedPart
from lsns import lsn

PIPELINE = "shop"
ORDERS = TableName("dbo", "Orders")
TARGET = TableName("shop", "orders")
COLUMNS = (
    SourceColumn("Id", "int", 1, nullable=False),
    SourceColumn("Amount", "decimal", 2, precision=18, scale=2),
    SourceColumn("Disc%", "int", 3),
    SourceColumn("Notes", "nvarchar", 4, MAX_LENGTH),
    SourceColumn("Double", "int", 5, is_computed=True),
)
DELETE, INSERT, UPDATE = 1, 2, 4


def instance(columns: tuple[SourceColumn, ...] = COLUMNS, key: tuple[str, ...] = ("Id",)) -> Feed:
    return Feed(
        FeedIdentity("dbo_Orders", 42, datetime(2026, 1, 2, 3, 4, 5)),
        SourceTable(ORDERS, columns, key),
        lsn(1),
        supports_net_changes=True,
        has_command_id=True,
    )


def changes(after: int, to: int, deletes: Deletes = Deletes.SOFT, rules: tuple[Rule, ...] = ()) -> TablePlan:
    return TablePlan(
        settings=TableSettings(ORDERS, TARGET, deletes=deletes, rules=rules),
        kind=LoadKind.CHANGES,
        feed=instance(),
        interval=Interval(lsn(after), lsn(to)),
        watermark=lsn(after),
    )


def first_load(deletes: Deletes = Deletes.SOFT, rules: tuple[Rule, ...] = ()) -> TablePlan:
    return replace(changes(1, 2, deletes, rules), kind=LoadKind.FIRST_LOAD, interval=None, watermark=None)


def reload(watermark: int, deletes: Deletes = Deletes.SOFT) -> TablePlan:
    return replace(first_load(deletes), is_reload=True, watermark=lsn(watermark))


@dataclass(frozen=True)
class Row:
    """A staged row. notes None with keep: the change row left the LOB out."""

    id: int
    op: int
    lsn: int
    amount: int | None = 0
    discount: int | None = None
    notes: str | None = None
    keep: bool = False
    part: int = 0

    def staged(self) -> dict[str, Any]:
        return {
            "Id": self.id,
            "Amount": self.amount,
            "Disc%": self.discount,
            "Notes": self.notes,
            "__lsn": lsn(self.lsn).value,
            "__op": self.op,
            "__part": self.part,
            keep_column("Notes"): self.keep,
        }


STAGED_SCHEMA = pa.schema(
    [
        ("Id", pa.int32()),
        ("Amount", pa.decimal128(18, 2)),
        ("Disc%", pa.int32()),
        ("Notes", pa.string()),
        ("__lsn", pa.binary()),
        ("__op", pa.int16()),
        (keep_column("Notes"), pa.bool_()),
    ]
)


def staged_batch(rows: Iterable[Row]) -> pa.RecordBatch:
    """Return rows as a worker hands them to a ``StagingSink``."""
    return pa.RecordBatch.from_pylist([row.staged() for row in rows], schema=STAGED_SCHEMA)


@dataclass
class Shop:
    """A warehouse with its ledger, and the steps of a run without a source."""

    connection: WarehouseConnection
    ledger: PostgresLedger

    @property
    def warehouse(self) -> PostgresWarehouse:
        return PostgresWarehouse(self.connection)

    def begin(self, table: TablePlan, to: int) -> WindowPlan:
        """A window opened and prepared."""
        opened = self.ledger.open_window(PIPELINE, lsn(to), [table])
        plan = self.ledger.begin_load(opened.window_id).plan
        self.warehouse.prepare_window(plan)
        return plan

    def stage(self, plan: WindowPlan, rows: Iterable[Row], index: int = 0) -> int:
        return self.stage_part(plan, rows, index).rows

    def stage_part(self, plan: WindowPlan, rows: Iterable[Row], index: int = 0) -> StagedPart:
        """Stage rows without a sink, as one part."""
        staged = [row.staged() for row in rows]
        with psycopg.connect(self.connection.conninfo()) as session:
            insert_rows(session, quote_table(staging_table(plan, index)), staged)
            [receipt] = session.execute("SELECT pg_current_xact_id()::xid::text").fetchone() or ("",)
        return StagedPart(0, len(staged), receipt)

    def stage_chunk(self, plan: WindowPlan, index: int, number: int, rows: Iterable[Row]) -> None:
        """Rows and ledger in one transaction, by the statements of the Spark job."""
        staged = [row.staged() for row in rows]
        source = plan.tables[index].source
        values = {
            "window_id": plan.window_id,
            "attempt": plan.attempt,
            "chunk_no": number,
            "rows": len(staged),
            "source_schema": f"'{source.schema}'",
            "source_name": f"'{source.name}'",
        }
        with open_transaction(self.connection) as session:
            insert_rows(session, quote_table(staging_table(plan, index)), staged)
            session.execute(read_sql("stage_load_chunk").format(**values))

    def merge(self, plan: WindowPlan) -> TableCounts:
        return self.warehouse.merge_window(plan)[ORDERS]

    def finish(self, plan: WindowPlan) -> None:
        self.ledger.mark_checked(plan.window_id)
        self.ledger.advance(plan.window_id)
        self.warehouse.drop_staging(plan.window_id)

    def run(self, table: TablePlan, to: int, rows: Iterable[Row]) -> TableCounts:
        """One whole window."""
        plan = self.begin(table, to)
        self.stage(plan, rows)
        counts = self.merge(plan)
        self.finish(plan)
        return counts

    def set_watermark(self, position: int | None) -> None:
        """Set the watermark as an operator who replays would."""
        with open_transaction(self.connection) as session:
            session.execute("UPDATE floodmark.tables SET watermark = %s", [lsn(position).value if position else None])

    def rows(self, statement: str) -> list[dict[str, Any]]:
        with open_transaction(self.connection) as session:
            return session.cursor(row_factory=dict_row).execute(statement).fetchall()

    def target(self) -> dict[int, tuple[Any, ...]]:
        """Living rows by key: (amount, discount, notes)."""
        found = self.rows('SELECT * FROM shop.orders WHERE NOT __deleted ORDER BY "Id"')
        return {row["Id"]: (row["Amount"], row["Disc%"], row["Notes"]) for row in found}

    def exists(self, relation: str) -> bool:
        return bool(self.rows(f"SELECT to_regclass('{relation}') IS NOT NULL AS found")[0]["found"])


def insert_rows(session: psycopg.Connection, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    if not rows:
        return
    columns = ", ".join(quote(name) for name in rows[0])
    with session.cursor() as cursor, cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(tuple(row.values()))
