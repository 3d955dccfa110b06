"""Published net changes: nine scenarios in one window. Keys are those of docs/reference/sqlserver_cdc.md, "Published
transcripts"."""

from __future__ import annotations

import pytest

from cdc_database import CdcDatabase

_STEPS = {
    "A": ["INSERT dbo.n VALUES (1, 'a')"],
    "B": ["INSERT dbo.n VALUES (2, 'a')", "UPDATE dbo.n SET v = 'b' WHERE id = 2"],
    "C": ["INSERT dbo.n VALUES (3, 'a')", "DELETE dbo.n WHERE id = 3"],
    "D": ["UPDATE dbo.n SET v = 'new' WHERE id = 4"],
    "E": ["DELETE dbo.n WHERE id = 5"],
    "F": ["DELETE dbo.n WHERE id = 6", "INSERT dbo.n VALUES (6, 'reborn')"],
    "G": ["UPDATE dbo.n SET v = 'doomed' WHERE id = 7", "DELETE dbo.n WHERE id = 7"],
    "H": ["INSERT dbo.n VALUES (8, 'a')", "DELETE dbo.n WHERE id = 8", "INSERT dbo.n VALUES (8, 'again')"],
    "I": ["BEGIN TRAN; INSERT dbo.n VALUES (9, 'a'); DELETE dbo.n WHERE id = 9; COMMIT"],
}
_NET = {1: (2, "a"), 2: (2, "b"), 4: (4, "new"), 5: (1, "old"), 6: (4, "reborn"), 7: (1, "doomed"), 8: (2, "again")}


@pytest.fixture
def scenarios(database: CdcDatabase) -> CdcDatabase:
    database.run(
        "CREATE TABLE dbo.n (id int NOT NULL PRIMARY KEY, v varchar(20))",
        "INSERT dbo.n VALUES (4, 'old'), (5, 'old'), (6, 'old'), (7, 'old')",
    )
    database.enable("n")
    database.run(*(step for steps in _STEPS.values() for step in steps))
    database.scan()
    return database


def test_g23_raw_rows_of_the_nine_scenarios(scenarios: CdcDatabase) -> None:
    """G23 (R) FAB 1.7a: 15 commits; FAB counts the before-images among its 19 rows."""
    rows = scenarios.all_changes("dbo_n", "all update old")
    assert len({row["__$start_lsn"] for row in rows}) == 15
    assert len(rows) == 19
    changes: dict[int, list[tuple[int, str]]] = {}
    for row in scenarios.all_changes("dbo_n"):
        changes.setdefault(row["id"], []).append((row["__$operation"], row["v"]))
    assert changes == {
        1: [(2, "a")],
        2: [(2, "a"), (4, "b")],
        3: [(2, "a"), (1, "a")],
        4: [(4, "new")],
        5: [(1, "old")],
        6: [(1, "old"), (2, "reborn")],
        7: [(4, "doomed"), (1, "doomed")],
        8: [(2, "a"), (1, "a"), (2, "again")],
        9: [(2, "a"), (1, "a")],
    }


def test_g23_net_all(scenarios: CdcDatabase) -> None:
    """G23 (R) FAB 1.7a."""
    rows = scenarios.net_changes("dbo_n", "all")
    assert {row["id"]: (row["__$operation"], row["v"]) for row in rows} == _NET
    assert all(row["__$update_mask"] is None for row in rows)


def test_g23_net_all_with_merge(scenarios: CdcDatabase) -> None:
    """G23 (R) FAB 1.7a."""
    rows = scenarios.net_changes("dbo_n", "all with merge")
    merged = {key: (1 if operation == 1 else 5, value) for key, (operation, value) in _NET.items()}
    assert {row["id"]: (row["__$operation"], row["v"]) for row in rows} == merged


def test_net_changes_of_a_moved_key_are_a_delete_and_an_insert(database: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "Net changes", last line of the table."""
    database.run("CREATE TABLE dbo.n (id int NOT NULL PRIMARY KEY, v varchar(20))", "INSERT dbo.n VALUES (1, 'x')")
    database.enable("n")
    database.run("UPDATE dbo.n SET id = 6 WHERE id = 1")
    database.scan()
    for option, inserted in (("all", 2), ("all with merge", 5)):
        rows = database.net_changes("dbo_n", option)
        assert {row["id"]: row["__$operation"] for row in rows} == {1: 1, 6: inserted}


def test_net_changes_have_no_sequence_value_and_no_command_id(scenarios: CdcDatabase) -> None:
    """See docs/reference/sqlserver_cdc.md, "Change functions"."""
    assert list(scenarios.net_changes("dbo_n")[0]) == ["__$start_lsn", "__$operation", "__$update_mask", "id", "v"]
    assert list(scenarios.all_changes("dbo_n")[0]) == [
        "__$start_lsn",
        "__$seqval",
        "__$operation",
        "__$update_mask",
        "id",
        "v",
    ]
