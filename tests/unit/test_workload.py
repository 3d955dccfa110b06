from typing import cast

import pymssql
import pytest
from pymssql._mssql import MSSQLDatabaseException

from floodmark_laptop.workload import Workload


class Cut:
    """A connection whose server died; this is what came of it there."""

    def rollback(self) -> None:
        raise MSSQLDatabaseException(20017, b"Unexpected EOF from the server")


def test_rollback_at_a_server_that_died_is_an_error_of_the_driver() -> None:
    with pytest.raises(pymssql.OperationalError, match="Unexpected EOF from the server"):
        Workload(cast("pymssql.Connection", Cut())).roll_back()
