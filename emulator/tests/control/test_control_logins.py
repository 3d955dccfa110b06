"""Logins that are refused on demand: number and state as they come over the wire."""

from __future__ import annotations

import struct

import pytest

from cdc_database import CdcDatabase, Row
from emulator_process import Emulator
from raw_client import RawClient

_ERROR = 0xAA


def refusal(emulator: Emulator, password: str = "") -> tuple[int, int] | None:
    """Log in; number and state of the first error of the answer, or None."""
    with RawClient(emulator.port) as client:
        answer = client.log_in(password or emulator.password)
    return struct.unpack_from("<IB", answer, 3) if answer[0] == _ERROR else None


def faults(shop: CdcDatabase) -> list[Row]:
    return shop.query("EXEC emulator.help_faults")


@pytest.mark.parametrize("number", [4060, 40613, 976, 978, 983, 18456])
def test_logins_are_refused_so_many_times(shop: CdcDatabase, controlled_emulator: Emulator, number: int) -> None:
    shop.run(f"EXEC emulator.fail_logins @error = {number}, @times = 2, @state = 38")
    assert [refusal(controlled_emulator) for _ in range(3)] == [(number, 38), (number, 38), None]
    assert faults(shop) == []


def test_logins_are_refused_until_the_fault_is_cleared(shop: CdcDatabase, controlled_emulator: Emulator) -> None:
    shop.run("EXEC emulator.fail_logins @error = 983, @times = 0")
    assert [refusal(controlled_emulator) for _ in range(3)] == [(983, 1)] * 3
    assert len(shop.query("SELECT name FROM sys.tables WHERE name = N't'")) == 1, "open sessions go on"
    shop.run("EXEC emulator.clear_faults")
    assert refusal(controlled_emulator) is None


def test_only_the_named_login_and_database_are_refused(shop: CdcDatabase, controlled_emulator: Emulator) -> None:
    shop.run(
        "EXEC emulator.fail_logins @error = 4060, @times = 0, @login = N'loader'",
        f"EXEC emulator.fail_logins @error = 976, @times = 0, @database = N'{shop.name}'",
    )
    assert refusal(controlled_emulator) is None, "sa in its default database"
    with pytest.raises(Exception, match=shop.name):
        controlled_emulator.connect_mssql_python(shop.name)


def test_wrong_password_is_refused_before_a_fault_is_met(shop: CdcDatabase, controlled_emulator: Emulator) -> None:
    shop.run("EXEC emulator.fail_logins @error = 983")
    assert refusal(controlled_emulator, "wrong") == (18456, 1)
    assert [fault["times_left"] for fault in faults(shop)] == [1]


@pytest.mark.parametrize("arguments", ["@error = 18470", "@error = 4060, @state = 0", "@error = 4060, @state = 256"])
def test_refusal_that_means_nothing_is_refused(shop: CdcDatabase, arguments: str) -> None:
    assert shop.error_of(f"EXEC emulator.fail_logins {arguments}") == 49998
