"""Large results come as Arrow batches and are the same rows; what cannot go that way is streamed row by row."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal

import adbc_driver_manager
import adbc_driver_postgresql
import pytest

from engine_client import Client
from sqlserver_emulator.assembly.factory import Engine
from sqlserver_emulator.engine.connection.arrow_database import ArrowDatabase
from sqlserver_emulator.engine.connection.reader import ArrowReader
from sqlserver_emulator.events import Column
from sqlserver_emulator.types import TsqlType

ROWS = 20_000


@pytest.fixture(scope="module")
def filled(module_client: Client) -> None:
    """dbo.big, ROWS rows of mixed columns."""
    module_client.run(
        "CREATE TABLE dbo.digits (d int); INSERT INTO dbo.digits VALUES (0), (1), (2), (3), (4), (5), "
        "(6), (7), (8), (9);"
        "CREATE TABLE dbo.big (id int NOT NULL PRIMARY KEY, lsn binary(10), amount decimal(18, 2), price "
        "money, name nvarchar(30),"
        " at datetime2(6), g uniqueidentifier, flag bit);"
        "INSERT INTO dbo.big SELECT n.id, CONVERT(binary(10), n.id), n.id * 1.25, n.id, CONCAT(N'name ', n.id),"
        " DATEADD(second, n.id, '2024-01-01'), NEWID(), n.id % 2 FROM (SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d +"
        " 10000 * f.d AS id FROM dbo.digits a, dbo.digits b, dbo.digits c, dbo.digits e, dbo.digits f) AS "
        f"n WHERE n.id < {ROWS}"
    )


pytestmark = pytest.mark.usefixtures("filled")


def test_a_large_result_comes_as_arrow(client: Client) -> None:
    (result,) = client.run("SELECT * FROM dbo.big ORDER BY id").results
    assert result.arrow_batches > 0
    assert len(result.rows) == ROWS
    row = result.rows[8]
    assert row[:5] == (8, bytes(9) + b"\x08", Decimal("10.00"), Decimal("8.0000"), "name 8")
    assert str(row[5]) == "2024-01-01 00:00:08"
    assert result.types["price"] == TsqlType("money")


def test_decimals_and_nulls_of_a_large_result_are_exact(client: Client) -> None:
    (result,) = client.run(
        "SELECT CASE WHEN id % 3 = 0 THEN NULL ELSE -amount END AS a, CAST(id AS decimal(38, 10)) AS b,"
        " CASE WHEN id = 1 THEN -922337203685477.5808 ELSE price END AS c, id FROM dbo.big ORDER BY id"
    ).results
    assert result.arrow_batches > 0
    assert [row[0] for row in result.rows[:4]] == [None, Decimal("-1.25"), Decimal("-2.50"), None]
    assert all(row[0] is None or row[0] == Decimal(row[3]) * Decimal("-1.25") for row in result.rows)  # type: ignore[arg-type]
    assert [format(row[1], "f") for row in result.rows[:2]] == ["0.0000000000", "1.0000000000"]
    assert result.rows[1][2] == Decimal("-922337203685477.5808")


def test_moments_with_an_offset_keep_it_in_a_large_result(client: Client) -> None:
    (result,) = client.run(
        "SELECT CASE WHEN id % 3 = 0 THEN NULL ELSE TODATETIMEOFFSET("
        "DATEADD(nanosecond, 100, CAST(at AS datetime2(7))), id % 840 - id % 2 * 840) END AS o,"
        " TODATETIMEOFFSET(CAST(at AS datetime2(3)), '-05:30') AS m, id FROM dbo.big ORDER BY id"
    ).results
    assert result.arrow_batches > 0
    first = datetime(2024, 1, 1)
    for moment, other, id_ in result.rows:
        assert isinstance(id_, int)
        local = first + timedelta(seconds=id_)
        minutes = id_ % 840 - id_ % 2 * 840
        utc = (local - timedelta(minutes=minutes) - datetime(1, 1, 1)) // timedelta(microseconds=1) * 10 + 1
        assert moment == (None if id_ % 3 == 0 else {"utc": utc, "minutes": minutes})
        of_other = (local + timedelta(minutes=330) - datetime(1, 1, 1)) // timedelta(microseconds=1) * 10
        assert other == {"utc": of_other, "minutes": -330}


def test_moments_of_a_large_result_are_inserted_by_exec(client: Client) -> None:
    client.run(
        "CREATE TABLE dbo.moments (id int, a datetime2(7), b datetimeoffset(7), c time(7), d datetimeoffset(2));"
        "EXEC('CREATE PROCEDURE dbo.give_moments AS SELECT id, DATEADD(nanosecond, 100, CAST(at AS datetime2(7))),"
        " TODATETIMEOFFSET(CAST(at AS datetime2(7)), 90), CAST(at AS time(7)),"
        " CASE WHEN id > 1 THEN TODATETIMEOFFSET(CAST(at AS datetime2(2)), -90) END FROM dbo.big')"
    )
    client.run("INSERT INTO dbo.moments EXEC dbo.give_moments")
    assert client.value("SELECT COUNT(*) FROM dbo.moments") == ROWS
    texts = ", ".join(f"CAST({name} AS varchar(40))" for name in "abcd")
    assert client.rows(f"SELECT {texts} FROM dbo.moments WHERE id IN (1, 2) ORDER BY id") == [
        ("2024-01-01 00:00:01.0000001", "2024-01-01 00:00:01.0000000 +01:30", "00:00:01.0000000", None),
        ("2024-01-01 00:00:02.0000001", "2024-01-01 00:00:02.0000000 +01:30", "00:00:02.0000000",
         "2024-01-01 00:00:02.00 -01:30"),
    ]  # fmt: skip


def test_the_row_count_of_a_large_result_is_known_at_its_end(client: Client) -> None:
    assert client.run("SELECT id FROM dbo.big").counts == [ROWS]
    assert client.run("SELECT id FROM dbo.big; SELECT @@ROWCOUNT").results[-1].rows == [(ROWS,)]


def test_a_small_result_comes_as_rows(client: Client) -> None:
    (result,) = client.run("SELECT * FROM dbo.big WHERE id = 5").results
    assert (result.arrow_batches, len(result.rows)) == (0, 1)


def test_a_result_larger_than_estimated_is_read_again_as_arrow(client: Client) -> None:
    (result,) = client.run(
        "SELECT id FROM dbo.big WHERE id % 2 >= 0 AND id % 3 >= 0 AND id % 5 >= 0 AND name LIKE N'name%'"
    ).results
    assert len({row[0] for row in result.rows}) == len(result.rows) == ROWS


def test_variables_are_bound_in_a_large_result(client: Client) -> None:
    rows = client.rows(
        "DECLARE @low int = 100, @n nvarchar(30) = N'it''s'; SELECT id, @n FROM dbo.big WHERE id >= @low"
    )
    assert len(rows) == ROWS - 100
    assert rows[0][1] == "it's"


def test_a_transaction_sees_its_own_rows_in_a_large_result(client: Client) -> None:
    client.run("BEGIN TRAN; DELETE FROM dbo.big WHERE id >= 10000")
    (result,) = client.run("SELECT id FROM dbo.big").results
    client.run("ROLLBACK")
    assert (result.arrow_batches, len(result.rows)) == (0, 10_000)


def test_an_error_in_the_middle_of_a_large_result_is_sql_servers(client: Client) -> None:
    error = client.error("SELECT 1 / (15000 - id) FROM dbo.big")
    assert (error.number, error.message) == (8134, "Divide by zero error encountered.")
    assert client.error("SELECT CAST(id AS tinyint) FROM dbo.big").number == 220
    assert client.value("SELECT COUNT(*) FROM dbo.big") == ROWS


def test_a_result_given_up_half_way_leaves_the_session_usable(client: Client) -> None:
    events = client.session.run_batch("SELECT a.id FROM dbo.big AS a CROSS JOIN dbo.digits AS b")
    for _ in range(3):
        next(events)
    events.close()  # type: ignore[attr-defined]
    assert client.value("SELECT COUNT(*) FROM dbo.big") == ROWS


def test_cancel_ends_a_long_statement(client: Client, connect: Callable[..., Client]) -> None:
    started = threading.Event()

    def cancel_when_running() -> None:
        started.wait(30)
        client.session.cancel()

    thread = threading.Thread(target=cancel_when_running)
    thread.start()
    events = client.session.run_batch("SELECT COUNT_BIG(*) FROM dbo.big AS a, dbo.big AS b, dbo.big AS c")
    threading.Timer(0.3, started.set).start()
    assert list(events) is not None
    thread.join()
    assert client.value("SELECT COUNT(*) FROM dbo.big") == ROWS


def test_connections_of_all_sessions_share_the_types_and_nothing_else(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def noting(uri: str) -> adbc_driver_manager.AdbcDatabase:
        opened.append(uri)
        return connect_database(uri)

    connect_database = adbc_driver_postgresql.connect
    monkeypatch.setattr(adbc_driver_postgresql, "connect", noting)
    database = ArrowDatabase(engine.conninfo)
    first, second = ArrowReader(database), ArrowReader(database)
    columns = (Column("c", TsqlType("nvarchar", 20)),)
    sql = "SELECT current_setting('emulator.database', true)::varchar(20)"
    found = []
    for reader, name in ((first, "one"), (second, "two"), (first, "one")):
        (rows,) = reader.read(sql, [], columns, {"emulator.database": name})
        found += [rows.batch.column(0).to_pylist()]  # type: ignore[attr-defined]
    first.close()
    second.close()
    assert found == [["one"], ["two"], ["one"]]
    assert opened == [engine.conninfo]


def test_column_of_a_type_that_was_made_later_is_read_as_arrow(client: Client, connect: Callable[..., Client]) -> None:
    assert client.run("SELECT id FROM dbo.big").results[0].arrow_batches > 0
    client.run("CREATE TYPE dbo.Label FROM nvarchar(20)")
    client.run("CREATE TABLE dbo.later (id int NOT NULL, label dbo.Label NULL, at datetime2(7) NULL)")
    client.run("INSERT INTO dbo.later SELECT id, CONCAT(N'n', id), '2024-01-01' FROM dbo.big")
    for reader in (client, connect()):
        (result,) = reader.run("SELECT id, label FROM dbo.later").results
        assert result.arrow_batches > 0
        assert sorted(result.rows)[-1] == (ROWS - 1, f"n{ROWS - 1}")
