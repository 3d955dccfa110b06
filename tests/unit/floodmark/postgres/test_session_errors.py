import psycopg
import pytest

from floodmark.core.errors import (
    FloodmarkBugError,
    FloodmarkError,
    TargetRefusedError,
    WarehouseAdminError,
    WarehouseUnavailableError,
)
from floodmark.postgres.session import WarehouseConnection, by_sqlstate, open_transaction, translate


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (psycopg.errors.AdminShutdown, WarehouseUnavailableError, "not available"),
        (psycopg.errors.ConnectionFailure, WarehouseUnavailableError, "not available"),
        (psycopg.errors.DeadlockDetected, WarehouseUnavailableError, "not available"),
        (psycopg.errors.TooManyConnections, WarehouseUnavailableError, "not available"),
        (psycopg.OperationalError, WarehouseUnavailableError, "not available"),
        (psycopg.errors.DiskFull, WarehouseAdminError, "disk space"),
        (psycopg.errors.InsufficientPrivilege, TargetRefusedError, "Grant"),
        (psycopg.errors.InvalidPassword, WarehouseAdminError, "user and password"),
        (psycopg.errors.InvalidCatalogName, WarehouseAdminError, "database name"),
        (
            psycopg.errors.ProgramLimitExceeded,
            TargetRefusedError,
            "larger than PostgreSQL allows: it went wrong",
        ),
        (psycopg.errors.TooManyColumns, TargetRefusedError, "1,600 columns"),
        (psycopg.errors.UndefinedTable, FloodmarkBugError, "42P01"),
    ],
)
def test_driver_error_becomes_the_error_of_who_must_act(
    error: type[psycopg.Error], kind: type[FloodmarkError], words: str
) -> None:
    found = translate(error("it went wrong"), "shop")
    assert type(found) is kind
    assert str(found).startswith("shop: ")
    assert ("it went wrong" in found.in_full) is not issubclass(error, psycopg.DataError)
    assert words in str(found)


@pytest.mark.parametrize("state", ["22P02", "22X99", "23505", "53100", "54000", "57014", None])
def test_rows_of_the_warehouse_are_in_no_message(state: str | None) -> None:
    first = "invalid input syntax: 4711" if state and state[:2] == "22" else "it went wrong"
    found = by_sqlstate(state, f"ERROR: {first}\nDETAIL: Key (Email)=(4711)\nCONTEXT: COPY t, line 1: 4711", "shop")
    assert ("4711" in found.in_full) is (state is None)  # a driver has lost the connection: no server wrote this


@pytest.mark.parametrize("state", ["P0001", "P0042"])
def test_words_of_a_trigger_are_in_no_log_and_refuse_its_table(state: str) -> None:
    found = by_sqlstate(state, "ERROR: no order 4711", "dbo.Orders")
    assert type(found) is TargetRefusedError
    assert "4711" not in found.in_full
    assert f"error {state}. Its message may quote a row" in str(found)


def test_warehouse_that_is_down_can_be_tried_again_and_its_password_is_not_said() -> None:
    nowhere = WarehouseConnection("127.0.0.1", 1, "w", "u", "s3cret")
    with pytest.raises(WarehouseUnavailableError, match="cannot be reached") as raised, open_transaction(nowhere):
        pytest.fail("there is nobody on port 1")
    assert raised.value.retryable
    assert "s3cret" not in str(raised.value)
