"""Net changes of random histories over random windows, against the algorithm that docs/reference/sqlserver_cdc.md, "Net
changes" gives (GEN)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cdc_database import CdcDatabase, Row

_KEYS = range(1, 13)
_SEEDS = (1, 2, 3)
Net = dict[int, tuple[int, Any]]


def _statement(random_: random.Random) -> str:
    key, value = random_.choice(_KEYS), random_.randrange(4)
    return random_.choice(
        (
            f"IF NOT EXISTS (SELECT 1 FROM dbo.n WHERE id = {key}) INSERT dbo.n VALUES ({key}, {value}, 0)",
            f"UPDATE dbo.n SET v = {value} WHERE id = {key}",
            f"UPDATE dbo.n SET w = w + 1 WHERE id = {key}",
            f"DELETE dbo.n WHERE id = {key}",
            f"IF NOT EXISTS (SELECT 1 FROM dbo.n WHERE id = {key}) UPDATE TOP (1) dbo.n SET id = {key}",
            f"MERGE dbo.n AS t USING (SELECT {key} AS id) AS s ON t.id = s.id WHEN MATCHED THEN"
            f" UPDATE SET id = s.id, v = {value};",
        )
    )


def _history(seed: int) -> list[str]:
    random_ = random.Random(seed)
    made = []
    for _ in range(40):
        statements = "; ".join(_statement(random_) for _ in range(random_.randrange(1, 4)))
        made.append(f"BEGIN TRAN; {statements}; COMMIT")
    return made


def _net(rows: list[Row]) -> Net:
    """Key -> result of the option all, with the values of its last row. ``rows``: in full order."""
    keys: dict[int, list[Row]] = {}
    for row in rows:
        keys.setdefault(row["id"], []).append(row)
    found: Net = {}
    for key, changes in keys.items():
        first = next(row["__$operation"] for row in changes if row["__$operation"] != 3)
        last = changes[-1]
        final = last["__$operation"]
        if len(changes) > 1 and (first, final) == (2, 1):
            continue
        operation = 1 if final == 1 else {1: 4, 2: 2, 4: 4}[first]
        if len(changes) == 1:
            operation = final
        found[key] = (operation, (last["__$start_lsn"], last["v"], last["w"]))
    return found


def _mask(rows: list[Row], key: int) -> bytes:
    united = 0
    for row in rows:
        if row["id"] == key:
            united |= int.from_bytes(row["__$update_mask"], "big")
    return united.to_bytes(1, "big")


def _asked(database: CdcDatabase, option: str, window: tuple[bytes, bytes]) -> dict[int, Row]:
    low, high = (f"0x{lsn.hex()}" for lsn in window)
    rows = database.query(f"SELECT * FROM cdc.fn_cdc_get_net_changes_dbo_n({low}, {high}, N'{option}')")
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row for row in rows}


@pytest.mark.parametrize("seed", _SEEDS)
def test_net_changes_follow_the_published_algorithm(database: CdcDatabase, seed: int) -> None:
    """See docs/reference/sqlserver_cdc.md, "Net changes": per key over the whole window, whatever happened before
    it."""
    database.run(
        "CREATE TABLE dbo.n (id int NOT NULL PRIMARY KEY, v int, w int)",
        "INSERT dbo.n VALUES (1, 9, 0), (2, 9, 0), (3, 9, 0), (4, 9, 0)",
    )
    database.enable("n")
    database.run(*_history(seed))
    database.scan()
    everything = database.change_table("dbo_n")
    commits = sorted({row["__$start_lsn"] for row in everything})
    assert len(commits) > 20
    random_ = random.Random(seed)
    windows = [(commits[0], commits[-1]), *(tuple(sorted(random_.choices(commits, k=2))) for _ in range(8))]
    database.run("EXEC sp_configure 'clr enabled', 1", "RECONFIGURE")
    try:
        for window in windows:
            rows = [row for row in everything if window[0] <= row["__$start_lsn"] <= window[1]]
            expected = _net(rows)
            for option in ("all", "all with mask", "all with merge"):
                merges = option == "all with merge"
                found = _asked(database, option, (window[0], window[1]))
                assert {
                    key: (row["__$operation"], (row["__$start_lsn"], row["v"], row["w"])) for key, row in found.items()
                } == {key: (5 if merges and op != 1 else op, values) for key, (op, values) in expected.items()}
                for key, row in found.items():
                    is_shown = option == "all with mask" and expected[key][0] == 4
                    assert row["__$update_mask"] == (_mask(rows, key) if is_shown else None)
    finally:
        database.run("EXEC sp_configure 'clr enabled', 0", "RECONFIGURE")
