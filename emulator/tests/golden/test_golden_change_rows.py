"""Published outputs of real servers: rows, masks, order in change tables. Keys are those of
docs/reference/sqlserver_cdc.md, "Published transcripts"."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cdc_database import CdcDatabase, shape


def _orders(database: CdcDatabase) -> None:
    database.run(
        "CREATE TABLE dbo.orders (id int NOT NULL PRIMARY KEY, customer nvarchar(50), amount decimal(18,4),"
        " notes nvarchar(max), updated datetime2(3))"
    )
    database.enable("orders")
    database.run(
        "BEGIN TRAN; INSERT dbo.orders VALUES (1, N'acme', 10.5, N'first', '2026-08-23T10:00:00');"
        " INSERT dbo.orders VALUES (2, N'globex', 20, NULL, '2026-08-23T10:00:00'); COMMIT",
        "UPDATE dbo.orders SET amount = 99.9999 WHERE id = 1",
        "DELETE dbo.orders WHERE id = 2",
    )
    database.scan()


def test_g01_base_change_table_holds_five_rows(database: CdcDatabase) -> None:
    """G01 (R) FAB 1.3."""
    _orders(database)
    rows = database.change_table("dbo_orders")
    assert [(r["__$operation"], r["__$update_mask"].hex().upper(), r["__$command_id"], r["id"], r["customer"],
             r["amount"], r["notes"]) for r in rows] == [
        (2, "1F", 1, 1, "acme", Decimal("10.5000"), "first"),
        (2, "1F", 2, 2, "globex", Decimal("20.0000"), None),
        (3, "04", 1, 1, "acme", Decimal("10.5000"), None),
        (4, "04", 1, 1, "acme", Decimal("99.9999"), "first"),
        (1, "1F", 1, 2, "globex", Decimal("20.0000"), None),
    ]  # fmt: skip
    commits = [r["__$start_lsn"] for r in rows]
    sequences = [r["__$seqval"] for r in rows]
    assert commits[0] == commits[1] < commits[2] == commits[3] < commits[4]
    assert sequences[0] < sequences[1] < sequences[2] == sequences[3] < sequences[4]
    assert all(sequence < commit for sequence, commit in zip(sequences, commits, strict=True))


def test_g01_change_table_has_its_columns_in_order_and_captured_ones_nullable(database: CdcDatabase) -> None:
    """G01 (R) FAB 1.3."""
    database.run(
        "CREATE TABLE dbo.orders (id int NOT NULL PRIMARY KEY, customer nvarchar(50) NOT NULL, amount decimal(18,4),"
        " notes nvarchar(max), updated datetime2(3))"
    )
    database.enable("orders")
    columns = database.query(
        "SELECT name, is_nullable FROM sys.columns WHERE object_id = OBJECT_ID('cdc.dbo_orders_CT') ORDER BY column_id"
    )
    assert [(c["name"], bool(c["is_nullable"])) for c in columns] == [
        ("__$start_lsn", False), ("__$end_lsn", True), ("__$seqval", False), ("__$operation", False),
        ("__$update_mask", True), ("id", True), ("customer", True), ("amount", True), ("notes", True),
        ("updated", True), ("__$command_id", True),
    ]  # fmt: skip


def test_g02_three_read_modes_of_the_same_history(database: CdcDatabase) -> None:
    """G02 (R) FAB 1.7."""
    _orders(database)
    assert [r["__$operation"] for r in database.all_changes("dbo_orders", "all update old")] == [2, 2, 3, 4, 1]
    assert [r["__$operation"] for r in database.all_changes("dbo_orders", "all")] == [2, 2, 4, 1]
    expected = [(1, Decimal("99.9999"))]
    for option, operation in (("all", 2), ("all with merge", 5)):
        rows = database.net_changes("dbo_orders", option)
        assert [r["__$operation"] for r in rows] == [operation]
        assert [(r["id"], r["amount"]) for r in rows] == expected


def test_g03_update_to_the_same_value_writes_nothing(database: CdcDatabase) -> None:
    """VAND: though @@ROWCOUNT is 1, also for the constant form of the key."""
    database.run("CREATE TABLE dbo.foo (id int NOT NULL PRIMARY KEY, a varchar(10))")
    database.enable("foo")
    database.run("INSERT dbo.foo VALUES (1, 'a')", "UPDATE dbo.foo SET a = 'a' WHERE id = 1")
    database.scan()
    assert [r["__$operation"] for r in database.change_table("dbo_foo")] == [2]


def test_g04_update_of_the_primary_key_is_a_delete_and_an_insert(database: CdcDatabase) -> None:
    """G04 (R) VAND."""
    database.run("CREATE TABLE dbo.foo (id int NOT NULL PRIMARY KEY, a varchar(10))", "INSERT dbo.foo VALUES (1, 'a')")
    database.enable("foo")
    database.run("UPDATE dbo.foo SET id = 2 WHERE id = 1")
    database.scan()
    rows = database.change_table("dbo_foo")
    assert [(r["__$operation"], r["__$update_mask"].hex(), r["id"], r["a"], r["__$command_id"]) for r in rows] == [
        (1, "03", 1, "a", 1),
        (2, "03", 2, "a", 2),
    ]
    assert len({(r["__$start_lsn"], r["__$seqval"]) for r in rows}) == 1


def test_g05_merge_that_assigns_the_key_to_itself_is_a_delete_and_an_insert(database: CdcDatabase) -> None:
    """G05 (R) VAND."""
    database.run("CREATE TABLE dbo.foo (id int NOT NULL PRIMARY KEY, a varchar(10))", "INSERT dbo.foo VALUES (1, 'a')")
    database.enable("foo")
    database.run(
        "MERGE dbo.foo AS t USING (SELECT 1 AS id, 'a' AS a) AS s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET id = s.id, a = s.a;"
    )
    database.scan()
    assert shape(database.change_table("dbo_foo"), "id", "a") == [(1, "03", 1, "a"), (2, "03", 1, "a")]


_FOO = ("CREATE TABLE dbo.foo (id int NOT NULL PRIMARY KEY, a varchar(10))", "INSERT dbo.foo VALUES (1, 'a')")


def test_update_of_one_row_that_assigns_the_key_its_own_value_writes_nothing(database: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "Row shapes" (R) VAND: an update, unlike a merge, of one row is deferred
    only when the key changes."""
    database.run(*_FOO)
    database.enable("foo")
    database.run("UPDATE dbo.foo SET id = 1 WHERE id = 1")
    database.scan()
    assert database.change_table("dbo_foo") == []


@pytest.mark.parametrize(
    "between", ["", "SAVE TRAN s; UPDATE dbo.foo SET a = 'undone'; ROLLBACK TRAN s;", "INSERT dbo.foo VALUES (9, 'i');"]
)
def test_update_after_one_of_the_key_in_its_transaction_is_in_place(database: CdcDatabase, between: str) -> None:
    """See docs/reference/sqlserver_cdc.md, "Row shapes": each statement of a transaction is deferred or not by
    itself."""
    database.run(*_FOO)
    database.enable("foo")
    database.run(
        f"BEGIN TRAN; UPDATE dbo.foo SET id = 2 WHERE id = 1; {between} UPDATE dbo.foo SET a = 'b' WHERE id = 2; COMMIT"
    )
    database.scan()
    rows = [row for row in shape(database.change_table("dbo_foo"), "id", "a") if row[2] != 9]
    assert rows == [(1, "03", 1, "a"), (2, "03", 2, "a"), (3, "02", 2, "a"), (4, "02", 2, "b")]


def test_update_after_a_merge_that_assigns_the_key_is_in_place(database: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "Row shapes": the merge is deferred though nothing changes, the update is
    not."""
    database.run(*_FOO)
    database.enable("foo")
    database.run(
        "BEGIN TRAN; MERGE dbo.foo AS t USING (SELECT 1 AS id) AS s ON t.id = s.id"
        " WHEN MATCHED THEN UPDATE SET id = s.id; UPDATE dbo.foo SET a = 'b';"
        " UPDATE dbo.foo SET id = 1 WHERE id = 1; COMMIT"
    )
    database.scan()
    assert shape(database.change_table("dbo_foo"), "id", "a") == [
        (1, "03", 1, "a"),
        (2, "03", 1, "a"),
        (3, "02", 1, "a"),
        (4, "02", 1, "b"),
    ]


_MOVED = (
    "CREATE TABLE dbo.foo (id int NOT NULL PRIMARY KEY, a varchar(10), code varchar(10) UNIQUE)",
    "INSERT dbo.foo VALUES (1, 'a', 'x'), (2, 'b', 'y'), (3, 'c', 'z')",
)


def _replayed(rows: list[dict[str, object]], table: dict[object, object]) -> dict[object, object]:
    """The table, keyed by id, after the change rows were applied one by one."""
    for row in rows:
        if row["__$operation"] == 1:
            assert table.pop(row["id"]) == row["a"]
        elif row["__$operation"] == 2:
            assert row["id"] not in table
            table[row["id"]] = row["a"]
    return table


@pytest.mark.parametrize(
    ("update", "moved"),
    [
        ("SET id = id + 1", {2: "a", 3: "b", 4: "c"}),
        ("SET id = id - 1", {0: "a", 1: "b", 2: "c"}),
        ("SET id = 3 - id WHERE id < 3", {2: "a", 1: "b", 3: "c"}),
        ("SET id = id % 3 + 1", {2: "a", 3: "b", 1: "c"}),
    ],
)
def test_rows_that_take_over_keys_are_all_deleted_before_any_is_inserted(
    database: CdcDatabase, update: str, moved: dict[object, object]
) -> None:
    """docs/emulator.md, "Where sources disagree"; in the order of the change table and in that of the function."""
    database.run(*_MOVED)
    database.enable("foo")
    database.run(f"UPDATE dbo.foo {update}")
    database.scan()
    rows = database.change_table("dbo_foo")
    half = len(rows) // 2
    assert [row["__$operation"] for row in rows] == [1] * half + [2] * half
    assert [row["__$command_id"] for row in rows] == list(range(1, len(rows) + 1))
    sequences = [row["__$seqval"] for row in rows]
    assert sequences == sorted(set(sequences))
    assert len({row["__$start_lsn"] for row in rows}) == 1
    for read in (rows, database.all_changes("dbo_foo")):
        assert _replayed(read, {1: "a", 2: "b", 3: "c"}) == moved


def test_two_swapped_keys_are_two_updates_in_the_net_changes(database: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "Net changes": a delete and an insert of one key are an update."""
    database.run(*_MOVED)
    database.enable("foo")
    database.run("UPDATE dbo.foo SET id = 3 - id WHERE id < 3")
    database.scan()
    net = sorted((row["__$operation"], row["id"], row["a"]) for row in database.net_changes("dbo_foo"))
    assert net == [(4, 1, "b"), (4, 2, "a")]


def test_two_swapped_values_of_a_unique_column_are_a_pair_each(database: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "Row shapes" (PSYNC): the row keeps its primary key, by which its pair is
    known."""
    database.run(*_MOVED)
    database.enable("foo")
    database.run("UPDATE dbo.foo SET code = CASE id WHEN 1 THEN 'y' ELSE 'x' END WHERE id < 3")
    database.scan()
    assert shape(database.change_table("dbo_foo"), "id", "code") == [
        (1, "07", 1, "x"), (2, "07", 1, "y"), (1, "07", 2, "y"), (2, "07", 2, "x"),
    ]  # fmt: skip


def test_rows_that_move_to_free_keys_are_a_pair_each_in_their_transaction(database: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "Row shapes": the pairs of one statement, among others of its transaction
    that are none."""
    database.run(*_MOVED)
    database.enable("foo")
    database.run(
        "BEGIN TRAN; INSERT dbo.foo VALUES (9, 'i', 'i'); UPDATE dbo.foo SET id = id + 10 WHERE id < 3;"
        " UPDATE dbo.foo SET id = 23 - id WHERE id > 10; DELETE dbo.foo WHERE id = 9; COMMIT"
    )
    database.scan()
    rows = database.change_table("dbo_foo")
    assert shape(rows, "id") == [
        (2, "07", 9), (1, "07", 1), (2, "07", 11), (1, "07", 2), (2, "07", 12),
        (1, "07", 11), (1, "07", 12), (2, "07", 12), (2, "07", 11), (1, "07", 9),
    ]  # fmt: skip
    assert [row["__$command_id"] for row in rows] == list(range(1, 11))
    assert len({row["__$seqval"] for row in rows}) == 8


def test_merge_that_moves_a_key_onto_one_it_deletes_deletes_first(database: CdcDatabase) -> None:
    database.run(*_MOVED)
    database.enable("foo")
    database.run(
        "MERGE dbo.foo AS t USING (VALUES (1), (2), (5)) AS s (id) ON t.id = s.id"
        " WHEN MATCHED AND s.id = 1 THEN UPDATE SET id = 2 WHEN MATCHED THEN DELETE"
        " WHEN NOT MATCHED THEN INSERT VALUES (1, 'new', 'n');"
    )
    database.scan()
    rows = database.change_table("dbo_foo")
    assert [row["__$operation"] for row in rows] == [1, 1, 2, 2]
    assert _replayed(rows, {1: "a", 2: "b", 3: "c"}) == {1: "new", 2: "a", 3: "c"}


def test_g07_mask_of_thirteen_columns(database: CdcDatabase) -> None:
    """G07 (R) CN: ordinal 4 of 13."""
    others = ", ".join(f"c{i} int" for i in range(5, 14))
    database.run(f"CREATE TABLE dbo.DepartDemo (DID int NOT NULL PRIMARY KEY, DName nvarchar(20), DCode int,"
                 f" Manager nvarchar(20), {others})")  # fmt: skip
    database.enable("DepartDemo")
    database.run(
        "INSERT dbo.DepartDemo (DID, DName, Manager) VALUES (107, N'银监会', N'云中鹤')",
        "UPDATE dbo.DepartDemo SET Manager = N'段正淳' WHERE DID = 107",
    )
    database.scan()
    assert shape(database.all_changes("dbo_DepartDemo"), "DID", "DName", "Manager") == [
        (2, "1FFF", 107, "银监会", "云中鹤"),
        (4, "0008", 107, "银监会", "段正淳"),
    ]


def test_g08_equipment_with_both_options(database: CdcDatabase) -> None:
    """G08 (R) BOOK."""
    database.run(
        "CREATE TABLE dbo.Equipment (EquipmentID int IDENTITY(1,1) PRIMARY KEY, EquipmentDESC varchar(100) NOT NULL,"
        " LocationID int NOT NULL)"
    )
    database.enable("Equipment")
    database.run(
        "INSERT dbo.Equipment (EquipmentDESC, LocationID) VALUES ('Projector A', 22)",
        "INSERT dbo.Equipment (EquipmentDESC, LocationID) VALUES ('HR File Cabinet', 3)",
        "UPDATE dbo.Equipment SET EquipmentDESC = 'HR File Cabinet 1' WHERE EquipmentID = 2",
        "DELETE dbo.Equipment WHERE EquipmentID = 1",
    )
    database.scan()
    columns = ("EquipmentID", "EquipmentDESC", "LocationID")
    assert shape(database.all_changes("dbo_Equipment"), *columns) == [
        (2, "07", 1, "Projector A", 22),
        (2, "07", 2, "HR File Cabinet", 3),
        (4, "02", 2, "HR File Cabinet 1", 3),
        (1, "07", 1, "Projector A", 22),
    ]
    assert shape(database.all_changes("dbo_Equipment", "all update old"), *columns) == [
        (2, "07", 1, "Projector A", 22),
        (2, "07", 2, "HR File Cabinet", 3),
        (3, "02", 2, "HR File Cabinet", 3),
        (4, "02", 2, "HR File Cabinet 1", 3),
        (1, "07", 1, "Projector A", 22),
    ]


def test_g10_users_with_a_birthday(database: CdcDatabase) -> None:
    """G10 (R) uml.org.cn."""
    database.run("CREATE TABLE dbo.Users (Id char(3) NOT NULL PRIMARY KEY, Name nvarchar(20), Birthday date)")
    database.enable("Users")
    database.run(
        "INSERT dbo.Users VALUES ('001', N'Foo', '1990-01-01')",
        "INSERT dbo.Users VALUES ('002', N'Bar', '1991-01-01')",
        "UPDATE dbo.Users SET Birthday = '1990-02-02' WHERE Name = N'Foo'",
        "DELETE dbo.Users",
    )
    database.scan()
    rows = shape(database.change_table("dbo_Users"), "Id")
    assert rows[:4] == [(2, "07", "001"), (2, "07", "002"), (3, "04", "001"), (4, "04", "001")]
    assert sorted(rows[4:]) == [(1, "07", "001"), (1, "07", "002")]


def test_g13_insert_update_delete_of_one_row_in_one_transaction(database: CdcDatabase) -> None:
    """G13 (T) MCP."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v varchar(10))")
    database.enable("t")
    database.run(
        "BEGIN TRAN; INSERT dbo.t VALUES (1, 'a'); UPDATE dbo.t SET v = 'b' WHERE id = 1;"
        " DELETE dbo.t WHERE id = 1; COMMIT"
    )
    database.scan()
    rows = database.change_table("dbo_t")
    assert [r["__$operation"] for r in rows] == [2, 3, 4, 1]
    assert len({r["__$start_lsn"] for r in rows}) == 1
    assert [r["__$command_id"] for r in rows] == [1, 2, 2, 3]


def test_g14_scripted_history_and_cleanup(database: CdcDatabase) -> None:
    """G14 (T) MCP."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v varchar(10))")
    database.enable("t")
    database.run(
        "INSERT dbo.t VALUES (1, 'a')",
        "BEGIN TRAN; INSERT dbo.t VALUES (2, 'b'); INSERT dbo.t VALUES (3, 'c'); COMMIT",
        "UPDATE dbo.t SET v = 'a2' WHERE id = 1",
        "DELETE dbo.t WHERE id = 2",
        "INSERT dbo.t VALUES (4, 'd')",
    )
    database.scan()
    rows = database.change_table("dbo_t")
    assert [(r["__$operation"], r["id"], r["v"]) for r in rows] == [
        (2, 1, "a"), (2, 2, "b"), (2, 3, "c"), (3, 1, "a"), (4, 1, "a2"), (1, 2, "b"), (2, 4, "d"),
    ]  # fmt: skip
    assert (rows[3]["__$command_id"], rows[3]["__$seqval"]) == (rows[4]["__$command_id"], rows[4]["__$seqval"])
    commits = sorted({r["__$start_lsn"] for r in rows})
    assert len(commits) == 5
    entry = f"0x{commits[0].hex()}"
    assert database.scalar(f"sys.fn_cdc_map_lsn_to_time({entry})") is not None
    assert database.scalar(f"sys.fn_cdc_map_lsn_to_time(sys.fn_cdc_increment_lsn({entry}))") is None
    # Commits that share a tick of datetime are kept together, so the mark is the first of its tick.
    time = database.scalar(f"sys.fn_cdc_map_lsn_to_time(0x{commits[2].hex()})")
    same = database.query("SELECT MIN(start_lsn) AS lsn FROM cdc.lsn_time_mapping WHERE tran_end_time = %s", (time,))
    database.run(f"EXEC sys.sp_cdc_cleanup_change_table N'dbo_t', 0x{commits[2].hex()}")
    kept = same[0]["lsn"]
    assert database.scalar("sys.fn_cdc_get_min_lsn(N'dbo_t')") == kept
    assert {r["__$start_lsn"] for r in database.change_table("dbo_t")} == {lsn for lsn in commits if lsn >= kept}


def test_g17_key_update_with_a_text_column_shows_the_text_in_the_insert_only(database: CdcDatabase) -> None:
    """G17 (R) EST."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, data text)", "INSERT dbo.t VALUES (1, 'one')")
    database.enable("t")
    database.run("UPDATE dbo.t SET id = 6 WHERE id = 1")
    database.scan()
    assert shape(database.change_table("dbo_t"), "id", "data") == [(1, "03", 1, None), (2, "03", 6, "one")]


def test_g19_delete_and_insert_in_one_transaction_have_different_sequence_values(database: CdcDatabase) -> None:
    """G19 (T) PSYNC."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v int)", "INSERT dbo.t VALUES (1, 1)")
    database.enable("t")
    database.run("BEGIN TRAN; DELETE dbo.t WHERE id = 1; INSERT dbo.t VALUES (2, 2); COMMIT")
    database.scan()
    rows = database.change_table("dbo_t")
    assert [(r["__$operation"], r["id"]) for r in rows] == [(1, 1), (2, 2)]
    assert rows[0]["__$start_lsn"] == rows[1]["__$start_lsn"]
    assert rows[0]["__$seqval"] < rows[1]["__$seqval"]


def test_g20_key_updates_of_two_tables_in_one_transaction_share_its_lsn(database: CdcDatabase) -> None:
    """G20 (T) DBZ."""
    for table, value in (("tablea", "a"), ("tableb", "b")):
        database.run(
            f"CREATE TABLE dbo.{table} (id int NOT NULL PRIMARY KEY, v varchar(10))",
            f"INSERT dbo.{table} VALUES (1, '{value}')",
        )
        database.enable(table)
    database.run(
        "BEGIN TRAN; UPDATE dbo.tablea SET id = 100 WHERE id = 1; UPDATE dbo.tableb SET id = 100 WHERE id = 1; COMMIT"
    )
    database.scan()
    a, b = database.change_table("dbo_tablea"), database.change_table("dbo_tableb")
    assert shape(a, "id", "v") == [(1, "03", 1, "a"), (2, "03", 100, "a")]
    assert shape(b, "id", "v") == [(1, "03", 1, "b"), (2, "03", 100, "b")]
    assert {r["__$start_lsn"] for r in a} == {r["__$start_lsn"] for r in b}
    assert [r["__$command_id"] for r in (*a, *b)] == [1, 2, 3, 4]


def test_g22_rows_count_as_on_a_real_server(database: CdcDatabase) -> None:
    """G22 (T) ING."""
    database.run("CREATE TABLE dbo.t (id int NOT NULL PRIMARY KEY, v int)")
    database.enable("t")
    database.run(
        "BEGIN TRAN; INSERT dbo.t VALUES (1, 1); INSERT dbo.t VALUES (2, 2); COMMIT",
        "INSERT dbo.t VALUES (3, 3)",
        "UPDATE dbo.t SET id = 10 WHERE id = 1",
        "UPDATE dbo.t SET v = 20 WHERE id = 2",
    )
    database.scan()
    rows = database.change_table("dbo_t")
    assert len(rows) == 7
    assert rows[0]["__$start_lsn"] == rows[1]["__$start_lsn"] < rows[2]["__$start_lsn"]
