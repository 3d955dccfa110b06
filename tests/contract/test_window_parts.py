"""In how many parts the changes of a window are read, and what that asks of the source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from cdc_database import CdcDatabase, cdc_database
from emulator_process import Emulator
from floodmark.core.plan import LoadKind, TablePlan, WindowPlan
from floodmark.core.position import Interval, Lsn
from floodmark.core.schema import TableName
from floodmark.core.settings import NetSource, TableSettings
from floodmark.sources.cdc import reader
from floodmark.sources.cdc.reader import choose_numbers, plan_reads
from floodmark.sources.cdc.source import SqlServerSource
from floodmark.sources.sqlserver.driver import SourceSession, SqlServerConnection
from floodmark.sync.ports import TableRead
from table_plans import with_settings

BUSY, CALM = TableName("dbo", "Busy"), TableName("dbo", "Calm")
CORES = 4
TRANSACTIONS = 40


@pytest.fixture(scope="module")
def database(emulator: Emulator) -> Iterator[CdcDatabase]:
    with cdc_database(emulator) as made:
        for table in ("Busy", "Calm"):
            made.run(f"CREATE TABLE dbo.{table} (Id int NOT NULL PRIMARY KEY)")
            made.enable(table)
            made.run(f"INSERT INTO dbo.{table} VALUES (0)")
        made.scan()
        yield made


@pytest.fixture(scope="module")
def at(emulator: Emulator, database: CdcDatabase) -> SqlServerConnection:
    return SqlServerConnection(
        emulator.host, emulator.port, database.name, emulator.user, emulator.password, ca_file=str(emulator.ca_file)
    )


@pytest.fixture(scope="module")
def plan(at: SqlServerConnection, database: CdcDatabase) -> WindowPlan:
    """A window with 40 transactions of one table and one changed row of another."""
    before = SqlServerSource(at).read_snapshot([BUSY, CALM])
    database.run("INSERT INTO dbo.Calm VALUES (1)")
    for number in range(TRANSACTIONS):
        database.run(f"INSERT INTO dbo.Busy VALUES ({number + 1})")
    database.scan()
    after, to = before.newest, Lsn(database.scalar("sys.fn_cdc_get_max_lsn()"))
    assert isinstance(after, Lsn)
    tables = []
    for snapshot in before.tables:
        assert snapshot.feed is not None
        tables.append(
            TablePlan(
                settings=TableSettings(snapshot.table, TableName("shop", snapshot.table.name.lower())),
                kind=LoadKind.CHANGES,
                feed=snapshot.feed,
                interval=Interval(after, to),
                watermark=after,
            )
        )
    return WindowPlan(1, "shop", to, tuple(tables))


def reads_of(plan: WindowPlan, most: int, at: SqlServerConnection) -> dict[TableName, list[TableRead]]:
    """Return the reads of each table."""
    found: dict[TableName, list[TableRead]] = {}
    for each in plan_reads(plan, most, at).tasks:
        assert isinstance(each, TableRead)
        assert plan.tables[each.index] == each.table
        found.setdefault(each.table.source, []).append(each)
    return found


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The batches that are sent."""
    sent: list[str] = []
    fetch_sets = SourceSession.fetch_sets

    def recorded(session: SourceSession, text: str, parameters: tuple[object, ...] = ()) -> list:
        sent.append(text)
        return fetch_sets(session, text, parameters)

    monkeypatch.setattr(SourceSession, "fetch_sets", recorded)
    return sent


def test_table_with_few_changes_is_one_part_whatever_else_was_committed(
    at: SqlServerConnection, plan: WindowPlan, texts: list[str]
) -> None:
    found = reads_of(plan, CORES, at)
    assert {name: len(each) for name, each in found.items()} == {BUSY: 1, CALM: 1}
    assert len(texts) == 1


def test_only_the_table_with_many_changes_is_cut(
    at: SqlServerConnection, plan: WindowPlan, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PART_CHANGES", 10)
    found = reads_of(plan, CORES, at)
    assert {name: len(each) for name, each in found.items()} == {BUSY: CORES, CALM: 1}
    assert found[BUSY][0].interval.after == plan.tables[0].watermark
    assert found[BUSY][-1].interval.to == plan.to
    assert all(one.is_followed_by(other) for one, other in pairwise(each.interval for each in found[BUSY]))
    assert len(texts) == 2


def test_window_asks_for_its_cuts_once(
    at: SqlServerConnection, plan: WindowPlan, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PART_CHANGES", 1)
    monkeypatch.setattr(reader, "WHOLE_CHANGES", 1)
    busy = plan.tables[0]
    again = tuple(with_settings(busy, source=TableName("dbo", f"Busy{number}")) for number in range(5))
    found = reads_of(replace(plan, tables=again), CORES, at)
    assert [len(each) for each in found.values()] == [CORES] * 5
    assert len(texts) == 2


def test_tables_that_keep_all_tasks_busy_are_not_cut() -> None:
    names = [TableName("dbo", f"T{number}") for number in range(10)]
    assert set(choose_numbers(dict.fromkeys(names, 20_000), CORES).values()) == {1}
    assert choose_numbers(dict.fromkeys(names, 20_000) | {BUSY: 60_000}, CORES)[BUSY] == CORES
    assert choose_numbers({BUSY: 12_000, CALM: 10}, CORES) == {BUSY: 3, CALM: 1}


def test_large_table_has_no_count_where_it_is_one_part(
    at: SqlServerConnection, plan: WindowPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "WHOLE_CHANGES", 10)
    found = reads_of(plan, 1, at)
    assert [[each.changes for each in found[name]] for name in (BUSY, CALM)] == [[None], [1]]


def test_table_that_is_locked_while_it_is_counted_is_read_in_one_part(
    at: SqlServerConnection, plan: WindowPlan, database: CdcDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PART_CHANGES", 10)
    database.run("EXEC emulator.fail_statements @error = 1222, @table = N'dbo_Busy_CT'")
    try:
        found = reads_of(plan, CORES, at)
    finally:
        database.run("EXEC emulator.clear_faults")
    assert {name: len(each) for name, each in found.items()} == {BUSY: 1, CALM: 1}


def test_net_changes_of_the_server_are_counted_and_never_cut(
    at: SqlServerConnection, plan: WindowPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "PART_CHANGES", 10)
    net = tuple(with_settings(table, net=NetSource.SERVER) for table in plan.tables)
    busy, calm = net[0], with_settings(net[1], partitions=3)
    [of_busy] = reads_of(replace(plan, tables=(busy, calm)), CORES, at)[BUSY]
    [of_calm] = reads_of(replace(plan, tables=(busy, calm)), CORES, at)[CALM]
    assert (of_busy.interval, of_busy.is_net) == (busy.interval, True)
    assert of_busy.changes is not None
    assert of_busy.changes > 10
    assert (of_calm.interval, of_calm.is_net, of_calm.changes) == (calm.interval, True, None)


def test_source_is_not_asked_where_no_table_is_counted(plan: WindowPlan, texts: list[str]) -> None:
    nowhere = SqlServerConnection("127.0.0.1", 1, "Shop", "sa", "")
    one = tuple(with_settings(table, partitions=1) for table in plan.tables)
    [read] = reads_of(replace(plan, tables=one), CORES, nowhere)[CALM]
    assert (read.interval, read.changes, read.is_net) == (plan.tables[1].interval, None, False)
    assert texts == []
