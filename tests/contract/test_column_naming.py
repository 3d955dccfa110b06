"""``naming: snake_case`` through whole runs: what is called how, and that each column keeps its name for good."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from switch_rig import SwitchRig

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.errors import DefinitionChangedError
from floodmark.core.schema import TableName
from floodmark.core.settings import Deletes, Naming, OnFailure, PipelineSettings, Rule, TableSettings
from floodmark.postgres.session import WarehouseConnection
from floodmark.postgres.url import sqlalchemy_url
from floodmark.postgres.warehouse.release import PostgresQuarantine
from floodmark.quality.great_expectations import GreatExpectationsQuality
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sync.finish import advance_window, check_window
from floodmark.sync.load import load_window
from floodmark.sync.window import OpenResult
from in_process_stager import InProcessStager
from row_verification import reading

ODD = TableName("dbo", "Order Lines")
LONG = "Remark that an operator has written about the line of the order, long"
LONG_IN_TARGET = "remark_that_an_operator_has_written_about_the_line_of_th_9238ed"
POSITIVE = Rule("positive", "unit_price >= 0 AND coalesce(doc, '') <> 'bad'", OnFailure.QUARANTINE)


class NamingRig(SwitchRig):
    """A pipeline of one table whose checks run as Great Expectations."""

    docs: Path

    @property
    def settings(self) -> TableSettings:
        return self.pipelines[0].tables[0]

    def choose(self, **chosen: Any) -> None:
        self.pipelines = [replace(self.pipelines[0], tables=(replace(self.settings, **chosen),))]

    def finish(self, opened: OpenResult) -> OpenResult:
        if opened.window_id is not None:
            source = SqlServerSource(self.at)
            load_window(opened.window_id, self.ledger, self.warehouse, source, InProcessStager(reading(self.at)))
            quality = GreatExpectationsQuality(sqlalchemy_url(self.connection), self.warehouse.open_rows, self.docs)
            check_window(opened.window_id, self.ledger, quality)
            advance_window(opened.window_id, self.ledger, self.warehouse)
        return opened

    def columns(self) -> dict[str, str | None]:
        """Return the columns of the target that come from the source, with their comments."""
        found = self.rows(
            "SELECT attname, col_description(attrelid, attnum) FROM pg_attribute"
            " WHERE attrelid = 'shop.order_lines'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
        )
        own = {"__lsn", "__op", "__window_id", "__loaded_at", "__deleted"}
        return {name: comment for name, comment in found if name not in own}

    def verdict(self) -> str:
        [(verdict,)] = self.rows("SELECT verdict FROM floodmark.verdicts")
        return str(verdict)


def made(
    emulator: Emulator, source: CdcDatabase, warehouse: WarehouseConnection, docs: Path, columns: str, **chosen: Any
) -> NamingRig:
    source.run(f"CREATE TABLE dbo.[Order Lines] ({columns})")
    rig = NamingRig(emulator, source, warehouse)
    table = TableSettings(ODD, TableName("shop", "order_lines"), **{"naming": Naming.SNAKE_CASE} | chosen)
    rig.pipelines, rig.tables, rig.docs = [PipelineSettings("shop", (table,))], {"shop": ODD}, docs
    return rig


@pytest.fixture
def source(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as database:
        yield database


@pytest.mark.parametrize("deletes", Deletes)
def test_columns_of_odd_names_go_through_loads_changes_quarantine_checks_and_comparison(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection, tmp_path: Path, deletes: Deletes
) -> None:
    columns = (
        "OrderID int NOT NULL, [Line No.] int NOT NULL, [Order ID] int, [Unit Price] money, [__lsn] int, [__op] int,"
        f" [__part] int, [2ndUnit] int, [{LONG}] nvarchar(20), Doc nvarchar(max), PRIMARY KEY (OrderID, [Line No.])"
    )
    rig = made(emulator, source, database, tmp_path, columns, deletes=deletes, rules=(POSITIVE,))
    values = "7, 1.5, 8, 9, 10, 11, N'r'"
    source.run(*(f"INSERT dbo.[Order Lines] VALUES (1, {line}, {values}, N'doc')" for line in (1, 2, 3, 4)))
    source.enable("Order Lines")
    rig.run()
    assert rig.columns() == {
        "order_id": "Source column: OrderID",
        "line_no": "Source column: Line No.",
        "order_id_d89d84": "Source column: Order ID",
        "unit_price": "Source column: Unit Price",
        "_lsn": "Source column: __lsn",
        "_op": "Source column: __op",
        "_part": "Source column: __part",
        "_2nd_unit": "Source column: 2ndUnit",
        LONG_IN_TARGET: f"Source column: {LONG}",
        "doc": "Source column: Doc",
    }
    rig.change(
        "UPDATE dbo.[Order Lines] SET [__lsn] = 80, [Unit Price] = 2 WHERE [Line No.] = 1",
        "DELETE dbo.[Order Lines] WHERE [Line No.] = 2",
        "UPDATE dbo.[Order Lines] SET [Line No.] = 30 WHERE [Line No.] = 3",
        f"INSERT dbo.[Order Lines] VALUES (1, 5, {values.replace('1.5', '-1')}, N'new')",
        "UPDATE dbo.[Order Lines] SET Doc = N'bad' WHERE [Line No.] = 4",
        "UPDATE dbo.[Order Lines] SET [__part] = NULL WHERE [Line No.] = 4",
    )
    rig.run()
    living = "SELECT line_no, unit_price, _lsn, doc FROM shop.order_lines WHERE NOT __deleted ORDER BY 1"
    assert [row[0] for row in rig.rows(living)] == [1, 4, 30]
    assert rig.rows("SELECT key, row_data ->> 'doc' FROM floodmark.quarantine ORDER BY 1") == [
        ([1, 4], "bad"),
        ([1, 5], "new"),
    ]
    rig.choose(rules=())
    assert PostgresQuarantine(database).release("shop", rig.settings, "anna").released == 2
    assert rig.differing() == []
    rig.change("INSERT dbo.[Order Lines] VALUES (1, 2, 7, 1, 1, 1, 1, 1, NULL, NULL)")
    rig.run()
    assert rig.differing() == []
    rig.finish(rig.load_planner().open_reload(ODD))
    assert rig.differing() == []
    assert rig.rows("SELECT source_name FROM floodmark.verdicts WHERE cause LIKE '%refused%'") == []


def test_added_column_whose_name_is_taken_gets_another_one_and_the_first_stays(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection, tmp_path: Path
) -> None:
    rig = made(emulator, source, database, tmp_path, "Id int PRIMARY KEY, UnitPrice int, Amount smallint")
    source.run("INSERT dbo.[Order Lines] VALUES (1, 10, 1), (2, 20, 2)")
    source.enable("Order Lines")
    rig.run()
    source.run(
        "ALTER TABLE dbo.[Order Lines] ADD [Unit Price] int",
        "UPDATE dbo.[Order Lines] SET [Unit Price] = 100 WHERE Id = 1",
    )
    rig.change("ALTER TABLE dbo.[Order Lines] ALTER COLUMN Amount bigint")
    rig.change("INSERT dbo.[Order Lines] VALUES (3, 30, 5000000000, 300)")
    rig.watch_closely()
    rig.run()
    rig.approve()
    for _ in range(12):
        if not rig.switches.take():
            break
        source.scan()
        rig.change("UPDATE dbo.[Order Lines] SET UnitPrice = UnitPrice + 1 WHERE Id = 2")
        rig.run()
        rig.finish(rig.load_planner().open_pending())
    suffixed = next(name for name in rig.columns() if name.startswith("unit_price_"))
    assert list(rig.columns()) == ["id", "unit_price", "amount", suffixed]
    assert rig.rows(f"SELECT id, {suffixed}, amount FROM shop.order_lines ORDER BY 1") == [
        (1, 100, 1),
        (2, None, 2),
        (3, 300, 5000000000),
    ]
    assert rig.differing() == []
    assert [event.explained.difference.column for event in rig.source.list_events()] == ["Amount", "Unit Price"]
    source.run("ALTER TABLE dbo.[Order Lines] DROP COLUMN UnitPrice")
    rig.change("UPDATE dbo.[Order Lines] SET [Unit Price] = 200 WHERE Id = 2")
    rig.watch_closely()
    rig.run()
    rig.finish(rig.load_planner().open_reload(ODD))
    assert rig.rows(f"SELECT id, {suffixed} FROM shop.order_lines ORDER BY 1") == [(1, 100), (2, 200), (3, 300)]
    assert list(rig.columns()) == ["id", "unit_price", "amount", suffixed]
    assert rig.differing() == []


def test_other_naming_of_a_loaded_table_is_refused_until_a_reload_renames_its_columns(
    emulator: Emulator, source: CdcDatabase, database: WarehouseConnection, tmp_path: Path
) -> None:
    columns = "OrderID int PRIMARY KEY, [order_id] int, UnitPrice int"
    rig = made(emulator, source, database, tmp_path, columns, naming=Naming.KEEP)
    source.run("INSERT dbo.[Order Lines] VALUES (1, 5, 10), (2, 6, 20)")
    source.enable("Order Lines")
    rig.run()
    assert rig.columns() == {"OrderID": None, "order_id": None, "UnitPrice": None}
    rig.choose(naming=Naming.SNAKE_CASE)
    rig.change("INSERT dbo.[Order Lines] VALUES (3, 7, 30)", "DELETE dbo.[Order Lines] WHERE OrderID = 1")
    with pytest.raises(DefinitionChangedError) as error:
        rig.run()
    assert "loaded with naming: keep, and pipelines.yaml has naming: snake_case now" in str(error.value)
    assert "floodmark reload PIPELINE 'dbo.Order Lines'" in str(error.value)
    assert rig.verdict() == "definition_changed"
    assert rig.rows('SELECT "OrderID" FROM shop.order_lines ORDER BY 1') == [(1,), (2,)]
    opened = rig.load_planner().open_reload(ODD)
    assert opened.window_id is not None
    rig.warehouse.prepare_window(rig.ledger.begin_load(opened.window_id).plan)
    rig.load_planner().give_up(ODD)
    assert rig.columns() == {"OrderID": None, "order_id": None, "UnitPrice": None}
    for naming, names in ((Naming.SNAKE_CASE, ["order_id", "order_id_ca13a6", "unit_price"]), (Naming.KEEP, [])):
        rig.choose(naming=naming)
        rig.finish(rig.load_planner().open_reload(ODD))
        assert list(rig.columns()) == (names or ["OrderID", "order_id", "UnitPrice"])
        assert rig.differing() == []
        rig.change("UPDATE dbo.[Order Lines] SET UnitPrice = UnitPrice + 1")
        rig.run()
        assert rig.verdict() == "ready"
        assert rig.differing() == []
        assert rig.rows("SELECT count(*) FROM shop.order_lines WHERE __deleted") == [(1,)]
