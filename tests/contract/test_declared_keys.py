"""Tables that the server knows no key of: they are merged by the one that the configuration declares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from switch_rig import ORDERS, SwitchRig

from cdc_database import cdc_database
from emulator_process import Emulator
from floodmark.core.errors import ConfigError
from floodmark.core.schema import TableName
from floodmark.core.settings import FirstLoad, PipelineSettings, TableSettings
from floodmark.postgres.session import WarehouseConnection
from floodmark.sources.sqlserver.driver import SourceSession

LIVING = 'SELECT "Code", "Amount", "Note" FROM shop.orders WHERE NOT __deleted ORDER BY 1'


@pytest.fixture
def rig(emulator: Emulator, database: WarehouseConnection) -> Iterator[SwitchRig]:
    """A heap of four rows, read two at a time."""
    with cdc_database(emulator) as source:
        source.run(
            "CREATE TABLE dbo.Orders (Amount int, Code varchar(20), Note nvarchar(max))",
            "INSERT INTO dbo.Orders VALUES (1, 'A', N'a'), (2, 'B', N'b'), (3, 'C', N'c'), (4, 'D', N'd')",
        )
        source.enable("Orders")
        made = SwitchRig(emulator, source, database)
        orders = TableSettings(ORDERS, TableName("shop", "orders"), key=("code",), first_load=FirstLoad(chunk_rows=2))
        made.pipelines = [PipelineSettings("shop", (orders,))]
        yield made


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that are sent to the source."""
    sent: list[str] = []
    fetch_sets, read_batches = SourceSession.fetch_sets, SourceSession.read_batches

    def fetched(session: SourceSession, text: str, *rest: Any) -> Any:
        sent.append(text)
        return fetch_sets(session, text, *rest)

    def streamed(session: SourceSession, subject: str, text: str, *rest: Any) -> Any:
        sent.append(text)
        return read_batches(session, subject, text, *rest)

    monkeypatch.setattr(SourceSession, "fetch_sets", fetched)
    monkeypatch.setattr(SourceSession, "read_batches", streamed)
    return sent


def test_table_without_a_key_is_loaded_and_followed_by_the_declared_one(rig: SwitchRig) -> None:
    rig.run()
    rig.change(
        "UPDATE dbo.Orders SET Amount = 22 WHERE Code = 'B'",
        "DELETE dbo.Orders WHERE Code = 'C'",
        "INSERT INTO dbo.Orders VALUES (5, 'E', NULL)",
    )
    rig.run()
    assert rig.rows(LIVING) == [("A", 1, "a"), ("B", 22, "b"), ("D", 4, "d"), ("E", 5, None)]
    assert rig.differing() == []


def test_table_whose_key_has_no_index_is_read_once_as_a_whole(rig: SwitchRig, statements: list[str]) -> None:
    rig.run()
    assert sum("FROM [dbo].[Orders]" in text for text in statements) == 1
    assert len(rig.rows(LIVING)) == 4


def test_table_whose_key_has_an_index_is_read_in_chunks(rig: SwitchRig, statements: list[str]) -> None:
    rig.change("CREATE INDEX ix_code ON dbo.Orders (Code) INCLUDE (Amount)")
    rig.run()
    reads = [text for text in statements if "FROM [dbo].[Orders]" in text]
    assert sum("OFFSET" in text for text in reads) == 3
    assert sum("COUNT_BIG" in text for text in reads) == 1
    assert len(reads) == 3 + 1 + 3  # the last chunk is empty
    assert len(rig.rows(LIVING)) == 4


def test_row_that_is_given_another_key_leaves_the_old_one(rig: SwitchRig) -> None:
    rig.run()
    rig.change("UPDATE dbo.Orders SET Code = 'Z' WHERE Code = 'A'")
    rig.run()
    assert rig.rows(LIVING) == [("B", 2, "b"), ("C", 3, "c"), ("D", 4, "d"), ("Z", 1, "a")]
    assert rig.rows('SELECT "Code", __op, "Note" FROM shop.orders WHERE __deleted') == [("A", 1, "a")]


def test_key_that_moves_on_within_a_transaction_is_gone(rig: SwitchRig) -> None:
    rig.run()
    rig.change(
        "BEGIN TRANSACTION; UPDATE dbo.Orders SET Code = 'M' WHERE Code = 'A';"
        " UPDATE dbo.Orders SET Code = 'N' WHERE Code = 'M'; COMMIT"
    )
    rig.run()
    assert rig.rows(LIVING) == [("B", 2, "b"), ("C", 3, "c"), ("D", 4, "d"), ("N", 1, "a")]


def test_first_load_by_a_key_that_is_null_somewhere_is_refused_by_column_and_number(rig: SwitchRig) -> None:
    rig.change("UPDATE dbo.Orders SET Code = NULL WHERE Amount > 2")
    message = r"dbo\.Orders: the declared key \(Code\) is NULL: Code in 2 rows\. .*declare columns that are never NULL"
    with pytest.raises(ConfigError, match=message):
        rig.run()
    rig.change("UPDATE dbo.Orders SET Code = CASE Amount WHEN 3 THEN 'C' ELSE 'D' END WHERE Code IS NULL")
    rig.run()
    assert rig.rows(LIVING) == [("A", 1, "a"), ("B", 2, "b"), ("C", 3, "c"), ("D", 4, "d")]


def test_key_that_is_not_unique_is_refused_by_its_rows(rig: SwitchRig) -> None:
    rig.change("UPDATE dbo.Orders SET Code = 'A' WHERE Amount > 2")
    with pytest.raises(ConfigError, match=r"declared key \(Code\) is not unique: 3 rows have the same key\. D"):
        rig.run()
    rig.change("UPDATE dbo.Orders SET Code = CASE Amount WHEN 3 THEN 'C' ELSE 'D' END WHERE Amount > 2")
    rig.run()
    assert rig.rows(LIVING) == [("A", 1, "a"), ("B", 2, "b"), ("C", 3, "c"), ("D", 4, "d")]


def test_row_that_loses_its_key_goes_to_quarantine_and_comes_back_with_a_key(rig: SwitchRig) -> None:
    rig.run()
    rig.change("UPDATE dbo.Orders SET Code = NULL WHERE Code = 'A'", "INSERT INTO dbo.Orders VALUES (5, 'E', NULL)")
    rig.run()
    assert [row[0] for row in rig.rows(LIVING)] == ["B", "C", "D", "E"]
    quarantined = "SELECT rule, key, row_data ->> 'Amount' FROM floodmark.quarantine"
    assert rig.rows(quarantined) == [("key_is_not_null", [None], "1")]
    rig.change("UPDATE dbo.Orders SET Code = 'A' WHERE Code IS NULL")
    rig.run()
    assert rig.differing() == []


def test_first_load_that_was_refused_for_its_key_is_planned_again_with_another(rig: SwitchRig) -> None:
    rig.change("UPDATE dbo.Orders SET Code = 'A' WHERE Amount > 2")
    with pytest.raises(ConfigError, match="not unique"):
        rig.run()
    rig.pipelines = [PipelineSettings("shop", (replace(rig.pipelines[0].tables[0], key=("Amount",)),))]
    with pytest.raises(ConfigError, match=r"the target shop\.orders exists with another shape: .* both keys"):
        rig.run()
    with psycopg.connect(rig.connection.conninfo()) as session:
        session.execute("DROP TABLE shop.orders")
    rig.run()
    assert rig.rows('SELECT "Amount", "Code" FROM shop.orders ORDER BY 1') == [(1, "A"), (2, "B"), (3, "A"), (4, "A")]
