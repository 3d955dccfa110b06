"""CHANGETABLE(CHANGES …): what the changes since a version come to, row by row, and the masks of updated columns."""

from __future__ import annotations

import pytest

from sql_client import SqlClient


def version(client: SqlClient) -> int:
    found: int = client.value("SELECT CHANGE_TRACKING_CURRENT_VERSION()")
    return found


def changes(client: SqlClient, after: str, base: int = 0, table: str = "t") -> str:
    """Each row as `id operation version/creation`, versions counted from ``base``."""
    rows = client.rows(
        "SELECT id, SYS_CHANGE_OPERATION, SYS_CHANGE_VERSION, SYS_CHANGE_CREATION_VERSION"
        f" FROM CHANGETABLE(CHANGES {table}, {after}) AS ct ORDER BY id"
    )
    return " ".join(f"{i}{op}{at - base}/{'' if made is None else made - base}" for i, op, at, made in rows)


def test_net_rows_and_the_version_move_with_each_commit(tracked: SqlClient) -> None:
    base = version(tracked)
    tracked.run("INSERT t VALUES (1, 1, 1, 1), (2, 2, 2, 2)")
    assert version(tracked) == base + 1
    assert changes(tracked, str(base), base) == "1I1/1 2I1/1"
    tracked.run("UPDATE t SET a = 9 WHERE id = 1")
    tracked.run("DELETE t WHERE id = 2")
    assert version(tracked) == base + 3
    assert changes(tracked, str(base), base) == "1I2/1 2D3/1"
    assert changes(tracked, str(base + 1), base) == "1U2/ 2D3/"


@pytest.mark.parametrize(
    ("writes", "after", "expected"),
    [
        ("", 0, "1I1/1 2I1/1 3I1/1"),
        ("UPDATE t SET a = 9 WHERE id = 1", 0, "1I2/1 2I1/1 3I1/1"),
        ("UPDATE t SET a = 9 WHERE id = 1", 1, "1U2/"),
        ("DELETE t WHERE id = 2", 0, "1I1/1 2D2/1 3I1/1"),
        ("DELETE t WHERE id = 2", 1, "2D2/"),
        ("INSERT t VALUES (4, 0, 0, 0); DELETE t WHERE id = 4", 1, "4D3/2"),
        ("DELETE t WHERE id = 1; INSERT t VALUES (1, 0, 0, 0)", 1, "1U3/3"),
        (
            "DELETE t WHERE id = 1; INSERT t VALUES (1, 0, 0, 0); DELETE t WHERE id = 1; INSERT t VALUES (1, 0, 0, 0)",
            3,
            "1U5/5",
        ),
        ("UPDATE t SET id = id + 10 WHERE id < 3", 1, "1D2/ 2D2/ 11I2/2 12I2/2"),
        ("UPDATE t SET id = id + 1", 1, "1D2/ 2U2/2 3U2/2 4I2/2"),
        ("UPDATE t SET id = CASE id WHEN 1 THEN 2 ELSE 1 END WHERE id < 3", 1, "1U2/2 2U2/2"),
        ("UPDATE t SET a = 1 WHERE 1 = 0", 1, ""),
        ("UPDATE t SET id = id WHERE id = 1", 1, "1U2/"),
        ("UPDATE t SET a = a WHERE id = 1", 1, "1U2/"),
        ("UPDATE t SET a = 1", 99, ""),
        ("MERGE t USING (VALUES (3), (4)) AS s (id) ON t.id = s.id WHEN MATCHED THEN UPDATE SET a = 0"
         " WHEN NOT MATCHED THEN INSERT VALUES (s.id, 0, 0, 0) WHEN NOT MATCHED BY SOURCE THEN DELETE;",
         1, "1D2/ 2D2/ 3U2/ 4I2/2"),
    ],
)  # fmt: skip
def test_changes_of_a_row_come_to_one(tracked: SqlClient, writes: str, after: int, expected: str) -> None:
    base = version(tracked)
    tracked.run("INSERT t VALUES (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)")
    if writes:
        tracked.run(writes)
    assert changes(tracked, str(base + after), base) == expected


def test_null_lists_everything_and_a_negative_version_nothing(tracked: SqlClient) -> None:
    base = version(tracked)
    tracked.run("INSERT t VALUES (1, 1, 1, 1)")
    assert changes(tracked, "NULL", base) == "1I1/1"
    assert changes(tracked, "-1", base) == ""
    assert changes(tracked, "9000000000", base) == ""
    assert tracked.rows("DECLARE @v bigint; SELECT id FROM CHANGETABLE(CHANGES t, @v) AS c") == [(1,)]


def test_transaction_is_one_version_and_its_writes_are_merged(tracked: SqlClient) -> None:
    base = version(tracked)
    tracked.run("INSERT t VALUES (9, 9, 9, 9)")
    tracked.run(
        "BEGIN TRAN; INSERT t VALUES (1, 1, 1, 1); DELETE t WHERE id = 1;"
        " INSERT t VALUES (2, 2, 2, 2); DELETE t WHERE id = 2; INSERT t VALUES (2, 3, 3, 3);"
        " DELETE t WHERE id = 9; INSERT t VALUES (9, 10, 10, 10); UPDATE t SET a = 4 WHERE id = 9; COMMIT"
    )
    assert version(tracked) == base + 2
    assert changes(tracked, str(base), base) == "1D2/2 2I2/2 9U2/2"
    assert changes(tracked, str(base + 1), base) == "1D2/2 2I2/2 9U2/2"


def test_rollbacks_leave_nothing(tracked: SqlClient) -> None:
    base = version(tracked)
    tracked.run("BEGIN TRAN; INSERT t VALUES (1, 1, 1, 1)")
    assert version(tracked) == base
    assert changes(tracked, str(base), base) == ""
    tracked.run("ROLLBACK; BEGIN TRAN; INSERT t VALUES (4, 4, 4, 4); SAVE TRAN s; INSERT t VALUES (5, 5, 5, 5)")
    tracked.run("ROLLBACK TRAN s; COMMIT")
    assert changes(tracked, str(base), base) == "4I1/1"


def test_transaction_of_which_a_savepoint_undoes_everything_has_no_version(tracked: SqlClient) -> None:
    base = version(tracked)
    tracked.run("BEGIN TRAN; SAVE TRAN s; INSERT t VALUES (5, 5, 5, 5); ROLLBACK TRAN s; COMMIT")
    assert version(tracked) == base


def test_failed_statement_in_a_transaction_leaves_nothing(tracked: SqlClient) -> None:
    base = version(tracked)
    tracked.run("BEGIN TRAN; INSERT t VALUES (1, 1, 1, 1)")
    assert tracked.error("INSERT t VALUES (2, 2, 2, 2), (1, 1, 1, 1)")[0] == 2627
    tracked.run("COMMIT")
    assert changes(tracked, str(base), base) == "1I1/1"


@pytest.mark.parametrize(
    ("writes", "expected"),
    [
        ("UPDATE t SET b = 5", "0000000003000000"),
        ("UPDATE t SET c = 5, a = 3", "000000000400000002000000"),
        ("UPDATE t SET b = 5; UPDATE t SET c = 5, a = 3, b = 1", None),
        ("UPDATE t SET b = 5; UPDATE t SET c = 5, a = 3", "00000000030000000400000002000000"),
        ("UPDATE t SET a = 1, b = 1, c = 1", None),
        ("UPDATE t SET id = id", None),
        ("UPDATE t SET a = 1; UPDATE t SET b = 1; UPDATE t SET c = 1", "00000000020000000300000004000000"),
        ("UPDATE t SET a = 1; UPDATE t SET a = 2", "0000000002000000"),
        ("UPDATE t SET a = 1 WHERE 1 = 0; UPDATE t SET b = 1", "0000000003000000"),
        ("DELETE t; INSERT t VALUES (1, 0, 0, 0); UPDATE t SET a = 1", None),
        ("UPDATE t SET a = 1; DELETE t", None),
    ],
)
def test_mask_lists_the_columns_that_updates_assigned(tracked: SqlClient, writes: str, expected: str | None) -> None:
    tracked.run("INSERT t VALUES (1, 1, 1, 1)")
    base = version(tracked)
    tracked.run(writes)
    mask = tracked.value(f"SELECT SYS_CHANGE_COLUMNS FROM CHANGETABLE(CHANGES t, {base}) AS c")
    assert (None if mask is None else mask.hex()) == expected


def test_mask_has_a_stamped_rowversion_and_no_computed_column(client: SqlClient) -> None:
    client.run("CREATE TABLE stamped (id int PRIMARY KEY, a int, b int, rv rowversion, cc AS a + 1)")
    client.run("CREATE TABLE plain (id int PRIMARY KEY, a int, b int)")
    client.run("ALTER TABLE stamped ENABLE CHANGE_TRACKING WITH (TRACK_COLUMNS_UPDATED = ON)")
    client.run("ALTER TABLE plain ENABLE CHANGE_TRACKING")
    client.run("INSERT stamped (id, a, b) VALUES (1, 1, 1); INSERT plain VALUES (1, 1, 1)")
    base = version(client)
    client.run("UPDATE stamped SET a = 5; UPDATE plain SET a = 5")
    mask = client.value(f"SELECT SYS_CHANGE_COLUMNS FROM CHANGETABLE(CHANGES stamped, {base}) AS c")
    assert mask.hex() == "000000000200000004000000"
    assert client.value(f"SELECT SYS_CHANGE_COLUMNS FROM CHANGETABLE(CHANGES plain, {base}) AS c") is None


def test_triggers_cascades_and_merge_share_the_version_of_their_statement(client: SqlClient) -> None:
    client.run("CREATE TABLE p (id int PRIMARY KEY)")
    client.run("CREATE TABLE c (id int PRIMARY KEY, pid int REFERENCES p ON DELETE CASCADE ON UPDATE CASCADE)")
    client.run("CREATE TABLE w (id int PRIMARY KEY, a int)")
    client.run("ALTER TABLE c ENABLE CHANGE_TRACKING WITH (TRACK_COLUMNS_UPDATED = ON)")
    client.run("ALTER TABLE w ENABLE CHANGE_TRACKING")
    client.run("INSERT p VALUES (1), (2); INSERT c VALUES (10, 1), (20, 2)")
    client.run("CREATE TRIGGER on_p ON p AFTER DELETE AS INSERT w SELECT id, 0 FROM deleted")
    base = version(client)
    client.run("DELETE p WHERE id = 1")
    client.run("UPDATE p SET id = 3 WHERE id = 2")
    assert changes(client, str(base), base, "c") == "10D1/ 20U2/"
    assert changes(client, str(base), base, "w") == "1I1/1"
    assert version(client) == base + 2


def test_key_in_another_spelling_is_the_same_row_with_its_first_spelling(client: SqlClient) -> None:
    client.run("CREATE TABLE spelled (id varchar(10) COLLATE Latin1_General_CI_AS PRIMARY KEY, v int)")
    client.run("ALTER TABLE spelled ENABLE CHANGE_TRACKING")
    base = version(client)
    client.run("INSERT spelled VALUES ('b', 1)")
    client.run("UPDATE spelled SET id = 'B' WHERE id = 'b'")
    assert changes(client, str(base), base, "spelled") == "bI2/1"


def test_context_is_that_of_the_last_statement(tracked: SqlClient) -> None:
    base = version(tracked)
    tracked.run("INSERT t VALUES (1, 1, 1, 1), (2, 2, 2, 2)")
    tracked.run("DECLARE @none varbinary(128) = 0x; WITH CHANGE_TRACKING_CONTEXT (@none) INSERT t VALUES (4, 4, 4, 4)")
    tracked.run(
        "BEGIN TRAN; WITH CHANGE_TRACKING_CONTEXT (0x07) UPDATE t SET a = 2 WHERE id < 3;"
        " WITH CHANGE_TRACKING_CONTEXT (0x08) UPDATE t SET a = 3 WHERE id = 1; UPDATE t SET a = 3 WHERE id = 2; COMMIT"
    )
    tracked.run(
        "DECLARE @c binary(1) = 0x0A; WITH CHANGE_TRACKING_CONTEXT (@c), s AS (SELECT 3 AS id)"
        " MERGE t USING s ON t.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (s.id, 0, 0, 0);"
    )
    rows = tracked.rows(f"SELECT id, SYS_CHANGE_CONTEXT FROM CHANGETABLE(CHANGES t, {base}) AS c ORDER BY id")
    assert rows == [(1, b"\x08"), (2, None), (3, b"\x0a"), (4, b"")]


def test_column_list_renames_and_a_join_finds_the_rows(tracked: SqlClient) -> None:
    base = version(tracked)
    tracked.run("INSERT t VALUES (1, 10, 1, 1), (2, 20, 2, 2); DELETE t WHERE id = 2")
    assert tracked.rows(
        f"SELECT c.ver - {base}, c.key_id, t.a FROM CHANGETABLE(CHANGES dbo.t, {base})"
        " AS c (ver, made, op, cols, ctx, key_id) LEFT JOIN dbo.t AS t ON t.id = c.key_id ORDER BY c.key_id"
    ) == [(1, 1, 10), (2, 2, None)]


def test_version_of_a_row_is_its_newest_committed_change(client: SqlClient) -> None:
    client.run("CREATE TABLE k (id int, s varchar(5), a int, PRIMARY KEY (s, id)); INSERT k VALUES (1, 'x', 1)")
    client.run("ALTER TABLE k ENABLE CHANGE_TRACKING")
    base = version(client)
    client.run("INSERT k VALUES (2, 'y', 2), (3, 'z', 3); UPDATE k SET a = 5 WHERE id = 2; DELETE k WHERE id = 3")
    query = "SELECT v.* FROM k CROSS APPLY CHANGETABLE(VERSION k, (id, s), (k.id, k.s)) AS v ORDER BY v.id"
    assert client.rows(query) == [(None, None, "x", 1), (base + 2, None, "y", 2)]
    assert client.rows("SELECT * FROM CHANGETABLE(VERSION k, (s, id), ('z', 3)) AS v") == []
    client.run("BEGIN TRAN; UPDATE k SET a = 6 WHERE id = 2")
    one = "SELECT SYS_CHANGE_VERSION FROM CHANGETABLE(VERSION k, (s, id), ('y', 2)) AS v"
    assert client.value(one) is None
    client.run("COMMIT")
    assert client.value(one) == base + 4
