"""A seeded stream of transactions on ``Shop``, with the kinds of changes that often break change-capture pipelines.

It is deterministic: the same seed on a new database gives the same rows, except for rowversion. It has multi-statement
transactions over several tables, rollbacks, primary-key updates, insert and delete of one key, delete and re-insert
in another case, updates that change nothing, LOB updates and updates that leave a LOB unchanged, NULLs, text in many
scripts, and extreme numbers.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import cast

import pymssql
from pymssql._mssql import MSSQLException

_NAMES = ["Ada", "Grace", "Łukasz", "José", "Zoë", "雪", "Дарья", "Ελένη", "مريم", "O'Brien", "Søren", "נועה"]
_WORDS = ["quick", "flood", "naïve", "größe", "海", "волна", "🌊", "tide", "mark", "ébb"]
_STATUSES = ["new", "paid", "shipped", "returned"]
Value = str | int | bool | bytes | Decimal | date | None

_EPOCH = datetime(2026, 1, 1)
_MONEY_MAX = Decimal("922337203685477.5807")
_AMOUNT_MAX = Decimal("9999999999999999.99")


@dataclass
class Workload:
    """The transactions on one connection (``autocommit`` off). ``step`` runs one; ``run`` runs them until stopped."""

    connection: pymssql.Connection
    seed: int = 7
    transactions: int = 0
    rolled_back: int = 0
    _random: random.Random = field(init=False, repr=False)
    _customers: list[int] = field(default_factory=list, repr=False)
    _products: list[str] = field(default_factory=list, repr=False)
    _orders: list[int] = field(default_factory=list, repr=False)
    _payments: list[str] = field(default_factory=list, repr=False)
    _next_product: int = 1

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311  (sample data, reproducible on purpose)

    def fill(self, customers: int = 200, products: int = 100, orders: int = 300) -> None:
        """Insert the first rows, in a few transactions. A second call inserts what an error of the first has left."""
        for _ in range(customers - len(self._customers)):
            self._insert_customer()
        self._commit()
        for _ in range(products - len(self._products)):
            self._insert_product()
        self._commit()
        for _ in range(orders - len(self._orders)):
            self._insert_order()
        self._commit()

    def step(self) -> None:
        """Run one transaction."""
        kinds: list[tuple[Callable[[], None], int]] = [
            (self._place_order, 24),
            (self._pay, 14),
            (self._change_status, 12),
            (self._change_customer, 8),
            (self._change_nothing, 5),
            (self._change_lob, 8),
            (self._change_next_to_lob, 5),
            (self._move_product_key, 4),
            (self._move_line_key, 4),
            (self._insert_and_delete, 4),
            (self._delete_and_insert, 4),
            (self._delete_order, 5),
            (self._set_nulls, 4),
            (self._extremes, 2),
            (self._many_rows, 3),
            (self._rolled_back_work, 6),
            (self._new_people_and_products, 6),
        ]
        kind = self._random.choices([k for k, _ in kinds], [w for _, w in kinds])[0]
        kind()
        if kind == self._rolled_back_work:
            self.roll_back()
            self.rolled_back += 1
        else:
            self._commit()

    def roll_back(self) -> None:
        """Roll back. Raises pymssql.Error, as all methods do: pymssql's rollback raises errors of a lower layer."""
        try:
            self.connection.rollback()
        except MSSQLException as error:
            raise pymssql.OperationalError(str(error)) from error

    def run(self, stop: threading.Event, transactions_per_second: float) -> None:
        """Run transactions at about the given rate until ``stop`` is set."""
        pause = 1.0 / transactions_per_second
        due = time.monotonic()
        while not stop.is_set():
            self.step()
            due = max(due + pause, time.monotonic() - 1.0)
            stop.wait(max(0.0, due - time.monotonic()))

    def mark_end(self) -> str:
        """Insert a last payment and return its unique note. Capture has caught up when the change table has it."""
        note = f"end of workload {uuid.UUID(int=self._random.getrandbits(128))}"
        self._insert_payment(self._random.choice(self._orders), note)
        self._commit()
        return note

    def _execute(self, sql: str, parameters: tuple[Value, ...] = ()) -> None:
        self.connection.cursor().execute(sql, parameters)

    def _insert_returning(self, sql: str, parameters: tuple[Value, ...]) -> int:
        cursor = self.connection.cursor()
        cursor.execute(sql, parameters)
        cursor.execute("SELECT CAST(SCOPE_IDENTITY() AS bigint)")
        row = cursor.fetchone()
        if row is None or not isinstance(row[0], int):
            raise RuntimeError(f"SCOPE_IDENTITY() returned {row}")
        return row[0]

    def _commit(self) -> None:
        self.connection.commit()
        self.transactions += 1

    def _moment(self) -> str:
        """Return a datetime2(7) literal with all seven digits, which no driver's datetime can hold."""
        moment = _EPOCH + timedelta(seconds=self._random.randrange(30_000_000))
        return f"{moment:%Y-%m-%d %H:%M:%S}.{self._random.randrange(10_000_000):07d}"

    def _text(self, words: int) -> str:
        return " ".join(self._random.choices(_WORDS, k=words))

    def _long_text(self) -> str:
        return self._text(self._random.choice([1, 40, 1500]))

    def _bytes(self) -> bytes:
        """Return a bytearray: pymssql writes bytes as a quoted string, but a bytearray as 0x…. Its stubs lack this."""
        return cast("bytes", bytearray(self._random.randbytes(self._random.choice([1, 300, 12_000]))))

    def _guid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128)))

    def _price(self) -> Decimal:
        return Decimal(self._random.randrange(1, 5_000_000)) / 10_000

    def _insert_customer(self) -> None:
        name = f"{self._random.choice(_NAMES)} {self._text(1)}"
        email = None if self._random.random() < 0.2 else f"c{self._random.randrange(10**9)}@example.org"
        born = (
            None if self._random.random() < 0.2 else date(1940, 1, 1) + timedelta(days=self._random.randrange(25_000))
        )
        notes = None if self._random.random() < 0.5 else self._long_text()
        self._customers.append(
            self._insert_returning(
                "INSERT INTO dbo.Customers (Name, Email, BirthDate, IsActive, Notes, CreatedAt, ExternalID) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s)",
                (name, email, born, self._random.random() < 0.9, notes, self._moment(), self._guid()),
            )
        )

    def _insert_product(self) -> None:
        code = f"P-{self._next_product:05d}"
        self._next_product += 1
        weight = None if self._random.random() < 0.3 else Decimal(self._random.randrange(1, 999_999)) / 1000
        picture = None if self._random.random() < 0.5 else self._bytes()
        self._execute(
            "INSERT INTO dbo.Products (ProductCode, Name, Price, Weight, Picture, Discontinued, ModifiedAt) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s)",
            (code, self._text(2), self._price(), weight, picture, False, self._moment()),
        )
        self._products.append(code)

    def _insert_order(self) -> None:
        lines = self._random.randrange(1, 5)
        order = self._insert_returning(
            "INSERT INTO dbo.Orders (CustomerID, OrderDate, Amount, Status, Remark, PlacedAt) "
            "VALUES (%s, %s, %s, %s, %s, %s)",
            (
                self._random.choice(self._customers),
                date(2026, 1, 1) + timedelta(days=self._random.randrange(300)),
                Decimal(self._random.randrange(0, 10_000_000)) / 100,
                "new",
                self._long_text() if self._random.random() < 0.3 else None,
                self._moment(),
            ),
        )
        for line in range(1, lines + 1):
            self._insert_line(order, line)
        self._orders.append(order)

    def _insert_line(self, order: int, line: int) -> None:
        discount = None if self._random.random() < 0.5 else Decimal(self._random.randrange(0, 5000)) / 10_000
        self._execute(
            "INSERT INTO dbo.OrderLines (OrderID, LineNumber, ProductCode, Quantity, UnitPrice, Discount) "
            "VALUES (%s, %s, %s, %s, %s, %s)",
            (order, line, self._random.choice(self._products), self._random.randrange(1, 20), self._price(), discount),
        )

    def _insert_payment(self, order: int, note: str | None) -> None:
        payment = self._guid()
        receipt = self._bytes() if self._random.random() < 0.3 else None
        self._execute(
            "INSERT INTO dbo.Payments (PaymentID, OrderID, Amount, Currency, PaidAt, Receipt, Note) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s)",
            (payment, order, self._price(), self._random.choice(["EUR", "USD", "kr"]), self._moment(), receipt, note),
        )
        self._payments.append(payment)

    def _place_order(self) -> None:
        self._insert_order()
        if self._random.random() < 0.5:
            self._insert_payment(self._orders[-1], None)

    def _pay(self) -> None:
        order = self._random.choice(self._orders)
        self._insert_payment(order, self._text(3))
        self._execute("UPDATE dbo.Orders SET Status = N'paid' WHERE OrderID = %s", (order,))

    def _change_status(self) -> None:
        self._execute(
            "UPDATE dbo.Orders SET Status = %s, Amount = Amount + 1 WHERE OrderID = %s AND Amount < 1000000000",
            (self._random.choice(_STATUSES), self._random.choice(self._orders)),
        )

    def _change_customer(self) -> None:
        customer = self._random.choice(self._customers)
        self._execute(
            "UPDATE dbo.Customers SET Name = Name + N' ✓' WHERE CustomerID = %s AND LEN(Name) < 90", (customer,)
        )
        self._execute("UPDATE dbo.Customers SET IsActive = 1 - IsActive WHERE CustomerID = %s", (customer,))

    def _change_nothing(self) -> None:
        self._execute("UPDATE dbo.Orders SET Status = Status WHERE OrderID = %s", (self._random.choice(self._orders),))
        self._execute(
            "UPDATE dbo.OrderLines SET Quantity = Quantity WHERE OrderID = %s", (self._random.choice(self._orders),)
        )

    def _change_lob(self) -> None:
        self._execute(
            "UPDATE dbo.Customers SET Notes = %s WHERE CustomerID = %s",
            (self._long_text(), self._random.choice(self._customers)),
        )
        self._execute(
            "UPDATE dbo.Products SET Picture = %s WHERE ProductCode = %s",
            (self._bytes(), self._random.choice(self._products)),
        )

    def _change_next_to_lob(self) -> None:
        self._execute(
            "UPDATE dbo.Customers SET Email = %s WHERE CustomerID = %s",
            (f"n{self._random.randrange(10**9)}@example.org", self._random.choice(self._customers)),
        )

    def _move_product_key(self) -> None:
        index = self._random.randrange(len(self._products))
        old, new = self._products[index], f"P-{self._next_product:05d}"
        self._next_product += 1
        self._execute("UPDATE dbo.Products SET ProductCode = %s WHERE ProductCode = %s", (new, old))
        self._execute("UPDATE dbo.OrderLines SET ProductCode = %s WHERE ProductCode = %s", (new, old))
        self._products[index] = new

    def _move_line_key(self) -> None:
        order = self._random.choice(self._orders)
        self._execute("UPDATE dbo.OrderLines SET LineNumber = LineNumber + 100 WHERE OrderID = %s", (order,))

    def _insert_and_delete(self) -> None:
        self._insert_payment(self._random.choice(self._orders), "short-lived")
        self._execute("DELETE FROM dbo.Payments WHERE PaymentID = %s", (self._payments.pop(),))

    def _delete_and_insert(self) -> None:
        index = self._random.randrange(len(self._products))
        code = self._products[index]
        self._execute("DELETE FROM dbo.Products WHERE ProductCode = %s", (code,))
        # The same key for the server's usual collation, another one for a warehouse.
        code = self._products[index] = code.swapcase()
        self._execute(
            "INSERT INTO dbo.Products (ProductCode, Name, Price, Weight, Picture, Discontinued, ModifiedAt) "
            "VALUES (%s, %s, %s, NULL, NULL, 1, %s)",
            (code, f"reborn {self._text(1)}", self._price(), self._moment()),
        )

    def _delete_order(self) -> None:
        if len(self._orders) < 50:
            self._insert_order()
            return
        order = self._orders.pop(self._random.randrange(len(self._orders)))
        self._execute("DELETE FROM dbo.OrderLines WHERE OrderID = %s", (order,))
        self._execute("DELETE FROM dbo.Payments WHERE OrderID = %s", (order,))
        self._execute("DELETE FROM dbo.Orders WHERE OrderID = %s", (order,))

    def _set_nulls(self) -> None:
        self._execute(
            "UPDATE dbo.Customers SET Email = NULL, BirthDate = NULL, Notes = NULL WHERE CustomerID = %s",
            (self._random.choice(self._customers),),
        )
        self._execute("UPDATE dbo.Orders SET Remark = NULL WHERE OrderID = %s", (self._random.choice(self._orders),))

    def _extremes(self) -> None:
        self._execute(
            "UPDATE dbo.Orders SET Amount = %s, PlacedAt = %s, OrderDate = %s WHERE OrderID = %s",
            (_AMOUNT_MAX, "9999-12-31 23:59:59.9999999", date(1, 1, 1), self._random.choice(self._orders)),
        )
        self._execute(
            "UPDATE dbo.Products SET Price = %s, ModifiedAt = %s WHERE ProductCode = %s",
            (_MONEY_MAX, "0001-01-01 00:00:00.0000000", self._random.choice(self._products)),
        )

    def _many_rows(self) -> None:
        self._execute(
            "UPDATE dbo.Products SET Price = Price * 0.5 WHERE Price > 100 AND ProductCode LIKE %s",
            (f"%{self._random.randrange(10)}",),
        )

    def _rolled_back_work(self) -> None:
        """Run statements to be rolled back. They are written out here, because their keys must not be recorded."""
        order = self._random.choice(self._orders)
        self._execute("UPDATE dbo.Orders SET Amount = -1 WHERE OrderID = %s", (order,))
        self._execute("DELETE FROM dbo.OrderLines WHERE OrderID = %s", (order,))
        self._execute(
            "INSERT INTO dbo.Customers (Name, IsActive, CreatedAt, ExternalID) VALUES (N'nobody', 1, %s, %s)",
            (self._moment(), self._guid()),
        )

    def _new_people_and_products(self) -> None:
        self._insert_customer()
        self._insert_product()
