"""A program that writes to devices at random until it is killed. Arguments: folder, seed, transactions in a second.

It knows nothing of the tracking. A transaction has several statements, and some are left without a commit.
"""

from __future__ import annotations

import random
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

KEYS = 60


def write(connection: sqlite3.Connection, chance: random.Random) -> None:
    for _ in range(chance.randrange(1, 5)):
        key, amount = chance.randrange(KEYS), chance.randrange(-99999, 99999) / 100
        statement = chance.choice(
            (
                f"INSERT OR IGNORE INTO orders (id, amount, note) VALUES ({key}, {amount}, 'größe {amount}')",
                f"INSERT OR REPLACE INTO orders (id, amount, note) VALUES ({key}, {amount}, NULL)",
                f"UPDATE orders SET amount = {amount} WHERE id % 7 = {key % 7}",
                f"UPDATE OR REPLACE orders SET id = {key + 1} WHERE id = {key}",
                f"DELETE FROM orders WHERE id = {key}",
                f"INSERT INTO visits (place, n) VALUES ('place {key}', 1) ON CONFLICT DO UPDATE SET n = n + 1",
                f"DELETE FROM visits WHERE place = 'place {key}'",
            )
        )
        connection.execute(statement)


def main() -> None:
    folder, seed, per_second = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    chance = random.Random(seed)
    devices = sorted(folder.glob("*.db"))
    while True:
        with closing(sqlite3.connect(chance.choice(devices), isolation_level=None, timeout=60)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            write(connection, chance)
            connection.execute(chance.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")))
        time.sleep(1 / per_second)


if __name__ == "__main__":
    main()
