"""Random writes to the table ``item``: statements as programs send them, with the library and without.

As a program it writes until it is killed: ``python random_writer.py FILE SEED library|plain``.
"""

import random
import sqlite3
import sys
import time
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from compact_files import open_file
from compact_tracking import Transaction, TransactionLostError

KEYS = "abcdefgh"
STATEMENTS = (
    "INSERT OR IGNORE INTO item (k, code, v) VALUES (:k, :c, :n)",
    "INSERT INTO item (k, code, v) VALUES (:k, :c, :n) ON CONFLICT (k) DO UPDATE SET v = excluded.v",
    "INSERT INTO item (k, code, v) VALUES (:k, :c, :n) ON CONFLICT (code) DO UPDATE SET v = excluded.v",
    "REPLACE INTO item (k, code, v) VALUES (:k, :c, :n)",
    "UPDATE item SET v = :n WHERE k = :k",
    "UPDATE item SET v = :n WHERE code > :c",
    "UPDATE OR REPLACE item SET code = :c, v = :n WHERE k = :k",
    "UPDATE OR REPLACE item SET k = :j, v = :n WHERE k = :k",
    "UPDATE OR IGNORE item SET k = :j, v = :n WHERE k = :k",
    "DELETE FROM item WHERE k = :k",
    "DELETE FROM item WHERE code = :c",
)
"""Every statement gives the rows that it changes a value of v that no row had."""


class Statements:
    """An endless supply of random statements with their parameters."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._number = seed << 32

    def draw(self) -> tuple[str, dict[str, object]]:
        self._number += 1
        key, other = self.random.choices(KEYS, k=2)
        values = {"k": key, "j": other, "c": self.random.randrange(8), "n": self._number}
        sql = self.random.choice(STATEMENTS)
        return sql, {name: value for name, value in values.items() if f":{name}" in sql}

    def run(self, target: sqlite3.Connection | Transaction) -> None:
        """Run one statement; it may break a unique key, which undoes it alone."""
        with suppress(sqlite3.IntegrityError):
            target.execute(*self.draw())


def write_with_library(connection: sqlite3.Connection, statements: Statements) -> None:
    """Run one transaction of the library; it may wait before its first write, read first, and be rolled back."""
    transaction = Transaction(connection, UUID(int=statements.random.getrandbits(128)))
    try:
        if statements.random.random() < 0.3:
            transaction.execute("SELECT count(*) FROM item").fetchone()
        time.sleep(statements.random.random() * 0.004)
        for _ in range(statements.random.randrange(4)):
            statements.run(transaction)
    except TransactionLostError:
        return
    if statements.random.random() < 0.2:
        transaction.rollback()
    else:
        transaction.commit()


def write_plainly(connection: sqlite3.Connection, statements: Statements) -> None:
    """Run one transaction as a program does that knows nothing of the library."""
    connection.execute("BEGIN IMMEDIATE")
    for _ in range(statements.random.randrange(1, 4)):
        statements.run(connection)
    connection.execute("ROLLBACK" if statements.random.random() < 0.2 else "COMMIT")
    time.sleep(statements.random.random() * 0.004)


def main() -> None:
    path, seed, kind = sys.argv[1:]
    connection, statements = open_file(Path(path), timeout=60), Statements(int(seed))
    connection.execute(f"PRAGMA recursive_triggers = {int(seed) % 2}")
    write = write_with_library if kind == "library" else write_plainly
    print("ready", flush=True)
    while True:
        write(connection, statements)


if __name__ == "__main__":
    main()
