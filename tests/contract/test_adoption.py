"""Targets that another tool has loaded, adopted on a real ledger and warehouse, with a source in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from repair_runner import Runner
from small_source import NOON, START, NoChecks, SmallSource, SmallStager, settings
from warehouse_shop import DELETE, INSERT, ORDERS, PIPELINE, Shop

from floodmark.core.errors import OtherDatabaseError, WatermarkConflictError, WindowExpiredError
from floodmark.core.imported import DebeziumOffset, TableImport, ToolState, parse_debezium_offsets, parse_ssis_state
from floodmark.core.plan import WindowState
from floodmark.core.position import Interval, NoPosition, Position
from floodmark.core.recovery import ReplayRecords, WholeLoad, plan_replay
from floodmark.core.schema import TableName
from floodmark.core.settings import Cast, ColumnSettings, Deletes, Mask, Naming, NetSource, Style
from floodmark.core.snapshot import DatabaseIdentity
from floodmark.postgres.ledger.ledger import PostgresLedger
from floodmark.postgres.ledger.steps import finish_table
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.warehouse import adoption
from floodmark.postgres.warehouse.adoption import PostgresAdoption
from floodmark.sync.finish import advance_window, check_window
from floodmark.sync.load import load_window
from floodmark.sync.open_window import open_window
from floodmark.sync.repair import Adopter
from floodmark.sync.window import OpenResult
from lsns import lsn
from tool_states import print_rest, ssis_end

OLD_TABLE = 'CREATE TABLE shop.orders ("Id" integer PRIMARY KEY, "Amount" numeric(18,2), "Disc%" integer, "Notes" text)'
OTHER_GUID = "77777777-8b86-d011-b42d-00c04fc964ff"
OWN = "SELECT count(*) AS n FROM pg_attribute WHERE attrelid = 'shop.orders'::regclass AND starts_with(attname, '__')"


def finished(position: int) -> ToolState:
    """SSIS has applied every change up to a position."""
    return parse_ssis_state(ssis_end(lsn(position)))


def delivered(position: int) -> ToolState:
    """Debezium has delivered a change of the transaction at a position."""
    return parse_debezium_offsets(print_rest(DebeziumOffset("", "Shop", lsn(position))))


@dataclass
class OldTool:
    """The target of another tool, and the pipeline that adopts it."""

    shop: Shop
    source: SmallSource = field(default_factory=SmallSource)
    chosen: dict[str, Any] = field(default_factory=dict)
    times: dict[Position, datetime] = field(default_factory=dict)
    """The times of commits that the source knows."""

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.shop.connection.conninfo(), autocommit=True) as session:
            for statement in statements:
                session.execute(statement)

    def apply(self, after: int = 0) -> int:
        """Apply the changes after a position, as the old tool does. Return the position that it is at then."""
        with psycopg.connect(self.shop.connection.conninfo(), autocommit=True) as session:
            for row in self.source.log:
                if row.lsn > after:
                    session.execute('DELETE FROM shop.orders WHERE "Id" = %s', [row.id])
                    if row.op != DELETE:
                        session.execute("INSERT INTO shop.orders VALUES (%s, %s)", [row.id, row.amount])
        return self.source.position

    def read_time(self, position: Position) -> datetime | None:
        return self.times.get(position)

    def adopt(self, state: ToolState, *, dry_run: bool = False) -> TableImport:
        chosen = settings(**self.chosen)
        targets = PostgresAdoption(self.shop.connection)
        adopter = Adopter(chosen, self.source, self.shop.ledger, targets, self.read_time)
        (found,) = adopter.adopt(state, chosen.tables, dry_run=dry_run)
        return found

    def run(self) -> OpenResult:
        stager = SmallStager(self.shop, self.source)
        opened = open_window(settings(**self.chosen), self.source, self.shop.ledger)
        if opened.window_id is not None:
            load_window(opened.window_id, self.shop.ledger, self.shop.warehouse, self.source, stager)
            check_window(opened.window_id, self.shop.ledger, NoChecks())
            advance_window(opened.window_id, self.shop.ledger, self.shop.warehouse)
        assert stager.chunks_read == 0, "no table is loaded"
        return opened

    def is_equal(self) -> bool:
        target = {key: row[0] for key, row in self.shop.target().items()}
        return target == {key: Decimal(amount) for key, amount in self.source.rows.items()}

    def watermark(self) -> object:
        state = self.shop.ledger.read_tables(PIPELINE).get(ORDERS)
        return state and state.watermark


def change(source: SmallSource, *keys: int) -> None:
    for key in keys:
        source.write(key, source.position * 10)


@pytest.fixture
def tool(database: WarehouseConnection, ledger: PostgresLedger) -> OldTool:
    made = OldTool(Shop(database, ledger))
    made.execute("CREATE SCHEMA shop", OLD_TABLE)
    change(made.source, 1, 2, 3, 4)
    return made


def refused(found: TableImport, *words: str) -> TableImport:
    """Return the outcome of a table that was refused, with a sentence and a hint that have these words."""
    assert found.window_id is None
    assert found.refusal
    assert found.hint
    for word in words:
        assert word in f"{found.refusal} {found.hint}"
    return found


def untouched(tool: OldTool) -> bool:
    windows = tool.shop.rows("SELECT * FROM floodmark.windows")
    return tool.watermark() is None and not windows and tool.shop.rows(OWN)[0]["n"] == 0


@pytest.mark.parametrize("deletes", Deletes)
def test_pipeline_continues_where_the_old_tool_has_stopped(tool: OldTool, deletes: Deletes) -> None:
    tool.chosen = {"deletes": deletes}
    at = tool.apply()
    change(tool.source, 1, 5)
    tool.source.write(2, None)
    tool.source.write(6, 60)
    tool.source.write(6, None)
    found = tool.adopt(finished(at))
    assert (found.refusal, found.after, found.verdict, tool.watermark()) == ("", lsn(at), "ready", lsn(at))
    tool.source.idle()
    tool.run()
    assert tool.is_equal()
    assert tool.watermark() == lsn(tool.source.position)
    (moved,) = tool.shop.rows("SELECT * FROM floodmark.window_tables WHERE kind = 'changes'")
    assert (moved["read_rows"], moved["updated_rows"], moved["deleted_rows"]) == (5, 1, 1)


def test_rows_get_the_position_of_the_state_and_new_rows_need_no_default(tool: OldTool) -> None:
    at = tool.apply()
    found = tool.adopt(finished(at))
    rows = tool.shop.rows("SELECT DISTINCT __lsn, __op, __window_id, __deleted FROM shop.orders")
    assert rows == [{"__lsn": lsn(at).value, "__op": INSERT, "__window_id": found.window_id, "__deleted": False}]
    defaults = "SELECT * FROM pg_attrdef WHERE adrelid = 'shop.orders'::regclass"
    assert tool.shop.rows(defaults) == []


def test_no_row_is_written_by_the_adoption(tool: OldTool) -> None:
    tool.apply()
    before = tool.shop.rows("SELECT ctid, xmin FROM shop.orders ORDER BY 1")
    tool.adopt(finished(tool.source.position))
    assert tool.shop.rows("SELECT ctid, xmin FROM shop.orders ORDER BY 1") == before


@pytest.mark.parametrize("deletes", Deletes)
@pytest.mark.parametrize("net", NetSource)
def test_rows_that_are_newer_than_the_position_are_harmless(tool: OldTool, deletes: Deletes, net: NetSource) -> None:
    tool.chosen = {"deletes": deletes, "net": net}
    at = tool.apply()
    tool.source.write(1, None)
    change(tool.source, 2, 7)
    tool.source.write(8, 80)
    tool.apply(at)
    tool.source.write(8, None)
    tool.source.write(7, None)
    tool.adopt(finished(at))
    assert not tool.shop.ledger.read_tables(PIPELINE)[ORDERS].consistent
    tool.run()
    tool.source.idle()
    tool.run()
    assert tool.is_equal()
    assert tool.shop.ledger.read_tables(PIPELINE)[ORDERS].consistent


def test_table_is_consistent_when_a_commit_after_the_import_was_merged(tool: OldTool) -> None:
    """Where the clock of the source was set back, a commit before the import may have a later time."""
    at = tool.apply()
    tool.source.clock_back_seconds = 5
    tool.adopt(finished(at))
    for changes, is_consistent in ((4, False), (4, True)):
        change(tool.source, *range(1, changes + 1))
        tool.run()
        assert tool.shop.ledger.read_tables(PIPELINE)[ORDERS].consistent == is_consistent


def test_transaction_that_was_delivered_in_part_is_read_again(tool: OldTool) -> None:
    tool.apply()
    change(tool.source, 1, 9)
    last = tool.source.position
    # Both changes are of one transaction, and Debezium has delivered the first.
    tool.source.log[-2] = replace(tool.source.log[-2], lsn=last)
    tool.execute(f'UPDATE shop.orders SET "Amount" = {tool.source.rows[1]} WHERE "Id" = 1')
    found = tool.adopt(delivered(last))
    assert (found.after, tool.watermark()) == (lsn(last - 1), lsn(last - 1))
    tool.run()
    assert tool.is_equal()


def test_source_that_has_nothing_new_is_caught_up(tool: OldTool) -> None:
    at = tool.apply()
    assert tool.adopt(finished(at)).verdict == "caught_up"
    assert tool.run().window_id is None
    change(tool.source, 1)
    tool.run()
    assert tool.is_equal()


def test_position_below_the_low_end_is_refused_as_expired(tool: OldTool) -> None:
    at = tool.apply()
    change(tool.source, 1, 2)
    tool.source.oldest = at + 2
    found = refused(tool.adopt(finished(at)), "Rename or drop shop.orders")
    assert found.verdict == "expired"
    assert untouched(tool)


def test_position_just_below_the_low_end_is_accepted_as_in_a_run(tool: OldTool) -> None:
    at = tool.apply()
    change(tool.source, 1, 2)
    tool.source.oldest = at + 1
    assert tool.adopt(finished(at)).refusal == ""
    tool.run()
    assert tool.is_equal()
    change(tool.source, 1, 2, 3)
    tool.source.oldest = tool.source.position
    with pytest.raises(WindowExpiredError):
        tool.run()


def test_position_above_the_newest_one_is_refused_as_ahead_of_the_source(tool: OldTool) -> None:
    at = tool.apply()
    found = refused(tool.adopt(finished(at + 1)), "Rename or drop shop.orders")
    assert found.verdict == "ahead_of_source"
    assert untouched(tool)


def test_position_that_the_log_does_not_have_is_of_another_database(tool: OldTool) -> None:
    tool.apply()
    change(tool.source, 1, 2)
    gap = Interval(lsn(START), lsn(tool.source.position)).first.next()
    known = tool.source.read_snapshot

    class Elsewhere(SmallSource):
        def read_snapshot(self, *asked: Any, **other: Any) -> Any:
            found = known(*asked, **other)
            return replace(found, entries={**found.entries, gap: None})

    tool.source = Elsewhere(tool.source.rows, tool.source.log, tool.source.position)
    found = tool.adopt(parse_ssis_state(ssis_end(gap)))
    assert refused(found, "has no transaction at").verdict == "other_database"
    assert untouched(tool)


def test_instance_that_capture_has_not_reached_is_refused(tool: OldTool) -> None:
    at = tool.apply()
    tool.source.seen = {"oldest": NoPosition.NULL, "permitted": False}
    assert refused(tool.adopt(finished(at))).verdict == "no_permission"
    assert untouched(tool)


def test_second_import_is_refused(tool: OldTool) -> None:
    at = tool.apply()
    tool.adopt(finished(at))
    change(tool.source, 1)
    tool.run()
    later = tool.watermark()
    refused(tool.adopt(finished(at)), f"has the watermark {later} already")
    assert tool.watermark() == later
    assert tool.is_equal()


def test_dry_run_changes_nothing(tool: OldTool) -> None:
    at = tool.apply()
    found = tool.adopt(finished(at), dry_run=True)
    assert (found.refusal, found.window_id, found.after) == ("", None, lsn(at))
    assert untouched(tool)
    assert tool.shop.ledger.read_database(PIPELINE) is None
    tool.execute('ALTER TABLE shop.orders DROP COLUMN "Notes"')
    refused(tool.adopt(finished(at), dry_run=True), "column Notes (text) is missing")


SHAPES = {
    ('DROP COLUMN "Notes"',): "column Notes (text) is missing",
    ('RENAME "Notes" TO notes',): "column Notes (text) is missing, there is notes",
    ('ALTER "Amount" TYPE numeric(18,1)',): "column Amount is numeric(18,1), expected numeric(18,2)",
    ('ALTER "Disc%" TYPE smallint',): "column Disc% is smallint, expected integer",
    ('ALTER "Notes" TYPE varchar(10)',): "column Notes is character varying(10), expected text",
    ("DROP CONSTRAINT orders_pkey",): "the primary key is missing, expected (Id)",
    ("DROP CONSTRAINT orders_pkey", 'ADD PRIMARY KEY ("Id", "Amount")'): "the primary key is (Amount, Id)",
    ("ADD __deleted text",): "it has __deleted, which are the names",
    ("ADD loaded_by int NOT NULL",): "column loaded_by is NOT NULL",
}


@pytest.mark.parametrize("changes", SHAPES, ids=map(str, SHAPES.values()))
def test_target_of_another_shape_is_refused(tool: OldTool, changes: Sequence[str]) -> None:
    tool.execute(*(f"ALTER TABLE shop.orders {change}" for change in changes))
    columns = tool.shop.rows("SELECT * FROM pg_attribute WHERE attrelid = 'shop.orders'::regclass")
    refused(tool.adopt(finished(tool.source.position)), SHAPES[tuple(changes)], "rename or drop it and run")
    assert tool.shop.rows("SELECT * FROM pg_attribute WHERE attrelid = 'shop.orders'::regclass") == columns
    assert tool.watermark() is None
    assert tool.shop.rows("SELECT * FROM floodmark.windows") == []


def test_target_with_wider_types_and_columns_of_its_own_is_adopted(tool: OldTool) -> None:
    tool.execute(
        'ALTER TABLE shop.orders ALTER "Disc%" TYPE bigint, ADD region text',
        "ALTER TABLE shop.orders ADD loaded timestamp DEFAULT now() NOT NULL",
    )
    at = tool.apply()
    change(tool.source, 1, 5)
    assert tool.adopt(finished(at)).refusal == ""
    tool.run()
    assert tool.is_equal()


def test_target_that_does_not_exist_or_is_a_view_is_refused(tool: OldTool) -> None:
    tool.execute("ALTER TABLE shop.orders RENAME TO old")
    refused(tool.adopt(finished(tool.source.position)), "does not exist")
    tool.execute("CREATE VIEW shop.orders AS SELECT * FROM shop.old")
    refused(tool.adopt(finished(tool.source.position)), "is no table")
    assert untouched(tool)


@pytest.mark.parametrize("how", [{"mask": Mask.LAST4}, {"is_dropped": True}])
def test_target_that_may_have_hidden_values_is_refused(tool: OldTool, how: dict[str, Any]) -> None:
    at = tool.apply()
    tool.chosen = {"columns": (ColumnSettings("Notes", **how), ColumnSettings("Amount"))}
    refused(tool.adopt(finished(at)), "may have other values of Notes", "Name another target")
    assert untouched(tool)


def test_target_that_may_have_values_of_another_type_is_refused(tool: OldTool) -> None:
    at = tool.apply()
    tool.chosen = {"columns": (ColumnSettings("Amount", cast=Cast.TEXT),)}
    refused(tool.adopt(finished(at)), "may have other values of Amount", "Name another target")
    assert untouched(tool)


def test_time_of_a_commit_by_another_tool_is_refused_where_floodmark_writes_its_own(tool: OldTool) -> None:
    at = tool.apply()
    tool.execute("ALTER TABLE shop.orders ADD __committed_at timestamptz")
    tool.chosen = {"commit_times": True}
    refused(tool.adopt(finished(at)), "it has __committed_at, which are the names")


def test_target_of_another_user_is_refused(tool: OldTool) -> None:
    tool.execute(
        "DROP OWNED BY importer" if tool.shop.rows("SELECT FROM pg_roles WHERE rolname = 'importer'") else "SELECT",
        "DROP ROLE IF EXISTS importer",
        "CREATE ROLE importer LOGIN",
        "GRANT USAGE ON SCHEMA floodmark, shop TO importer",
        "GRANT ALL ON ALL TABLES IN SCHEMA floodmark, shop TO importer",
    )
    at, tool.shop.connection = tool.apply(), replace(tool.shop.connection, user="importer")
    found = tool.adopt(finished(at))
    tool.shop.connection = replace(tool.shop.connection, user="postgres")
    refused(found, "belongs to another user", "OWNER TO")
    assert untouched(tool)
    tool.execute("DROP OWNED BY importer", "DROP ROLE importer")


def test_table_of_an_unfinished_window_is_refused(tool: OldTool) -> None:
    tool.execute("DROP TABLE shop.orders")
    open_window(settings(), tool.source, tool.shop.ledger)
    tool.execute(OLD_TABLE)
    at = tool.apply()
    refused(tool.adopt(finished(at)), "is unfinished and holds the table")
    assert tool.watermark() is None
    assert tool.shop.rows(OWN)[0]["n"] == 0


def test_import_that_fails_at_its_end_leaves_nothing(tool: OldTool, monkeypatch: pytest.MonkeyPatch) -> None:
    at = tool.apply()

    def fail(*_: object) -> None:
        raise WatermarkConflictError("dbo.Orders", "another run moved it.", "Run again.")

    monkeypatch.setattr(adoption, "finish_table", fail)
    refused(tool.adopt(finished(at)), "another run moved it")
    assert untouched(tool)
    monkeypatch.setattr(adoption, "finish_table", finish_table)
    assert tool.adopt(finished(at)).refusal == ""


def test_changes_before_the_position_are_not_replayed(tool: OldTool) -> None:
    """A row that was deleted below the position has left nothing: its insert alone would create it for good."""
    tool.source.write(9, 90)
    tool.source.write(9, None)
    at = tool.apply()
    found = tool.adopt(finished(at))
    change(tool.source, 1)
    tool.run()
    loads = tool.shop.ledger.list_whole_loads(PIPELINE)
    assert found.window_id is not None
    assert loads == {ORDERS: WholeLoad(found.window_id, lsn(at), NOON + timedelta(seconds=at))}
    states = tool.shop.ledger.read_tables(PIPELINE)
    interval = Interval(lsn(START), lsn(tool.source.position))
    snapshot = tool.source.read_snapshot([ORDERS], None, [lsn(at)])
    plan = plan_replay(settings(), snapshot, states, interval, ReplayRecords({}, loads, {}))
    assert [table.interval for table in plan.tables] == [Interval(lsn(at), lsn(tool.source.position))]


def test_import_is_a_window_of_its_own_lane(tool: OldTool) -> None:
    found = tool.adopt(finished(tool.apply()))
    assert found.window_id is not None
    opened = tool.shop.ledger.read_window(found.window_id)
    assert (opened.state, opened.plan.lane) == (WindowState.ADVANCED, "import dbo.Orders")
    assert tool.shop.ledger.list_unfinished(PIPELINE) == []


def test_pipeline_follows_the_database_that_was_checked(tool: OldTool) -> None:
    at = tool.apply()
    tool.source = IdentifiedSource(tool.source.rows, tool.source.log, tool.source.position)
    tool.adopt(finished(at))
    assert tool.shop.ledger.read_database(PIPELINE) == IdentifiedSource.identity
    change(tool.source, 1)
    elsewhere = IdentifiedSource(tool.source.rows, tool.source.log, tool.source.position)
    elsewhere.identity = replace(
        IdentifiedSource.identity, database="Test", guid="7" * 8 + "-8b86-d011-b42d-00c04fc964ff"
    )
    tool.source = elsewhere
    with pytest.raises(OtherDatabaseError):
        tool.adopt(finished(at))


class IdentifiedSource(SmallSource):
    """A source that says which database it is."""

    identity = DatabaseIdentity("SQL1", "Shop", "6f9619ff-8b86-d011-b42d-00c04fc964ff")

    def read_snapshot(self, *asked: Any, **other: Any) -> Any:
        return replace(super().read_snapshot(*asked, **other), identity=self.identity)


def test_reload_of_an_adopted_table_sweeps_what_the_source_does_not_have(tool: OldTool) -> None:
    """The way out where the old tool has kept rows that it had marked as deleted."""
    at = tool.apply()
    tool.execute("INSERT INTO shop.orders VALUES (77, 1)")
    tool.adopt(finished(at))
    change(tool.source, 1)
    tool.run()
    assert not tool.is_equal()
    Runner(tool.shop, tool.source).reload()
    assert tool.is_equal()


def test_name_of_the_target_is_quoted(tool: OldTool) -> None:
    name = TableName("shop", 'or"ders')
    tool.execute('ALTER TABLE shop.orders RENAME TO "or""ders"')
    chosen = replace(settings().tables[0], target=name)
    adopter = Adopter(
        replace(settings(), tables=(chosen,)),
        tool.source,
        tool.shop.ledger,
        PostgresAdoption(tool.shop.connection),
        tool.read_time,
    )
    (found,) = adopter.adopt(finished(tool.source.position), [chosen])
    assert found.refusal == ""


def test_target_is_adopted_under_the_names_that_its_naming_gives(tool: OldTool) -> None:
    tool.chosen = {"naming": Naming.SNAKE_CASE}
    at = tool.apply()
    refused(tool.adopt(finished(at)), "column id (integer) is missing, there is Id", "expected (id)")
    names = {"Id": "id", "Amount": "amount", "Disc%": "disc", "Notes": "notes"}
    tool.execute(*(f'ALTER TABLE shop.orders RENAME COLUMN "{old}" TO {new}' for old, new in names.items()))
    assert tool.adopt(finished(at)).refusal == ""
    known = tool.shop.ledger.read_tables(PIPELINE)[ORDERS].columns
    assert {each.source: each.target for each in known} == names


def as_history(tool: OldTool) -> int:
    """Let the old tool apply all changes, and the pipeline keep a history. Return the position of the old tool."""
    tool.chosen = {"style": Style.HISTORY}
    at = tool.apply()
    tool.times[lsn(at)] = datetime(2026, 11, 20, 6, 15, tzinfo=UTC)
    return at


def test_rows_of_a_history_are_versions_that_begin_at_the_position(tool: OldTool) -> None:
    at = as_history(tool)
    found = tool.adopt(finished(at))
    (row, *others) = tool.shop.rows(
        "SELECT DISTINCT __load, __lsn, __op, __deleted, __committed_at, __kept, __valid_from, __window_id"
        " FROM shop.orders"
    )
    assert others == []
    began = tool.times[lsn(at)]
    assert list(row.values()) == [
        found.window_id, lsn(at).value, INSERT, False, began, [], began, found.window_id
    ]  # fmt: skip
    assert tool.shop.rows("SELECT * FROM pg_attrdef WHERE adrelid = 'shop.orders'::regclass") == []
    assert tool.shop.rows("SELECT count(*) AS n FROM shop.orders_history WHERE __valid_to IS NULL") == [{"n": 4}]
    assert tool.watermark() == lsn(at)


@pytest.mark.parametrize("dry_run", [False, True])
def test_history_whose_beginning_has_no_time_is_refused(tool: OldTool, dry_run: bool) -> None:
    at = as_history(tool)
    tool.times.clear()
    refused(tool.adopt(finished(at), dry_run=dry_run), "style: history, and the source does not know the time of")
    assert untouched(tool)


def test_history_whose_table_of_ended_versions_is_there_is_refused(tool: OldTool) -> None:
    at = as_history(tool)
    tool.execute("CREATE TABLE shop.orders_versions (id integer)")
    refused(tool.adopt(finished(at)), "whose ended versions belong in shop.orders_versions, which exists")
    assert untouched(tool)


@pytest.mark.parametrize("style", [Style.LOG, Style.SNAPSHOT])
def test_rows_of_another_tool_become_neither_a_log_nor_a_snapshot(tool: OldTool, style: Style) -> None:
    tool.chosen = {"style": style}
    refused(
        tool.adopt(finished(tool.apply())), f"cannot be adopted as a {style.value}", "Use style: current or history"
    )
    assert untouched(tool)
