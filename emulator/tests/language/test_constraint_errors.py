"""A constraint that cannot be made: the error that says why, and 1750 behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance_server import Server, Source, new_database
from emulator_process import Emulator

_RESULT = (1750, 0, "Could not create constraint or index. See previous errors.")
_CAUGHT = "BEGIN CATCH SELECT ERROR_NUMBER(), ERROR_MESSAGE(), @@ERROR END CATCH"


@pytest.fixture(scope="module")
def source(emulator: Emulator) -> Iterator[Source]:
    server = Server(emulator.host, emulator.port, emulator.user, emulator.password, is_emulator=True)
    with new_database(server, with_cdc=False) as made:
        made.admin.run("CREATE TABLE dbo.keyed (k int NOT NULL PRIMARY KEY, n int NULL)")
        made.admin.run("INSERT dbo.keyed VALUES (1, 5), (2, 5)")
        yield made


@pytest.mark.parametrize("name", ["#nullable", "nullable"])
def test_nullable_key_has_its_reason_and_its_result(source: Source, name: str) -> None:
    errors = source.admin.send(f"SELECT 1\nCREATE TABLE {name} (a int NULL PRIMARY KEY)").errors
    reason = f"Cannot define PRIMARY KEY constraint on nullable column in table '{name}'."
    assert [(e.number, e.state, e.text) for e in errors] == [(8111, 1, reason), _RESULT]


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        ("UNIQUE (n)", 1505),
        ("PRIMARY KEY (n)", 1779),
        ("FOREIGN KEY (n) REFERENCES dbo.keyed (n)", 1776),
        ("FOREIGN KEY (n) REFERENCES dbo.absent (n)", 1767),
    ],
)
def test_constraint_of_a_table_has_its_reason_and_its_result(source: Source, constraint: str, reason: int) -> None:
    errors = source.admin.send(f"ALTER TABLE dbo.keyed ADD CONSTRAINT added {constraint}").errors
    assert [e.number for e in errors] == [reason, 1750]


def test_index_has_its_reason_only(source: Source) -> None:
    assert [e.number for e in source.admin.send("CREATE UNIQUE INDEX ix ON dbo.keyed (n)").errors] == [1505]


def test_catch_has_the_result_only_and_throws_it_alone(source: Source) -> None:
    failing = "BEGIN TRY CREATE TABLE dbo.bad (a int NULL PRIMARY KEY) END TRY"
    reply = source.admin.send(f"{failing} {_CAUGHT}")
    assert (reply.errors, reply.results[0].rows) == ([], [(1750, _RESULT[2], 1750)])
    thrown = source.admin.send(f"{failing} BEGIN CATCH THROW END CATCH").errors
    assert [e.number for e in thrown] == [1750]
