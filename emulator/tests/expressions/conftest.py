"""Expressions over the wire: one database and one connection for the session, on the emulator or a real SQL Server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance_server import Client, new_database, server_under_test

_TABLES = (
    "CREATE TABLE names (id int PRIMARY KEY, name varchar(10), wide nvarchar(10), code char(5))",
    "CREATE INDEX names_name ON names (name)",
    "INSERT names VALUES (1, 'abc', N'abc', 'abc'), (2, 'abc ', N'abc ', 'abc'), (3, 'abd', N'abd', 'abd'),"
    " (4, NULL, NULL, NULL)",
    "CREATE TABLE sales (id int PRIMARY KEY, region varchar(10), year_no int, amount decimal(9,2))",
    "INSERT sales VALUES (1, 'north', 2023, 10), (2, 'north', 2024, 20), (3, 'south', 2023, 5), (4, 'south', 2024, 7),"
    " (5, 'south', 2024, 3)",
)


@pytest.fixture(scope="session")
def sql(request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client in a database with the tables names and sales."""
    server = server_under_test(lambda: request.getfixturevalue("emulator"))
    with new_database(server, with_cdc=False) as source:
        source.admin.run(*_TABLES)
        yield source.admin
