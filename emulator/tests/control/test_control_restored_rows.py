"""A restore brings the rows of tracked tables back, or says why it cannot."""

from __future__ import annotations

from typing import Any

import pymssql
import pytest

from cdc_database import CdcDatabase, Row

_TYPED = (
    "CREATE TABLE dbo.r (id int IDENTITY NOT NULL PRIMARY KEY, n int, twice AS (n * 2), v nvarchar(max),"
    " b varbinary(9), o datetimeoffset, d decimal(9, 2), old text, rv rowversion)"
)


def track(shop: CdcDatabase, table: str, **options: str) -> None:
    shop.enable(table, **options)
    shop.run("EXEC emulator.run_capture")


def rows_of(shop: CdcDatabase, table: str) -> list[Row]:
    return shop.query(f"SELECT * FROM dbo.{table} ORDER BY 1, 2")


def point_of(shop: CdcDatabase) -> str:
    shop.run("EXEC emulator.run_capture")
    return f"0x{shop.scalar('sys.fn_cdc_get_max_lsn()').hex()}"


def refusal_of(shop: CdcDatabase, call: str) -> str:
    with pytest.raises(pymssql.Error) as refused:
        shop.query(f"EXEC emulator.{call}")
    assert refused.value.args[0] == 49998
    return bytes(refused.value.args[1]).decode()


def test_every_change_is_taken_back_whatever_it_did(shop: CdcDatabase) -> None:
    shop.run(
        _TYPED,
        "INSERT dbo.r (n, v, b, o, d, old) VALUES (1, N'ü', 0x01, '2026-01-01T10:00:00+02:00', 1.5, 'a'),"
        " (2, REPLICATE(CAST(N'x' AS nvarchar(max)), 20000), NULL, NULL, -2, 'b'), (3, NULL, NULL, NULL, NULL, NULL)",
    )
    track(shop, "r")
    shop.run("INSERT dbo.r (n, v) VALUES (4, N'before')")
    point, before = point_of(shop), rows_of(shop, "r")
    captured = shop.change_table("dbo_r")
    shop.run(
        "UPDATE dbo.r SET n = n + 10",
        "UPDATE dbo.r SET v = N'other', o = '2026-01-01T08:00:00+00:00' WHERE id = 1",
        "BEGIN TRAN; UPDATE dbo.r SET d = 9; UPDATE dbo.r SET d = 10 WHERE id = 2; COMMIT",
        "INSERT dbo.r (n, v) VALUES (5, N'new'), (6, N'new')",
    )
    shop.run(f"EXEC emulator.restore_database {point}")
    assert rows_of(shop, "r") == before
    shop.run("EXEC emulator.run_capture")
    assert shop.change_table("dbo_r") == captured
    shop.run("INSERT dbo.r (n) VALUES (7)", "EXEC emulator.run_capture")
    assert [(row["__$operation"], row["n"]) for row in shop.change_table("dbo_r")[len(captured) :]] == [(2, 7)]


def test_moved_keys_and_deleted_rows_come_back_and_no_trigger_fires(shop: CdcDatabase) -> None:
    shop.run(
        "CREATE TABLE dbo.noted (what varchar(20))",
        "CREATE TRIGGER dbo.note ON dbo.t AFTER INSERT, DELETE AS INSERT dbo.noted VALUES ('fired')",
        "INSERT dbo.t (id, v) VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    point, before = point_of(shop), rows_of(shop, "t")
    shop.run("UPDATE dbo.t SET id = id + 10", "DELETE dbo.t WHERE id = 13", "INSERT dbo.t (id, v) VALUES (1, 'again')")
    noted = shop.scalar("(SELECT COUNT(*) FROM dbo.noted)")
    shop.run(f"EXEC emulator.restore_database {point}")
    assert rows_of(shop, "t") == before
    assert shop.scalar("(SELECT COUNT(*) FROM dbo.noted)") == noted


def test_equal_rows_of_a_table_without_a_key_are_counted(shop: CdcDatabase) -> None:
    shop.run("CREATE TABLE dbo.h (a int, b varchar(10))", "INSERT dbo.h VALUES (1, 'x'), (1, 'x'), (1, 'x'), (2, NULL)")
    track(shop, "h")
    shop.run("INSERT dbo.h VALUES (2, NULL)")
    point, before = point_of(shop), rows_of(shop, "h")
    shop.run(
        "DELETE TOP (2) FROM dbo.h WHERE a = 1", "INSERT dbo.h VALUES (2, NULL), (3, 'y')", "UPDATE dbo.h SET b = 'z'"
    )
    shop.run(f"EXEC emulator.restore_database {point}")
    assert rows_of(shop, "h") == before


def test_rows_stay_when_that_is_asked_for(shop: CdcDatabase) -> None:
    shop.run("INSERT dbo.t (id, v) VALUES (1, 'a')")
    point = point_of(shop)
    shop.run("UPDATE dbo.t SET v = 'b'", f"EXEC emulator.restore_database {point}, @rows = 0")
    assert [row["v"] for row in rows_of(shop, "t")] == ["b"]
    assert [row["__$operation"] for row in shop.change_table("dbo_t")] == [2]


@pytest.mark.parametrize(
    ("table", "options", "changes", "said"),
    [
        ("id int NOT NULL PRIMARY KEY, v int, extra int", {"captured_column_list": "N'id, v'"}, [], "'extra'"),
        ("id int NOT NULL PRIMARY KEY, v int, extra text", {}, ["DELETE dbo.x"], "no old values of column 'extra'"),
        ("id int NOT NULL PRIMARY KEY, v int, extra text", {}, ["UPDATE dbo.x SET extra = 'new'"], "no old values"),
    ],
)
def test_rows_that_change_tables_do_not_contain_are_refused(
    shop: CdcDatabase, table: str, options: dict[str, str], changes: list[str], said: str
) -> None:
    shop.run(f"CREATE TABLE dbo.x ({table})", "INSERT dbo.x (id, v) VALUES (1, 1)")
    track(shop, "x", **options)
    point = point_of(shop)
    shop.run(*changes, "INSERT dbo.t (id) VALUES (9)")
    before: Any = rows_of(shop, "x")
    assert said in refusal_of(shop, f"restore_database {point}")
    assert (rows_of(shop, "x"), len(rows_of(shop, "t"))) == (before, 1)
    shop.run(f"EXEC emulator.restore_database {point}, @rows = 0")


def test_row_that_an_untracked_table_refers_to_cannot_be_taken_back(shop: CdcDatabase) -> None:
    shop.run("CREATE TABLE dbo.child (id int NOT NULL PRIMARY KEY, t int CONSTRAINT fk_t REFERENCES dbo.t (id))")
    point = point_of(shop)
    shop.run("INSERT dbo.t (id) VALUES (1)", "INSERT dbo.child VALUES (1, NULL)")
    shop.run(f"EXEC emulator.restore_database {point}")
    assert rows_of(shop, "t") == []
    shop.run("INSERT dbo.t (id) VALUES (1)", "UPDATE dbo.child SET t = 1")
    assert "'fk_t'" in refusal_of(shop, f"restore_database {point}")
    assert len(rows_of(shop, "t")) == 1
